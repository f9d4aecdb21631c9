"""`contrada offer`: offer a table or files from the command line, to be asked."""

import asyncio
import sys
from contextlib import closing, suppress
from typing import Any, Final, get_args

import click
import msgspec

from contrada.cli.adv import show
from contrada.cli.async_command import lost, run, seconds_option
from contrada.cli.database_argument import without_password
from contrada.cli.extension_option import extension_option
from contrada.cli.pub import ADDRESS_DEFAULT
from contrada.cli.tls_options import approach_options
from contrada.connections import connect
from contrada.integrations.sources.file_source import FileFormat, FileSource
from contrada.integrations.sources.table_source import TableSource
from contrada.net.wire.endpoint import ConnectOptions
from contrada.routing.router_messages import Offer
from contrada.service import Service, SourceOffer
from contrada.service.loop_guards import checked_timeout, first_of
from contrada.service.query.source import DataSource
from contrada.service.query.source_description import FRESH_S
from contrada.service.query.source_query import SourceQuery

SHOWN_EVERY_S: Final = 0.25
"""Seconds from one look at what it is described by to the next."""

_EVERYTHING: Final = SourceQuery("everything")


@click.command()
@click.option("--at", default=ADDRESS_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option(
    "--table",
    nargs=2,
    metavar="DATABASE TABLE",
    callback=without_password,
    help="Each row of a table of SQLite (a file) or PostgreSQL (postgresql://…).",
)
@click.option(
    "--files",
    multiple=True,
    metavar="GLOB",
    help="Each row, or object, of files; a folder or a pattern, in quotes. May be repeated.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(get_args(FileFormat)),
    help="Of the files; told by the first name otherwise.",
)
@click.option(
    "--describe",
    "described",
    multiple=True,
    metavar="FILTER",
    help="What it has, also in future; each of several is enough. Worked out of it otherwise.",
)
@click.option(
    "--fresh",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help=f"Work that out again each S seconds; {FRESH_S:g} if nothing is said.",
)
@click.option("--name", default="", help="What it is called; a random name otherwise.")
@seconds_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@approach_options
@extension_option
def offer(
    at: str,
    table: tuple[str, str] | None,
    files: tuple[str, ...],
    file_format: FileFormat | None,
    described: tuple[str, ...],
    fresh: float | None,
    name: str,
    seconds: float | None,
    as_json: bool,
    approach: ConnectOptions,
) -> None:
    """Offer a table or files, to be asked by `contrada ask`, until Ctrl-C.

    What it is described by is a line that begins with `+`, and with `-` when it is not any longer;
    each question that it is asked is one that begins with `?`. How many there were is told on
    standard error at the end. Only questions that meet the description come. Of a description that
    is worked out, from the ranges and values of each column, what comes in between and lies
    outside is not found until --fresh seconds have passed.

    A database is only read, and no value of a question is ever part of a statement. A TABLE may be
    SCHEMA.TABLE.

    \b
    contrada offer --table books.db books --name library
    contrada offer --table postgresql://desk@db.example/quotes quotes --describe "symbol any"
    contrada offer --files "flights/*.parquet"
    contrada offer --files log --format json --fresh 5 --seconds 600
    """  # noqa: D301 - click reads the escape
    if (table is None) == (not files):
        raise click.UsageError("give --table DATABASE TABLE or --files GLOB, one of them")
    if file_format is not None and not files:
        raise click.UsageError("--format is for --files")
    if fresh is not None and described:
        raise click.UsageError("--fresh is for what is worked out: leave --describe out")
    source: DataSource
    if table is not None:
        source = TableSource(table[0], table[1].split(".", 1), fresh_s=0)
    else:
        source = FileSource(files, file_format, fresh_s=0)
    service = connect(at, reconnect=False, tls=approach.tls, token=approach.token)
    told = _TellingSource(source, checked_timeout(fresh, "fresh") or FRESH_S)
    offered = service.offer(list(described) or None, told, name=name)
    _check(source)
    run(_offer(service, offered, told, checked_timeout(seconds, "seconds"), as_json))


def _check(source: Any) -> None:
    """Raises what the first row raises: a wrong name is found out before it is offered."""
    with closing(source.answer(_EVERYTHING)) as rows:
        next(rows, None)


class _TellingSource:
    """A source that reports each question before it answers it."""

    def __init__(self, source: DataSource, fresh_s: float) -> None:
        self.describe = source.describe
        self.fresh_s = fresh_s
        self.count = 0
        self._source = source
        self._told: asyncio.Queue[SourceQuery] = asyncio.Queue(1)

    async def answer(self, question: SourceQuery) -> Any:
        """See `DataSource`."""
        self.count += 1
        await self._told.put(question)
        return self._source.answer(question)

    async def next(self) -> SourceQuery:
        """The next question."""
        return await self._told.get()


async def _offer(
    service: Service,
    offered: SourceOffer,
    told: _TellingSource,
    seconds: float | None,
    as_json: bool,
) -> None:
    try:
        async with service, offered:
            works = [_print(told, as_json), lost(service), _show(offered, as_json)]
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await first_of(*works)
    finally:  # Also by Ctrl-C.
        click.echo(f"asked {told.count} times", err=True)


async def _print(told: _TellingSource, as_json: bool) -> None:
    while True:
        text = str(await told.next())
        line = msgspec.json.encode({"question": text}).decode() if as_json else f"? {text}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


async def _show(offered: SourceOffer, as_json: bool) -> None:
    """Shows the description of a source, and each change: the service renews it by itself."""
    shown: tuple[Offer, ...] = ()
    while True:
        before, shown = shown, offered.described
        for each in before:
            if each not in shown:
                show(each, False, as_json=as_json)
        for each in shown:
            if each not in before:
                show(each, True, as_json=as_json)
        await asyncio.sleep(SHOWN_EVERY_S)
