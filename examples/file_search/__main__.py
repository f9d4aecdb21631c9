"""`python -m examples.file_search`: see `run.py`."""

import asyncio
import sys

import click

from contrada.routing.router import Strategy
from examples.file_search.peers import shared
from examples.file_search.run import expected, search


@click.command()
def main() -> None:
    """Search files among peers, once by descriptions and once by flooding."""
    files = shared()
    wanted = expected(files)
    chosen = asyncio.run(search(Strategy.SUBSCRIPTIONS, files))
    flooded = asyncio.run(search(Strategy.FLOODING, files))
    click.echo(f"{sum(map(len, files.values()))} files of {len(files)} peers")
    click.echo("two figures: with descriptions, and with flooding")
    for one, other in zip(chosen, flooded, strict=True):
        click.echo(
            f"{one.text:34}{len(one.found):3} found, {len(one.asked):3} asked; "
            f"passed on {one.passed_on:3} and {other.passed_on:3} times, "
            f"{one.messages:3} and {other.messages:3} messages"
        )
    right = all(each.found == wanted[each.text] for each in (*chosen, *flooded))
    if not right:
        click.echo("the result differs from a loop over all files", err=True)
    sys.exit(int(not right))


if __name__ == "__main__":
    main(prog_name="python -m examples.file_search")
