"""Types and options that several commands share.

A command with `extension_option` also loads the extensions of installed packages. Arguments that
name a database have `without_password`: all users of the machine would see a password in them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import click
from click.core import ParameterSource

from contrada.errors import InputError
from contrada.model.extensions.extended_type import load, load_entry_points
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


def joined(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Returns a decorator that adds several options, in their order in the help."""

    def decorate(command: F) -> F:
        for each in reversed(several):
            command = each(command)
        return command

    return decorate


def text(
    names: str, metavar: str | None, help_text: str, default: str | None = None
) -> Callable[[F], F]:
    """Returns an option with a text. `names` are the flag and, if it has another, its parameter."""
    return click.option(
        *names.split(), default=default, show_default=False, metavar=metavar, help=help_text
    )


def repeated(names: str, metavar: str, help_text: str, **more: Any) -> Callable[[F], F]:
    """Returns an option with any number of texts; `names` as of `text`, `more` as of click."""
    return click.option(*names.split(), multiple=True, metavar=metavar, help=help_text, **more)


def typed(
    names: str, kind: Any, metavar: str | None, help_text: str, default: Any = None
) -> Callable[[F], F]:
    """Returns an option with a value of a type; `names` as of `text`."""
    return click.option(*names.split(), type=kind, metavar=metavar, help=help_text, default=default)


def file(names: str, metavar: str, help_text: str, **more: Any) -> Callable[[F], F]:
    """Returns an option with the name of a file; `names` as of `text`, `more` as of click."""
    # Without a default: the newest click takes None for one, also of a required option.
    return click.option(*names.split(), type=FILE_NAME, metavar=metavar, help=help_text, **more)


def verbose(help_text: str) -> Callable[[F], F]:
    """Returns the options -v and --verbose, which are counted."""
    return click.option("-v", "--verbose", count=True, show_default=False, help=help_text)


def flag(names: str, help_text: str) -> Callable[[F], F]:
    """Returns an option without a value; `names` as of `text`."""
    return click.option(*names.split(), is_flag=True, help=help_text)


broker_option: Final = click.option(
    "--to", "--at", "to", default=ADDRESS_DEFAULT, metavar="ADDRESS", help="The broker."
)
"""The address of the broker that a command is a client of; `--at` is of version 0.1."""

seconds_option: Final = click.option(
    "--seconds", type=SECONDS, metavar="S", help="End after S seconds."
)
end_options: Final = joined(
    click.option("--count", type=COUNT, metavar="N", help="End after N notifications."),
    click.option(
        "--timeout", type=SECONDS, metavar="S", help="End after S seconds without a notification."
    ),
    seconds_option,
)
"""The options of commands that print notifications."""


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


def without_password(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Returns the value unchanged, for `callback=`. Raises InputError for a URL with a password.

    Other users of the machine cannot read a variable, so its value may have one.
    """
    if ctx.get_parameter_source(parameter.name or "") is ParameterSource.ENVIRONMENT:
        return value
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
