"""Spans along the path of a notification, nested, and none without tracing."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from threading import Thread

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext, get_current_span

from contrada import Notification, connect
from contrada.service import trace_spans
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.net.networks import network


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """An exporter that collects the spans of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_spans.start(provider)
    yield exporter
    trace_spans.stop()
    provider.shutdown()


def parent_of(span: ReadableSpan) -> int:
    """The id of the span above."""
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """The id of a span."""
    assert span.context is not None
    return int(span.context.span_id)


def are_processed(finished: tuple[ReadableSpan, ...]) -> bool:
    """Whether a handler was called with all that was published."""
    done = {s.parent.span_id for s in finished if s.name == "process" and s.parent}
    return {id_of(s) for s in finished if s.name == "publish"} <= done


@on_loop
@pytest.mark.parametrize("count", [1, 8])
async def test_spans_are_nested_over_two_brokers(spans: InMemorySpanExporter, count: int) -> None:
    """A reader of traces would see another path than the real one."""
    seen: list[SpanContext] = []
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[1].address) as reader,
        connect(brokers[0].address) as publisher,
        reader.subscribe("n >= 0") as subscription,
    ):
        await until(lambda: brokers[0].statistics().links == 1)
        got: list[object] = []

        async def handle(item: Notification) -> None:
            seen.append(get_current_span().get_span_context())
            got.append(item["traceparent"])

        handling = asyncio.create_task(subscription.handle(handle))
        while not got:
            await publisher.publish({"n": 0})
            await asyncio.sleep(0)
        await until(lambda: any(span.name == "process" for span in spans.get_finished_spans()))
        first = len(got)
        spans.clear()
        if count == 1:
            await publisher.publish({"n": 1})
        else:
            await publisher.publish_batch([{"n": number} for number in range(count)])
        await until(lambda: len(got) >= first + count)
        await until(lambda: are_processed(spans.get_finished_spans()))
        handling.cancel()
    finished = spans.get_finished_spans()
    published = [span for span in finished if span.name == "publish"]
    assert len(published) == count
    for root in published:
        assert root.parent is None
        below = [s for s in finished if s.parent and parent_of(s) == id_of(root)]
        assert root.context is not None
        assert all(s.context and s.context.trace_id == root.context.trace_id for s in below)
        assert sorted(s.name for s in below) == ["accept", "accept", "process"]
        one, other = sorted(
            (s for s in below if s.name == "accept"), key=lambda s: s.start_time or 0
        )
        for accept, names in ((one, ["link"]), (other, ["deliver"])):
            assert [s.name for s in finished if s.parent and parent_of(s) == id_of(accept)] == names
        assert one.attributes is not None
        assert other.attributes is not None
        assert one.attributes["contrada.broker"] != other.attributes["contrada.broker"]
        assert other.attributes["contrada.from"] == one.attributes["contrada.broker"]
    ids = {id_of(s) for s in finished if s.name == "process"}
    assert ids <= {context.span_id for context in seen}, "what a handler does is below its span"


@on_loop
async def test_an_unsampled_notification_has_no_context_and_no_spans(
    spans: InMemorySpanExporter,
) -> None:
    """Each notification would be longer, and brokers make spans that nobody wants."""
    async with (
        network(1, []) as brokers,
        connect(brokers[0].address) as service,
        service.subscribe("n >= 0") as subscription,
    ):
        trace_spans.start(TracerProvider(sampler=ALWAYS_OFF))
        await service.publish({"n": 1})
        trace_spans.stop()
        await service.publish({"n": 2, "traceparent": "no context"})
        assert "traceparent" not in await anext(subscription)
        assert (await anext(subscription))["traceparent"] == "no context"
    assert spans.get_finished_spans() == ()


@on_loop
async def test_strange_contexts_are_forwarded_unchanged(spans: InMemorySpanExporter) -> None:
    """A publisher could break a broker or a handler by a text."""
    zeros = f"00-{'0' * 32}-{'0' * 16}-01"
    strange: list[object] = ["", "00-x", zeros, f"00-{'a' * 32}-{'b' * 16}-00", 5]
    handled: list[object] = []
    async with (
        network(1, []) as brokers,
        connect(brokers[0].address) as service,
        service.subscribe("n >= 0") as subscription,
    ):
        handling = asyncio.create_task(
            subscription.handle(lambda item: handled.append(item["traceparent"]))
        )
        for each in strange:
            await service.publish({"n": 1, "traceparent": each})
        await until(lambda: len(handled) == len(strange))
        handling.cancel()
    assert handled == strange
    assert {span.name for span in spans.get_finished_spans()} <= {"publish", "accept", "deliver"}


def test_nothing_of_it_is_loaded_while_it_is_off() -> None:
    """All users would pay for an option of few."""
    code = (
        "import sys, contrada.net.broker.broker, contrada.net.client.tcp_service\n"
        "import contrada.service.trace_spans\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_exporter_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would run, and its spans be lost."""
    from contrada.errors import MissingRequirementError

    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "absent")
    with pytest.raises(MissingRequirementError, match="absent"):
        trace_spans.start_by_environment()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    trace_spans.start_by_environment()
    assert trace_spans.is_on
    trace_spans.stop()


def test_spans_are_sent_to_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve --tracing` would not start with its extra alone, or send nothing."""
    found: Queue[tuple[str, str]] = Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            found.put((self.path, self.headers["content-type"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{collector.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
        monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
        trace_spans.start_by_environment()
        trace_spans.trace_publication(Notification({"n": 1}))
        trace_spans.stop()
        assert found.get(timeout=TEST_S_MAX) == ("/v1/traces", "application/x-protobuf")
        collector.shutdown()
