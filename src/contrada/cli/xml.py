"""`contrada xml`: documents as notifications, sent and received, and the names they generate."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.table import Table

from contrada.cli.async_command import end_options, lost, run, seconds_option
from contrada.cli.broker_settings import MEMORY
from contrada.cli.database_argument import without_password
from contrada.cli.lazy_group import EXIT_BAD_INPUT
from contrada.cli.log_output import log
from contrada.cli.notification_output import json_line, parts_of
from contrada.cli.pub import ADDRESS_DEFAULT
from contrada.cli.read_flags import (
    check_named,
    constants,
    document_options,
    hint_for,
    naming_options,
    reading_of,
)
from contrada.cli.table_output import output
from contrada.cli.tls_options import approach_options
from contrada.connections import connect
from contrada.errors import InputError, ServiceClosedError
from contrada.integrations.documents import document_of
from contrada.integrations.documents.naming_table import NamingTable
from contrada.integrations.feeds.document_receiver import Receiver
from contrada.integrations.feeds.document_sender import Sender
from contrada.integrations.feeds.fetcher import Fetcher, is_address, shown_source
from contrada.integrations.feeds.name_client import NAMES_WAIT_S, Names
from contrada.integrations.feeds.naming_service import NamingService
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer, plain_time
from contrada.model import Filter, Notification
from contrada.net.wire.endpoint import ConnectOptions
from contrada.service import Service
from contrada.service.loop_guards import checked_timeout, first_of
from contrada.service.queued_subscription import UNSUBSCRIBED

REPEATED_SHOWN_MAX: Final = 50
"""Names of repeated elements that are told of. Beyond it: they are only counted."""

DOCUMENTS_BAD_SHOWN_MAX: Final = 20
"""Documents and entries that cannot be read and are told of one by one. Beyond it: they are only
counted."""


@click.group()
def xml() -> None:
    """Documents, XML or JSON: make notifications of them, send and receive these."""


def _reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of how documents become notifications."""
    for option in reversed(
        (
            click.option("--entries", metavar="NAME", help="A notification of each element NAME."),
            click.option(
                "--format",
                "format_name",
                type=click.Choice(["xml", "json"]),
                help="Told by the name otherwise; XML where that says nothing.",
            ),
            click.option("--absent", metavar="TEXT", multiple=True, help="A text for no value."),
            click.option("--add", metavar="NAME=VALUE", multiple=True, help="A constant."),
            click.option("--time", metavar="NAME", help="Whose time stamps the envelope."),
            document_options,
            naming_options,
        )
    ):
        command = option(command)
    return command


class _Rendering:
    """Renders documents one after another; tells what was bad, and what is repeated."""

    def __init__(self, reading: ReadOptions, format_name: str | None) -> None:
        self.reading, self._format_name = reading, format_name
        self._renderers: dict[str, Renderer] = {}
        self.read = self.bad = 0

    async def each(self, sources: tuple[str, ...]) -> AsyncIterator[Iterator[Record]]:
        """For each file, and what is at an address of HTTP, its records. Raises InputError."""
        async with Fetcher() as fetcher:
            for source in sources:
                what: Path | bytes = Path(source)
                if is_address(source):
                    what = (await fetcher.fetch(source)).data or b""
                yield self._records(source, what)

    def _records(self, source: str, what: Path | bytes) -> Iterator[Record]:
        for each in self._renderer(source).render(what, shown_source(source)):
            if isinstance(each, Record):
                self.read += 1
                yield each
            else:
                self._tell_bad(each)

    def end(self) -> None:
        """Reports bad documents, repeated elements, and lost parts."""
        if self.bad:
            click.echo(f"{self.bad} bad of {self.read + self.bad}", err=True)
        repeated = {
            name: most for each in self._renderers.values() for name, most in each.repeated.items()
        }
        for name, most in list(repeated.items())[:REPEATED_SHOWN_MAX]:
            click.echo(f"repeated: {name}, at most {most} in one place", err=True)
        if len(repeated) > REPEATED_SHOWN_MAX:
            click.echo(f"repeated: {len(repeated) - REPEATED_SHOWN_MAX} more names", err=True)
        for each in self._renderers.values():
            for name, count in each.lost.items():
                click.echo(f"lost: {count} values of {name}", err=True)

    def _renderer(self, source: str) -> Renderer:
        name = source.lower().removesuffix(".gz")
        told = "json" if name.endswith((".json", ".geojson")) else "xml"
        format_name = self._format_name or told
        if format_name not in self._renderers:
            self._renderers[format_name] = Renderer(self.reading, format_name)
        return self._renderers[format_name]

    def _tell_bad(self, bad: BadRecord) -> None:
        self.bad += 1
        if self.bad <= DOCUMENTS_BAD_SHOWN_MAX:
            click.echo(f"{bad.error()}{hint_for(bad)}", err=True)


def _rendering(
    sources: tuple[str, ...], format_name: str | None, add: tuple[str, ...], options: dict[str, Any]
) -> _Rendering:
    for source in sources:
        if not is_address(source) and not Path(source).is_file():
            raise click.UsageError(f"found {source!r}, which is no file and no http(s) address")
    return _Rendering(reading_of(add=constants(add), **options), format_name)


@xml.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@_reading_options
def render(
    sources: tuple[str, ...], format_name: str | None, add: tuple[str, ...], **options: Any
) -> None:
    """Print the notifications that documents become, one line of JSON each.

    Standard error says which elements are repeated, and how often at most in one place: whoever
    makes the documents may change them. The exit status is 2 where a document or an entry could
    not be read; the others are printed all the same.

    \b
    contrada xml render alerts.atom --entries entry
    contrada xml render slashdot.xml --strategy index
    contrada xml render slashdot.xml --strategy xslt --stylesheet stories.xsl
    """  # noqa: D301 - click reads the escape
    rendering = _rendering(sources, format_name, add, options)

    async def show() -> None:
        async for records in rendering.each(sources):
            sys.stdout.writelines(f"{json_line(each.notification)}\n" for each in records)

    try:
        run(show())
    finally:
        rendering.end()
    if rendering.bad:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


@xml.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@click.option("--to", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--publisher", metavar="NAME", help="Who publishes; a random name otherwise.")
@click.option("--names", is_flag=True, help="Tell naming services all names, for patterns.")
@_reading_options
@approach_options
def send(
    sources: tuple[str, ...],
    to: str,
    publisher: str | None,
    names: bool,
    format_name: str | None,
    add: tuple[str, ...],
    approach: ConnectOptions,
    **options: Any,
) -> None:
    """Publish the notifications that documents become.

    With --strategy daemon naming services are told what the generated names stand for, before what
    has them is published; with --names they are told all names, so that `contrada xml receive
    --patterns` knows them.

    \b
    contrada xml send alerts.atom --entries entry --to contrada://10.0.0.7:7655
    contrada xml send slashdot.xml --strategy daemon
    contrada xml send https://example.org/slashdot.xml --strategy index --names
    """  # noqa: D301 - click reads the escape
    rendering = _rendering(sources, format_name, add, options)
    check_named(rendering.reading, names)
    service = connect(
        to, publisher=publisher, reconnect=False, tls=approach.tls, token=approach.token
    )
    is_named = names or options["strategy"] == "daemon"

    async def publish() -> None:
        async with service:
            sender = Sender(service, Names(service) if is_named else None, all_names=names)
            try:
                async for records in rendering.each(sources):
                    await sender.send(records)
            finally:
                sent = sender.statistics()
                told = f", told {sent.told} names" if is_named else ""
                click.echo(f"published {sent.sent}{told}")

    try:
        run(publish())
    finally:
        rendering.end()
    if rendering.bad:
        raise click.exceptions.Exit(EXIT_BAD_INPUT)


@xml.command()
@click.argument("filter_text", metavar="FILTER")
@click.option("--at", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--names", is_flag=True, help="Show original names; ask naming services for them.")
@click.option(
    "--patterns", is_flag=True, help="Names in FILTER, in backticks, are patterns: `a.*.b`."
)
@click.option(
    "--known",
    multiple=True,
    metavar="NAME",
    help="A name that patterns stand for; may be repeated.",
)
@click.option("--document", is_flag=True, help="The document itself, as it was.")
@end_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object of attributes per line.")
@approach_options
def receive(
    filter_text: str,
    at: str,
    names: bool,
    patterns: bool,
    known: tuple[str, ...],
    document: bool,
    count: int | None,
    timeout: float | None,
    seconds: float | None,
    as_json: bool,
    approach: ConnectOptions,
) -> None:
    """Print the notifications of documents that match FILTER, one per line, as they come.

    With --patterns names in FILTER stand for those that naming services know, or for --known ones:
    `*` for a segment or a part of one, `<0-9>` for a number. What comes with a name of which nobody
    knew comes once it is known. With --document come the documents themselves, which the strategies
    index and daemon keep.

    \b
    contrada xml receive "backslash.story.title contains 'Game'" --names
    contrada xml receive "\\`backslash.story.*.title\\` contains 'Game'" --patterns --document
    """  # noqa: D301 - click reads the escape
    if document and (names or as_json):
        raise click.UsageError("--document shows no names: leave --names and --json out")
    if known and not patterns:
        raise click.UsageError("--known is for --patterns")
    service = connect(at, reconnect=False, tls=approach.tls, token=approach.token)
    asked = Names(service)
    receiver = Receiver(
        service,
        filter_text,
        names=asked if names else None,
        patterns=(known or asked) if patterns else None,
    )
    show = _document if document else (json_line if as_json else _line)

    timeout, seconds = checked_timeout(timeout), checked_timeout(seconds, "seconds")
    try:
        printing = partial(_print, show=show, left=count, timeout=timeout)
        run(_receive(service, receiver, printing, seconds))
    finally:  # Also by Ctrl-C.
        told = receiver.statistics()
        if told.untranslated:
            click.echo(f"{told.untranslated} with names that nobody knows", err=True)
        for reason, number in told.subscription.dropped.items():
            if reason != UNSUBSCRIBED:
                click.echo(f"{number} dropped: {reason}", err=True)


async def _receive(
    service: Service,
    receiver: Receiver,
    printing: Callable[[Receiver], Awaitable[None]],
    seconds: float | None,
) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), service, receiver:
            await printing(receiver)


async def _print(
    receiver: Receiver,
    show: Callable[[Notification], str],
    left: int | None,
    timeout: float | None,
) -> None:
    while left is None or left > 0:
        try:
            found = await receiver.next(timeout)
        except (TimeoutError, ServiceClosedError):
            return
        sys.stdout.write(f"{show(found)}\n")
        sys.stdout.flush()
        left = None if left is None else left - 1


def _line(found: Notification) -> str:
    return "  ".join((plain_time(found) or "", *parts_of(found)))


def _document(found: Notification) -> str:
    """The document that a notification was made of; what was made of none is told of."""
    try:
        return document_of(found).decode()
    except InputError as error:
        return f"<!-- {error} -->"


@xml.command()
@click.option("--at", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option(
    "--store",
    metavar="PLACE",
    callback=without_password,
    help="Where names survive: a file, or postgresql://user@host/name; memory: for nowhere.",
)
@click.option("--name", default="", help="What it is called; a random name otherwise.")
@seconds_option
@click.option("-v", "--verbose", count=True, help="Log more.")
@approach_options
def daemon(
    at: str,
    store: str | None,
    name: str,
    seconds: float | None,
    verbose: int,
    approach: ConnectOptions,
) -> None:
    """Keep generated names, and answer who asks for them, until Ctrl-C or SIGTERM.

    It prints what it is called once it is there. Each broker may have one; all in a network hear
    of the same names, and tell one another what they missed. Of two who say otherwise of one name
    the earlier is right, everywhere. It is connected again when it was lost.

    \b
    contrada xml daemon --store names.db
    contrada xml daemon --at contrada://10.0.0.7:7655 --name north
    """  # noqa: D301 - click reads the escape
    log(verbose, as_json=False)
    service = connect(at, tls=approach.tls, token=approach.token)
    kept = NamingService(service, None if store == MEMORY else store, name=name)

    async def work() -> None:
        async with service, kept:
            click.echo(kept.name)
            with suppress(TimeoutError):
                async with asyncio.timeout(checked_timeout(seconds, "seconds")):
                    await first_of(kept.ended(), lost(service))

    try:
        run(work(), is_endless=True)
    finally:  # Also by Ctrl-C.
        told = kept.statistics()
        click.echo(
            f"{told.records} names of {told.kinds} kinds, {told.heard} heard, "
            f"{told.conflicts} conflicts, {told.refused + told.invalid} refused, "
            f"asked {told.asked} times",
            err=True,
        )


@xml.command("names")
@click.option("--at", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--kind", metavar="KIND", help="Of this kind of document, as {urn:x}feed.")
@click.option("--original", metavar="NAME", help="Which names were generated for this one?")
@click.option("--generated", metavar="NAME", help="What does this name stand for?")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=NAMES_WAIT_S,
    show_default=True,
    metavar="S",
    help="Wait for naming services for S seconds at most.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@approach_options
def list_names(
    at: str,
    kind: str | None,
    original: str | None,
    generated: str | None,
    timeout: float,
    as_json: bool,
    approach: ConnectOptions,
) -> None:
    """List what naming services know of generated names.

    \b
    contrada xml names
    contrada xml names --original backslash.story.title
    contrada xml names --generated backslash.story.title~2 --json
    """  # noqa: D301 - click reads the escape
    asked = {"kind": kind, "original": original, "generated": generated}
    where = Filter({name: text for name, text in asked.items() if text is not None})
    service = connect(at, reconnect=False, tls=approach.tls, token=approach.token)

    async def ask() -> NamingTable:
        async with service:
            return await Names(service, wait_s=timeout).all(where)

    found = sorted(run(ask()), key=lambda each: (each.kind, each.original, each.rank))
    if as_json:
        for each in found:
            click.echo(msgspec.json.encode(each._asdict()))
        return
    table = Table("kind", "generated", "original", "position", "who", box=None, pad_edge=False)
    for each in found:  # Others have told these: nothing in them that a terminal obeys.
        table.add_row(*(text if text.isprintable() else repr(text) for text in each[:5]))
    output().print(table)
