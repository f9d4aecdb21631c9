"""`contrada offer`: offer a table or files to queries."""

import asyncio
import sys
from contextlib import closing, suppress
from typing import Any, Final, get_args

import click
import msgspec

from contrada.cli import shared_options as options
from contrada.cli.adv import show
from contrada.cli.client_command import Approach, approach_options, connect, lost, run
from contrada.integrations.sources.file_source import FileFormat, FileSource
from contrada.integrations.sources.table_source import TableSource
from contrada.routing.router_messages import Offer
from contrada.service import SourceOffer
from contrada.service.loop_guards import checked_timeout, first_of
from contrada.service.query.source import FRESH_S, DataSource
from contrada.service.query.source_query import SourceQuery

SHOWN_EVERY_S: Final = 0.25  # Seconds between two checks of the description

_EVERYTHING: Final = SourceQuery("everything")


@click.command()
@options.broker_option
@click.option(
    "--table",
    nargs=2,
    metavar="DATABASE TABLE",
    callback=options.without_password,
    help="Rows of a table of SQLite (a file) or PostgreSQL (postgresql://…).",
)
@options.repeated(
    "--files", "GLOB", "Rows or objects of files; a folder or a quoted pattern. Repeatable."
)
@options.typed(
    "--format file_format",
    click.Choice(get_args(FileFormat)),
    None,
    "Format of the files; default: by the first name.",
)
@options.repeated(
    "--describe described",
    "FILTER",
    "Description of present and future data; several are alternatives. Default: computed "
    "from the data.",
)
@options.typed(
    "--fresh",
    options.SECONDS,
    "S",
    f"Recompute the description every S seconds; default {FRESH_S:g}.",
)
@options.text("--name", None, "Name of the source; default: random.", default="")
@options.seconds_option
@options.flag("--json as_json", "One JSON object per line.")
@approach_options
@options.extension_option
def offer(
    to: str,
    table: tuple[str, str] | None,
    files: tuple[str, ...],
    file_format: FileFormat | None,
    described: tuple[str, ...],
    fresh: float | None,
    name: str,
    seconds: float | None,
    as_json: bool,
    approach: Approach,
) -> None:
    """Offer a table or files to `contrada ask`, until Ctrl-C.

    A new part of the description is a line that begins with `+`, an ended one with `-`; each
    question is a line with `?`. Their number is printed on standard error at the end. Only
    questions that meet the description are received. A computed description has the ranges and
    values of each column; new data outside of them is not found until --fresh seconds have passed.

    A database is only read, and no value of a question is part of a statement. A TABLE may be
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
        raise click.UsageError("--fresh is for a computed description: leave --describe out")
    source: DataSource
    if table is not None:
        source = TableSource(table[0], table[1].split(".", 1), fresh_s=0)
    else:
        source = FileSource(files, file_format, fresh_s=0)
    service = connect(to, approach)
    reported = _ReportingSource(source, checked_timeout(fresh, "fresh") or FRESH_S)
    offered = service.offer(list(described) or None, reported, name=name)
    rows: Any = source.answer(_EVERYTHING)
    with closing(rows):  # Reads the first row: a wrong name is an error before the offer.
        next(rows, None)
    seconds = checked_timeout(seconds, "seconds")

    async def serve() -> None:
        try:
            async with service, offered:
                works = [_print(reported, as_json), lost(service), _show(offered, as_json)]
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await first_of(*works)
        finally:  # Also after Ctrl-C.
            click.echo(f"asked {reported.count} times", err=True)

    run(serve(), is_endless=seconds is None)


class _ReportingSource:
    """A source that reports each question before it answers it."""

    def __init__(self, source: DataSource, fresh_s: float) -> None:
        self.describe = source.describe
        self.fresh_s = fresh_s
        self.count = 0
        self._source = source
        self.asked: asyncio.Queue[SourceQuery] = asyncio.Queue(1)

    async def answer(self, question: SourceQuery) -> Any:
        self.count += 1
        await self.asked.put(question)
        return self._source.answer(question)


async def _print(source: _ReportingSource, as_json: bool) -> None:
    while True:
        text = str(await source.asked.get())
        line = msgspec.json.encode({"question": text}).decode() if as_json else f"? {text}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


async def _show(offered: SourceOffer, as_json: bool) -> None:
    """Prints the description of a source, and each change; the service renews it by itself."""
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
