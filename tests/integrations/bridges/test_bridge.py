"""A bridge relays records of each kind of system both ways, at least once, and without loops."""

import asyncio
import json
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from contrada.connections import connect
from contrada.errors import (
    ConnectionFailedError,
    InvalidValueError,
    NoPlaceError,
    PeerLostError,
    ServiceError,
    StoreError,
)
from contrada.integrations.bridges.bridge import Bridge
from contrada.integrations.bridges.bridge_peer import AddressForm, BridgeLimits, PeerSettings
from contrada.integrations.bridges.record_translation import (
    PeerRecord,
    RecordTranslation,
    TextTemplate,
)
from contrada.model import Notification
from contrada.model.syntax import parse_filter
from contrada.net.broker.broker import Broker
from contrada.net.wire.tls import Tls
from contrada.service import DurableRecord, Service
from contrada.service.backoff import Backoff
from tests.asynchronous import on_loop, until
from tests.integrations.bridges.systems import (
    DEAD,
    HOST,
    IN,
    OUT,
    PASSWORD,
    SYSTEMS,
    JetStream,
    Kafka,
    RabbitMq,
    RedisStreams,
    Seen,
    System,
    needs,
    silent_host,
)
from tests.net.conftest import CONTRADA
from tests.net.test_tls import Authority

S = TypeVar("S", bound=System)

QUICK = BridgeLimits(bridge_retry_s=0.01)
"""Limits of a bridge that sends again at once."""

pytestmark = pytest.mark.slow

ALL = pytest.mark.parametrize("kind", [needs(each) for each in SYSTEMS])
STORED = pytest.mark.parametrize("kind", [needs(each) for each in SYSTEMS if each.is_stored])
ON_DISK = pytest.mark.parametrize("kind", [needs(each) for each in SYSTEMS if each.is_on_disk])
GUARDED = pytest.mark.parametrize(
    "kind", [needs(each) for each in SYSTEMS if each.has_access_control]
)


@asynccontextmanager
async def running(kind: type[S], folder: Path, **options: Any) -> AsyncIterator[S]:
    """Runs a system within the context."""
    system = kind(folder, **options)
    try:
        await system.begin()
        yield system
    finally:
        await system.aclose()


@asynccontextmanager
async def bridged(
    system: System,
    service: Service,
    *,
    out: str | None = "out any",
    topic: str = OUT,
    name: str = "bridge",
    dead_letters: str = "",
    password: str = "",
    address: str = "",
    limits: BridgeLimits = BridgeLimits(),
) -> AsyncIterator[Bridge]:
    """Runs a bridge within the context; its subscriptions are in force."""
    place = system.form.parse(address or system.address, password)
    peer = system.peer(
        PeerSettings(place, name, [system.source], None, limits, exchange=system.exchange)
    )
    translation = RecordTranslation(
        system.kind,
        system.kind,
        TextTemplate(topic),
        system.has_fields,
        TextTemplate(system.key) if system.key else None,
    )
    wanted = None if out is None else parse_filter(out)
    bridge = Bridge(service, peer, translation, out=wanted, dead_letters=dead_letters)
    opened = asyncio.Event()
    relaying = asyncio.create_task(bridge.run(opened.set))
    opening = asyncio.create_task(opened.wait())
    try:
        await asyncio.wait([relaying, opening], return_when=asyncio.FIRST_COMPLETED)
        if relaying.done():
            relaying.result()
        yield bridge
        assert not relaying.done(), relaying.exception()
    finally:
        for each in (relaying, opening):
            each.cancel()
        await asyncio.wait([relaying, opening])


def kept(folder: Path) -> Broker:
    """Returns a broker with a store, as certified delivery needs."""
    return Broker(port=0, store=folder / "contrada.db")


async def eventually(found: Callable[[], Awaitable[bool]]) -> None:
    """Gives the loop turns until something holds."""
    while not await found():
        await asyncio.sleep(0.01)


async def some(system: System, count: int, topic: str = OUT) -> list[Seen]:
    """Returns the records of a topic once there are so many."""

    async def is_there() -> bool:
        return len(await system.seen(topic)) >= count

    await eventually(is_there)
    return await system.seen(topic)


def content(system: System, seen: Seen) -> dict[str, Any]:
    """Returns the attributes of a record as the other side reads them."""
    if not system.has_fields:
        return dict(json.loads(seen.payload))
    fields = {n: v.decode() for n, v in seen.headers.items() if not n.startswith("contrada.")}
    return {name: int(value) if value.isdigit() else value for name, value in fields.items()}


@ALL
@on_loop
async def test_records_and_notifications_are_relayed(kind: type[System], tmp_path: Path) -> None:
    """Programs of the other system and subscribers here would not be connected; or one record that
    is refused would block all.
    """
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic = 'in'") as events,
        bridged(system, service) as bridge,
    ):
        await system.publish(b'{"n": 1, "price": 61.5, "topic": "forged"}', {"unit": "C"})
        found = await anext(events)
        assert (found["n"], found["price"], found["unit"]) == (1, 61.5, "C")
        assert (found["topic"], found["contrada.origin"]) == (IN, kind.kind)
        assert found.envelope.delivery == ("certified" if kind.is_stored else "best-effort")
        await desk.publish({"out": 1, "s": "x"}, delivery="certified")
        await desk.publish({"out": 2}, body=b"\xff!", content_type="image/png")
        first, second = await some(system, 2)
        assert content(system, first) == {"out": 1, "s": "x"}
        assert "contrada.id" in first.headers
        assert second.payload == b"\xff!"
        await until(lambda: bridge.counts["out"] == 2)


@ALL
@on_loop
async def test_what_is_no_object_and_what_is_big_is_relayed(
    kind: type[System], tmp_path: Path
) -> None:
    """A picture would be lost, or would end the bridge."""
    big = bytes(range(256)) * 500
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic = 'in'") as events,
        bridged(system, service) as bridge,
    ):
        for payload in (b"\xff\xfe", b"{broken", big):
            await system.publish(payload, {})
            assert system.payload_of(await anext(events)) == payload
        await desk.publish({"out": 1}, body=big)
        assert [each.payload for each in await some(system, 1)] == [big]
        assert bridge.counts["out, refused"] == 0


@ALL
@on_loop
async def test_two_bridges_make_no_loop(kind: type[System], tmp_path: Path) -> None:
    """One record would fill both systems for ever."""
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("n any") as events,
        bridged(system, service, out="n any", topic=IN, name="one") as one,
        bridged(system, service, out="n any", topic=IN, name="two") as two,
    ):
        await system.publish(b'{"n": 1}', {})
        await until(lambda: one.counts["in"] == two.counts["in"] == 1)
        await desk.publish({"n": 2})
        # Each bridge sends it once, and ignores what either has sent.
        ignored = "in, from here"
        await until(lambda: one.counts[ignored] == two.counts[ignored] == system.copies)
        assert sorted([str((await anext(events))["n"]) for _ in range(3)]) == ["1", "1", "2"]
        await system.publish(b'{"n": 3}', {})
        await until(lambda: one.counts["in"] == two.counts["in"] == 2)
        assert one.counts["out"] == two.counts["out"] == 1


@STORED
@on_loop
async def test_records_are_acknowledged_after_their_publication(
    kind: type[System], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A record would be lost with a bridge that ends before a broker has it."""
    async with running(kind, tmp_path) as system:
        async with (
            Broker(port=0) as broker,  # Without a store it refuses certified notifications.
            connect(broker.address) as service,
            bridged(system, service, out=None),
        ):
            await system.publish(b'{"n": 1}', {})
            await until(lambda: f"records of {system.address} wait" in caplog.text)
        async with (
            kept(tmp_path) as broker,
            connect(broker.address) as desk,
            connect(broker.address) as service,
            desk.subscribe("topic = 'in'") as events,
            bridged(system, service, out=None),
        ):
            assert (await anext(events))["n"] == 1


@pytest.mark.parametrize("kind", [needs(each) for each in (JetStream, RedisStreams, RabbitMq)])
@on_loop
async def test_a_notification_waits_for_its_place(
    kind: type[System], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue that is declared late, or a wrong permission, would lose all notifications; or one
    of them would block those for other places.
    """
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        bridged(system, service, topic="{where}", limits=QUICK) as bridge,
    ):
        await system.bar("late")
        await desk.publish({"out": 1, "where": "late"}, delivery="certified")
        await desk.publish({"out": 2, "where": OUT}, delivery="certified")
        await until(lambda: bridge.counts["out"] == 1 and bridge.counts["out, waiting"] > 1)
        assert content(system, (await some(system, 1))[0])["out"] == 2
        assert "out, waiting, 1: " in caplog.text
        assert "; without dead letters it is sent again until it has a place\n" in caplog.text
        await system.admit("late")
        await until(lambda: bridge.counts["out"] == 2)
        assert content(system, (await some(system, 1, "late"))[0])["out"] == 1
        assert bridge.counts["out, refused"] == 0


@pytest.mark.parametrize("kind", [needs(JetStream)])
@on_loop
async def test_an_unreadable_record_waits_for_the_place_of_dead_letters(
    kind: type[System], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be acknowledged although no dead letters have it, and so be lost."""
    assert kind.unreadable is not None
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as service,
        bridged(system, service, dead_letters="late"),
    ):
        await system.publish(b"x", kind.unreadable)
        await until(lambda: "dead letters late: no stream" in caplog.text)
        await system.admit("late")
        (dead,) = await some(system, 1, "late")
        assert dead.headers["contrada.topic"] == IN


class Refusing:
    """A peer that takes no dead letter."""

    settings = PeerSettings(AddressForm(("x", "xs"), (1, 2)).parse("x://a"), "b")
    template = TextTemplate

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ServiceError]:
        """Refuses all."""
        return [ServiceError("too large")] * len(records)


@on_loop
async def test_the_log_names_the_place_of_a_lost_record(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could find the record whose dead letter was refused in the other system."""
    unused: Any = None
    peer: Any = Refusing()
    bridge = Bridge(unused, peer, unused, dead_letters=DEAD)
    record = PeerRecord(topic="orders", facts={"partition": 3, "offset": 17, "key": "k" * 999})
    await bridge._refuse(record, InvalidValueError("x", "expected a map"))
    assert bridge.counts == {"in, refused": 1, "in, dead letters, lost": 1}
    line = caplog.messages[-1]
    assert line.startswith("in, dead letters, lost, orders, partition 3, offset 17, key kkk")
    assert line.endswith("…: too large")


class Returning:
    """The returns to a durable subscription, each cut off by a lost connection."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    async def nack(self, *positions: int) -> None:
        """Counts the call, which is cut off."""
        self.calls.append(positions)
        raise PeerLostError("x", "lost")


@on_loop
async def test_a_refused_notification_is_returned_after_a_lost_connection() -> None:
    """It would stay with the bridge, neither sent nor among the dead letters, until it restarts."""
    unused: Any = None
    events: Any = Returning()
    form = AddressForm(("x", "xs"), (1, 2))
    peer: Any = SimpleNamespace(
        settings=PeerSettings(form.parse("x://a"), "b"), template=TextTemplate
    )
    translation = RecordTranslation("x", "x", TextTemplate("{where}"))  # It refuses each.
    bridge = Bridge(unused, peer, translation, dead_letters=DEAD)
    bridge._unsent.put_nowait(DurableRecord(Notification({"n": 1}), 7, 0, 1))
    for _ in range(2):
        with pytest.raises(PeerLostError):
            await bridge._relay_out(events)
    assert events.calls == [(7,), (7,)]


class WithoutRoom:
    """A durable subscription of a broker whose disk is full at the first call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def acknowledge(self, position: int) -> None:
        """Raises StoreError for the first one."""
        self._call("acknowledge", position)

    async def nack(self, position: int) -> None:
        """Raises StoreError for the first one."""
        self._call("nack", position)

    def _call(self, kind: str, position: int) -> None:
        self.calls.append((kind, position))
        if len(self.calls) == 1:
            raise StoreError("no room is left")


@pytest.mark.parametrize(("dead_letters", "call"), [("", "acknowledge"), (DEAD, "nack")])
@on_loop
async def test_a_bridge_outlives_a_full_disk_of_its_broker(dead_letters: str, call: str) -> None:
    """It would end by an acknowledgement, though it waits where it publishes."""
    unused: Any = None
    events: Any = WithoutRoom()
    form = AddressForm(("x", "xs"), (1, 2))
    peer: Any = SimpleNamespace(
        settings=PeerSettings(form.parse("x://a"), "b"), template=TextTemplate
    )
    translation = RecordTranslation("x", "x", TextTemplate("{where}"))  # It refuses each.
    bridge = Bridge(unused, peer, translation, dead_letters=dead_letters)
    relaying = asyncio.create_task(bridge._relay_out(events))

    async def relay(position: int) -> None:
        bridge._unsent.put_nowait(DurableRecord(Notification({"n": 1}), position, 0, 1))
        await until(lambda: relaying.done() or len(events.calls) == position)

    await relay(1)
    await relay(2)
    assert events.calls == [(call, 1), (call, 2)]
    relaying.cancel()


class WithoutPlace(Refusing):
    """A peer without a place for two topics, and with refusals for another one."""

    has_fields = False

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ServiceError]:
        """Refuses all."""
        answers = {"a": NoPlaceError("no a"), "b": NoPlaceError("no b"), "c": ServiceError("no")}
        return [answers[each.topic] for each in records]


@on_loop
async def test_waiting_notifications_have_one_line_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each attempt of a queue that waits for one place would fill the log."""
    unused: Any = None
    peer: Any = WithoutPlace()
    bridge = Bridge(unused, peer, RecordTranslation("x", "x", TextTemplate("{where}")))
    items = [Notification({"where": where}) for where in "aabaccb"]
    some = [DurableRecord(item, place, 0, 1) for place, item in enumerate(items)]
    assert await bridge._send(some) == {0, 1, 2, 3, 6}
    lost, waits = "without dead letters it is lost", "without dead letters it is sent again"
    assert bridge.counts == {"out, waiting": 5, "out, refused": 2}
    assert caplog.messages == [
        f"out, refused, 4: no; {lost}",
        f"out, refused, 5: no; {lost}",
        f"out, waiting, 0 and 2 more: no a; {waits} until it has a place",
        f"out, waiting, 2 and 1 more: no b; {waits} until it has a place",
    ]


@on_loop
async def test_a_dead_letter_without_a_place_has_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night without the place of dead letters would log a line for each attempt."""
    answers = [NoPlaceError("no topic")] * 5 + [NoPlaceError("no right")] * 2

    async def send(records: Sequence[PeerRecord]) -> Sequence[ServiceError | None]:
        return [answers.pop(0) if answers else None] * len(records)

    monkeypatch.setattr(Backoff, "next_s", lambda _: 0)
    unused: Any = None
    peer: Any = Refusing()
    peer.send = send
    bridge = Bridge(unused, peer, unused, dead_letters=DEAD)
    await bridge._refuse(PeerRecord(topic="s"), InvalidValueError("x", "expected a map"))
    assert caplog.messages[1:] == [
        f"x://a:1: dead letters {DEAD}: {each}" for each in ("no topic", "no right")
    ]


class Slow:
    """A peer that takes so many records in its time, and then the connection is lost."""

    has_fields = False
    patience = 1.0
    template = TextTemplate
    settings = PeerSettings(AddressForm(("x", "xs"), (1, 2)).parse("x://a"), "b")

    def __init__(self, taken: float) -> None:
        self.taken = taken
        self.sent: list[tuple[int, float]] = []

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[None]:
        """Takes few."""
        self.sent.append((len(records), self.patience))
        if len(records) > self.taken * self.patience:
            raise PeerLostError("x", "no answer within 10 s")
        return [None] * len(records)


@pytest.mark.parametrize(
    ("taken", "sent"),
    [
        (3, [(10, 1), (5, 1), (2, 1), (3, 1), (4, 1), (2, 1), (3, 1)]),
        (0.2, [(2, 1), (1, 1), (1, 2), (1, 4), (1, 8), (1, 4), (1, 8)]),
    ],
)
@on_loop
async def test_a_slow_peer_gets_fewer_records_at_once(
    taken: float, sent: list[tuple[int, float]]
) -> None:
    """The same batch would be sent again and again: all of it in part, and nothing behind it. So
    would a record that takes longer than any has time.
    """
    unused: Any = None
    peer: Any = Slow(taken)
    count = sent[0][0]
    done: list[int] = []

    async def acknowledge(*positions: int) -> None:
        done.extend(sorted(positions))

    events: Any = SimpleNamespace(acknowledge=acknowledge, nack=acknowledge)
    bridge = Bridge(unused, peer, RecordTranslation("x", "x", TextTemplate("out")))
    for position in range(1, count + 1):
        bridge._unsent.put_nowait(DurableRecord(Notification({"n": 1}), position, 0, 1))

    async def relay() -> None:
        relaying = asyncio.create_task(bridge._relay_out(events))
        await until(lambda: relaying.done() or len(done) == count)
        relaying.cancel()
        await asyncio.wait([relaying])

    while len(done) < count:  # Connections.
        await relay()
    assert done == [*range(1, count + 1)]
    assert peer.sent == sent


# The client of Kafka opens several connections, one after another.
@pytest.mark.parametrize("kind", [needs(each) for each in SYSTEMS if each is not Kafka])
@on_loop
async def test_a_slow_record_gives_a_silent_host_no_more_time(
    kind: type[System], tmp_path: Path
) -> None:
    """The bridge would wait ten minutes for a host that accepts connections and never answers."""
    system = kind(tmp_path)
    async with silent_host() as system.port:
        place = system.form.parse(system.address)
        peer = system.peer(PeerSettings(place, "b", limits=BridgeLimits(bridge_wait_s=0.1)))
        peer.patience = 100.0
        with pytest.raises(ConnectionFailedError, match=r"no answer.* within 0\.1 s"):
            await peer.open()
        await peer.aclose()


@on_loop
async def test_a_slow_dead_letter_gets_more_time_after_each_lost_connection() -> None:
    """It would be sent again and again, and the records behind it never."""
    unused: Any = None
    peer: Any = Slow(0.2)
    bridge = Bridge(unused, peer, unused, dead_letters=DEAD)
    record = PeerRecord(topic="s")
    for _ in range(3):
        with pytest.raises(PeerLostError):
            await bridge._refuse(record, InvalidValueError("x", "expected a map"))
    await bridge._refuse(record, InvalidValueError("x", "expected a map"))
    peer.taken = 1
    for _ in range(2):
        await bridge._refuse(record, InvalidValueError("x", "expected a map"))
    assert peer.sent == [(1, n) for n in (1, 2, 4, 8, 1, 1)]


@on_loop
async def test_notifications_have_the_time_of_a_dead_letter_only_until_it_is_sent() -> None:
    """For ever after a slow one, a lost connection would be noticed after ten minutes."""
    unused: Any = None
    peer: Any = Slow(0.2)
    bridge = Bridge(unused, peer, RecordTranslation("x", "x", TextTemplate("o")), dead_letters=DEAD)
    times: list[float] = []

    async def acknowledge(*_: int) -> None:
        times.append(peer.patience)

    async def relay_one() -> None:
        events: Any = SimpleNamespace(acknowledge=acknowledge)
        count = len(times) + 1
        bridge._unsent.put_nowait(DurableRecord(Notification({"n": 1}), count, 0, 1))
        relaying = asyncio.create_task(bridge._relay_out(events))
        await until(lambda: len(times) == count)
        relaying.cancel()
        await asyncio.wait([relaying])

    dead = PeerRecord(topic="s")
    for _ in range(3):
        with pytest.raises(PeerLostError):
            await bridge._refuse(dead, InvalidValueError("x", "expected a map"))
    await relay_one()
    await bridge._refuse(dead, InvalidValueError("x", "expected a map"))
    peer.taken = 1
    await relay_one()
    assert times == [8, 1]


@ALL
@on_loop
async def test_refused_notifications_become_dead_letters(
    kind: type[System], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A notification that the other system cannot hold would be lost, or would block all others."""
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        bridged(system, service, topic="{where}", dead_letters=DEAD, limits=QUICK) as bridge,
    ):
        await desk.publish({"out": 1}, delivery="certified")
        await desk.publish({"out": 2, "where": OUT}, delivery="certified")
        await until(lambda: bridge.counts == {"out": 1, "out, refused": 5})
        async with desk.subscribe(durable=DEAD) as dead:
            assert (await anext(dead)).item["out"] == 1
    assert "where: the template needs one value of it, found none" in caplog.text.replace("'", "")


@ALL
@on_loop
async def test_unreadable_records_become_dead_letters(kind: type[System], tmp_path: Path) -> None:
    """A record that no notification can hold would be lost, or would be received for ever."""
    if kind.unreadable is None:
        pytest.skip("a notification can hold all its records")
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic = 'in'") as events,
        bridged(system, service, dead_letters=DEAD) as bridge,
    ):
        await system.publish(b"x", kind.unreadable)
        await system.publish(b'{"n": 1}', {})
        assert (await anext(events))["n"] == 1
        await until(lambda: bridge.counts == {"in": 1, "in, refused": 1})
        (dead,) = await some(system, 1, DEAD)
        assert "300 bytes" in str(dead.headers["contrada.reason"])
        assert dead.headers["contrada.topic"] == IN


@ON_DISK
@on_loop
async def test_a_killed_server_loses_nothing(kind: type[System], tmp_path: Path) -> None:
    """A restart of the other system would lose records, or end the bridge."""
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic = 'in'", durable="all") as events,
        bridged(system, service) as bridge,
    ):
        for part in range(3):
            at = bridge.counts["in"]
            for n in range(40 * part, 40 * part + 40):
                await system.publish(json.dumps({"n": n}).encode(), {})
            await desk.publish_batch(
                [{"out": n} for n in range(40 * part, 40 * part + 40)], delivery="certified"
            )
            await until(partial(lambda at: bridge.counts["in"] > at, at))
            system.kill()
            await system.begin()
        arrived: set[Any] = set()
        while len(arrived) < 120:
            arrived.add((await anext(events)).item["n"])

        async def all_are_there() -> bool:
            return {content(system, each)["out"] for each in await system.seen()} == {*range(120)}

        await eventually(all_are_there)


@STORED
@on_loop
async def test_a_killed_bridge_loses_nothing(kind: type[System], tmp_path: Path) -> None:
    """A crash of the bridge would lose what it had received, or had not sent."""
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        desk.subscribe("topic = 'in'", durable="all") as events,
    ):
        command = [
            *(*CONTRADA, "bridge", kind.kind, "--broker", system.address, "--to", broker.address),
            *("--in", system.source, "--out", "out any", "--topic", OUT),
            *(("--exchange", system.exchange) if system.exchange else ()),
            *(("--key", system.key) if system.key else ()),
        ]
        arrived: set[Any] = set()
        bridges: list[asyncio.subprocess.Process] = []
        for part in range(3):
            bridge = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
            bridges.append(bridge)
            assert bridge.stdout is not None
            line = f"{system.address} and {broker.address}\n"
            assert (await bridge.stdout.readline()).decode() == line
            for n in range(40 * part, 40 * part + 40):
                await system.publish(json.dumps({"n": n}).encode(), {})
            await desk.publish_batch(
                [{"out": n} for n in range(40 * part, 40 * part + 40)], delivery="certified"
            )
            if part < 2:  # In the middle: some have arrived, and more are on their way.
                arrived.add((await anext(events)).item["n"])
                bridge.kill()
                await bridge.communicate()
        while len(arrived) < 120:
            arrived.add((await anext(events)).item["n"])

        async def all_are_there() -> bool:
            return {content(system, each)["out"] for each in await system.seen()} == {*range(120)}

        await eventually(all_are_there)
        bridges[-1].send_signal(signal.SIGTERM)
        _, told = await bridges[-1].communicate()
        assert (bridges[-1].returncode, told) == (0, b"")


@GUARDED
@on_loop
async def test_a_wrong_password_is_reported(kind: type[System], tmp_path: Path) -> None:
    """A person would look for the fault in the network; or the password would be in a log."""
    async with (
        running(kind, tmp_path, has_users=True) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as service,
    ):
        place, guess = system.address.replace("://", "://desk@"), "wrong"
        with pytest.raises(ConnectionFailedError) as caught:
            async with bridged(system, service, address=place, password=guess):
                pass
        assert guess not in str(caught.value)
        assert system.refusal in str(caught.value)
        async with bridged(system, service, address=place, password=PASSWORD) as bridge:
            await system.publish(b"{}", {})
            await until(lambda: bridge.counts["in"] == 1)


@GUARDED
@on_loop
async def test_tls_is_spoken_and_never_left_out(kind: type[System], tmp_path: Path) -> None:
    """Any host on the network path could read the password, or say that there is no TLS."""
    (tmp_path / "keys").mkdir()
    authority = Authority(tmp_path / "keys")

    async def reason_of(system: System, tls: Tls) -> str:
        address = f"{system.form.schemes[1]}://desk@{HOST}:{system.port}"
        place = system.form.parse(address, PASSWORD)
        limits = BridgeLimits(bridge_wait_s=2.0)
        while True:
            peer = system.peer(PeerSettings(place, "b", [], tls, limits))
            try:
                await peer.open()
            except ConnectionFailedError as error:
                if "refused: no server" not in str(error):  # It has started.
                    return str(error)
            else:
                return ""
            finally:
                await peer.aclose()

    for is_secure in (True, False):
        system = kind(tmp_path, has_users=True)
        system.tls = authority.tls() if is_secure else None
        try:
            system.start()
            assert (await reason_of(system, Tls(authority=authority.path)) == "") == is_secure
            assert await reason_of(system, Tls()) != ""
        finally:
            system.kill()


@ALL
@on_loop
async def test_a_missing_server_is_reported(kind: type[System], tmp_path: Path) -> None:
    """A traceback would be shown instead of the reason."""
    system = kind(tmp_path)
    async with kept(tmp_path) as broker, connect(broker.address) as service:
        with pytest.raises(ConnectionFailedError, match=f"{system.port}: .*refused"):
            async with bridged(system, service):
                pass
