"""The runner of all measurements: `python -m bench.run [--only NAME] [--page]`.

Standard output has one JSON line per figure and nothing else; progress and the table at the end are
on standard error. Exit status 1 after a failed figure or a missed limit, 2 for an unknown name.
With `--page` the results replace those kept of the same figures, docs/benchmarks.md is made from
all kept ones, and missed limits are no failure. An interrupt ends the run, and the results so far
are shown and kept.
"""

import importlib
import json
import pkgutil
import time
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import click
import pytest
from rich.console import Console
from rich.table import Table

import bench
from bench import benchmarks_page, machine
from bench.harness import Figure, Result, run_figure

MODULE_PREFIX = "bench_"
INTERRUPTED: Final = "the run was interrupted"
NOT_CHOSEN: Final = "not chosen for the run"
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
    """The figures with a name, or a module's name, that begins with a word of `only`; or all."""
    words = tuple(only.split()) or ("",)
    of_modules = tuple(word.removeprefix(MODULE_PREFIX) for word in words)
    return [
        figure
        for module, figures in modules.items()
        for figure in figures
        if module.startswith(of_modules) or figure.name.startswith(words)
    ]


def run_all(figures: Sequence[Figure], progress: Console) -> tuple[list[Result], dict[str, str]]:
    """Runs each figure and prints its JSON line; returns results, and failures with a reason. An
    interrupt ends the run; the results so far stay.
    """
    results: list[Result] = []
    failed: dict[str, str] = {}
    for place, figure in enumerate(figures, start=1):
        progress.print(f"[{place}/{len(figures)}] {figure.name}: {figure.workload}", markup=False)
        began_s = time.monotonic()
        try:
            result = run_figure(figure)
        except pytest.skip.Exception:
            failed[figure.name] = "needs data that is absent"
            continue
        except KeyboardInterrupt:
            rest = dict.fromkeys((each.name for each in figures[place - 1 :]), INTERRUPTED)
            return results, failed | rest
        except Exception as error:  # noqa: BLE001 - the figures after this one are still wanted
            failed[figure.name] = f"failed with {type(error).__name__}"
            progress.print(traceback.format_exc(), markup=False, highlight=False)
            continue
        progress.print(f"    after {time.monotonic() - began_s:.0f} s")
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
    figure = result.figure
    limits = {
        "≤": figure.at_most,
        "≥": figure.at_least,
        "ratio ≤": figure.ratio_at_most,
        "ratio ≥": figure.ratio_at_least,
    }
    text = " ".join(f"{sign} {limit:g}" for sign, limit in limits.items() if limit is not None)
    return text if result.holds else f"{text} MISSED"


@click.command()
@click.option("--only", default="", help="Only figures or modules with these beginnings.")
@click.option("--page", "is_page", is_flag=True, help="Keep results in docs/benchmarks.md.")
def main(only: str, is_page: bool) -> None:
    """Run the measurements."""
    modules = figures_by_module()
    known = [figure.name for group in modules.values() for figure in group]
    chosen = select(modules, only)
    if only and not chosen:
        names = ", ".join(sorted({*modules, *known})) or "none yet"
        raise click.BadParameter(f"no figure {only!r}; there are: {names}")
    progress = Console(stderr=True)
    if not progress.is_terminal:
        progress.width = PIPED_COLUMNS
    left_out = benchmarks_page.left_out(each.name for each in chosen)
    for name, reason in left_out.items():
        progress.print(f"left out: {name} ({reason})", markup=False)
    figures = [each for each in chosen if each.name not in left_out]
    conditions, began_s = machine.conditions(), time.monotonic()
    results, failed = run_all(figures, progress)
    progress.print(table_of(results) if results else "No figures were measured.")
    if is_page:
        unmeasured = dict.fromkeys(known, NOT_CHOSEN) | left_out | failed
        for each in results:
            del unmeasured[each.figure.name]
        measured = benchmarks_page.Conditions(
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            minutes=round((time.monotonic() - began_s) / 60, 1),
            machine=conditions,
            peers=benchmarks_page.versions_of_peers(results),
            unmeasured=unmeasured,
        )
        benchmarks_page.keep_results(results, measured, known, benchmarks_page.RESULTS)
        benchmarks_page.main()
    if failed or not (is_page or all(result.holds for result in results)):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
