"""`contrada pub`: publish from the command line."""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from contrada.cli import read_flags
from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.publication_source import arriving, size_of_stream
from contrada.cli.table_output import progress_of_bytes
from contrada.delivery.delivery_class import delivery_class
from contrada.errors import ConnectionFailedError
from contrada.integrations.files import (
    BadRecord,
    ReadOptions,
    Record,
    notification_of_object,
    notification_of_shown,
)
from contrada.integrations.files.csv_rows import RowJoiner, joined_rows
from contrada.integrations.files.event_logs import EVTX, read_event_log
from contrada.integrations.files.json_objects import read_objects
from contrada.integrations.files.lines import PACKED, Block, open_blocks
from contrada.integrations.files.log_lines import LOG_FORMATS, log_reader
from contrada.integrations.files.read_options import plain_format
from contrada.integrations.files.record import Make
from contrada.integrations.files.subscription_files import STANDARD_INPUT
from contrada.model import Notification
from contrada.service import Service, ServiceStatistics, with_delivery, with_transmission
from contrada.service.requests import PRIORITY_MAX, TTL_S_MAX
from contrada.service.security.signatures import Signer

Timed: TypeAlias = Callable[[Notification], Notification] | None
"""Sets time to live, priority and delivery of a notification, where the options have them."""

_ReadBlocks: TypeAlias = Callable[[list[Block | None]], Iterable[Record | BadRecord]]

EVENTS_AT_ONCE: Final = 256
"""Events of an event log that are published together. Beyond it: the next follow."""


@click.command()
@click.argument("attributes", nargs=-1, metavar="[NAME=VALUE]...")
@options.broker_option
@options.text("--json objects", "FILE", "Publish a file of JSON lines.")
@options.text("--csv rows", "FILE", "Publish the rows of a CSV file with a header.")
@options.typed(
    "--log",
    (click.Choice([*LOG_FORMATS, EVTX]), str),
    "FORMAT FILE",
    "Publish a log: access, syslog, journald, evtx, or lines with --pattern.",
)
@options.text("--pattern", "REGEX", "--log lines: its named groups are attributes.")
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
@options.text(
    "--delivery",
    "CLASS",
    "Delivery guarantee, such as `certified` or `reliable fifo`; default: best-effort.",
)
@read_flags.cell_options
@read_flags.naming_options
@approach_options
def pub(
    attributes: tuple[str, ...],
    to: str,
    objects: str | None,
    rows: str | None,
    log: tuple[str, str] | None,
    publisher: str | None,
    sign: str | None,
    keep: bool,
    ttl: float | None,
    priority: int | None,
    delivery: str | None,
    approach: Approach,
    **given: Any,
) -> None:
    """Publish one notification, or one for each JSON line, CSV row or entry of a log.

    A VALUE is parsed as in a filter if possible (12.5, true, null, "12", @2026-11-20T09:30:00Z) and
    is text otherwise; a repeated NAME has several values. In a file (`-` is standard input) nested
    objects become dotted names, and arrays become several values, each once and in the order of
    values. --keep keeps the original order in the body; a line with objects in arrays is always
    kept there. Output of `sub --json` is published unchanged. Lines of a pipe or terminal are
    published one by one, and a lost connection is made again; lines whose fate is unknown then are
    counted on standard error. A bad line ends the command after the lines before it were published.
    Names in options that no record has are reported at the end.
    Files that end in .gz, .bz2, .xz or .zst are unpacked. A terminal shows the progress.

    \b
    contrada pub symbol=DIS price=61.5 tag=media tag=parks
    contrada pub zip='"00123"' at=@2026-11-20T09:30:00Z
    contrada pub --to contrada://10.0.0.7:7655 --json quotes.jsonl
    contrada pub --csv flights.csv --types tailnum=text,time_hour=time --absent NA
    contrada pub --to contradas://desk.example --tls-authority ours.pem symbol=DIS
    contrada pub alarm=fire --ttl 30 --priority 9
    contrada pub order=DIS amount=100 --delivery certified
    contrada pub --publisher desk --sign desk.pem symbol=DIS price=61.5
    tail -f beats.ndjson | contrada pub --json - --rename @timestamp=at --types at=time
    tail -f /var/log/nginx/access.log | contrada pub --log access -
    """  # noqa: D301 - click reads the escape
    format_name, in_log = log or ("", None)
    sources = [each for each in (objects, rows, in_log) if each is not None]
    if bool(attributes) + len(sources) != 1:
        raise click.UsageError("give NAME=VALUE, --json, --csv or --log, one of them")
    if keep and objects is None:
        raise click.UsageError("--keep is for --json FILE")
    reading = read_flags.reading_of(**given)
    if not sources and reading != ReadOptions():
        raise click.UsageError("options of reading are for files")
    timed = _envelope_maker(ttl, priority, delivery)
    is_live = sources == [STANDARD_INPUT] and size_of_stream(sys.stdin.buffer) is None
    service = connect(to, approach, publisher=_identity(publisher, sign), reconnect=is_live)
    if not sources:
        one = Notification(read_flags.attributes_of(attributes))
        counts = run(_publish_one(service, timed(one) if timed else one))
    else:
        form = "csv" if rows is not None else format_name or "json"
        publishing = _publish_file(service, sources[0], form, reading, timed, keep=keep)
        counts = run(publishing, is_endless=is_live)
    for reason, lost in counts.dropped.items():
        click.echo(f"{lost} dropped: {reason}", err=True)


def _envelope_maker(ttl: float | None, priority: int | None, delivery: str | None) -> Timed:
    if delivery is None:
        if ttl is None and priority is None:
            return None
        return partial(with_transmission, ttl_s=ttl, priority=priority)
    delivery_class(delivery)  # A wrong one is refused before anything is read.
    return lambda it: with_delivery(with_transmission(it, ttl, priority), delivery)


def _identity(publisher: str | None, sign: str | None) -> str | Signer | None:
    if sign is None:
        return publisher
    if publisher is None:
        raise click.UsageError("--sign signs for a name: give it with --publisher NAME")
    return Signer.of_file(publisher, sign)


def _publish_file(
    service: Service, source: str, form: str, reading: ReadOptions, timed: Timed, *, keep: bool
) -> Coroutine[Any, Any, ServiceStatistics]:
    named = "standard input" if source == STANDARD_INPUT else source
    if form == EVTX:
        plain_format(EVTX, reading)
        path = Path("/dev/stdin" if source == STANDARD_INPUT else source)
        return _publish_events(service, read_event_log(path, named, reading), reading, timed)
    if form == "csv":
        read: _ReadBlocks = partial(joined_rows, RowJoiner(reading), source=named, options=reading)
    else:
        make = _maker(reading, form, keep=keep)
        read = partial(read_objects, source=named, options=reading, read=make)
    return _publish_records(service, source, read, reading, timed)


def _maker(reading: ReadOptions, format_name: str, *, keep: bool) -> Make:
    """Converts a line of a log, or of JSON: with options of another program, else perhaps of `sub
    --json`. Raises InputError for a pattern without the format `lines`, or the reverse.
    """
    plain_format(format_name, reading)
    if format_name in LOG_FORMATS:
        return log_reader(format_name, reading)
    if reading == ReadOptions():
        return partial(notification_of_shown, keep=keep)
    return partial(notification_of_object, options=reading, keep=keep)


async def _publish_one(service: Service, notification: Notification) -> ServiceStatistics:
    async with service:
        await service.publish(notification)
        return service.statistics()


async def _publish_records(
    service: Service, source: str, read: _ReadBlocks, reading: ReadOptions, timed: Timed
) -> ServiceStatistics:
    (size, blocks), sought = _opened(source), read_flags.SoughtNames(reading)
    is_live = source == STANDARD_INPUT and size is None
    publish = partial(_publish_some, service, timed=timed, is_live=is_live)
    async with service:
        try:
            with progress_of_bytes(size, "published") as show:
                size_read = 0
                async for block in blocks:
                    await publish(map(sought.noted, read([block])))
                    size_read += len(block.data)
                    show(size_read, service.statistics().published)
                await publish(map(sought.noted, read([None])))
        finally:
            click.echo(f"published {service.statistics().published}")
            sought.report()
        return service.statistics()


def _opened(source: str) -> tuple[int | None, AsyncIterator[Block]]:
    """Returns the number of bytes to read, where that is known, and their lines."""
    if source == STANDARD_INPUT:
        return size_of_stream(sys.stdin.buffer), arriving(sys.stdin.buffer)
    path = Path(source)

    async def blocks() -> AsyncIterator[Block]:
        for block in open_blocks(path):
            yield block

    is_known = path.is_file() and path.suffix not in PACKED
    return path.stat().st_size if is_known else None, blocks()


async def _publish_events(
    service: Service, events: Iterable[Record | BadRecord], reading: ReadOptions, timed: Timed
) -> ServiceStatistics:
    sought = read_flags.SoughtNames(reading)
    each = map(sought.noted, events)
    async with service:
        try:
            while some := list(islice(each, EVENTS_AT_ONCE)):
                await _publish_some(service, some, timed=timed)
        finally:
            click.echo(f"published {service.statistics().published}")
            sought.report()
        return service.statistics()


async def _publish_batch(service: Service, left: list[Notification], *, is_live: bool) -> None:
    """Publishes notifications; of a live input also those that a lost connection left unsent."""
    while True:
        before = service.statistics().published
        try:
            await service.publish_batch(left)
            return
        except ConnectionFailedError as error:
            if not is_live:
                raise
            left = left[service.statistics().published - before :]
            if error.may_be_published:  # Once more might be twice.
                click.echo(f"up to {len(left)} may be lost with the connection", err=True)
                return


async def _publish_some(
    service: Service, records: Iterable[Record | BadRecord], timed: Timed, *, is_live: bool = False
) -> None:
    """Publishes some records. Raises InputError for the first bad one, after those before it."""
    found: list[Notification] = []
    bad: BadRecord | None = None
    for record in records:
        if isinstance(record, BadRecord):
            bad = record
            break
        found.append(timed(record.notification) if timed else record.notification)
    await _publish_batch(service, found, is_live=is_live)
    if bad is not None:
        is_array = "JSON" in bad.reason and bad.text.lstrip().startswith("[")
        hint = "; a file has one object per line" if is_array else read_flags.hint_for(bad)
        raise replace(bad, reason=f"{bad.reason}{hint}").error()
