"""`contrada pub`: publish from the command line."""

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.publication_source import (
    LineRecords,
    Make,
    RecordingSource,
    RowRecords,
    arriving,
    size_of_stream,
)
from contrada.cli.read_flags import (
    attributes_of,
    cell_options,
    hint_for,
    naming_options,
    reading_of,
)
from contrada.cli.table_output import progress_of_bytes
from contrada.integrations.files import (
    BadRecord,
    ReadOptions,
    notification_of_object,
    notification_of_shown,
)
from contrada.integrations.files.lines import Block, open_blocks
from contrada.integrations.files.subscription_files import STANDARD_INPUT
from contrada.model import Notification
from contrada.service import Service, ServiceStatistics, with_transmission
from contrada.service.requests import PRIORITY_MAX, TTL_S_MAX
from contrada.service.security.signatures import Signer


@click.command()
@click.argument("attributes", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--to", default=options.ADDRESS_DEFAULT, metavar="ADDRESS")
@options.text("--json objects", "FILE", "Publish a file of JSON lines.")
@options.text("--csv rows", "FILE", "Publish the rows of a CSV file with a header.")
@options.text("--publisher", "NAME", "Name of the publisher; default: random.")
@options.file(
    "--sign",
    "KEYFILE",
    "Sign with this key under the name of --publisher; see `contrada key make`.",
)
@options.flag("--keep", "Keep each JSON line as the body too.")
@options.typed("--ttl", click.FloatRange(0, TTL_S_MAX, min_open=True), "SECONDS", "Time to live.")
@options.typed(
    "--priority", click.IntRange(0, PRIORITY_MAX), None, "Priority in queues; higher first."
)
@cell_options
@naming_options
@approach_options
def pub(
    attributes: tuple[str, ...],
    to: str,
    objects: str | None,
    rows: str | None,
    publisher: str | None,
    sign: str | None,
    keep: bool,
    ttl: float | None,
    priority: int | None,
    approach: Approach,
    **given: Any,
) -> None:
    """Publish one notification, or one for each JSON line or CSV row of a file.

    A VALUE is parsed as in a filter if possible (12.5, true, null, "12", @2026-11-20T09:30:00Z) and
    is text otherwise; a repeated NAME has several values. In a file (`-` is standard input) nested
    objects become dotted names, and arrays become several values, each once and in the order of
    values. --keep keeps the original order in the body; a line with objects in arrays is always
    kept there. Output of `sub --json` is published unchanged. Lines of a pipe or terminal are
    published one by one. A bad line ends the command after the lines before it were published. A
    suffix .gz is unpacked. On a terminal a progress bar is shown on standard error.

    \b
    contrada pub symbol=DIS price=61.5 tag=media tag=parks
    contrada pub zip='"00123"' at=@2026-11-20T09:30:00Z
    contrada pub --to contrada://10.0.0.7:7655 --json quotes.jsonl
    contrada pub --csv flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada pub --to contradas://desk.example --tls-authority ours.pem symbol=DIS
    contrada pub alarm=fire --ttl 30 --priority 9
    contrada pub --publisher desk --sign desk.pem symbol=DIS price=61.5
    tail -f beats.ndjson | contrada pub --json - --rename @timestamp=at --types at=time
    """  # noqa: D301 - click reads the escape
    source = rows if objects is None else objects
    if bool(attributes) + (objects is not None) + (rows is not None) != 1:
        raise click.UsageError("give NAME=VALUE arguments, --json FILE or --csv FILE, one of them")
    if keep and objects is None:
        raise click.UsageError("--keep is for --json FILE")
    reading = reading_of(**given)
    if source is None and reading != ReadOptions():
        raise click.UsageError("options of reading are for --json FILE and --csv FILE")
    is_timed = ttl is not None or priority is not None
    timed = partial(with_transmission, ttl_s=ttl, priority=priority) if is_timed else None
    identity: str | Signer | None = publisher
    if sign is not None:
        if publisher is None:
            raise click.UsageError("--sign signs for a name: give it with --publisher NAME")
        identity = Signer.of_file(publisher, sign)
    service = connect(to, approach, publisher=identity, reconnect=False)
    if source is None:
        one = Notification(attributes_of(attributes))
        counts = run(_publish_one(service, timed(one) if timed else one))
    else:
        named = "standard input" if source == STANDARD_INPUT else source
        recording: RecordingSource = LineRecords(named, _maker(reading, keep=keep), timed)
        if rows is not None:
            recording = RowRecords(named, reading, timed)
        counts = run(_publish_records(service, source, recording))
    for reason, lost in counts.dropped.items():
        click.echo(f"{lost} dropped: {reason}", err=True)


def _maker(reading: ReadOptions, *, keep: bool) -> Make:
    """Converts a line of JSON: with options of another program, else perhaps of `sub --json`."""
    if reading == ReadOptions():
        return partial(notification_of_shown, keep=keep)
    return partial(notification_of_object, options=reading, keep=keep)


async def _publish_one(service: Service, notification: Notification) -> ServiceStatistics:
    async with service:
        await service.publish(notification)
        return service.statistics()


async def _publish_records(
    service: Service, source: str, recording: RecordingSource
) -> ServiceStatistics:
    size, blocks = _opened(source)
    async with service:
        try:
            with progress_of_bytes(size, "published") as show:
                read = 0
                async for block in blocks:
                    await _publish_some(service, recording, block)
                    read += len(block.data)
                    show(read, service.statistics().published)
                await _publish_some(service, recording, None)
        finally:
            click.echo(f"published {service.statistics().published}")
        return service.statistics()


def _opened(source: str) -> tuple[int | None, AsyncIterator[Block]]:
    """Returns the number of bytes to read, where that is known, and their lines."""
    if source == STANDARD_INPUT:
        return size_of_stream(sys.stdin.buffer), arriving(sys.stdin.buffer)
    path = Path(source)

    async def blocks() -> AsyncIterator[Block]:
        for block in open_blocks(path):
            yield block

    is_known = path.is_file() and path.suffix != ".gz"
    return path.stat().st_size if is_known else None, blocks()


async def _publish_some(service: Service, recording: RecordingSource, block: Block | None) -> None:
    """Publishes some records. Raises InputError for the first bad one, after those before it."""
    found: list[Notification] = []
    bad: BadRecord | None = None
    for record in recording.records(block):
        if isinstance(record, BadRecord):
            bad = record
            break
        found.append(record.notification)
    await service.publish_batch(found)
    if bad is not None:
        is_array = isinstance(recording, LineRecords) and bad.text.lstrip().startswith("[")
        hint = "; a file has one object per line" if is_array else hint_for(bad)
        raise replace(bad, reason=f"{bad.reason}{hint}").error()
