"""The journey of a CSV row through `contrada match`: the modules and functions on its path."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import contrada as ct
from contrada.cli.match import _MatchReport
from contrada.model.native import NATIVE
from tests.commands import here

PACKAGE: Final = f"{Path(ct.__file__).parent}/"
PAGE: Final = Path(__file__).parents[3] / "docs" / "architecture.md"
MODULES_MAX: Final = 14 if NATIVE is None else 12
CALLS_MAX: Final = 69 if NATIVE is None else 65
CALLS_OF_ROW_MAX: Final = 25 if NATIVE is None else 22
"""Calls for each further row."""


def walked(folder: Path, patch: pytest.MonkeyPatch, rows: int) -> list[tuple[str, str]]:
    """The module and name of each function that a file of some rows passes, in order."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_kernel = "/kernels/" in code.co_filename  # Compiled, but it reports its calls.
        if event == "call" and code.co_filename.startswith(PACKAGE) and not is_kernel:
            calls.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    def walk(*arguments: Any) -> None:
        sys.setprofile(note)
        try:
            take_all(*arguments)
        finally:
            sys.setprofile(None)

    take_all = _MatchReport.take_all
    (folder / "desk.filters").write_text("late: dep_delay > 60 and origin = 'JFK'\n")
    path = folder / f"{rows}.csv"
    path.write_text("origin,dep_delay,carrier\n" + "JFK,90,UA\n" * rows)
    with patch.context() as patched:
        patched.setattr(_MatchReport, "take_all", walk)
        result = here("match", str(folder / "desk.filters"), str(path))
    assert (result.returncode, result.stdout.count("late")) == (0, rows)
    return calls


def test_a_row_passes_few_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer more would slow every row, and hide the place of a decision."""
    walked(tmp_path, monkeypatch, 1)  # Modules are imported at first use.
    one, two = (walked(tmp_path, monkeypatch, rows) for rows in (1, 2))
    modules = list(dict.fromkeys(module for module, _ in one))
    assert len(modules) <= MODULES_MAX, "\n".join(modules)
    assert len(one) <= CALLS_MAX, "\n".join(map(str, one))
    assert len(two) - len(one) <= CALLS_OF_ROW_MAX, Counter(two) - Counter(one)


@pytest.mark.skipif(NATIVE is None, reason="interpreted, a row passes more modules")
def test_the_page_shows_the_journey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader would follow a row through modules that it no longer passes."""
    walked(tmp_path, monkeypatch, 1)
    passed = walked(tmp_path, monkeypatch, 1)
    text = PAGE.read_text("utf-8").partition("## The journey of a CSV row")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.+?) \|", text, re.MULTILINE)
    shown = {(module, name) for module, names in rows for name in re.findall(r"`([\w.]+)`", names)}
    assert [module for module, _ in rows] == list(dict.fromkeys(module for module, _ in passed))
    assert shown <= set(passed)
