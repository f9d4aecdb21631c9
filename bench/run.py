"""The runner of all measurements: `python -m bench.run [--only NAME] [--before REVISION]`.

Standard output has one JSON line per figure and nothing else; progress and the table at the end are
on standard error. Exit status 1 after a failed figure or a missed limit, 2 for an unknown name.
"""

import importlib
import json
import pkgutil
import traceback
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import click
from rich.console import Console
from rich.table import Table

import bench
from bench import before
from bench.harness import Figure, Result, run_figure

MODULE_PREFIX = "bench_"
PIPED_COLUMNS: Final = 160
"""Columns of the table in a file."""


def figures_by_module() -> dict[str, list[Figure]]:
    """All figures, by the name of their module without its prefix, in the order of the text."""
    names = sorted(info.name for info in pkgutil.iter_modules(bench.__path__))
    return {
        name.removeprefix(MODULE_PREFIX): [
            value
            for value in vars(importlib.import_module(f"bench.{name}")).values()
            if isinstance(value, Figure)
        ]
        for name in names
        if name.startswith(MODULE_PREFIX)
    }


def select(modules: Mapping[str, Sequence[Figure]], only: str) -> list[Figure]:
    """The figures whose own or whose module's name begins with `only`; all if it is empty."""
    wanted = only.removeprefix(MODULE_PREFIX)
    return [
        figure
        for module, figures in modules.items()
        for figure in figures
        if module.startswith(wanted) or figure.name.startswith(only)
    ]


def run_all(figures: Sequence[Figure], progress: Console) -> tuple[list[Result], int]:
    """Runs each figure and prints its JSON line; returns the results and the number of errors."""
    results: list[Result] = []
    failed = 0
    for place, figure in enumerate(figures, start=1):
        progress.print(f"[{place}/{len(figures)}] {figure.name}: {figure.workload}", markup=False)
        try:
            result = run_figure(figure)
        except Exception:  # noqa: BLE001 - the figures after this one are still wanted
            failed += 1
            progress.print(traceback.format_exc(), markup=False, highlight=False)
            continue
        results.append(result)
        click.echo(json.dumps(result.as_record()))
    return results, failed


def table_of(results: Sequence[Result]) -> Table:
    """Returns the table, a row per figure."""
    table = Table(title="Measurements")
    table.add_column("figure", overflow="fold")  # Nothing is cut where the window is narrow.
    for column in ("value", "unit", "p25 to p75", "samples", "limit", "peer", "ratio"):
        justify: Literal["left", "right"] = "left" if column in ("unit", "peer") else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for result in results:
        table.add_row(
            result.figure.name,
            _number(result.value),
            result.figure.unit,
            f"{_number(result.spread[0])} to {_number(result.spread[1])}",
            str(result.samples),
            _limit_text(result),
            "" if result.peer_value is None else f"{result.peer} {_number(result.peer_value)}",
            "" if result.ratio is None else f"{result.ratio:.3g}",
            style=None if result.holds else "bold red",
        )
    return table


def _number(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _limit_text(result: Result) -> str:
    limits = (("≤", result.figure.at_most), ("≥", result.figure.at_least))
    text = " ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)
    return text if result.holds else f"{text} MISSED"


@click.command()
@click.option("--only", default="", help="Only figures or modules with this beginning.")
@click.option(
    "--before", "revision", default="", help="Compare with this git revision where possible."
)
def main(only: str, revision: str) -> None:
    """Run the measurements."""
    modules = figures_by_module()
    figures = select(modules, only)
    if only and not figures:
        known = sorted({*modules, *(figure.name for group in modules.values() for figure in group)})
        raise click.BadParameter(f"no figure {only!r}; there are: {', '.join(known) or 'none yet'}")
    if revision:
        try:
            before.pair_with(revision)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    progress = Console(stderr=True)
    if not progress.is_terminal:
        progress.width = PIPED_COLUMNS
    results, failed = run_all(figures, progress)
    progress.print(table_of(results) if results else "No figures were measured.")
    if failed or not all(result.holds for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
