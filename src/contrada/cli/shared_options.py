"""Types and options that several commands share.

A command with `extension_option` also loads the extensions of installed packages. Arguments that
name a database have `without_password`: all users of the machine would see a password in them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import click

from contrada.errors import InputError
from contrada.model.extensions.extension_loader import load, load_entry_points
from contrada.net.wire.address import PORT_DEFAULT

F = TypeVar("F", bound=Callable[..., Any])

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE: Final = click.Path(dir_okay=False, path_type=Path)
FILE_NAME: Final = click.Path(dir_okay=False)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
COUNT: Final = click.IntRange(1)
PORT: Final = click.IntRange(0, 65535)
SECONDS: Final = click.FloatRange(0, min_open=True)

ADDRESS_DEFAULT: Final = f"contrada://127.0.0.1:{PORT_DEFAULT}"


def seconds_option(command: F) -> F:
    """Adds the option --seconds."""
    added = click.option("--seconds", type=SECONDS, metavar="S", help="End after S seconds.")
    return added(command)


def end_options(command: F) -> F:
    """Adds the options --count, --timeout and --seconds to commands that print notifications."""
    silent = "End after S seconds without a notification."
    command = click.option("--timeout", type=SECONDS, metavar="S", help=silent)(
        seconds_option(command)
    )
    most = "End after N notifications."
    return click.option("--count", type=COUNT, metavar="N", help=most)(command)


def _load(ctx: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> Any:
    load_entry_points()
    for name in names:
        load(name)


# Loaded while the arguments are read, so before any filter is.
extension_option: Final = click.option(
    "--extension",
    metavar="MODULE:CLASS",
    multiple=True,
    expose_value=False,
    callback=_load,
    help="Load operators from a module; repeatable. Runs the module's code.",
)


def without_password(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Returns the value unchanged, for `callback=`. Raises InputError for a URL with a password."""
    for each in (value,) if isinstance(value, str) else value or ():
        if has_password(each):
            raise InputError(
                parameter.get_error_hint(None).strip("'"),
                "found a password, which everybody on this machine sees among the processes; "
                "expected a URL without one, and the password in the variable PGPASSWORD, a file "
                "(PGPASSFILE, ?service=NAME), or for `contrada serve` in the file of --config",
            )
    return value


def has_password(place: str) -> bool:
    """Whether a place is a URL with a password, in its address or as a parameter."""
    if "://" not in place:
        return False
    head, _, query = place.partition("?")
    who, at, _ = head.partition("://")[2].rpartition("@")
    if at and ":" in who:
        return True
    names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
    return bool(names & {"password", "sslpassword"})
