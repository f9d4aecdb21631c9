"""`contrada network`: the brokers that a file describes, each as a process of `contrada serve`."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from contrada.cli.lazy import EXIT_INTERRUPTED, EXIT_UNREACHABLE
from contrada.cli.settings import settings_of_network

BROKER_END_WAIT_S: Final = 15.0
"""How long a broker may take to end when its network is stopped: longer than HANDOVER_WAIT_S and
STOP_WAIT_S together. Beyond it: it is killed."""

LOGGED_BYTES_MAX: Final = 2**16
"""Bytes of a line that a broker logs. Beyond it: it is shown as several."""

_STATUS: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 0}


@click.group()
def network() -> None:
    """Start the brokers of a network that a file describes.

    What stands at the top is true of all its brokers, each has a table of its own beside; the keys
    are those of `contrada serve --config`. A neighbour is named by its name here.

    \b
    general = true

    [brokers.oslo]
    port = 7701

    [brokers.riga]
    port = 7702
    neighbours = ["oslo"]

    [brokers.bern]
    port = 7703
    neighbours = ["oslo", { to = "riga", cost = 3 }]

    A machine of its own for a broker takes the same file:
    contrada serve --config network.toml --name bern
    """  # noqa: D301 - click reads the escape


@network.command()
@click.argument("file", type=click.Path(dir_okay=False), metavar="TOML")
def check(file: str) -> None:
    """Look whether a file describes a network, and start nothing."""
    brokers = settings_of_network(Path(file))
    links = sum(len(each.neighbours) for each in brokers.values())
    click.echo(f"{len(brokers)} brokers, {links} links")


@network.command()
@click.argument("file", type=click.Path(dir_okay=False), metavar="TOML")
@click.option("-v", "--verbose", count=True, help="Their logs say more, as those of serve.")
def up(file: str, verbose: int) -> None:
    """Start all brokers that a file describes, and stop them at Ctrl-C or SIGTERM.

    Prints name and address of each when it is ready; what they log stands on standard error,
    behind their names. Where one ends by itself all others are stopped, and the status is 1. At
    SIGHUP they all read the file again. They end in order, the last first; a second Ctrl-C kills.
    They end, too, when this command is killed.

    \b
    contrada network up examples/networks/seven.toml
    """  # noqa: D301 - click reads the escape
    brokers = settings_of_network(Path(file))
    started = _Network(file, ["-" + "v" * verbose] if verbose else [])
    raise click.exceptions.Exit(asyncio.run(started.run(list(brokers))))


class _Network:
    """Brokers as processes."""

    def __init__(self, file: str, options: Sequence[str]) -> None:
        self._serve = [sys.executable, "-m", "contrada", "serve", "--config", file, *options]
        self._serve.append("--until-input-ends")  # When this ends, however it does.
        self._processes: dict[str, Process] = {}
        self._ready: set[str] = set()
        self._work: set[asyncio.Task[None]] = set()

    async def run(self, names: Sequence[str]) -> int:
        """Starts them, waits for the end, and stops them; the status of the command."""
        loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[int] = loop.create_future()
        for number in _STATUS:
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._read_again)
        try:
            for name in names:
                await self._start(name)
            return await self._ending
        finally:
            for name in reversed(self._processes):
                await self._stop(self._processes[name])
            await asyncio.gather(*self._work)

    async def _start(self, name: str) -> None:
        command = [*self._serve, "--name", name]
        # In a session of its own Ctrl-C does not come to it: it is stopped when it is its turn.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self._processes[name] = process
        assert process.stdout is not None
        assert process.stderr is not None
        for each in (
            self._show(name, process.stdout, f"{name} ", err=False),
            self._show(name, process.stderr, f"{name} | ", err=True),
            self._watch(name, process),
        ):
            self._work.add(asyncio.create_task(each))

    async def _show(
        self, name: str, stream: asyncio.StreamReader, before: str, *, err: bool
    ) -> None:
        """Shows the lines of a broker until it has ended."""
        rest = b""
        while data := await stream.read(LOGGED_BYTES_MAX):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LOGGED_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            if lines and not err:
                self._ready.add(name)
            for line in lines:
                self._say(before + line.decode(errors="replace"), err=err)
        if rest:
            self._say(before + rest.decode(errors="replace"), err=err)

    def _say(self, line: str, *, err: bool) -> None:
        try:
            click.echo(line, err=err)
        except OSError as error:  # Nobody reads it any more. What the brokers say is still read.
            if not self._ending.done():
                self._ending.set_exception(error)

    async def _watch(self, name: str, process: Process) -> None:
        status = await process.wait()
        if not self._ending.done():
            self._ending.set_result(EXIT_UNREACHABLE)
            how = f"status {status}" if status >= 0 else signal.Signals(-status).name
            self._say(f"contrada: error: {name} ended by itself: {how}", err=True)

    def _end(self, number: signal.Signals) -> None:
        if not self._ending.done():
            self._ending.set_result(_STATUS[number])
        elif number is signal.SIGINT:
            self._tell(signal.SIGKILL, self._processes)

    def _read_again(self) -> None:
        """Of those that are ready: the others read the file yet, and SIGHUP would end them."""
        self._tell(signal.SIGHUP, self._ready)

    def _tell(self, number: signal.Signals, names: Iterable[str]) -> None:
        for name in names:
            if self._processes[name].returncode is None:
                self._processes[name].send_signal(number)

    async def _stop(self, process: Process) -> None:
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(BROKER_END_WAIT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
