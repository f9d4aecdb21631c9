"""`GET /metrics`: what a broker and its gateway count, for Prometheus.

The broker is asked with the token of the request: whoever may not ask for its statistics gets none.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import CollectorRegistry
from starlette.responses import Response

from contrada.integrations.http.gateway_counts import GatewayCounts
from contrada.net.broker.latencies import BEYOND

_GAUGES: Final = {
    "connections": "Connections of clients and neighbours.",
    "links": "Links to neighbours.",
    "subscriptions": "Subscriptions in force.",
    "held_bytes": "Bytes that wait to be delivered or worked off.",
}
_COUNTERS: Final = {
    "connections_total": ("connections_made", "Connections that were made."),
    "published": ("published", "Notifications that were published."),
    "matched": ("matched", "Pairs of a notification and a subscription that it matches."),
}
_LABELLED: Final = {
    "dropped": ("reason", "Notifications that a subscription did not get."),
    "refused": ("fault", "Faults of peers, and requests that were refused."),
    "safe_answers": ("question", "Questions of the algebra that were answered safely."),
    "operator_failures": ("operator", "Failures of operators of extensions."),
    "link_sent": ("link", "Notifications that went over a link."),
}
_LABELLED_GAUGES: Final = {
    "link_waiting": ("link", "Notifications that wait for a link."),
    "subscription_waiting": ("subscription", "Of those for which most waits: what waits."),
    "subscription_dropped": ("subscription", "Of these: what they lost."),
    "delivery": ("count", "What is promised, as DeliveryStatistics counts it."),
}
_SECOND_US: Final = 1_000_000


def metrics_answer(broker: Mapping[str, Any], gateway: GatewayCounts, connections: int) -> Response:
    """The text of all metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_of_broker(broker), *_of_gateway(gateway, connections)]))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Collected:
    """Metrics that are there already, as the library asks for them."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _of_broker(counts: Mapping[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "contrada_start_time_seconds",
        "When the broker began, since 1970.",
        value=counts.get("began_us", 0) / _SECOND_US,
    )
    for name, said in _GAUGES.items():
        yield GaugeMetricFamily(f"contrada_{name}", said, value=counts.get(name, 0))
    for name, (shown, said) in _COUNTERS.items():
        yield CounterMetricFamily(f"contrada_{shown}", said, value=counts.get(name, 0))
    for name, (label, said) in _LABELLED.items():
        yield _labelled(CounterMetricFamily(f"contrada_{name}", said, labels=[label]), counts, name)
    for name, (label, said) in _LABELLED_GAUGES.items():
        yield _labelled(GaugeMetricFamily(f"contrada_{name}", said, labels=[label]), counts, name)
    yield _latencies(counts)


def _labelled(family: Any, counts: Mapping[str, Any], name: str) -> Metric:
    for label, count in counts.get(name, {}).items():
        family.add_metric([label], count)
    return family  # type: ignore[no-any-return]


def _latencies(counts: Mapping[str, Any]) -> Metric:
    """The histogram: each bucket includes the counts of all lower ones, as Prometheus expects."""
    family = HistogramMetricFamily(
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
    requests = CounterMetricFamily(
        "contrada_http_requests", "Requests that were answered.", labels=["way", "status"]
    )
    for (way, status), count in counts.requests.items():
        requests.add_metric([way, str(int(status))], count)
    yield requests
    yield CounterMetricFamily(
        "contrada_http_events_published", "Events that came over HTTP.", value=counts.events
    )
    yield CounterMetricFamily(
        "contrada_http_events_delivered", "Events written to streams.", value=counts.delivered
    )
    for name, said, label, found in (
        ("dropped", "Events that streams lost.", "reason", counts.dropped),
        ("pushed", "Events for sinks, by what became of them.", "result", counts.pushed),
    ):
        family = CounterMetricFamily(f"contrada_http_events_{name}", said, labels=[label])
        for shown, count in found.items():
            family.add_metric([shown], count)
        yield family
    for name, said, value in (
        ("connections", "Connections of the HTTP port.", connections),
        ("streams", "Event streams that are open.", counts.streams),
        ("websockets", "WebSockets that are open.", counts.websockets),
    ):
        yield GaugeMetricFamily(f"contrada_http_{name}", said, value=value)
