"""`Names`: a client of naming services, which registers and looks up generated names.

A query fetches all names of a kind of document, from time to time, so that translating a
notification rarely needs one.

Source: Erenkrantz 2001 §6.5 (knowledgeable applications contact the daemon).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from contrada.errors import ContradaError, ServiceError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.naming_table import NamingRecord, NamingTable
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.naming_service import ANSWERED, RECORDS_ASKED
from contrada.model import Filter
from contrada.service import Service

TTL_S: Final = 300.0
"""Default seconds for which names are valid. Beyond it: they are queried and registered again."""

NAMES_WAIT_S: Final = 5.0
"""Default seconds of waiting for an answer of naming services. Beyond it: ServiceError, and they
are not queried for the same time."""

_LOG: Final = logging.getLogger("contrada.integrations.feeds")
_EVERYTHING: Final = Filter({})


class Names:
    """The names of naming services, seen from one access point, cached with a time to live."""

    def __init__(
        self,
        service: Service,
        *,
        ttl_s: float = TTL_S,
        wait_s: float = NAMES_WAIT_S,
        now_s: Callable[[], float] = monotonic,
        limits: FeedLimits = FeedLimits(),
    ) -> None:
        """`now_s` is a monotonic clock. Raises ServiceError."""
        for name, seconds in (("ttl_s", ttl_s), ("wait_s", wait_s)):
            if not seconds > 0:
                raise ServiceError(f"{name} = {seconds!r}: expected seconds above 0")
        self._service = service
        self._limits = limits
        self._ttl_s, self._wait_s, self._now_s = ttl_s, wait_s, now_s
        self._registered: dict[tuple[str, str], float] = {}
        self._kinds: dict[str, _CachedNames] = {}
        self._unanswered_until_s = -1.0
        self._lock = asyncio.Lock()
        self.asked = 0
        """The number of queries so far."""
        self.invalid = 0
        """The number of answers that were no records."""

    async def register(self, kind: str, names: Mapping[str, tuple[str, str]]) -> int:
        """Registers generated names at naming services. Returns the number of new ones.

        `names` maps each to its original name and position. Names are registered once within the
        time to live. Later publications follow the records. Raises as `Service.publish`.
        """
        now = self._now_s()
        new = [name for name in names if self._registered.get((kind, name), now) <= now]
        records = [NamingRecord(kind, name, *names[name], "", 0) for name in new]
        await self._service.publish_batch([record.to_notification() for record in records])
        if len(self._registered) + len(new) > self._limits.names_registered_max:
            self._registered.clear()
        self._registered.update(dict.fromkeys(((kind, name) for name in new), now + self._ttl_s))
        return len(new)

    async def originals(
        self, kind: str, generated: Iterable[str] = ()
    ) -> Mapping[str, NamingRecord]:
        """Returns the records of a kind of document, by generated name.

        If one of the `generated` names is missing, the query is repeated for `names_settle_s`. Then
        it is unknown for the time to live. Raises ServiceError without answer, as `Service.query`.
        """
        wanted = set(generated)
        async with self._lock:
            known = self._kinds.get(kind)
            if known is None or known.until_s <= self._now_s() or not wanted <= known.settled:
                known = await self._learn(kind, wanted, known)
            return known.records

    async def generated(self, kind: str, original: str) -> list[NamingRecord]:
        """Returns the records of an original name, in order. Raises as `originals`."""
        records = await self.originals(kind)
        return NamingTable(records.values()).of_original(kind, original)

    async def all(self, where: Filter = _EVERYTHING) -> NamingTable:
        """Queries all records of naming services that match a filter. Raises as `originals`."""
        async with self._lock:
            return await self._ask(where)

    async def _learn(
        self, kind: str, wanted: set[str], before: "_CachedNames | None"
    ) -> "_CachedNames":
        end_s = self._now_s() + self._limits.names_settle_s
        while True:
            table = await self._ask(Filter({"kind": kind}))
            records = table.of_kind(kind)
            if wanted <= records.keys() or self._now_s() >= end_s:
                break
            await asyncio.sleep(self._limits.names_query_again_s)
        settled = wanted | records.keys()
        if before is not None and len(before.settled) < DocumentLimits().kind_names_max:
            settled |= before.settled
        self._kinds.pop(kind, None)
        while len(self._kinds) >= self._limits.kinds_cached_max:
            del self._kinds[next(iter(self._kinds))]
        known = _CachedNames(records, self._now_s() + self._ttl_s, settled)
        self._kinds[kind] = known
        return known

    async def _ask(self, where: Filter) -> NamingTable:
        """Returns an answer of naming services; waits for the first one."""
        end_s = self._now_s() + self._wait_s
        while (left_s := end_s - self._now_s()) > 0 and self._now_s() >= self._unanswered_until_s:
            self.asked += 1
            table = NamingTable()
            query = self._service.query(RECORDS_ASKED & where, timeout_s=left_s)
            async with query as answers:
                async for each in answers:
                    try:
                        table.take(NamingRecord.from_notification(each))
                    except ContradaError as error:
                        self.invalid += 1
                        _LOG.warning(
                            "%(publisher)r answers no naming record: %(reason)s",
                            {"publisher": each.envelope.publisher, "reason": error},
                        )
            if any(each.state in ANSWERED and each.name[:1] != "@" for each in answers.reports):
                return table
            await asyncio.sleep(min(self._limits.names_query_again_s, left_s))
        if self._now_s() >= self._unanswered_until_s:
            self._unanswered_until_s = self._now_s() + self._wait_s
        raise ServiceError(
            f"no naming service has answered within {self._wait_s:g} s "
            "(start one with `contrada xml daemon`)"
        )


@dataclass(slots=True)
class _CachedNames:
    """The known names of a kind, their expiry, and the names known to have no other record."""

    records: Mapping[str, NamingRecord]
    until_s: float
    settled: set[str]
