"""`python -m examples.airport_news [ADDRESS]`: see `run.py`."""

import asyncio
import sys

import click

import contrada as ct
from examples.airport_news.run import DESKS, follow


@click.command()
@click.argument("address", required=False)
def main(address: str | None) -> None:
    """Send news of airports to desks: in this process, or at the broker at ADDRESS."""
    sys.exit(asyncio.run(followed(address)))


async def followed(address: str | None) -> int:
    """Polls and prints the result; 1 if it differs from the feed."""
    async with ct.connect(address) as service:
        found, wanted = await follow(service)
    for new, changed, unchanged in found.counts:
        click.echo(f"polled: {new} new, {changed} changed, {unchanged} unchanged")
    for desk in DESKS:
        told = [(title, airports) for at, title, airports in found.received if at == desk]
        click.echo(f"{desk}: {len(told)} bulletins, the last of them {max(told)[0]!r}")
    if found != wanted:
        click.echo("that is not what the feed says", err=True)
    return int(found != wanted)


if __name__ == "__main__":
    main(prog_name="python -m examples.airport_news")
