"""`python -m examples.partners`: see `pipeline_run.py`."""

import asyncio
import sys

import click

from examples.partners.run import CARRIERS, share


@click.command()
def main() -> None:
    """Carriers at one broker, each of which reads its own flights alone."""
    found, wanted = asyncio.run(share())
    for carrier in CARRIERS:
        mine = sum(count for (at, _), count in found.came.items() if at == carrier)
        click.echo(f"{carrier}: {mine} flights, all its own")
    click.echo(f"refused: {', '.join(found.refused)}")
    if found != wanted:
        click.echo("that is not what the flights say", err=True)
    sys.exit(int(found != wanted))


if __name__ == "__main__":
    main(prog_name="python -m examples.partners")
