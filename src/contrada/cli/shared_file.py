"""Replacement of a file that people and commands both edit, by one process at a time.

Owner and mode stay. The target of a symbolic link is changed in place of the link.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contrada.errors import InputError


@contextmanager
def changing(path: Path) -> Iterator[Path]:
    """Locks a file against other commands. Raises InputError."""
    file = path.resolve()
    try:
        # Locks the folder: a change replaces the file, and a lock file would be left behind.
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(str(path), f"{file.parent}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(folder)


def write_anew(file: Path, text: str) -> None:
    """Replaces a file as a whole.

    An old file keeps its owner and mode; a new one is its owner's alone.

    Raises InputError, and has changed nothing.
    """
    try:
        handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise InputError(str(file), error.strerror or str(error)) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            _keep_owner(written.fileno(), file)
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        os.replace(beside, file)
    except BaseException as error:
        Path(beside).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(str(file), error.strerror or str(error)) from None
        raise


def _keep_owner(number: int, file: Path) -> None:
    try:
        old = file.stat()
    except FileNotFoundError:
        return
    new = os.fstat(number)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(number, old.st_uid, old.st_gid)
        except PermissionError:
            # Readers such as a broker of another user would lose access otherwise.
            reason = f"it belongs to {old.st_uid}:{old.st_gid}, and has to be changed as that"
            raise InputError(str(file), f"{reason}, or as root") from None
    os.fchmod(number, stat.S_IMODE(old.st_mode))
