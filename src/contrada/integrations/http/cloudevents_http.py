"""CloudEvents in requests of HTTP: binary, structured and batches.

An event that is wrong is told with its index and its reason, and then nothing of its request is
published. Context attributes in headers are percent-encoded UTF-8, and texts, since headers have no
types.

Source: CloudEvents HTTP Protocol Binding 1.0.2 §3.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers

from contrada.errors import ContradaError, LimitError, RefusedRequestError
from contrada.integrations.http.event_translation import (
    checked_event,
    event_in,
    events_in,
    notification_of,
    notification_of_binary,
)
from contrada.model import Notification

HTTP_EVENTS_MAX: Final = 10_000
"""Events of one request, or of one message of a WebSocket. Beyond it: it is refused."""

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"

_PREFIX: Final = "ce-"
_FAMILY: Final = "application/cloudevents"
_UTF_8: Final = ("", "utf-8", "utf8")
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""What stands in headers as it is: printable ASCII but the quote and the percent sign."""
_SAFE_IN_TYPES: Final = _SAFE + ' "%'
"""What stands in a content type as it is. The rest no header can have."""


def notifications_in(headers: Headers, body: bytes) -> Iterator[Notification]:
    """The notifications of a request, made one by one, so that others may have a turn between.

    Raises RefusedRequestError, with the index of an event that is none; LimitError.
    """
    if (coding := headers.get("content-encoding", "identity").strip().lower()) != "identity":
        reason = f"found the content encoding {coding[:40]!r}, expected none"
        asked = {"Accept-Encoding": "identity"}
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason, headers=asked)
    given = headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    if not kind.startswith(_FAMILY):
        yield from notifications_of([_binary(headers, given, body)], _of_binary)
        return
    _check_charset(parameters)
    if kind == STRUCTURED:
        yield from notifications_of([body], lambda text: notification_of(event_in(text)))
    elif kind == BATCH:
        try:
            events = events_in(body)
        except ContradaError as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
        yield from notifications_of(events)
    else:
        reason = f"found {kind}, expected {STRUCTURED}, {BATCH}, or ce- headers with the data"
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def notifications_of(
    events: Sequence[Any], made: Any = lambda event: notification_of(checked_event(event))
) -> Iterator[Notification]:
    """What is made of events. Raises RefusedRequestError with the index of the first bad one."""
    if len(events) > HTTP_EVENTS_MAX:
        raise LimitError("HTTP_EVENTS_MAX", HTTP_EVENTS_MAX, len(events))
    for index, event in enumerate(events):
        try:
            found = made(event)
        except ContradaError as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, str(error), index=index) from None
        yield found


def _check_charset(parameters: str) -> None:
    for each in parameters.split(";"):
        name, _, value = each.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in _UTF_8:
            reason = f"found {each.strip()}, expected UTF-8"
            raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def _binary(headers: Headers, content_type: str, body: bytes) -> tuple[dict[str, str], bytes]:
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_PREFIX):
            attribute = name.removeprefix(_PREFIX)
            if attribute in attributes:
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, f"two headers {name}", index=0)
            attributes[attribute] = _decoded(name, value)
    if "specversion" not in attributes:
        reason = (
            f"this is no CloudEvent: expected ce- headers (ce-specversion: 1.0, ce-id, ce-source, "
            f"ce-type) with the data, {STRUCTURED}, or {BATCH}"
        )
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    if content_type:
        attributes["datacontenttype"] = content_type
    return attributes, body


def _of_binary(event: tuple[dict[str, str], bytes]) -> Notification:
    return notification_of_binary(*event)


def _decoded(name: str, value: str) -> str:
    """The text of a header, which Starlette reads as Latin-1."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    if value.isascii() and "%" not in value:
        return value
    try:
        # A percent sign that begins no escape stands for itself, as older senders write it.
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        reason = f"header {name}: not UTF-8"
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, index=0) from None


def binary_headers(attributes: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Context attributes as headers of a request in binary mode."""
    for name, value in attributes.items():
        if name == "datacontenttype":
            yield "Content-Type", quote(value.strip(), safe=_SAFE_IN_TYPES)
        else:
            yield _PREFIX + name, quote(value, safe=_SAFE)
