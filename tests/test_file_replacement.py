"""A file is replaced as a whole, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from contrada.file_replacement import replace_file


def test_a_file_is_replaced_when_the_new_one_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of the machine the file would be empty, or others could read a secret."""
    path, steps = tmp_path / "a", list[str]()
    path.write_text("old")

    def sync(number: int) -> None:
        assert stat.S_IMODE(os.fstat(number).st_mode) == 0o600
        steps.append(f"on disk {os.fstat(number).st_size}, {path.read_text()}")

    monkeypatch.setattr(os, "fsync", sync)
    status = replace_file(
        path,
        [b"new", memoryview(b"er")],
        0o600,
        lambda number: steps.append(f"prepared {os.fstat(number).st_size}"),
        lambda: steps.append(f"checked, {path.read_text()}"),
    )
    assert steps == ["prepared 0", "on disk 5, old", "checked, old"]
    assert path.read_text() == "newer"
    assert (status.st_ino, status.st_size) == (path.stat().st_ino, 5)


def test_the_status_is_that_of_the_closed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where closing sets the time of a file, a feed would take its own for that of another run."""
    path, numbers = tmp_path / "a", list[int]()
    stat_of = Path.stat

    def closed(self: Path) -> os.stat_result:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(numbers.pop())
        return stat_of(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", closed)
        status = replace_file(path, [b"new"], prepare=numbers.append)
    assert (status.st_size, numbers) == (3, [])


@pytest.mark.parametrize("step", ["prepare", "check"])
def test_an_error_leaves_the_old_file_alone(tmp_path: Path, step: str) -> None:
    """A full disk would lose it, or leave parts of new ones beside it."""
    path = tmp_path / "a"
    path.write_text("old")

    def fail(*_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_file(path, [b"new"], **{step: fail})  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_old_files_of_killed_programs_are_removed(tmp_path: Path) -> None:
    """They would stay for ever; or a program lose the file that it writes now."""
    old, new, of_another = (
        tmp_path / f".{name}.0123456{digit}.new"
        for name, digit in (("a[1]", 7), ("a[1]", 8), ("a1", 9))
    )
    for each in (old, new, of_another):
        each.touch()
    for each in (old, of_another):
        os.utime(each, (0, 0))
    replace_file(tmp_path / "a[1]", [b""])
    assert {*tmp_path.iterdir()} == {tmp_path / "a[1]", new, of_another}
