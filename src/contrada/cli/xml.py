"""`contrada xml`: send and receive documents as notifications, and keep their names."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli import read_flags
from contrada.cli import shared_options as options
from contrada.cli.broker_settings import MEMORY
from contrada.cli.client_command import Approach, approach_options, connect, lost, run
from contrada.cli.lazy_group import EXIT_BAD_INPUT
from contrada.cli.log_output import escape_controls, log
from contrada.cli.notification_output import json_line
from contrada.cli.sub import as_plain_line, print_losses
from contrada.cli.table_output import print_records, table
from contrada.errors import InputError, ServiceClosedError
from contrada.integrations.documents import document_of
from contrada.integrations.documents.naming_table import NamingTable
from contrada.integrations.feeds.document_receiver import Receiver
from contrada.integrations.feeds.document_sender import Sender
from contrada.integrations.feeds.fetcher import Fetcher, is_address, shown_source
from contrada.integrations.feeds.name_client import NAMES_WAIT_S, Names
from contrada.integrations.feeds.naming_service import NamingService
from contrada.integrations.files import Record, Renderer
from contrada.integrations.files.lines import unpacked_name
from contrada.model import Filter, Notification
from contrada.service.loop_guards import checked_timeout, first_of

REPEATED_SHOWN_MAX: Final = 50
"""Names of repeated elements that are reported. Beyond it: they are only counted."""


@click.group()
def xml() -> None:
    """Convert documents, XML or JSON, to notifications; send and receive them."""


_reading_options: Final = options.joined(
    options.text("--entries", "NAME", "Make a notification of each element NAME."),
    options.typed(
        "--format format_name",
        click.Choice(["xml", "json"]),
        None,
        "Format; default: by the name, else XML.",
    ),
    read_flags.entry_options,
)


class _Rendering:
    """Renders documents one after another; reports bad ones and repeated elements."""

    def __init__(
        self, sources: tuple[str, ...], format_name: str | None, given: dict[str, Any]
    ) -> None:
        for source in sources:
            if not is_address(source) and not Path(source).is_file():
                reason = f"found {source!r}, which is no file and no http(s) address"
                raise click.UsageError(reason)
        self.reading = read_flags.reading_of(**given)
        self._sought = read_flags.SoughtNames(self.reading)
        self._sources, self._format_name = sources, format_name
        self._renderers: dict[str, Renderer] = {}
        self.read = self.bad = 0

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs the work on the records; reports, and exits with status 2 after bad documents."""
        try:
            run(work)
        finally:
            self._report()
        if self.bad:
            raise click.exceptions.Exit(EXIT_BAD_INPUT)

    async def each(self) -> AsyncIterator[Iterator[Record]]:
        """Yields the records of each file or HTTP address. Raises InputError."""
        async with Fetcher() as fetcher:
            for source in self._sources:
                content: Path | bytes = Path(source)
                if is_address(source):
                    content = (await fetcher.fetch(source)).data or b""
                yield self._records(source, content)

    def _records(self, source: str, content: Path | bytes) -> Iterator[Record]:
        records = self._renderer(source).render(content, shown_source(source))
        for each in map(self._sought.noted, records):
            if isinstance(each, Record):
                self.read += 1
                yield each
            else:
                self.bad += 1
                if self.bad <= read_flags.BAD_SHOWN_MAX:
                    click.echo(f"{each.error()}{read_flags.hint_for(each)}", err=True)

    def _report(self) -> None:
        """Reports bad documents, repeated elements, lost parts, and unknown names in options."""
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
        self._sought.report()

    def _renderer(self, source: str) -> Renderer:
        name = unpacked_name(source).lower()
        by_name = "json" if name.endswith((".json", ".geojson")) else "xml"
        format_name = self._format_name or by_name
        if format_name not in self._renderers:
            self._renderers[format_name] = Renderer(self.reading, format_name)
        return self._renderers[format_name]


@xml.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@_reading_options
def render(sources: tuple[str, ...], format_name: str | None, **given: Any) -> None:
    """Print the notifications of documents, one line of JSON each.

    Standard error lists the repeated elements of the notifications, with the largest number in one
    place; other documents may have more. The exit status is 2 if a document or an entry could not
    be read; the others are printed.

    \b
    contrada xml render alerts.atom --entries entry
    contrada xml render slashdot.xml --strategy index
    contrada xml render slashdot.xml --strategy xslt --stylesheet stories.xsl
    """  # noqa: D301 - click reads the escape
    rendering = _Rendering(sources, format_name, given)

    async def show() -> None:
        async for records in rendering.each():
            sys.stdout.writelines(f"{json_line(each.notification)}\n" for each in records)

    rendering.run(show())


@xml.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@options.broker_option
@options.text("--publisher", "NAME", "Name of the publisher; default: random.")
@options.flag("--names", "Send all names to naming services, for patterns.")
@_reading_options
@approach_options
def send(
    sources: tuple[str, ...],
    to: str,
    publisher: str | None,
    names: bool,
    format_name: str | None,
    approach: Approach,
    **given: Any,
) -> None:
    """Publish the notifications of documents.

    With --strategy daemon the generated names and their originals are sent to naming services
    before the notifications; with --names all names are sent, for `contrada xml receive
    --patterns`.

    \b
    contrada xml send alerts.atom --entries entry --to contrada://10.0.0.7:7655
    contrada xml send slashdot.xml --strategy daemon
    contrada xml send https://example.org/slashdot.xml --strategy index --names
    """  # noqa: D301 - click reads the escape
    rendering = _Rendering(sources, format_name, given)
    read_flags.check_named(rendering.reading, names)
    service = connect(to, approach, publisher=publisher, reconnect=False)
    is_named = names or given["strategy"] == "daemon"

    async def publish() -> None:
        async with service:
            sender = Sender(service, Names(service) if is_named else None, all_names=names)
            try:
                async for records in rendering.each():
                    await sender.send(records)
            finally:
                sent = sender.statistics()
                named = f", told {sent.told} names" if is_named else ""
                click.echo(f"published {sent.sent}{named}")

    rendering.run(publish())


@xml.command()
@click.argument("filter_text", metavar="FILTER")
@options.broker_option
@options.flag("--names", "Print original names, from naming services.")
@options.flag("--patterns", "Names in FILTER, in backticks, are patterns: `a.*.b`.")
@options.repeated("--known", "NAME", "Name that patterns can match. Repeatable.")
@options.flag("--document", "Print the original document.")
@options.end_options
@options.flag("--json as_json", "One JSON object of attributes per line.")
@approach_options
def receive(
    filter_text: str,
    to: str,
    names: bool,
    patterns: bool,
    known: tuple[str, ...],
    document: bool,
    count: int | None,
    timeout: float | None,
    seconds: float | None,
    as_json: bool,
    approach: Approach,
) -> None:
    """Print the notifications that match FILTER. They are of documents, one per line.

    With --patterns names in FILTER match the names of naming services, or those of --known: `*` for
    a segment or a part of one, `<0-9>` for a number. A notification with an unknown name is printed
    when the name is known. With --document the documents themselves are printed, which the
    strategies index and daemon preserve.

    \b
    contrada xml receive "backslash.story.title contains 'Game'" --names
    contrada xml receive "\\`backslash.story.*.title\\` contains 'Game'" --patterns --document
    """  # noqa: D301 - click reads the escape
    if document and (names or as_json):
        raise click.UsageError("--document shows no names: leave --names and --json out")
    if known and not patterns:
        raise click.UsageError("--known is for --patterns")
    service = connect(to, approach)
    asked = Names(service)
    receiver = Receiver(
        service,
        filter_text,
        names=asked if names else None,
        patterns=(known or asked) if patterns else None,
    )
    show = _document if document else (json_line if as_json else as_plain_line)
    timeout, seconds = checked_timeout(timeout), checked_timeout(seconds, "seconds")

    async def work() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), service, receiver:
                await _receive(receiver, show, count, timeout)

    try:
        run(work())
    finally:  # Also after Ctrl-C.
        counts = receiver.statistics()
        if counts.untranslated:
            click.echo(f"{counts.untranslated} with names that nobody knows", err=True)
        print_losses(counts.subscription.dropped)


async def _receive(
    receiver: Receiver, show: Callable[[Notification], str], left: int | None, timeout: float | None
) -> None:
    while left is None or left > 0:
        try:
            found = await receiver.next(timeout)
        except (TimeoutError, ServiceClosedError):
            return
        sys.stdout.write(f"{show(found)}\n")
        sys.stdout.flush()
        left = None if left is None else left - 1


def _document(found: Notification) -> str:
    """Returns the document of a notification, or an XML comment if there is none."""
    try:
        return document_of(found).decode()
    except InputError as error:
        return f"<!-- {error} -->"


@xml.command()
@options.broker_option
@click.option(
    "--store",
    metavar="PLACE",
    callback=options.without_password,
    help="Store of the names: a file, postgresql://user@host/name, or memory:.",
)
@options.text("--name", None, "Name of the service; default: random.", default="")
@options.seconds_option
@options.verbose("Log more.")
@approach_options
def daemon(
    to: str, store: str | None, name: str, seconds: float | None, verbose: int, approach: Approach
) -> None:
    """Run a naming service, until Ctrl-C or SIGTERM.

    It prints its name when it is ready. Each broker may have one; all in a network receive the same
    names, and exchange missed ones. Of two conflicting definitions the earlier one is valid
    everywhere. It reconnects after a lost connection.

    \b
    contrada xml daemon --store names.db
    contrada xml daemon --to contrada://10.0.0.7:7655 --name north
    """  # noqa: D301 - click reads the escape
    log(verbose, as_json=False)
    service = connect(to, approach)
    kept = NamingService(service, None if store == MEMORY else store, name=name)

    async def work() -> None:
        async with service, kept:
            click.echo(kept.name)
            with suppress(TimeoutError):
                async with asyncio.timeout(checked_timeout(seconds, "seconds")):
                    await first_of(kept.ended(), lost(service))

    try:
        run(work(), is_endless=True)
    finally:  # Also after Ctrl-C.
        counts = kept.statistics()
        click.echo(
            f"{counts.records} names of {counts.kinds} kinds, {counts.heard} heard, "
            f"{counts.conflicts} conflicts, {counts.refused + counts.invalid} refused, "
            f"asked {counts.asked} times",
            err=True,
        )


@xml.command("names")
@options.broker_option
@options.text("--kind", "KIND", "Kind of document, such as {urn:x}feed.")
@options.text("--original", "NAME", "List the names generated for this one.")
@options.text("--generated", "NAME", "List the original of this name.")
@options.typed(
    "--timeout", options.SECONDS, "S", "Wait at most S seconds for naming services.", NAMES_WAIT_S
)
@options.flag("--json as_json", "One JSON object per line.")
@approach_options
def list_names(
    to: str,
    kind: str | None,
    original: str | None,
    generated: str | None,
    timeout: float,
    as_json: bool,
    approach: Approach,
) -> None:
    """List the generated names that naming services know.

    \b
    contrada xml names
    contrada xml names --original backslash.story.title
    contrada xml names --generated backslash.story.title~2 --json
    """  # noqa: D301 - click reads the escape
    asked = {"kind": kind, "original": original, "generated": generated}
    where = Filter({name: text for name, text in asked.items() if text is not None})
    service = connect(to, approach, reconnect=False)

    async def ask() -> NamingTable:
        async with service:
            return await Names(service, wait_s=timeout).all(where)

    found = sorted(run(ask()), key=lambda each: (each.kind, each.original, each.rank))
    columns = ("kind", "generated", "original", "position", "who")
    made = table(*columns, box=None, pad_edge=False)
    for each in found:
        made.add_row(*map(escape_controls, each[:5]))  # Of one line each.
    print_records((each._asdict() for each in found), made, as_json=as_json)
