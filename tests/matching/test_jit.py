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

ASKED_BY_PYTHON = [
    *(
        ("msgpack_writer", name)
        for name in ("count_numbers", "put_numbers", "count_texts", "put_texts")
    ),
    *(
        ("msgpack_writer", name)
        for name in ("put_heads", "put_same", "gather", "parts_of", "codes")
    ),
    *(("json_scanner", name) for name in ("scan", "values_of", "times_of", "put_spans")),
    *(("csv_scanner", name) for name in ("part", "cells_of")),
]
"""The kernels of columns that are called from outside of kernels."""


def asked(code: str, **environment: str) -> list[str]:
    """The output of another process."""
    done = subprocess.run(
        [sys.executable, "-c", f"from contrada.matching.kernels import jit; print({code})"],
        env={k: v for k, v in os.environ.items() if k != PURE_VARIABLE} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.quick_first
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
    """Compilation could not be disabled; or nobody would get compiled kernels."""
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
def test_waiting_for_a_compiler_is_logged(
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
    """Compiled code of a kernel's former text would be run for years."""
    here = jit.cache_folder.__wrapped__
    tmp_path /= "installed"
    monkeypatch.setattr(jit, "__file__", str(installed_in(tmp_path)))
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
    monkeypatch.setattr(jit, "__file__", str(installed_in(tmp_path / "installed")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_folder.__wrapped__() == tmp_path / "contrada" / jit.cache_folder().name


def installed_in(folder: Path) -> Path:
    """The module of an installation of its own."""
    folder.mkdir()
    for path in FOLDER.glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "__pycache__").mkdir()
    return folder / "jit.py"


@pytest.mark.parametrize("is_first", [True, False])
def test_kernels_of_an_installation_serve_all_its_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_first: bool
) -> None:
    """Each user of an image would compile the same again; or lose their own."""
    monkeypatch.setattr(jit, "__file__", str(installed_in(tmp_path / "installed")))
    folder = jit.cache_folder.__wrapped__
    of_root = folder()
    assert of_root.is_relative_to(tmp_path / "installed")
    (of_root / "native").mkdir(parents=True)
    (of_root / "native" / "entry.nbi").write_text("compiled")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if is_first:
        assert not folder().exists(), "not all is compiled there"
    else:
        (tmp_path / "contrada" / of_root.name).mkdir(parents=True)
    (of_root / "whole").touch()
    found = sorted(path.name for path in folder().rglob("*"))
    assert found == (["entry.nbi", "native", "whole"] if is_first else [])
    assert [path.name for path in folder().parent.iterdir()] == [of_root.name]


def test_an_unwritable_cache_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every process of a user without a home would compile, and nobody would know why."""
    monkeypatch.setattr(jit, "__file__", str(installed_in(tmp_path / "installed")))
    of_root = jit.cache_folder.__wrapped__()
    of_root.mkdir()
    (of_root / "whole").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (tmp_path / "home").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    jit.cache_folder.__wrapped__()
    assert "compiled kernels cannot be kept in" in caplog.text


@needs_numba
def test_an_installation_compiles_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first task on each machine would compile for seconds, or again for other arrays."""
    imported: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(jit, "_state", {})
        patch.setattr(importlib, "import_module", imported.append)
        jit.compile_all()
    assert [name.rpartition(".")[2] for name in imported] == [*KERNELS, *jit.COLUMN_KERNELS]
    ours = [
        getattr(importlib.import_module(f"contrada.matching.kernels.{name}"), of)
        for name, of in ASKED_BY_PYTHON
    ]
    assert all(len(each.signatures) == 1 and not each._can_compile for each in ours)
