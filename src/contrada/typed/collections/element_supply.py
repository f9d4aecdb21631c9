"""`Supply`: a producer that a collection polls for obvents to add.

Source: EPFL 2503 §4.3.1 (an asynchronous `add` that announces its production).
"""

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from contrada.model import Envelope
from contrada.service import Offered, Offering, Service
from contrada.service.async_resource import AsyncResource

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

Producer: TypeAlias = Callable[[], Awaitable[T | None] | T | None]
"""Returns an obvent when it is polled, or None if it has none."""

_LOG: Final = logging.getLogger("contrada.typed")


class AddElement(Protocol[T_contra]):
    """The collection to which a supply adds."""

    service: Service

    @property
    def offered(self) -> Offered:
        """The advertisement of its elements."""
        ...

    async def add(self, obvent: T_contra, /) -> Envelope:
        """Publishes an obvent."""
        ...


class Supply(AsyncResource, Generic[T]):
    """A producer that is polled for obvents. Inside `async with` its obvents are advertised.

    `failed` counts the polls of `run` that raised.
    """

    def __init__(self, adding: AddElement[T], producer: Producer[T]) -> None:
        self.failed = 0
        self._adding = adding
        self._producer = producer
        self._offering: Offering | None = None

    async def open(self) -> None:
        """Advertises the production. Raises the errors of `Service.advertise`."""
        if self._offering is None:
            self._offering = self._adding.service.advertise(self._adding.offered)
            await self._offering.open()

    async def pull(self) -> Envelope | None:
        """Polls the producer once, and publishes the result. Raises its errors, and `add`'s."""
        given = self._producer()
        obvent: T | None = await given if inspect.isawaitable(given) else given
        return None if obvent is None else await self._adding.add(obvent)

    async def run(
        self, ticks: AsyncIterable[object], on_error: Callable[[Exception], object] | None = None
    ) -> None:
        """Pulls at each tick. Failures are counted and reported, and end nothing."""
        async for _ in ticks:
            try:
                await self.pull()
            except Exception as error:  # noqa: BLE001 - the producer's own code, or one publication
                self.failed += 1
                if on_error is not None:
                    on_error(error)
                else:
                    _LOG.warning("a producer failed: %(reason)r", {"reason": error})

    async def aclose(self) -> None:
        """Withdraws the advertisement."""
        offering, self._offering = self._offering, None
        if offering is not None:
            await offering.unadvertise()
