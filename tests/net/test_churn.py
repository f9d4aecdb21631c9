"""Clients in quick succession at two brokers leave nothing; see `tests.net.churn`."""

from pathlib import Path

from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from tests.asynchronous import on_loop, until
from tests.net.churn import at_rest, wave
from tests.net.memory import Table, tables

LIVES = 60


@on_loop
async def test_nothing_is_left_of_departed_clients(tmp_path: Path) -> None:
    """Remains of departed clients would fill a broker, over days."""
    async with (
        Broker(port=0, network=Membership("a"), store=tmp_path / "a.db") as a,
        Broker(
            port=0,
            network=Membership("b", neighbours=(WantedLink(parse_address(a.address)),)),
            store=tmp_path / "b.db",
        ) as b,
    ):
        await until(lambda: len(a.neighbours) == len(b.neighbours) == 1)

        async def look() -> list[Table]:
            return [tables(each) for each in (a, b)]

        before = await look()
        await wave([a.address, b.address], 0, LIVES)
        await at_rest(look, before)
        assert not a.refused["internal"] + b.refused["internal"]
