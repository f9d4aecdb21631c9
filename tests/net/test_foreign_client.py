"""A client in another language, as far as the wire is concerned."""

import ast
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import contrada as ct
from contrada.connections import connect
from contrada.model.codec import from_msgpack, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership
from contrada.net.wire.address import parse_address
from contrada.net.wire.frames import FrameReader, Hop, encode
from contrada.service.subscription_queue import ENTRY_BYTES
from tests.asynchronous import on_loop, until
from tests.net import foreign_client, vectors
from tests.net.foreign_client import ForeignClient, comparison
from tests.net.requests import frames_in

ONE = ENTRY_BYTES + 1
"""Credit for one notification; the last may exceed it."""


def connected(broker: Broker) -> ForeignClient:
    """A foreign client of a broker."""
    address = parse_address(broker.address)
    return ForeignClient(address.host, address.port)


def test_it_uses_nothing_of_the_project() -> None:
    """It would prove nothing for other languages."""
    tree = ast.parse(Path(foreign_client.__file__).read_text("utf-8"))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names | {"collections.abc"}


@pytest.mark.parametrize("operator", ["<", "<=", "=", ">=", ">"])
@pytest.mark.parametrize("number", [0, 5, -3, 2.5, -0.1, 2.0**53 - 1])
def test_its_filters_mean_the_same(operator: str, number: float) -> None:
    """The page would describe a comparison wrongly."""
    assert from_msgpack(comparison("a", operator, number)) == ct.Filter(f"a {operator} {number!r}")


@on_loop
async def test_it_receives_publications_of_a_client() -> None:
    """A subscriber in another language would get nothing, too much, or something else."""

    def read(foreign: ForeignClient) -> list[tuple[str, object]]:
        got = [foreign.next() for _ in range(3)]
        foreign.ping(7)
        return [(identity, each["price"]) for identity, each in got]

    async with Broker(port=0) as broker, connect(broker.address) as service:
        with await asyncio.to_thread(connected, broker) as foreign:
            assert foreign.broker[0] == "broker"
            await asyncio.to_thread(foreign.subscribe, "x", comparison("price", "<", 100), ONE)
            await service.publish_batch({"price": price} for price in (98.5, 100, 99, 101.5, -1))
            assert await asyncio.to_thread(read, foreign) == [("x", 98.5), ("x", 99), ("x", -1)]
            await asyncio.to_thread(foreign.goodbye)
        await until(lambda: broker.statistics().subscriptions == 0)
        assert not broker.statistics().refused


@on_loop
async def test_it_holds_a_broker_to_its_credit() -> None:
    """A client would be sent more than it can hold."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        with await asyncio.to_thread(connected, broker) as foreign:
            await asyncio.to_thread(foreign.subscribe, "x", comparison("n", ">=", 0), ONE)
            await service.publish_batch({"n": n} for n in range(9))
            await asyncio.to_thread(foreign.ping, 1)
            came = len(foreign.delivered)
            assert came == 1, "by the answer to a ping all has come for which there was credit"
            got = [(await asyncio.to_thread(foreign.next))[1]["n"] for _ in range(9)]
            assert got == [*range(9)]


@on_loop
async def test_it_publishes_and_updates_and_is_refused_in_words() -> None:
    """Publications in another language would be delivered changed."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("symbol any") as subscription,
    ):
        with await asyncio.to_thread(connected, broker) as foreign:
            assert await asyncio.to_thread(foreign.publish, {"symbol": "DIS", "n": 1}) == 0
            got = await anext(aiter(subscription))
            assert dict(got) == {"symbol": "DIS", "n": 1}
            assert got.envelope.publisher == foreign.publisher
            assert got.envelope.sequence == 1
            await asyncio.to_thread(foreign.subscribe, "x", comparison("n", "<", 0), 10 * ONE)
            await asyncio.to_thread(foreign.subscribe, "x", comparison("n", ">", 0), 0)
            await asyncio.to_thread(foreign.publish, {"n": 2})
            assert await asyncio.to_thread(foreign.next) == ("x", {"n": 2})
            with pytest.raises(ValueError, match=r"^unknown: subscription y"):
                await asyncio.to_thread(foreign.request, ["unsubscribe", "y"])
            await asyncio.to_thread(foreign.request, ["unsubscribe", "x"])
            await asyncio.to_thread(foreign.goodbye)


@on_loop
async def test_a_broker_of_vectors_is_a_neighbour() -> None:
    """A broker in another language would not be accepted as a neighbour, or get no
    subscriptions.
    """
    quote = vectors.QUOTE
    async with (
        Broker(port=0, network=Membership("b")) as broker,
        connect(broker.address) as service,
    ):
        address = parse_address(broker.address)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        frames = FrameReader()

        async def told(tag: str) -> list[Any]:
            """The next message of this kind."""
            while True:
                hops = [each for each in frames_in(frames) if isinstance(each, Hop)]
                messages = [msgspec.msgpack.decode(each) for hop in hops for each in hop.messages]
                if found := [each for each in messages if each[0] == tag]:
                    return found[0]  # type: ignore[no-any-return]
                frames.feed(await reader.read(4096))

        links = of_vectors("message between brokers", "tell links")
        writer.write(of_vectors("frame", "hello of a neighbour") + of_vectors("frame", "hop"))
        writer.write(encode(Hop([msgspec.Raw(links)])))
        assert await told("took links") == ["took links", 1], "what came before is in force"
        await service.publish_batch([{"price": 100}, quote])
        published = await told("publish")
        assert published == ["publish", [to_msgpack(quote)], 1, "", 1]
        writer.write(of_vectors("frame", "goodbye"))
        assert await reader.read() is not None
        writer.close()
        await writer.wait_closed()
        await until(lambda: not broker.neighbours)
        assert not broker.statistics().refused


def of_vectors(group: str, name: str) -> bytes:
    """The bytes of a vector."""
    written = json.loads(vectors.PLACE.read_text("utf-8"))
    found = [each["hex"] for each in written if (each["group"], each["name"]) == (group, name)]
    return bytes.fromhex(found[0])
