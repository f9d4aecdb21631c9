"""Rates: excess is dropped or delayed, by a clock of the test's own."""

import asyncio

import pytest

from contrada.errors import ContradaError
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.udp import Rates, rate_limits
from contrada.gossip.udp.datagram_seal import SEAL_BYTES
from contrada.gossip.udp.rate_limits import Inflow, Outflow, TokenBucket
from tests.asynchronous import on_loop, until


def test_a_bucket_fills_at_its_rate() -> None:
    """A pause, or a clock that is set back, would allow more than the rate."""
    bucket = TokenBucket(1_000, 0)
    assert bucket.has(1_000, 0)
    bucket.take(1_000)
    assert not bucket.has(1, 0)
    assert bucket.wait_s(500) == pytest.approx(0.5)
    assert not bucket.has(500, 499_000)
    assert bucket.has(500, 500_000)
    assert not bucket.has(501, 100_000)
    assert not bucket.has(1_001, 90_000_000)


def test_one_flood_leaves_room_for_others() -> None:
    """One flood would use up the rates of all; many sources would be served without bound."""
    inflow = Inflow(Rates(in_=2_000, in_all=5_000), 0)
    flood = [inflow.refuses(("1.1.1.1", 9), 1_000, 0) for _ in range(10)]
    assert flood == ["", ""] + [rate_limits.TOO_FAST] * 8
    assert inflow.refuses(("1.1.1.2", 9), 1_000, 0) == ""
    many = [inflow.refuses(("1.1.1.3", port), 1_000, 0) for port in range(10)]
    assert many == ["", ""] + [rate_limits.ALL_TOO_FAST] * 8


def test_sources_are_bounded() -> None:
    """Memory would grow with places that somebody makes up."""
    inflow = Inflow(Rates(), 0, places_max=10)
    for port in range(100):
        inflow.refuses(("1.1.1.1", port), 1, 0)
    assert len(inflow) == 10


@on_loop
async def test_messages_over_the_rate_wait_in_order_and_are_bounded() -> None:
    """A burst would be lost, reordered, or kept without bound."""
    sent: list[bytes] = []
    now = [0]
    flow = Outflow(Rates(out=2_000), lambda data, _: sent.append(data), lambda: now[0])
    pieces = [bytes([each]) * (1_000 - SEAL_BYTES) for each in range(4)]
    assert flow.put(pieces, ("1.1.1.1", 9))
    await asyncio.sleep(0)
    assert sent == pieces[:2]
    assert flow.waiting_bytes == 2_000
    assert not flow.put([bytes(GossipLimits().unsent_bytes_max - SEAL_BYTES)], ("1.1.1.1", 9))
    assert flow.dropped == {rate_limits.OUT_OF_ROOM: 1}
    now[0] = 10_000_000
    await until(lambda: len(sent) == 4)
    assert sent == pieces
    await flow.wait_empty(1.0)


@on_loop
async def test_large_messages_are_sent_in_turns_within_the_rate_and_the_room() -> None:
    """A member that asks for all events at once would hold the loop for a second."""
    sent: list[int] = []
    flow = Outflow(Rates(out=4 * 2**20), lambda piece, _: sent.append(len(piece)), lambda: 0)
    message = [bytes(1_024 - SEAL_BYTES)] * 512
    assert sum(flow.put(message, ("1.1.1.1", 9)) for _ in range(99)) == 16
    await asyncio.sleep(0)
    assert len(sent) * 1_024 == rate_limits.TURN_BYTES_MAX
    await until(lambda: len(sent) == 4_096)
    assert flow.waiting_bytes == GossipLimits().unsent_bytes_max
    flow.close()


@on_loop
async def test_a_full_socket_holds_up() -> None:
    """Datagrams for a full socket would be kept without bound."""
    sent: list[bytes] = []
    flow = Outflow(Rates(), lambda data, _: sent.append(data), lambda: 0)
    flow.pause()
    flow.put([b"a"], ("1.1.1.1", 9))
    await asyncio.sleep(0)
    assert not sent
    flow.resume()
    assert sent == [b"a"]
    flow.pause()
    flow.put([b"b"], ("1.1.1.1", 9))
    flow.close()
    assert flow.waiting_bytes == 0


def test_rates_that_are_none_are_refused() -> None:
    """A datagram could never be sent."""
    for rate in (0, -1, 1_999):
        with pytest.raises(ContradaError, match=str(rate)):
            Rates(out=rate)
