"""Patterns over TCP: messages of servers and clients, and limits of a client."""

from typing import Any, get_args

import msgspec
import pytest

import contrada as ct
from contrada.connections import connect
from contrada.errors import ContradaError, ServiceError
from contrada.model import Envelope, Filter, Notification, Pattern, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.neighbours import Membership
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import Hello, HopPart, MatchDelivery, Reply, Request
from contrada.net.wire.message_codec import decode_hop, encode_message
from contrada.net.wire.pattern_codec import BROKER_PATTERN_LIMITS
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Piece
from contrada.patterns.runs import PatternLimits
from contrada.routing.delegation import (
    AcceptPattern,
    AskWatermark,
    HandBack,
    HandOver,
    PatternMessage,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router import Strategy
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.service_limits import CoreLimits
from tests.asynchronous import on_loop, until
from tests.net import soon
from tests.net.networks import FIVE, Network, network
from tests.net.test_broker import RawClient
from tests.net.test_reconnection import reached

AB = Pattern("every a exists -> b = 1 by k")
A = Notification({"a": 1, "k": "x"}, envelope=Envelope("1", "p", 1, 5))
B = Notification({"b": 1, "k": b"\xff"}, body=b"body", envelope=Envelope("2", "p", 2, 6))
BRIEF = Membership(slack_us=300_000)

MESSAGES: list[PatternMessage] = [
    SubscribePattern("1", AB, hops=3),
    UnsubscribePattern("1"),
    HandOver("1", 5, (Piece(0, None, A), Piece(1, ("x", 2.5, None), B), Piece(0, (), A))),
    AskWatermark("1", -7),
    RecallPattern("1"),
    AcceptPattern("1"),
    ReportMatches("1", (Match("1", ("x", True), (A, B)), Match("1", (), (A, B))), 7, 8),
    HandBack("1"),
    ReturnPattern("1", 9, (Piece(1, (b"\xff",), B),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_messages_travel_as_they_are(message: PatternMessage) -> None:
    """A neighbour would decode another pattern, or other pieces."""
    assert decode_hop(encode_message(message)) == message


def test_every_message_travels() -> None:
    """A server would send messages that no frame can hold."""
    assert {type(each) for each in MESSAGES} == set(get_args(PatternMessage))


@pytest.mark.parametrize(
    "fields",
    [
        ("subscribe pattern", "1", to_msgpack(Filter("a = 1"))),
        ("subscribe pattern", "1", b"\xc1"),
        ("hand over", "1", 5, [[0, None, b"\xc1"]]),
        ("hand over", "1", 5, [[0, to_msgpack(Notification({"0": [1, 2]})), to_msgpack(A)]]),
        ("hand over", "1", 5, [[0, to_msgpack(Notification({"1": 1})), to_msgpack(A)]]),
        ("report matches", "1", [[b"", [{"a": 1}]]], 5),
        ("report matches", "1", [[b"\xc1", []]], 5),
        ("return pattern", 1, 5, []),
    ],
)
def test_malformed_messages_give_one_clear_error(fields: tuple[Any, ...]) -> None:
    """A neighbour that errs would stop a broker, or be believed."""
    with pytest.raises(ContradaError):
        decode_hop(msgspec.Raw(msgspec.msgpack.encode(fields)))


def delegated(brokers: Network) -> int:
    """How many parts of patterns are assembled elsewhere than they were asked for."""
    return sum(each.dispatcher.router.statistics().patterns.delegated for each in brokers)


@pytest.mark.parametrize("part_bytes", [BrokerLimits().link_frame_bytes, 64])
@on_loop
async def test_a_network_matches_as_one_matcher(part_bytes: int) -> None:
    """Split and delegated patterns would lose matches."""
    limits = BrokerLimits(link_frame_bytes=part_bytes)
    pattern = Pattern("every a any -> b any -> c any by k within 1 min")
    whole: ct.PatternMatcher[str] = ct.PatternMatcher()
    whole.add("it", pattern)
    options: dict[str, Any] = {"strategy": Strategy.ADVERTISEMENTS, "slack_us": 500_000}
    async with (
        network(5, FIVE, limits, **options) as brokers,
        connect(brokers[0].address, publisher="one") as one,
        connect(brokers[4].address, publisher="other") as other,
        connect(brokers[3].address) as subscriber,
        subscriber.subscribe(pattern) as matches,
    ):
        expected: list[Match[str]] = []

        async def publish(by: Any, **attributes: int) -> None:
            stamped = Notification(attributes, envelope=await by.publish(attributes))
            expected.extend(whole.push(stamped))

        is_split: set[int] = set()
        offers = await one.advertise("a any and b any and c any and k any")
        theirs = other.advertise("c any and b any and k any")
        for n in range(6):
            await until(lambda: brokers.is_at_rest)
            is_split.add(delegated(brokers))
            await publish(one, a=n, k=n % 2)
            await publish(one, b=n, k=n % 2)
            if n == 2:  # In the middle of a match a part of it may arrive from another server.
                await theirs.open()
            await until(lambda: brokers.is_at_rest)
            await publish(one if n < 2 or n > 4 else other, c=n, k=n % 2)
            if n == 4:
                await theirs.unadvertise()
        expected += whole.flush()
        assert len(expected) == 6
        found = [await matches.next(20) for _ in expected]
        assert [each.notifications for each in found] == [each.notifications for each in expected]
        assert [each.by for each in found] == [each.by for each in expected]
        assert len(is_split) > 1, "it was split in different ways"
        assert max(is_split) > 0
        await matches.unsubscribe()
        await until(lambda: brokers.is_at_rest)
        for each in brokers:
            held = each.dispatcher.router.statistics()
            assert (held.patterns.patterns, held.filters.nodes) == (0, 0)
            assert not {k: n for k, n in held.patterns.dropped.items() if k != "late"}
        await offers.unadvertise()


@on_loop
async def test_a_pattern_is_taken_up_again() -> None:
    """A subscriber would get no match after the loss of its broker."""
    async with (
        Broker(port=0, network=BRIEF) as broker,
        soon.connect(broker.address) as service,
        service.subscribe(AB) as matches,
    ):
        states = service.connection_states()
        await reached(states, "connected")
        (its_end,) = broker._connections
        its_end.abort()
        await reached(states, "connected")
        await service.publish_batch([{"a": 1, "k": 1}, {"b": 1, "k": 1}])
        assert (await matches.next(20)).by == (1,)
        assert matches.statistics().reconnects == 1
        await until(lambda: broker.dispatcher.router.statistics().patterns.patterns == 1)


@pytest.mark.slow
@on_loop
async def test_an_urgent_match_does_not_wait_for_the_rest() -> None:
    """One notification of now would hold back, for all the slack, matches that are due."""
    slack_us = 3_600_000_000
    async with (
        Broker(port=0, network=Membership(slack_us=slack_us)) as broker,
        connect(broker.address) as service,
        service.subscribe(AB) as matches,
    ):
        now_us = EnvelopeFactory(None).now_us()
        for values, time_us in (
            ({"a": 1, "k": 2}, now_us),
            ({"a": 1, "k": 1}, now_us - slack_us + 2_000_000),
            ({"b": 1, "k": 1}, now_us - slack_us + 2_000_001),
        ):
            await service.publish(Notification(values, envelope=Envelope(time_us=time_us)))
        assert (await matches.next(20)).by == (1,)


@on_loop
async def test_patterns_of_a_client_are_bounded() -> None:
    """One client could fill the tables of a broker."""
    limits = BrokerLimits(patterns_per_client_max=1)
    async with Broker(port=0, limits=limits) as broker, connect(broker.address) as service:
        async with service.subscribe(AB), service.subscribe("a = 1"):
            with pytest.raises(ServiceError, match="patterns_per_client_max"):
                await service.subscribe(AB).open()
        await service.subscribe(AB).open()


@on_loop
async def test_a_pattern_with_too_much_work_is_refused_whole() -> None:
    """A broker would be kept busy, or left with half of a pattern."""
    names = [f"n{number}" for number in range(150)]
    wide = Filter(dict.fromkeys(names, 1))
    async with Broker(port=0) as broker, connect(broker.address) as service:
        await service.subscribe(Pattern([wide] * 20)).open()
        before = broker.dispatcher.router.statistics()
        with pytest.raises(ServiceError, match="REQUEST_WORK_MAX"):
            await service.subscribe(Pattern([wide] * 64)).open()
        assert broker.dispatcher.router.statistics().patterns == before.patterns
        assert broker.statistics().subscriptions == 1


@on_loop
async def test_a_pattern_that_costs_too_much_is_ended_with_the_reason() -> None:
    """One subscriber's patterns would hold up those of all others, and nobody would know why."""
    patterns = PatternLimits(turn_work_max=10, client_work_max=300)
    async with (
        Broker(port=0, network=BRIEF, core_limits=CoreLimits(patterns=patterns)) as broker,
        connect(broker.address) as costly,
        connect(broker.address) as modest,
        costly.subscribe(Pattern("every a any -> b any")) as every,
        costly.subscribe(Pattern("every a any -> b any")),
        modest.subscribe(Pattern("a = 1 -> b any")) as matches,
    ):
        await modest.publish_batch([*({"a": 1} for _ in range(100)), {"b": 1}])
        assert (await matches.next(20)).notifications[0]["a"] == 1
        with pytest.raises(ServiceError, match="its pattern costs too much"):
            [_ async for _ in every]
        await until(lambda: broker.statistics().subscriptions <= 2)
        await modest.publish_batch([{"a": 1}, {"b": 1}])
        assert (await matches.next(20)).notifications[0]["a"] == 1


@on_loop
async def test_a_large_notification_takes_part_in_no_pattern() -> None:
    """A few notifications that patterns wait for would fill the memory of a broker."""
    large = bytes(BROKER_PATTERN_LIMITS.notification_bytes_max)
    async with (
        Broker(port=0, network=BRIEF) as broker,
        connect(broker.address) as service,
        service.subscribe(AB) as matches,
        service.subscribe("a exists") as events,
    ):
        await service.publish({"a": 1, "k": 1}, body=large)
        await service.publish_batch([{"a": 2, "k": 1}, {"b": 1, "k": 1}])
        assert [(await events.next(20))["a"] for _ in range(2)] == [1, 2]
        assert (await matches.next(20)).notifications[0]["a"] == 2
        assert broker.statistics().dropped == {"too large for patterns": 1}


@on_loop
async def test_matches_wait_for_credit() -> None:
    """A reader that sleeps would have more than it has room for."""
    asked = Request(1, encode_message(SubscribePattern("9", AB)), credit=1)
    async with Broker(port=0, network=BRIEF) as broker, connect(broker.address) as service:
        client = await RawClient.to(broker, Hello("client"), asked)
        assert isinstance(await client.hears(), Hello)
        assert await client.hears() == Reply(1)
        for n in range(3):
            await service.publish_batch([{"a": n, "k": n}, {"b": 1, "k": n}])
        await until(lambda: broker.statistics().matched == 3)
        first = await client.hears()
        assert isinstance(first, MatchDelivery)
        assert len(first.matches) == 1
        client.say(Request(2, encode_message(UnsubscribePattern("9"))))
        assert await client.hears() == Reply(2)
        assert broker.statistics().dropped == {"unsubscribed": 2}
        client.say(asked)
        assert await client.hears() == Reply(1)
        client.say(Request(3, encode_message(SubscribePattern("9", AB))))
        again = await client.hears()
        assert isinstance(again, Reply)
        assert again.code == "repeated"
        await client.leave()
        await until(lambda: broker.dispatcher.router.statistics().patterns.patterns == 0)


@pytest.mark.parametrize("matches", [[(b"", [to_msgpack(A)])], [(b"", [to_msgpack(A)] * 3)]])
@on_loop
async def test_a_broker_that_delivers_no_match_is_left(matches: list[Any]) -> None:
    """A subscriber would get invalid matches."""
    async with Broker(port=0) as broker, TcpService(broker.address, reconnect=False) as service:
        await service.subscribe(AB).open()
        (its_end,) = broker._connections
        its_end.send(MatchDelivery("1", 0, matches))
        its_end.write()
        await until(lambda: service.connection.state == "closed")
        assert "protocol" in service.connection.reason or "faulty" in service.connection.reason


@on_loop
async def test_a_message_in_parts_is_bounded() -> None:
    """A neighbour could fill the memory of a broker by an endless message."""
    limits = BrokerLimits(link_message_bytes_max=100)
    async with network(2, [(0, 1)], limits) as brokers:
        (its_end,) = brokers[1].neighbours
        before = brokers[0].statistics().held_bytes
        its_end.connection.send(HopPart(bytes(60), is_last=False))
        its_end.connection.write()
        await until(lambda: brokers[0].statistics().held_bytes == before + 60)
        its_end.connection.send(HopPart(bytes(60), is_last=False))
        its_end.connection.write()
        await until(lambda: brokers[0].statistics().refused.get("oversized") == 1)
        await until(lambda: brokers[0].statistics().held_bytes == before)


def test_brokers_of_one_network_wait_alike() -> None:
    """One would count as late what another waits for."""
    assert Membership("a").shared_options() != Membership("a", slack_us=5).shared_options()
    with pytest.raises(ContradaError):
        Membership("a", slack_us=-1).router(CoreLimits())
