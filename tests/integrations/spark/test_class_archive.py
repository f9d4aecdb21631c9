"""The class archive of sessions: written atomically, and used."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from contrada.errors import EngineError
from contrada.integrations.spark import class_archive, spark_session


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory whose name has a blank."""
    folder = tmp_path / "of somebody"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_without_an_archive_java_gets_no_options() -> None:
    """Java would warn of a missing file."""
    assert spark_session.archive_options() == ""


def test_the_archive_is_named_by_the_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would ignore it, slowly, after an update."""
    before = spark_session.archive_path()
    before.parent.mkdir(parents=True)
    before.write_bytes(b"")
    assert str(before) in spark_session.archive_options()
    monkeypatch.setenv("JAVA_HOME", "elsewhere")
    assert spark_session.archive_options() == ""


def test_folders_may_have_blanks_in_their_names() -> None:
    """Java would parse half of the name as an option, and not start at all."""
    kept = spark_session.archive_path()
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"")
    assert shlex.split(spark_session.archive_options())[0] == f"-XX:SharedArchiveFile={kept}"


def test_a_new_archive_replaces_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption in between would leave none; and two writers would fail."""

    def written(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        Path(command[-1]).write_bytes(b"new")
        return subprocess.CompletedProcess(command, 0, "", "")

    def unlink(path: Path, **_: object) -> None:
        assert spark_session.archive_path().read_bytes() == b"new"
        path.rename(path.with_suffix(".gone"))

    monkeypatch.setattr(subprocess, "run", written)
    monkeypatch.setattr(Path, "unlink", unlink)
    kept = spark_session.archive_path()
    kept.parent.mkdir(parents=True)
    kept.with_name("other.jsa").write_bytes(b"")
    assert class_archive.write_archive() == kept
    assert sorted(each.name for each in kept.parent.iterdir()) == sorted([kept.name, "other.gone"])


def test_a_failure_to_archive_is_reported(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command without an effect would look successful."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EngineError, match="it gave no reason"):
        class_archive.write_archive()
    assert list((caches / "contrada" / "spark").iterdir()) == []


STARTED = """
import sys
from contrada.integrations.spark.spark_session import archive_options, spark_session
log = "-Xlog:class+load:file=" + sys.argv[1]
with spark_session(1, java_options=f"{archive_options()} {log}") as session:
    print(session.range(3).count())
"""


@pytest.mark.long
@pytest.mark.spark
def test_sessions_use_the_archive(tmp_path: Path) -> None:
    """The file would be unused, and sessions start as slowly as before."""
    kept = class_archive.write_archive()
    assert [kept] == list(kept.parent.iterdir())
    log = tmp_path / "classes"
    command = [sys.executable, "-c", STARTED, str(log)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "3\n"
    lines = log.read_text().splitlines()
    shared = sum("shared objects file (top)" in each for each in lines)
    assert shared > len(lines) / 2
