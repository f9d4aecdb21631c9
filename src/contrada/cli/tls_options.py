"""The options that say whom a command trusts over TLS, and who it is itself."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from contrada.errors import InputError
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import TOKEN_CHARS_MAX, name_in
from contrada.service.security.secret_files import read_secret

F = TypeVar("F", bound=Callable[..., Any])

PEM: Final = click.Path(dir_okay=False)

TOKEN_BYTES_MAX: Final = 4 * TOKEN_CHARS_MAX
"""Bytes of a file with a token. Beyond it: InputError."""

TOKEN_VARIABLE: Final = "CONTRADA_TOKEN"
"""The environment variable that holds a token, where no file is named."""


def tls_files(command: F) -> F:
    """Adds the options --tls-certificate, --tls-key and --tls-authority."""
    for name, said in (
        ("--tls-authority", "Trust who has a certificate of it; else whom the system trusts."),
        ("--tls-key", "The key of the certificate, where it is in a file of its own."),
        ("--tls-certificate", "Be this one to the other side."),
    ):
        command = click.option(name, type=PEM, metavar="PEM", help=said)(command)
    return command


def approach_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a client, and its token: the command gets `approach`, an `ConnectOptions`."""

    @wraps(command)
    def with_approach(
        *args: Any,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_authority: str | None,
        token_file: str | None,
        **options: Any,
    ) -> None:
        has_tls = tls_certificate or tls_key or tls_authority
        tls = Tls(tls_certificate, tls_key, tls_authority).client_context() if has_tls else None
        command(*args, approach=ConnectOptions(tls, token_from(token_file)), **options)

    token = click.option(
        "--token-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=f"Says whose connection it is; else the variable {TOKEN_VARIABLE} does, if it is set.",
    )
    return token(tls_files(with_approach))


def token_from(path: str | None) -> str:
    """The token in a file, or else in the environment; empty where there is none.

    Raises InputError.
    """
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        if token:
            _check_form(TOKEN_VARIABLE, token)
        return token
    data = read_secret(path, TOKEN_BYTES_MAX)
    token = data.decode(errors="replace").strip()
    if not token:
        raise InputError(path, "expected a token, found nothing")
    _check_form(path, token)
    return token


def _check_form(source: str, token: str) -> None:
    """Raises InputError for what is no token: else another secret would be sent to a broker."""
    is_one = name_in(token) and token.isprintable() and " " not in token
    if not is_one or "\N{REPLACEMENT CHARACTER}" in token:
        found = "found a private key, " if "PRIVATE KEY" in token else ""
        expected = "expected a token, NAME.SECRET, as `contrada user add` gives it"
        raise InputError(source, f"{found}{expected}")
