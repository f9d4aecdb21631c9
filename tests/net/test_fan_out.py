"""Publications to very many subscriptions, written to their clients in turns."""

import asyncio

import pytest

import contrada as ct
from contrada.model import Filter, Notification
from contrada.model.codec import to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.fair_scheduler import TURN_S
from contrada.net.broker.server_connection import WRITTEN_TOGETHER_BYTES, ServerConnection
from contrada.net.wire.frames import encode
from tests.asynchronous import on_loop, until
from tests.net.costly import Desk
from tests.net.requests import publish, subscribe

PLAIN = to_msgpack(Filter("x = 1"))


@pytest.mark.parametrize("count", [3, 20])
@on_loop
async def test_clients_are_written_to_in_turns(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns of all clients would be one, so that a publication to many stops the loop."""
    monkeypatch.setattr("contrada.net.broker.delivery_rounds.ROUND_S", -1.0)
    desk = Desk()
    clients = [desk.client() for _ in range(count)]
    for each in clients:
        await desk.longest_s(each, encode(subscribe(1, 1, PLAIN, 2**20)))
    publisher = desk.client()
    before = [*map(desk.written, clients)]
    small = to_msgpack(Notification({"x": 1}))
    publisher.data_received(encode(publish(1, 0, [small])))
    turns, served = [], 0
    while served < count:
        now = sum(desk.written(each) > size for each, size in zip(clients, before, strict=True))
        turns.append(now - served)
        served = now
        await asyncio.sleep(0)
    assert max(turns) == 1


@on_loop
async def test_a_publication_to_many_is_queued_in_turns() -> None:
    """One notification for all subscriptions of a broker would stop its loop."""
    limits = ct.Limits(service=ct.ServiceLimits(deliveries_per_turn=10))
    desk = Desk(Broker(core_limits=limits))
    client, publisher = desk.client(), desk.client()
    for number in range(95):
        await desk.longest_s(client, encode(subscribe(number, number, PLAIN, 0)))
    small = [to_msgpack(Notification({"x": 1, "n": n})) for n in range(3)]
    publisher.data_received(encode(publish(1, 0, small)))
    queued, most = 0, 0
    while queued < 3 * 95:
        before, queued = queued, sum(each[1] for each in desk.broker._sessions[client].waiting())
        most = max(most, queued - before)
        await asyncio.sleep(0)
    assert 0 < most <= 10
    await until(lambda: desk.broker.statistics().published == 3)


@on_loop
async def test_frames_for_many_queues_of_a_client_are_written_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker would spend half of its time on a call of the system for each queue."""
    sizes: list[int] = []
    write = ServerConnection._write_outgoing

    def note(self: ServerConnection) -> None:
        sizes.append(sum(map(len, self._connection.outgoing)))
        write(self)

    desk = Desk()
    client, publisher = desk.client(), desk.client()
    for number in range(300):
        await desk.longest_s(client, encode(subscribe(number, number, PLAIN, 2**20)))
    monkeypatch.setattr(ServerConnection, "_write_outgoing", note)
    large = to_msgpack(Notification({"x": 1, "text": "t" * 1_000}))
    await desk.longest_s(publisher, encode(publish(1, 0, [large])))
    await until(lambda: sum(sizes) > 300_000)
    ends = [size for size in sizes if size]
    assert len(ends) < 12, "a reply, and the deliveries in parts of 64 KiB, or of a turn's time"
    assert max(ends) < 2 * WRITTEN_TOGETHER_BYTES


def test_a_turn_of_deliveries_is_shorter_than_that_of_a_connection() -> None:
    """Two publishers to thousands of subscriptions each would hold the loop for half a second."""
    dearest_s = 3e-6
    assert ct.ServiceLimits().deliveries_per_turn * dearest_s < TURN_S
