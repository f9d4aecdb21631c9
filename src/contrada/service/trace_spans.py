"""Spans of a notification's path, by OpenTelemetry. No other module imports OpenTelemetry.

While tracing is off, nothing of OpenTelemetry is imported, and each hook costs a read of `is_on`. A
tracing publisher adds the attribute `traceparent`. Brokers leave it unchanged, since a notification
is its bytes and may be signed. So all spans are below the publication, apart from those below the
acceptance by the same broker: see docs/operations.md, "Tracing".
"""

import inspect
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from contrada.errors import MissingRequirementError
from contrada.matching.packed import Bundle
from contrada.model import Notification, to_msgpack
from contrada.routing.router_messages import Notifications
from contrada.service.requests import notification_of
from contrada.service.subjects import Handler

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, Tracer, TracerProvider

TRACED_MAX: Final = 64
"""Publications of one frame that get spans at a broker. Beyond it: the others get none there."""

ACCEPTED_MAX: Final = 10_000
"""Publications with a known span of a broker. Beyond it: the oldest is forgotten, and later spans
are below the publication."""

TRACEPARENT: Final = "traceparent"
"""The attribute of the context."""

is_on = False
"""Whether this process traces."""

_tracer: "Tracer | None" = None
_accepted: "OrderedDict[tuple[str, str], SpanContext]" = OrderedDict()

_SYSTEM: Final[dict[str, str | int]] = {"messaging.system": "contrada"}

_TEXT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

_PACKED: Final = re.compile(rb"\xabtraceparent\xd9\x37(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})")
"""The encoded attribute, found without decoding the notification. A body with the same bytes would
get spans; the notification itself is not affected."""


def start(provider: "TracerProvider | None" = None) -> None:
    """Starts tracing by a provider, or the one that is set for the process.

    Raises MissingRequirementError without OpenTelemetry.
    """
    global is_on, _tracer
    try:
        from opentelemetry import trace
    except ImportError:
        raise MissingRequirementError("opentelemetry", "pip install 'contrada[tracing]'") from None
    _tracer = (provider or trace.get_tracer_provider()).get_tracer("contrada")
    is_on = True


def stop() -> None:
    """Stops tracing."""
    global is_on, _tracer
    is_on, _tracer = False, None
    _accepted.clear()


def start_by_environment() -> None:
    """Starts tracing by the variables of OpenTelemetry; OTEL_TRACES_EXPORTER names the exporter.

    Without it, spans are sent by OTLP over HTTP. Raises MissingRequirementError.
    """
    import os
    from importlib.metadata import entry_points

    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise MissingRequirementError("opentelemetry", "pip install 'contrada[tracing]'") from None
    provider = TracerProvider()
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    names = {"otlp": "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"}
    for given in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        if (asked := given.strip()) == "none":
            continue
        name = names.get(asked, asked)
        found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
        if not found:
            remedy = f"install the exporter that OTEL_TRACES_EXPORTER={asked} names"
            raise MissingRequirementError(f"opentelemetry_traces_exporter:{name}", remedy)
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    start(provider)


# --- clients --------------------------------------------------------------------------------------


def trace_publication(notification: Notification) -> Notification:
    """The notification with the context of a span of its publication, if that is sampled.

    The span ends here, since many publications share an answer of the broker.
    """
    from opentelemetry.trace import SpanKind

    assert _tracer is not None
    span = _tracer.start_span("publish", kind=SpanKind.PRODUCER, attributes=_SYSTEM)
    context = span.get_span_context()
    span.end()
    if TRACEPARENT in notification or not context.trace_flags.sampled:
        return notification  # It may have been published before, elsewhere.
    text = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    attributes = {**notification, TRACEPARENT: text}
    body, kind = notification.body, notification.content_type
    return Notification(attributes, body=body, content_type=kind, envelope=notification.envelope)


def trace_maker(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function `make` with a context added to mappings and notifications."""
    if not is_on:
        return make

    def traced(item: Any) -> Any:
        return make(trace_publication(notification_of(item)) if isinstance(item, Mapping) else item)

    return traced


def trace_handler(function: Handler[Any]) -> Handler[Any]:
    """The handler of a subscriber, with a span around each call for a sampled context."""
    from opentelemetry.trace import SpanKind, use_span

    def call(item: Any) -> Awaitable[object] | object:
        notification = getattr(item, "item", item)
        text = notification.get(TRACEPARENT) if isinstance(notification, Mapping) else None
        parent = _parent(text) if isinstance(text, str) else None
        if parent is None or _tracer is None:
            return function(item)
        span = _tracer.start_span("process", parent, SpanKind.CONSUMER, _SYSTEM)
        with use_span(span, end_on_exit=False):
            try:
                result = function(item)
            except BaseException:
                span.end()
                raise
        if not inspect.isawaitable(result):
            span.end()
            return result

        async def go_on() -> object:
            with use_span(span, end_on_exit=True):
                return await result

        return go_on()

    return call


# --- brokers --------------------------------------------------------------------------------------


@contextmanager
def trace_acceptance(node: str, origin: str, notifications: Notifications) -> Iterator[None]:
    """Spans while a broker matches and routes notifications of a client or neighbour."""
    from opentelemetry.trace import SpanKind

    assert _tracer is not None
    told = {**_SYSTEM, "contrada.broker": node, "contrada.from": origin}
    spans = []
    if isinstance(notifications, Bundle):
        encodings: Iterable[bytes] = notifications.encodings
    else:
        encodings = map(to_msgpack, notifications)
    for text in _contexts(encodings):
        span = _tracer.start_span("accept", _parent(text), SpanKind.SERVER, told)
        _accepted[node, text] = span.get_span_context()
        spans.append(span)
    while len(_accepted) > ACCEPTED_MAX:
        _accepted.popitem(last=False)
    try:
        yield
    finally:
        for span in spans:
            span.end()


def trace_departures(what: str, node: str, to: str, encodings: Iterable[bytes]) -> None:
    """Spans for notifications that leave a broker: `deliver` to a client, `link` to a neighbour."""
    from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context

    assert _tracer is not None
    told = {**_SYSTEM, "contrada.broker": node, "contrada.to": to}
    for text in _contexts(encodings):
        here = _accepted.get((node, text))
        parent = _parent(text) if here is None else set_span_in_context(NonRecordingSpan(here))
        _tracer.start_span(what, parent, SpanKind.CLIENT, told).end()


def _contexts(encodings: Iterable[bytes]) -> list[str]:
    """The sampled contexts, each once, of the first few publications."""
    found: dict[str, None] = {}
    for each in encodings:
        match = _PACKED.search(each)
        if match is not None and int(match[1][-2:], 16) & 1:
            found[match[1].decode()] = None
            if len(found) == TRACED_MAX:
                break
    return list(found)


def _parent(text: str) -> "Context | None":
    """The context in a text; None if there is none, or it is not sampled."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    match = _TEXT.fullmatch(text)
    if match is None or not int(match[3], 16) & 1:
        return None
    trace, span = int(match[1], 16), int(match[2], 16)
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(int(match[3], 16)))
    return set_span_in_context(NonRecordingSpan(context)) if context.is_valid else None
