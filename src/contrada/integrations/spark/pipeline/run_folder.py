"""`RunFolder`: the results of runs, such that a failed or killed run loses none.

    OUTPUT/matches  ->  .current/matches        links, as for all results of a run
    OUTPUT/.current ->  .runs/NAME              the shown run
    OUTPUT/.runs/NAME/                          a run of its own, also an unfinished one
        state.json                              its finished sources
        outcomes/NUMBER                         outcomes of a source, until the run is shown

One rename of `.current` shows the results of a run; the next run repeats missing steps (links,
removal of former runs) after an interruption. A stream has no runs, but a folder for each batch.

At an address there are no links, and `.current` is a file that names the shown run. Its results are
moved to their places; the next run completes an interrupted move. So results are never lost, but
readers may find none during the move.
"""

import fcntl
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import IO, Any, Final, TypeVar

import msgspec

from contrada.errors import ContradaError, InputError
from contrada.file_replacement import replace_file
from contrada.integrations.spark.pipeline.hadoop_paths import Folder, HadoopPath, move_into

PROGRESS_FILE: Final = "published.json"
"""The file in a run's folder with the published counts."""

SHOWN: Final = ("matches", "quarantine", "patterns", "report.json", "report.html", PROGRESS_FILE)
"""The results of a run. `patterns` exists for a pipeline with patterns."""

STATE_FILE: Final = "state.json"
OUTCOMES: Final = "outcomes"

_CURRENT: Final = ".current"
_RUNS: Final = ".runs"
_LOCK: Final = ".lock"
_TAKEN: Final = "another run writes there"
_BEFORE: Final = "0"  # Sorts before all times.
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"

LOCK_LEASE_S: Final = 60.0
"""Seconds for which a lease holds without renewal. Beyond it: another run may take it."""

LOCK_RENEWED_S: Final = LOCK_LEASE_S / 6
"""Seconds between renewals of a lease."""

_LOG: Final = logging.getLogger("contrada.integrations.spark")

T = TypeVar("T")


class _Shown(msgspec.Struct, frozen=True):
    """The run that an address shows, and whether the former results are deleted."""

    run: str
    is_clear: bool = False


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run below an output; with `is_placed` it is the output itself."""

    output: Folder
    name: str
    is_placed: bool = False

    @property
    def path(self) -> Folder:
        """The path of the folder."""
        output = self.output.absolute()
        return output if self.is_placed else output / _RUNS / self.name

    def place(self, *names: str) -> str:
        """Returns a path below it, for Spark."""
        return "/".join((str(self.path), *names))

    def show(self) -> "RunFolder":
        """Shows this run in place of the previous one, which is deleted; returns its new folder."""
        if isinstance(self.output, HadoopPath):
            _write_current(self.output, _Shown(self.name))
            repair(self.output)
            return replace(self, is_placed=True)
        link = self.output / f"{_CURRENT}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(f"{_RUNS}/{self.name}")
        link.replace(self.output / _CURRENT)
        repair(self.output)
        return self


def new_run(output: Folder) -> RunFolder:
    """Begins a run; its name sorts after the shown one, also if the clock was set back since."""
    now, shown = datetime.now(UTC), current_run(output)
    if shown is not None and shown.name != _BEFORE:
        began = datetime.strptime(shown.name.partition("-")[0], _STAMP).replace(tzinfo=UTC)
        now = max(now, began + timedelta(microseconds=1))
    run = RunFolder(output, f"{now:{_STAMP}}-{secrets.token_hex(4)}")
    run.path.mkdir(parents=True)
    return run


def current_run(output: Folder) -> RunFolder | None:
    """Returns the shown run, if any."""
    if isinstance(output, HadoopPath):
        shown = read_state(output / _CURRENT, _Shown)
        return RunFolder(output, shown.run, is_placed=True) if shown else None
    link = output / _CURRENT
    return RunFolder(output, link.readlink().name) if link.is_symlink() else None


def unfinished_run(output: Folder) -> RunFolder | None:
    """Returns the last run that has begun and is not shown."""
    shown = current_run(output)
    names = [each.name for each in _runs(output) if shown is None or each.name > shown.name]
    return RunFolder(output, max(names)) if names else None


def delete_unfinished(output: Folder) -> None:
    """Deletes runs that were not shown."""
    shown = current_run(output)
    for each in _runs(output):
        if shown is None or each.name != shown.name:
            delete_folder(each)


def repair(output: Folder) -> None:
    """Completes the showing of a killed run. Raises InputError for the output of a stream."""
    if isinstance(output, HadoopPath):
        check_kind(output, is_stream=False)
        _move_results(output)
        return
    _adopt_results(output)
    shown = current_run(output)
    if shown is None:
        return
    for name in SHOWN:
        link, is_there = output / name, os.path.lexists(output / _RUNS / shown.name / name)
        if is_there and not link.is_symlink():
            link.symlink_to(f"{_CURRENT}/{name}")
        elif not is_there and link.is_symlink():
            link.unlink()
    _delete_earlier(output, shown.name)


def _move_results(output: HadoopPath) -> None:
    shown = read_state(output / _CURRENT, _Shown)
    if shown is None:
        return
    run = output / _RUNS / shown.run
    if run.exists():
        if not shown.is_clear:
            for name in SHOWN:
                (output / name).unlink(missing_ok=True)
            # From now on, results there belong to this run.
            _write_current(output, _Shown(shown.run, is_clear=True))
        for name in SHOWN:
            if (run / name).exists():
                move_into(run / name, output / name)
        delete_folder(run)
    _delete_earlier(output, shown.run)


def _write_current(output: HadoopPath, shown: _Shown) -> None:
    write_atomically(output / _CURRENT, msgspec.json.encode(shown))


def _delete_earlier(output: Folder, name: str) -> None:
    outcomes = output / _RUNS / name / OUTCOMES
    if outcomes.is_dir():
        delete_folder(outcomes)
    for each in _runs(output):
        if each.name < name:
            delete_folder(each)


def delete_folder(folder: Folder) -> None:
    """Deletes a folder with its contents."""
    if isinstance(folder, HadoopPath):
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _adopt_results(output: Path) -> None:
    """Makes a run of results in the output itself, as versions before 0.1 wrote them."""
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


def check_kind(output: Folder, *, is_stream: bool) -> None:
    """Raises InputError for an output of the other kind."""
    if is_stream and current_run(output) is not None:
        raise InputError(str(output), "holds the results of a run, not of a stream")
    if not is_stream and holds_batches(output):
        raise InputError(str(output), "holds the results of a stream, expected those of a run")


def holds_batches(output: Folder) -> bool:
    """Whether a stream has written there."""
    return any(any((output / name).glob("batch=*")) for name in SHOWN)


def _runs(output: Folder) -> list[Folder]:
    folder = output / _RUNS
    return [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []


# --- locks ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Lease:
    """The right to write at an address, where files cannot be locked: a file that is created
    exclusively, and rewritten by its holder. One that was not renewed for long, by the file
    system's own clock, belongs to a killed process, and is taken over.
    """

    file: HadoopPath
    token: bytes = field(default_factory=lambda: secrets.token_hex(8).encode())
    turn: threading.Lock = field(default_factory=threading.Lock)

    def take(self, taken: str) -> None:
        """Takes the lease. Raises InputError with the message `taken` if another run holds it."""
        if not self._make():
            known = self._known()
            if self._age_ms() < LOCK_LEASE_S * 1000 or self._known() != known:
                raise InputError(str(self.file.parent), taken)
            self.file.unlink(missing_ok=True)
            if not self._make():
                raise InputError(str(self.file.parent), taken)

    def renew(self) -> None:
        """Renews it. Raises InputError if another run has taken it."""
        with self.turn:  # A read during a write could be incomplete.
            if not self.is_own():
                raise InputError(str(self.file.parent), "another run has taken the lock")
            self.file.write_bytes(self.token)

    def is_own(self) -> bool:
        """Whether no other run has taken it."""
        return self._known() == self.token

    def _make(self) -> bool:
        with suppress(FileExistsError):
            self.file.write_bytes(self.token, is_new=True)
            return True
        return False

    def _known(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self.file.read_bytes()
        return None

    def _age_ms(self) -> float:
        """Returns the time since its renewal, by the file system's clock."""
        now = self.file.parent / f"{self.file.name}.{self.token.decode()}"
        now.write_bytes(b"")
        ms, renewed_ms = now.modified_ms(), self.file.modified_ms()
        now.unlink()
        return LOCK_LEASE_S * 1000 if ms is None or renewed_ms is None else ms - renewed_ms


@contextmanager
def hold_lease(file: HadoopPath, taken: str) -> Iterator[Callable[[], None]]:
    """Holds a lease, renewed by a thread; yields a check that raises InputError after a loss."""
    lease, ended = Lease(file), threading.Event()
    lease.take(taken)

    def keep() -> None:
        while not ended.wait(LOCK_RENEWED_S):
            try:
                lease.renew()
            except ContradaError as error:  # It is tried again.
                _LOG.warning("%(reason)s", {"reason": error})

    keeper = threading.Thread(target=keep, name="lease", daemon=True)
    keeper.start()
    try:
        yield lease.renew
    finally:
        ended.set()
        keeper.join()
        try:
            if lease.is_own():
                file.unlink(missing_ok=True)
        except ContradaError as error:  # The error of the block is more important.
            _LOG.warning("the lock ends by itself: %(reason)s", {"reason": error})


@contextmanager
def lock_output(output: Folder) -> Iterator[Callable[[], None]]:
    """Holds the lock of an output. Raises InputError if another process holds it. Yields a check to
    call before results are replaced: it raises InputError if the lock was lost at an address.
    """
    if isinstance(output, HadoopPath):
        with hold_lease(output / _LOCK, _TAKEN) as check:
            yield check
        return
    output.mkdir(parents=True, exist_ok=True)
    with (output / _LOCK).open("w") as file:
        _lock(file, fcntl.LOCK_EX, output)
        yield lambda: None


def check_unlocked(output: Folder) -> None:
    """Raises InputError while another run is writing. Only reads."""
    if isinstance(output, HadoopPath):
        renewed_ms = (output / _LOCK).modified_ms()  # compared with this machine's clock
        if renewed_ms is not None and time() * 1000 - renewed_ms < LOCK_LEASE_S * 1000:
            raise InputError(str(output), _TAKEN)
    elif (output / _LOCK).exists():
        with (output / _LOCK).open("rb") as file:
            _lock(file, fcntl.LOCK_SH, output)


def _lock(file: IO[Any], how: int, output: Path) -> None:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(str(output), _TAKEN) from None


def write_atomically(path: Folder, content: bytes) -> None:
    """Writes a file atomically, also across a crash of the machine."""
    if isinstance(path, HadoopPath):
        path.write_atomically(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [content])


def read_state(path: Folder, kind: type[T]) -> T | None:
    """Returns the content of such a file, None without one. Raises InputError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not as it was written: {error}") from None
