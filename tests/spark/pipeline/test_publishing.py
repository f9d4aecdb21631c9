"""Publishing what Spark hands over row by row."""

import asyncio
from collections.abc import Iterator
from types import TracebackType

import pytest

from contrada.model import Notification
from contrada.spark.pipeline import publishing

HANDED_WAIT_S = 10


class Service:
    """A service that takes everything."""

    async def __aenter__(self) -> "Service":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        pass

    async def publish_batch(self, batch: list[Notification]) -> int:
        """How many there are."""
        return len(batch)


def test_a_connection_lives_while_spark_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker takes a client for dead that says nothing while Spark sorts its rows."""
    monkeypatch.setattr(publishing, "connect", lambda *_, **__: Service())

    async def publish() -> list[int]:
        loop = asyncio.get_running_loop()

        def rows() -> Iterator[Notification]:
            alive = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
            alive.result(HANDED_WAIT_S)
            yield Notification({"n": 1})

        counts: list[int] = []
        await publishing._publish("contrada://there:1", rows(), counts.append)
        return counts

    assert asyncio.run(publish()) == [1]
