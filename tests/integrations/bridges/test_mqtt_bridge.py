"""A bridge to a real MQTT broker relays both ways, at least once, and without loops."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from contrada.cli import main
from contrada.connections import connect
from contrada.errors import (
    ConnectionFailedError,
    InvalidValueError,
    NoPlaceError,
    NotPermittedError,
    StoreError,
)
from contrada.integrations.bridges.bridge import CIRCLE, IN, OUT, UNWANTED, Bridge
from contrada.integrations.bridges.bridge_peer import BridgeLimits, PeerSettings
from contrada.integrations.bridges.mqtt_peer import (
    MQTT_ADDRESS,
    MqttLimits,
    MqttPeer,
    TopicTemplate,
)
from contrada.integrations.bridges.record_translation import PeerRecord, RecordTranslation
from contrada.model.syntax import parse_filter
from contrada.net.broker.broker import Broker
from contrada.net.wire.tls import Tls
from contrada.service import Service
from tests.asynchronous import on_loop, until
from tests.integrations.bridges.mosquitto import HOST, Mosquitto, Other, mosquitto, needs_mosquitto
from tests.integrations.bridges.systems import silent_host
from tests.net.conftest import CONTRADA
from tests.net.test_tls import Authority

pytestmark = [needs_mosquitto, pytest.mark.slow]

ONE = MqttLimits(mqtt_in_flight_max=1)


@pytest.fixture
def mqtt(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as broker:
        yield broker


def kept(mqtt: Mosquitto) -> Broker:
    """Returns a broker with a store, as certified delivery needs."""
    return Broker(port=0, store=mqtt.folder / "contrada.db")


@asynccontextmanager
async def bridged(
    mqtt: Mosquitto,
    service: Service,
    filters: Sequence[str] = (),
    out: str | None = None,
    topic: str = "{topic}",
    name: str = "bridge",
    retain: bool = False,
    dead_letters: str = "",
) -> AsyncIterator[Bridge]:
    """Runs a bridge within the context; its subscriptions are in force."""
    settings = PeerSettings(mqtt.address, name, filters, retain=retain)
    bridge = Bridge(
        service,
        MqttPeer(settings, MqttLimits(mqtt_in_flight_max=8)),
        RecordTranslation("mqtt", "mqtt", TopicTemplate(topic)),
        out=None if out is None else parse_filter(out),
        dead_letters=dead_letters,
    )
    opened = asyncio.Event()
    relaying = asyncio.create_task(bridge.run(opened.set))
    opening = asyncio.create_task(opened.wait())
    try:
        await asyncio.wait([relaying, opening], return_when=asyncio.FIRST_COMPLETED)
        if relaying.done():
            relaying.result()
        yield bridge
    finally:
        if relaying.done():
            relaying.result()
        for each in (relaying, opening):
            each.cancel()
        await asyncio.wait([relaying, opening])


@on_loop
async def test_messages_and_notifications_are_relayed(tmp_path: Path) -> None:
    """Sensors and their subscribers would not be connected; or one refused message would block
    all.
    """
    with mosquitto(tmp_path, "max_packet_size 2000") as mqtt:
        await _both_ways(mqtt)


async def _both_ways(mqtt: Mosquitto) -> None:
    other = Other(mqtt, "alarms/#")
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address, publisher="bridge") as service,
        desk.subscribe("topic prefix 'sensors/'") as events,
        bridged(mqtt, service, ["sensors/#"], "alarm any", "alarms/{alarm}") as bridge,
    ):
        await other.publish("sensors/a", '{"t": 31.5}', UserProperty=[("unit", "C")])
        asked: Any = {"ResponseTopic": "alarms/answer", "CorrelationData": b"\x11\xff"}
        await other.publish("sensors/b", b"\xff", ContentType="image/png", qos=0, **asked)
        received = [await anext(events) for _ in range(2)]
        found = {each["topic"]: dict(each) for each in received}
        assert found.keys() == {"sensors/a", "sensors/b"}
        assert found["sensors/b"]["mqtt.response_topic"] == "alarms/answer"
        correlation = found["sensors/b"]["mqtt.correlation"]
        await desk.publish({"alarm": "fire", "n": 1, "mqtt.correlation": correlation})
        await desk.publish({"alarm": "no/+"})
        await desk.publish({"alarm": "\n"})
        await desk.publish({"alarm": "big"}, body=b"x" * 3_000)
        await desk.publish({"alarm": "flood"}, body=b"!", content_type="text/plain")
        await until(lambda: len(other.got) == 2)
        assert [each.topic for each in other.got] == ["alarms/fire", "alarms/flood"]
        assert json.loads(other.got[0].payload) == {"alarm": "fire", "n": 1}
        assert other.got[0].qos == 1
        assert vars(other.got[0].properties)["CorrelationData"] == b"\x11\xff"
        assert other.got[1].payload == b"!"
        await until(lambda: bridge.counts == {IN: 2, OUT: 2, f"{OUT}, refused": 3})
    other.close()


@on_loop
async def test_two_bridges_make_no_loop(mqtt: Mosquitto) -> None:
    """One message would fill both brokers for ever."""
    other = Other(mqtt, "#")
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic any") as events,
        bridged(mqtt, service, ["#"], "topic any", name="one") as one,
        bridged(mqtt, service, ["#"], "topic any", name="two") as two,
    ):
        await other.publish("a", '{"n": 1}')
        await desk.publish({"topic": "b", "n": 2})
        await until(lambda: one.counts[OUT] + two.counts[OUT] == 2)  # One bridge for each event.
        await until(lambda: one.counts[CIRCLE] == two.counts[CIRCLE] == 1)
        await until(lambda: one.counts[IN] + two.counts[IN] == 2)
        assert sorted([str((await anext(events))["topic"]) for _ in range(3)]) == ["a", "a", "b"]
        await other.publish("end")
        await until(lambda: len(other.got) == 4)
        assert [each.topic for each in other.got] == ["a", "b", "b", "end"]
    other.close()


class Failing:
    """A service that fails until `hold` is set, and refuses notifications with `bad`."""

    def __init__(self, service: Service, *errors: Exception) -> None:
        self._service = service
        self._errors = [*errors]
        self.hold = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def publish_batch(self, items: Any) -> int:
        await self.hold.wait()
        if self._errors:
            raise self._errors.pop(0)
        for place, each in enumerate(items):
            if "bad" in each:
                error = NotPermittedError("it may not publish that")
                error.published = await self._service.publish_batch(items[:place])
                raise error
        return await self._service.publish_batch(items)


@on_loop
async def test_a_message_is_acknowledged_after_its_publication(mqtt: Mosquitto) -> None:
    """A bridge that ends would lose the messages in its queue."""
    other = Other(mqtt)
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic any") as events,
    ):
        slow: Any = Failing(service)
        async with bridged(mqtt, slow, ["s"]):
            for n in range(300):  # More than the broker may send ahead.
                await other.publish("s", f'{{"n": {n}}}')
        await until(lambda: mqtt.farewells("bridge") == 1)
        await other.publish("s", '{"n": 300}')  # While nobody is there.
        async with bridged(mqtt, service, ["s"]) as bridge:
            assert [(await anext(events))["n"] for _ in range(301)] == [*range(301)]
            await until(lambda: bridge.counts[IN] == 301)
        await until(lambda: mqtt.farewells("bridge") == 2)
        async with bridged(mqtt, service, ["end"]) as bridge:
            await other.publish("s")  # The session still has that.
            await other.publish("end")
            assert (await anext(events))["topic"] == "end"
            assert bridge.counts[UNWANTED] == 1
    other.close()


@on_loop
async def test_temporary_errors_are_retried_and_refusals_skipped(
    mqtt: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk would lose messages, or a forbidden one would block all others."""
    other = Other(mqtt)
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic any") as events,
    ):
        failing: Any = Failing(service, StoreError("the disk is full"))
        async with bridged(mqtt, failing, ["s"]) as bridge:
            for n in range(9):
                await other.publish("s", f'{{"n": {n}}}' if n % 3 else '{"bad": 1}')
            failing.hold.set()
            assert [(await anext(events))["n"] for _ in range(6)] == [1, 2, 4, 5, 7, 8]
            await until(lambda: bridge.counts == {IN: 6, f"{IN}, refused": 3})
    assert f"records of {mqtt.address} wait: the disk is full" in caplog.text
    assert "in, refused, s: " in caplog.text
    other.close()


@on_loop
async def test_outgoing_notifications_are_kept_until_mqtt_acknowledges(mqtt: Mosquitto) -> None:
    """Commands would be lost while the MQTT broker is down."""
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
    ):
        async with bridged(mqtt, service, out="topic any", retain=True) as bridge:
            await desk.publish({"topic": "a", "n": -1}, delivery="certified")
            await until(lambda: bridge.counts[OUT] == 1)
            mqtt.end()
            for n in range(20):
                await desk.publish({"topic": f"a/{n}"}, delivery="certified")
        mqtt.begin()
        async with bridged(mqtt, service, out="topic any", retain=True) as bridge:
            await until(lambda: bridge.counts[OUT] == 20)
        other = Other(mqtt, "#")
        await until(lambda: len(other.got) == 21)
        assert {each.topic for each in other.got} == {"a", *(f"a/{n}" for n in range(20))}
        other.close()


@on_loop
async def test_a_bridge_reconnects_to_mqtt(mqtt: Mosquitto) -> None:
    """A person would have to watch and restart it."""
    other = Other(mqtt, "out")
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        desk.subscribe("topic = 'in'") as events,
        bridged(mqtt, service, ["in"], "topic = 'out'"),
    ):
        mqtt.end()
        await desk.publish({"topic": "out"}, delivery="certified")
        mqtt.begin()
        again = Other(mqtt, "out")
        await until(lambda: len(again.got) >= 1 or len(other.got) >= 1)
        await again.publish("in")
        assert (await anext(events))["topic"] == "in"
    for each in (other, again):
        each.close()


@pytest.mark.parametrize(
    ("suback", "last", "reason"),
    [
        (b"\x90\x04\0\1\0\1", b"\xe0\2\x8e\0", "give each bridge a name of its own"),
        (b"\x90\x04\0\1\0\x87", b"", "refuses the subscription to 'a': Not authorized"),
    ],
    ids=["taken over", "not authorized"],
)
@on_loop
async def test_a_session_that_was_taken_over_does_not_reconnect(
    suback: bytes, last: bytes, reason: str
) -> None:
    """Two bridges with one name would take the session from each other for ever."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for answer in (b"\x20\3\0\0\0", suback + last):
            await reader.readexactly(1)
            await reader.readexactly((await reader.readexactly(1))[0])
            writer.write(answer)
        await reader.read()
        writer.close()

    serving = await asyncio.start_server(serve, HOST, 0)
    place = MQTT_ADDRESS.parse(f"mqtt://{HOST}:{serving.sockets[0].getsockname()[1]}")
    session = MqttPeer(PeerSettings(place, "one", ["a"]), ONE)

    async def carry() -> None:
        await session.open()
        await session.receive()

    async with serving:
        with pytest.raises(ConnectionFailedError, match=reason):
            await carry()
        await session.aclose()
    assert connections == 1


@on_loop
async def test_a_bridge_reconnects_to_its_broker(mqtt: Mosquitto) -> None:
    """Each restart of a broker would end all bridges to it."""
    other = Other(mqtt, "out")
    first = kept(mqtt)
    await first.start()
    port = int(first.address.rpartition(":")[2])
    async with AsyncExitStack() as stack:
        second = Broker(port=port, store=mqtt.folder / "contrada.db")
        stack.push_async_callback(second.stop)  # Last.
        service = await stack.enter_async_context(connect(first.address))
        desk = await stack.enter_async_context(connect(first.address))
        bridge = await stack.enter_async_context(bridged(mqtt, service, ["in"], "topic = 'out'"))
        await other.publish("in")
        await desk.publish({"topic": "out"}, delivery="certified")
        await until(lambda: bridge.counts == {IN: 1, OUT: 1})
        await first.stop()
        for _ in range(5):
            await other.publish("in")
        await second.start()
        await desk.publish({"topic": "out"}, delivery="certified")
        await until(lambda: bridge.counts[IN] >= 6 and bridge.counts[OUT] >= 2)
    other.close()


@pytest.mark.parametrize(("code", "waits"), [(0x80, True), (0x83, True), (0x90, False)])
@on_loop
async def test_a_refusal_without_a_reason_is_tried_again(code: int, *, waits: bool) -> None:
    """A fault of the MQTT broker itself would lose messages, as if each were wrong."""
    peer = MqttPeer(PeerSettings(MQTT_ADDRESS.parse("mqtt://h"), "b"))
    sent = peer._unacknowledged[1] = asyncio.get_running_loop().create_future()
    peer._complete_send(1, ReasonCode(PacketTypes.PUBACK, identifier=code))
    assert isinstance(sent.exception(), NoPlaceError) == waits


@on_loop
async def test_a_notification_waits_for_its_permission(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong permission would lose all notifications; or one would block those of other topics."""
    (tmp_path / "permitted").write_text("topic write ok\n")
    with mosquitto(tmp_path, f"acl_file {tmp_path}/permitted") as mqtt:
        async with (
            kept(mqtt) as broker,
            connect(broker.address) as service,
            bridged(mqtt, service, out="topic any") as bridge,
        ):
            for topic in ("no", "ok"):
                await service.publish({"topic": topic})
            await until(lambda: bridge.counts[OUT] == 1 and bridge.counts[f"{OUT}, waiting"] > 1)
            (tmp_path / "permitted").write_text("topic write #\n")
            mqtt.reload()
            await until(lambda: bridge.counts[OUT] == 2)
            assert bridge.counts[f"{OUT}, refused"] == 0
    assert "the MQTT broker refuses it: Not authorized" in caplog.text


@on_loop
async def test_refused_messages_become_dead_letters(mqtt: Mosquitto) -> None:
    """A message that no notification can hold would be lost, or stay as the state of its topic."""
    other = Other(mqtt, "dead")
    async with (
        kept(mqtt) as broker,
        connect(broker.address) as service,
        bridged(mqtt, service, ["s"], retain=True, dead_letters="dead") as bridge,
    ):
        await other.publish("s", "x", ContentType="x" * 300)
        await until(lambda: len(other.got) == 1)
        found = dict(vars(other.got[0].properties)["UserProperty"])
        assert found["contrada.topic"] == "s"
        assert "300 bytes" in found["contrada.reason"]
        assert bridge.counts == {f"{IN}, refused": 1}
    again = Other(mqtt, "dead", "end")
    await again.publish("end")
    await until(lambda: len(again.got) == 1)
    assert again.got[0].topic == "end"
    for each in (other, again):
        each.close()


@on_loop
async def test_a_dead_letter_waits_for_its_permission(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The message would be acknowledged although no dead letters have it, and so be lost; or the
    bridge would end.
    """
    (tmp_path / "permitted").write_text("topic write s/#\ntopic read #\n")
    with mosquitto(tmp_path, f"acl_file {tmp_path}/permitted") as mqtt:
        other = Other(mqtt, "dead")
        async with (
            kept(mqtt) as broker,
            connect(broker.address) as service,
            bridged(mqtt, service, ["s"], "k any", "s/out", dead_letters="dead") as bridge,
        ):
            await other.publish("s", "x", ContentType="x" * 300)
            await until(lambda: "dead letters dead: the MQTT broker refuses" in caplog.text)
            # The other direction and the connection are as before.
            await service.publish({"k": 1})
            await until(lambda: bridge.counts[OUT] == 1)
            assert bridge.counts[f"{IN}, refused"] == 1
            (tmp_path / "permitted").write_text("topic #\n")
            mqtt.reload()
            await until(lambda: len(other.got) == 1)
            await other.publish("s", '{"n": 1}')
            await until(lambda: bridge.counts[IN] == 1)
        other.close()


@on_loop
async def test_dead_letters_have_a_name_of_a_topic(mqtt: Mosquitto) -> None:
    """Each dead letter would be refused, and lost."""
    async with kept(mqtt) as broker, connect(broker.address) as service:
        with pytest.raises(InvalidValueError, match="expected a topic"):
            async with bridged(mqtt, service, ["s"], dead_letters="dead/#"):
                pass


@on_loop
async def test_few_messages_wait_for_a_lost_broker(tmp_path: Path) -> None:
    """Its broker would get more at once than it permits, and end each new connection."""
    with mosquitto(tmp_path, "max_inflight_messages 5") as mqtt:
        session = MqttPeer(PeerSettings(mqtt.address, "many"), MqttLimits(mqtt_in_flight_max=8))
        await session.open()
        mqtt.end()
        sending = asyncio.create_task(session.send([PeerRecord(topic="a")] * 20))
        await until(lambda: bool(session._unacknowledged))
        assert len(session._unacknowledged) == 5
        mqtt.begin()
        assert await sending == [None] * 20
        await session.aclose()


@on_loop
async def test_repeated_messages_are_queued_once(mqtt: Mosquitto) -> None:
    """Each broken connection would add the unacknowledged messages to the queue again."""
    session = MqttPeer(PeerSettings(mqtt.address, "slow", ["a"]), ONE)
    await session.open()
    other = Other(mqtt)
    for _ in range(5):
        await other.publish("a")
    await until(lambda: len(session._queue) == 5)
    other.close()
    mqtt.end()
    mqtt.begin()
    await until(lambda: session._connection == 2)
    other = Other(mqtt)
    await other.publish("a", b"last")
    found: list[bytes] = []
    while b"last" not in found:
        found += [each.payload for each in await session.receive()]
    assert found == [b""] * 5 + [b"last"]
    await session.aclose()
    other.close()


@on_loop
async def test_messages_beyond_the_queue_are_dropped_and_counted(mqtt: Mosquitto) -> None:
    """A flood would fill the memory of the bridge."""
    other = Other(mqtt)
    limits = MqttLimits(
        mqtt_queued_max=10 + ONE.mqtt_unacknowledged_max, mqtt_queued_bytes_max=10_000
    )
    session = MqttPeer(PeerSettings(mqtt.address, "slow", ["a"]), limits)
    await session.open()
    for _ in range(30):
        await other.publish("a", qos=0)
    await other.publish("a", qos=1)
    await until(lambda: len(session._queue) == 11)
    assert session.dropped == 20
    assert [each.facts["qos"] for each in await session.receive()] == [0] * 10 + [1]
    for _ in range(2):
        await other.publish("a", b"x" * 4_000, qos=0)
    await until(lambda: session.dropped == 21)
    assert len(await session.receive()) == 1
    await session.aclose()
    with pytest.raises(Exception, match="closed"):
        await session.receive()
    again = MqttPeer(PeerSettings(mqtt.address, "slow", ["a"]), ONE)
    await again.open()
    (left,) = await again.receive()
    assert left.facts["qos"] == 1
    await again.aclose()
    other.close()


@on_loop
async def test_a_refused_connection_is_reported(tmp_path: Path) -> None:
    """A person would look for the fault in the network."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        nowhere = f"mqtt://{HOST}:{free.getsockname()[1]}"
    cases = [(MQTT_ADDRESS.parse(nowhere), "connection refused: no MQTT broker there")]
    with mosquitto(tmp_path, "allow_anonymous false") as mqtt:
        cases.append((mqtt.address, "refuses the connection: Not authorized"))
        for place, reason in cases:
            with pytest.raises(ConnectionFailedError, match=reason):
                await MqttPeer(PeerSettings(place, "b"), ONE).open()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's socket
@on_loop
async def test_a_bridge_speaks_tls_to_mqtt(tmp_path: Path) -> None:
    """Any host on the network path could read passwords of devices."""
    (tmp_path / "keys").mkdir()
    authority = Authority(tmp_path / "keys")
    pem = authority.tls().certificate
    with mosquitto(tmp_path, f"certfile {pem}", f"keyfile {pem}") as mqtt:
        place = MQTT_ADDRESS.parse(f"mqtts://{HOST}:{mqtt.port}")
        session = MqttPeer(PeerSettings(place, "b", ["a"], Tls(authority=authority.path)), ONE)
        await session.open()
        await session.aclose()
        with pytest.raises(ConnectionFailedError, match="is not trusted"):
            await MqttPeer(PeerSettings(place, "b", tls=Tls()), ONE).open()


def test_the_former_name_changes_options_alone() -> None:
    """Messages would have another topic than the one in a script, or another filter."""
    command = ["mqtt", "--broker", "mqtt://a", "--out", "a = 1"]
    found = CliRunner().invoke(main, [*command, "--topic", "a/--mqtt-b/+"])
    assert "'a/--mqtt-b/+': expected a topic" in found.stderr


def test_the_former_name_has_the_variables_of_the_present_one() -> None:
    """A container that sets them would bridge by the defaults."""
    # A process of its own: a command has its variables once anything has looked it up.
    command = [*CONTRADA, "mqtt", "--broker", "mqtt://a", "--topic", "a/+"]
    variables = {**os.environ, "CONTRADA_BRIDGE_IN": "a"}
    found = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert "'a/+': expected a topic" in found.stderr


@pytest.mark.parametrize("name", [["bridge", "mqtt", "--stats"], ["mqtt"]], ids=["now", "former"])
@on_loop
async def test_the_command_relays_until_it_is_interrupted(
    name: list[str], mqtt: Mosquitto, tmp_path: Path
) -> None:
    """Only programs could use a bridge; or scripts with its former name would fail."""
    other = Other(mqtt)
    async with kept(mqtt) as broker, connect(broker.address) as desk:
        place = f"mqtt://{HOST}:{mqtt.port}"
        command = [*CONTRADA, *name, "--broker", place, "--to", broker.address, "--in", "s/#"]
        bridge = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        assert bridge.stdout is not None
        assert await bridge.stdout.readline() == f"{place} and {broker.address}\n".encode()
        async with desk.subscribe("topic = 's/a'") as events:
            for n in range(2):  # Once the second is there, the first was counted.
                await other.publish("s/a", f'{{"n": {n}}}')
                assert (await anext(events))["n"] == n
        bridge.send_signal(signal.SIGTERM)
        _, said = await bridge.communicate()
        assert bridge.returncode == 0
        former = b"contrada mqtt is contrada bridge mqtt now\n" if name == ["mqtt"] else b""
        # A direction without a record has its line, or silence would look like a missing option.
        assert said in (former + b"1 in\n0 out\n", former + b"2 in\n0 out\n")
    other.close()


@pytest.mark.filterwarnings("ignore:unclosed <ssl:ResourceWarning")  # paho leaves it to Python.
@on_loop
async def test_a_silent_host_has_the_time_of_a_bridge_for_tls() -> None:
    """A slow link could not be opened in ten seconds, nor a host that never answers be left."""
    async with silent_host() as port:
        address = MQTT_ADDRESS.parse(f"mqtts://{HOST}:{port}")
        peer = MqttPeer(PeerSettings(address, "b", limits=BridgeLimits(bridge_wait_s=0.1)))
        with pytest.raises(ConnectionFailedError, match=r"no answer.* within 0\.1 s"):
            await peer.open()
        await peer.aclose()
