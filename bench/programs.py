"""Numbers of programs that run in a process of their own.

A program is a list of arguments of Python that prints one JSON object of numbers by name (for
example `bench.trips`, or a line after `-c`), and counts processor time itself.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from bench.harness import Measurement

REPOSITORY: Final = Path(__file__).parents[1]
RUNS: Final = 5
PROGRAM_S_MAX: Final = 1_800
"""Seconds of one run of a program. Beyond it: it is ended and its figures fail."""

Numbers = dict[str, float]


def measured(name: str, *program: str, runs: int = RUNS, unit: float = 1.0) -> Measurement:
    """Returns the number of this name, from all runs of a program, divided by `unit`.

    The runs are made once, at the first request for any of their numbers.
    """
    return Measurement([each[name] / unit for each in _numbers(program, runs)])


@cache
def _numbers(program: tuple[str, ...], runs: int) -> list[Numbers]:
    return [_run(program) for _ in range(runs)]


def _run(program: tuple[str, ...]) -> Numbers:
    done = subprocess.run(
        [sys.executable, *program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(program)} failed:\n{done.stderr}")
    numbers: Numbers = json.loads(done.stdout)
    return numbers
