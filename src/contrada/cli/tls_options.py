"""The options for TLS and tokens of a client."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from contrada.cli.shared_options import FILE_NAME
from contrada.errors import InputError
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import TOKEN_CHARS_MAX, name_in
from contrada.service.security.secret_files import read_secret

F = TypeVar("F", bound=Callable[..., Any])

TOKEN_BYTES_MAX: Final = 4 * TOKEN_CHARS_MAX
"""Bytes of a file with a token. Beyond it: InputError."""

TOKEN_VARIABLE: Final = "CONTRADA_TOKEN"
"""The environment variable with a token, used without --token-file."""


def tls_files(command: F) -> F:
    """Adds the options --tls-certificate, --tls-key and --tls-authority."""
    for name, text in (
        ("--tls-authority", "Trusted authority; default: the system's."),
        ("--tls-key", "Key of the certificate, if in another file."),
        ("--tls-certificate", "Certificate to present."),
    ):
        command = click.option(name, type=FILE_NAME, metavar="PEM", help=text)(command)
    return command


def approach_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds them and --token-file; the command gets `approach`, a `ConnectOptions`."""

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
        type=FILE_NAME,
        metavar="FILE",
        help=f"Token that identifies this client; default: the variable {TOKEN_VARIABLE}.",
    )
    return token(tls_files(with_approach))


def token_from(path: str | None) -> str:
    """Returns the token of a file, or of the environment, or an empty text.

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
    """Raises InputError for a malformed token: another secret would be sent to a broker."""
    is_one = name_in(token) and token.isprintable() and " " not in token
    if not is_one or "\N{REPLACEMENT CHARACTER}" in token:
        found = "found a private key, " if "PRIVATE KEY" in token else ""
        expected = "expected a token, NAME.SECRET, as `contrada user add` gives it"
        raise InputError(source, f"{found}{expected}")
