"""`contrada xml`: documents as notifications, sent and received, and the names they generate."""

import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import click

from contrada.cli.lazy import EXIT_BAD_INPUT
from contrada.cli.pub import ADDRESS_DEFAULT
from contrada.cli.reading import (
    constants,
    document_options,
    hint_for,
    naming_options,
    reading_of,
)
from contrada.cli.running import run
from contrada.cli.showing import json_line
from contrada.cli.tls import tls_options
from contrada.feeds.fetching import Fetcher, is_address, shown_source
from contrada.feeds.names import Names
from contrada.feeds.sending import Sender
from contrada.net import connect
from contrada.records import BadRecord, Reading, Record, Renderer

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

    def __init__(self, reading: Reading, format_name: str | None) -> None:
        self._reading, self._format_name = reading, format_name
        self._renderers: dict[str, Renderer] = {}
        self.read = self.bad = 0

    async def records(self, sources: tuple[str, ...]) -> AsyncIterator[Record]:
        """The records of files and of what is at addresses of HTTP. Raises InputError."""
        async with Fetcher() as fetcher:
            for source in sources:
                what: Path | bytes = Path(source)
                if is_address(source):
                    what = (await fetcher.fetch(source)).data or b""
                for each in self._renderer(source).render(what, shown_source(source)):
                    if isinstance(each, Record):
                        self.read += 1
                        yield each
                    else:
                        self._tell_bad(each)

    def end(self) -> None:
        """Says what was bad, what is repeated, and what was lost."""
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
            self._renderers[format_name] = Renderer(self._reading, format_name)
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
        async for record in rendering.records(sources):
            sys.stdout.write(json_line(record.notification) + "\n")

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
@tls_options
def send(
    sources: tuple[str, ...],
    to: str,
    publisher: str | None,
    names: bool,
    format_name: str | None,
    add: tuple[str, ...],
    tls: ssl.SSLContext | None,
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
    service = connect(to, publisher=publisher, reconnect=False, tls=tls)
    is_named = names or options["strategy"] == "daemon"

    async def publish() -> None:
        async with service:
            sender = Sender(service, Names(service) if is_named else None, all_names=names)
            try:
                await sender.send(rendering.records(sources))
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
