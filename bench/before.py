"""Pairs of this tree and an earlier revision of the project, both measured in the same run.

A measurement that can be paired is a program: arguments of Python that print one JSON object of
numbers by name (for example `bench.trips`, or a line after `-c`). It uses only public names that
both revisions have, and counts processor time itself. The earlier revision is checked out into
`build/before`, and the same program runs with this tree's `src` on the search path and with the
earlier one's, alternately; the search path precedes the installed packages.

Without an earlier revision (`bench.run --before`) only this tree is measured.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bench.harness import Measurement

REPOSITORY: Final = Path(__file__).parents[1]
PAIRS: Final = 5
PROGRAM_S_MAX: Final = 1_800
"""Seconds of one run of a program. Beyond it: it is ended and its figures fail."""

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Tree:
    """A revision of the project that programs can run with."""

    name: str
    source: Path

    def run(self, *program: str) -> Numbers:
        """Returns the output of a program with this revision; RuntimeError when it fails."""
        done = subprocess.run(
            [sys.executable, *program],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(self.source)},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S_MAX,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(program)} with {self.name} failed:\n{done.stderr}")
        numbers: Numbers = json.loads(done.stdout)
        return numbers

    def prepare(self) -> None:
        """Compiles this revision's kernels once; RuntimeError if another revision is found."""
        command = [sys.executable, "-c", "import contrada; print(contrada.__file__)"]
        environment = os.environ | {"PYTHONPATH": str(self.source)}
        found = subprocess.check_output(command, cwd=REPOSITORY, env=environment, text=True).strip()
        if not Path(found).is_relative_to(self.source):
            raise RuntimeError(f"{self.name}: expected contrada below {self.source}, found {found}")
        self.run("-m", "bench.trips", "prepare")


_trees: list[Tree] = [Tree("this tree", REPOSITORY / "src")]


def pair_with(revision: str) -> None:
    """Pairs the following measurements with an earlier revision."""
    _trees[1:] = [earlier(revision)]


def earlier(revision: str, repository: Path = REPOSITORY) -> Tree:
    """Checks out a revision into `build/before`. Raises ValueError for an unknown one."""
    named = f"{revision}^{{commit}}"
    try:
        commit = _git(repository, "rev-parse", "--verify", named).decode("ascii").strip()
    except subprocess.CalledProcessError:
        raise ValueError(f"no revision {revision!r} in the repository of this tree") from None
    folder = repository / "build" / "before" / commit
    if not (folder / "src").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as half:
            packed = io.BytesIO(_git(repository, "archive", commit, "src"))
            with tarfile.open(fileobj=packed) as archive:
                archive.extractall(half, filter="data")
            # In one step, so that what was broken off is not taken for the revision.
            (Path(half) / "src").rename(folder / "src")
    return Tree(revision, folder / "src")


def measured(name: str, *program: str, pairs: int = PAIRS, unit: float = 1.0) -> Measurement:
    """Returns the number of this name, from all runs of a program, divided by `unit`.

    The runs are made once, at the first request for any of their numbers.
    """
    runs = _runs(program, pairs, tuple(_trees))
    own, *others = ([run[name] / unit for run in of_tree] for of_tree in runs)
    if not others:
        return Measurement(own)
    return Measurement(own, _trees[1].name, others[0])


@cache
def _runs(program: tuple[str, ...], pairs: int, trees: tuple[Tree, ...]) -> list[list[Numbers]]:
    """Returns the results of each tree; the runs are made alternately."""
    for tree in trees:
        _prepare(tree)
    made = [[tree.run(*program) for tree in trees] for _ in range(pairs)]
    return [list(of_tree) for of_tree in zip(*made, strict=True)]


@cache
def _prepare(tree: Tree) -> None:
    tree.prepare()


def _git(repository: Path, *words: str) -> bytes:
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, capture_output=True, check=True).stdout
