"""A client in another language, as far as the wire is concerned."""

import ast
import asyncio
import sys
from pathlib import Path

import pytest

import contrada as ct
from contrada.model.encoding import from_msgpack
from contrada.net import Broker, connect, parse_address
from contrada.runtime.outlet import ENTRY_BYTES
from tests.asynchronous import on_loop, until
from tests.net import foreign_client
from tests.net.foreign_client import ForeignClient, comparison

ONE = ENTRY_BYTES + 1
"""Credit for one notification, and the last may go beyond it."""


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
    """The page would tell wrongly how a comparison is written."""
    assert from_msgpack(comparison("a", operator, number)) == ct.Filter(f"a {operator} {number!r}")


@on_loop
async def test_it_gets_what_a_client_publishes() -> None:
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
    """What is published in another language would not be delivered as it is."""
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
