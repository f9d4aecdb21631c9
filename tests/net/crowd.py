"""A process of clients of a real world: it does the steps that it reads, and notes events.

    python -m tests.net.crowd contrada://127.0.0.1:7701 contrada://127.0.0.1:7702 ...

It reads steps and writes events, as lines of JSON; a publication is noted before it is sent, so the
process may be killed at any time. Each client does its steps in order, and waits for answers where
the order is guaranteed. Clients with names in `r` rove: they move to the next broker if theirs is
killed.
"""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

import contrada as ct
from contrada.errors import CannotPublishError, ConnectionFailedError, ContradaError
from contrada.lab.simulation.script_steps import (
    AddFilter,
    AttachReader,
    DetachReader,
    DropFilter,
    Leave,
    Move,
    OpenDurable,
    PublishStep,
)
from contrada.net.client.client_limits import ClientLimits
from contrada.service import ConnectionState, DurableSubscription, Service, Subscription
from contrada.service.backoff import BackoffLimits

Told: TypeAlias = (
    Move | Leave | AddFilter | DropFilter | PublishStep | OpenDurable | AttachReader | DetachReader
)
"""A step for a client."""

MARKER: Final = "marker"
"""The attribute of a marker that follows all earlier notifications."""

WAIT_S_MAX: Final = 0.3
"""How long a lost connection waits at most until it is tried again."""

LIMITS: Final = ClientLimits(backoff=BackoffLimits(longest_s=WAIT_S_MAX))

ACKNOWLEDGED: Final = 0.7
"""The probability that a reader acknowledges at once; otherwise it waits for more."""

THINKS: Final = 0.1
"""The probability that a reader thinks about a record, while others wait in its process."""

THOUGHT_S: Final = 0.05

What: TypeAlias = Literal[
    "moves", "leaves", "lost", "done",
    "asks", "wishes", "unwishes", "delivered", "marked",
    "sends", "answered", "failed", "refused",
    "stands", "reads", "acknowledged", "forgets", "replays",
    "down", "up", "crash", "killed", "known",
]  # fmt: skip
"""The kinds of events."""


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An event of a real world, with its time and client.

    `at` counts the nanoseconds of a clock that all processes of a machine share. `session` is the
    name under which a client publishes and reads from one move to the next, `name` a subscription,
    `brokers` are its possible places.
    """

    what: What
    at: int = msgspec.field(default_factory=time.monotonic_ns)
    client: str = ""
    session: str = ""
    brokers: tuple[int, ...] = ()
    name: str = ""
    id: str = ""
    text: str = ""
    values: dict[str, Any] = {}
    positions: tuple[int, ...] = ()
    sequence: int | None = None
    attempt: int = 1
    retention: ct.Retention | None = None


def marked(filters: str, name: str) -> str:
    """Filters that a marker matches, too."""
    return f"({filters}) or {MARKER} = '{name}'"


def brokers_of(client: str, broker: int, count: int) -> tuple[int, ...]:
    """Returns the possible brokers of a client with a target."""
    return (broker, (broker + 1) % count) if client.startswith("r") else (broker,)


class _Client:
    """One client: its broker, its subscriptions and its readings."""

    def __init__(self, name: str, addresses: Sequence[str], note: Callable[[Event], None]) -> None:
        self._name, self._addresses, self._say = name, addresses, note
        self._session = ""
        self._brokers: tuple[int, ...] = ()
        self._service: Service | None = None
        self._chance = random.Random(name)
        self._wishes: dict[str, tuple[str, Subscription[Any] | None]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self.steps: asyncio.Queue[Told] = asyncio.Queue()
        self.work = asyncio.create_task(self._work())

    def _note(self, what: What, **more: Any) -> None:
        # The reader may have advanced meanwhile: print its present position.
        more = {"brokers": self._brokers, **more}
        self._say(Event(what=what, client=self._name, session=self._session, **more))

    async def _work(self) -> None:
        while True:
            step = await self.steps.get()
            if isinstance(step, PublishStep) and not {"fifo", "causal"} & {*step.delivery.split()}:
                sending = asyncio.create_task(self._do_and_say(step))  # Later steps do not wait.
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)
                await asyncio.sleep(0)  # It is sent in its turn.
            else:
                await self._do_and_say(step)

    async def _do_and_say(self, step: Told) -> None:
        await self._do(step)
        self._note("done")

    async def _do(self, step: Told) -> None:
        match step:
            case Move(_, _, broker):
                await self._move(broker, step.at_us)
            case Leave():
                await self._leave()
                self._wishes.clear()
            case AddFilter(_, _, identity, filters):
                self._wishes[identity] = (filters, None)
                await self._wish(identity)
            case DropFilter(_, _, identity):
                _, subscription = self._wishes.pop(identity, ("", None))
                if subscription is not None:
                    await subscription.unsubscribe()
                    await self._reading.pop(identity)
                    self._note("unwishes", name=identity)
            case PublishStep(_, _, id_, values, _, _, delivery):
                await self._publish(id_, values, delivery)
            case OpenDurable(_, _, name, filters, _, records_max, on_full, replay_max):
                keeps = ct.Retention(records_max, on_full=on_full, replay_max=replay_max)
                await self._stand(name, marked(filters, name), keeps)
            case AttachReader(_, _, name):
                if name not in self._reading:
                    self._reading[name] = asyncio.create_task(self._read(name))
            case DetachReader(_, _, name):
                if name in self._reading:
                    await _ended(self._reading.pop(name))

    # --- where it is --------------------------------------------------------------------------

    async def _move(self, broker: int, number: int) -> None:
        names = [name for name in self._reading if name not in self._wishes]
        await self._leave()
        self._brokers = brokers_of(self._name, broker, len(self._addresses))
        self._session = f"{self._name}.{number}"
        while self._service is None:
            service = ct.connect(
                [self._addresses[each] for each in self._brokers],
                publisher=self._session,
                on_connection=self._connected,
                limits=ct.Limits(client=LIMITS),
            )
            try:
                await service.open()
            except ConnectionFailedError:
                await asyncio.sleep(WAIT_S_MAX)
            else:
                self._service = service
        self._note("moves")
        for identity in list(self._wishes):
            await self._wish(identity)
        for name in names:
            self._reading[name] = asyncio.create_task(self._read(name))

    async def _leave(self) -> None:
        if self._sending:
            await asyncio.wait(self._sending)
        service, self._service = self._service, None
        for name, reading in self._reading.items():
            if name not in self._wishes:
                await _ended(reading)
        if service is not None:
            await service.aclose()
        for name, reading in self._reading.items():
            if name in self._wishes:
                await reading
        self._reading.clear()
        self._note("leaves")

    def _connected(self, state: ConnectionState) -> None:
        if state.state == "lost":
            self._note("lost")

    # --- best effort --------------------------------------------------------------------------

    async def _wish(self, identity: str) -> None:
        filters, _ = self._wishes[identity]
        self._note("asks", name=identity, text=filters)
        subscription = await self._until_done(lambda: self._subscribed(identity, filters))
        self._wishes[identity] = (filters, subscription)
        self._note("wishes", name=identity)
        self._reading[identity] = asyncio.create_task(self._take(identity, subscription))

    async def _subscribed(self, identity: str, filters: str) -> Subscription[Any]:
        assert self._service is not None, "it has moved there"
        subscription = self._service.subscribe(marked(filters, f"{self._name}/{identity}"))
        await subscription.open()
        return subscription

    async def _until_done(self, ask: Callable[[], Any]) -> Any:
        """Repeats an operation until a connection lasts long enough."""
        while True:
            try:
                return await ask()
            except ConnectionFailedError:
                await asyncio.sleep(WAIT_S_MAX)

    async def _take(self, identity: str, subscription: Subscription[Any]) -> None:
        async for item in subscription:
            if MARKER in item:
                self._note("marked", name=identity, id=item["from"])
            else:
                self._note("delivered", name=identity, id=item["id"])

    # --- durable traffic ----------------------------------------------------------------------

    async def _publish(self, id_: str, values: dict[str, Any], delivery: str) -> None:
        assert self._service is not None, "it has moved there"
        self._note("sends", id=id_, values=values, text=delivery)
        try:
            stamped = await self._service.publish({**values, "id": id_}, delivery=delivery)
        except CannotPublishError as error:
            self._note("failed" if error.may_be_published else "refused", id=id_, text=str(error))
        except ContradaError as error:
            self._note("failed", id=id_, text=str(error))
        else:
            self._note("answered", id=id_, sequence=stamped.sequence)

    async def _stand(self, name: str, filters: str, keeps: ct.Retention) -> None:
        service = self._service
        assert service is not None, "it has moved there"
        events = service.subscribe(filters, durable=name, retention=keeps)
        await events.open()
        await events.aclose()
        owner = self._addresses.index(service.connection.address)
        self._note("stands", name=name, text=filters, brokers=(owner,), retention=keeps)
        self._reading[name] = asyncio.create_task(self._read(name))

    async def _read(self, name: str) -> None:
        assert self._service is not None, "it has moved there"
        service = self._service
        while True:
            try:
                async with service.subscribe(durable=name, auto_acknowledge=False) as events:
                    await self._read_all(name, events, service)
            except ContradaError as error:
                self._note("forgets", name=name, text=str(error))
                await asyncio.sleep(WAIT_S_MAX)

    async def _read_all(
        self, name: str, events: DurableSubscription[Any], service: Service
    ) -> None:
        late: list[int] = []
        async for kept in events:
            of = kept.item.envelope
            read = {"positions": (kept.position,), "id": kept.item["id"], "attempt": kept.attempt}
            self._note("reads", name=name, sequence=of.sequence, **read)
            late.append(kept.position)
            if self._chance.random() < THINKS:
                await asyncio.sleep(THOUGHT_S)
            if self._chance.random() < ACKNOWLEDGED:
                await events.acknowledge(*late)
                here = (self._addresses.index(service.connection.address),)
                self._note("acknowledged", name=name, positions=tuple(late), brokers=here)
                late.clear()


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


async def main(addresses: Sequence[str]) -> None:
    """Does steps until the end of the input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    decoder = msgspec.json.Decoder(Told)
    clients: dict[str, _Client] = {}

    def note(event: Event) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()

    while line := await reader.readline():
        step = decoder.decode(line)
        if step.client not in clients:
            clients[step.client] = _Client(step.client, addresses, note)
            clients[step.client].work.add_done_callback(_failed)
        clients[step.client].steps.put_nowait(step)


def _failed(work: "asyncio.Task[None]") -> None:
    """A client has a fault of its own: so the whole process ends, and it is seen."""
    if not work.cancelled() and work.exception() is not None:
        work.print_stack()
        sys.exit(f"{work.exception()!r}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
