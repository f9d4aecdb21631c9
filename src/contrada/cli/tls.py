"""The options that say whom a command trusts over TLS, and who it is itself."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from contrada.net.tls import Tls

F = TypeVar("F", bound=Callable[..., Any])

PEM: Final = click.Path(dir_okay=False)


def tls_files(command: F) -> F:
    """Adds the options --tls-certificate, --tls-key and --tls-authority."""
    for name, said in (
        ("--tls-authority", "Trust who has a certificate of it; else whom the system trusts."),
        ("--tls-key", "The key of the certificate, where it is in a file of its own."),
        ("--tls-certificate", "Be this one to the other side."),
    ):
        command = click.option(name, type=PEM, metavar="PEM", help=said)(command)
    return command


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a client: the command is called with `tls`, a context or None."""

    @wraps(command)
    def with_context(
        *args: Any,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_authority: str | None,
        **options: Any,
    ) -> None:
        has_tls = tls_certificate or tls_key or tls_authority
        tls = Tls(tls_certificate, tls_key, tls_authority).going() if has_tls else None
        command(*args, tls=tls, **options)

    return tls_files(with_context)
