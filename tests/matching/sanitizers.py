"""`SanitizedRun`: `NativeFuzz` on a `contrada._native` that checks its own memory accesses.

The module is compiled with AddressSanitizer and UndefinedBehaviorSanitizer into a folder of its own
below build/. A second process runs the rounds: the runtime of a sanitizer must be loaded before
Python. Every object and array then has its own allocation, so that an access beside it is found.

After a failure, the round runs again with a trace, and its last inputs are in build/sanitize.

`python -m tests.matching.sanitizers INPUTS [SEED] [FIRST]` begins at round FIRST.
"""

import importlib
import importlib.abc
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import hatch_build

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "sanitize"
MODULE_VARIABLE: Final = "CONTRADA_SANITIZED_MODULE"
"""The file of the compiled module, for the second process."""

# Overflow of signed integers wraps around by -fwrapv, which all builds have.
CFLAGS: Final = (
    "-O2 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined "
    "-fno-sanitize=signed-integer-overflow -fno-sanitize-recover=all"
)
LIBRARIES: Final = ("libasan.so", "libubsan.so")

TRACED: Final = 3
"""Inputs that are kept of a failed round: the last one is the one that failed."""


def build() -> Path:
    """Returns the file of the module with sanitizers. Cost: a minute, unless it is built."""
    os.environ["CONTRADA_CFLAGS"] = CFLAGS
    return hatch_build.compiled_native(ROOT)


def environment(module: Path) -> dict[str, str]:
    """Returns the environment of the second process."""
    compiler = os.environ.get("CC", "gcc")
    found = []
    for each in LIBRARIES:
        ask = [compiler, f"-print-file-name={each}"]
        found.append(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    return {
        **os.environ,
        MODULE_VARIABLE: str(module),
        "LD_PRELOAD": ":".join(found),
        # CPython frees some memory only with its process.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Small objects would share one allocation, and an access beside one would hit another.
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
    }


def run(inputs: int, seed: int, first: int) -> int:
    """Runs rounds in a second process; returns its status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    variables = environment(build())
    _round_file(seed).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.matching.sanitizers"]
    _say(f"seed {seed}")
    status = subprocess.run(
        [*command, str(inputs), str(seed), str(first)], env=variables, cwd=ROOT, check=False
    ).returncode
    if status and _round_file(seed).exists():
        number = int(_round_file(seed).read_text())
        _say(f"seed {seed}, round {number} failed; it runs again with a trace")
        again = [*command, "trace", str(seed), str(number)]
        subprocess.run(again, env=variables, cwd=ROOT, check=False)
        _say(f"the last inputs: {_trace_file(seed)}")
    return status


def run_rounds(inputs: int, seed: int, first: int) -> None:
    """Runs rounds in this process, which has the sanitizers."""
    _load_module()
    fuzz = importlib.import_module("tests.matching.native_fuzz")
    file = _round_file(seed)
    fuzz.run(seed, inputs, _say, first=first, before=lambda number: file.write_text(str(number)))


def trace_round(seed: int, number: int) -> None:
    """Runs one round, and keeps its last inputs in a file."""
    _load_module()
    fuzz = importlib.import_module("tests.matching.native_fuzz")
    kept: list[str] = []

    def trace(line: str) -> None:
        kept.append(line)
        del kept[:-TRACED]
        _trace_file(seed).write_text("\n".join(kept) + "\n", "utf-8", "backslashreplace")

    fuzz.NativeFuzz(seed, trace).run_round(number)


class _ModuleFinder(importlib.abc.MetaPathFinder):
    """Finds the module with sanitizers in place of the installed one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "contrada._native":
            return None
        return importlib.util.spec_from_file_location(fullname, os.environ[MODULE_VARIABLE])


def _load_module() -> None:
    """Imports contrada with that module."""
    sys.meta_path.insert(0, _ModuleFinder())
    memory: Any = importlib.import_module("contrada.matching.kernels.memory")
    assert memory.NATIVE is not None
    assert memory.NATIVE.__file__ == os.environ[MODULE_VARIABLE]
    # Mapped memory has no bounds that a sanitizer knows.
    memory.MAPPED_BYTES_MIN = 2**62


def _round_file(seed: int) -> Path:
    return FOLDER / f"round-{seed}"


def _trace_file(seed: int) -> Path:
    return FOLDER / f"inputs-{seed}.txt"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command


def main(arguments: list[str]) -> int:
    """Runs the command; returns its status."""
    given = dict(enumerate(arguments))
    seed = int(given.get(1) or random.randrange(2**32))
    first = int(given.get(2) or 0)
    if MODULE_VARIABLE not in os.environ:
        return run(int(arguments[0]), seed, first)
    if arguments[0] == "trace":
        trace_round(seed, first)
    else:
        run_rounds(int(arguments[0]), seed, first)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
