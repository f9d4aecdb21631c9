"""The programs of the demo: brokers, and the pipeline.

They are the commands of a user. Each is ended when its block ends, in any way: first by a signal,
then, after a time, killed with all its children.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import msgspec

from contrada.errors import ContradaError

CONTRADA = Path(sys.executable).with_name("contrada")
START_WAIT_S = 20.0
PIPELINE_WAIT_S = 180.0
END_WAIT_S = 10.0


class DemoError(ContradaError):
    """A failure of one of the demo's programs."""


class SourceSummary(msgspec.Struct, frozen=True):
    """The pipeline's summary of a source."""

    source: str
    read: int
    bad: int
    published: int
    seconds: float


class PipelineSummary(msgspec.Struct, frozen=True):
    """The pipeline's summary, as far as the demo reads it.

    `seconds` leaves out the start of its engine; `wall_s` is the time of the whole command.
    """

    sources: list[SourceSummary]
    publish_seconds: float
    seconds: float
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """A running broker, and the lines that it printed: its addresses."""

    process: Process
    lines: list[str]


@asynccontextmanager
async def started_broker(*options: str, lines: int) -> AsyncIterator[Started]:
    """Runs a broker, which prints so many addresses when it is ready. Raises DemoError."""
    async with _running("serve", *options) as process:
        assert process.stdout is not None
        printed: list[str] = []
        try:
            async with asyncio.timeout(START_WAIT_S):
                while len(printed) < lines and (line := await process.stdout.readline()):
                    printed.append(line.decode().strip())
        except TimeoutError:
            raise DemoError(f"the broker was not ready within {START_WAIT_S:g} s") from None
        if len(printed) < lines:
            raise DemoError(f"the broker ended at once: {await _last_words(process)}")
        yield Started(process, printed)


async def pipeline(description: Path, out: Path, address: str) -> PipelineSummary:
    """Runs a pipeline to its end; it publishes to the broker at the address."""
    arguments = (str(description), "--set", f"out={out}", "--publish", address, "--json")
    began = monotonic()
    async with _running("pipeline", "run", *arguments) as process:
        try:
            output, errors = await asyncio.wait_for(process.communicate(), PIPELINE_WAIT_S)
        except TimeoutError:
            raise DemoError(f"the pipeline did not end within {PIPELINE_WAIT_S:g} s") from None
        if process.returncode:
            raise DemoError(f"the pipeline ended with status {process.returncode}: {_tail(errors)}")
        summary = msgspec.json.decode(output, type=PipelineSummary)
    return msgspec.structs.replace(summary, wall_s=monotonic() - began)


@asynccontextmanager
async def _running(*arguments: str) -> AsyncIterator[Process]:
    """Runs a `contrada` command in a process group of its own.

    Ctrl-C then reaches the demo alone, which ends its programs in the right order.
    """
    process = await asyncio.create_subprocess_exec(
        CONTRADA, *arguments, stdout=PIPE, stderr=PIPE, process_group=0
    )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        # Drains the pipe, since a full one would keep the process from ending.
        await asyncio.wait_for(process.communicate(), END_WAIT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _last_words(process: Process) -> str:
    assert process.stderr is not None
    return _tail(await process.stderr.read())


def _tail(errors: bytes) -> str:
    """Returns the last line, which has the error."""
    lines = errors.decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "without a word")
