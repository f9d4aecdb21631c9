"""`contrada user`: the users of a broker and their permissions, in a TOML file."""

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import tomlkit
from msgspec import structs
from rich.markup import escape
from rich.table import Table
from tomlkit.exceptions import TOMLKitError

from contrada.cli import shared_options as options
from contrada.cli.table_output import output
from contrada.errors import InputError
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.tokens import new_token
from contrada.service.security.secret_files import write_secret

USERS_FILE: Final = "users.toml"

IN_FORCE: Final = "in force once brokers read the file again: at SIGHUP (systemctl reload contrada)"
"""Remark after a removal: the user may still be connected."""

_PERIOD: Final = re.compile(r"(\d{1,5})([hdw])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168}

users_option = options.typed(
    "--users path", options.FILE_NAME, "FILE", "File of users.", USERS_FILE
)


@click.group()
def user() -> None:
    """Manage the users of a broker and their permissions.

    A broker reads the file with `contrada serve --users FILE`, and again at SIGHUP. Filters give
    the permissions to publish and to subscribe; everything else is refused.

    \b
    contrada user add desk --publish "symbol any" --subscribe "price < 100"
    contrada user list
    contrada user remove desk
    """  # noqa: D301 - click reads the escape


@user.command()
@click.argument("name")
@users_option
@options.repeated("--publish", "FILTER", "Filter of permitted publications. Repeatable.")
@options.repeated("--subscribe", "FILTER", "Filter of permitted subscriptions. Repeatable.")
@options.flag("--everything", "Permit all publications and subscriptions.")
@options.repeated(
    "--publisher publishers",
    "NAME",
    "Permitted publisher name, with the names below it; * is any. Default: the user's name.",
)
@options.repeated("--durable", "NAME", "Permitted name of durable subscriptions, likewise.")
@options.flag(
    "--narrow", "Grant the permitted part of a wider subscription instead of refusing it."
)
@options.flag("--link", "Permit to link as a neighbour.")
@options.flag("--inspect", "Permit to inspect the state and counters of a broker.")
@options.text(
    "--certificate",
    "NAME",
    "Identify the user by this name in a certificate of the broker's authority, without a token.",
    default="",
)
@options.text("--expires", "TIME", "End of the user: 2027-01-31T00:00:00Z, 12h, 30d, 8w.")
@options.flag("--replace", "Replace an existing user, with a new token.")
@options.file(
    "--token-file",
    "FILE",
    "Write the token to this new file, readable by its owner only, instead of printing it.",
)
def add(
    name: str, path: str, everything: bool, replace: bool, token_file: str | None, **given: Any
) -> None:
    """Add a user, and print the token: it is stored nowhere and cannot be printed again.

    The user `anonymous` represents clients without identity, and has no token.

    \b
    contrada user add desk --publish "symbol any" --subscribe "price < 100" --token-file desk.token
    contrada sub --to contradas://broker.example --token-file desk.token "price < 50"
    contrada user add oslo --everything --publisher '*' --durable '*' --link --inspect
    contrada user add anonymous --subscribe "public = true"
    """  # noqa: D301 - click reads the escape
    if everything and (given["publish"] or given["subscribe"]):
        raise click.UsageError("--everything includes --publish and --subscribe")
    has_token = not given["certificate"] and name != "anonymous"
    if token_file is not None and not has_token:
        raise click.UsageError(f"--token-file: the user {name!r} gets no token")
    token, record = new_token(name) if has_token else ("", "")
    settings = UserSettings(
        token=record,
        certificate=given["certificate"],
        publish=everything or [*given["publish"]],
        subscribe=everything or [*given["subscribe"]],
        publishers=[*given["publishers"]] or None,
        durable=[*given["durable"]] or None,
        narrow=given["narrow"],
        link=given["link"],
        inspect=given["inspect"],
        expires=None if given["expires"] is None else _time(given["expires"]),
    )
    with changing(Path(path)) as file:
        document, known = _read(file) if file.exists() else (tomlkit.document(), {})
        if name in known and not replace:
            reason = f"there is a user {name!r} already: --replace gives him a new token"
            raise InputError(path, reason)
        Users.of(path, {**known, name: settings})
        users = document.setdefault("users", tomlkit.table(is_super_table=True))
        users[name] = tomlkit.item(msgspec.to_builtins(settings, builtin_types=(datetime,)))
        if token_file is not None:
            write_secret(token_file, f"{token}\n".encode())
        try:
            write_anew(file, tomlkit.dumps(document))
        except BaseException:
            if token_file is not None:
                Path(token_file).unlink(missing_ok=True)
            raise
    if token and token_file is None:
        click.echo(token)


@user.command(name="list")
@users_option
@options.flag("--json as_json", "One JSON object per line, without tokens.")
def list_(path: str, as_json: bool) -> None:
    """List the users of a file, and their permissions."""
    _, known = _read(Path(path))
    Users.of(path, known)
    if as_json:
        for name, each in known.items():
            shown = structs.replace(each, token="kept" if each.token else "")
            click.echo(msgspec.json.encode({"name": name, **msgspec.to_builtins(shown)}))
        return
    table = Table(*("user", "shows", "publishes", "reads", "besides"), box=None)
    for name, each in known.items():
        table.add_row(*map(escape, (name, *_shown(each))))
    output().print(table)


@user.command()
@click.argument("name")
@users_option
def remove(name: str, path: str) -> None:
    """Remove a user; connections of the user end when brokers read the file again, at SIGHUP.

    `systemctl reload` sends SIGHUP to a broker that is a service.
    """
    with changing(Path(path)) as file:
        document, known = _read(file)
        if name not in known:
            found = ", ".join(known) or "none"
            raise InputError(path, f"there is no user {name!r}; there are: {found}")
        del document["users"][name]
        write_anew(file, tomlkit.dumps(document))
    click.echo(IN_FORCE, err=True)


def _read(path: Path) -> tuple[tomlkit.TOMLDocument, dict[str, UserSettings]]:
    """Returns the file with its comments, and the settings of each user. Raises InputError."""
    if not path.exists():
        raise InputError(str(path), "there is no such file; `contrada user add NAME` makes it")
    try:
        return tomlkit.parse(path.read_text("utf-8")), Users.settings(path)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise InputError(str(path), str(error)) from None
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None


def _shown(settings: UserSettings) -> Sequence[str]:
    shows = "certificate" if settings.certificate else "token" if settings.token else "nothing"
    besides = [
        *(f"as {each}" for each in settings.publishers or ()),
        *(f"durable {each}" for each in settings.durable or ()),
        *(key for key in ("narrow", "link", "inspect") if getattr(settings, key)),
        *([f"until {settings.expires.isoformat()}"] if settings.expires else []),
    ]
    return shows, _filters(settings.publish), _filters(settings.subscribe), ", ".join(besides)


def _filters(permitted: bool | str | list[str]) -> str:
    if isinstance(permitted, bool):
        return "everything" if permitted else "nothing"
    return " or ".join([permitted] if isinstance(permitted, str) else permitted) or "nothing"


def _time(text: str) -> datetime:
    if (period := _PERIOD.fullmatch(text)) is not None:
        hours = int(period[1]) * _HOURS[period[2]]
        return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        expected = "expected a time with its zone, as 2027-01-31T00:00:00Z, or 12h, 30d, 8w"
        raise InputError("--expires", f"found {text!r}, {expected}")
    if moment <= datetime.now(UTC):
        raise InputError("--expires", f"found {text!r}, which is over")
    return moment


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
        handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as written:
                _keep_owner(written.fileno(), file)
                written.write(text)
                written.flush()
                os.fsync(written.fileno())
            os.replace(beside, file)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(str(file), error.strerror or str(error)) from None


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
