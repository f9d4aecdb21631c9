"""`DemoNetwork`: three brokers that are processes, each with a store; one may be killed.

The first one, `oslo`, has the HTTP port with the console.
"""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from examples.demo.processes import Started, started_broker

LINKS: Final = {"oslo": (), "riga": ("oslo",), "bern": ("oslo", "riga")}
"""The brokers, each with the neighbours to which it opens a link."""


class DemoNetwork:
    """The brokers, by name."""

    def __init__(self, folder: Path, running: AsyncExitStack) -> None:
        self._folder, self._running = folder, running
        self._ports = dict(zip(LINKS, _free_ports(len(LINKS)), strict=True))
        self._started: dict[str, Started] = {}

    def address(self, name: str) -> str:
        """Returns the address of a broker."""
        return f"contrada://127.0.0.1:{self._ports[name]}"

    @property
    def console(self) -> str:
        """The address of the console."""
        return f"{self._started['oslo'].lines[1]}/console/"

    async def start(self, name: str) -> None:
        """Starts a broker on its store. Raises DemoError."""
        options = ["--general", "--name", name, "--port", str(self._ports[name])]
        options += ["--store", str(self._folder / f"{name}.db")]
        for neighbour in LINKS[name]:
            options += ["--neighbour", self.address(neighbour)]
        if name == "oslo":
            options += ["--http", "0"]
        broker = started_broker(*options, lines=1 + (name == "oslo"))
        self._started[name] = await self._running.enter_async_context(broker)

    async def kill(self, name: str) -> None:
        """Kills a broker, as a crash of its machine would; its store stays."""
        process = self._started[name].process
        process.kill()
        await process.communicate()


@asynccontextmanager
async def network() -> AsyncIterator[DemoNetwork]:
    """Runs the brokers, with temporary stores."""
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as running:
            brokers = DemoNetwork(Path(folder), running)
            for name in LINKS:
                await brokers.start(name)
            yield brokers


def _free_ports(count: int) -> list[int]:
    """Returns ports without a listener; a broker takes the same one again after a restart."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
