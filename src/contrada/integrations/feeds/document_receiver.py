"""`Receiver`: a subscription that restores the original names of a document.

With `names` generated names are translated back: an attribute with its original name has several
values again.

Source: Erenkrantz 2001 §4.1.4 (the receiver: a filter, a callback), §6.5 (knowledgeable clients).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contrada.errors import ContradaError
from contrada.integrations.documents import SHAPE_TYPE, names_in
from contrada.integrations.documents.naming_table import NamingRecord
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.wild_subscription import FollowedSubject, WildSubscription
from contrada.model import Filter, FilterSet, Notification
from contrada.service import Service, Subscription, SubscriptionStatistics, WhenFull
from contrada.service.async_resource import AsyncResource
from contrada.service.callbacks import handle_all, tell_error

_LOG: Final = logging.getLogger("contrada.integrations.feeds")


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """Counts of received notifications: with some name `translated`, or `untranslated`.

    Then no naming service answers or knows it. `failed` counts errors of handlers.
    """

    translated: int
    untranslated: int
    failed: int
    subscription: SubscriptionStatistics


class Receiver(AsyncResource, AsyncIterator[Notification]):
    """Receives matching notifications; iterate it, or `handle` it, inside its own `async with`."""

    def __init__(
        self,
        service: Service,
        asked: FollowedSubject,
        *,
        names: Names | None = None,
        patterns: Names | Iterable[str] | None = None,
        when_full: WhenFull = "block",
    ) -> None:
        """With `patterns` the names of the filter are patterns; see `WildSubscription`.

        They match the given names, or all of naming services. Raises as `Service.subscribe`.
        """
        self._names = names
        self._translated = self._untranslated = self._failed = 0
        self._again: list[Notification] = []
        """Those that a cancelled reader did not get."""
        self._subscription: WildSubscription | Subscription[Notification]
        if patterns is None:
            plain: Any = asked
            self._subscription = service.subscribe(plain, when_full=when_full)
        else:
            known, of = ((), patterns) if isinstance(patterns, Names) else (patterns, None)
            self._subscription = WildSubscription(
                service, asked, known, names=of, when_full=when_full
            )

    @property
    def filters(self) -> Filter | FilterSet:
        """The filters that the network receives."""
        return self._subscription.filters

    async def open(self) -> None:
        """Subscribes. Raises as `Subscription.open`, and `WildSubscription.open`."""
        await self._subscription.open()

    async def update(self, asked: Any) -> None:
        """Changes the filter, without a gap. Raises as `Subscription.update`."""
        await self._subscription.update(asked)

    async def unsubscribe(self) -> None:
        """Unsubscribes. Nothing is delivered afterwards."""
        self._again.clear()
        await self._subscription.unsubscribe()

    def statistics(self) -> ReceiverStatistics:
        """Returns counts of all received notifications."""
        own = self._subscription.statistics()
        return ReceiverStatistics(self._translated, self._untranslated, self._failed, own)

    async def __anext__(self) -> Notification:
        """Returns the next notification; ends when unsubscribed or when the service is closed."""
        return await self._read(
            self._again.pop() if self._again else await anext(self._subscription)
        )

    async def next(self, timeout_s: float | None = None) -> Notification:
        """Returns the next notification, within so many seconds; see `Subscription.next`."""
        if not self._again:
            self._again.append(await self._subscription.next(timeout_s))
        return await self._read(self._again.pop())

    async def handle(
        self,
        function: Callable[[Notification], Awaitable[object] | object],
        *,
        concurrency: int = 1,
        on_error: Callable[[Exception, Notification], Awaitable[object] | object] | None = None,
    ) -> None:
        """Calls a function with each notification; see `Subscription.handle`.

        An error of it is counted as `failed`, logged, and passed to `on_error`; the loop continues.
        """

        async def failed(error: Exception, item: Notification) -> None:
            self._failed += 1
            _LOG.warning("the handler of a receiver raised: %(reason)r", {"reason": error})
            if on_error is not None:
                await tell_error(on_error, error, item, self.filters)

        await handle_all(self, function, concurrency, failed)

    async def aclose(self) -> None:
        """Ends it, as `unsubscribe`."""
        await self.unsubscribe()

    async def _read(self, found: Notification) -> Notification:
        """Returns a notification with original names, if they are available."""
        if self._names is None:
            return found
        try:
            shape = names_in(found)
            if shape is not None:
                kind, generated = shape.kind, set(shape.names)
            else:
                kind = next(iter(found), "").partition(".")[0]
                generated = {name for name in found if "~" in name}
            records = await self._names.originals(kind, generated)
            read = translated(found, records)
        except asyncio.CancelledError:
            self._again.append(found)
            raise
        except ContradaError as error:
            _LOG.info("names are not translated: %(reason)s", {"reason": error})
            self._untranslated += 1
            return found
        if not generated <= records.keys():
            self._untranslated += 1
        elif read is not found:
            self._translated += 1
        return read


def translated(found: Notification, records: Mapping[str, NamingRecord]) -> Notification:
    """Returns the notification with original names instead of generated ones.

    An attribute with several names has several values. The shape of the document is removed, as it
    belongs to generated names. Raises InvalidNotificationError for too many values.
    """
    if all(name not in records or records[name].original == name for name in found):
        return found
    held: dict[str, list[Any]] = {}
    for name, value in found.attributes.items():
        record = records.get(name)
        values = value if isinstance(value, tuple) else (value,)
        held.setdefault(name if record is None else record.original, []).extend(values)
    attributes = {name: each[0] if len(each) == 1 else each for name, each in held.items()}
    body, content_type = found.body, found.content_type
    if content_type == SHAPE_TYPE:
        body, content_type = b"", ""
    return Notification.from_attributes(attributes, body, content_type, found.envelope)
