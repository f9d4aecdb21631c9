"""`python -m examples.partners`: see `run.py`."""

import asyncio
import sys

import click

from examples.partners.run import CARRIERS, share


@click.command()
def main() -> None:
    """Run carriers at one broker; each reads only its own flights."""
    found, wanted = asyncio.run(share())
    for carrier in CARRIERS:
        mine = sum(count for (at, _), count in found.received.items() if at == carrier)
        click.echo(f"{carrier}: {mine} flights, all its own")
    click.echo(f"refused: {', '.join(found.refused)}")
    if found != wanted:
        click.echo("the result differs from the flights", err=True)
    sys.exit(int(found != wanted))


if __name__ == "__main__":
    main(prog_name="python -m examples.partners")
