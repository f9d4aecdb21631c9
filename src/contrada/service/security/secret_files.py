"""Files with secrets: created for their owner alone, with a warning for readable ones."""

import logging
import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

from contrada.errors import InputError

OWNER_ALONE: Final = 0o600

_LOG: Final = logging.getLogger(__name__)


def write_secret(path: Path | str, data: bytes) -> None:
    """Creates a file that only its owner can read. Raises InputError, also if it exists."""
    is_begun = False
    try:
        with open(path, "xb", opener=partial(os.open, mode=OWNER_ALONE)) as file:
            is_begun = True
            file.write(data)
    except FileExistsError:
        raise InputError(str(path), "it is there already; it is not written over") from None
    except OSError as error:
        if is_begun:  # Another attempt would find it there.
            Path(path).unlink(missing_ok=True)
        raise InputError(str(path), error.strerror or str(error)) from None


def read_secret(path: Path | str, bytes_max: int, hint: str = "", *, warns: bool = True) -> bytes:
    """The content of a file, at most one byte more than `bytes_max`.

    Logs a warning if every user of the machine can read it, unless it has done so. Raises
    InputError; `hint` adds advice for a missing file.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(str(path), f"{error.strerror or error}{hint}") from None
    if warns and stat.S_ISREG(mode) and mode & stat.S_IROTH:
        told = "everybody on this machine can read %(path)s, which is secret: chmod 600"
        _LOG.warning(told, {"path": str(path)})
    return content
