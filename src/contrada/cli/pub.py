"""`contrada pub`: publish from the command line."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeAlias

import click

from contrada.cli.literals import attributes_of
from contrada.cli.reading import hint_for, naming_options, reading_of
from contrada.cli.rule_files import STANDARD_INPUT
from contrada.cli.running import run
from contrada.cli.tls import tls_options
from contrada.model import Notification
from contrada.net import PORT_DEFAULT, connect
from contrada.records import (
    BadRecord,
    Reading,
    notification_of_object,
    notification_of_shown,
)
from contrada.records.lines import BLOCK_BYTES, Block, LineCutter, open_blocks, readable
from contrada.records.record import record_of
from contrada.records.rows import is_blank
from contrada.service import Service, ServiceStatistics, transmitted
from contrada.service.requests import PRIORITY_MAX, TTL_S_MAX

ADDRESS_DEFAULT: Final = f"contrada://127.0.0.1:{PORT_DEFAULT}"

Make: TypeAlias = Callable[[str], Notification]
"""What makes the notification of a line."""


@click.command()
@click.argument("attributes", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--to", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--json", "source", metavar="FILE", help="Publish the JSON objects of its lines.")
@click.option("--publisher", metavar="NAME", help="Who publishes; a random name otherwise.")
@click.option("--keep", is_flag=True, help="Keep each line of FILE as the body too.")
@click.option(
    "--ttl",
    metavar="SECONDS",
    type=click.FloatRange(0, TTL_S_MAX, min_open=True),
    help="Nobody reads it after so long.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    help="What leaves first where several wait for a reader.",
)
@naming_options
@tls_options
def pub(
    attributes: tuple[str, ...],
    to: str,
    source: str | None,
    publisher: str | None,
    keep: bool,
    ttl: float | None,
    priority: int | None,
    tls: ssl.SSLContext | None,
    **options: str | None,
) -> None:
    """Publish one notification, or one for each line of a file of JSON objects.

    A VALUE is read as in a filter where it can be (12.5, true, null, "12", @2026-11-20T09:30:00Z)
    and is text otherwise; a NAME given several times has several values. In a file (`-` is
    standard input) nested objects become names joined by dots, arrays several values, each once
    and in the order of values; --keep has their own order in the body, where a line with objects in
    arrays always is. What `sub --json` prints is published as it was. What comes by a pipe or
    terminal is published line by line, as it comes. A bad line ends it; those before it are
    published.

    \b
    contrada pub symbol=DIS price=61.5 tag=media tag=parks
    contrada pub zip='"00123"' at=@2026-11-20T09:30:00Z
    contrada pub --to contrada://10.0.0.7:7655 --json quotes.jsonl
    contrada pub --to contradas://desk.example --tls-authority ours.pem symbol=DIS
    contrada pub alarm=fire --ttl 30 --priority 9
    tail -f beats.ndjson | contrada pub --json - --rename @timestamp=at --types at=time
    """  # noqa: D301 - click reads the escape
    if (source is None) != bool(attributes) or (keep and source is None):
        raise click.UsageError("give NAME=VALUE arguments or --json FILE, one of the two")
    reading = reading_of(**options)
    if source is None and reading != Reading():
        raise click.UsageError("--types, --rename, --drop and --zone are for --json FILE")
    # With options, lines are records of somebody else; without, maybe what `sub --json` printed.
    make = (
        partial(notification_of_shown, keep=keep)
        if reading == Reading()
        else partial(notification_of_object, reading=reading, keep=keep)
    )
    service = connect(to, publisher=publisher, reconnect=False, tls=tls)
    if source is None:
        one = transmitted(Notification(attributes_of(attributes)), ttl, priority)
        counts = run(_publish_one(service, one))
    else:

        def make_timed(line: str) -> Notification:
            return transmitted(make(line), ttl, priority)

        is_timed = ttl is not None or priority is not None
        counts = run(_publish_lines(service, source, make_timed if is_timed else make))
    for reason, lost in counts.dropped.items():
        click.echo(f"{lost} dropped: {reason}", err=True)


async def _publish_one(service: Service, notification: Notification) -> ServiceStatistics:
    async with service:
        await service.publish(notification)
        return service.statistics()


async def _publish_lines(service: Service, source: str, make: Make) -> ServiceStatistics:
    async with service:
        try:
            if source == STANDARD_INPUT:
                async for block in _arriving(sys.stdin.buffer):
                    await _publish_block(service, block, "standard input", make)
            else:
                for block in open_blocks(Path(source)):
                    await _publish_block(service, block, source, make)
        finally:
            click.echo(f"published {service.statistics().published}")
        return service.statistics()


async def _publish_block(service: Service, block: Block, source: str, make: Make) -> None:
    """Publish the objects of some lines. Raises InputError for the first bad one, after those."""
    found: list[Notification] = []
    bad: BadRecord | None = None
    for position in range(len(block)):
        line = block.line(position)
        if is_blank(line):
            continue
        record = record_of(make, source, block.first + position, line)
        if isinstance(record, BadRecord):
            bad = record
            break
        found.append(record.notification)
    await service.publish_batch(found)
    if bad is not None:
        is_array = bad.text.lstrip().startswith("[")
        hint = "; a file has one object per line" if is_array else hint_for(bad)
        raise replace(bad, reason=f"{bad.reason}{hint}").error()


async def _arriving(stream: IO[bytes]) -> AsyncIterator[Block]:
    """The lines of a pipe, terminal or file, as they come."""
    cutter = LineCutter()
    number = 1
    piece = b"?"
    while piece:
        await _until_readable(stream)
        with readable(Path("standard input")):
            piece = os.read(stream.fileno(), BLOCK_BYTES)
        block = Block.of(number, cutter.cut(piece))
        number += len(block)
        yield block


async def _until_readable(stream: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        loop.remove_reader(stream.fileno())
        ready.set_result(None)

    try:
        loop.add_reader(stream.fileno(), tell)
    except PermissionError:
        return  # A file is readable always.
    try:
        await ready
    finally:
        loop.remove_reader(stream.fileno())
