"""`KafkaPeer`: topics of Kafka, as a consumer group and as an idempotent producer.

The group has the name of the bridge. Offsets are committed after the publication of their records,
so the group repeats the others after a crash, a lost connection, or a partition that moved to
another member. Sent records are confirmed by all replicas in sync. librdkafka blocks, so its
consumer and its producer each have a thread.

    topic                         <-> `topic`
    key                           <-> `kafka.key`, or the key of the bridge
    headers, `content-type`       <-> attributes, content type
    partition, offset, timestamp   -> `kafka.partition`, `kafka.offset`, `kafka.time`
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from contrada.errors import ContradaError, InvalidValueError, NoPlaceError, ServiceError
from contrada.integrations.bridges.bridge_peer import (
    NO_SERVER,
    AddressForm,
    BridgePeer,
    PeerSettings,
)
from contrada.integrations.bridges.record_translation import PeerRecord, text_of
from contrada.model import Value

T = TypeVar("T")

KAFKA_ADDRESS: Final = AddressForm(("kafka", "kafkas"), (9092, 9093), is_cluster=True)

KAFKA_BYTES_MAX: Final = 32 * 2**20
"""Bytes of fetched records that wait. Beyond it: the consumer fetches no more."""

KAFKA_RECORD_BYTES_MAX: Final = 64 * 2**20
"""Bytes of a sent record, if its topic takes so many. Beyond it: it is refused, counted."""

KAFKA_BATCH_BYTES: Final = 16_384
"""Bytes of records in one request, if there are several. Beyond it: the next one has the rest. It
is below the limit of any usual topic, which would refuse all records of a larger request."""

ERRORS_KEPT_MAX: Final = 64
"""Errors of connections that are kept. Beyond it: the oldest are forgotten."""

SESSION_S: Final = 6.0
"""Seconds until the group repeats records of a bridge that has crashed; Kafka allows no less."""

_TYPE_HEADER: Final = "content-type"
_POLL_S: Final = 0.5
_OPEN_POLL_S: Final = 0.2
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
_PATTERN: Final = "^"
_DOWN: Final = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
)
"""Errors of all servers, or of one that is the same for all."""

_MOVED: Final = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._ASSIGNMENT_LOST,
)
"""Errors of a commit when a partition has moved to another member: that one repeats its records."""

_NO_PLACE: Final = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
"""Errors of a topic, which another record may not have."""

_REFUSED: Final = (
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
)
"""Errors of one record. All others but those of a topic are those of a connection."""

_LOG: Final = logging.getLogger(__name__)


class KafkaPeer(BridgePeer):
    """Topics of one cluster. Bridges of one name share the partitions."""

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        for topic in settings.sources:
            if not topic.startswith(_PATTERN):
                check_topic(topic)
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._threads: tuple[ThreadPoolExecutor, ...] = ()
        """While open: that of the consumer, and that of the producer."""
        self._errors: list[deque[KafkaError]] = [deque(), deque()]
        """Errors of the connections of each. The producer's count until it is open: later, the
        server may end idle ones, and records tell of others."""

    async def open(self) -> None:
        self._threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        try:
            await self._in_thread(1, self._open_producer)
            if self.settings.sources:
                await self._in_thread(0, self._open_consumer)
        except KafkaException as error:
            raise self._failed(_reason(error)) from None

    def _open_producer(self) -> None:
        """Connects, and checks the sources. Raises ConnectionFailedError."""
        wait_ms = int(self._wait_s * 1000)
        self._producer = Producer(
            self._configuration(1)
            | {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # The partitions of the clients in Java.
                "batch.size": KAFKA_BATCH_BYTES,
                "message.max.bytes": KAFKA_RECORD_BYTES_MAX,
                "message.timeout.ms": wait_ms,
                # Sooner than that time-out: it would be a lost connection.
                "topic.metadata.propagation.max.ms": wait_ms // 2,
            }
        )
        known = self._topics(self._producer, time.monotonic() + self.settings.limits.bridge_wait_s)
        for topic in self.settings.sources:
            if topic not in known and not topic.startswith(_PATTERN):
                raise self._failed(f"no topic of Kafka has the name {topic!r}")

    def _topics(self, producer: Producer, end_s: float) -> Collection[str]:
        """Returns the topics once a server answers. Raises KafkaException."""
        while True:
            try:
                return {*producer.list_topics(timeout=_OPEN_POLL_S).topics}
            except KafkaException:
                producer.poll(0)  # It calls back with the errors.
                if any(each.code() in _DOWN for each in self._errors[1]):
                    # The first has the reason; that of all servers only counts them.
                    raise KafkaException(self._errors[1][0]) from None
                if time.monotonic() > end_s:
                    raise

    def _open_consumer(self) -> None:
        limits = self.settings.limits
        self._consumer = Consumer(
            self._configuration(0)
            | {
                "group.id": self.settings.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": int(SESSION_S * 1000 / 3),
                "queued.min.messages": limits.bridge_queued_max,
                "queued.max.messages.kbytes": KAFKA_BYTES_MAX // 1024,
                "socket.timeout.ms": int(limits.bridge_wait_s * 1000),
            }
        )
        self._consumer.subscribe([*self.settings.sources])

    def _configuration(self, place: int) -> dict[str, Any]:
        address, tls = self.settings.address, self.settings.tls
        # The object of an earlier connection may still call back.
        errors = self._errors[place] = deque(maxlen=ERRORS_KEPT_MAX)
        found: dict[str, Any] = {
            "bootstrap.servers": str(address).partition("://")[2],
            "client.id": self.settings.name,
            "error_cb": errors.append,
            "log_level": 0,  # Its log would be lines of another form on standard error.
            "security.protocol": f"{'sasl_' if address.user else ''}"
            f"{'plaintext' if tls is None else 'ssl'}",
        }
        if address.user:
            found["sasl.mechanism"] = self.settings.mechanism
            found["sasl.username"], found["sasl.password"] = address.user, address.password
        if tls is not None:
            files = {
                "ssl.ca.location": tls.authority,
                "ssl.certificate.location": tls.certificate,
                "ssl.key.location": tls.key or tls.certificate,
            }
            found |= {name: str(file) for name, file in files.items() if file is not None}
        return found

    # --- in -----------------------------------------------------------------------------------

    async def receive(self) -> Sequence[PeerRecord]:
        while True:
            if found := await self._in_thread(0, self._poll):
                return found

    def _poll(self) -> list[PeerRecord]:
        """Returns records that wait, at most a batch, or none after a while."""
        assert self._consumer is not None
        first = self._consumer.poll(_POLL_S)
        if down := [each for each in self._errors[0] if each.code() in _DOWN]:
            raise self._loss(down[-1].str())
        if first is None:
            return []
        records: list[PeerRecord] = []
        rest = self._consumer.consume(self.settings.limits.bridge_batch_max - 1, 0)
        for message in (first, *rest):
            if (error := message.error()) is None:
                records.append(record_from(message))
            elif error.code() != KafkaError._MAX_POLL_EXCEEDED:
                raise self._loss(error.str())
            # That one follows a long wait for the broker: the group repeats the records.
        return records

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            topic, partition, offset = record.token
            ends[topic, partition] = offset + 1
        work = self._in_thread(
            0, self._commit, [TopicPartition(*at, to) for at, to in ends.items()]
        )
        await self._in_time(work)

    def _commit(self, ends: list[TopicPartition]) -> None:
        assert self._consumer is not None
        try:
            done = self._consumer.commit(offsets=ends, asynchronous=False)
            failed = [each.error for each in done or () if each.error is not None]
        except KafkaException as error:
            failed = [error.args[0]]
        for each in failed:
            if each.code() not in _MOVED:
                raise self._loss(each.str())
            fields = {"address": self.settings.address, "reason": each.str()}
            _LOG.info("records of %(address)s are repeated: %(reason)s", fields)

    # --- out ----------------------------------------------------------------------------------

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        return await self._in_thread(1, self._send, records)

    def _send(self, records: Sequence[PeerRecord]) -> list[ContradaError | None]:
        assert self._producer is not None
        answers: list[ContradaError | None] = [None] * len(records)
        failures: dict[int, KafkaError] = {}

        def see(place: int, error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures[place] = error

        for place, record in enumerate(records):
            try:
                check_topic(record.topic)
                self._producer.produce(
                    record.topic,
                    record.payload,
                    key_of(record),
                    headers=headers_of(record),
                    on_delivery=partial(see, place),
                )
            except InvalidValueError as error:
                answers[place] = error
            except KafkaException as error:
                failures[place] = error.args[0]
        # Each record is confirmed, or has failed, after its time-out.
        if self._producer.flush(self._wait_s + 1):
            raise self._loss("no confirmation")
        for place, failure in failures.items():
            answers[place] = refusal_of(failure, records[place].topic)
            if answers[place] is None:
                raise self._loss(failure.str())
        return answers

    # --- the connection -----------------------------------------------------------------------

    async def aclose(self) -> None:
        consumer, self._consumer = self._consumer, None
        producer, self._producer = self._producer, None
        try:
            if consumer is not None:  # After a call that still runs: it must not lose its object.
                await self._in_thread(0, consumer.close)
            if producer is not None:
                await self._in_thread(1, producer.purge)
        finally:
            threads, self._threads = self._threads, ()
            for each in threads:
                each.shutdown(wait=False)  # A call that hangs would block the event loop.

    def _in_thread(self, place: int, work: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads[place], work, *arguments)


def _reason(error: KafkaException) -> str:
    found: KafkaError = error.args[0]
    return NO_SERVER if "Connection refused" in found.str() else found.str()


def refusal_of(failure: KafkaError, topic: str) -> ServiceError | None:
    """Returns the error of one record, or None for that of a connection."""
    if failure.code() in _NO_PLACE:
        return NoPlaceError(f"no place in the topic {topic!r}: {failure.str()}")
    if failure.code() in _REFUSED:
        return ServiceError(f"Kafka refuses it: {failure.str()}")
    return None


def check_topic(topic: str) -> None:
    """Checks the name of a topic. Raises InvalidValueError."""
    if not _TOPIC.fullmatch(topic):
        reason = "no topic of Kafka: expected 1 to 249 letters, digits, '.', '_' and '-'"
        raise InvalidValueError(topic, reason)


def record_from(message: Message) -> PeerRecord:
    """Returns the record of a message."""
    headers: Any = message.headers()  # A list; the annotation has the form of `produce`, too.
    named = [(name, _text(value)) for name, value in headers or ()]
    types = [value for name, value in named if name.lower() == _TYPE_HEADER]
    kind, time_ms = message.timestamp()
    facts: dict[str, Any] = {"partition": message.partition(), "offset": message.offset()}
    if (key := _text(message.key())) is not None:
        facts["key"] = key
    if kind != TIMESTAMP_NOT_AVAILABLE:
        # Any number of a producer, such as microseconds: an error would end the bridge, each time.
        with suppress(ValueError, OverflowError, OSError):
            facts["time"] = datetime.fromtimestamp(time_ms / 1000, UTC)
    return PeerRecord(
        topic=message.topic() or "",
        payload=message.value() or b"",
        content_type=types[0] if types and isinstance(types[0], str) else "",
        headers=tuple((name, value) for name, value in named if name.lower() != _TYPE_HEADER),
        facts=facts,
        token=(message.topic(), message.partition(), message.offset()),
    )


def _text(value: str | bytes | None) -> str | bytes | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def key_of(record: PeerRecord) -> str | bytes | None:
    """Returns the key of a record, or None. Raises InvalidValueError for several."""
    key: Value | tuple[Value, ...] = record.facts.get("key")
    if isinstance(key, tuple):
        raise InvalidValueError("kafka.key", f"Kafka takes one value of it, found {len(key)}")
    return key if key is None or isinstance(key, bytes) else text_of(key)


def headers_of(record: PeerRecord) -> list[tuple[str, str | bytes | None]]:
    """Returns the headers of a record; Kafka has several of one name."""
    types = [(_TYPE_HEADER, record.content_type)] if record.content_type else []
    own: list[tuple[str, str | bytes | None]] = [
        (name, value if value is None or isinstance(value, bytes) else text_of(value))
        for name, value in record.headers
    ]
    return [*types, *own]
