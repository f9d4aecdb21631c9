"""`Processes`: several processes that one command starts, shows and stops."""

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click

from contrada.cli.lazy_group import EXIT_INTERRUPTED, EXIT_UNREACHABLE

LOGGED_BYTES_MAX: Final = 2**16
"""Bytes of a logged line. Beyond it: it is printed as several lines."""

_STATUS: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: 0}

OnLine = Callable[[str, str], None]
"""Called with the name of a process and a line of its standard error."""


class Processes:
    """Processes by name, which run until one of them ends, or the command is interrupted.

    Their output is shown; `on_error_line` gets their standard error instead. They are stopped in
    reverse order, within `end_wait_s`; then they are killed. A second Ctrl-C kills all. The
    standard input of each is a pipe that closes with this process.
    """

    def __init__(self, end_wait_s: float, on_error_line: OnLine | None = None) -> None:
        self._end_wait_s = end_wait_s
        self._on_error_line = on_error_line or (
            lambda name, line: self.print_line(f"{name} | {line}", err=True)
        )
        self._processes: dict[str, Process] = {}
        self._work: set[asyncio.Task[None]] = set()
        self.ready: set[str] = set()
        """Processes with output on standard output."""

    async def run(self, commands: Iterable[tuple[str, Sequence[str]]]) -> int:
        """Starts the processes, waits for the end, and stops them; returns the status."""
        loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[int] = loop.create_future()
        for number in _STATUS:
            loop.add_signal_handler(number, self._end, number)
        # Only ready processes: SIGHUP would end the others, which read the file now.
        loop.add_signal_handler(signal.SIGHUP, self._signal, signal.SIGHUP, self.ready)
        try:
            for name, command in commands:
                await self.start(name, command)
            return await self._ending
        finally:
            for name in reversed(self._processes):
                await self._stop(self._processes[name])
            await asyncio.gather(*self._work)

    async def start(self, name: str, command: Sequence[str]) -> None:
        """Starts one more process. Raises OSError."""
        # A session of its own keeps Ctrl-C from it: processes are stopped in reverse order.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self._processes[name] = process
        assert process.stdout is not None
        assert process.stderr is not None
        for each in (
            self._show(name, process.stdout, self._print_output),
            self._show(name, process.stderr, self._on_error_line),
            self._watch(name, process),
        ):
            self._work.add(asyncio.create_task(each))

    def print_line(self, line: str, *, err: bool) -> None:
        """Prints a line."""
        try:
            click.echo(line, err=err)
        except OSError as error:  # The reader is closed; the pipes must still be drained.
            if not self._ending.done():
                self._ending.set_exception(error)

    def _print_output(self, name: str, line: str) -> None:
        self.ready.add(name)
        self.print_line(f"{name} {line}", err=False)

    async def _show(self, name: str, stream: asyncio.StreamReader, show: OnLine) -> None:
        rest = b""
        while data := await stream.read(LOGGED_BYTES_MAX):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LOGGED_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                show(name, line.decode(errors="replace"))
        if rest:
            show(name, rest.decode(errors="replace"))

    async def _watch(self, name: str, process: Process) -> None:
        status = await process.wait()
        if not self._ending.done():
            self._ending.set_result(EXIT_UNREACHABLE)
            how = f"status {status}" if status >= 0 else signal.Signals(-status).name
            self.print_line(f"contrada: error: {name} ended by itself: {how}", err=True)

    def _end(self, number: signal.Signals) -> None:
        if not self._ending.done():
            self._ending.set_result(_STATUS[number])
        elif number is signal.SIGINT:
            self._signal(signal.SIGKILL, self._processes)

    def _signal(self, number: signal.Signals, names: Iterable[str]) -> None:
        for name in names:
            if self._processes[name].returncode is None:
                self._processes[name].send_signal(number)

    async def _stop(self, process: Process) -> None:
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self._end_wait_s):
                await process.wait()
        except TimeoutError:
            process.kill()
