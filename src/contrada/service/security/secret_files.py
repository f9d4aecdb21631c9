"""Files with secrets: made for their owner alone, and told of where everybody reads them."""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from contrada.errors import InputError

OWNER_ALONE: Final = 0o600

_LOG: Final = logging.getLogger(__name__)


def write_secret(path: Path | str, data: bytes) -> None:
    """Makes a file that only its owner reads. Raises InputError, also where there is one."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ALONE)
        with os.fdopen(number, "wb") as file:
            file.write(data)
    except FileExistsError:
        raise InputError(str(path), "it is there already; it is not written over") from None
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None


def read_secret(path: Path | str, bytes_max: int, hint: str = "") -> bytes:
    """What is in a file, at most one byte more than `bytes_max`.

    Where everybody on the machine reads it that is logged. Raises InputError; `hint` says more of
    why there is none.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(str(path), f"{error.strerror or error}{hint}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        _LOG.warning(
            "everybody on this machine can read %(path)s, which is secret: chmod 600",
            {"path": str(path)},
        )
    return content
