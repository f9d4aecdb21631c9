"""`MqttSession`: a session with an MQTT 5 broker, with explicit acknowledgements both ways.

paho implements MQTT on a thread of its own, and reconnects by itself with growing waits. Two
bounded containers lie between that thread and the event loop:

    paho's thread --message--> queue --receive()--> ... --acknowledge()--> PUBACK
    event loop ----send()----> unacknowledged, by packet identifier --PUBACK--> its future

The broker keeps the session of a disconnected client, so it repeats messages of QoS 1 until they
are acknowledged, also on the next connection. Receive Maximum bounds the unacknowledged ones;
messages of QoS 0 that exceed the queue are dropped, counted.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from contrada.errors import AddressError, ConnectionFailedError, NoPlaceError, ServiceError
from contrada.integrations.bridges.bridge_peer import without_password
from contrada.integrations.bridges.mqtt_messages import MqttMessage, check_topics
from contrada.net.wire.address import check_host
from contrada.net.wire.endpoint import describe_os_error

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_EXPECTED: Final = "mqtt://host, mqtt://user@host:1883 or mqtts://host, without a password"
_IGNORED: Final = (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN)
"""Results of a publication that is sent now, or on the next connection."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits of a `MqttBridge` and its `MqttSession`."""

    mqtt_batch_max: int = 256
    """MQTT messages published in one batch. Beyond it: the next has the rest."""
    mqtt_in_flight_max: int = 64
    """Messages that the MQTT broker has not acknowledged. Beyond it: the bridge reads no more."""
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
    mqtt_wait_s: float = 10.0
    """Seconds for opening and closing a session. Beyond it: opening fails; closing cuts."""
    mqtt_reconnect_s_max: int = 30
    """Seconds between attempts to reconnect, which grow. Beyond it: they grow no more."""
    mqtt_retry_s: float = 1.0
    """Seconds before a notification without permission is sent again. Beyond it: each wait is twice
    as long, at most `RETRY_S_MAX`."""


@dataclass(frozen=True, slots=True)
class MqttAddress:
    """The address of an MQTT broker, and the user and client identifier of this side."""

    host: str
    port: int
    is_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' if self.is_tls else ''}://{host}:{self.port}"


def parse_mqtt_address(text: str, password: str = "") -> MqttAddress:
    """Parses an address. Raises AddressError."""
    shown = without_password(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressError(shown, _EXPECTED) from None
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.password is not None:
        raise AddressError(shown, f"{_EXPECTED}: others could read it")
    if parts.scheme not in _PORTS or not host or extra or port == 0 or not text.isprintable():
        raise AddressError(shown, _EXPECTED)
    check_host(host)
    port = port or _PORTS[parts.scheme]
    return MqttAddress(host, port, parts.scheme == "mqtts", parts.username or "", password)


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A received message, with the numbers for its acknowledgement."""

    message: MqttMessage
    packet: int
    connection: int


_NO_PLACE: Final = (0x87, 0x97)
"""Reason codes of a refusal that may end: not authorized, quota exceeded."""


class MqttSession:
    """One session, opened once. Callbacks `_on_…` run on paho's thread, methods on the event loop.
    `dropped` counts messages of QoS 0 that exceeded the queue.
    """

    def __init__(
        self,
        address: MqttAddress,
        name: str,
        filters: Sequence[str],
        *,
        limits: MqttLimits = MqttLimits(),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`name` identifies the session at the broker. Raises InvalidValueError for bad filters."""
        for each in filters:
            check_topics(each)
        self.address = address
        self.dropped = 0
        self._limits = limits
        self._filters = filters
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._call_soon = self._loop.call_soon_threadsafe
        """Calls back on the event loop, from paho's thread."""
        self._lock = threading.Lock()
        self._queue: deque[ReceivedMessage] = deque()
        self._queue_bytes = 0
        self._changed = asyncio.Event()
        """Set when a message was queued, or the session has failed."""
        self._connection = 0
        self._packet_bytes_max = limits.mqtt_message_bytes_max
        self._can_retain = True
        self._failure: ServiceError | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._unacknowledged: dict[int, asyncio.Future[None]] = {}
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5, manual_ack=True
        )
        client.max_inflight_messages_set(limits.mqtt_in_flight_max)
        client.reconnect_delay_set(1, limits.mqtt_reconnect_s_max)
        if address.user or address.password:
            client.username_pw_set(address.user, address.password or None)
        if address.is_tls:
            client.tls_set_context(tls)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish

    async def open(self) -> None:
        """Connects and subscribes. Raises ConnectionFailedError."""
        limits = self._limits
        wanted = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wanted.SessionExpiryInterval = limits.mqtt_away_s_max
        wanted.ReceiveMaximum = limits.mqtt_unacknowledged_max
        wanted.MaximumPacketSize = limits.mqtt_message_bytes_max
        try:
            await asyncio.to_thread(
                self._client.connect,
                self.address.host,
                self.address.port,
                clean_start=False,
                properties=wanted,
            )
        except OSError as error:
            reason = describe_os_error(error)
            if isinstance(error, ConnectionRefusedError):
                reason = "connection refused: no MQTT broker there"
            raise ConnectionFailedError(str(self.address), reason) from None
        self._client.loop_start()
        try:
            async with asyncio.timeout(limits.mqtt_wait_s):
                await self._opened
        except BaseException as error:
            await self.aclose()
            if not isinstance(error, TimeoutError):
                raise
            reason = f"no answer of an MQTT 5 broker within {limits.mqtt_wait_s:g} s"
            raise ConnectionFailedError(str(self.address), reason) from None

    async def aclose(self) -> None:
        """Disconnects in order; the broker keeps the session. Idempotent."""
        self._client.disconnect()
        stopping = asyncio.create_task(asyncio.to_thread(self._client.loop_stop))
        await asyncio.wait([stopping], timeout=self._limits.mqtt_wait_s)
        connection: Any = self._client.socket()
        if not stopping.done() and connection is not None:  # The broker does not answer.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await stopping
        self._fail(ServiceError("the session with the MQTT broker is closed"))

    # --- receiving ----------------------------------------------------------------------------

    async def receive(self, most: int) -> list[ReceivedMessage]:
        """Returns queued messages in order, at least one. Raises ConnectionFailedError for good."""
        while True:
            self._changed.clear()
            with self._lock:
                count = min(most, len(self._queue))
                found = [self._queue.popleft() for _ in range(count)]
                self._queue_bytes -= sum(each.message.size for each in found)
            if found:
                return found
            if self._failure is not None:
                raise self._failure
            await self._changed.wait()

    def acknowledge(self, received: ReceivedMessage) -> None:
        """Acknowledges a message, unless the broker repeats it on the present connection."""
        if received.message.qos and received.connection == self._connection:
            self._client.ack(received.packet, 1)

    def _on_message(self, _: paho.Client, __: Any, packet: paho.MQTTMessage) -> None:
        properties = packet.properties
        message = MqttMessage(
            packet.topic,
            bytes(packet.payload),
            getattr(properties, "ContentType", ""),
            tuple(getattr(properties, "UserProperty", ())),
            packet.qos,
            packet.retain,
            getattr(properties, "MessageExpiryInterval", None),
            getattr(properties, "ResponseTopic", ""),
            getattr(properties, "CorrelationData", b""),
        )
        number, size = self._limits.mqtt_queued_max, self._limits.mqtt_queued_bytes_max
        if not message.qos:
            number, size = number - self._limits.mqtt_unacknowledged_max, size // 2
        with self._lock:
            if len(self._queue) >= number or self._queue_bytes + message.size > size:
                self.dropped += message.qos == 0
                return
            self._queue.append(ReceivedMessage(message, packet.mid, self._connection))
            self._queue_bytes += message.size
        self._call_soon(self._changed.set)

    # --- sending ------------------------------------------------------------------------------

    def send(self, message: MqttMessage) -> "asyncio.Future[None]":
        """Sends a message with QoS 1, now or on the next connection, in order. The future is done
        when the broker has it; it fails with ServiceError if the broker refuses, NoPlaceError if
        that is no fault of the message.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if (refusal := self._refusal(message)) is not None:
            future.set_exception(refusal)
            return future
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if message.content_type:
            properties.ContentType = message.content_type
        if message.response_topic:
            properties.ResponseTopic = message.response_topic
        if message.correlation:
            properties.CorrelationData = message.correlation
        if message.expires_s is not None:
            properties.MessageExpiryInterval = message.expires_s
        if message.properties:
            properties.UserProperty = list(message.properties)
        parts = message.topic, message.payload, 1, message.retain
        info = self._client.publish(*parts, properties=properties)
        if info.rc in _IGNORED:
            self._unacknowledged[info.mid] = future
        else:
            future.set_exception(ServiceError(paho.error_string(info.rc)))
        return future

    def _refusal(self, message: MqttMessage) -> ServiceError | None:
        """Refuses a message for which the broker would end each connection."""
        if self._failure is not None:
            return self._failure
        if message.size > self._packet_bytes_max:
            limit = f"the MQTT broker takes {self._packet_bytes_max}"
            return ServiceError(f"a message of {message.size} bytes, and {limit}")
        if message.retain and not self._can_retain:
            return ServiceError("the MQTT broker retains nothing")
        return None

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
            fields = {"address": self.address, "code": code}
            _LOG.warning("%(address)s refuses the connection: %(code)s", fields)
            self._call_soon(self._fail_to_open, f"it refuses the connection: {code}")
            return
        if getattr(properties, "MaximumQoS", 1) == 0:
            self._call_soon(self._give_up, "this broker has no QoS 1")
            return
        size_max = self._limits.mqtt_message_bytes_max
        self._packet_bytes_max = getattr(properties, "MaximumPacketSize", size_max)
        self._can_retain = bool(getattr(properties, "RetainAvailable", 1))
        with self._lock:
            self._connection += 1
            if flags.session_present:  # The broker repeats unacknowledged messages.
                self._queue = deque(each for each in self._queue if not each.message.qos)
                self._queue_bytes = sum(each.message.size for each in self._queue)
        _LOG.info("connected to %(address)s", {"address": self.address})
        if self._filters:
            client.subscribe([(each, _options(each)) for each in self._filters])
        else:
            self._call_soon(self._complete_open)

    def _on_subscribe(
        self, _: paho.Client, __: Any, ___: int, codes: list[ReasonCode], ____: Properties
    ) -> None:
        for filter_, code in zip(self._filters, codes, strict=False):
            if code.is_failure:
                reason = f"it refuses the subscription to {filter_!r}: {code}"
                self._call_soon(self._give_up, reason)
                return
        self._call_soon(self._complete_open)

    def _on_disconnect(
        self, _: paho.Client, __: Any, flags: paho.DisconnectFlags, code: ReasonCode, ___: Any
    ) -> None:
        if flags.is_disconnect_packet_from_server and code == "Session taken over":
            name = f"another client has the name {self._name!r}: give each bridge a name of its own"
            self._call_soon(self._give_up, name)
        elif code.is_failure:
            fields = {"address": self.address, "code": code}
            _LOG.warning("%(address)s has disconnected: %(code)s", fields)

    def _complete_open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _fail_to_open(self, reason: str) -> None:
        """Fails the first connection for good; later ones may meet a broker that is starting."""
        if not self._opened.done():
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._client.disconnect()
        self._fail(ConnectionFailedError(str(self.address), reason))

    def _fail(self, failure: ServiceError) -> None:
        self._failure = self._failure or failure
        self._changed.set()
        if not self._opened.done():
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
