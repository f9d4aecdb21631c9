"""What a command that is a client of a broker needs: access options, a connection, and Ctrl-C."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import click

from contrada.cli import shared_options as options
from contrada.cli.lazy_group import EXIT_INTERRUPTED, EXIT_TERMINATED
from contrada.errors import ConnectionFailedError, InputError
from contrada.limits import PREFIX, read_limits
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import TCP, ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import TOKEN_CHARS_MAX, TokenSource, is_jwt, name_in
from contrada.service import ConnectionState, Service
from contrada.service.security.secret_files import read_secret

Approach: TypeAlias = ConnectOptions
"""The TLS and the token of a client."""

T = TypeVar("T")

TOKEN_BYTES_MAX: Final = 4 * TOKEN_CHARS_MAX
"""Bytes of a file with a token. Beyond it: InputError."""

TOKEN_VARIABLE: Final = "CONTRADA_TOKEN"
"""The environment variable with a token, used without --token-file."""

END_WAIT_S: Final = 1.0
"""Seconds for an orderly end after Ctrl-C, such as closing a connection. Beyond it: the process
ends at once, as at the second Ctrl-C.
"""

SILENT_S: Final = 1.0
"""Seconds of connecting. Beyond it: a terminal shows the address."""

tls_files: Final = options.joined(
    options.file("--tls-certificate", "PEM", "Certificate to present."),
    options.file("--tls-key", "PEM", "Key of the certificate, if in another file."),
    options.file("--tls-authority", "PEM", "Trusted authority; default: the system's."),
)


def approach_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --token-file and `tls_files`; the command gets `approach`, a `ConnectOptions`."""

    @wraps(command)
    def with_approach(*args: Any, token_file: str | None, **given: Any) -> None:
        files = [given.pop(f"tls_{part}") for part in ("certificate", "key", "authority")]
        tls = Tls(*files).client_context() if any(files) else None
        command(*args, approach=ConnectOptions(tls, token_of(token_file)), **given)

    text = f"Token of this client, read at each connection; default: the variable {TOKEN_VARIABLE}."
    return options.joined(options.file("--token-file", "FILE", text), tls_files)(with_approach)


class ConnectionReport:
    """Prints the reason of an interruption on standard error, once, and its end."""

    def __init__(self) -> None:
        self._reason = ""

    def __call__(self, now: ConnectionState) -> None:
        """Prints what a change of the state tells."""
        if now.state == "trying" and now.reason != self._reason:
            click.echo(f"not connected, trying again: {now.reason}", err=True)
            self._reason = now.reason
        elif now.state == "connected" and self._reason:
            click.echo(f"connected again to {now.address}", err=True)
            self._reason = ""


class CommandService(TcpService):
    """The access point of a command: a terminal shows the address of a broker that is silent."""

    async def open(self) -> None:
        if not sys.stderr.isatty():
            return await super().open()
        hint = asyncio.get_running_loop().call_later(SILENT_S, self._show_address)
        try:
            return await super().open()
        finally:
            hint.cancel()

    def _show_address(self) -> None:
        click.echo(f"connecting to {self.reconnection.address}", err=True)


def connect(address: str, approach: ConnectOptions = TCP, **given: Any) -> CommandService:
    """As `contrada.connect`, with limits of the environment, and reports. Raises InputError."""
    if given.get("reconnect", True):
        given["on_connection"] = ConnectionReport()
    if any(name.startswith(PREFIX) for name in os.environ):
        limits = read_limits({}, os.environ)
        given |= {"limits": limits.client or ClientLimits(), "service_limits": limits.service}
    return CommandService(address, options=approach, **given)


def token_of(path: str | None) -> TokenSource:
    """Returns the token; that of a file is read again for each connection, as tokens from outside
    expire. Raises InputError.
    """
    token = token_from(path)
    return token if path is None else partial(token_from, path, warns=False)


def token_from(path: str | None, *, warns: bool = True) -> str:
    """Returns the token, or an empty text. Raises InputError: no other secret is sent."""
    if path is None:
        source, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            return ""
    else:
        content = read_secret(path, TOKEN_BYTES_MAX, warns=warns)
        source, token = path, content.decode(errors="replace").strip()
        if not token:
            raise InputError(path, "expected a token, found nothing")
    is_one = (name_in(token) or is_jwt(token)) and token.isprintable() and " " not in token
    if not is_one or "\N{REPLACEMENT CHARACTER}" in token:
        found = "found a private key, " if "PRIVATE KEY" in token else ""
        expected = "expected a token, NAME.SECRET, as `contrada user add` gives it, or a JWT"
        raise InputError(source, f"{found}{expected}")
    return token


def run(work: Coroutine[Any, Any, T], *, is_endless: bool = False) -> T:
    """Runs a coroutine to its end. Raises KeyboardInterrupt if Ctrl-C ended it.

    SIGTERM ends it in the same way: with status 0 if it `is_endless`, for supervisors of services,
    or as a command that was ended early.
    """
    ended = 0 if is_endless else EXIT_TERMINATED
    statuses = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: ended}
    before = {number: signal.getsignal(number) for number in statuses}
    ended_by: list[int] = []
    ends: list[threading.Timer] = []

    async def interruptible() -> T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None

        def interrupt(number: int, _: object) -> None:
            if ended_by:
                os._exit(statuses[signal.Signals(number)])
            ended_by.append(number)
            loop.call_soon_threadsafe(task.cancel)
            # Not by the loop, which a long computation without an await would block.
            end = threading.Timer(END_WAIT_S, os._exit, (statuses[signal.Signals(number)],))
            end.daemon = True
            end.start()
            ends.append(end)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                # The loop would run its own handlers only when nothing else runs there.
                signal.signal(number, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if signal.SIGTERM in ended_by:
            raise click.exceptions.Exit(ended) from None
        raise KeyboardInterrupt from None
    finally:
        for each in ends:
            each.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


async def lost(service: Service) -> NoReturn:
    """Waits until the broker's connection is lost. Raises ConnectionFailedError."""
    async for state in service.connection_states():
        if state.state == "closed":
            raise ConnectionFailedError(state.address, state.reason)
    raise ConnectionFailedError(service.connection.address, "the service was closed")
