"""`contrada store`: backup, check and restoration of the stores of brokers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from contrada.cli import shared_options as options
from contrada.cli.broker_settings import MEMORY
from contrada.cli.table_output import output, table
from contrada.errors import InputError
from contrada.service.stores import store_copies

DAMAGED: Final = 1  # The status for a damaged store


@click.group()
def store() -> None:
    """Back up the stores of brokers, and restore them.

    PLACE is that of `contrada serve --store`: a file, or postgresql://user@host/database. Copies
    are files, and each kind of store is restored from either. A backup, a check and a list are of
    one moment, and do not block a broker that runs on the store.

    \b
    contrada store backup /var/lib/contrada/events.db events-monday.copy
    contrada store check events-monday.copy
    contrada store restore events-monday.copy /var/lib/contrada/events.db
    """  # noqa: D301 - click reads the escape


@store.command()
@click.argument("place", callback=options.without_password)
@click.argument("file", type=options.NEW_FILE)
def backup(place: str, file: Path) -> None:
    """Copy the store at PLACE to FILE, while a broker may run on it.

    The copy has everything that the broker has confirmed. It is checked, and FILE appears when all
    of it is on disk. An existing file is not overwritten, and a damaged store is not copied.
    """
    _print_summary(store_copies.back_up(place, file))


@store.command("restore")
@click.argument("file", type=options.NEW_FILE)
@click.argument("place", callback=options.without_password)
def restore_(file: Path, place: str) -> None:
    """Create a store at PLACE, where there is none, from the copy FILE.

    Records after the copy are lost; records acknowledged since are delivered again. Positions
    assigned since are not reused: a reader that keeps its position continues with new records. The
    broker of the copied store must not run on the old one again. See `contrada help operations`.
    """
    if place == MEMORY:
        raise InputError("PLACE", "found 'memory:', expected where a store stays: a file, or a URL")
    _print_summary(store_copies.restore(file, place))


@store.command()
@click.argument("place", callback=options.without_password)
def check(place: str) -> None:
    """Check everything in the store at PLACE, or in a copy.

    The status is 1 if a part is damaged, and 2 if the store cannot be read.
    """
    shown = store_copies.look_at(place, deep=True)
    for where, why in shown.damaged.items():
        click.echo(f"damaged: {where}: {why}")
    if shown.damaged:
        raise click.exceptions.Exit(DAMAGED)
    _print_summary(shown)


@store.command()
@click.argument("place", callback=options.without_password)
@options.flag("--json as_json", "As one JSON object.")
def show(place: str, as_json: bool) -> None:
    """Show the logs of a store or a copy, with positions and sizes.

    `@spool` holds the certified notifications that some owner has not logged yet; the other logs
    are durable subscriptions.
    """
    shown = store_copies.look_at(place, deep=False)
    if as_json:
        click.echo(msgspec.json.encode(shown).decode())
        return
    made = table(title=shown.place)
    for name in ("log", "first", "next", "records", "acknowledged", "bytes", "last"):
        made.add_column(name, justify="left" if name in ("log", "last") else "right")
    for of in shown.logs:
        last = datetime.fromtimestamp(of.time_us / 1e6, UTC).isoformat(" ", "seconds")
        numbers = of.first, of.next, of.records, of.acknowledged, of.held_bytes
        made.add_row(of.name, *map(str, numbers), last if of.time_us else "")
    output().print(made)
    space = shown.space
    click.echo(f"{space.used_bytes:,} bytes used, {space.free_bytes:,} free in the file")
    for where, why in shown.damaged.items():
        click.echo(f"damaged: {where}: {why}")


def _print_summary(shown: store_copies.StoreShown) -> None:
    records = sum(of.records for of in shown.logs)
    size = sum(of.held_bytes for of in shown.logs)
    click.echo(
        f"{shown.place}: {len(shown.logs)} logs, {records} records of {size} bytes, "
        f"{sum(shown.notes.values())} notes; whole"
    )
