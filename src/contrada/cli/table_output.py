"""Consoles for tables, and progress bars."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
import msgspec
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

from contrada.cli.log_output import escape_controls

PIPED_COLUMNS: Final = 160  # Columns of a table that is written to a file


def output(*, errors: bool = False) -> Console:
    """Returns a console on standard output or error, wide enough for tables in files."""
    console = Console(stderr=errors, markup=False, emoji=False, highlight=not errors)
    if not console.is_terminal:
        console.width = PIPED_COLUMNS
    return console


def print_records(records: Iterable[Any], shown: Table, *, as_json: bool) -> None:
    """Prints records as a table, or with `as_json` one line each."""
    if not as_json:
        output().print(shown)
        return
    for each in records:
        click.echo(msgspec.json.encode(each).decode())


class _HarmlessTable(Table):
    """A table with escapes for control characters: a cell may have the text of a stranger."""

    def add_row(self, *cells: RenderableType | None, **look: Any) -> None:
        shown = [
            "\n".join(map(escape_controls, each.split("\n"))) if isinstance(each, str) else each
            for each in cells
        ]
        super().add_row(*shown, **look)


def table(*left: str | Column, right: Iterable[str] = (), **look: Any) -> Table:
    """Returns a table with columns of texts, and behind them columns of numbers."""
    made = _HarmlessTable(*left, **look)
    for heading in right:
        made.add_column(heading, justify="right")
    return made


def progress_bar() -> Progress:
    """Returns a progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def progress_of_bytes(total: int | None, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function that shows bytes and records done, of `total` if known, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda read, done: None
        return
    with Progress(
        BarColumn(),
        DownloadColumn(),
        TextColumn(f"{{task.fields[done]:,}} {unit}, {{task.fields[rate]:,.0f}}/s", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:
        task = progress.add_task("", total=total, done=0, rate=0.0)

        def show(read: int, done: int) -> None:
            rate = done / (progress.tasks[0].elapsed or 1.0)
            progress.update(task, completed=read, done=done, rate=rate)

        yield show


@contextmanager
def progress_of(unit: str) -> Iterator[Callable[[int, str], None]]:
    """Yields a function that shows the records done and the current file, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, file: None
        return
    with Progress(
        SpinnerColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}  {{task.fields[file]}}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(unit, total=None, file="")
        yield lambda done, file: progress.update(task, completed=done, file=file)
