"""One client's requests do not keep a broker from the others."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from contrada.connections import connect
from contrada.model import Envelope, Filter, FilterSet, Notification, ValueSet
from contrada.model.algebra.sets import (
    between,
    cidr,
    contains,
    eq,
    ge,
    in_,
    matches,
    ne,
    suffix,
    wildcard,
)
from contrada.model.algebra.value_set import intersection as every
from contrada.model.algebra.value_set import union
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.fair_scheduler import FairScheduler
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.users import UserSettings
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.durable_messages import Publications, PublisherHello, encode_durable
from contrada.net.wire.frames import (
    Credit,
    Failure,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    LogRequest,
    Ping,
    Reply,
    Request,
    StatisticsRequest,
    encode,
)
from contrada.net.wire.payload_codec import DECODED_BYTES_PER_TURN
from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX, Publish
from contrada.service.security.permits import Permit
from tests.asynchronous import on_loop, until
from tests.matching.engines import needs_native
from tests.net.costly import TURN_S_MAX, Desk, prepare, worst
from tests.net.requests import decode_request, delivery, frames_in, publish, subscribe, unsubscribe
from tests.net.test_broker import RawClient

pytestmark = pytest.mark.usefixtures("without_old_objects")


_HEAD = len(to_msgpack(Filter({}))) - 1
"""The bytes before the sets of a filter."""


def unpacked_publish(data: bytes) -> Publish:
    """A message that publishes one notification."""
    message = decode_request(publish(1, 0, [data]).message)
    assert isinstance(message, Publish)
    return message


def _one(values: ValueSet) -> bytes:
    return to_msgpack(Filter({"a": values}))


def _empties() -> bytes:
    return msgspec.msgpack.encode([1, "filter_set", [{}] * 5_000_000])


def _expressions() -> bytes:
    return to_msgpack(
        FilterSet(
            [
                Filter({"a": matches(f"(a|b)*a(a|b){{{n}}}c{{{i}}}?$")})
                for n in range(1, 13)
                for i in range(1, 26)
            ]
        )
    )


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a long constant that is not readable": lambda: _one(contains(b"\x01" * 15_000) & suffix("zz")),
    "expressions with large automata": _expressions,
    "many points": lambda: _one(
        in_(*map(str, range(10_000)), nocase=True) & in_(*map(str, range(9, 10_009)), nocase=True)
    ),
    "a union of many": lambda: _one(union(contains(f"k{n}") for n in range(3_200))),
    "many filters that say nothing": _empties,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
@on_loop
async def test_a_subscription_keeps_the_loop_no_longer_than_a_turn(case: str) -> None:
    """Another client's publication would wait for a minute."""
    prepare()  # Modules of the first use are loaded once.
    data = HOSTILE[case]()
    desk = Desk()
    asker = desk.client()
    for number in (1, 2, 3):
        frame = encode(subscribe(number, number, data, 0))
        assert await desk.longest_s(asker, frame) < TURN_S_MAX
    assert not desk.is_closed(asker), "the connection stays"


def _hard(count: int) -> list[bytes]:
    """Expressions that learn a new row for almost every byte."""
    return [_one(matches(f"(a|b)*a(a|b){{{1 + n % 12}}}.{{{1 + n // 12}}}d")) for n in range(count)]


_TEXT = "".join(random.Random(1).choices("ab", k=10_000))


def _unions(count: int) -> list[bytes]:
    """Expressions that are unions of many plain texts, each of which is looked for."""
    return [_one(matches(f"a(a|b){{9}}c{n:x}d")) for n in range(count)]


def _nearly(count: int) -> list[bytes]:
    """Texts of which nearly all is there, at each place."""
    return [_one(contains("a" * 3_000 + f"{n:x}")) for n in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "count", "text"),
    [(_hard, 300, _TEXT), (_unions, 300, _TEXT), (_nearly, 100, "a" * 10_000)],
    ids=["hard", "unions", "nearly"],
)
@on_loop
async def test_matching_keeps_the_loop_no_longer_than_a_turn(
    make: Callable[[int], list[bytes]], count: int, text: str
) -> None:
    """A few hundred mild expressions would stop a broker for seconds with each long text."""
    desk = Desk()
    asker = desk.client()
    for number, data in enumerate(make(count)):
        frame = encode(subscribe(number, number, data, 2**20))
        await desk.longest_s(asker, frame)
        asker._scheduler._over_s = 0.0
    publisher = desk.client()
    for size in (1, 3):
        batch = [to_msgpack(Notification({"a": text, "n": n})) for n in range(size)]
        frame = encode(publish(1, 0, batch))
        assert await desk.longest_s(publisher, frame) < TURN_S_MAX
    assert not desk.is_closed(publisher)


@on_loop
async def test_subscribers_match_again_where_the_broker_could_not_decide() -> None:
    """A subscriber would get foreign notifications, or miss its own."""
    limits = BrokerLimits(batch_work_max=1_000, notification_work_max=1_000)
    async with (
        Broker(port=0, limits=limits) as broker,
        connect(broker.address) as service,
        service.subscribe({"a": matches("(a|b)*a(a|b){12}c{3}d")}) as hard,
        service.subscribe("n >= 0") as easy,
    ):
        await service.publish_batch([{"a": _TEXT + "d", "n": 1}, {"a": _TEXT + "cccd", "n": 2}])
        assert (await anext(hard))["n"] == 2
        assert [(await anext(easy))["n"] for _ in range(2)] == [1, 2]
        assert broker.statistics().safe_answers["holds: NOTIFICATION_WORK_MAX"]
        assert broker.statistics().dropped == {}


@on_loop
async def test_a_batch_that_is_too_much_is_matched_in_smaller_ones() -> None:
    """Answers would be safe instead of exact though each notification alone is cheap."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe({"a": matches("(a|b)*a(a|b){9}c")}) as hard,
    ):
        text = _TEXT[:3_000] + "a" * 10
        before = broker.statistics().safe_answers
        await service.publish_batch([{"a": text + "c" * (n % 2), "n": n} for n in range(100)])
        assert [(await anext(hard))["n"] for _ in range(50)] == [*range(1, 100, 2)]
        assert broker.statistics().safe_answers == before


@on_loop
async def test_others_have_their_turn_between_the_requests_of_one_client() -> None:
    """Requests that are each short enough would together keep the broker for a minute."""
    desk = Desk()
    asker = desk.client()
    many = to_msgpack(FilterSet([Filter({"a": n, "b": -n}) for n in range(1_000)]))
    data = b"".join(encode(subscribe(n, n, many, 0)) for n in range(40))
    other = desk.client()
    written = desk.written(other)
    began_s = time.thread_time()
    asker.data_received(data)
    other.data_received(encode(publish(1, 0, [to_msgpack(Notification({"a": 1}))])))
    while desk.written(other) == written:
        await asyncio.sleep(0)
    assert time.thread_time() - began_s < TURN_S_MAX
    assert desk.broker.dispatcher.statistics().subscriptions < 20, "they wait for their turns"
    assert not desk.is_closed(asker)


_READ_BYTES = 256 * 1024
"""The bytes that an event loop reads at once."""

_SMALL: dict[str, Frame] = {
    "statistics": StatisticsRequest(1),
    "malformed requests": Request(1, Raw(b"\xc0")),
    "pings": Ping(1),
    "credit": Credit("", 1),
    "unknown subscriptions": unsubscribe(1, 1),
}


@pytest.mark.parametrize("kind", _SMALL)
@on_loop
async def test_many_small_frames_in_one_read_are_handled_in_slices(kind: str) -> None:
    """Frames that each take microseconds would together keep the broker for a second."""
    desk = Desk()
    asker, other = desk.client(), desk.client()
    frame = encode(_SMALL[kind])
    data = frame * (_READ_BYTES // len(frame))
    began_s = time.thread_time()
    asker.data_received(data)
    assert time.thread_time() - began_s < TURN_S_MAX / 2, "a turn is much shorter"
    assert asker._turn_due, "the rest waits for its turn"
    assert await desk.longest_s(other, encode(StatisticsRequest(1))) < TURN_S_MAX / 2
    assert not desk.is_closed(asker)


@on_loop
async def test_a_single_request_is_answered_without_a_turn_of_the_loop() -> None:
    """Each request would wait until all other clients had their turn."""
    desk = Desk()
    asker = desk.client()
    for frame in (subscribe(1, 1, to_msgpack(Filter("a = 1")), 0), StatisticsRequest(2)):
        written = desk.written(asker)
        asker.data_received(encode(frame))
        assert desk.written(asker) > written


@pytest.mark.parametrize("last", [Goodbye(), Failure("x", "y"), Hello(CLIENT), b"no frame"])
@on_loop
async def test_requests_before_the_end_are_executed_in_order(last: Frame | bytes) -> None:
    """The effect of requests would depend on the cuts of the byte stream."""
    desk = Desk()
    asker = desk.client()
    data = to_msgpack(FilterSet([Filter({"a": n, "b": -n}) for n in range(1_000)]))
    asked = [subscribe(n, n, data, 0) for n in range(1, 4)]
    asked.insert(1, Request(99, Raw(b"\xc0")))
    asked.append(publish(4, 0, [to_msgpack(Notification({"a": 1}))]))
    end = last if isinstance(last, bytes) else encode(last)
    asker.data_received(b"".join(map(encode, asked)) + end + encode(unsubscribe(5, 1)))
    assert asker._turn_due
    assert not desk.is_closed(asker), "the end comes in its turn too"
    await until(lambda: desk.is_closed(asker))
    await until(lambda: desk.broker.statistics().published == 1)
    assert desk.broker.statistics().subscriptions == 3
    assert desk.broker.refused["EncodingError"] == 1
    assert not desk.broker.refused["unknown"]


@pytest.mark.slow
@on_loop
async def test_a_client_with_many_subscriptions_is_removed_in_slices() -> None:
    """A broker would be kept for seconds by each client that leaves."""
    desk = Desk()
    asker, other = desk.client(), desk.client()
    for n in range(60):
        many = to_msgpack(FilterSet([Filter({"a": i, "b": n}) for i in range(500)]))
        await desk.longest_s(asker, encode(subscribe(n, n, many, 0)))
        asker._scheduler._over_s = 0.0
    data = encode(publish(1, 0, [to_msgpack(Notification({"a": 1, "b": 1}))]))
    held = _held(desk)[0]
    began_s = time.thread_time()
    asker.connection_lost(None)
    left = _held(desk)[0]
    assert await desk.longest_s(other, data) < TURN_S_MAX
    assert time.thread_time() - began_s < TURN_S_MAX
    assert desk.broker.statistics().subscriptions == 0
    assert 0 < left < held, "it leaves in turns"
    await until(lambda: _held(desk) == (0, 0))
    desk.broker.dispatcher.router.validate()
    assert desk.broker.statistics().dropped == {}


def _held(desk: Desk) -> tuple[int, int]:
    """The parts of subscriptions and the filters that a broker holds."""
    counts = desk.broker.dispatcher.router.statistics()
    return counts.subscriptions.entries, counts.filters.nodes


_SUBSCRIPTIONS: dict[str, tuple[int, Callable[[int], ValueSet]]] = {
    "plain": (SUBSCRIPTION_FILTERS_MAX, lambda n: eq(-n)),
    "nocase": (SUBSCRIPTION_FILTERS_MAX, lambda n: contains(f"Name {n}", nocase=True)),
    "texts": (2_000, lambda n: every(contains(f"k{n}-{i}") for i in range(20))),
    "expressions": (500, lambda n: matches(f"^name{n}@[a-z]+$")),
}


def _many(kind: str) -> bytes:
    count, make = _SUBSCRIPTIONS[kind]
    return to_msgpack(FilterSet([Filter({"a": n, "b": make(n)}) for n in range(count)]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", _SUBSCRIPTIONS)
@on_loop
async def test_a_subscription_of_many_filters_is_added_in_slices(kind: str) -> None:
    """An honest client would be refused, or keep the broker from all others."""
    data = _many(kind)
    desk = Desk()
    asker, other = desk.client(), desk.client()
    assert await desk.longest_s(asker, encode(subscribe(1, 1, data, 2**20))) < TURN_S_MAX
    assert desk.broker.refused == {}
    assert desk.broker.statistics().subscriptions == 1
    assert _held(desk)[1] == _SUBSCRIPTIONS[kind][0]
    assert desk.broker.statistics().held_bytes == 0
    asker._scheduler._over_s = 0.0
    assert await desk.longest_s(asker, encode(unsubscribe(2, 1))) < TURN_S_MAX
    assert _held(desk) == (0, 0)
    await desk.longest_s(asker, encode(subscribe(3, 1, data, 2**20)))
    assert await desk.longest_of(lambda: asker.connection_lost(None), other) < TURN_S_MAX
    await until(lambda: _held(desk) == (0, 0))
    desk.broker.dispatcher.router.validate()


@on_loop
async def test_a_request_that_waits_for_its_turn_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection could hold a whole frame that nobody counts."""
    monkeypatch.setattr(FairScheduler, "rest_s", lambda *_: 0.0)
    desk = Desk()
    asker = desk.client()
    for fields in (["unsubscribe", "1" * 10_000], ["subscribe", "1", b"", "", 1, "later" * 2_000]):
        data = encode(Request(1, Raw(msgspec.msgpack.encode(fields))))
        asker.data_received(data)
        assert desk.broker.statistics().held_bytes == len(data)
        await until(lambda: desk.broker.statistics().held_bytes == 0)


@on_loop
async def test_nobody_sees_half_of_a_subscription() -> None:
    """A client would get deliveries before the answer, miss some, or get them twice."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello(CLIENT))
        assert isinstance(await client.hears(), Hello)
        router = broker.dispatcher.router
        filters = [Filter({"a": 1, "b": in_(0, -n)}) for n in range(1, 2_000)]
        early, late = (to_msgpack(Notification({"a": 1, "b": 0, "n": n})) for n in (1, 2))
        async with connect(broker.address) as service:
            client.say(subscribe(1, 1, to_msgpack(FilterSet(filters)), 2**20))
            await until(lambda: router.statistics().subscriptions.entries > 0)
            assert broker.statistics().subscriptions == 0
            assert broker.statistics().held_bytes > 0, "what is not worked off is held"
            broker.dispatcher.publish(broker.dispatcher.client(), unpacked_publish(early), 0)
            assert broker.statistics().matched == 0
            assert await client.hears() == Reply(1), "before all it is answered"
            client.say(publish(2, 0, [late]))
            heard = [await client.hears() for _ in range(2)]
            assert delivery(1, 0, [late]) in heard
            assert Reply(2) in heard
            assert broker.statistics().matched == 1, "though it matches filters of all parts"
            assert service.statistics().dropped == {}
        client.say(unsubscribe(3, 1), publish(4, 0, [late]))
        assert [await client.hears() for _ in range(2)] == [Reply(3), Reply(4)]
        assert router.statistics().subscriptions.entries == 0
        router.validate()
        await client.leave()


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (b"\x81\xa1b\x92\x90\x93\xa2is\xa8nobody's\xc4\x01x", "UnknownOperatorError"),
        (b"\xc0", "EncodingError"),
        (b"\x81\xa1b\x92\x90\xc0", ""),
        ("too much", "LimitError"),
    ],
)
@on_loop
async def test_an_error_midway_removes_the_added_filters(last: Any, code: str) -> None:
    """Half of a refused subscription would stay, or an empty filter cost all others."""
    desk = Desk()
    asker = desk.client()
    plain = [Raw(to_msgpack(Filter({"a": n}))[_HEAD:]) for n in range(1_000)]
    if last == "too much":
        last = HOSTILE["many points"]()[_HEAD:]
    data = msgspec.msgpack.encode([1, "filter_set", [*plain, Raw(last)]])
    assert await desk.longest_s(asker, encode(subscribe(1, 1, data, 0))) < TURN_S_MAX
    assert desk.broker.refused == ({code: 1} if code else {})
    assert desk.broker.statistics().subscriptions == (not code)
    assert _held(desk)[1] == (0 if code else 1_000)
    assert desk.broker.statistics().held_bytes == 0
    desk.broker.dispatcher.router.validate()
    assert not desk.is_closed(asker)


@pytest.mark.parametrize("end", [lambda its: its.connection_lost(None), ServerConnection.evict])
@on_loop
async def test_a_client_lost_midway_leaves_nothing(end: Callable[[ServerConnection], None]) -> None:
    """A subscription without an owner would stay in the broker for ever."""
    desk = Desk()
    asker = desk.client()
    asker.data_received(encode(subscribe(1, 1, _many("plain"), 0)))
    await until(lambda: _held(desk)[0] > 0)
    assert desk.broker.statistics().subscriptions == 0
    end(asker)
    await until(lambda: _held(desk) == (0, 0))
    assert desk.broker.statistics().held_bytes == 0
    desk.broker.dispatcher.router.validate()


@on_loop
async def test_a_request_that_is_too_much_is_refused_and_changes_nothing() -> None:
    """It would end the connection, or be carried out in half."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(
            broker, Hello(CLIENT), subscribe(1, 1, HOSTILE["many points"](), 0)
        )
        assert isinstance(await client.hears(), Hello)
        reply = await client.hears()
        assert isinstance(reply, Reply)
        assert reply.code == "LimitError"
        assert "REQUEST_WORK_MAX" in reply.reason
        client.say(unsubscribe(2, 1), subscribe(3, 1, _one(suffix("z")), 0))
        assert [(await client.hears()).code for _ in range(2)] == ["unknown", ""]  # type: ignore[attr-defined]
        assert broker.statistics().refused == {"LimitError": 1, "unknown": 1}
        assert broker.statistics().subscriptions == 1
        broker.dispatcher.router.validate()
        await client.leave()


@pytest.mark.slow
@on_loop
async def test_other_clients_are_served_during_a_costly_request() -> None:
    """One client would stop a server for all others."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("n >= 0") as events,
    ):
        client = await RawClient.to(broker, Hello(CLIENT))
        client.say(*(subscribe(n, n, HOSTILE[case](), 0) for n, case in enumerate([*HOSTILE][:4])))
        for n in range(20):
            began_s = time.thread_time()
            await service.publish({"n": n})
            assert (await anext(events))["n"] == n
            assert time.thread_time() - began_s < 2 * TURN_S_MAX, "a publication has two turns"
        await client.leave()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_search_finds_nothing_that_takes_longer_than_a_turn() -> None:
    """A request that is cheap for a client would be costly for a server; `make costly` searches for
    longer.
    """
    for name, found in worst(seconds=20, seed=1):
        assert found[0].took_s < TURN_S_MAX, (name, found[0])


@on_loop
async def test_a_refusal_quotes_no_more_than_a_line() -> None:
    """A refusal would be as long as its request, and too long to be sent."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("\0" * 60_000))
        failure = await client.hears()
        assert isinstance(failure, Failure)
        assert (failure.code, len(failure.reason)) == ("role", 500)
        await client.leave()
        unknown = msgspec.msgpack.encode(["x" * 14_000_000, 1])
        client = await RawClient.to(broker, Hello(CLIENT), Request(1, Raw(unknown)))
        assert isinstance(await client.hears(), Hello)
        reply = await client.hears()
        assert isinstance(reply, Reply)
        assert reply.code
        assert len(reply.reason) <= 500
        await client.leave()


@on_loop
async def test_a_hello_is_short() -> None:
    """The hello of a stranger would fill the broker's memory."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello(CLIENT, "x" * 2**16))
        failure = await client.hears()
        assert isinstance(failure, Failure)
        assert failure.code == "oversized"
        assert "HELLO_BYTES_MAX" in failure.reason
        await client.leave()


_MANY = list(range(4_096))
_ADDRESSES = [f"10.200.{n // 250}.{n % 250}" for n in _MANY]
_TEXTS = [f"x{n}y" + "q" * 400 for n in _MANY]
_WITH_MANY: dict[str, tuple[Callable[[], list[ValueSet]], list[dict[str, object]]]] = {
    "nobody asks": (list, [{"a": _MANY}] * 200),
    "of many attributes": (list, [{f"n{n}": _MANY[:1_500] for n in range(700)}]),
    "single values": (lambda: [eq(n) for n in range(1_000)], [{"a": _MANY}] * 20),
    "networks": (lambda: [cidr(f"10.{n}.0.0/17") for n in range(250)], [{"a": _ADDRESSES}]),
    "wildcards": (lambda: [wildcard(f"*x*{n}?") for n in range(100)], [{"a": _ADDRESSES}]),
    "open intervals": (lambda: [ge(-n) for n in range(8_000)], [{"a": _MANY}]),
    "intervals": (lambda: [between(-n, 5_000 + n) for n in range(8_000)], [{"a": _MANY}]),
    "parts of texts": (lambda: [contains(f"x{n}y") for n in range(300)], [{"a": _TEXTS}]),
}


@needs_native
@pytest.mark.quick_first
@pytest.mark.parametrize("case", _WITH_MANY)
@on_loop
async def test_many_values_of_one_attribute_keep_the_loop_no_longer(case: str) -> None:
    """Each value would be held against each filter: ten seconds for 53 kilobytes."""
    prepare()
    asked, published = _WITH_MANY[case]
    desk = Desk()
    asker = desk.client()
    for number, values in enumerate(asked()):
        await desk.longest_s(asker, encode(subscribe(number, number, _one(values), 2**20)))
        asker._scheduler._over_s = 0.0
    publisher = desk.client()
    batch = [to_msgpack(Notification(each)) for each in published]
    assert await desk.longest_s(publisher, encode(publish(1, 0, batch))) < TURN_S_MAX
    assert not desk.is_closed(publisher)


@pytest.mark.slow
@on_loop
async def test_filters_of_many_attributes_keep_the_loop_no_longer() -> None:
    """A filter would count for one look though it takes a dozen."""
    desk = Desk()
    asker, publisher = desk.client(), desk.client()
    names = [f"a{n}" for n in range(12)]
    many = [Filter({name: ne(n) for name in names}) for n in range(2_000)]
    await desk.longest_s(asker, encode(subscribe(1, 1, to_msgpack(FilterSet(many)), 2**30)))
    batch = [to_msgpack(Notification(dict.fromkeys(names, -1)))] * 64
    assert await desk.longest_s(publisher, encode(publish(1, 0, batch))) < TURN_S_MAX
    assert not desk.is_closed(publisher)


WIDE: dict[str, Callable[[], list[bytes]]] = {
    "attributes": lambda: [to_msgpack(Notification({f"a{n}": n for n in range(4_000)}))] * 60,
    "values": lambda: [to_msgpack(Notification({f"a{n}": [1, 2, 3] for n in range(4_000)}))] * 12,
}


@pytest.mark.parametrize("way", ["plain", "reliable"])
@pytest.mark.parametrize("case", WIDE)
@on_loop
async def test_wide_publications_are_decoded_in_turns(case: str, way: str) -> None:
    """400 notifications of 4,000 attributes would keep the loop for a second."""
    desk, each = Desk(), WIDE[case]()
    session = desk.broker._sessions[desk.client()]
    frame: Request | LogRequest = publish(1, 0, each)
    if way != "plain":
        hello = LogRequest(1, Raw(encode_durable(PublisherHello("p", "i"))))
        assert list(session.handle(hello) or ()) == []
        stamped = Envelope(publisher="p", delivery=way)
        one = Notification(notification_from_msgpack(each[0]).attributes, envelope=stamped)
        each = [to_msgpack(one)] * len(each)
        frame = LogRequest(2, Raw(encode_durable(Publications(each))))
    turns = list(session.handle(frame) or ())
    assert len(turns) >= sum(map(len, each)) // (2 * DECODED_BYTES_PER_TURN)
    await until(lambda: desk.broker.statistics().published == len(each))


@on_loop
async def test_who_may_publish_nothing_is_refused_before_the_work() -> None:
    """A user who may only read would cost a broker as much as a publisher."""
    desk = Desk()
    reader = desk.client(keeps=True)
    reader.permit = Permit(UserSettings(subscribe=True, publishers=["*"]).principal("u"))
    good = to_msgpack(Notification({"a": 1}))
    reader.data_received(encode(publish(1, 0, [good, b"\xc1", b"\xc1"])))
    read = FrameReader()
    read.feed(desk.take_kept(reader))
    (hello, reply) = frames_in(read)
    assert isinstance(hello, Hello)
    assert isinstance(reply, Reply)
    assert (reply.code, reply.refused) == ("NotPermittedError", [0, 1, 2])
    assert "none of the publish filters" in reply.reason
