"""`contrada pub`: publish from the command line."""

import asyncio
import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from contrada.cli.literals import attributes_of
from contrada.model import Notification
from contrada.net import PORT_DEFAULT, connect
from contrada.records import BadRecord, notification_of_shown, open_lines, records_of_lines
from contrada.service import ServiceStatistics

ADDRESS_DEFAULT: Final = f"contrada://127.0.0.1:{PORT_DEFAULT}"


@click.command()
@click.argument("attributes", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--to", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--json", "source", metavar="FILE", help="Publish the JSON objects of its lines.")
@click.option("--publisher", metavar="NAME", help="Who publishes; a random name otherwise.")
@click.option("--keep", is_flag=True, help="Keep each line of FILE as the body too.")
def pub(
    attributes: tuple[str, ...], to: str, source: str | None, publisher: str | None, keep: bool
) -> None:
    """Publish one notification, or one for each line of a file of JSON objects.

    A VALUE is read as in a filter where it can be (12.5, true, null, "12", @2026-11-20T09:30:00Z)
    and is text otherwise; a NAME given several times has several values. In a file (`-` is
    standard input) nested objects become names joined by dots, arrays several values, each once
    and in the order of values; --keep has their own order in the body, where a line with objects in
    arrays always is. What `sub --json` prints is published as it was. A bad line ends it; those
    before it are published.

    \b
    contrada pub symbol=DIS price=61.5 tag=media tag=parks
    contrada pub zip='"00123"' at=@2026-11-20T09:30:00Z
    contrada pub --to contrada://10.0.0.7:7655 --json quotes.jsonl
    """  # noqa: D301 - click reads the escape
    if (source is None) != bool(attributes) or (keep and source is None):
        raise click.UsageError("give NAME=VALUE arguments or --json FILE, one of the two")
    items = (
        iter([Notification(attributes_of(attributes))])
        if source is None
        else _objects(source, keep)
    )
    counts = asyncio.run(_publish(to, publisher, items))
    if source is not None:
        click.echo(f"published {counts.published}")
    for reason, lost in counts.dropped.items():
        click.echo(f"{lost} dropped: {reason}", err=True)


async def _publish(
    to: str, publisher: str | None, items: Iterator[Notification]
) -> ServiceStatistics:
    async with connect(to, publisher=publisher) as service:
        await service.publish_batch(items)
        return service.statistics()


def _objects(source: str, keep: bool) -> Iterator[Notification]:
    lines = _standard_input() if source == "-" else open_lines(Path(source))
    name = "standard input" if source == "-" else source
    for record in records_of_lines(lines, name, partial(notification_of_shown, keep=keep)):
        if isinstance(record, BadRecord):
            raise record.error()
        yield record.notification


def _standard_input() -> Iterator[str]:
    stream = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="surrogateescape")
    for line in stream:
        yield line.rstrip("\n")
