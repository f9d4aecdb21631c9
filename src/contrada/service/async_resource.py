"""`AsyncResource`: an object that is in force inside its own `async with`."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Self


class AsyncResource(ABC):
    """An object that is in force from `open`, or the begin of `async with`, until `aclose`."""

    @abstractmethod
    async def open(self) -> None:
        """Puts it in force; returns when the service has acknowledged. A second call does nothing.

        Raises LimitError, ServiceError, ServiceClosedError.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Ends it; a second call does nothing."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __await__(self) -> Generator[Any, None, Self]:
        """Opens it and returns it; the caller has to close it."""
        return self.__aenter__().__await__()
