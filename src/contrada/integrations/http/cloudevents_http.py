"""`notifications_in`: the CloudEvents of an HTTP request, in binary, structured or batched mode.

A malformed event refuses its whole request, with its index and the reason. Context attributes in
headers are percent-encoded UTF-8, and always texts, since headers have no types.

Source: CloudEvents HTTP Protocol Binding 1.0.2 §3.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from starlette.datastructures import Headers

from contrada.errors import ContradaError, EncodingError, LimitError, RefusedRequestError
from contrada.integrations.dialects.json_text import decode_json
from contrada.integrations.http import event_translation as translation
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.model import Notification

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"

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
    """Yields the notifications of a request one by one, so that the caller may pause between.
    Raises RefusedRequestError with the index of a malformed event; LimitError.
    """
    if (coding := headers.get("content-encoding", "identity").strip().lower()) != "identity":
        reason = f"found the content encoding {coding[:40]!r}, expected none"
        asked = {"Accept-Encoding": "identity"}
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason, headers=asked)
    given = headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    if not kind.startswith(_FAMILY):
        event = _binary(headers, given), body
        yield from notifications_of(
            [event], limits, lambda each: translation.notification_of_binary(*each)
        )
        return
    _check_charset(parameters)
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
                raise EncodingError("CloudEvents", f"expected an array, found {found}")
        except ContradaError as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
        yield from notifications_of(events, limits)
    else:
        reason = f"found {kind}, expected {STRUCTURED}, {BATCH}, or ce- headers with the data"
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def notifications_of(
    events: Sequence[Any],
    limits: GatewayLimits,
    convert: Any = lambda event: translation.notification_of(translation.checked_event(event)),
) -> Iterator[Notification]:
    """Converts events one by one. Raises RefusedRequestError with the index of a malformed one."""
    if len(events) > limits.http_events_max:
        raise LimitError("http_events_max", limits.http_events_max, len(events))
    for index, event in enumerate(events):
        try:
            notification = convert(event)
        except ContradaError as error:
            raise RefusedRequestError(HTTPStatus.BAD_REQUEST, str(error), index=index) from None
        yield notification


def _check_charset(parameters: str) -> None:
    for each in parameters.split(";"):
        name, _, value = each.strip().partition("=")
        if name.lower() == "charset" and value.strip('"').lower() not in _UTF_8:
            reason = f"found {each.strip()}, expected UTF-8"
            raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)


def _binary(headers: Headers, content_type: str) -> dict[str, str]:
    """Returns the context attributes of a request in binary mode. Raises RefusedRequestError."""
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_PREFIX):
            attribute = name.removeprefix(_PREFIX)
            if attribute in attributes:
                raise RefusedRequestError(HTTPStatus.BAD_REQUEST, f"two headers {name}", index=0)
            attributes[attribute] = _decode_header(name, value)
    if "specversion" not in attributes:
        reason = (
            f"this is no CloudEvent: expected ce- headers (ce-specversion: 1.0, ce-id, ce-source, "
            f"ce-type) with the data, {STRUCTURED}, or {BATCH}"
        )
        raise RefusedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, reason)
    if content_type:
        attributes["datacontenttype"] = content_type
    return attributes


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
        raise RefusedRequestError(HTTPStatus.BAD_REQUEST, reason, index=0) from None


def binary_headers(attributes: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yields context attributes as the headers of a request in binary mode."""
    for name, value in attributes.items():
        if name == "datacontenttype":
            yield "Content-Type", quote(value.strip(), safe=_SAFE_IN_TYPES)
        else:
            yield _PREFIX + name, quote(value, safe=_SAFE)
