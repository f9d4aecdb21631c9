"""The frames of a publisher: what shares one, who waits for its answer, and when it is sent."""

import asyncio
import traceback
import weakref
from collections.abc import AsyncIterator
from typing import Final

import pytest

from contrada.connections import connect
from contrada.errors import ConnectionFailedError, ContradaError, LimitError
from contrada.net.broker.broker import Broker
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import Batch, PublishWindow
from contrada.net.wire.frames import Request
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from tests.asynchronous import on_loop

REPLY, DELIVERY = 32, 33
"""Kinds of frames."""

TWO: Final = ClientLimits(publish_notifications_max=3, publish_bytes_max=10, publish_frames_max=2)


class Sent:
    """A window, and the sizes of the messages that it has sent."""

    def __init__(self, limits: ClientLimits = ClientLimits()) -> None:
        self.requests: list[Request] = []
        self.window = PublishWindow(self.requests.append, 0, limits)

    def answer(self, error: ContradaError | None = None) -> None:
        """Answers the oldest request."""
        assert self.window.on_answer(self.requests.pop(0).number, error)

    def counts(self) -> list[int]:
        """The notifications in each frame; each of them is `x`s."""
        return [bytes(each.message).count(b"\xc4") for each in self.requests]


@on_loop
async def test_a_turn_shares_a_frame_and_a_lone_publisher_is_sent_at_once() -> None:
    """A lone publication would wait for a turn of the loop, or each of many have its own frame."""
    sent = Sent()
    answers = [sent.window.add_one(b"x") for _ in range(5)]
    assert sent.counts() == []
    await asyncio.sleep(0)
    assert sent.counts() == [5]
    sent.answer()
    await asyncio.gather(*answers)
    sent.window.add_one(b"x")
    assert sent.counts() == [], "others of this turn may follow, as in the last one"
    await asyncio.sleep(0)
    sent.answer()
    answers = [sent.window.add_one(b"x") for _ in range(3)]
    assert sent.counts() == [1], "the last frame had one notification"
    await asyncio.sleep(0)
    assert sent.counts() == [1, 2]


@on_loop
async def test_a_cancelled_publisher_cancels_no_other() -> None:
    """All publishers of one turn would be cancelled with one of them."""
    sent = Sent()
    one, other = sent.window.add_one(b"x"), sent.window.add_one(b"x")
    await asyncio.sleep(0)
    one.cancel()
    sent.answer()
    await other


@on_loop
async def test_an_answer_reaches_callers_before_and_after_it() -> None:
    """A batch would wait for ever, or an error would be lost."""
    sent = Sent()
    placed: dict[Batch, int] = {}
    sent.window.add([b"x", b"x"], placed)
    ((batch, count),) = placed.items()
    early = batch.answer()
    await asyncio.sleep(0)
    lost = ConnectionFailedError("contrada://there", "lost")
    sent.window.fail(lost, lost)
    assert count == 2
    for answer in (early, batch.answer()):
        with pytest.raises(ConnectionFailedError):
            await answer


@on_loop
async def test_frames_are_full_by_their_limits() -> None:
    """A frame would be longer than a broker reads, or notifications would change their order."""
    sent = Sent(TWO)
    placed: dict[Batch, int] = {}
    sent.window.add([b"x"] * 7 + [b"x" * 12, b"x", b"x" * 9, b"x", b"x"], placed)
    assert [*placed.values()] == [3, 3, 2, 2, 2]
    await asyncio.sleep(0)
    assert sent.counts() == [3, 3], "the others wait for answers"
    sent.answer()
    assert sent.counts() == [3, 2]


@on_loop
async def test_those_before_an_oversized_one_are_sent() -> None:
    """A batch would be half published, and nobody would know which half."""
    sent = Sent()
    placed: dict[Batch, int] = {}
    with pytest.raises(LimitError):
        sent.window.add([b"x", b"x", bytes(CONTENT_BYTES_MAX + 1), b"x"], placed)
    with pytest.raises(LimitError):
        sent.window.add_one(bytes(CONTENT_BYTES_MAX + 1))
    assert [*placed.values()] == [2]
    await asyncio.sleep(0)
    assert sent.counts() == [2]


@on_loop
async def test_each_caller_gets_an_error_of_its_own() -> None:
    """The count of one batch would be that of a later one; each attempt would hold its frames."""
    async with Broker(port=0) as broker, connect(broker.address, reconnect=False) as service:

        async def items() -> AsyncIterator[dict[str, int]]:
            for n in range(5):
                yield {"n": n}
            await service.publish({"n": 5})
            next(iter(broker._connections)).abort()
            async for _ in service.connection_states():
                pass  # It ends with the connection.
            yield {"n": 6}

        with pytest.raises(ConnectionFailedError) as failed:
            await service.publish_batch(items())
        assert failed.value.published == 5
        lengths = set()
        for _ in range(3):
            with pytest.raises(ConnectionFailedError) as failed:
                await service.publish_batch([{"n": 1}])
            assert failed.value.published == 0
            lengths.add(len([*traceback.walk_tb(failed.value.__traceback__)]))
        assert len(lengths) == 1


@pytest.mark.parametrize("count", [1, 20], ids=["on receipt", "by a task"])
@on_loop
async def test_a_reply_and_a_delivery_to_one_connection_are_one_write(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads what it publishes would cost its broker two calls of the system."""
    written: list[bytes] = []
    write = ServerConnection._write_outgoing

    def note(self: ServerConnection) -> None:
        written.append(b"".join(self._connection.outgoing))
        write(self)

    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1") as events,
    ):
        monkeypatch.setattr(ServerConnection, "_write_outgoing", note)
        assert await service.publish_batch([{"a": 1}] * count) == count
        assert (await anext(events))["a"] == 1
        (both,) = filter(None, written)
        assert {each[3] for each in (both, both[both.index(b"ct", 1) :])} == {REPLY, DELIVERY}
        monkeypatch.undo()


@on_loop
async def test_a_batch_that_waits_for_its_answer_does_not_hold_its_items() -> None:
    """Thousands of items would stay until their answers, and slow the garbage collector."""

    class Items(list[dict[str, int]]):
        """A list that tells when it is freed."""

    async with Broker(port=0) as broker, connect(broker.address) as service:
        items = Items({"n": n} for n in range(5))
        held = weakref.ref(items)
        publishing = asyncio.create_task(service.publish_batch(items))
        del items
        await asyncio.sleep(0)
        assert not publishing.done()
        assert held() is None
        assert await publishing == 5
