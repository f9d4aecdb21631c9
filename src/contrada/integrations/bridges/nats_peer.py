"""`NatsPeer` and `JetStreamPeer`: subjects of NATS, without and with acknowledgements.

Core NATS stores nothing: a message is received at most once, and a sent one is confirmed when the
server has read it (PING, PONG). JetStream stores: each source is a durable pull consumer, messages
are acknowledged to it, and a sent one is confirmed by its stream, which drops a repeated
`Nats-Msg-Id` within its window.

Source: NATS client protocol; JetStream wire API (docs.nats.io, reference).
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Any, Final, TypeVar

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api
from nats.js import errors as stream_errors
from nats.js.client import JetStreamContext

from contrada.errors import (
    ContradaError,
    InvalidValueError,
    NoPlaceError,
    PeerLostError,
    ServiceError,
)
from contrada.integrations.bridges.bridge_peer import (
    AddressForm,
    BridgePeer,
    PeerSettings,
    reason_of,
)
from contrada.integrations.bridges.record_translation import IDENTITY, PeerRecord, text_of

T = TypeVar("T")

NATS_ADDRESS: Final = AddressForm(("nats", "tls"), (4222, 4222), is_cluster=True)

ACK_WAIT_S: Final = 5.0
"""Seconds until JetStream repeats a message of a bridge that has crashed; one that runs asks it to
wait. Beyond it: a duplicate."""

NATS_BYTES_MAX: Final = 32 * 2**20
"""Bytes of received messages of core NATS that wait. Beyond it: they are dropped, counted."""

CLOSE_S: Final = 1.0
"""Seconds for the farewell of a connection."""

_ID_HEADER: Final = "Nats-Msg-Id"
_TYPE_HEADER: Final = "Content-Type"
_OWN_HEADERS: Final = (_ID_HEADER, _TYPE_HEADER)
_POLL_S: Final = 5.0
_BAD_SUBJECT: Final = re.compile(r"[\s*>\x00-\x1f\x7f]")
_BAD_HEADER: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_BYTES: Final = len(b"NATS/1.0\r\n\r\n")
_DENIED: Final = re.compile(r'permissions violation for publish to "(.+)"')
_TEMPORARY_CODES: Final = range(500, 600)
_LARGE: Final = (10054, 10097)
"""Errors of a message, or of headers, that are too large for any stream with these limits. Others
may end, such as those of the room of an account."""

_LOG: Final = logging.getLogger(__name__)


class NatsPeer(BridgePeer):
    """Subjects of core NATS. Bridges of one name share the messages."""

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._limits = settings.limits
        self._client: Client | None = None
        self._lost: asyncio.Future[None]
        self._queue: asyncio.Queue[Msg]
        self._errors: list[str] = []
        """What the server has refused since it was last emptied."""

    async def open(self) -> None:
        address = self.settings.address
        self._lost, self._errors = asyncio.get_running_loop().create_future(), []
        self._queue = asyncio.Queue(self._limits.bridge_queued_max)
        user = {"user": address.user, "password": self._password}
        try:
            self._client = Client()
            await self._in_time(
                self._client.connect(
                    [f"nats://{host}:{port}" for host, port in address.hosts],
                    name=self.settings.name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # Of each server, at once, for the first connection.
                    reconnect_time_wait=0,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_end,
                    closed_cb=self._on_end,
                    tls=self.settings.tls.client_context() if self.settings.tls else None,
                    tls_hostname=address.hosts[0][0] if address.is_tls else None,
                    **(
                        user
                        if address.user
                        else {"token": self._password if address.password else None}
                    ),
                )
            )
            self._check_tls()
            await self._subscribe(self._client)
            await self._flush(self._limits.bridge_wait_s)
        except nats_errors.Error as error:
            reason = str(error).removeprefix("nats: ").strip("'")
            if isinstance(error, nats_errors.NoServersError):
                reason = self._errors[-1] if self._errors else "connection refused: no NATS there"
            raise self._failed(reason) from None
        if self._errors:
            raise self._failed(self._errors[0])

    def _password(self) -> str:
        """Returns the secret; the library asks for it after the handshake of TLS, if any."""
        self._check_tls()
        return self.settings.address.password

    def _check_tls(self) -> None:
        """Raises ConnectionFailedError for `tls://` without TLS: the library would go on in plain
        text where the server does not require it, or somebody in between says so.
        """
        info: dict[str, Any] = getattr(self._client, "_server_info", {})
        if self.settings.address.is_tls and not info.get("tls_required"):
            raise self._failed("the server does not require TLS, and tls:// does")

    async def _subscribe(self, client: Client) -> None:
        for subject in self.settings.sources:
            await client.subscribe(
                subject,
                queue=_safe(self.settings.name),
                cb=self._queue.put,
                pending_msgs_limit=self._limits.bridge_queued_max,
                pending_bytes_limit=NATS_BYTES_MAX,
            )

    async def receive(self) -> Sequence[PeerRecord]:
        """Returns queued messages; of core NATS they were acknowledged to nobody."""
        found = [await self._unless_lost(self._queue.get())]
        while len(found) < self._limits.bridge_batch_max and not self._queue.empty():
            found.append(self._queue.get_nowait())
        return [self._record(each) for each in found]

    def _record(self, message: Msg) -> PeerRecord:
        headers = message.headers or {}
        return PeerRecord(
            topic=message.subject,
            payload=message.data,
            content_type=headers.get(_TYPE_HEADER, ""),
            headers=tuple((n, v) for n, v in headers.items() if n not in _OWN_HEADERS),
            facts={"reply": message.reply} if message.reply else {},
            is_certified=False,
        )

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        """Nothing: core NATS has no acknowledgements."""

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        refusals: list[ContradaError | None] = [None] * len(records)
        self._errors.clear()
        try:
            for place, record in enumerate(records):
                try:
                    await self._publish(place, record)
                except InvalidValueError as error:
                    refusals[place] = error
            await self._flush(self._wait_s)
        except nats_errors.Error as error:
            raise self._loss(error) from None
        denied = {found[1] for each in self._errors if (found := _DENIED.search(each))}
        topics = [_quoted(each.topic) for each in records]
        is_unclear = not denied.issubset(topics)  # The server writes some characters as numbers.
        for place, record in enumerate(records):
            if topics[place] in denied or (is_unclear and not record.topic.isprintable()):
                reason = f"the server permits no publication to the subject {record.topic!r}"
                refusals[place] = NoPlaceError(reason)
        return refusals

    async def _publish(self, place: int, record: PeerRecord) -> None:
        assert self._client is not None
        check_subject(record.topic)
        reply, headers = record.facts.get("reply", ""), headers_of(record)
        if not isinstance(reply, str):
            reply = ""
        elif reply:
            check_subject(reply)
        check_size(record, headers, self._client.max_payload)
        await self._client.publish(record.topic, record.payload, reply=reply, headers=headers)

    async def _flush(self, wait_s: float) -> None:
        """Waits until the server has processed all that was sent to it, and answered."""
        assert self._client is not None
        flushing = self._client.flush(ceil(wait_s))  # Whole seconds; 0 would be refused.
        await self._in_time(self._unless_lost(flushing), wait_s)

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            # After a failed handshake of TLS the library waits for an end that never comes.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await client.close()

    # --- the connection -----------------------------------------------------------------------

    async def _unless_lost(self, work: Awaitable[T]) -> T:
        """Waits for work. Raises PeerLostError once the connection is lost."""
        task = asyncio.ensure_future(work)
        try:
            either: list[asyncio.Future[Any]] = [task, self._lost]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self._loss("the connection is lost")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def _loss(self, reason: object) -> PeerLostError:
        return PeerLostError(str(self.settings.address), str(reason).removeprefix("nats: "))

    async def _on_end(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats_errors.SlowConsumerError):
            self.dropped += 1
        elif isinstance(error, OSError):
            self._errors.append(reason_of(error))
        else:
            self._errors.append(str(error).removeprefix("nats: "))


class JetStreamPeer(NatsPeer):
    """Streams of JetStream. Bridges of one name share the messages."""

    _streams: JetStreamContext
    _tasks: list["asyncio.Task[None]"]
    _held: dict[int, Msg]
    """Messages that are not acknowledged, by the identity of the object."""

    async def _subscribe(self, client: Client) -> None:
        wait_s = self._limits.bridge_wait_s
        self._streams, self._held = client.jetstream(timeout=wait_s), {}
        self._tasks = [asyncio.create_task(self._hold())]
        for subject in self.settings.sources:
            try:
                stream = await self._streams.find_stream_name_by_subject(subject)
                consumer = await self._streams.pull_subscribe(
                    subject,
                    durable=f"{_safe(self.settings.name)}-{_digest(subject)}",
                    stream=stream,
                    config=api.ConsumerConfig(
                        ack_wait=ACK_WAIT_S, max_ack_pending=self._limits.bridge_queued_max
                    ),
                )
            except stream_errors.NotFoundError:
                reason = f"no stream of JetStream has the subject {subject!r}"
                raise self._failed(reason) from None
            except (stream_errors.Error, nats_errors.NoRespondersError) as error:
                shown = getattr(error, "description", None) or error
                raise self._failed(f"JetStream: {shown}") from None
            self._tasks.append(asyncio.create_task(self._fetch(consumer)))

    async def _fetch(self, consumer: JetStreamContext.PullSubscription) -> None:
        try:
            while True:
                room = self._limits.bridge_batch_max
                with suppress(nats_errors.TimeoutError):
                    messages = await consumer.fetch(room, timeout=_POLL_S)
                    # All of them now: the stream would repeat those that wait for room.
                    self._held.update((id(each), each) for each in messages)
                    for each in messages:
                        await self._queue.put(each)
        except nats_errors.Error as error:  # The consumer or the connection is gone.
            self._errors.append(str(error))
            await self._on_end()

    async def _hold(self) -> None:
        """Has the server wait for the acknowledgements of this bridge."""
        with suppress(nats_errors.Error):  # The end of the connection is told to the other tasks.
            while True:
                await asyncio.sleep(ACK_WAIT_S / 3)
                for message in list(self._held.values()):
                    await message.in_progress()

    def _record(self, message: Msg) -> PeerRecord:
        about = message.metadata
        facts = {"stream": about.stream, "sequence": about.sequence.stream, "time": about.timestamp}
        return replace(super()._record(message), facts=facts, is_certified=True, token=message)

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        try:
            for record in records:
                del self._held[id(record.token)]
                await record.token.ack()
        except nats_errors.Error as error:
            raise self._loss(error) from None

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        self._confirmations: dict[int, asyncio.Future[api.PubAck]] = {}
        refusals = [*await super().send(records)]
        for place, confirmation in self._confirmations.items():
            if refusals[place] is None:
                refusals[place] = await self._refused(records[place].topic, confirmation)
        return refusals

    async def _publish(self, place: int, record: PeerRecord) -> None:
        assert self._client is not None
        check_subject(record.topic)
        headers = headers_of(record)
        if identity := headers.get(IDENTITY):
            headers[_ID_HEADER] = identity
        check_size(record, headers, self._client.max_payload)
        self._confirmations[place] = await self._streams.publish_async(
            record.topic, record.payload, headers=headers
        )

    async def _refused(
        self, subject: str, confirmation: "asyncio.Future[api.PubAck]"
    ) -> ContradaError | None:
        """Waits for the stream; returns its refusal. Raises PeerLostError if it may accept."""
        try:
            await self._in_time(self._unless_lost(confirmation), self._wait_s)
        except stream_errors.NoStreamResponseError:
            # A stream without a leader answers like none: only the list of streams tells.
            try:
                name = await self._streams.find_stream_name_by_subject(subject)
            except stream_errors.NotFoundError:
                return NoPlaceError(f"no stream of JetStream has the subject {subject!r}")
            except nats_errors.Error as error:
                raise self._loss(error) from None
            raise self._loss(f"the stream {name!r} does not answer") from None
        except stream_errors.APIError as error:
            if error.code in _TEMPORARY_CODES:
                raise self._loss(error.description) from None
            refusal = ServiceError if error.err_code in _LARGE else NoPlaceError
            return refusal(f"JetStream refuses it: {error.description}")
        except nats_errors.Error as error:
            raise self._loss(error) from None
        return None

    async def aclose(self) -> None:
        for each in getattr(self, "_tasks", []):
            each.cancel()
        await super().aclose()


def _safe(name: str) -> str:
    """Returns a name as NATS allows for queue groups and consumers."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _digest(subject: str) -> str:
    """Returns a short name of a subject: a server before 2.10 has one subject per consumer."""
    return hashlib.sha256(subject.encode()).hexdigest()[:8]


def _quoted(subject: str) -> str:
    """Returns a subject as errors have it: the library makes these lower case."""
    return subject.replace("\\", "\\\\").replace('"', '\\"').lower()


def check_subject(subject: str) -> None:
    """Checks the subject of a publication. Raises InvalidValueError."""
    if not subject or _BAD_SUBJECT.search(subject) or "" in subject.split("."):
        raise InvalidValueError(subject, "no subject: expected tokens and dots, no *, > and space")


def check_size(record: PeerRecord, headers: Mapping[str, str], size_max: int) -> None:
    """Checks the size of a message with its headers. Raises InvalidValueError: the server would end
    the connection, each time.
    """
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    size = len(record.payload) + _HEADER_BYTES + lines
    if size > size_max:
        reason = f"the server takes {size_max} bytes, and these are {size} with the headers"
        raise InvalidValueError(record.topic, reason)


def headers_of(record: PeerRecord) -> dict[str, str]:
    """Returns the headers of a message. Raises InvalidValueError for what NATS cannot hold, such as
    two of one name.
    """
    headers = {} if not record.content_type else {_TYPE_HEADER: record.content_type}
    for name, value in record.headers:
        text = text_of(value)
        if not _HEADER_NAME.fullmatch(name) or _BAD_HEADER.search(text) or name in headers:
            raise InvalidValueError(name, "NATS has one line for each header, with a name in ASCII")
        headers[name] = text
    return headers
