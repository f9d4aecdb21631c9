"""`python -m examples.site_select [ADDRESS]`: see `pipeline_run.py`."""

import asyncio
import sys

import click

import contrada as ct
from examples.site_select.run import select


@click.command()
@click.argument("address", required=False)
def main(address: str | None) -> None:
    """Commands and questions to airports: in this process, or at the broker at ADDRESS."""
    sys.exit(asyncio.run(selected(address)))


async def selected(address: str | None) -> int:
    """Ask, and say what came of it; 1 where that is not what all flights say."""
    async with ct.connect(address) as service:
        found, wanted = await select(service, [service])
    for order, results in found.results.items():
        click.echo(f"{order}: {len(found.asked[order])} sites asked")
        for each in results:
            click.echo("  " + "  ".join(f"{name}={value}" for name, value in each.items()))
    if found != wanted:
        click.echo("that is not what the flights say", err=True)
    return int(found != wanted)


if __name__ == "__main__":
    main(prog_name="python -m examples.site_select")
