"""A bundle in a subscription's queue at a broker is delivered as its notifications would be."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from contrada.matching.packed import Bundle
from contrada.model import Filter, Notification
from contrada.model.codec import to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.session_queue import PASSED_ON_BYTES_MAX, SessionQueue
from contrada.net.wire.frames import (
    Credit,
    CutOff,
    Delivery,
    Failure,
    Frame,
    FrameReader,
    Hello,
    Offers,
    Reply,
    Request,
    encode,
)
from contrada.net.wire.message_codec import encode_publish
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import ENTRY_BYTES
from tests.asynchronous import on_jumping_loop, until
from tests.matching.engines import needs_native
from tests.net.costly import Desk
from tests.net.requests import frames_in, subscribe, unsubscribe

ROOM: Final = ServiceLimits().queue_notifications_max
MANY: Final = 2**40
WAIT_MS: Final = 60_000


class Clients:
    """A reader with some credit, a publisher, and the frames that they got."""

    def __init__(self, credit: int, when_full: str = "", filters: str = "n >= 0") -> None:
        self.broker = Broker()
        self.desk = Desk(self.broker)
        self.reader, self.publisher = self.desk.client(keeps=True), self.desk.client(keeps=True)
        request = subscribe(1, 1, to_msgpack(Filter(filters)), credit)
        asked = type(request)(1, request.message, credit, 0, when_full)
        self.reader.data_received(encode(asked))
        self._read = {each: FrameReader() for each in (self.reader, self.publisher)}
        self._stamp = EnvelopeFactory("p")
        self.encodings: list[bytes] = []
        self.requests = 1

    @property
    def queue(self) -> SessionQueue:
        """The queue of the reader's subscription."""
        session = self.reader._handler
        assert isinstance(session, ClientSession)
        return session._queues["1"]

    def made(self, count: int, size: int = 0) -> list[bytes]:
        """So many stamped notifications, numbered in order, with a body of this size."""
        begin = len(self.encodings)
        items = [Notification({"n": begin + n}, body=b"x" * size) for n in range(count)]
        made = [to_msgpack(each) for each in self._stamp.stamped(items, 1)]
        self.encodings += made
        return made

    def publish(self, count: int, size: int = 0) -> None:
        """Publishes so many in one request."""
        self.requests += 1
        message = encode_publish(self.made(count, size))
        self.publisher.data_received(encode(Request(self.requests, message, wait_ms=WAIT_MS)))

    def answers(self) -> list[Reply]:
        """The answers to publications since the last call."""
        reader = self._read[self.publisher]
        reader.feed(self.desk.take_kept(self.publisher))
        return [each for each in frames_in(reader) if isinstance(each, Reply)]

    def frames(self) -> list[Frame]:
        """The frames that the reader got since the last call."""
        reader = self._read[self.reader]
        reader.feed(self.desk.take_kept(self.reader))
        return frames_in(reader)

    async def delivered(self, credit: int = 0) -> list[bytes]:
        """Grants credit, and returns the notifications that the reader got since the last call."""
        if credit:
            self.reader.data_received(encode(Credit("1", credit)))
        for _ in range(3):
            await asyncio.sleep(0)
        found = [each.notifications for each in self.frames() if isinstance(each, Delivery)]
        return [each for some in found for each in some]


class OtherFeed:
    """Another queue of a connection, with one frame."""

    def __len__(self) -> int:
        return 0

    def next_frame(self) -> Frame:
        """Returns its frame."""
        return Offers([])


def sizes_of(encodings: Sequence[bytes]) -> list[int]:
    return [ENTRY_BYTES + len(each) for each in encodings]


@needs_native
@on_jumping_loop
async def test_a_bundle_is_forwarded_as_it_arrived() -> None:
    """Each notification of a batch would cost steps of its own, or would be another one."""
    clients = Clients(MANY)
    for count in (16, 100, 256, 700):
        clients.publish(count)
        await until(lambda: len(clients.answers()) == 1)
    assert await clients.delivered() == clients.encodings
    assert len(clients.queue) == 0
    assert clients.reader.budget.held_bytes == 0


@needs_native
@pytest.mark.parametrize("seed", range(20))
@on_jumping_loop
async def test_credit_is_kept_within_a_bundle(seed: int) -> None:
    """A reader would get more than it has granted, or less, or in another order."""
    chance = Random(seed)
    clients = Clients(0)
    granted, taken = 0, list[bytes]()
    for _ in range(12):
        clients.publish(chance.choice((1, 3, 15, 16, 40, 256)), chance.choice((0, 0, 300)))
        granted += (credit := chance.choice((0, 1, 700, 20_000, 150_000)))
        taken += await clients.delivered(credit)
        sizes = sizes_of(taken)
        assert sum(sizes) - (sizes[-1] if sizes else 0) <= granted
        assert len(clients.queue) == len(clients.encodings) - len(taken)
        if clients.queue:
            assert sum(sizes) >= granted
    taken += await clients.delivered(MANY)
    assert taken == clients.encodings
    assert clients.queue.held_bytes == clients.reader.budget.held_bytes == 0


@needs_native
@on_jumping_loop
async def test_a_bundle_is_not_divided_to_fill_a_delivery() -> None:
    """Of every third batch a broker would look at each notification."""
    clients = Clients(credit=0)
    for _ in range(4):
        clients.publish(100, 250)
    clients.reader.data_received(encode(Credit("1", MANY)))
    for _ in range(3):
        await asyncio.sleep(0)
    found = [each.notifications for each in clients.frames() if isinstance(each, Delivery)]
    assert [len(each) for each in found] == [300, 100]
    assert [each for some in found for each in some] == clients.encodings


@needs_native
@on_jumping_loop
async def test_a_bundle_and_a_lone_notification_keep_their_order() -> None:
    """The later one would overtake those that are held as a bundle."""
    clients = Clients(0)
    for count in (100, 1, 100, 1):
        clients.publish(count)
    assert len(clients.queue) == 202
    assert await clients.delivered(MANY) == clients.encodings


@on_jumping_loop
async def test_a_lone_notification_passes_an_empty_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would be counted in and out of a queue, and written after a second pass."""
    clients, changes = Clients(MANY), list[int]()
    monkeypatch.setattr(clients.reader.budget, "change", changes.append)
    clients.publish(1)
    assert [type(each) for each in clients.frames()] == [Hello, Reply, Delivery]
    assert len(clients.answers()) == 1
    clients.publish(1)
    (delivery,) = clients.frames()
    assert isinstance(delivery, Delivery)
    assert delivery.notifications == clients.encodings[1:]
    assert changes == []
    assert clients.queue.credit == MANY - sum(sizes_of(clients.encodings))
    assert sum(clients.broker.latencies.counts().values()) == 2


@on_jumping_loop
async def test_those_behind_the_first_of_a_turn_share_a_frame() -> None:
    """A publisher that sends many single requests at once would cost a frame and a write each."""
    clients = Clients(MANY)
    requests = [Request(n, encode_publish(clients.made(1)), wait_ms=WAIT_MS) for n in range(5)]
    clients.publisher.data_received(b"".join(map(encode, requests)))
    found = [each.notifications for each in clients.frames() if isinstance(each, Delivery)]
    assert [*map(len, found)] == [1, 4]
    assert [each for some in found for each in some] == clients.encodings


@on_jumping_loop
async def test_nothing_passes_those_that_wait() -> None:
    """A notification would overtake an earlier one, exceed the credit, or fill a paused socket."""
    clients = Clients(1)
    clients.publish(1)
    clients.publish(1)
    assert (len(await clients.delivered()), len(clients.queue)) == (1, 1)
    assert await clients.delivered(MANY) == clients.encodings[1:]
    clients.reader.pause_writing()
    clients.publish(1)
    clients.publish(1)
    assert (clients.frames(), len(clients.queue)) == ([], 2)
    clients.reader.resume_writing()
    assert await clients.delivered() == clients.encodings[2:]
    clients.reader.mark_ready(OtherFeed())
    clients.publish(1)
    assert [type(each) for each in clients.frames()] == [Offers, Delivery]


@on_jumping_loop
async def test_what_is_not_encoded_is_queued() -> None:
    """Its reader would get no bytes as a notification, and end the connection."""
    clients = Clients(MANY)
    clients.broker.rounds.begin_turn()
    assert clients.broker.rounds.passes_on
    assert not clients.queue.take_whole((Notification({"n": 1}),))


@on_jumping_loop
async def test_a_long_notification_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of the queues and of a client's bytes would not apply to it."""
    clients, changes = Clients(MANY), list[int]()
    monkeypatch.setattr(clients.reader.budget, "change", changes.append)
    clients.publish(1, PASSED_ON_BYTES_MAX)
    await until(lambda: len(clients.answers()) == 1)
    assert await clients.delivered() == clients.encodings
    assert changes == [sizes_of(clients.encodings)[0], -sizes_of(clients.encodings)[0]]


@on_jumping_loop
async def test_a_fault_of_the_reader_does_not_end_the_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One broken connection would end each client that publishes for it."""
    clients = Clients(MANY)

    def fail() -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(clients.reader, "_write_outgoing", fail)
    clients.publish(1)
    assert len(clients.answers()) == 1
    assert clients.reader.is_closed
    assert not clients.publisher.is_closed


@on_jumping_loop
async def test_a_faulty_queue_ends_a_reader_after_the_frames_of_others() -> None:
    """A reader that reads again would lose frames and not know it, as the event loop logs the
    fault; or frames that were not written yet would be lost.
    """
    clients = Clients(MANY)
    clients.reader.pause_writing()
    clients.publish(2)
    faulty: Any = OtherFeed()
    faulty.next_frame = lambda: 1 // 0
    clients.reader.mark_ready(faulty)
    clients.reader.resume_writing()
    await until(lambda: clients.reader.is_closed)
    *_, delivery, failure = clients.frames()
    assert isinstance(delivery, Delivery)
    assert delivery.notifications == clients.encodings
    assert isinstance(failure, Failure)
    assert "ZeroDivisionError" in failure.reason


@needs_native
@on_jumping_loop
async def test_a_small_part_does_not_keep_its_message() -> None:
    """A slow reader of few notifications would hold memory that is not counted."""
    clients = Clients(0)
    bundle = Bundle.of_message(bytes(encode_publish(clients.made(100))))
    assert bundle is not None
    assert not clients.queue.offer_bundle(bundle[10:40])
    assert clients.queue.offer_bundle(bundle[10:90])
    assert clients.queue.held_bytes == sum(sizes_of(clients.encodings[10:90]))
    assert await clients.delivered(MANY) == clients.encodings[10:90]


@needs_native
@on_jumping_loop
async def test_only_the_matching_part_is_delivered() -> None:
    """Neighbours in the message would be delivered to a reader that did not ask for them."""
    clients = Clients(MANY, filters="n >= 20 and n < 90")
    clients.publish(100)
    assert await clients.delivered() == clients.encodings[20:90]


@needs_native
@on_jumping_loop
async def test_bundles_of_an_ended_subscription_are_counted() -> None:
    """Notifications would be lost uncounted, or hold the broker's memory for ever."""
    clients = Clients(20 * ENTRY_BYTES)
    clients.publish(100)
    left = 100 - len(await clients.delivered())
    queue = clients.queue
    assert 0 < left < 100
    clients.reader.data_received(encode(unsubscribe(3, 1)))
    await until(lambda: clients.broker.dropped["unsubscribed"] == left)
    assert (len(queue), queue.next_frame()) == (0, None)
    assert clients.reader.budget.held_bytes == 0


@needs_native
@on_jumping_loop
async def test_a_full_queue_of_bundles_drops_its_oldest() -> None:
    """A reader that asks for the latest would get the first, or a queue would grow without end."""
    clients = Clients(0, "drop-oldest")
    for _ in range(ROOM // 200 + 3):
        clients.publish(200)
    await until(lambda: len(clients.answers()) == 0 and clients.publisher.held_bytes == 0)
    assert len(clients.queue) == ROOM
    assert await clients.delivered(MANY) == clients.encodings[-ROOM:]
    assert clients.reader.budget.held_bytes == 0


@needs_native
@on_jumping_loop
async def test_a_reader_that_asked_for_it_is_cut_off() -> None:
    """The subscription would go on with a gap."""
    clients = Clients(0, "disconnect")
    for _ in range(ROOM // 200 + 1):
        clients.publish(200)
    await until(lambda: any(isinstance(each, CutOff) for each in clients.frames()))
    assert clients.reader.budget.held_bytes == 0


@needs_native
@on_jumping_loop
async def test_a_publisher_waits_for_room_behind_bundles() -> None:
    """A publisher would outrun its readers, whose notifications would be dropped."""
    clients = Clients(0)
    for _ in range(ROOM // 200):
        clients.publish(200)
    assert len(clients.answers()) == ROOM // 200
    clients.publish(100)
    taken = await clients.delivered()
    assert clients.answers() == []
    taken += await clients.delivered(MANY)
    await until(lambda: clients.answers() != [])
    taken += await clients.delivered()
    assert taken == clients.encodings
