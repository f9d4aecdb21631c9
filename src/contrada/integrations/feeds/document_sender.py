"""`Sender`: publishes the notifications made of documents, over any service.

It takes notifications, and records as a `Renderer` gives them; it makes none, and knows no
documents. With `names` it tells naming services what generated names stand for, before it publishes
notifications with these names.

Source: Erenkrantz 2001 §4.1.3 (the sender), §6.5 (the daemon is notified before the event).
"""

import logging
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from contrada.errors import ServiceError
from contrada.integrations.documents import names_in
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.files import BadRecord, Record
from contrada.model import Notification
from contrada.service import Service

SENT_AT_ONCE: Final = 128
"""Notifications that a sender publishes together. Beyond it: the next ones follow."""

_LOG: Final = logging.getLogger("contrada.integrations.feeds")

Sendable: TypeAlias = Notification | Record | BadRecord
"""What a sender takes. Of a bad record nothing is published; it is counted."""


@dataclass(frozen=True, slots=True)
class SenderStatistics:
    """What a sender has `sent`, what of it was `bad`, and how many names were `told`."""

    sent: int
    bad: int
    told: int


class Sender:
    """Publishes what documents were made into."""

    def __init__(
        self, service: Service, names: Names | None = None, *, all_names: bool = False
    ) -> None:
        """`all_names`: those that were not generated are told too, for who asks by patterns.

        Then what has new names waits until a naming service has them, so that who follows names has
        most likely asked for these; at most as long as `Names.originals` does.
        """
        self._service, self._names, self._all_names = service, names, all_names
        self._sent = self._bad = self._told = 0

    async def send(self, items: Sendable | Iterable[Sendable] | AsyncIterable[Sendable]) -> int:
        """Publish in order; how many were published. What comes by and by goes out as it comes.

        Raises as `Service.publish_batch`; those before it are published and counted.
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
                if len(some) == SENT_AT_ONCE:
                    await self._send(some)
                    some = []
            await self._send(some)
        return self._sent - before

    def statistics(self) -> SenderStatistics:
        """What it did so far."""
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
        self._sent += await self._service.publish_batch(found)

    async def _tell(self, names: Names, notifications: list[Notification]) -> None:
        told: dict[str, dict[str, tuple[str, str]]] = {}
        for each in notifications:
            found = names_in(each)
            if found is None:
                continue
            of_kind = told.setdefault(found.kind, {})
            of_kind.update(found.names)
            if self._all_names:
                of_kind.update((name, (name, name)) for name in each if name not in found.names)
        for kind, several in told.items():
            new = await names.register(kind, several)
            self._told += new
            if new and self._all_names:
                try:
                    await names.originals(kind, several)
                except ServiceError as error:
                    _LOG.warning(
                        "who asks by patterns may miss what has new names: %(reason)s",
                        {"reason": error},
                    )
