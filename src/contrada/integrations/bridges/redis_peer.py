"""`RedisPeer`: streams of Redis, or of Valkey, with a consumer group for each.

An entry is a map of fields. The consumer has the name of its group, so entries that a crashed
bridge has not acknowledged are in the list of the next one, which reads that list first (Redis
commands XREADGROUP with an id, XACK).

    fields              -> a JSON object of untyped cells: `61.5` is a number, `true` a Boolean
    fields `contrada.…` -> headers
    attributes          -> fields: texts as they are, other values as JSON
    body, content type  -> the fields `contrada.body`, `contrada.content_type`
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from contrada.errors import (
    AddressError,
    ContradaError,
    InvalidValueError,
    NoPlaceError,
    ServiceError,
)
from contrada.integrations.bridges.bridge_peer import (
    NO_SERVER,
    AddressForm,
    BridgePeer,
    PeerSettings,
)
from contrada.integrations.bridges.record_translation import OWN_PREFIX, PeerRecord, text_of
from contrada.integrations.files.read_options import untyped_value
from contrada.model.algebra.nested_objects import JSON_TYPE

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

REDIS_ADDRESS: Final = AddressForm(("redis", "rediss"), (6379, 6379), has_path=True)

_BODY: Final = "contrada.body"
_TYPE: Final = "contrada.content_type"
_POLL_MS: Final = 2_000
_NEW: Final = ">"
_CODE: Final = re.compile(r"[A-Z]+ ")
"""The begin of an error of the server's state, such as `NOREPLICAS` and `MISCONF` of a full disk.
The library leaves out `ERR`, that of a command."""


class RedisPeer(BridgePeer):
    """Streams of one server. Each bridge needs a name of its own."""

    has_fields = True

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        self._client: Redis | None = None
        self._unread: dict[str, str] = {}
        """Streams with entries that were delivered before, and the last of these that was read."""
        path = settings.address.path or "0"
        if not path.isascii() or not path.isdigit():
            raise AddressError(str(settings.address), "redis://HOST/NUMBER, of the database")
        self._database = int(path)

    async def open(self) -> None:
        address, tls = self.settings.address, self.settings.tls
        host, port = address.hosts[0]
        self._client = Redis(
            host=host,
            port=port,
            db=self._database,
            username=address.user or None,
            password=address.password or None,
            socket_timeout=self._wait_s,
            socket_connect_timeout=self.settings.limits.bridge_wait_s,
            retry=Retry(NoBackoff(), 0),
            client_name=None,
            ssl=tls is not None,
            ssl_ca_certs=None if tls is None or tls.authority is None else str(tls.authority),
            ssl_certfile=None if tls is None or tls.certificate is None else str(tls.certificate),
            ssl_keyfile=None if tls is None or tls.key is None else str(tls.key),
        )
        wait_s = self.settings.limits.bridge_wait_s
        try:
            async with asyncio.timeout(wait_s):
                await self._client.ping()
                for stream in self.settings.sources:
                    await self._join(stream)
        except (exceptions.RedisError, TimeoutError) as error:
            reason = str(error) or f"no answer within {wait_s:g} s"
            if isinstance(error.__cause__, ConnectionRefusedError) or "Connect call" in reason:
                reason = NO_SERVER
            raise self._failed(reason) from None
        self._unread = dict.fromkeys(self.settings.sources, "0")

    async def _join(self, stream: str) -> None:
        """Creates the group of this bridge, from the oldest entry on, unless it is there."""
        assert self._client is not None
        try:
            await self._client.xgroup_create(stream, self.settings.name, id="0", mkstream=True)
        except exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def receive(self) -> Sequence[PeerRecord]:
        while True:
            for stream, last in list(self._unread.items()):
                found = await self._read({stream: last})
                if found:
                    self._unread[stream] = found[-1].token[1]
                    return found
                del self._unread[stream]
            if found := await self._read(dict.fromkeys(self.settings.sources, _NEW)):
                return found

    async def _read(self, streams: dict[str, str]) -> list[PeerRecord]:
        while True:
            records, deleted = await self._read_some(streams)
            if deleted:  # Those before the next ones would come again and again.
                await self.acknowledge(deleted)
                what = f"{len(deleted)} entries of {deleted[0].topic!r} were deleted before"
                fields = {"address": self.settings.address, "reason": f"{what} they were sent"}
                _LOG.warning("%(address)s: %(reason)s", fields)
            if records or not deleted:
                return records

    async def _read_some(
        self, streams: dict[str, str]
    ) -> tuple[list[PeerRecord], list[PeerRecord]]:
        """Returns entries, and those of which only the numbers are left."""
        assert self._client is not None
        name, most = self.settings.name, self.settings.limits.bridge_batch_max
        names: dict[Any, Any] = dict(streams)
        # Below the time-out of the socket; 0 would be for ever.
        wait_ms = max(min(_POLL_MS, int(500 * self.settings.limits.bridge_wait_s)), 1)
        answer: Any = await self._unless_lost(
            self._client.xreadgroup(name, name, names, count=most, block=wait_ms)
        )
        parts = answer.items() if isinstance(answer, dict) else answer or ()
        records: list[PeerRecord] = []
        deleted: list[PeerRecord] = []
        for stream, entries in parts:
            # RESP3 answers with one more list around the entries of a stream.
            flat = entries[0] if isinstance(answer, dict) and entries else entries
            for place, fields in flat:
                # An entry has a field.
                found = records if fields else deleted
                found.append(_record(stream.decode(), place.decode(), fields or {}))
        return records, deleted

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        assert self._client is not None
        places: dict[str, list[str]] = {}
        for record in records:
            stream, place, _ = record.token
            places.setdefault(stream, []).append(place)
        for stream, found in places.items():
            await self._unless_lost(self._client.xack(stream, self.settings.name, *found))

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        assert self._client is not None
        refusals: list[ContradaError | None] = [None] * len(records)
        sent: list[int] = []
        async with self._client.pipeline(transaction=False) as pipeline:
            for place, record in enumerate(records):
                try:
                    fields: dict[Any, Any] = fields_of(record)
                except InvalidValueError as error:
                    refusals[place] = error
                    continue
                pipeline.xadd(record.topic, fields)
                sent.append(place)
            answers = await self._unless_lost(pipeline.execute(raise_on_error=False))
        for place, answer in zip(sent, answers, strict=True):
            if not isinstance(answer, Exception):
                continue
            if _is_of_place(answer):
                refusals[place] = NoPlaceError(f"the stream {records[place].topic!r}: {answer}")
            elif type(answer) is exceptions.ResponseError and not _CODE.match(str(answer)):
                refusals[place] = ServiceError(f"Redis refuses it: {answer}")
            else:
                raise self._loss(answer)
        return refusals

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _unless_lost(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except exceptions.RedisError as error:
            raise self._loss(error) from None


def _record(stream: str, place: str, fields: Mapping[bytes, bytes]) -> PeerRecord:
    texts = {name.decode(errors="backslashreplace"): value for name, value in fields.items()}
    cells = {name: _cell(value) for name, value in texts.items() if not _is_own(name)}
    own = ((name, text_of(value.decode(errors="replace"))) for name, value in texts.items())
    return PeerRecord(
        topic=stream,
        payload=msgspec.json.encode(cells),
        content_type=JSON_TYPE,
        headers=tuple((name, value) for name, value in own if _is_own(name)),
        facts={"id": place},
        token=(stream, place, fields),
    )


def _is_of_place(answer: Exception) -> bool:
    """Whether the answer is an error of a key: of its permission, or of another type."""
    is_of_type = isinstance(answer, exceptions.ResponseError) and "WRONGTYPE" in str(answer)
    return is_of_type or isinstance(answer, exceptions.NoPermissionError)


def _is_own(name: str) -> bool:
    return name.startswith(OWN_PREFIX)


def _cell(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"$bytes": value.hex()}
    return untyped_value(text) if text else text


def fields_of(record: PeerRecord) -> dict[Any, str | bytes]:
    """Returns the fields of an entry. Raises InvalidValueError without a stream."""
    if not record.topic:
        raise InvalidValueError(record.topic, "expected the name of a stream")
    fields: dict[Any, str | bytes] = {name: text_of(value) for name, value in record.headers}
    if record.token is not None:  # A dead letter keeps its fields as they are.
        *_, received = record.token
        return {**received, **{name.encode(): value for name, value in fields.items()}}
    if record.payload:
        fields[_BODY] = record.payload
    if record.content_type:
        fields[_TYPE] = record.content_type
    return fields
