"""`CoveringTests`: the tests that execute a line of the source, quickest first.

coverage.py records a context for each test. That run is made once for a copy of the project.
Compiled functions leave no trace in it, so a second run interprets them.
"""

import ast
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from coverage import CoverageData

IMPORT_TESTS: Final = ("tests/test_limits.py", "tests/test_frozen_classes.py")
"""Tests of what modules define at import: of the page with all limits, and of classes."""

TESTS: Final = (
    *("tests/model", "tests/matching", "tests/patterns", "tests/routing", "tests/delivery"),
    *("tests/service", *IMPORT_TESTS),
)
"""What runs once with coverage: the tests of the packages and of those that use them directly."""

INTERPRETED_TESTS: Final = ("tests/model", "tests/matching", "tests/patterns")
"""The same with kernels interpreted: others would take hours, and reach no further kernel."""

PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-o", "timeout=0"),
    "--hypothesis-profile=quick",
)
SETTINGS: Final = "[run]\nbranch = true\nsource_pkgs = contrada\n"
"""Settings of coverage.py. The project's own leave out the compiled modules."""

DURATION: Final = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(tests/.+)$", re.MULTILINE)
PASSED: Final = re.compile(r"^(tests/.+) PASSED\b", re.MULTILINE)


class CoveringTests:
    """The quick tests that execute a line, in a copy of the project."""

    def __init__(self, tree: Path, base: Path, *, interpreted: bool) -> None:
        """Runs the tests of the copy, some minutes, unless files named `base` have the result.

        Raises:
            SystemExit: The tests do not run; the message names their output.
        """
        self._tree = tree
        log = base.with_suffix(".log")
        if not log.exists():
            _run_tests(tree, base, interpreted=interpreted)
        self._data = CoverageData(str(base.with_suffix(".coverage")))
        self._data.read()
        self._source_root = next(iter(self._data.measured_files())).partition("/src/contrada/")[0]
        text = log.read_text("utf-8")
        self._seconds: dict[str, float] = dict.fromkeys(PASSED.findall(text), 0.0)
        for seconds, test in DURATION.findall(text):
            if test in self._seconds:
                self._seconds[test] += float(seconds)

    def of_line(self, module: Path, line: int, seconds_max: float) -> list[str]:
        """Returns the passed tests that execute a line, those of its package first.

        A line that runs at import has no test of its own: `IMPORT_TESTS` follow, then the
        tests that reach the module, or all tests of the package if there are none. Together they
        took at most `seconds_max`; the slowest ones are left out.
        """
        contexts = self._data.contexts_by_lineno(f"{self._source_root}/{module}")
        start = statement_line((self._tree / module).read_text("utf-8"), line)
        found = next((contexts[at] for at in range(line, start - 1, -1) if at in contexts), [])
        room = f"tests/{module.parts[2]}/"
        tests = self._ordered(self._passed(found), room)
        if "" in found:
            reaching = self._passed(test for each in contexts.values() for test in each)
            near = IMPORT_TESTS if reaching else (*IMPORT_TESTS, room)
            further = reaching | {test for test in self._seconds if test.startswith(near)}
            tests += self._ordered(further - {*tests}, room)
        ends = itertools.accumulate(self._seconds[each] for each in tests)
        return [test for test, end in zip(tests, ends, strict=True) if end <= seconds_max]

    def seconds(self, tests: Iterable[str]) -> float:
        """Returns the time that tests took with coverage, in seconds."""
        return sum(self._seconds[each] for each in tests)

    def _passed(self, contexts: Iterable[str]) -> set[str]:
        return {each.rpartition("|")[0] for each in contexts} & self._seconds.keys()

    def _ordered(self, tests: set[str], room: str) -> list[str]:
        return sorted(
            tests,
            key=lambda test: (
                not test.startswith(IMPORT_TESTS),  # First, as they take seconds: else left out.
                not test.startswith(room),
                self._seconds[test],
                test,
            ),
        )


def statement_line(source: str, line: int) -> int:
    """Returns the first line of the innermost statement that contains a line."""
    return max(
        (
            node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line)
        ),
        default=line,
    )


def _run_tests(tree: Path, base: Path, *, interpreted: bool) -> None:
    settings, unfinished = base.with_suffix(".ini"), base.with_suffix(".unfinished")
    settings.write_text(SETTINGS, "utf-8")
    environment = dict(os.environ, COVERAGE_FILE=str(base.with_suffix(".coverage")))
    if interpreted:
        environment["CONTRADA_INTERPRETED"] = "1"
    sys.stderr.write(f"running the tests once with coverage: {unfinished}\n")
    with unfinished.open("w", encoding="utf-8") as log:
        done = subprocess.run(
            (
                *PYTEST,
                *("-vv", "--durations=0", "--durations-min=0"),
                *("-m", "not slow and not long", "-k", "not postgresql"),
                *("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="),
                *(INTERPRETED_TESTS if interpreted else TESTS),
            ),
            cwd=tree,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode not in (0, 1):  # A failed test is none of the passed ones.
        sys.exit(f"pytest ended with status {done.returncode}: read {unfinished}")
    unfinished.rename(base.with_suffix(".log"))
