"""Whether and when kernels are compiled, and where they are kept."""

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contrada.matching.kernels import jit
from contrada.matching.kernels.jit import KERNELS, PURE_VARIABLE
from tests.matching.engines import needs_numba

FOLDER = Path(jit.__file__).parent


def asked(code: str, **environment: str) -> list[str]:
    """What another process prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"from contrada.matching.kernels import jit; print({code})"],
        env={k: v for k, v in os.environ.items() if k != PURE_VARIABLE} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("environment", "pure"),
    [
        ({PURE_VARIABLE: "1"}, True),
        ({PURE_VARIABLE: "no"}, True),
        ({"NUMBA_DISABLE_JIT": "1"}, True),
        pytest.param({PURE_VARIABLE: "0"}, False, marks=needs_numba),
        pytest.param({PURE_VARIABLE: ""}, False, marks=needs_numba),
    ],
)
def test_the_environment_keeps_everything_uncompiled(environment: Any, pure: bool) -> None:
    """Who must do without compiling could not; or nobody would get compiled kernels."""
    code = "jit.is_pure(), jit.compiled() if jit.is_pure() else True, jit.is_loaded(), jit.loaded()"
    answers = (True, False, True, False) if pure else (False, True, False, False)
    assert asked(code, **environment) == [str(each) for each in answers]


def test_without_numba_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index would fail where Numba is not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert jit.is_pure.__wrapped__()


@needs_numba
def test_kernels_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be loaded again, or by two threads at once."""
    imported: list[str] = []
    monkeypatch.setattr(jit, "_state", {})
    monkeypatch.setattr(importlib, "import_module", imported.append)
    assert not jit.is_loaded()
    assert jit.compiled()
    assert jit.compiled()
    assert [name.rpartition(".")[2] for name in imported] == list(KERNELS)
    assert jit.is_loaded()
    monkeypatch.setattr(jit, "_state", {"loading": True})
    assert not jit.compiled(), "another thread is loading them"


@needs_numba
def test_who_waits_for_a_compiler_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A process would seem to hang for a minute; or complain where kernels are on disk."""
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    tmp_path.joinpath("first.nbi").touch()  # Another process has begun to compile.
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    for is_cached in (False, True):
        monkeypatch.setattr(jit, "_state", {})
        assert jit.is_cached() is is_cached
        assert jit.compiled()
    assert [record.message.split()[0] for record in caplog.records] == ["compiling"]


def test_kernels_of_another_text_are_kept_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was compiled of a kernel's former text would be run for years."""
    here = jit.cache_folder.__wrapped__
    for path in FOLDER.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "__pycache__").mkdir()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    before = here()
    assert before == here()
    assert before.parent == tmp_path / "__pycache__"
    assert before.name == jit.cache_folder().name, "only the text counts"
    for path in sorted(tmp_path.glob("*.py")):
        text = path.read_bytes()
        path.write_bytes(text + b"# more\n")
        assert (here() != before) is (path.name != "__init__.py"), path.name
        path.write_bytes(text)
    assert here() == before


def test_where_nothing_may_be_written_kernels_are_kept_at_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An installation that belongs to somebody else would compile in every process."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_folder.__wrapped__().parent == tmp_path / "contrada"
