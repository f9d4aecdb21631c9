"""`AsyncResource`: what is in force inside `async with`, and ends with it."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Self


class AsyncResource(ABC):
    """What is in force inside its own `async with`: from `open` until it is ended."""

    @abstractmethod
    async def open(self) -> None:
        """Put it in force; returns when the service has acknowledged. Twice is once.

        Raises LimitError, ServiceError, ServiceClosedError.
        """

    @abstractmethod
    async def _end(self) -> None:
        """What leaving `async with` does."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    def __await__(self) -> Generator[Any, None, Self]:
        """`await` puts it in force too, and gives it; whoever does so has to end it."""
        return self.__aenter__().__await__()
