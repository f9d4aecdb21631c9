"""`Sender`: publishes the notifications of documents, over any service.

It takes notifications, and records of a `Renderer`, and knows no documents. With `names` it
registers generated names at naming services, before it publishes notifications with these names.

Source: Erenkrantz 2001 §4.1.3 (the sender), §6.5 (the daemon is notified before the event).
"""

import logging
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from contrada.errors import ContradaError, ServiceError
from contrada.integrations.documents import names_in
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.files import BadRecord, Record
from contrada.model import Notification
from contrada.service import Service

_LOG: Final = logging.getLogger("contrada.integrations.feeds")

Sendable: TypeAlias = Notification | Record | BadRecord
"""Input of a sender. A bad record is only counted."""


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    """Counts of `sent` notifications, `bad` records, and registered names (`told`)."""

    sent: int
    bad: int
    told: int


class Sender:
    """Publishes the notifications of documents."""

    def __init__(
        self,
        service: Service,
        names: Names | None = None,
        *,
        all_names: bool = False,
        limits: FeedLimits = FeedLimits(),
    ) -> None:
        """`all_names` also registers names that were not generated, for subscribers with patterns.

        Notifications with new names then wait until a naming service has them, at most as long as
        `Names.originals`, so that subscriptions can follow the names first.
        """
        self._service, self._names, self._all_names = service, names, all_names
        self._limits = limits
        self._sent = self._bad = self._told = 0

    async def send(self, items: Sendable | Iterable[Sendable] | AsyncIterable[Sendable]) -> int:
        """Publishes in order, asynchronous items one by one; returns the number of notifications.

        Raises as `Service.publish_batch`; earlier notifications are published and counted.
        """
        before = self._sent
        if isinstance(items, Notification | Record | BadRecord):
            await self._send([items])
        elif isinstance(items, AsyncIterable):
            async for each in cast(AsyncIterable[Sendable], items):
                await self._send([each])
        else:
            some: list[Sendable] = []
            for item in items:
                some.append(item)
                if len(some) == self._limits.sent_at_once:
                    await self._send(some)
                    some = []
            await self._send(some)
        return self._sent - before

    def statistics(self) -> SenderStatistics:
        """Returns the counts so far."""
        return SenderStatistics(self._sent, self._bad, self._told)

    async def _send(self, items: list[Sendable]) -> None:
        found: list[Notification] = []
        for item in items:
            if isinstance(item, BadRecord):
                self._bad += 1
            else:
                found.append(item.notification if isinstance(item, Record) else item)
        if self._names is not None:
            await self._tell(self._names, found)
        try:
            self._sent += await self._service.publish_batch(found)
        except ContradaError as error:
            self._sent += error.published or 0
            raise

    async def _tell(self, names: Names, notifications: list[Notification]) -> None:
        by_kind: dict[str, dict[str, tuple[str, str]]] = {}
        for each in notifications:
            found = names_in(each)
            if found is None:
                continue
            of_kind = by_kind.setdefault(found.kind, {})
            of_kind.update(found.names)
            if self._all_names:
                of_kind.update((name, (name, name)) for name in each if name not in found.names)
        for kind, several in by_kind.items():
            new = await names.register(kind, several)
            self._told += new
            if new and self._all_names:
                try:
                    await names.originals(kind, several)
                except ServiceError as error:
                    _LOG.warning(
                        "subscriptions by patterns may miss new names: %(reason)s",
                        {"reason": error},
                    )
