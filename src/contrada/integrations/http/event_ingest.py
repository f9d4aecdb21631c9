"""`POST /events`: publishes the CloudEvents of a request, in binary, structured or batched mode.

A malformed event refuses its whole request, with the index of the first such event. An event that
the user may not publish does not affect the others: its index is reported. The answer is 202 with
the number of published events, once the broker has them. Plain JSON is the data of an event with
defaults: a random id, the source `/events` and the type JSON_EVENT_TYPE. Context attributes in
headers are percent-encoded UTF-8, and always texts, since headers have no types.

Source: CloudEvents HTTP Protocol Binding 1.0.2 §3.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from contrada import errors
from contrada.integrations.dialects.cloudevents.cloudevent_json import SPEC_VERSION, is_json
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http import event_translation as translation
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import invalid
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification
from contrada.net.client.published_frames import publish_frames

DECODED_AT_ONCE_BYTES: Final = 16 * 1024
"""Bytes of content that are decoded on the event loop, in 5 ms at most. Beyond it: in a thread."""

REFUSED_INDICES_MAX: Final = 100
"""Indices of refused events in an answer. Beyond it: further ones are left out."""

# One thread: decoded content is many times as large.
_DECODER: Final = ThreadPoolExecutor(1, "contrada-events")

T = TypeVar("T")

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON_EVENT_TYPE: Final = "contrada.json"
"""The type of an event that was posted as plain JSON."""

_PREFIX: Final = "ce-"
_FAMILY: Final = "application/cloudevents"
_UTF_8: Final = ("", "utf-8", "utf8")
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that a header holds unescaped: printable ASCII but the quote and the percent sign."""
_SAFE_IN_TYPES: Final = _SAFE + ' "%'
"""Characters that a content type holds unescaped. No header can hold the others."""


def notifications_in(
    headers: Headers, body: bytes, limits: GatewayLimits = GatewayLimits()
) -> Iterator[Notification]:
    """Yields the notifications of a request.

    Raises RefusedRequestError with the index of a malformed event; LimitError.
    """
    if (coding := headers.get("content-encoding", "identity").strip().lower()) != "identity":
        reason = f"found the content encoding {coding[:40]!r}, expected none"
        asked = {"Accept-Encoding": "identity"}
        raise errors.RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason, headers=asked)
    given = headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    if not kind.startswith(_FAMILY):
        event = _binary(headers, given, body), body
        yield from notifications_of(
            [event], limits, lambda each: translation.notification_of_binary(*each)
        )
        return
    for each in parameters.split(";"):
        name, _, value = each.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in _UTF_8:
            reason = f"found {each.strip()}, expected UTF-8"
            raise errors.RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    if kind == STRUCTURED:
        yield from notifications_of(
            [body],
            limits,
            lambda text: translation.notification_of(translation.checked_event(decode_json(text))),
        )
    elif kind == BATCH:
        try:
            events = decode_json(body)
            if not isinstance(events, list):
                found = type(events).__name__
                raise errors.EncodingError("CloudEvents", f"expected an array, found {found}")
        except errors.ContradaError as error:
            raise invalid(error) from None
        yield from notifications_of(events, limits)
    else:
        reason = f"found {kind}, expected {STRUCTURED}, {BATCH}, or ce- headers with the data"
        raise errors.RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def notifications_of(
    events: Sequence[Any],
    limits: GatewayLimits,
    convert: Any = lambda event: translation.notification_of(translation.checked_event(event)),
) -> Iterator[Notification]:
    """Converts events one by one. Raises RefusedRequestError with the index of a malformed one."""
    if len(events) > limits.http_events_max:
        raise errors.LimitError("http_events_max", limits.http_events_max, len(events))
    for index, event in enumerate(events):
        try:
            notification = convert(event)
        except errors.ContradaError as error:
            raise invalid(error, index=index) from None
        yield notification


def _binary(headers: Headers, content_type: str, body: bytes) -> dict[str, str]:
    """Returns the context attributes of a request in binary mode, or of plain JSON. Raises
    RefusedRequestError.
    """
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_PREFIX):
            attribute = name.removeprefix(_PREFIX)
            if attribute in attributes:
                raise errors.RefusedRequestError(
                    HTTPStatus.BAD_REQUEST, f"two headers {name}", index=0
                )
            attributes[attribute] = _decode_header(name, value)
    if "specversion" not in attributes and _is_plain_json(content_type, body):
        own = {"source": "/events", "type": JSON_EVENT_TYPE, "id": secrets.token_hex(16)}
        attributes = {"specversion": SPEC_VERSION} | own | attributes
    if "specversion" not in attributes:
        reason = (
            f"this is no CloudEvent: expected application/json, ce- headers (ce-specversion: 1.0, "
            f"ce-id, ce-source, ce-type) with the data, {STRUCTURED}, or {BATCH}"
        )
        raise errors.RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    if content_type:
        attributes["datacontenttype"] = content_type
    return attributes


def _is_plain_json(content_type: str, body: bytes) -> bool:
    """Whether a body is JSON of a JSON type, and no event in the JSON format with a wrong type.
    Raises RefusedRequestError for malformed JSON.
    """
    if not is_json(content_type):
        return False
    try:
        content = decode_json(body)
    except errors.ContradaError as error:
        raise invalid(error) from None
    return not (isinstance(content, dict) and "specversion" in content)


def _decode_header(name: str, value: str) -> str:
    """Returns the text of a header, which Starlette decodes as Latin-1."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    if value.isascii() and "%" not in value:
        return value
    try:
        # A percent sign without an escape is literal, as older senders write it.
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        reason = f"header {name}: not UTF-8"
        raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, index=0) from None


def binary_headers(attributes: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yields context attributes as the headers of a request in binary mode."""
    for name, value in attributes.items():
        if name == "datacontenttype":
            yield "Content-Type", quote(value.strip(), safe=_SAFE_IN_TYPES)
        else:
            yield _PREFIX + name, quote(value, safe=_SAFE)


async def decode_content(decode: Callable[[], T], size: int) -> T:
    """Returns the decoded content of a request of so many bytes. Raises as `decode`."""
    if size <= DECODED_AT_ONCE_BYTES:
        return decode()
    return await asyncio.get_running_loop().run_in_executor(_DECODER, decode)


class RequestBodies:
    """The bodies of all running requests, bounded together."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self.held_bytes = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Yields the body of a request, which counts until the end. Raises ContradaError."""
        declared, limits = request.headers.get("content-length", "0"), self._limits
        if declared.isdigit():
            self._check_size(int(declared))
        parts: list[bytes] = []
        size = 0
        try:
            try:
                async with asyncio.timeout(limits.body_wait_s):
                    async for part in request.stream():
                        self.held_bytes += len(part)
                        size += len(part)
                        parts.append(part)
                        self._check_size(size)
                        if self.held_bytes > limits.http_bodies_bytes_max:
                            raise errors.LimitError(
                                "http_bodies_bytes_max", limits.http_bodies_bytes_max
                            )
            except TimeoutError:
                raise errors.RefusedRequestError(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"the body did not arrive within {limits.body_wait_s:g} s",
                    headers={"Connection": "close"},
                ) from None
            except ClientDisconnect:
                reason = "the client has left"
                raise errors.RefusedRequestError(HTTPStatus.BAD_REQUEST, reason) from None
            yield parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self.held_bytes -= size

    def _check_size(self, size: int) -> None:
        most = self._limits.http_body_bytes_max
        if size > most:
            raise errors.RefusedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                str(errors.LimitError("http_body_bytes_max", most, size)),
                headers={"Connection": "close"},
            )

    async def ingest(self, request: Request, access: TokenService) -> int:
        """Publishes the events of a request; returns their number. Raises ContradaError."""
        async with self.read(request) as body:
            notifications: list[Notification] = await decode_content(
                partial(list, notifications_in(request.headers, body, self._limits)), len(body)
            )
            return await publish(access, notifications)


async def publish(access: TokenService, notifications: Sequence[Notification]) -> int:
    """Publishes the events of one request in order; returns their number. Raises
    RefusedRequestError with the indices of events that the user may not publish, after all others
    are published; ContradaError with `published`, the number of events published before it.
    """
    refused: list[int] = []
    done, reason = 0, ""
    async with access.publishing:
        try:
            async for size, errors_at in publish_frames(access.service, notifications):
                for at, error in errors_at.items():
                    reason = reason or error.reason
                    refused.append(done + at)
                done += size
        except errors.ContradaError as failure:
            failure.published = done - len(refused) + (failure.published or 0)
            raise
    if refused:
        raise errors.RefusedRequestError(
            HTTPStatus.FORBIDDEN,
            reason,
            published=done - len(refused),
            refused=refused[:REFUSED_INDICES_MAX],
        )
    return done
