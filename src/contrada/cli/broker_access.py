"""The access of a command to a broker: its options for TLS and tokens, and the connection."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from contrada import connections
from contrada.cli import shared_options as options
from contrada.errors import InputError
from contrada.limits import PREFIX, read_limits
from contrada.net.wire.endpoint import TCP, ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import TOKEN_CHARS_MAX, name_in
from contrada.service import Service
from contrada.service.security.secret_files import read_secret

TOKEN_BYTES_MAX: Final = 4 * TOKEN_CHARS_MAX
"""Bytes of a file with a token. Beyond it: InputError."""

TOKEN_VARIABLE: Final = "CONTRADA_TOKEN"
"""The environment variable with a token, used without --token-file."""

tls_files: Final = options.joined(
    options.file("--tls-certificate", "PEM", "Certificate to present."),
    options.file("--tls-key", "PEM", "Key of the certificate, if in another file."),
    options.file("--tls-authority", "PEM", "Trusted authority; default: the system's."),
)


def approach_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --token-file and `tls_files`; the command gets `approach`, a `ConnectOptions`."""

    @wraps(command)
    def with_approach(
        *args: Any,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_authority: str | None,
        token_file: str | None,
        **given: Any,
    ) -> None:
        has_tls = tls_certificate or tls_key or tls_authority
        tls = Tls(tls_certificate, tls_key, tls_authority).client_context() if has_tls else None
        command(*args, approach=ConnectOptions(tls, token_from(token_file)), **given)

    text = f"Token that identifies this client; default: the variable {TOKEN_VARIABLE}."
    return options.joined(options.file("--token-file", "FILE", text), tls_files)(with_approach)


def connect(address: str, approach: ConnectOptions = TCP, **given: Any) -> Service:
    """As `contrada.connect`, with the limits of the environment, `CONTRADA_LIMITS_CLIENT_…`.

    Raises InputError for wrong ones.
    """
    if any(name.startswith(PREFIX) for name in os.environ):
        given["limits"] = read_limits({}, os.environ)
    return connections.connect(address, tls=approach.tls, token=approach.token, **given)


def token_from(path: str | None) -> str:
    """Returns the token of a file, or of the environment, or an empty text.

    Raises InputError for a malformed token: another secret would be sent to a broker.
    """
    if path is None:
        source, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            return ""
    else:
        source, token = path, read_secret(path, TOKEN_BYTES_MAX).decode(errors="replace").strip()
        if not token:
            raise InputError(path, "expected a token, found nothing")
    is_one = name_in(token) and token.isprintable() and " " not in token
    if not is_one or "\N{REPLACEMENT CHARACTER}" in token:
        found = "found a private key, " if "PRIVATE KEY" in token else ""
        expected = "expected a token, NAME.SECRET, as `contrada user add` gives it"
        raise InputError(source, f"{found}{expected}")
    return token
