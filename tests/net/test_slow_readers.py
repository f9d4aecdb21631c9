"""A slow reader of a broker delays publishers for a bounded time, and is told what it loses."""

import asyncio
from typing import Any

from contrada.model import Filter, Notification
from contrada.model.codec import to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.user_usage import LossBudget
from contrada.net.broker.users import UserSettings
from contrada.net.wire.frames import Credit, CutOff, Delivery, Frame, FrameReader, Reply, encode
from contrada.service.security.permits import Permit
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import ENTRY_BYTES, SubscriptionQueue
from tests.asynchronous import on_jumping_loop
from tests.net.costly import Desk
from tests.net.requests import frames_in, publish, subscribe

PLAIN = to_msgpack(Filter("n >= 0"))
ROOM = ServiceLimits().queue_notifications_max
WAIT_MS = 5_000


def frame_of(number: int, count: int) -> bytes:
    """A publication of so many notifications."""
    made = [to_msgpack(Notification({"n": n})) for n in range(count)]
    return encode(publish(number, WAIT_MS, made))


class Clients:
    """A reader, a publisher, and the frames that they got."""

    def __init__(
        self, credit: int, settings: UserSettings | None = None, limits: BrokerLimits | None = None
    ) -> None:
        self.desk = Desk(Broker(limits=limits or BrokerLimits()))
        self.reader, self.publisher = self.desk.client(keeps=True), self.desk.client(keeps=True)
        if settings is not None:
            self.reader.permit = Permit(settings.principal("u"))
        self.reader.data_received(encode(subscribe(1, 1, PLAIN, credit)))
        self._read = {each: FrameReader() for each in (self.reader, self.publisher)}

    def got(self, peer: ServerConnection) -> list[Frame]:
        """The frames that a client got since the last call."""
        reader = self._read[peer]
        reader.feed(self.desk.take_kept(peer))
        return frames_in(reader)

    async def publish(self, number: int, count: int) -> float:
        """Publishes, and returns the seconds until the answer."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        self.publisher.data_received(frame_of(number, count))
        while not any(type(each) is Reply for each in self.got(self.publisher)):
            await asyncio.sleep(0.001)
        return clock() - began_s

    async def read(self) -> tuple[int, int]:
        """Reads all that is queued. Returns the delivered and the dropped, as the reader is told.

        All deliveries since the beginning are counted.
        """
        self.reader.data_received(encode(Credit("1", 2**30)))
        while len(self.queue):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        found = [each for each in self.got(self.reader) if type(each) is Delivery]
        return sum(len(each.notifications) for each in found), found[-1].dropped

    @property
    def queue(self) -> SubscriptionQueue[Any]:
        """The queue of the reader."""
        (queue,) = self.desk.broker._sessions[self.reader]._queues.values()
        return queue

    @property
    def is_behind(self) -> bool:
        """Whether the queue of the reader drops the oldest."""
        return self.queue.when_full == "drop-oldest"


@on_jumping_loop
async def test_a_reader_with_little_credit_delays_publishers_once() -> None:
    """A user whose only right is to subscribe would stop all publishers of a broker."""
    clients = Clients(credit=0)

    async def read_slowly() -> None:
        while True:
            await asyncio.sleep(1.0)
            clients.reader.data_received(encode(Credit("1", ENTRY_BYTES)))

    reading = asyncio.create_task(read_slowly())
    took_s = [await clients.publish(number, 2_000) for number in range(1, 20)]
    reading.cancel()
    assert WAIT_MS / 1000 <= sum(took_s) < 1.1 * WAIT_MS / 1000
    delivered, dropped = await clients.read()
    assert dropped > 0
    assert delivered + dropped == 19 * 2_000


@on_jumping_loop
async def test_a_reader_that_has_caught_up_is_waited_for_again() -> None:
    """A reader that was slow for a moment would lose notifications ever after."""
    clients = Clients(credit=0)
    for number in range(6):
        await clients.publish(number, 2_000)
    assert clients.is_behind
    delivered, dropped = await clients.read()
    assert (delivered, dropped) == (ROOM, 12_000 - ROOM)
    assert not clients.is_behind


@on_jumping_loop
async def test_no_publisher_waits_for_a_user_without_the_right_to_block() -> None:
    """The owner of a broker could not protect it from a reader."""
    clients = Clients(0, UserSettings(subscribe=True, block=False))
    took_s = [await clients.publish(number, 2_000) for number in range(1, 10)]
    assert sum(took_s) < 0.1
    assert await clients.read() == (ROOM, 9 * 2_000 - ROOM)


@on_jumping_loop
async def test_a_reader_whose_losses_cost_too_much_is_cut_off() -> None:
    """Thousands of subscriptions that nobody reads would cost milliseconds of each publication."""
    limits = BrokerLimits(losses_per_s_max=1)
    clients = Clients(0, UserSettings(subscribe=True, block=False), limits)
    for number in range(1, 40):
        await clients.publish(number, 2_000)
    (ended,) = [each for each in clients.got(clients.reader) if type(each) is CutOff]
    assert not ended.reason, "it is too slow"
    assert 0 < ended.dropped < 39 * 2_000
    assert not clients.desk.broker._sessions[clients.reader]._queues
    lost = clients.desk.broker.statistics().dropped
    assert lost["queue full"] + lost["cut off"] == ended.dropped


def test_losses_are_forgotten_with_time() -> None:
    """A reader that is slow now and then would be cut off in the end."""
    now = [0.0]
    losses = LossBudget(10, lambda: now[0])
    for _ in range(20):
        assert not any(losses.charge() for _ in range(100))
        assert losses.charge()
        now[0] += 10.0
