"""`python -m examples.stock_trade [ADDRESS] [--collections]`: see `run.py`."""

import asyncio
import sys

import click

import contrada as ct
from examples.stock_trade import collections, handles
from examples.stock_trade.run import trade


@click.command()
@click.argument("address", required=False)
@click.option(
    "--collections", "by_collections", is_flag=True, help="Use collections instead of handles."
)
def main(address: str | None, by_collections: bool) -> None:
    """Trade for a year: in this process, or at the broker at ADDRESS."""
    sys.exit(asyncio.run(traded(address, by_collections)))


async def traded(address: str | None, by_collections: bool) -> int:
    """Trades and prints the result; 1 if it differs from the quotes."""
    style = collections.trading if by_collections else handles.trading
    async with ct.connect(address) as service:
        found, wanted = await trade(service, style)
    for (company, price, day), count in sorted(found.bought.items(), key=lambda it: it[0][2]):
        click.echo(f"{day}  {company:10} at {price:7.2f}{'' if count == 1 else f'  x {count}'}")
    click.echo(f"{found.bought.total()} bought, {found.expired} requests expired")
    if found != wanted:
        click.echo("that is not what the quotes say", err=True)
    return int(found != wanted)


if __name__ == "__main__":
    main(prog_name="python -m examples.stock_trade")
