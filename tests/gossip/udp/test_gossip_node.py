"""Participants over UDP: joining and leaving, deliveries, and refusals."""

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contrada.errors import (
    AddressError,
    ConnectionFailedError,
    ContradaError,
    LimitError,
    ServiceClosedError,
    ServiceError,
    TooSlowError,
)
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import Contact, Probe, encode_gossip
from contrada.gossip.parameters import Parameters
from contrada.gossip.udp import GossipGroup, GossipNode, GroupKey, Rates
from contrada.gossip.udp import gossip_node as nodes_module
from contrada.gossip.udp.datagram_seal import GroupSeal
from contrada.gossip.udp.fragments import DATAGRAM_BYTES_MAX, pieces_of
from contrada.gossip.udp.gossip_group import split_place
from tests.asynchronous import on_loop, until
from tests.gossip.udp.groups import KEY, QUICK, counted, group_of, node

LOCAL = ("127.0.0.1", 9)


@on_loop
async def test_a_group_receives_its_matches() -> None:
    """Events would be lost, doubled, or delivered to others."""
    async with group_of([(0, 0), (0, 1), (2, 0)]) as nodes:
        one, two, three = nodes
        async with (
            two.subscribe("price < 100") as low,
            three.subscribe("price > 50") as high,
            one.subscribe("price any") as own,
        ):
            await until(lambda: one.participant.statistics().round > 40)
            envelope = await one.publish({"price": 60}, body=b"whole")
            found = [await each.next(20) for each in (low, high, own)]
            assert [each["price"] for each in found] == [60, 60, 60]
            assert all(each.envelope == envelope and each.body == b"whole" for each in found)
            await one.publish(found[0])  # The same again.
            await one.publish({"price": 20})
            assert (await low.next(20))["price"] == 20
            assert (await own.next(20))["price"] == 20
            await one.spread()
            assert high.statistics().delivered == 1


@on_loop
async def test_no_socket_is_left_by_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket would receive, and its node gossip, until the end of the process."""
    loop, sockets = asyncio.get_running_loop(), list[asyncio.BaseTransport]()
    create = loop.create_datagram_endpoint

    async def counted_create(*arguments: Any, **options: Any) -> Any:
        made = await create(*arguments, **options)
        sockets.append(made[0])
        return made

    monkeypatch.setattr(loop, "create_datagram_endpoint", counted_create)
    twice, left = node(), node()
    await asyncio.gather(twice.open(), twice.open())
    assert len(sockets) == 1
    await twice.aclose()
    opening = asyncio.create_task(left.open())
    await asyncio.sleep(0)
    await left.aclose()
    with pytest.raises(ServiceClosedError, match="has left"):
        await opening
    assert len(sockets) == 2
    assert all(each.is_closing() for each in sockets)


@on_loop
async def test_leaving_is_known_to_the_group() -> None:
    """Others would send to a departed participant until they detect it."""
    async with group_of([(0, 0), (0, 1)]) as (one, two):
        rounds = one.participant.statistics().round
        await two.aclose()
        await until(lambda: counted(one) == 1)
        assert one.participant.statistics().round - rounds < 30
        for refused in (two.publish({"a": 1}), two.subscribe("a = 1").open(), two.open()):
            with pytest.raises(ServiceClosedError, match="left"):
                await refused
        await two.aclose()


@on_loop
async def test_a_taken_address_is_reported() -> None:
    """Two would have one address; or a random newcomer would not draw another one."""
    group = GossipGroup(parameters=replace(QUICK, levels=1, branching=2, redundancy=1))
    async with node(address=(0,), group=group) as one:
        with pytest.raises(ServiceError, match="the address is taken"):
            await node(one.place, address=(0,), group=group).open()
        async with node(one.place, group=group) as two:
            assert two.statistics().address == (1,)


@on_loop
async def test_a_foreign_group_is_ignored() -> None:
    """A participant with another key or parameters would be admitted; or not know the reason."""
    other = GossipGroup(parameters=replace(QUICK, fanout=2))
    async with node() as one:
        for stranger in (
            node(one.place, key=GroupKey.new(), limits=GossipLimits(group_join_wait_s=0.1)),
            node(one.place, group=other, limits=GossipLimits(group_join_wait_s=0.1)),
        ):
            with pytest.raises(ConnectionFailedError, match="are key, protocol and parameters"):
                await stranger.open()
        statistics = one.statistics()
        assert statistics.refused["wrong group"] >= 2
        assert (statistics.senders, statistics.sent) == (0, 0)  # Nothing is answered.


@on_loop
async def test_places_that_are_none_are_refused() -> None:
    """A wrong place would be noticed only by silence."""
    for bad in ("10.0.0.7:x", "", ":7", "a b:7", "10.0.0.7:99999"):
        with pytest.raises(AddressError, match="expected HOST:PORT"):
            GossipNode(KEY, join=[bad])
    for at in ("0.0.0.0:7656", "224.0.0.1:7656", "somewhere:7656"):
        with pytest.raises(AddressError, match="at which"):
            await node(at=at).open()
    with pytest.raises(AddressError, match="that this machine can have"):
        await node(at="203.0.113.9:7656").open()
    with pytest.raises(ServiceError, match="async with"):
        await node().publish({"a": 1})
    assert split_place("[fd00::7]:8") == ("fd00::7", 8)
    assert split_place("fd00::7") == ("fd00::7", 7656)
    assert split_place("oslo") == ("oslo", 7656)


def test_groups_that_cannot_be_are_refused() -> None:
    """A participant would be made from an impossible configuration."""
    for make, value in (
        (lambda: GossipGroup("pbcast"), "pbcast"),  # type: ignore[arg-type]
        (lambda: GossipGroup("pmcast", QUICK), "2"),
        (lambda: GossipNode(KEY, GossipGroup(parameters=QUICK), address=(0, 4)), "4"),
        (lambda: GossipGroup(parameters=Parameters(redundancy=9, branching=4)), "9"),
    ):
        with pytest.raises(ContradaError, match=value):
            make()


@on_loop
async def test_a_message_of_many_datagrams_arrives_whole() -> None:
    """A message larger than a datagram would be lost; or a too large one be delivered in part."""
    body = bytes(range(256)) * 400
    async with group_of([(0, 0), (0, 1)]) as (one, two), two.subscribe("a = 1") as found:
        await until(lambda: one.participant.statistics().round > 20)
        await one.publish({"a": 1}, body=body)
        assert (await found.next(20)).body == body
        with pytest.raises(ServiceError, match="too large"):
            await one.publish({"a": 1}, body=bytes(600_000))
        assert two.statistics().incomplete == 0


@on_loop
async def test_losses_of_a_slow_reader_are_counted() -> None:
    """Memory would grow with unread events; or losses would not be counted."""
    async with node() as one, one.subscribe("a any", when_full="disconnect") as strict:
        async with one.subscribe("a any", when_full="block") as slow:
            slow.queue._bounds = slow.queue._bounds._replace(notifications=2)
            strict.queue._bounds = strict.queue._bounds._replace(notifications=1)
            for value in range(4):
                await one.publish({"a": value})
            assert slow.statistics().dropped == {"queue full": 2}
            assert [(await slow.next(1))["a"] for _ in range(2)] == [0, 1]
        assert (await anext(strict))["a"] == 0
        with pytest.raises(TooSlowError):
            await anext(strict)


@on_loop
async def test_publishing_too_much_waits() -> None:
    """Events would be dropped in silence where more is published than is gossiped."""
    limits = GossipLimits(events_in_transit_max=2)
    async with (
        group_of([(0, 0), (0, 1)], limits=limits) as (one, two),
        two.subscribe("a any") as found,
    ):
        await until(lambda: one.participant.statistics().round > 20)
        for value in range(6):
            await one.publish({"a": value})
            assert len(one.participant.dissemination.buffers) <= 2
        assert {(await found.next(20))["a"] for _ in range(6)} == set(range(6))


@on_loop
async def test_interests_can_change() -> None:
    """An update would not reach the group."""
    async with group_of([(0, 0), (3, 1)]) as (one, two), two.subscribe("a = 1") as found:
        await found.update("a = 2")
        line = one.participant.membership.view.table(2)
        await until(lambda: any(held.filters.matches({"a": 2}) for held in line.live()))
        await one.publish({"a": 1})
        await one.publish({"a": 2})
        assert (await found.next(20))["a"] == 2


# --- hostile datagrams ---------------------------------------------------------------------------


def sealed(target: GossipNode, content: bytes, key: GroupKey = KEY) -> list[bytes]:
    """Returns a datagram of a holder of the key."""
    seal = GroupSeal(key, target.group.agreed)
    now_us = target._now_us()
    return [seal.seal(piece, target.place, now_us) for piece in pieces_of(content, 1)]


@on_loop
async def test_hostile_datagrams_are_counted_and_harmless() -> None:
    """Cut, changed, foreign, old or large datagrams would break a participant, or be answered."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hostile:
        hostile.bind(("127.0.0.1", 0))
        hostile.setblocking(False)
        async with group_of([(0, 0), (0, 1)]) as (one, two):
            host, port = split_place(one.place)
            mine = Contact((1, 1), f"127.0.0.1:{hostile.getsockname()[1]}")
            (good,) = sealed(one, encode_gossip(Probe(mine)))
            flipped = [
                good[: bit // 8] + bytes([good[bit // 8] ^ 1 << bit % 8]) + good[bit // 8 + 1 :]
                for bit in range(8 * len(good))
            ]
            foreign = sealed(one, encode_gossip(Probe(mine)), GroupKey.new())
            bad = [*(good[:size] for size in range(len(good))), *flipped, *foreign]
            bad.append(bytes(DATAGRAM_BYTES_MAX + 1))
            before = one.statistics()
            for datagram in bad:
                hostile.sendto(datagram, (host, port))
                await asyncio.sleep(0)  # The system holds few that nobody has read.
            await until(lambda: _refused(one) - sum(before.refused.values()) >= len(bad))
            assert one.statistics().senders == before.senders
            with pytest.raises(BlockingIOError):
                hostile.recv(2_000)
            await loop.sock_sendto(hostile, good, (host, port))
            assert await loop.sock_recv(hostile, 2_000)  # This one is answered,
            for _ in range(20):
                hostile.sendto(good, (host, port))
            await until(lambda: one.statistics().refused.get("replayed", 0) >= 20)
            with pytest.raises(BlockingIOError):
                hostile.recv(2_000)  # and once only.
            async with two.subscribe("a = 1") as found:
                await until(lambda: one.participant.statistics().round > 60)
                await one.publish({"a": 1})
                assert (await found.next(20))["a"] == 1
            for reason in ("truncated", "wrong group", "forged", "oversized", "unknown version"):
                assert one.statistics().refused[reason] > 0, reason


def _refused(one: GossipNode) -> int:
    return sum(one.statistics().refused.values())


@on_loop
async def test_floods_are_dropped_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood would fill the memory, or drown out all other participants."""
    monkeypatch.setattr(nodes_module, "monotonic_us", lambda: 0)  # All datagrams arrive together.
    rates = Rates(in_=100_000, in_all=200_000)
    async with node(rates=rates) as one:
        begun = pieces_of(bytes(3 * DATAGRAM_BYTES_MAX), 1)[0]
        for number in range(2_000):
            seal = GroupSeal(KEY, one.group.agreed)
            piece = number.to_bytes(4, "big") + begun[4:]
            one.on_datagram(
                seal.seal(piece, one.place, one._now_us()), ("127.0.0.1", 1 + number % 3)
            )
        statistics = one.statistics()
        assert statistics.refused["all too fast"] > 1_800
        assert statistics.incomplete <= one.limits.incomplete_max
        assert one._assembling.bytes_ <= 200_000
        assert statistics.senders <= 200


@on_loop
async def test_any_bytes_are_harmless_from_outside_and_inside() -> None:
    """Random bytes would raise in a participant, or change its view."""
    async with group_of([(0, 0), (0, 1)]) as (one, _):
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, each: faults.append(each))
        probe = encode_gossip(Probe(Contact((0, 1), "127.0.0.1:9")))

        @settings(max_examples=300, suppress_health_check=list(HealthCheck), deadline=None)
        @given(st.binary(max_size=1_500), st.integers(0, len(probe) - 1), st.booleans())
        def take(data: bytes, position: int, is_inside: bool) -> None:
            one.on_datagram(data, LOCAL)
            changed = probe[:position] + data[:3] + probe[position + 3 :]
            for content in (data, changed) if is_inside else ():
                for each in sealed(one, content):
                    one.on_datagram(each, LOCAL)
            one.participant.validate()

        take()
        assert counted(one) == 2
        assert faults == []


@on_loop
async def test_a_clock_that_jumps_lets_nobody_fall_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A participant with a changed clock would be forgotten for ever, or keep its events to
    itself.
    """
    async with group_of([(0, 0), (0, 1)]) as (one, two):
        real = one._now_us
        monkeypatch.setattr(one, "_now_us", lambda: real() + 3_600_000_000)
        await until(lambda: two.statistics().refused.get("clock", 0) > 3)
        await until(lambda: one.statistics().refused.get("clock", 0) > 3)
        monkeypatch.setattr(one, "_now_us", real)
        async with two.subscribe("a = 1") as found:
            line = one.participant.membership.view.table(1)
            await until(lambda: any(held.filters.matches({"a": 1}) for held in line.live()))
            await one.publish({"a": 1})
            assert (await found.next(20))["a"] == 1


@on_loop
async def test_messages_that_cannot_be_sent_are_counted() -> None:
    """An invalid place in a message would end another participant's round."""
    async with node() as one:
        for place in ("nowhere", "127.0.0.1", "0.0.0.0:7", "127.0.0.1:0", "localhost:7656"):
            one._send(place, Probe(Contact((0, 0), one.place)))
        assert one.statistics().dropped == {"no place": 5}
        with pytest.raises(LimitError):
            encode_gossip(Probe(Contact((0,) * 2, "x" * 2**21)))
