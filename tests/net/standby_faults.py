"""Kills, pauses and cuts of brokers of one name, and of their database, under traffic.

    python -m tests.net.standby_faults SECONDS SEED

Confirmed notifications are read, in the order of their publisher; a record of which a reader's
acknowledgement was answered is not given again.
"""

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

import contrada as ct
from contrada.errors import ContradaError
from tests.net.standbys import Member, group
from tests.postgres import Server

PUBLISHERS: Final = 3
READERS: Final = 2
"""Readers that share the name `shared`."""

FAULT_S: Final = 8.0
"""The longest pause or cut. The lease is shorter, and a client leaves a silent broker before."""

STILL_S_MAX: Final = 60.0
"""Seconds after a fault without an accepted and read notification. Beyond it: a fault."""

SOCKET: Final = ".s.PGSQL.5432"


class Proxy:
    """A socket in a folder of its own that leads to the database until it is cut."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder, self._to = folder, str(server.folder / SOCKET)
        self._passes = asyncio.Event()
        self._passes.set()
        self.url = f"postgresql://tests@{quote(str(folder), safe='')}/postgres?schema=faults"

    async def open(self) -> asyncio.Server:
        """Listens."""
        return await asyncio.start_unix_server(self._take, self._folder / SOCKET)

    def cut(self) -> None:
        """Passes nothing on, as a broken network, until `mend`."""
        self._passes.clear()

    def mend(self) -> None:
        """Passes everything on, also what waits."""
        self._passes.set()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, here = await asyncio.open_unix_connection(self._to)
        except OSError:
            writer.close()
            return
        with suppress(asyncio.CancelledError), closing(here), closing(writer):  # The end.
            await asyncio.gather(self._pass(reader, here), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while read := await reader.read(65536):
                await self._passes.wait()
                writer.write(read)
                await writer.drain()
        writer.close()


class Audit:
    """What clients sent and got; `faults` are violations."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self.accepted: list[list[int]] = [[] for _ in range(PUBLISHERS)]
        self.read: list[list[int]] = [[] for _ in range(PUBLISHERS)]
        self.shared: Counter[tuple[int, int]] = Counter()
        self.acknowledged: set[int] = set()
        self.faults: list[str] = []
        self.now = ""
        """The present fault."""
        self.ends = False

    async def publish(self, who: int) -> None:
        """Publishes numbers until the end."""
        n = 0
        async with ct.connect(self._addresses) as service:
            while not self.ends:
                with suppress(ContradaError):  # It may have been written, or not.
                    await service.publish({"who": who, "n": n}, delivery="certified fifo")
                    self.accepted[who].append(n)
                n += 1

    async def follow(self) -> None:
        """Reads all of them, in order."""
        async with (
            ct.connect(self._addresses) as service,
            service.subscribe("n any", durable="all") as events,
        ):
            async for each in events:
                n, before = int(str(each["n"])), self.read[int(str(each["who"]))]
                if before and n <= before[-1]:
                    self.faults.append(f"{self.now}: {each['who']} has {n} after {before[-1]}")
                before.append(n)

    async def share(self) -> None:
        """Reads with others under one name, and acknowledges each record."""
        async with ct.connect(self._addresses) as service:
            events = service.subscribe("n any", durable="shared", auto_acknowledge=False)
            async with events:
                async for each in events:
                    if each.position in self.acknowledged:
                        self.faults.append(f"{self.now}: {each.position} is given again")
                    self.shared[int(str(each["who"])), int(str(each["n"]))] += 1
                    connection = events.statistics().reconnects
                    with suppress(ContradaError):
                        await events.acknowledge(each.position)
                        if events.statistics().reconnects == connection:
                            self.acknowledged.add(each.position)  # Else others may have had it.

    @property
    def progress(self) -> tuple[int, int, int]:
        """Accepted, read, and read by those that share."""
        return sum(map(len, self.accepted)), sum(map(len, self.read)), len(self.shared)

    @property
    def lost(self) -> list[str]:
        """Accepted numbers that were not read."""
        lost = []
        for who, (accepted, read) in enumerate(zip(self.accepted, self.read, strict=True)):
            shared = {n for of, n in self.shared if of == who}
            for name, got in (("all", set(read)), ("shared", shared)):
                if missing := set(accepted) - got:
                    lost.append(f"{name} has {len(missing)} of {who} not, as {min(missing)}")
        return lost


async def until(holds: Callable[[], bool], what: str) -> None:
    """Waits, with progress at every look. AssertionError after `STILL_S_MAX`."""
    end_s = time.monotonic() + STILL_S_MAX
    while not holds():
        assert time.monotonic() < end_s, f"{what}: nothing for {STILL_S_MAX:g} s"
        await asyncio.sleep(0.05)


class Faults:
    """The faults of two brokers and their database."""

    def __init__(
        self, server: Server, proxies: Sequence[Proxy], addresses: str, members: list[Member]
    ) -> None:
        self._server, self._proxies, self._members = server, proxies, members
        self._ports = [int(each.rpartition(":")[2]) for each in addresses.split(",")]
        self.all: list[Callable[[random.Random], Awaitable[None]]] = [
            *(self.kill_broker, self.end_broker, self.pause_broker),
            *(self.cut_database, self.kill_database),
        ]

    async def kill_broker(self, chance: random.Random) -> None:
        """A broker dies, and is started again."""
        at = chance.randrange(2)
        await asyncio.to_thread(self._members[at].end)
        await asyncio.sleep(chance.uniform(0, 2))
        self._begin(at)

    async def end_broker(self, chance: random.Random) -> None:
        """A broker ends in order, and is started again."""
        at = chance.randrange(2)
        self._members[at].process.terminate()
        await asyncio.to_thread(self._members[at].process.wait, STILL_S_MAX)
        await asyncio.to_thread(self._members[at].end)
        self._begin(at)

    async def pause_broker(self, chance: random.Random) -> None:
        """A broker stands still."""
        process = self._members[chance.randrange(2)].process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.5, FAULT_S))
        process.send_signal(signal.SIGCONT)

    async def cut_database(self, chance: random.Random) -> None:
        """A broker and the database do not hear one another."""
        proxy = chance.choice(self._proxies)
        proxy.cut()
        await asyncio.sleep(chance.uniform(0.5, FAULT_S))
        proxy.mend()

    async def kill_database(self, chance: random.Random) -> None:
        """The database dies, and is started again."""
        await asyncio.to_thread(self._server.kill)
        await asyncio.sleep(chance.uniform(0, 2))
        await asyncio.to_thread(self._server.start)

    def _begin(self, at: int) -> None:
        self._members[at] = Member(self._ports[at], self._proxies[at].url)


async def run(seconds: float, seed: int) -> Audit:
    """Makes faults for some seconds, then waits until everything was read."""
    server = Server()
    async with AsyncExitStack() as stack:
        stack.callback(server.remove)
        proxies = []
        for _ in range(2):
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="contrada-proxy-")))
            proxies.append(Proxy(folder, server))
            await stack.enter_async_context(await proxies[-1].open())
        brokers = group(*(each.url for each in proxies))
        addresses, members = await asyncio.to_thread(brokers.__enter__)
        stack.push_async_callback(asyncio.to_thread, brokers.__exit__, None, None, None)
        audit, faults = Audit(addresses), Faults(server, proxies, addresses, members)
        async with ct.connect(addresses) as service:
            for name in ("all", "shared"):
                async with service.subscribe("n any", durable=name):
                    pass
        readers = [audit.follow(), *(audit.share() for _ in range(READERS))]
        reading = [asyncio.create_task(each) for each in readers]
        sending = [asyncio.create_task(audit.publish(who)) for who in range(PUBLISHERS)]
        await until(lambda: min(audit.progress) > 0, "the start")
        await make_faults(audit, faults, seconds, random.Random(seed))
        audit.ends = True
        await asyncio.gather(*sending)
        await read_the_rest(audit)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    return audit


async def read_the_rest(audit: Audit) -> None:
    """Waits until everything was read, as long as the readers of `shared` get on."""
    while audit.lost:
        before = audit.progress[2]
        await until(lambda before=before: audit.progress[2] > before or not audit.lost, "the end")  # type: ignore[misc]


async def make_faults(audit: Audit, faults: Faults, seconds: float, chance: random.Random) -> None:
    """Makes one fault after the other; after each there is progress everywhere."""
    end_s, done = time.monotonic() + seconds, Counter[str]()
    while time.monotonic() < end_s:
        fault = chance.choice(faults.all)
        audit.now = fault.__name__
        await fault(chance)
        done[audit.now] += 1
        before = audit.progress
        await until(
            lambda before=before: all(  # type: ignore[misc]
                now > then + 10 for now, then in zip(audit.progress, before, strict=True)
            ),
            audit.now,
        )
    counts = ", ".join(map(str, audit.progress))
    sys.stdout.write(f"{dict(done)}; accepted, read, shared: {counts}\n")


def main() -> int:
    """Returns 1 for a violation."""
    audit = asyncio.run(run(float(sys.argv[1]), int(sys.argv[2])))
    sys.stdout.writelines(f"{each}\n" for each in audit.faults or ["no violation"])
    return bool(audit.faults)


if __name__ == "__main__":
    sys.exit(main())
