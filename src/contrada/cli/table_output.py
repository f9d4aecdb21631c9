"""How commands show tables and how far they are."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

PIPED_COLUMNS: Final = 160
"""How wide a table is where it goes into a file."""


def output(*, errors: bool = False) -> Console:
    """Standard output, or that of errors, wide enough for tables where it is no terminal."""
    console = Console(stderr=errors, markup=False, emoji=False, highlight=not errors)
    if not console.is_terminal:
        console.width = PIPED_COLUMNS
    return console


def progress_bar() -> Progress:
    """A bar on standard error."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def progress_of_bytes(total: int | None, what: str) -> Iterator[Callable[[int, int], None]]:
    """To be told how many bytes were read and how much was done, where a person looks at it.

    `total` bytes come in all, where that is known.
    """
    if not sys.stderr.isatty():
        yield lambda read, done: None
        return
    with Progress(
        BarColumn(),
        DownloadColumn(),
        TextColumn(f"{{task.fields[done]:,}} {what}, {{task.fields[rate]:,.0f}}/s", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as progress:
        task = progress.add_task("", total=total, done=0, rate=0.0)

        def told(read: int, done: int) -> None:
            rate = done / (progress.tasks[0].elapsed or 1.0)
            progress.update(task, completed=read, done=done, rate=rate)

        yield told


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, str], None]]:
    """To be told how many of something were done, and of which file, where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda done, file: None
        return
    with Progress(
        SpinnerColumn(),
        TextColumn(f"{{task.completed:,.0f}} {what}  {{task.fields[file]}}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None, file="")
        yield lambda done, file: progress.update(task, completed=done, file=file)
