"""Subscriptions that a broker receives together have the effects of those received one by one."""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest

from contrada.errors import LimitError
from contrada.matching.index import Index
from contrada.model import Filter, FilterSet, Notification
from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import Work
from contrada.net.broker import fair_scheduler
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.filter_entry import FILTERS_PER_TURN
from contrada.net.broker.users import Users
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.frames import Delivery, Frame, FrameReader, Hello, Reply, Request, encode
from contrada.routing.router import Router
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import LinkUp, Neighbour, Role
from contrada.service.dispatcher import Dispatcher
from contrada.service.security.principals import Quotas
from contrada.service.service_limits import CoreLimits, ServiceLimits
from contrada.service.subscription_queue import SubscriptionQueue
from tests.asynchronous import on_loop
from tests.net.requests import frames_in, publish, subscribe, unsubscribe
from tests.net.test_permissions import TOKEN, users

FILTERS = (
    *("a = 1", "a = 2", "a > 1", "a >= 0 and b = 'x'", "b prefix 'x'", "b != 'y'", "a = 1.0"),
    *(
        "b suffix 'x'",
        "b contains nocase 'x'",
        "c any",
        "everything",
        "a in (1, 3)",
        "@publisher = 'p'",
    ),
)
NOTIFICATIONS: tuple[dict[str, Any], ...] = (
    *({"a": 1}, {"a": 2, "b": "x"}, {"a": 3, "b": "yx"}, {"b": "X"}, {"c": None, "b": "y"}),
)
UNKNOWN = msgspec.msgpack.encode([1, "filter", {"a": [[], ["is", "no such", b"x"]]}])
PLENTY = 2**30


class Socket(asyncio.Transport):
    """The transport of a connection without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.written = FrameReader()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.written.feed(bytes(data))

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class Peer:
    """A client of a broker, in the same process."""

    def __init__(self, broker: Broker, token: str = "") -> None:
        self.broker = broker
        self.socket, self.connection = Socket(), broker.accept()
        self.connection.connection_made(self.socket)
        self.connection.data_received(encode(Hello(CLIENT, "", {}, token)))

    @property
    def session(self) -> ClientSession:
        assert isinstance(self.connection._handler, ClientSession)
        return self.connection._handler

    @property
    def is_busy(self) -> bool:
        its_end = self.connection
        return its_end._is_unknown or its_end._turn_due or its_end._steps is not None

    async def send(self, *frames: Frame) -> None:
        """Sends frames together, and lets the broker handle them."""
        self.connection.data_received(b"".join(map(encode, frames)))
        while self.is_busy:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)  # The publications have a task.

    def state(self) -> tuple[Any, ...]:
        """Returns what the broker holds, and what it has sent."""
        heard = frames_in(self.socket.written)
        got: dict[str, list[bytes]] = {}
        for each in heard:
            if isinstance(each, Delivery):
                got.setdefault(each.subscription, []).extend(each.notifications)
        router = self.broker.dispatcher.router
        router.validate()
        held = sorted(str(each) for each, _ in router.subscriptions())
        replies = [each for each in heard if isinstance(each, Reply)]
        counts = self.broker.statistics()
        received = router.statistics().received.get("Subscribe", 0)
        queues = {name: queue.credit for name, queue in self.session._queues.items()}
        return replies, got, held, queues, counts.refused, counts.matched, received


def random_requests(random: Random, count: int) -> list[Request]:
    """Returns requests of all kinds; most are new subscriptions to one filter."""
    known = [f"s{number}" for number in range(2 * count)]

    def one(number: int) -> Request:
        identity = known.pop() if random.random() < 0.9 else random.choice(["s0", "s1", known[-1]])
        wanted = to_msgpack(Filter(random.choice(FILTERS)))
        kind = random.random()
        if kind < 0.8:
            return subscribe(number, identity, wanted, PLENTY)
        some = [Filter(each) for each in random.sample(FILTERS, random.randrange(4))]
        data = msgspec.msgpack.encode
        return random.choice(
            (
                subscribe(number, identity, to_msgpack(FilterSet(some)), PLENTY),
                subscribe(number, identity, to_msgpack(Filter("a > 1 and a < 1")), PLENTY),
                subscribe(number, identity, b"\xc1", PLENTY),
                subscribe(number, identity, to_msgpack(Notification({"a": 1})), PLENTY),
                subscribe(number, identity, UNKNOWN, PLENTY),
                subscribe(number, "x" * 300, wanted, PLENTY),
                subscribe(number, identity, wanted + bytes(9_000), PLENTY),
                Request(number, msgspec.Raw(data(["subscribe", identity, wanted, "own"])), 9),
                Request(number, msgspec.Raw(data(["subscribe", identity, wanted, "", 7])), 9),
                Request(number, msgspec.Raw(data(["subscribe", identity])), 9),
                Request(number, msgspec.Raw(data(["subscribe", 7, wanted])), 9),
                Request(number, subscribe(1, identity, wanted, 1).message, 9, 0, "no such"),
                Request(number, subscribe(1, identity, wanted, 1).message, -5, 0, "drop-newest"),
                unsubscribe(number, identity),
                publish(number, 0, [to_msgpack(Notification({"a": 1, "n": number}))]),
            )
        )

    return [one(number) for number in range(2, count + 2)]


async def outcome(
    requests: Sequence[Request], together: int, make: Any = Broker, token: str = ""
) -> tuple[Any, ...]:
    """Returns the state after requests were received in groups of `together`."""
    peer = Peer(make(), token)
    for begin in range(0, len(requests), together):
        await peer.send(*requests[begin : begin + together])
    for number, each in enumerate(NOTIFICATIONS, 1_000):
        await peer.send(publish(number, 0, [to_msgpack(Notification(each))]))
    return peer.state()


@pytest.mark.parametrize("seed", range(12))
@on_loop
async def test_received_together_or_one_by_one_they_have_the_same_effects(seed: int) -> None:
    """A refused subscription would take others with it, or another would get its answer."""
    requests = random_requests(Random(seed), 90)
    with mock.patch.object(ClientSession, "_subscribe_each", return_value=False):
        in_parts = await outcome(requests, 1)
    assert await outcome(requests, 1) == in_parts
    assert await outcome(requests, 7) == in_parts
    assert await outcome(requests, 90) == in_parts


def plain(count: int, filters: Sequence[str] = ("a = 1",)) -> list[Request]:
    return [
        subscribe(number, f"s{number}", to_msgpack(Filter(filters[number % len(filters)])), PLENTY)
        for number in range(2, count + 2)
    ]


@on_loop
async def test_subscriptions_received_together_or_alone_are_entered_in_one_step() -> None:
    """Each would take the steps of a request with many filters."""
    first, *others = plain(FILTERS_PER_TURN + 2, FILTERS)
    with mock.patch.object(Router, "handle", side_effect=AssertionError("entered in parts")):
        peer = Peer(Broker())
        await peer.send(first)
        await peer.send(*others)
    replies, *_ = peer.state()
    assert replies == [Reply(number) for number in range(2, FILTERS_PER_TURN + 4)]


@on_loop
async def test_a_step_is_bounded() -> None:
    """A client could hold the loop with the subscriptions of one write."""
    sizes: list[int] = []
    true = Dispatcher.enter_each

    def spied(self: Dispatcher, routes: Any, filters: Any) -> bool:
        sizes.append(len(routes))
        return true(self, routes, filters)

    with mock.patch.object(Dispatcher, "enter_each", spied):
        await Peer(Broker()).send(*plain(200))
        assert sizes == [FILTERS_PER_TURN] * 3 + [200 - 3 * FILTERS_PER_TURN]
        sizes.clear()
        long = [f"a = '{'x' * 1_000}{number}'" for number in range(20)]
        await Peer(Broker()).send(*plain(20, long))
        assert max(sizes) == 5, "as many bytes as of one subscription"


@on_loop
async def test_limits_refuse_those_beyond_them_alone() -> None:
    """Subscriptions received together would exceed a limit, or all be refused for the last."""
    for limits in (
        {"limits": BrokerLimits(subscriptions_per_client_max=30)},
        {"core_limits": CoreLimits(service=ServiceLimits(subscriptions_max=30))},
        {"core_limits": CoreLimits(router=RouterLimits(registrations_max=30))},
        {"core_limits": CoreLimits(router=RouterLimits(filters_max=30))},
    ):
        make: Any = partial(Broker, **limits)
        alone = await outcome(plain(50, FILTERS), 1, make)
        assert sum(not each.code for each in alone[0][:50]) == 30
        assert await outcome(plain(50, FILTERS), 50, make) == alone


@pytest.mark.parametrize("rights", [{}, {"narrow": True}, {"quota": Quotas(subscriptions=20)}])
@on_loop
async def test_permissions_and_quotas_are_those_of_each(rights: dict[str, Any]) -> None:
    """A client would subscribe to what it may not, if others are received beside it."""

    def make() -> Broker:
        given: Users = users(desk={"subscribe": ["a >= 1", "b = 'x'"], **rights})
        return Broker(users=given)

    for filters in (["a = 1", "a = 2"], FILTERS):
        alone = await outcome(plain(40, filters), 1, make, TOKEN["desk"])
        assert await outcome(plain(40, filters), 40, make, TOKEN["desk"]) == alone


@on_loop
async def test_a_full_index_leaves_nothing_of_the_others() -> None:
    """Filters of a refused step would be delivered to nobody, for ever."""
    true = Index.add

    def full(self: Index[Any], key: Any, of: Any) -> None:
        if str(of) == "a = 2":
            raise LimitError("ATTRS_MAX", 1)
        true(self, key, of)

    with mock.patch.object(Index, "add", full):
        alone = await outcome(plain(26, FILTERS), 1)
        together = await outcome(plain(26, FILTERS), 26)
    assert together == alone
    assert [each.number for each in alone[0] if each.code] == [14, 27]


@pytest.mark.parametrize("steps", [30, 1_000, 4_000, 20_000])
@on_loop
async def test_a_spent_budget_leaves_whole_tables(steps: int) -> None:
    """Covering that is too much work to decide would stop an entry halfway."""

    def make() -> Broker:
        broker = Broker()
        link = LinkUp(Neighbour("c"), Role.PEER)
        broker.dispatcher.link_up(link, SubscriptionQueue(), lambda _: None, lambda _: None)
        return broker

    letters = "abcdefgh"
    texts = [
        f"b contains '{x}{y}' and b contains '{y}{x}{y}' and a > 5"
        for x, y in product(letters, letters)
    ]
    with mock.patch.object(fair_scheduler, "REQUEST_WORK_MAX", steps):
        alone = await outcome(plain(60, texts), 1, make)
        together = await outcome(plain(60, texts), 60, make)
    assert together[:5] == alone[:5]


@on_loop
async def test_a_refused_step_and_the_first_subscription_alone_are_two_turns() -> None:
    """A client could hold the loop for the work of two requests."""
    turns = [0]

    class Counted(Work):
        def __exit__(self, *fault: Any) -> None:
            turns[-1] += min(self.maximum, self.maximum - self.left)
            super().__exit__(*fault)

    def next_turn(*_: float) -> None:
        turns.append(0)

    texts = [f"b contains '{x}{y}' and b contains 'z{x}'" for x, y in product("0123456", repeat=2)]
    with (
        mock.patch.object(fair_scheduler, "REQUEST_WORK_MAX", 1_000),
        mock.patch.object(fair_scheduler, "Work", Counted),
        mock.patch.object(fair_scheduler.FairScheduler, "rest_s", side_effect=next_turn),
    ):
        peer = Peer(Broker())
        await peer.send(*plain(49, texts))
    replies, *_ = peer.state()
    assert replies == [Reply(number) for number in range(2, 51)]
    assert max(turns) == 1_000, "the step is refused for its work, in a turn of its own"


@on_loop
async def test_stories_have_each_subscription() -> None:
    """A story would miss the subscriptions that were received together."""
    limits = CoreLimits(service=ServiceLimits(transitions_max=1_000, transition_bytes_max=10**9))
    peer = Peer(Broker(core_limits=limits))
    await peer.send(*plain(10))
    transitions = peer.broker.dispatcher.transitions
    assert transitions is not None
    assert len(transitions.facts()) == 20
