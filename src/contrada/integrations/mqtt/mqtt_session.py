"""A session with an MQTT 5 broker: what comes is acknowledged when it was dealt with, and what goes
is known to have come there.

paho speaks MQTT, on a thread of its own, and connects again by itself, after longer and longer
waits. Between it and the event loop lie two bounded places:

    paho's thread --message--> waiting --arrived()--> ... --acknowledge()--> PUBACK
    event loop ----send()----> unacknowledged, by packet identifier --PUBACK--> its future

The broker keeps the session while this side is away, so what has QoS 1 comes again until it is
acknowledged, on the next connection too. How much of it is on its way at once is said to the broker
(Receive Maximum); what has QoS 0 and finds no room is dropped, counted.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
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

from contrada.errors import AddressError, ConnectionFailedError, ServiceError
from contrada.integrations.mqtt.mqtt_messages import MqttMessage, check_topics
from contrada.net.wire.address import check_host
from contrada.net.wire.endpoint import describe_os_error

MQTT_UNACKNOWLEDGED_MAX: Final = 64
"""Messages of QoS 1 that an MQTT broker may send before it gets an acknowledgement. Beyond it: it
keeps them until then."""

MQTT_WAITING_MAX: Final = 4_096
"""Messages of MQTT that have come and wait to be published, with room for all of QoS 1 that may be
unacknowledged. Beyond it: one of QoS 0 is dropped, counted; one of QoS 1, where a broker has lost
its sessions, is not acknowledged."""

MQTT_WAITING_BYTES_MAX: Final = 128 * 2**20
"""Bytes of these, half of them for QoS 1. Beyond it: the same."""

MQTT_MESSAGE_BYTES_MAX: Final = 2**20
"""Bytes of a message that an MQTT broker may send, properties included. Beyond it: the MQTT broker
leaves it out, as MQTT 5 has it."""

MQTT_AWAY_S_MAX: Final = 86_400
"""Seconds for which an MQTT broker keeps the session of a bridge that is away. Beyond it: what it
missed is lost."""

MQTT_WAIT_S: Final = 10.0
"""How long opening a session, and ending it, waits for the MQTT broker. Beyond it: opening has
failed; ending cuts the connection."""

MQTT_AGAIN_S_MAX: Final = 30
"""Seconds between two attempts to connect to an MQTT broker again. Beyond it: they follow one
another at this distance."""

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_EXPECTED: Final = "mqtt://host, mqtt://user@host:1883 or mqtts://host, without a password"
_IGNORED: Final = (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN)
"""What publishing says of what goes out now, or on the next connection."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MqttPlace:
    """The address of an MQTT broker, and the user and client identifier of this side."""

    host: str
    port: int
    is_tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt{'s' if self.is_tls else ''}://{host}:{self.port}"


def parse_mqtt_place(text: str, password: str = "") -> MqttPlace:
    """The place that an address names. Raises AddressError that says what was expected."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise AddressError(text, _EXPECTED) from None
    extra = parts.path.strip("/") or parts.query or parts.fragment
    if parts.password is not None:
        shown = text.replace(f":{parts.password}@", ":…@")
        raise AddressError(shown, f"{_EXPECTED}: others could read it")
    if parts.scheme not in _PORTS or not host or extra or port == 0 or not text.isprintable():
        raise AddressError(text, _EXPECTED)
    check_host(host)
    port = port or _PORTS[parts.scheme]
    return MqttPlace(host, port, parts.scheme == "mqtts", parts.username or "", password)


@dataclass(frozen=True, slots=True, eq=False)
class MqttArrival:
    """A received message, with the numbers by which it is acknowledged."""

    message: MqttMessage
    packet: int
    connection: int


class MqttSession:
    """One session, opened once; all but what is said to be of paho's thread is of the event loop.

    `dropped` counts messages of QoS 0 for which there was no room.
    """

    def __init__(
        self,
        place: MqttPlace,
        name: str,
        filters: Sequence[str],
        *,
        in_flight_max: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`name` tells the session from others at that broker; `filters` is what comes from it.

        Raises InvalidValueError for what is no filter of MQTT.
        """
        for each in filters:
            check_topics(each)
        self.place = place
        self.dropped = 0
        self._filters = filters
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[MqttArrival] = deque()
        self._waiting_bytes = 0
        self._came = asyncio.Event()
        self._connection = 0
        self._packet_bytes_max = MQTT_MESSAGE_BYTES_MAX
        self._can_retain = True
        self._failure: ServiceError | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._unacknowledged: dict[int, asyncio.Future[None]] = {}
        self._client = self._made(in_flight_max, tls)

    def _made(self, in_flight_max: int, tls: ssl.SSLContext | None) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._name,
            protocol=paho.MQTTv5,
            manual_ack=True,
        )
        client.max_inflight_messages_set(in_flight_max)
        client.reconnect_delay_set(1, MQTT_AGAIN_S_MAX)
        if self.place.user or self.place.password:
            client.username_pw_set(self.place.user, self.place.password or None)
        if self.place.is_tls:
            client.tls_set_context(tls)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        return client

    async def open(self) -> None:
        """Connect and subscribe. Raises ConnectionFailedError."""
        wish = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        wish.SessionExpiryInterval = MQTT_AWAY_S_MAX
        wish.ReceiveMaximum = MQTT_UNACKNOWLEDGED_MAX
        wish.MaximumPacketSize = MQTT_MESSAGE_BYTES_MAX
        try:
            await asyncio.to_thread(
                self._client.connect,
                self.place.host,
                self.place.port,
                clean_start=False,
                properties=wish,
            )
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            reason = (
                "connection refused: no MQTT broker there"
                if is_refused
                else describe_os_error(error)
            )
            raise ConnectionFailedError(str(self.place), reason) from None
        self._client.loop_start()
        try:
            async with asyncio.timeout(MQTT_WAIT_S):
                await self._opened
        except TimeoutError:
            await self.aclose()
            reason = f"no answer of an MQTT 5 broker within {MQTT_WAIT_S:g} s"
            raise ConnectionFailedError(str(self.place), reason) from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Disconnect in order; the broker keeps the session. Twice is once."""
        self._client.disconnect()
        stopping = asyncio.create_task(asyncio.to_thread(self._client.loop_stop))
        await asyncio.wait([stopping], timeout=MQTT_WAIT_S)
        there: Any = self._client.socket()
        if not stopping.done() and there is not None:  # It does not answer.
            with suppress(OSError):
                there.shutdown(socket.SHUT_RDWR)
        await stopping
        self._fail(ServiceError("the session with the MQTT broker is closed"))

    # --- what comes ---------------------------------------------------------------------------

    async def arrived(self, most: int) -> list[MqttArrival]:
        """What has come, in order, one at least. Raises ConnectionFailedError for good."""
        while True:
            self._came.clear()
            with self._lock:
                count = min(most, len(self._waiting))
                found = [self._waiting.popleft() for _ in range(count)]
                self._waiting_bytes -= sum(each.message.size for each in found)
            if found:
                return found
            if self._failure is not None:
                raise self._failure
            await self._came.wait()

    def acknowledge(self, arrived: MqttArrival) -> None:
        """A message was dealt with. One of an earlier connection comes again, so it is not said."""
        if arrived.message.qos and arrived.connection == self._connection:
            self._client.ack(arrived.packet, 1)

    def _on_message(self, _: paho.Client, __: Any, said: paho.MQTTMessage) -> None:
        """Of paho's thread."""
        about = said.properties
        message = MqttMessage(
            said.topic,
            bytes(said.payload),
            getattr(about, "ContentType", ""),
            tuple(getattr(about, "UserProperty", ())),
            said.qos,
            said.retain,
            getattr(about, "MessageExpiryInterval", None),
        )
        number, size = MQTT_WAITING_MAX, MQTT_WAITING_BYTES_MAX
        if not message.qos:
            number, size = number - MQTT_UNACKNOWLEDGED_MAX, size // 2
        with self._lock:
            if len(self._waiting) >= number or self._waiting_bytes + message.size > size:
                self.dropped += message.qos == 0
                return
            self._waiting.append(MqttArrival(message, said.mid, self._connection))
            self._waiting_bytes += message.size
        self._tell(self._came.set)

    # --- what goes ----------------------------------------------------------------------------

    def send(self, message: MqttMessage) -> "asyncio.Future[None]":
        """Send a message with QoS 1, now or on the next connection, in order.

        What is given is done when the broker has it; it fails with ServiceError where it refuses.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        if (refusal := self._refusal(message)) is not None:
            future.set_exception(refusal)
            return future
        said = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        if message.content_type:
            said.ContentType = message.content_type
        if message.expires_s is not None:
            said.MessageExpiryInterval = message.expires_s
        if message.properties:
            said.UserProperty = list(message.properties)
        info = self._client.publish(
            message.topic, message.payload, 1, message.retain, properties=said
        )
        if info.rc in _IGNORED:
            self._unacknowledged[info.mid] = future
        else:
            future.set_exception(ServiceError(paho.error_string(info.rc)))
        return future

    def _refusal(self, message: MqttMessage) -> ServiceError | None:
        """What the broker would end the connection for, again on each."""
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
        """Of paho's thread."""
        self._tell(self._told, packet, code)

    def _told(self, packet: int, code: ReasonCode) -> None:
        future = self._unacknowledged.pop(packet, None)
        if future is None or future.done():
            return
        if code.is_failure:
            future.set_exception(ServiceError(f"the MQTT broker refuses it: {code}"))
        else:
            future.set_result(None)

    # --- its connections ----------------------------------------------------------------------

    def _on_connect(
        self,
        client: paho.Client,
        _: Any,
        flags: paho.ConnectFlags,
        code: ReasonCode,
        said: Properties | None,
    ) -> None:
        """Of paho's thread."""
        if code.is_failure:
            said_why = {"address": self.place, "code": code}
            _LOG.warning("%(address)s refuses the connection: %(code)s", said_why)
            self._tell(self._not_opened, f"it refuses the connection: {code}")
            return
        if getattr(said, "MaximumQoS", 1) == 0:
            self._tell(self._give_up, "this broker has no QoS 1")
            return
        self._packet_bytes_max = getattr(said, "MaximumPacketSize", MQTT_MESSAGE_BYTES_MAX)
        self._can_retain = bool(getattr(said, "RetainAvailable", 1))
        with self._lock:
            self._connection += 1
            if flags.session_present:  # What is not acknowledged comes again.
                self._waiting = deque(each for each in self._waiting if not each.message.qos)
                self._waiting_bytes = sum(each.message.size for each in self._waiting)
        _LOG.info("connected to %(address)s", {"address": self.place})
        if self._filters:
            client.subscribe([(each, _options(each)) for each in self._filters])
        else:
            self._tell(self._up)

    def _on_subscribe(
        self, _: paho.Client, __: Any, ___: int, codes: list[ReasonCode], ____: Properties
    ) -> None:
        """Of paho's thread."""
        for filter_, code in zip(self._filters, codes, strict=False):
            if code.is_failure:
                self._tell(self._give_up, f"it refuses the subscription to {filter_!r}: {code}")
                return
        self._tell(self._up)

    def _on_disconnect(
        self, _: paho.Client, __: Any, flags: paho.DisconnectFlags, code: ReasonCode, ___: Any
    ) -> None:
        """Of paho's thread."""
        if flags.is_disconnect_packet_from_server and code == "Session taken over":
            name = f"another client has the name {self._name!r}: give each bridge a name of its own"
            self._tell(self._give_up, name)
        elif code.is_failure:
            gone = {"address": self.place, "code": code}
            _LOG.warning("%(address)s is gone: %(code)s", gone)

    def _up(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _not_opened(self, reason: str) -> None:
        """At first that is for good; later it may be that the broker has just begun."""
        if not self._opened.done():
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._client.disconnect()
        self._fail(ConnectionFailedError(str(self.place), reason))

    def _fail(self, failure: ServiceError) -> None:
        self._failure = self._failure or failure
        self._came.set()
        if not self._opened.done():
            self._opened.set_exception(self._failure)
            self._opened.exception()  # Seen: whoever opens may have given up already.
        for future in self._unacknowledged.values():
            if not future.done():
                future.set_exception(self._failure)
        self._unacknowledged.clear()

    def _tell(self, act: Callable[..., object], *of: object) -> None:
        """From paho's thread to the event loop."""
        self._loop.call_soon_threadsafe(act, *of)


def _options(filter_: str) -> SubscribeOptions:
    """QoS 1; not what this side published, which a shared subscription cannot say; retain as it
    was said; and what is retained only where the session does not have the subscription yet.
    """
    return SubscribeOptions(
        qos=1,
        noLocal=not filter_.startswith("$share/"),
        retainAsPublished=True,
        retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB,
    )
