"""`Names`: tells naming services of generated names, and asks them.

A question asks for all names of a kind of document, once in a while, so that translating a
notification mostly costs no question.

Source: Erenkrantz 2001 §6.5 (knowledgeable applications contact the daemon).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from contrada.errors import ContradaError, ServiceError
from contrada.integrations.documents.naming_table import KIND_NAMES_MAX, NamingRecord, NamingTable
from contrada.integrations.feeds.naming_service import RECORDS_ASKED
from contrada.model import Filter, Notification
from contrada.routing.router_messages import SourceState
from contrada.service import Service

TTL_S: Final = 300.0
"""Seconds for which answers of naming services are used, by default. Beyond it: they are asked
again, and told again."""

NAMES_WAIT_S: Final = 5.0
"""Seconds for which is waited for an answer of naming services, where nothing else is said. Beyond
it: ServiceError, and as long as this they are not asked again."""

NAMES_SETTLE_S: Final = 1.0
"""Seconds for which a name is asked for that naming services do not know. Beyond it: it is
unknown."""

ASKED_AGAIN_S: Final = 0.25
"""Seconds from one question to the next about what is not there yet: a naming service, or a name.
Beyond it: it is asked again."""

KINDS_CACHED_MAX: Final = 256
"""Kinds of documents whose names a client keeps. Beyond it: those asked for longest ago are asked
for again."""

NAMES_REGISTERED_MAX: Final = 65_536
"""Names that a client knows to have told of. Beyond it: all are told of again."""

_LOG: Final = logging.getLogger("contrada.integrations.feeds")
_EVERYTHING: Final = Filter({})
_ANSWERED: Final = (SourceState.ANSWERED, SourceState.EMPTY)


class Names:
    """What naming services know, seen from one access point. Cached with a time to live."""

    def __init__(
        self,
        service: Service,
        *,
        ttl_s: float = TTL_S,
        wait_s: float = NAMES_WAIT_S,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """`now_s` is a clock that never goes back. Raises ServiceError."""
        for name, seconds in (("ttl_s", ttl_s), ("wait_s", wait_s)):
            if not seconds > 0:
                raise ServiceError(f"{name} = {seconds!r}: expected seconds above 0")
        self._service = service
        self._ttl_s, self._wait_s, self._now_s = ttl_s, wait_s, now_s
        self._told: dict[tuple[str, str], float] = {}
        self._kinds: dict[str, _CachedNames] = {}
        self._silent_until_s = -1.0
        self._lock = asyncio.Lock()
        self.asked = 0
        """How many questions were asked so far."""
        self.invalid = 0
        """How many answers were no records."""

    async def register(self, kind: str, names: Mapping[str, tuple[str, str]]) -> int:
        """Tell naming services what generated names stand for. Returns how many were told.

        `names` has for each its original name and position. Names told within the time to live are
        not told again. Returns when the service has taken the records, so that later publications
        come after them. Raises as `Service.publish`.
        """
        now = self._now_s()
        new = [name for name in names if self._told.get((kind, name), now) <= now]
        records = [NamingRecord(kind, name, *names[name], "", 0) for name in new]
        await self._service.publish_batch([record.to_notification() for record in records])
        if len(self._told) + len(new) > NAMES_REGISTERED_MAX:
            self._told.clear()
        self._told.update(dict.fromkeys(((kind, name) for name in new), now + self._ttl_s))
        return len(new)

    async def originals(
        self, kind: str, generated: Iterable[str] = ()
    ) -> Mapping[str, NamingRecord]:
        """The records about a kind of document, by generated name.

        Where one of the `generated` names is not among them they are asked for again, for as long
        as NAMES_SETTLE_S: a naming service may not have heard of it yet. Then it counts as unknown
        for the time to live. Raises ServiceError where no naming service answers,
        ServiceClosedError, ConnectionFailedError.
        """
        wanted = set(generated)
        async with self._lock:
            known = self._kinds.get(kind)
            if known is None or known.until_s <= self._now_s() or not wanted <= known.settled:
                known = await self._learn(kind, wanted, known)
            return known.records

    async def generated(self, kind: str, original: str) -> list[NamingRecord]:
        """The records about an original name, in order. Raises as `originals`."""
        records = await self.originals(kind)
        return NamingTable(records.values()).of_original(kind, original)

    async def all(self, where: Filter = _EVERYTHING) -> NamingTable:
        """What naming services know, asked for anew; maybe not of all. Raises as `originals`."""
        async with self._lock:
            return await self._ask(where)

    async def _learn(
        self, kind: str, wanted: set[str], before: "_CachedNames | None"
    ) -> "_CachedNames":
        end_s = self._now_s() + NAMES_SETTLE_S
        while True:
            table = await self._ask(Filter({"kind": kind}))
            records = table.of_kind(kind)
            if wanted <= records.keys() or self._now_s() >= end_s:
                break
            await asyncio.sleep(ASKED_AGAIN_S)
        settled = wanted | records.keys()
        if before is not None and len(before.settled) < KIND_NAMES_MAX:
            settled |= before.settled
        self._kinds.pop(kind, None)
        while len(self._kinds) >= KINDS_CACHED_MAX:
            del self._kinds[next(iter(self._kinds))]
        known = _CachedNames(records, self._now_s() + self._ttl_s, settled)
        self._kinds[kind] = known
        return known

    async def _ask(self, where: Filter) -> NamingTable:
        """What naming services answer; waits until there is one."""
        end_s = self._now_s() + self._wait_s
        while (left_s := end_s - self._now_s()) > 0 and self._now_s() >= self._silent_until_s:
            self.asked += 1
            table = NamingTable()
            asked = self._service.query(RECORDS_ASKED & where, timeout_s=left_s)
            async with asked as answers:
                async for each in answers:
                    self._take(table, each)
            if any(each.state in _ANSWERED and each.name[:1] != "@" for each in answers.reports):
                return table
            await asyncio.sleep(min(ASKED_AGAIN_S, left_s))
        if self._now_s() >= self._silent_until_s:
            self._silent_until_s = self._now_s() + self._wait_s
        raise ServiceError(
            f"no naming service has answered within {self._wait_s:g} s "
            "(start one with `contrada xml daemon`)"
        )

    def _take(self, table: NamingTable, answer: Notification) -> None:
        try:
            table.take(NamingRecord.from_notification(answer))
        except ContradaError as error:
            self.invalid += 1
            _LOG.warning(
                "%(publisher)r answers no naming record: %(reason)s",
                {"publisher": answer.envelope.publisher, "reason": error},
            )


@dataclass(slots=True)
class _CachedNames:
    """The known names of a kind, until when they are good, and the names known to have no other
    record.
    """

    records: Mapping[str, NamingRecord]
    until_s: float
    settled: set[str]
