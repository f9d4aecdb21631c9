"""`python -m examples.airport_news [ADDRESS]`: see `pipeline_run.py`."""

import asyncio
import sys

import click

import contrada as ct
from examples.airport_news.run import DESKS, follow


@click.command()
@click.argument("address", required=False)
def main(address: str | None) -> None:
    """News of airports to desks: in this process, or at the broker at ADDRESS."""
    sys.exit(asyncio.run(followed(address)))


async def followed(address: str | None) -> int:
    """Poll, and say what came of it; 1 where that is not what the feed says."""
    async with ct.connect(address) as service:
        found, wanted = await follow(service)
    for new, changed, unchanged in found.counts:
        click.echo(f"polled: {new} new, {changed} changed, {unchanged} unchanged")
    for desk in DESKS:
        told = [(title, airports) for at, title, airports in found.came if at == desk]
        click.echo(f"{desk}: {len(told)} bulletins, the last of them {max(told)[0]!r}")
    if found != wanted:
        click.echo("that is not what the feed says", err=True)
    return int(found != wanted)


if __name__ == "__main__":
    main(prog_name="python -m examples.airport_news")
