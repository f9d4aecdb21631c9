"""`MqttPeer`: topics of an MQTT 5 broker, with explicit acknowledgements both ways.

Unlike the connections of other peers its session outlives them: paho implements MQTT on a thread of
its own, and reconnects by itself with growing waits. Two bounded containers lie between that thread
and the event loop:

    paho's thread --message--> queue --receive()--> ... --acknowledge()--> PUBACK
    event loop ----send()----> unacknowledged, by packet identifier --PUBACK--> its future

The broker keeps the session of a disconnected client, so it repeats messages of QoS 1 until they
are acknowledged, also on the next connection. Receive Maximum bounds the unacknowledged ones;
messages of QoS 0 that exceed the queue are dropped, counted.

    topic                         <-> `topic`
    QoS, retain                    -> `mqtt.qos`, `mqtt.retain`
    response topic, correlation   <-> `mqtt.response_topic`, `mqtt.correlation` (bytes)
    user properties               <-> headers
    message expiry                <-> time to live
"""

import asyncio
import logging
import math
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    InvalidValueError,
    NoPlaceError,
    ServiceError,
)
from contrada.integrations.bridges.bridge_peer import AddressForm, BridgePeer, PeerSettings
from contrada.integrations.bridges.record_translation import PeerRecord, TextTemplate, text_of
from contrada.model import Value
from contrada.model.algebra.attributes import Values
from contrada.net.wire.endpoint import describe_os_error
from contrada.service.clock import wall_clock_us

MQTT_ADDRESS: Final = AddressForm(("mqtt", "mqtts"), (1883, 8883))

MQTT_TEXT_BYTES_MAX: Final = 65_535
"""Bytes of a topic or user property in MQTT. Beyond it: the notification is refused, counted."""

_HEADER_BYTES: Final = 16
"""Upper bound of the fixed header, the length of the topic and the packet identifier."""

_EXPIRY_S_MAX: Final = 2**32 - 1

_ENDS_OF_PLANES: Final = "".join(
    chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)
)
_NO_TEXT: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_ENDS_OF_PLANES}]")
"""Characters for which an MQTT broker may end the connection."""

_IGNORED: Final = (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN)
"""Results of a publication that is sent now, or on the next connection."""

_NO_PLACE: Final = (0x80, 0x83, 0x87, 0x97)
"""Reason codes of a refusal that may end: not specified, of this broker alone, not authorized,
quota exceeded."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits of an `MqttPeer`, beside those of each bridge."""

    mqtt_in_flight_max: int = 64
    """Messages that the MQTT broker has not acknowledged, or as many as it permits if these are
    fewer. Beyond it: the next ones wait."""
    mqtt_unacknowledged_max: int = 64
    """Unacknowledged messages of QoS 1 (Receive Maximum). Beyond it: the MQTT broker waits."""
    mqtt_queued_max: int = 4_096
    """Received messages in the queue of a session, with room for `mqtt_unacknowledged_max` of QoS
    1. Beyond it: one of QoS 0 is dropped, counted; one of QoS 1 is not acknowledged."""
    mqtt_queued_bytes_max: int = 128 * 2**20
    """Bytes of these messages, half of them for QoS 1. Beyond it: as for `mqtt_queued_max`."""
    mqtt_message_bytes_max: int = 2**20
    """Bytes of a received message. Beyond it: the MQTT broker does not send it."""
    mqtt_away_s_max: int = 86_400
    """Seconds that the MQTT broker keeps a session. Beyond it: messages are lost."""
    mqtt_reconnect_s_max: int = 30
    """Seconds between attempts to reconnect, which grow. Beyond it: they grow no more."""


class _Receipt(NamedTuple):
    """The token of a received message: the numbers for its acknowledgement, and its size."""

    packet: int
    connection: int
    size: int


class TopicTemplate(TextTemplate):
    """The topic of outgoing messages; `{name}` is replaced by the value of the attribute."""

    def __post_init__(self) -> None:
        if set(self.fixed) & set("{}+#\0") or self.text.startswith("$") or not self.text:
            reason = "expected a topic, such as alerts/{severity}/{name}, without + and #"
            raise InvalidValueError(self.text, reason)


class MqttPeer(BridgePeer):
    """One session. Callbacks `_on_…` run on paho's thread, methods on the event loop. A lost
    connection is no lost peer, since paho reconnects: a failure is for good.
    """

    template = TopicTemplate
    always_receives = True

    def __init__(self, settings: PeerSettings, limits: MqttLimits = MqttLimits()) -> None:
        super().__init__(settings)
        for each in settings.sources:
            check_topics(each)
        # The topic filter of a shared subscription is the end of `$share/group/filter`.
        self._filters = [
            each.split("/", 2)[2] if each.startswith("$share/") else each
            for each in settings.sources
        ]
        self._limits = limits
        self._lock = threading.Lock()
        self._queue: deque[PeerRecord] = deque()
        self._queue_bytes = 0
        self._changed = asyncio.Event()
        """Set when a message was queued, or the session has failed."""
        self._connection = 0
        self._in_flight_max = limits.mqtt_in_flight_max
        self._packet_bytes_max = limits.mqtt_message_bytes_max
        self._can_retain = True
        self._failure: ServiceError | None = None
        self._loop: asyncio.AbstractEventLoop
        self._opened: asyncio.Future[None] | None = None
        self._unacknowledged: dict[int, asyncio.Future[None]] = {}
        self._client: paho.Client | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        opened = self._opened = self._loop.create_future()
        self._failure = None
        client = self._client = self._new_client()
        limits, wait_s = self._limits, self.settings.limits.bridge_wait_s
        wanted = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wanted.SessionExpiryInterval = limits.mqtt_away_s_max
        wanted.ReceiveMaximum = limits.mqtt_unacknowledged_max
        wanted.MaximumPacketSize = limits.mqtt_message_bytes_max
        host, port = self.settings.address.hosts[0]
        try:
            await asyncio.to_thread(
                client.connect, host, port, clean_start=False, properties=wanted
            )
            client.loop_start()
            async with asyncio.timeout(wait_s):
                await opened
        except TimeoutError:
            raise self._failed(f"no answer of an MQTT 5 broker within {wait_s:g} s") from None
        except OSError as error:
            reason = describe_os_error(error)
            if isinstance(error, ConnectionRefusedError):
                reason = "connection refused: no MQTT broker there"
            raise self._failed(reason) from None

    def _new_client(self) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.settings.name,
            protocol=paho.MQTTv5,
            manual_ack=True,
        )
        client.connect_timeout = self.settings.limits.bridge_wait_s
        client.max_inflight_messages_set(self._limits.mqtt_in_flight_max)
        client.reconnect_delay_set(1, self._limits.mqtt_reconnect_s_max)
        address, tls = self.settings.address, self.settings.tls
        if address.user or address.password:
            client.username_pw_set(address.user, address.password or None)
        if tls is not None:
            client.tls_set_context(tls.client_context())
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    async def aclose(self) -> None:
        """Disconnects in order; the broker keeps the session. Idempotent."""
        if self._client is None:
            return
        client, self._client = self._client, None
        client.disconnect()
        stopping = asyncio.create_task(asyncio.to_thread(client.loop_stop))
        # The other half of the bridge's time is for the end of the thread.
        await asyncio.wait([stopping], timeout=self.settings.limits.bridge_wait_s / 2)
        connection: Any = client.socket()
        if not stopping.done() and connection is not None:  # The broker does not answer.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await stopping
        self._fail(ServiceError("the session with the MQTT broker is closed"))

    # --- receiving ----------------------------------------------------------------------------

    async def receive(self) -> Sequence[PeerRecord]:
        while True:
            self._changed.clear()
            with self._lock:
                count = min(self.settings.limits.bridge_batch_max, len(self._queue))
                found = [self._queue.popleft() for _ in range(count)]
                self._queue_bytes -= sum(each.token.size for each in found)
            if found:
                return found
            if self._failure is not None:
                raise self._failure
            await self._changed.wait()

    def wants(self, record: PeerRecord) -> bool:
        return any(paho.topic_matches_sub(each, record.topic) for each in self._filters)

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        """Acknowledges messages, except those that the broker repeats on the present connection."""
        assert self._client is not None
        for each in records:
            if each.is_certified and each.token.connection == self._connection:
                self._client.ack(each.token.packet, 1)

    def _on_message(self, _: paho.Client, __: Any, packet: paho.MQTTMessage) -> None:
        size = size_of(packet.topic, packet.payload, packet.properties)
        record = record_of(packet, _Receipt(packet.mid, self._connection, size))
        number, bytes_max = self._limits.mqtt_queued_max, self._limits.mqtt_queued_bytes_max
        if not packet.qos:
            number, bytes_max = number - self._limits.mqtt_unacknowledged_max, bytes_max // 2
        with self._lock:
            if len(self._queue) >= number or self._queue_bytes + size > bytes_max:
                self.dropped += packet.qos == 0
                return
            self._queue.append(record)
            self._queue_bytes += size
        self._call_soon(self._changed.set)

    # --- sending ------------------------------------------------------------------------------

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        """Sends with QoS 1, now or on the next connection."""
        answers: list[ContradaError | None] = []
        while len(answers) < len(records):
            # paho would send all that wait, after a new connection, without regard to the limit.
            some = records[len(answers) : len(answers) + self._in_flight_max]
            for each in await asyncio.gather(*map(self._send, some), return_exceptions=True):
                if isinstance(each, ConnectionFailedError) or not isinstance(
                    each, ContradaError | None
                ):
                    raise each
                answers.append(each)
        return answers

    def _send(self, record: PeerRecord) -> "asyncio.Future[None]":
        """Sends a message. The future is done when the broker has it."""
        future: asyncio.Future[None] = self._loop.create_future()
        try:
            properties = properties_of(record, wall_clock_us())
            # A dead letter is for a reader of its own, not the state of its topic.
            retain = self.settings.retain and record.token is None
            self._check(size_of(record.topic, record.payload, properties), retain)
        except (ServiceError, InvalidValueError) as error:
            future.set_exception(error)
            return future
        assert self._client is not None
        info = self._client.publish(record.topic, record.payload, 1, retain, properties)
        if info.rc in _IGNORED:
            self._unacknowledged[info.mid] = future
        else:
            future.set_exception(ServiceError(paho.error_string(info.rc)))
        return future

    def _check(self, size: int, retain: bool) -> None:
        """Raises ServiceError for a message for which the broker would end each connection."""
        if self._failure is not None:
            raise self._failure
        if size > self._packet_bytes_max:
            limit = f"the MQTT broker takes {self._packet_bytes_max}"
            raise ServiceError(f"a message of {size} bytes, and {limit}")
        if retain and not self._can_retain:
            raise ServiceError("the MQTT broker retains nothing")

    def _on_publish(
        self, _: paho.Client, __: Any, packet: int, code: ReasonCode, ___: Properties
    ) -> None:
        self._call_soon(self._complete_send, packet, code)

    def _complete_send(self, packet: int, code: ReasonCode) -> None:
        future = self._unacknowledged.pop(packet, None)
        if future is None or future.done():
            return
        if code.is_failure:
            kind = NoPlaceError if code.value in _NO_PLACE else ServiceError
            future.set_exception(kind(f"the MQTT broker refuses it: {code}"))
        else:
            future.set_result(None)

    # --- its connections ----------------------------------------------------------------------

    def _on_connect(
        self,
        client: paho.Client,
        _: Any,
        flags: paho.ConnectFlags,
        code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if code.is_failure:
            fields = {"address": self.settings.address, "code": code}
            _LOG.warning("%(address)s refuses the connection: %(code)s", fields)
            self._call_soon(self._fail_to_open, f"it refuses the connection: {code}")
            return
        if getattr(properties, "MaximumQoS", 1) == 0:
            self._call_soon(self._give_up, "this broker has no QoS 1")
            return
        permitted = getattr(properties, "ReceiveMaximum", self._limits.mqtt_in_flight_max)
        self._in_flight_max = min(self._limits.mqtt_in_flight_max, permitted)
        size_max = self._limits.mqtt_message_bytes_max
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", size_max)
        self._can_retain = bool(getattr(properties, "RetainAvailable", 1))
        with self._lock:
            self._connection += 1
            if flags.session_present:  # The broker repeats unacknowledged messages.
                self._queue = deque(each for each in self._queue if not each.is_certified)
                self._queue_bytes = sum(each.token.size for each in self._queue)
        _LOG.info("connected to %(address)s", {"address": self.settings.address})
        if sources := self.settings.sources:
            client.subscribe([(each, _options(each)) for each in sources])
        else:
            self._call_soon(self._complete_open)

    def _on_subscribe(
        self, _: paho.Client, __: Any, ___: int, codes: list[ReasonCode], ____: Properties
    ) -> None:
        for source, code in zip(self.settings.sources, codes, strict=False):
            if code.is_failure:
                reason = f"it refuses the subscription to {source!r}: {code}"
                self._call_soon(self._give_up, reason)
                return
        self._call_soon(self._complete_open)

    def _on_disconnect(
        self, _: paho.Client, __: Any, flags: paho.DisconnectFlags, code: ReasonCode, ___: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server and code == "Session taken over":
            found = f"another client has the name {self.settings.name!r}"
            self._call_soon(self._give_up, f"{found}: give each bridge a name of its own")
        elif code.is_failure:
            fields = {"address": self.settings.address, "code": code}
            _LOG.warning("%(address)s has disconnected: %(code)s", fields)

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls back on the event loop, from paho's thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def _complete_open(self) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _fail_to_open(self, reason: str) -> None:
        """Fails the first connection for good; later ones may meet a broker that is starting."""
        if self._opened is not None and not self._opened.done():
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        if self._client is not None:
            self._client.disconnect()
        self._fail(self._failed(reason))

    def _fail(self, failure: ServiceError) -> None:
        self._failure = self._failure or failure
        self._changed.set()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(self._failure)
            self._opened.exception()  # Retrieved: the opener may have given up already.
        for future in self._unacknowledged.values():
            if not future.done():
                future.set_exception(self._failure)
        self._unacknowledged.clear()


def _options(filter_: str) -> SubscribeOptions:
    """Returns the options: QoS 1; no own publications, except on shared subscriptions, where MQTT
    forbids `noLocal`; the retain flag as published; retained messages for new subscriptions only.
    """
    return SubscribeOptions(
        qos=1,
        noLocal=not filter_.startswith("$share/"),
        retainAsPublished=True,
        retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
    )


# --- messages ----------------------------------------------------------------------------------


def size_of(topic: str, payload: bytes | bytearray, properties: Properties | None) -> int:
    """Returns an upper bound of the encoded bytes of a message."""
    packed = b"" if properties is None else properties.pack()  # type: ignore[no-untyped-call]
    return _HEADER_BYTES + len(topic.encode()) + len(payload) + len(packed)


def record_of(packet: paho.MQTTMessage, token: Any) -> PeerRecord:
    """Returns the record of a received message; certified if QoS is 1."""
    properties = packet.properties
    facts: dict[str, Any] = {"qos": packet.qos, "retain": packet.retain}
    for name, at in (("response_topic", "ResponseTopic"), ("correlation", "CorrelationData")):
        if found := getattr(properties, at, None):
            facts[name] = found
    return PeerRecord(
        topic=packet.topic,
        payload=bytes(packet.payload),
        content_type=getattr(properties, "ContentType", ""),
        headers=tuple(getattr(properties, "UserProperty", ())),
        facts=facts,
        is_certified=packet.qos > 0,
        expires_s=getattr(properties, "MessageExpiryInterval", None),
        token=token,
    )


def properties_of(record: PeerRecord, now_us: int) -> Properties:
    """Returns the properties of a message. Raises InvalidValueError for values that MQTT cannot
    hold, and without a valid topic.
    """
    topic = _checked(record.topic)
    if set(topic) & set("+#") or topic.startswith("$") or not topic:
        raise InvalidValueError(topic, "no topic: expected no + and #, and no $ in front")
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    response_topic = _checked(text_of(_single(record.facts.get("response_topic", ""))))
    if set(response_topic) & set("+#"):
        raise InvalidValueError(response_topic, "no response topic: expected no + and #")
    correlation = _single(record.facts.get("correlation", b""))
    if not isinstance(correlation, bytes):
        correlation = text_of(correlation).encode()
    if len(correlation) > MQTT_TEXT_BYTES_MAX:
        reason = f"MQTT has at most {MQTT_TEXT_BYTES_MAX} bytes of correlation data"
        raise InvalidValueError("mqtt.correlation", reason)
    if record.content_type:
        properties.ContentType = _checked(record.content_type)
    if response_topic:
        properties.ResponseTopic = response_topic
    if correlation:
        properties.CorrelationData = correlation
    if record.expires_at_us is not None:
        left_s = math.ceil((record.expires_at_us - now_us) / 1e6)
        properties.MessageExpiryInterval = min(max(left_s, 0), _EXPIRY_S_MAX)
    if record.headers:
        properties.UserProperty = [
            (_checked(name), _checked(text_of(value))) for name, value in record.headers
        ]
    return properties


def _single(value: Values) -> Value:
    if isinstance(value, tuple):
        raise InvalidValueError(value[0], f"MQTT takes one value of it, found {len(value)}")
    return value


def _checked(text: str) -> str:
    """Returns a text that MQTT allows. Raises InvalidValueError."""
    if _NO_TEXT.search(text):
        raise InvalidValueError(text, "MQTT has no control characters in topics and properties")
    if len(text.encode()) > MQTT_TEXT_BYTES_MAX:
        raise InvalidValueError(text, f"MQTT has at most {MQTT_TEXT_BYTES_MAX} bytes of a text")
    return text


def check_topics(text: str) -> None:
    """Checks a topic filter such as sensors/+/temperature. Raises InvalidValueError."""
    *levels, last = text.split("/")
    is_shared = levels[:1] == ["$share"]
    if (
        any("#" in each or ("+" in each and each != "+") for each in levels)
        or (last not in ("+", "#") and set(last) & set("+#"))
        or not text
        or (is_shared and (len(levels) < 2 or levels[1] in ("", "+")))
    ):
        reason = "expected topics of MQTT: + is one level, # all levels at the end"
        raise InvalidValueError(text, reason)
    _checked(text)
