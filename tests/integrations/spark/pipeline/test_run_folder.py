"""Folders of results after a kill at any step of a run."""

import os
import shutil
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.integrations.spark.pipeline.run_folder import (
    PROGRESS_FILE,
    RunFolder,
    current_run,
    delete_unfinished,
    lock_output,
    new_run,
    read_state,
    repair,
    unfinished_run,
    write_atomically,
)


class KilledError(Exception):
    """Ends a run in these tests."""


def written(folder: Path, text: str) -> RunFolder:
    """Returns a run that has written its results, and is not shown yet."""
    run = new_run(folder)
    for name in ("matches", "quarantine"):
        Path(run.place(name)).mkdir()
        Path(run.place(name, "part-0")).write_text(text)
    write_atomically(run.path / PROGRESS_FILE, b"{}")
    return run


def shown(folder: Path) -> set[str]:
    """Returns the results that a reader finds."""
    return {(folder / name / "part-0").read_text() for name in ("matches", "quarantine")}


def steps_of(folder: Path, patch: pytest.MonkeyPatch, killed_at: int) -> int:
    """Shows a run that is killed at its nth change of the disk; returns the number of changes."""
    done = 0

    def counted(change: object) -> object:
        def changed(*arguments: object, **options: object) -> object:
            nonlocal done
            if done == killed_at:
                raise KilledError
            done += 1
            return change(*arguments, **options)  # type: ignore[operator]

        return changed

    run = written(folder, "new")
    with patch.context() as inside:
        for name in ("symlink_to", "replace", "unlink", "rename"):
            inside.setattr(Path, name, counted(getattr(Path, name)))
        inside.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            run.show()
        except KilledError:
            return -1
    return done


@pytest.mark.parametrize("before", ["nothing", "a run", "results as they once lay"])
def test_results_are_there_wherever_a_run_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """The results of the previous run would be lost, or mixed with others."""
    killed_at = 0
    while True:
        folder = tmp_path / str(killed_at)
        folder.mkdir()
        if before == "a run":
            written(folder, "old").show()
        elif before != "nothing":
            for name in ("matches", "quarantine"):
                (folder / name).mkdir()
                (folder / name / "part-0").write_text("old")
            repair(folder)
            assert shown(folder) == {"old"}
        done = steps_of(folder, monkeypatch, killed_at)
        if before != "nothing":
            assert shown(folder) in ({"old"}, {"new"})
        repair(folder)
        run = unfinished_run(folder)
        if run is not None:
            if before != "nothing":
                assert shown(folder) == {"old"}
            run.show()
        assert shown(folder) == {"new"}
        assert unfinished_run(folder) is None
        assert len([*(folder / ".runs").iterdir()]) == 1
        if done >= 0:
            break
        killed_at += 1
    assert killed_at > 2


def test_results_of_an_earlier_version_are_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of an earlier version would be lost by an interrupted move."""
    for name in ("matches", "quarantine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-0").write_text("old")
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path.name == "quarantine":
            raise KilledError
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            repair(tmp_path)
    repair(tmp_path)
    assert shown(tmp_path) == {"old"}
    found = current_run(tmp_path)
    assert found is not None
    assert {each.name for each in found.path.iterdir()} == {"matches", "quarantine"}


def test_a_new_run_deletes_unfinished_ones(tmp_path: Path) -> None:
    """Failed runs would fill the disk."""
    written(tmp_path, "old").show()
    written(tmp_path, "failed")
    assert unfinished_run(tmp_path) is not None
    delete_unfinished(tmp_path)
    assert unfinished_run(tmp_path) is None
    assert shown(tmp_path) == {"old"}


def test_a_run_is_the_last_one_although_the_clock_was_set_back(tmp_path: Path) -> None:
    """`--resume` would not find it, or after its end bring back the results before."""
    before = RunFolder(tmp_path, "29991231T235959.999999Z-0a1b2c3d")
    before.path.mkdir(parents=True)
    before.show()
    run = new_run(tmp_path)
    assert unfinished_run(tmp_path) == run
    run.show()
    assert unfinished_run(tmp_path) is None
    assert [each.name for each in run.path.parent.iterdir()] == [run.name]


def test_two_runs_do_not_write_in_one_place(tmp_path: Path) -> None:
    """One run would delete the results of the other."""
    with (
        lock_output(tmp_path),
        pytest.raises(InputError, match="another run"),
        lock_output(tmp_path),
    ):
        pass
    with lock_output(tmp_path):
        pass


def test_files_are_whole(tmp_path: Path) -> None:
    """An incomplete file would be read as the state of a run, or another's file as its own."""
    write_atomically(tmp_path / "a.json", b"[1]")
    assert read_state(tmp_path / "a.json", list[int]) == [1]
    assert read_state(tmp_path / "b.json", list[int]) is None

    def killed(file: int) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KilledError):
            write_atomically(tmp_path / "a.json", b"[2]")
    assert read_state(tmp_path / "a.json", list[int]) == [1]
    (tmp_path / "a.json").write_text("[")
    with pytest.raises(InputError, match="not as it was written"):
        read_state(tmp_path / "a.json", list[int])
