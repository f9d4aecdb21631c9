"""Mutation tests: small faults are put into a copy of the source, and the tests must find them.

    python -m tests.mutation PACKAGE=routing COUNT=200 SEED=1

draws 200 places of `contrada.routing`, runs for a mutant of each the tests that execute its line,
and writes a report to out/mutation. PACKAGE=all takes four packages, COUNT=all all mutants, and
SHARD=2/5 the second fifth of them. The same command continues a run that was ended.
"""

import hashlib
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from attrs import evolve
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkItem, WorkResult

from tests.mutation.covering_tests import PYTEST, CoveringTests
from tests.mutation.mutants import draw_mutants, is_compiled
from tests.mutation.mutation_report import CONTROL, NO_TEST, outcome_of, write_report

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("model", "matching", "routing", "delivery")
DEFAULTS: Final = {"PACKAGE": "all", "COUNT": "200", "SEED": "1", "SHARD": "1/1"}
VALUES: Final = {
    "PACKAGE": (re.compile("|".join((*PACKAGES, "all"))), f"all, {', '.join(PACKAGES)}"),
    "COUNT": (re.compile(r"[1-9]\d*|all"), "a number from 1, or all"),
    "SEED": (re.compile(r"\d+"), "a number"),
    "SHARD": (re.compile(r"[1-9]\d*/[1-9]\d*"), "as 2/5"),
}
"""The options, each with the form of its values."""

FIRST_TESTS: Final = 25
"""Tests of the first of two runs for a mutant. Most are found there, by few modules."""

TEST_SECONDS_MAX: Final = 30.0
"""Seconds that the tests of one mutant took in the run with coverage. Slower ones are left out."""

START_SECONDS: Final = 40.0
"""Seconds for the start of a process of tests. Five times those of its tests are added."""

MEMORY_BYTES_MAX: Final = 6 * 2**30
"""Address space of a process of tests: a mutant may allocate without end."""

CONTROL_EVERY: Final = 20
"""A control, which changes nothing, runs beside each mutant of so many."""


def main(options: dict[str, str]) -> None:
    """Runs the mutants of a session that have no result yet, and writes the report."""
    package, (shard, shards) = options["PACKAGE"], options["SHARD"].split("/")
    count = None if options["COUNT"] == "all" else int(options["COUNT"])
    packages = PACKAGES if package == "all" else (package,)
    name = "-".join((package, options["COUNT"], options["SEED"], f"{shard}of{shards}"))
    os.nice(19)
    files = _project_files()
    home = ROOT / "build" / "mutation" / _digest(files)
    tree = home / f"tree-{shard}of{shards}"
    _copy(files, tree)
    os.chdir(tree)
    os.environ["PYTHONPATH"] = f"{tree / 'src'}{os.pathsep}{tree}"
    covering = {
        each: CoveringTests(tree, home / ("interpreted" if each else "compiled"), interpreted=each)
        for each in (False, True)
    }
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    with use_db(str(home / f"{name}.sqlite"), WorkDB.Mode.create) as session:
        if not session.num_work_items:
            modules = [
                each
                for each in files
                if each.suffix == ".py" and each.parts[:2] == ("src", "contrada")
                if each.parts[2] in packages
            ]
            drawn = draw_mutants(modules, count, int(options["SEED"]), home / f"{name}.scratch")
            items = drawn[int(shard) - 1 :: int(shards)]
            session.add_work_items(items)
            session.add_work_items(_control(each) for each in items[::CONTROL_EVERY])
        try:
            _run(session, covering)
        except KeyboardInterrupt:
            sys.exit("the same command continues this run")
        finally:
            report = write_report(session, ROOT / "out" / "mutation" / f"{name}.md")
            sys.stdout.write(f"{report}\n")


def _run(session: WorkDB, covering: dict[bool, CoveringTests]) -> None:
    pending = sorted(session.pending_work_items, key=lambda item: str(item.job_id))
    for number, item in enumerate(pending, start=1):
        began = time.monotonic()
        result = _test(item, covering)
        session.set_result(item.job_id, result)
        mutant = item.mutations[0]
        sys.stderr.write(
            f"{number}/{len(pending)} {outcome_of(result)} in {time.monotonic() - began:.0f} s: "
            f"{mutant.module_path}:{mutant.start_pos[0]} {mutant.operator_name}\n"
        )


def _test(item: WorkItem, covering: dict[bool, CoveringTests]) -> WorkResult:
    """Runs the tests for a mutant, at first a few quick ones."""
    mutant = item.mutations[0]
    tests: list[str] = []
    # Some lines of other modules run only where nothing is compiled.
    for interpreted in (True,) if is_compiled(mutant.module_path) else (False, True):
        of_line = covering[interpreted].of_line
        tests = of_line(mutant.module_path, mutant.start_pos[0], TEST_SECONDS_MAX)
        if tests:
            break
    os.environ["CONTRADA_INTERPRETED"] = "1" if interpreted else "0"
    if not tests:  # `true` finds nothing, but lets cosmic-ray write the difference.
        return evolve(mutate_and_test(item.mutations, "true", START_SECONDS), output=NO_TEST)
    first = _run_tests(item, tests[:FIRST_TESTS], covering[interpreted])
    if first.is_killed or len(tests) <= FIRST_TESTS:
        return first
    return _run_tests(item, tests[FIRST_TESTS:], covering[interpreted])


def _run_tests(item: WorkItem, tests: list[str], covering: CoveringTests) -> WorkResult:
    chosen = Path("chosen_tests.txt")
    chosen.write_text("".join(f"{each}\n" for each in tests), "utf-8")
    seconds = START_SECONDS + 5 * covering.seconds(tests)
    # cosmic-ray ends the tests after their time, but not after Ctrl-C: an endless loop would stay.
    last_end = ("timeout", "--signal=KILL", str(seconds + 10))
    # cosmic-ray keeps standard output only; pytest reports a failed import on standard error.
    with_errors = ("sh", "-c", 'exec "$@" 2>&1', "sh")
    command = shlex.join((*with_errors, *last_end, *PYTEST, "-x", "--tb=no", f"@{chosen}"))
    return mutate_and_test(item.mutations, command, seconds)


def _control(item: WorkItem) -> WorkItem:
    mutant = evolve(item.mutations[0], operator_name=CONTROL, occurrence=0)
    return WorkItem.single(f"{item.job_id}-control", mutant)


def _project_files() -> list[Path]:
    """Returns the files of the project, as paths relative to it, and the compiled module."""
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    compiled = (ROOT / "src" / "contrada").glob("_native*.so")
    files = [
        *map(Path, listed.stdout.split("\0")[:-1]),
        *(each.relative_to(ROOT) for each in compiled),
    ]
    return sorted(each for each in files if (ROOT / each).is_file())


def _digest(files: list[Path]) -> str:
    """Returns a name for the state of the source and the tests."""
    found = hashlib.sha256()
    for each in files:
        if each.parts[0] in {"src", "tests"} and each.suffix == ".py":
            found.update(str(each).encode() + b"\0" + (ROOT / each).read_bytes())
    return found.hexdigest()[:12]


def _copy(files: list[Path], tree: Path) -> None:
    """Copies the project; again after a run that was killed, which may have left a fault."""
    for each in files:
        (tree / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / each, tree / each)


def _options(arguments: list[str]) -> dict[str, str]:
    """Returns all options. Raises SystemExit for one that is unknown or has no such value."""
    options = dict(DEFAULTS)
    for each in arguments:
        name, _, value = each.partition("=")
        if name not in VALUES:
            sys.exit(f"unknown option {each!r}: expected {', '.join(VALUES)}")
        pattern, words = VALUES[name]
        if not pattern.fullmatch(value):
            sys.exit(f"{each}: expected {words}")
        options[name] = value
    shard, shards = map(int, options["SHARD"].split("/"))
    if not 1 <= shard <= shards:
        sys.exit(f"SHARD={options['SHARD']}: expected 1/{shards} to {shards}/{shards}")
    return options


if __name__ == "__main__":
    main(_options(sys.argv[1:]))
