"""Real worlds: brokers as processes, and processes of clients, some of which are killed.

A plan (`tests/net/real_plan.py`) uses `contrada serve` as a user does; a killed broker restarts on
its old store. The checkers of worlds judge the events (`tests/net/real_history.py`). The waits
between attempts are shorter than a user's, so links are restored before the next kill.
"""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from contrada.errors import CannotPublishError, ContradaError
from contrada.lab.simulation.oracle import Outcome, Violation
from contrada.lab.simulation.script_steps import (
    AddFilter,
    AttachReader,
    Crash,
    CutLine,
    DropFilter,
    Kind,
    MendLine,
    Move,
    Restart,
)
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.routing.router import Strategy
from tests.net.crowd import LIMITS, MARKER, WAIT_S_MAX, Event, Told, brokers_of
from tests.net.real_history import AUDITOR, REPLAYER, Rest, judged
from tests.net.real_plan import CROWDS, Act, Kill, Plan
from tests.net.test_neighbours import free_ports

NINE: Final = 9
"""Brokers of a real world."""

MESH: Final = Kind("general", Strategy.SUBSCRIPTIONS, reliable=True, trees=1)
HIERARCHY: Final = Kind("hierarchical", Strategy.SUBSCRIPTIONS, reliable=True)

SEQUENCER: Final = 0
"""The broker that gives total orders."""

STILL_S_MAX: Final = 30.0
"""Seconds without any progress until a rest. Beyond it: a fault."""

REST_S_MAX: Final = 300.0
"""Seconds with progress until a rest. Beyond it: a fault."""

PROGRESS: Final = 25
"""Steps that clients do between two faults, if they can."""

PROGRESS_S_MAX: Final = 0.7
"""Seconds that these are waited for: some clients wait for a killed broker."""

MARK_S: Final = 0.3
"""Seconds after which a missing marker is published again."""

LOOK_S: Final = 0.02
"""Seconds between checks for a rest."""

SERVE: Final = (
    "from contrada.net.broker.broker_limits import BrokerLimits\n"
    "from contrada.service.backoff import BackoffLimits\n"
    f"backoff = BackoffLimits(longest_s={WAIT_S_MAX})\n"
    "BrokerLimits.__init__.__kwdefaults__.update(backoff=backoff)\n"
    "from contrada_command import main\n"
    "main()\n"
)
"""The program of a broker process."""

PARTED: Final = (
    "from contrada.net.broker.broker_limits import BrokerLimits\n"
    "from contrada.net.wire.connection import LivenessLimits\n"
    "liveness = LivenessLimits(ping_after_s=1.0, silent_s_max=4.0)\n"
    "BrokerLimits.__init__.__kwdefaults__.update(liveness=liveness, broker_tick_s=0.2)\n"
) + SERVE
"""The same, where links are cut: that is noticed sooner than by a user's brokers."""


HELD: Final = ("held", "spooled", "early", "waiting")
"""The counts of brokers that are not 0 while records are in transit."""


async def nothing_left(
    left: Callable[[], object], look: Callable[[], Awaitable[None]], told: str
) -> None:
    """Waits until nothing is left, as long as the rest changes.

    A slow machine is no fault: only a standstill is given up. Raises TimeoutError with the rest.
    """
    begun = moved = time.monotonic()
    before: object = None
    while now := left():
        at = time.monotonic()
        if now != before:
            before, moved = now, at
        if at - moved > STILL_S_MAX or at - begun > REST_S_MAX:
            raise TimeoutError(f"{told}: {now}")
        with suppress(TimeoutError):
            async with asyncio.timeout(STILL_S_MAX):
                await look()


class Machines(Protocol):
    """The machines of brokers and their links."""

    addresses: Sequence[str]
    """Where clients find them."""

    def host(self, broker: int) -> str:
        """Where a broker listens."""
        ...

    def neighbour(self, line: int) -> str:
        """Where the first broker of a link is found by the second."""
        ...

    def prefix(self, broker: int) -> Sequence[str]:
        """Returns the prefix of the command of a broker."""
        ...

    def cut(self, line: int) -> None:
        """A link carries nothing from now on."""

    def mend(self, line: int) -> None:
        """A link carries again."""


class Loopback:
    """All on this machine. Its links cannot be cut."""

    def __init__(self, plan: Plan) -> None:
        self._links = plan.links
        ports = free_ports(plan.brokers)
        self.addresses: Sequence[str] = [f"contrada://127.0.0.1:{port}" for port in ports]

    def host(self, broker: int) -> str:
        """See `Machines`."""
        return "127.0.0.1"

    def neighbour(self, line: int) -> str:
        """See `Machines`."""
        return self.addresses[self._links[line][0]]

    def prefix(self, broker: int) -> Sequence[str]:
        """See `Machines`."""
        return ()

    def cut(self, line: int) -> None:
        """See `Machines`."""
        raise NotImplementedError("loopback carries everything")

    mend = cut


class RealWorld:
    """A plan that is done, by processes in a folder."""

    def __init__(self, plan: Plan, folder: Path, machines: Machines, serve: str = SERVE) -> None:
        self.plan, self._folder, self._machines, self._serve = plan, folder, machines, serve
        self.events: list[Event] = []
        self.rests: list[Rest] = []
        self.faults: list[Violation] = []
        self._brokers: dict[int, Process] = {}
        self._crowds: list[Process] = []
        self._reading: list[asyncio.Task[None]] = []
        self._probes: list[TcpService] = []
        self._marked: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._cut: set[int] = set()
        self._up: set[int] = set()
        self._done = 0
        self._left: Counter[str] = Counter()
        self._moves: dict[str, Move] = {}
        self._asked: dict[tuple[str, str], Told] = {}
        self._wishes: set[tuple[str, str]] = set()
        self._stood: dict[str, Event] = {}
        self._round = 0

    # --- processes ----------------------------------------------------------------------------

    async def _start(self, broker: int) -> None:
        links = [
            ("--parent" if is_parent else "--neighbour", self._machines.neighbour(line))
            for line, (_, b, is_parent) in enumerate(self.plan.links)
            if b == broker
        ]
        port = parse_address(self._machines.addresses[broker]).port
        told = {
            "host": self._machines.host(broker),
            "port": str(port),
            "name": str(broker),
            "sequencer": str(SEQUENCER),
            "store": str(self._folder / f"{broker}.db"),
        }
        command = [
            *(*self._machines.prefix(broker), sys.executable, "-c", self._serve, "serve"),
            *(f"--{name}={value}" for name, value in told.items()),
            "--anyone",  # Nobody else is in these networks.
            *(each for link in links for each in link),
            *(["--general"] if self.plan.kind.shape == "general" else []),
            "--until-input-ends",  # With this process, however it ends.
        ]
        with (self._folder / f"{broker}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log
            )
        self._brokers[broker] = process
        assert process.stdout is not None
        if not await process.stdout.readline():
            raise AssertionError((self._folder / f"{broker}.log").read_text())

    async def _crash(self, broker: int) -> None:
        self._tell("down", positions=tuple(self._lines(broker)))
        self._up.difference_update(self._lines(broker))
        process = self._brokers.pop(broker)
        process.kill()
        await process.wait()
        self._tell("crash", brokers=(broker,))

    def _lines(self, broker: int) -> list[int]:
        return [line for line, ends in enumerate(self.plan.links) if broker in ends[:2]]

    async def _start_crowd(self) -> Process:
        command = [sys.executable, "-m", "tests.net.crowd", *self._machines.addresses]
        with (self._folder / "crowd.log").open("ab") as log:
            crowd = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=log
            )
        self._reading.append(asyncio.create_task(self._hear(crowd)))
        return crowd

    async def _hear(self, crowd: Process) -> None:
        decoder = msgspec.json.Decoder(Event)
        assert crowd.stdout is not None
        while (line := await crowd.stdout.readline()).endswith(b"\n"):
            self._note(decoder.decode(line))

    def _note(self, event: Event) -> None:
        self._changed.set()
        match event.what:
            case "done":
                self._done += 1
                self._left[event.client] -= 1
                return
            case "marked":
                self._marked.add((event.id, f"{event.client}/{event.name}"))
                return
            case "wishes":
                self._wishes.add((event.client, event.name))
            case "unwishes":
                self._wishes.discard((event.client, event.name))
            case "stands":
                self._stood[event.name] = event
        self.events.append(event)

    def _tell(self, what: Any, **more: Any) -> None:
        self.events.append(Event(what=what, **more))

    def _say(self, step: Told) -> None:
        """Has a client do something."""
        crowd = self._crowds[self._crowd_of(step.client)]
        assert crowd.stdin is not None
        crowd.stdin.write(msgspec.json.encode(step) + b"\n")
        self._left[step.client] += 1

    def _crowd_of(self, client: str) -> int:
        return int(client[1:]) % CROWDS

    async def _kill(self, crowd: int) -> None:
        """Kills a process of clients; another one takes over their subscriptions."""
        process = self._crowds[crowd]
        process.kill()
        await process.wait()
        await self._reading[crowd]
        mine = [each for each in self._moves if self._crowd_of(each) == crowd]
        for client in mine:
            self._tell("killed", client=client)
            del self._left[client]
        self._wishes = {key for key in self._wishes if key[0] not in mine}
        self._reading.pop(crowd)
        self._crowds[crowd] = await self._start_crowd()
        self._reading.insert(crowd, self._reading.pop())
        for client in mine:
            move = self._moves[client]
            if len(brokers_of(client, move.broker, self.plan.brokers)) > 1:
                # Nobody knows its position: a roving reader is a new one then, a fixed one is not.
                move = self._moves[client] = replace(move, at_us=time.monotonic_ns())
            self._say(move)
        for key, step in self._asked.items():
            if key[0] in mine:
                self._say(step)

    # --- steps --------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Runs the plan. Returns the outcome."""
        async with asyncio.TaskGroup() as group:
            for broker in range(self.plan.brokers):
                group.create_task(self._start(broker))
        for _ in range(CROWDS):
            self._crowds.append(await self._start_crowd())
        for broker in range(self.plan.brokers):
            await self._probe(broker)
        try:
            for burst in self.plan.bursts:
                for step in burst:
                    await self._do(step)
                await self._rest()
            await self._end()
        except TimeoutError as error:
            self.faults.append(Violation("no rest", f"{error}"))
        self._note_failures()
        outcome = judged(self.plan.kind, self.plan.links, self.events, self.rests, SEQUENCER)
        outcome.violations[:0] = self.faults  # Often they are why something else was not seen.
        return outcome

    def _note_failures(self) -> None:
        """Checks that no broker or client reports a fault of its own."""
        for log in sorted(self._folder.glob("*.log")):
            if "Traceback" in (said := log.read_text()):
                self.faults.append(Violation("raises", f"{log.name}: {said[-2000:]}"))

    async def _do(self, step: Act) -> None:
        match step:
            case Crash() | Restart() | CutLine() | MendLine() | Kill():
                await self._progress()
                await self._fail(step)
            case Move():
                self._moves[step.client] = step
                self._say(step)
            case AddFilter() | AttachReader():
                self._asked[step.client, step.identity] = step
                self._say(step)
            case _:
                self._asked.pop((step.client, getattr(step, "identity", "")), None)
                self._say(step)
                if isinstance(step, DropFilter):
                    self._wishes.discard((step.client, step.identity))

    async def _fail(self, step: Crash | Restart | CutLine | MendLine | Kill) -> None:
        match step:
            case Crash(_, broker):
                await self._crash(broker)
            case Restart(_, broker):
                await self._start(broker)
            case Kill(crowd):
                await self._kill(crowd)
            case CutLine(_, a, b) | MendLine(_, a, b):
                line = next(n for n, ends in enumerate(self.plan.links) if ends[:2] == (a, b))
                if isinstance(step, CutLine):
                    self._tell("down", positions=(line,))
                    self._up.discard(line)
                    self._cut.add(line)
                    self._machines.cut(line)
                else:
                    self._cut.discard(line)
                    self._machines.mend(line)

    async def _progress(self) -> None:
        """Waits until clients have done something since the last fault."""
        aim = self._done + PROGRESS
        await self._until(lambda: self._done >= aim or not +self._left, PROGRESS_S_MAX)

    async def _until(self, holds: Callable[[], bool], wait_s: float) -> None:
        """Waits until something holds that clients note, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()

    async def _all_done(self, undone: Callable[[], Counter[str]]) -> None:
        """Waits until clients have no steps left, of those that are meant."""
        await nothing_left(
            undone,
            lambda: self._until(lambda: not undone(), MARK_S),
            "clients have not done what they were told, so many steps",
        )

    # --- rests --------------------------------------------------------------------------------

    async def _probe(self, broker: int) -> None:
        """A client of this process at a broker, which observes its deliveries."""
        service = TcpService(self._machines.addresses[broker], limits=LIMITS)
        await service.open()
        self._probes.append(service)
        subscription = service.subscribe(f"{MARKER} = 'b{broker}'")
        await subscription.open()

        async def take() -> None:
            async for item in subscription:
                self._marked.add((item["from"], f"b{broker}"))
                self._changed.set()

        self._reading.append(asyncio.create_task(take()))

    async def _rest(self) -> None:
        """Waits until all running brokers are linked, and a marker of each has reached each."""
        await self._linked()
        await self._all_done(self._undone)
        begin = time.monotonic_ns()
        self._round += 1
        wanted = set(self._pairs())

        async def look() -> None:
            missing = wanted - self._come(wanted)
            await self._mark(missing)
            await self._until(lambda: self._come(missing) == missing, MARK_S)

        await nothing_left(
            lambda: sorted(wanted - self._come(wanted)), look, "no marker comes from and to"
        )
        self.rests.append(Rest(begin, time.monotonic_ns()))

    def _undone(self) -> Counter[str]:
        """Returns the open steps of best-effort clients that can be done."""
        return Counter(
            {
                client: count
                for client, count in self._left.items()
                if count and client.startswith("c") and self._moves[client].broker in self._brokers
            }
        )

    def _come(self, wanted: set[tuple[int, str]]) -> set[tuple[int, str]]:
        return {(b, name) for b, name in wanted if (f"{self._round}/{b}", name) in self._marked}

    def _pairs(self) -> Iterator[tuple[int, str]]:
        """Yields the brokers and subscriptions that a marker must connect."""
        parts = self._parts()
        at = {f"{client}/{name}": self._moves[client].broker for client, name in self._wishes}
        at |= {f"b{broker}": broker for broker in self._brokers}
        for name, there in at.items():
            for broker in self._brokers:
                if there in self._brokers and parts[broker] == parts[there]:
                    yield broker, name

    def _parts(self) -> dict[int, int]:
        """To which part of the network each broker belongs that runs."""
        part = {broker: broker for broker in self._brokers}
        for line in self._lines_up():
            a, b, _ = self.plan.links[line]
            old, new = part[a], part[b]
            part = {broker: new if of == old else of for broker, of in part.items()}
        return part

    def _lines_up(self) -> list[int]:
        """The lines that are up where all is well."""
        return [
            line
            for line, (a, b, _) in enumerate(self.plan.links)
            if a in self._brokers and b in self._brokers and line not in self._cut
        ]

    async def _mark(self, missing: set[tuple[int, str]]) -> None:
        for broker in {broker for broker, _ in missing}:
            with suppress(ContradaError):  # Its connection is not there yet: once more.
                await self._probes[broker].publish_batch(
                    {MARKER: name, "from": f"{self._round}/{broker}"}
                    for at, name in missing
                    if at == broker
                )

    async def _linked(self) -> None:
        """Waits until all links are up, and all know all durable subscriptions."""
        up = self._lines_up()
        degrees = Counter(each for line in up for each in self.plan.links[line][:2])
        everywhere = len(up) == len(self.plan.links)

        def left(broker: int, counts: dict[str, Any]) -> object:
            standing = counts["delivery"].get("standing", 0)
            found = {"links": counts["links"], "standing": standing}
            wanted = len(self._stood) if everywhere else standing
            return found if found != {"links": degrees[broker], "standing": wanted} else None

        stood = set(self._stood)
        await self._brokers_say(left, f"{len(stood)} standing, links {dict(degrees)}; brokers say")
        if everywhere and stood == set(self._stood):
            self._tell("known")
        if new := set(up) - self._up:
            self._up |= new
            self._tell("up", positions=tuple(new))

    async def _brokers_say(self, left: Callable[[int, dict[str, Any]], object], told: str) -> None:
        """Waits until the counts of each broker are at rest."""
        said: dict[int, object] = dict.fromkeys(self._brokers, "nothing")

        async def look() -> None:
            for broker in self._brokers:
                with suppress(ContradaError):
                    said[broker] = left(broker, await self._probes[broker].broker_statistics())
            await asyncio.sleep(LOOK_S)

        await nothing_left(lambda: {b: each for b, each in said.items() if each}, look, told)

    # --- the end ------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Reads the unacknowledged records after all repairs, then all kept records."""
        await self._all_done(lambda: +self._left)

        def held(_: int, counts: dict[str, Any]) -> dict[str, int]:
            return {each: n for each in HELD if (n := counts["delivery"].get(each))}

        def there(broker: int, counts: dict[str, Any]) -> dict[str, int]:
            clients = counts["connections"] - counts["links"] - 1  # One is this process.
            return held(broker, counts) | ({"clients": clients} if clients else {})

        await self._brokers_say(held, "what is held does not come")
        for crowd in self._crowds:
            assert crowd.stdin is not None
            crowd.kill()  # The records of its readers are delivered again.
            await crowd.wait()
        await asyncio.gather(*self._reading[:CROWDS])
        # Owners must know that: until then lost readers hold records, and get more.
        await self._brokers_say(there, "clients that were killed are not gone")
        for name, event in self._stood.items():
            await self._audit(name, event, AUDITOR)
            if event.retention is not None and event.retention.replay_max:
                await self._audit(name, event, REPLAYER)

    async def _audit(self, name: str, event: Event, who: str) -> None:
        """Reads a log to its end, as long as records arrive."""
        probe = self._probes[event.brokers[0]]
        marker = f"{who} of {name}"
        begin: Any = {"from_position": 1} if who == REPLAYER else {}
        loop = asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(STILL_S_MAX) as until,
                probe.subscribe(durable=name, **begin) as events,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._publish_marker(probe, marker, name))
                async for kept in events:
                    until.reschedule(loop.time() + STILL_S_MAX)
                    of, id_ = kept.item.envelope, kept.item["id"]
                    what = "replays" if who == REPLAYER else "reads"
                    self._tell(
                        what, session=who, name=name, id=id_,
                        positions=(kept.position,), sequence=of.sequence,
                    )  # fmt: skip
                    if id_ == marker:
                        break
        except* (TimeoutError, ContradaError) as error:
            reasons = [f"{each!r}" for each in error.exceptions]
            self.faults.append(Violation("no rest", f"{who} cannot read {name}: {reasons}"))

    async def _publish_marker(self, probe: TcpService, id_: str, name: str) -> None:
        values = {MARKER: name}
        publisher = f"{AUDITOR}/{id_}"
        self._tell(
            "sends", session=publisher, id=id_, values=values, text="certified", brokers=(0,)
        )
        while True:
            try:
                await probe.publish({**values, "id": id_}, delivery="certified")
            except CannotPublishError:  # It is full until more is read.
                await asyncio.sleep(LOOK_S)
            else:
                return

    async def close(self) -> None:
        """Ends all that was started."""
        for process in (*self._brokers.values(), *self._crowds):
            if process.returncode is None:
                process.kill()
                await process.wait()
        for probe in self._probes:
            await probe.aclose()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)


@asynccontextmanager
async def real_world(
    plan: Plan, folder: Path, machines: Machines, serve: str = SERVE
) -> AsyncIterator[RealWorld]:
    """Yields a world; its processes end with it."""
    async with AsyncExitStack() as stack:
        world = RealWorld(plan, folder, machines, serve)
        stack.push_async_callback(world.close)
        yield world


async def outcome_of(plan: Plan, folder: Path, machines: Machines, serve: str = SERVE) -> Outcome:
    """Returns the outcome of a plan."""
    async with real_world(plan, folder, machines, serve) as world:
        return await world.run()
