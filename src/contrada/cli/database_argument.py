"""Check of arguments that name a database: a password in them would be visible to all users."""

from typing import Any
from urllib.parse import parse_qsl

import click

from contrada.errors import InputError


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
