"""Where results lie, so that a run that fails or is killed takes nothing away.

    OUTPUT/matches  ->  .current/matches        links, as for all that a run leaves
    OUTPUT/.current ->  .runs/NAME              which run's results are shown
    OUTPUT/.runs/NAME/                          a run of its own, also one that has not ended
        state.json                              what it has done so far
        outcomes/NUMBER                         of a source, until the run is shown

A run writes below a name of its own. It is shown by one step, a rename of `.current`; what is left
to do then (links, the runs before) is done again by whoever comes next. Small files are written
whole or not at all. A stream has no runs: its folders are shown as they are, one for each batch.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from contrada.errors import InputError

PROGRESS_FILE: Final = "published.json"
"""Where in a run's folder it stands how much of its matches is published."""

SHOWN: Final = ("matches", "quarantine", "patterns", "report.json", "report.html", PROGRESS_FILE)
"""What a run leaves. `patterns` is there where some are described."""

STATE_FILE: Final = "state.json"
OUTCOMES: Final = "outcomes"

_CURRENT: Final = ".current"
_RUNS: Final = ".runs"
_LOCK: Final = ".lock"
_TAKEN: Final = "another run writes there"
_BEFORE: Final = "0"  # Before all times.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run below an output."""

    output: Path
    name: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return (self.output / _RUNS / self.name).absolute()

    def place(self, *names: str) -> str:
        """A place in it, as Spark takes it."""
        return str(self.path.joinpath(*names))

    def begin(self) -> None:
        """Makes it."""
        self.path.mkdir(parents=True)

    def show(self) -> None:
        """Shows this run in place of the one before, which goes."""
        link = self.output / f"{_CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{_RUNS}/{self.name}")
        link.replace(self.output / _CURRENT)
        mend(self.output)


def new_run(output: Path) -> RunFolder:
    """A run that has not begun; names are in the order of time."""
    now = datetime.now(UTC)
    return RunFolder(output, f"{now:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(4)}")


def current_run(output: Path) -> RunFolder | None:
    """The run that is shown, None where there is none."""
    link = output / _CURRENT
    return RunFolder(output, link.readlink().name) if link.is_symlink() else None


def unfinished_run(output: Path) -> RunFolder | None:
    """The last run that has begun and is not shown."""
    shown = current_run(output)
    names = [each.name for each in _runs(output) if shown is None or each.name > shown.name]
    return RunFolder(output, max(names)) if names else None


def forget_unfinished(output: Path) -> None:
    """Frees what runs have left that were not shown."""
    shown = current_run(output)
    for each in _runs(output):
        if shown is None or each.name != shown.name:
            shutil.rmtree(each)


def mend(output: Path) -> None:
    """Does what was left to do when a run was killed while it was shown.

    Raises InputError where the output is that of a stream.
    """
    _take_in(output)
    shown = current_run(output)
    if shown is None:
        return
    for name in SHOWN:
        link = output / name
        if os.path.lexists(shown.path / name) and not link.is_symlink():
            link.symlink_to(f"{_CURRENT}/{name}")
        elif not os.path.lexists(shown.path / name) and link.is_symlink():
            link.unlink()
    if (shown.path / OUTCOMES).is_dir():
        shutil.rmtree(shown.path / OUTCOMES)
    for each in _runs(output):
        if each.name < shown.name:
            shutil.rmtree(each)


def _take_in(output: Path) -> None:
    """Results that lie in the output itself, as runs once left them, become a run."""
    before = output / _RUNS / _BEFORE
    found = [output / name for name in SHOWN]
    found = [each for each in found if each.exists() and not each.is_symlink()]
    check_kind(output, is_stream=False)
    if found and current_run(output) is None:
        before.mkdir(parents=True, exist_ok=True)
        for each in found:
            each.rename(before / each.name)
    if before.is_dir() and current_run(output) is None:
        (output / _CURRENT).symlink_to(f"{_RUNS}/{_BEFORE}")


def check_kind(output: Path, *, is_stream: bool) -> None:
    """Raises InputError for an output of the other kind."""
    if is_stream and current_run(output) is not None:
        raise InputError(str(output), "holds the results of a run, not of a stream")
    if not is_stream and holds_batches(output):
        raise InputError(str(output), "holds the results of a stream, expected those of a run")


def holds_batches(output: Path) -> bool:
    """Whether a stream has written there."""
    return any(any((output / name).glob("batch=*")) for name in SHOWN)


def _runs(output: Path) -> list[Path]:
    folder = output / _RUNS
    return [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []


@contextmanager
def alone_in(output: Path) -> Iterator[None]:
    """Nobody else writes results there. Raises InputError where somebody does."""
    output.mkdir(parents=True, exist_ok=True)
    with (output / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(str(output), _TAKEN) from None
        yield


def check_free(output: Path) -> None:
    """Raises InputError where somebody writes results there now. Only reads."""
    try:
        file = (output / _LOCK).open("rb")
    except FileNotFoundError:
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(str(output), _TAKEN) from None


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, also where the machine ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_whole(path: Path, kind: type[T]) -> T | None:
    """What such a file says, None where there is none. Raises InputError for another content."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not as it was written: {error}") from None
