"""`FigureStream`: a figure of gossip for the console, point by point, from a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from http import HTTPStatus
from math import inf
from typing import Final

import msgspec

from contrada.errors import RefusedRequestError
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_slots import RequestSlots
from contrada.integrations.http.sent_events import SentEvents
from contrada.integrations.http.token_services import TokenService

_COMMAND: Final = (sys.executable, "-P", "-m", "contrada.integrations.console.gossip_figure")
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Each thread of a library of arrays would take a part of the memory that the process may have."""


class Figures:
    """The processes of a gateway that simulate figures."""

    def __init__(self, counts: GatewayCounts, limits: GatewayLimits) -> None:
        self._counts, self._limits = counts, limits
        most = limits.figures_max
        self._slots = RequestSlots("figures (figures_max)", per_user=inf, in_all=most)

    async def begin(
        self, request: bytes, access: TokenService, opened: AsyncExitStack
    ) -> "FigureStream":
        """Starts a process; returns its stream. `opened` ends it. Raises RefusedRequestError."""
        with ExitStack() as opening:
            opening.enter_context(self._slots.take(access.user))
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | _ONE_THREAD,
            )
            slot = opening.pop_all()
        stream = FigureStream(process, slot, opened, self._counts, self._limits)
        opened.push_async_callback(stream.end_process)
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(request)
        process.stdin.close()
        return stream


class FigureStream(SentEvents):
    """The answer that writes the lines of a process as events."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        slot: ExitStack,
        opened: AsyncExitStack,
        counts: GatewayCounts,
        limits: GatewayLimits,
    ) -> None:
        super().__init__(opened, counts, limits)
        self._process, self._slot = process, slot

    async def end_process(self) -> None:
        """Ends the process, and makes room for the next one. A second call does nothing."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._slot.close()

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The figure, and its points. Raises RefusedRequestError."""
        wait_s = self._limits.figure_wait_s
        until = asyncio.get_running_loop().time() + wait_s
        lines = self._process.stdout
        assert lines is not None, "it is a pipe"
        try:
            while True:
                try:
                    async with asyncio.timeout_at(until):
                        line = await lines.readline()
                except TimeoutError:
                    reason = f"more than figure_wait_s = {wait_s:g} s: the points so far"
                    raise RefusedRequestError(HTTPStatus.SERVICE_UNAVAILABLE, reason) from None
                if not line:
                    break
                name, content = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
                if name == "error":
                    raise RefusedRequestError(HTTPStatus.BAD_REQUEST, msgspec.json.decode(content))
                yield b"event: %b\ndata: %b\n\n" % (name.encode(), content)
            if status := await self._process.wait():
                reason = f"the process of the figure has ended with status {status}"
                raise RefusedRequestError(HTTPStatus.INTERNAL_SERVER_ERROR, reason)
        finally:
            # Before the end is written: the next figure of the page follows at once.
            await self.end_process()
