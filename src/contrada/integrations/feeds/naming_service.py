"""`NamingService`: stores the originals of generated names, and answers queries for them.

    sender ==> record (a notification) ==> every naming service ==> store
    client ==> query on `contrada.naming = 'record'` ==> records

Records are ordinary notifications, so all naming services of a network receive each of them: this
is their replication. A naming service misses records while it is away, or if one is lost. So it
queries the others at its start and from time to time, and publishes the records that they lack.

Source: Erenkrantz 2001 §6.5 (an automated daemon, distributed and tolerant of faults).
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from contrada.delivery.store import Store
from contrada.errors import ConnectionFailedError, ContradaError, QuotaError, StoreError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.naming_table import (
    MARK,
    RECORD,
    NamingOutcome,
    NamingRecord,
    NamingTable,
)
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.model import Filter, Notification
from contrada.model.domains.values import key_of
from contrada.routing.router_messages import SourceState
from contrada.service import Service, Subscription
from contrada.service.async_resource import AsyncResource
from contrada.service.connection_states import reconnections
from contrada.service.group_committer import RETRY_S
from contrada.service.loop_guards import off_loop, stop_tasks
from contrada.service.query.source_query import SourceQuery
from contrada.service.stores.store_location import check_store, open_sound
from contrada.service.stores.table_store import TableStore

RECORDS_ASKED: Final = Filter({MARK: RECORD})
"""The filter of all records, for subscriptions and queries."""

_NOTES: Final = "naming "
ANSWERED: Final = (SourceState.ANSWERED, SourceState.EMPTY)
_LOG: Final = logging.getLogger("contrada.integrations.feeds")


@dataclass(frozen=True, slots=True)
class NamingStatistics:
    """Counts of a naming service.

    It holds `records` of `kinds` of documents. Of the `heard` records, `conflicts` contradicted
    others, `refused` found no room, `invalid` were no records; `unwritten` writes have failed, and
    were tried again. `told` were published for others that lacked them; `asked` counts queries.
    """

    records: int
    kinds: int
    heard: int
    conflicts: int
    refused: int
    invalid: int
    unwritten: int
    told: int
    asked: int


class NamingService(AsyncResource):
    """A naming service at an access point; it runs inside its own `async with`."""

    def __init__(
        self,
        service: Service,
        store: str | Path | Store | None = None,
        *,
        name: str = "",
        limits: FeedLimits = FeedLimits(),
        table_limits: DocumentLimits = DocumentLimits(),
    ) -> None:
        """`service` must stay open; `store` keeps records, as that of `connect`.

        `name` is its name as a source, random by default. Raises ServiceError.
        """
        check_store(store)
        self._service = service
        self._place = store
        self._store: Store | None = None
        self._limits = limits
        self._table = NamingTable(limits=table_limits)
        self._counts: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}  # of the others' tables, at the last query
        self._offer = service.offer(RECORDS_ASKED, self._answer, name=name)
        self._running = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._unwritten, self._reconnected = asyncio.Event(), asyncio.Event()

    @property
    def name(self) -> str:
        """Its name as a source."""
        return self._offer.name

    @property
    def table(self) -> NamingTable:
        """The records; read-only."""
        return self._table

    async def open(self) -> None:
        """Reads the store, subscribes to records, answers queries, and fetches missed records.

        Returns after others' answers, or `catch_up_wait_s`. Raises StoreError, and as `catch_up`.
        """
        if self._tasks:
            return
        async with AsyncExitStack() as opened:
            self._open_store(opened)
            heard = await opened.enter_async_context(self._service.subscribe(RECORDS_ASKED))
            await opened.enter_async_context(self._offer)
            await self.catch_up()
            works = [self._receive(heard), self._catch_up_again(), self._watch_connection()]
            if self._store is not None:
                works.append(self._write())
            self._tasks = [asyncio.create_task(work) for work in works]
            opened.push_async_callback(stop_tasks, self._tasks)
            self._running = opened.pop_all()

    async def aclose(self) -> None:
        """Stops the service. All received records are written first."""
        await self._running.aclose()
        self._tasks = []

    async def ended(self) -> None:
        """Waits until the service ends by an error, and raises it."""
        await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def statistics(self) -> NamingStatistics:
        """Returns the counts so far."""
        kinds = len(self._table.kinds())
        counted = ("heard", "conflicts", "refused", "invalid", "unwritten", "told", "asked")
        return NamingStatistics(
            len(self._table), kinds, **{name: self._counts[name] for name in counted}
        )

    async def catch_up(self) -> None:
        """Queries the other naming services for missed records, and publishes those that they lack.
        One that has as many as at the last query is full, or fetches them by its own.

        Cost: all records of each of them. Raises ServiceClosedError, ConnectionFailedError.
        """
        given: dict[str, set[NamingRecord]] = {}
        async with self._service.query(
            RECORDS_ASKED, timeout_s=self._limits.catch_up_wait_s
        ) as answers:
            async for each in answers:
                record = self._take(each)
                if record is not None:
                    given.setdefault(each.envelope.publisher, set()).add(record)
        names = {each.name for each in answers.reports if each.state in ANSWERED} - {self.name}
        others = {name: given.get(name, set()) for name in names}
        changed = [one for name, one in others.items() if self._sizes.get(name) != len(one)]
        lacking = [record for record in self._table if any(record not in one for one in changed)]
        self._counts["told"] += len(lacking)
        await self._service.publish_batch(record.to_notification() for record in lacking)
        self._sizes = {name: len(one) for name, one in others.items()}

    # --- background tasks ---------------------------------------------------------------------

    async def _receive(self, records: Subscription[Notification]) -> None:
        async for each in records:
            self._counts["heard"] += 1
            self._take(each)

    def _take(self, notification: Notification) -> NamingRecord | None:
        """Adds a received record; returns None for an invalid one."""
        try:
            record = NamingRecord.from_notification(notification)
        except ContradaError as error:
            self._counts["invalid"] += 1
            _LOG.warning(
                "a naming record of %(publisher)r is refused: %(reason)s",
                {"publisher": notification.envelope.publisher, "reason": error},
            )
            return None
        before = self._table.get(record.kind, record.generated)
        outcome = self._table.take(record)
        standing = self._table.get(record.kind, record.generated)
        if outcome is NamingOutcome.CONFLICT:
            self._counts["conflicts"] += 1
            lost = before if standing is record else record
            _LOG.warning(
                "of two naming records the earlier is kept: %(record)s, not %(other)s",
                {"record": standing, "other": lost},
            )
        elif outcome is NamingOutcome.REFUSED:
            self._counts["refused"] += 1
            _LOG.warning("there is no room for a naming record: %(record)s", {"record": record})
        if standing is record and self._store is not None:
            # A digest, as names are longer than keys of a store may be.
            named = msgspec.msgpack.encode((record.kind, record.generated))
            key = _NOTES + hashlib.sha256(named).hexdigest()
            self._store.note(key, msgspec.msgpack.encode(record))
            self._unwritten.set()
        return record

    async def _catch_up_again(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.catch_up_s):
                    await self._reconnected.wait()
            self._reconnected.clear()
            try:
                await self.catch_up()
            except (ConnectionFailedError, QuotaError) as error:
                _LOG.warning("naming services cannot catch up yet: %(reason)s", {"reason": error})

    async def _watch_connection(self) -> None:
        async for _ in reconnections(self._service.connection_states()):
            self._reconnected.set()
        await asyncio.Event().wait()  # The receiver of records raises the reason.

    async def _write(self) -> None:
        """Writes received records to disk, all that arrived during the last write together."""
        assert self._store is not None
        told = ""
        while True:
            await self._unwritten.wait()
            self._unwritten.clear()
            try:
                await off_loop(self._store.seal())
                told = ""
            except StoreError as error:  # Records that arrive meanwhile are written with these.
                self._counts["unwritten"] += 1
                if str(error) != told:
                    told = str(error)
                    fields = {"reason": error}
                    _LOG.error("naming records cannot be written down yet: %(reason)s", fields)
                await asyncio.sleep(RETRY_S)
                self._unwritten.set()

    async def _answer(self, question: SourceQuery) -> AsyncIterator[Notification]:
        """Yields records that may match; the service filters them."""
        self._counts["asked"] += 1
        filters = question.filters.filters
        for kind in self._table.kinds():  # Of each once: records of others are many.
            if any(each.set_of("kind").holds(key_of(kind)) for each in filters):
                for record in tuple(self._table.of_kind(kind).values()):
                    yield record.to_notification()

    # --- the store ----------------------------------------------------------------------------

    def _open_store(self, opened: AsyncExitStack) -> None:
        place = self._place
        if place is None:
            return
        if isinstance(place, str | Path):
            store = open_sound(place, lambda found: cast(TableStore, found))
            opened.callback(store.close)
            self._store = store
        else:
            self._store = place
            opened.callback(place.sync)
        for name, value in self._store.notes().items():
            if name.startswith(_NOTES):
                try:
                    self._table.take(msgspec.msgpack.decode(value, type=NamingRecord))
                except msgspec.MsgspecError as error:
                    raise StoreError(f"the note {name!r} is no naming record: {error}") from None
