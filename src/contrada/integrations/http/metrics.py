"""`GatewayCounts`, and `GET /metrics`: the counts of a broker and its gateway for Prometheus.

The broker's statistics are requested with the token of the request, so the broker checks its
permission.
"""

import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import ProcessCollector, core
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from contrada.model.native import NATIVE
from contrada.net.broker.latencies import BEYOND
from contrada.net.wire.frames import VERSION
from contrada.net.wire.inspection import software_version

_GAUGES: Final = {
    "connections": "Connections of clients and neighbours.",
    "links": "Links to neighbours.",
    "subscriptions": "Subscriptions in force.",
    "held_bytes": "Bytes in queues for delivery or processing.",
}
_COUNTERS: Final = {
    "connections_total": ("connections_made", "Connections that were made."),
    "published": ("published", "Notifications that were published."),
    "matched": ("matched", "Pairs of a notification and a subscription that it matches."),
}
_LABELLED: Final = {
    "dropped": ("reason", "Notifications that were dropped for a subscription."),
    "refused": ("fault", "Faults of peers, and requests that were refused."),
    "safe_answers": ("question", "Queries of the algebra with a conservative answer."),
    "operator_failures": ("operator", "Failures of operators of extensions."),
    "link_sent": ("link", "Notifications that were sent over a link."),
}
_LABELLED_GAUGES: Final = {
    "link_waiting": ("link", "Notifications in the queue of a link."),
    "subscription_waiting": ("subscription", "Queued notifications of the longest queues."),
    "subscription_dropped": ("subscription", "Dropped notifications of the longest queues."),
    "queue_unread": ("queue", "Unread records of a durable subscription."),
    "queue_handed": ("queue", "Its records that readers have and did not acknowledge."),
    "queue_dead": ("queue", "Its dead records since the start of the broker."),
    "queue_damaged": ("queue", "Its damaged records since the start of the broker."),
    "queue_readers": ("queue", "Its readers."),
    "queue_attempts": ("queue", "The most attempts of one of its records."),
    "quota_used": ("quota", "Use of a user's quotas, of those nearest to their limits."),
    "quota_limits": ("quota", "Limits of these quotas."),
    "delivery": ("count", "Durable traffic, as DeliveryStatistics counts it."),
    "store": ("count", "Bytes of the store's file, used and free, and free on its disk."),
    "stuck_logs": ("log", "Logs that cannot be read, with the reason."),
    "store_failures": ("reason", "Failed writes of the store since the last that succeeded."),
}
_SECOND_US: Final = 1_000_000


@dataclass(slots=True)
class GatewayCounts:
    """Counts of a gateway since its start, and its open streams."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answered requests by endpoint and status."""
    events: int = 0
    """Published events."""
    delivered: int = 0
    """Events written to event streams and WebSockets."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Events that streams lost, by reason."""
    pushed: Counter[str] = field(default_factory=Counter)
    """Pushes to sinks, by result."""
    streams: int = 0
    websockets: int = 0

    def add_lost(self, before: dict[str, int], now: Mapping[str, int]) -> dict[str, int]:
        """Counts the losses of a stream since `before`, which becomes `now`; returns them."""
        new = {reason: count - before.get(reason, 0) for reason, count in now.items()}
        new = {reason: count for reason, count in new.items() if count > 0}
        self.dropped.update(new)
        before.update(now)
        return new


def metrics_answer(broker: Mapping[str, Any], gateway: GatewayCounts, connections: int) -> Response:
    """Returns all metrics in the text format of Prometheus."""
    own = (*_of_build(), *ProcessCollector(registry=None).collect())
    found = _Collected([*own, *_of_broker(broker), *_of_gateway(gateway, connections)])
    return Response(generate_latest(found), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@dataclass
class _Collected(Collector):
    metrics: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _of_build() -> Iterator[Metric]:
    family = core.GaugeMetricFamily(
        "contrada_build_info",
        "Versions of the broker, in labels; always 1.",
        labels=["version", "python", "protocol", "kernels"],
    )
    kernels = "interpreted" if NATIVE is None else "compiled"
    python = platform.python_version()
    family.add_metric([software_version(), python, str(VERSION), kernels], 1)
    yield family


def _of_broker(counts: Mapping[str, Any]) -> Iterator[Metric]:
    yield core.GaugeMetricFamily(
        "contrada_start_time_seconds",
        "Start of the broker, in seconds since 1970.",
        value=counts.get("began_us", 0) / _SECOND_US,
    )
    for name, text in _GAUGES.items():
        yield core.GaugeMetricFamily(f"contrada_{name}", text, value=counts.get(name, 0))
    for name, (metric, text) in _COUNTERS.items():
        yield core.CounterMetricFamily(f"contrada_{metric}", text, value=counts.get(name, 0))
    for name, (label, text) in _LABELLED.items():
        yield _labelled(core.CounterMetricFamily, name, label, text, counts.get(name, {}))
    for name, (label, text) in _LABELLED_GAUGES.items():
        yield _labelled(core.GaugeMetricFamily, name, label, text, counts.get(name, {}))
    oldest = counts.get("queue_oldest_us", {})
    text = "Arrival of its oldest record, in seconds since 1970, or 0."
    seconds = {name: time_us / _SECOND_US for name, time_us in oldest.items()}
    yield _labelled(core.GaugeMetricFamily, "queue_oldest_seconds", "queue", text, seconds)
    yield _latencies(counts)


def _labelled(kind: Any, name: str, label: str, text: str, counts: Mapping[str, Any]) -> Metric:
    family = kind(f"contrada_{name}", text, labels=[label])
    for shown, count in counts.items():
        family.add_metric([shown], count)
    return family  # type: ignore[no-any-return]


def _latencies(counts: Mapping[str, Any]) -> Metric:
    """The histogram: each bucket includes the counts of all lower ones, as Prometheus expects."""
    family = core.HistogramMetricFamily(
        "contrada_delivery_latency_seconds",
        "Age of the oldest notification of each frame of deliveries when it leaves.",
    )
    buckets, total = [], 0
    for bound, count in counts.get("latency_us", {}).items():
        total += count
        shown = "+Inf" if bound == BEYOND else repr(int(bound) / _SECOND_US)
        buckets.append((shown, total))
    if buckets:
        family.add_metric([], buckets, counts.get("latency_sum_us", 0) / _SECOND_US)
    return family


def _of_gateway(counts: GatewayCounts, connections: int) -> Iterator[Metric]:
    requests = core.CounterMetricFamily(
        "contrada_http_requests", "Requests that were answered.", labels=["way", "status"]
    )
    for (endpoint, status), count in counts.requests.items():
        requests.add_metric([endpoint, str(int(status))], count)
    yield requests
    for name, text, value in (
        ("published", "Events that were published over HTTP.", counts.events),
        ("delivered", "Events written to streams.", counts.delivered),
    ):
        yield core.CounterMetricFamily(f"contrada_http_events_{name}", text, value=value)
    for name, label, text, found in (
        ("dropped", "reason", "Events that streams lost.", counts.dropped),
        ("pushed", "result", "Events for sinks, by result.", counts.pushed),
    ):
        yield _labelled(core.CounterMetricFamily, f"http_events_{name}", label, text, found)
    for name, text, value in (
        ("connections", "Connections of the HTTP port.", connections),
        ("streams", "Open event streams.", counts.streams),
        ("websockets", "Open WebSockets.", counts.websockets),
    ):
        yield core.GaugeMetricFamily(f"contrada_http_{name}", text, value=value)
