"""`contrada store`: copies of what brokers keep, made, looked at, and made stores again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from contrada.cli.broker_settings import MEMORY
from contrada.cli.database_argument import without_password
from contrada.cli.table_output import output
from contrada.errors import InputError
from contrada.service.stores.store_copies import (
    StoreShown,
    back_up,
    look_at,
    restore,
    shown_as_json,
)

DAMAGED: Final = 1
"""The status where a store is damaged."""

_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.group()
def store() -> None:
    """Back up the stores of brokers, and restore them.

    PLACE is what `contrada serve --store` takes: a file, or postgresql://user@host/database.
    Copies are files, of either, and either is restored from them. A backup, a check and a look are
    of one moment, and hold up no broker that runs on the store.

    \b
    contrada store backup /var/lib/contrada/events.db events-monday.copy
    contrada store check events-monday.copy
    contrada store restore events-monday.copy /var/lib/contrada/events.db
    """  # noqa: D301 - click reads the escape


@store.command()
@click.argument("place", callback=without_password)
@click.argument("file", type=_FILE)
def backup(place: str, file: Path) -> None:
    """Copy the store at PLACE to FILE, while a broker may run on it.

    What the broker has confirmed is in the copy; it is looked at, and FILE is there once all of it
    is on the disk. A file that is there is not written over, and of what is damaged no copy is
    made.
    """
    _tell(back_up(place, file))


@store.command("restore")
@click.argument("file", type=_FILE)
@click.argument("place", callback=without_password)
def restore_(file: Path, place: str) -> None:
    """Make a store at PLACE of the copy FILE, where there is none.

    What came after the copy was made is lost; what was acknowledged since comes again. Positions
    that were given out since are given to nothing else: a reader that keeps them goes on with what
    is new. The broker of whose store FILE is a copy must not run again on the old one. See
    docs/operations.md.
    """
    if place == MEMORY:
        raise InputError("PLACE", "found 'memory:', expected where a store stays: a file, or a URL")
    _tell(restore(file, place))


@store.command()
@click.argument("place", callback=without_password)
def check(place: str) -> None:
    """Look at all that is in the store at PLACE, or in a copy.

    The status is 1 where something in it is damaged, and 2 where it cannot be read at all.
    """
    shown = look_at(place, deep=True)
    for where, why in shown.damaged.items():
        click.echo(f"damaged: {where}: {why}")
    if shown.damaged:
        raise click.exceptions.Exit(DAMAGED)
    _tell(shown)


@store.command()
@click.argument("place", callback=without_password)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(place: str, as_json: bool) -> None:
    """Show the logs in the store at PLACE, or in a copy: names, positions, sizes.

    `@spool` is what is certified and not taken by all servers that it is for; the others are
    durable subscriptions.
    """
    shown = look_at(place, deep=False)
    if as_json:
        click.echo(shown_as_json(shown))
        return
    table = Table(title=shown.place)
    for name in ("log", "first", "next", "records", "acknowledged", "bytes", "last"):
        table.add_column(name, justify="left" if name in ("log", "last") else "right")
    for of in shown.logs:
        last = datetime.fromtimestamp(of.time_us / 1e6, UTC).isoformat(" ", "seconds")
        numbers = of.first, of.next, of.records, of.acknowledged, of.held_bytes
        table.add_row(of.name, *map(str, numbers), last if of.time_us else "")
    output().print(table)
    for where, why in shown.damaged.items():
        click.echo(f"damaged: {where}: {why}")


def _tell(shown: StoreShown) -> None:
    records = sum(of.records for of in shown.logs)
    size = sum(of.held_bytes for of in shown.logs)
    click.echo(
        f"{shown.place}: {len(shown.logs)} logs, {records} records of {size} bytes, "
        f"{sum(shown.notes.values())} notes; whole"
    )
