"""`python -m examples.site_select [ADDRESS]`: see `run.py`."""

import asyncio
import sys

import click

import contrada as ct
from examples.site_select.run import select


@click.command()
@click.argument("address", required=False)
def main(address: str | None) -> None:
    """Send commands and questions to airports: in this process, or at the broker at ADDRESS."""
    sys.exit(asyncio.run(selected(address)))


async def selected(address: str | None) -> int:
    """Sends them and prints the result; 1 if it differs from a loop over all flights."""
    async with ct.connect(address) as service:
        found, wanted = await select(service, [service])
    for order, results in found.results.items():
        click.echo(f"{order}: {len(found.asked[order])} sites asked")
        for each in results:
            click.echo("  " + "  ".join(f"{name}={value}" for name, value in each.items()))
    if found != wanted:
        click.echo("the result differs from the flights", err=True)
    return int(found != wanted)


if __name__ == "__main__":
    main(prog_name="python -m examples.site_select")
