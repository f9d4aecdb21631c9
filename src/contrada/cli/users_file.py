"""`changing` and `write_anew`: changes of a file of users, by one command at a time."""

import fcntl
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from contrada.cli import shared_options as options
from contrada.errors import InputError
from contrada.file_replacement import replace_file
from contrada.net.broker.users import UserFile, Users
from contrada.service.security.secret_files import OWNER_ALONE, write_secret

USERS_FILE: Final = "users.toml"

users_option = options.typed(
    "--users path", options.FILE_NAME, "FILE", "File of users.", USERS_FILE
)
token_file_option = options.file(
    "--token-file",
    "FILE",
    "Write the token to this new file, readable by its owner only, instead of printing it.",
)

_PERIOD: Final = re.compile(r"(\d{1,5})([hdw])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168}


def read_users(path: Path) -> tuple[tomlkit.TOMLDocument, UserFile]:
    """Returns the file with its comments, and its settings. Raises InputError."""
    if not path.exists():
        raise InputError(str(path), "there is no such file; `contrada user add NAME` makes it")
    try:
        return tomlkit.parse(path.read_text("utf-8")), Users.settings(path)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise InputError(str(path), str(error)) from None
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None


def time_of(option: str, text: str) -> datetime:
    """Returns a time, or one that is a period from now. Raises InputError, also if it is over."""
    if (period := _PERIOD.fullmatch(text)) is not None:
        hours = int(period[1]) * _HOURS[period[2]]
        return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        expected = "expected a time with its zone, as 2027-01-31T00:00:00Z, or 12h, 30d, 8w"
        raise InputError(option, f"found {text!r}, {expected}")
    if moment <= datetime.now(UTC):
        raise InputError(option, f"found {text!r}, which is over")
    return moment


def write_with_token(file: Path, text: str, token: str, token_file: str | None) -> None:
    """Replaces a file of users, and writes a token to a new file, or neither. Raises InputError."""
    if token_file is None:
        write_anew(file, text)
        return
    write_secret(token_file, f"{token}\n".encode())
    try:
        write_anew(file, text)
    except BaseException:
        Path(token_file).unlink(missing_ok=True)
        raise


def check_there(path: str, kind: str, known: Collection[str], name: str) -> None:
    """Raises InputError if there is no such user, or group."""
    if name not in known:
        found = ", ".join(known) or "none"
        raise InputError(path, f"there is no {kind} {name!r}; there are: {found}")


@contextmanager
def changing(path: Path) -> Iterator[Path]:
    """Locks a file, that of a symbolic link, against other commands. Raises InputError."""
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
    """Replaces a file; an old one keeps owner and mode. Raises InputError: all is as before."""
    try:
        replace_file(file, [text.encode()], OWNER_ALONE, partial(_keep_owner, file))
    except OSError as error:
        raise InputError(str(file), error.strerror or str(error)) from None


def _keep_owner(file: Path, number: int) -> None:
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
