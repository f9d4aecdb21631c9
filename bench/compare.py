"""Compares the figures of two revisions, and tells a change from noise.

`python -m bench.compare OLD [NEW] [--only NAMES] [--turns 8]` checks each revision out below
`build/compare`, compiles its native module, and runs its own `bench.run` in turns: old, new, new,
old, and so on, so that a slow spell of the machine hits both. Without NEW this tree is compared, as
it is on the disk.

A figure has changed if in all turns the same side was ahead. If nothing had changed, that would
happen to one figure in 2^(turns - 1): 128 with 8 turns. Everything else is noise, at any ratio of
the medians. A figure whose workload has another text is not compared.

Standard output has one JSON line per figure; progress and the table are on standard error. Exit
status 1 if a figure is worse, 2 for what cannot be compared.
"""

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
from rich.console import Console
from rich.table import Table

from bench.run import PIPED_COLUMNS

REPOSITORY: Final = Path(__file__).parents[1]
TURNS: Final = 8
TURNS_MIN: Final = 6
"""Below it more than one figure in 32 would be a change by chance."""

_COMPILE: Final = """
import shutil
from pathlib import Path
from hatch_build import compiled_native
made = compiled_native(Path.cwd())
shutil.copy(made, Path("src/contrada") / made.name)
"""
_PLACE: Final = "import contrada; print(contrada.__file__)"

Record: TypeAlias = Mapping[str, Any]
"""A JSON line of `bench.run`."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A revision with its sources, benchmarks and native module."""

    name: str
    folder: Path

    def records(self, only: str) -> dict[str, Record]:
        """Runs the figures once; returns their records by name. Raises RuntimeError."""
        words = ("--only", only) if only else ()
        done = self._python("-m", "bench.run", *words)
        found = {record["name"]: record for record in map(json.loads, done.stdout.splitlines())}
        if not found:  # The status is 1 after a missed limit, too.
            raise RuntimeError(f"{self.name} has no figures:\n{done.stderr}")
        return found

    def check(self) -> None:
        """Raises RuntimeError if another installation would be measured."""
        found = self._python("-c", _PLACE).stdout.strip()
        if not Path(found).is_relative_to(self.folder):
            raise RuntimeError(f"{self.name}: expected contrada below {self.folder}, found {found}")

    def compile(self) -> None:
        """Makes the native module of this revision. Raises RuntimeError."""
        done = self._python("-c", _COMPILE)
        if done.returncode:
            raise RuntimeError(f"{self.name} cannot be compiled:\n{done.stderr}")

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join((str(self.folder / "src"), str(self.folder)))
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of both revisions. `ratio` is the median of new / old per turn.

    It is None for a figure that was 0.
    """

    name: str
    unit: str
    old: float
    new: float
    ratio: float | None
    turns: int
    turns_better: int
    turns_worse: int

    @property
    def verdict(self) -> Literal["better", "worse", "noise"]:
        """A change if all turns agree."""
        if self.turns_better == self.turns:
            return "better"
        return "worse" if self.turns_worse == self.turns else "noise"


def checked_out(revision: str, repository: Path) -> Tree:
    """Checks a revision out, compiled. Raises ValueError for an unknown one, and RuntimeError."""
    named = f"{revision}^{{commit}}"
    try:
        commit = _git(repository, "rev-parse", "--verify", named).decode("ascii").strip()
    except subprocess.CalledProcessError:
        raise ValueError(f"no revision {revision!r} in the repository of this tree") from None
    tree = Tree(revision, repository / "build" / "compare" / commit)
    if not tree.folder.exists():
        tree.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.folder.parent) as parent:
            half = Path(parent) / "half"
            packed = io.BytesIO(_git(repository, "archive", "--format=zip", commit))
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(half)
            Tree(revision, half).compile()
            # In one step, so that what was broken off is not taken for the revision.
            shutil.move(half, tree.folder)
    return tree


def compare(old: Tree, new: Tree, only: str, turns: int, progress: Console) -> list[Comparison]:
    """Runs both in turns. Raises RuntimeError where there is no figure that both have."""
    runs: dict[Tree, list[dict[str, Record]]] = {old: [], new: []}
    for turn in range(turns):
        progress.print(f"turn {turn + 1} of {turns}")
        for tree in (old, new) if turn % 2 == 0 else (new, old):
            runs[tree].append(tree.records(only))
    both = [name for name in runs[old][0] if all(name in run for of in runs.values() for run in of)]
    made: list[Comparison] = []
    for name in both:
        olds, news = ([run[name] for run in runs[tree]] for tree in (old, new))
        if olds[0].get("workload") != news[0]["workload"]:
            progress.print(f"{name}: another workload, not compared", markup=False)
            continue
        made.append(comparison(olds, news))
    for name in sorted({*runs[old][0], *runs[new][0]} - {*both}):
        progress.print(f"{name}: not in all runs of both, not compared", markup=False)
    if not made:
        raise RuntimeError(f"{old.name} and {new.name} have no figure of one workload in common")
    return made


def comparison(olds: Sequence[Record], news: Sequence[Record]) -> Comparison:
    """Returns the comparison of a figure's records, a pair per turn."""
    sign = 1 if news[0]["more_is_better"] else -1
    before, after = ([record["value"] for record in records] for records in (olds, news))
    pairs = list(zip(before, after, strict=True))
    return Comparison(
        name=news[0]["name"],
        unit=news[0]["unit"],
        old=statistics.median(before),
        new=statistics.median(after),
        ratio=statistics.median(new / old for old, new in pairs) if all(before) else None,
        turns=len(pairs),
        turns_better=sum(sign * (new - old) > 0 for old, new in pairs),
        turns_worse=sum(sign * (new - old) < 0 for old, new in pairs),
    )


def table_of(comparisons: Sequence[Comparison], old: str, new: str) -> Table:
    """Returns the table, a row per figure."""
    table = Table(title=f"{old} and {new}")
    table.add_column("figure", overflow="fold")
    for column in (old, new, "unit", "new / old", "turns better", "verdict"):
        table.add_column(column, justify="right", overflow="fold")
    styles = {"better": "bold green", "worse": "bold red", "noise": None}
    for each in comparisons:
        table.add_row(
            each.name,
            f"{each.old:.4g}",
            f"{each.new:.4g}",
            each.unit,
            "" if each.ratio is None else f"{each.ratio:.3g}",
            f"{each.turns_better} of {each.turns}",
            each.verdict,
            style=styles[each.verdict],
        )
    return table


def _git(repository: Path, *words: str) -> bytes:
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, capture_output=True, check=True).stdout


@click.command()
@click.argument("old")
@click.argument("new", default="")
@click.option("--only", default="", help="Only figures or modules with these beginnings.")
@click.option(
    "--turns",
    type=click.IntRange(TURNS_MIN),
    default=TURNS,
    show_default=True,
    help="Runs of each revision. A change is what is on the same side in all of them.",
)
def main(old: str, new: str, only: str, turns: int) -> None:
    """Compare the figures of revision OLD with those of NEW, or of this tree."""
    progress = Console(stderr=True)
    if not progress.is_terminal:
        progress.width = PIPED_COLUMNS
    try:
        last = checked_out(new, REPOSITORY) if new else Tree("this tree", REPOSITORY)
        trees = [checked_out(old, REPOSITORY), last]
        for tree in trees:
            tree.check()
        comparisons = compare(trees[0], trees[1], only, turns, progress)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    except RuntimeError as error:
        raise click.UsageError(str(error)) from None
    for each in comparisons:
        click.echo(json.dumps(asdict(each) | {"verdict": each.verdict}))
    progress.print(table_of(comparisons, trees[0].name, trees[1].name))
    if any(each.verdict == "worse" for each in comparisons):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
