"""`GET /metrics` in the text format of Prometheus."""

from time import time

from prometheus_client.parser import text_string_to_metric_families

from tests.asynchronous import on_loop
from tests.integrations.http.conftest import Served, serving


async def metrics(it: Served) -> dict[tuple[str, str], float]:
    """Returns the samples by name and label."""
    answer = await it.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation for family in families)
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@on_loop
async def test_metrics_equal_the_counts_of_the_broker() -> None:
    """Prometheus would read no metrics, or wrong numbers."""
    begun_s = time()
    async with serving() as it, it.service.subscribe("n >= 0") as events:
        await it.service.publish_batch({"n": n} for n in range(300))
        for _ in range(300):
            await anext(events)
        found = await metrics(it)
        assert found["contrada_published_total", ""] == 300
        assert found["contrada_subscriptions", ""] == 1
        assert found["contrada_connections", ""] == 2
        assert begun_s <= found["contrada_start_time_seconds", ""] <= time()
        assert found["contrada_http_connections", ""] == 1
        name = "contrada_delivery_latency_seconds"
        frames = found[f"{name}_count", ""]
        assert 1 <= frames <= 300
        assert found[f"{name}_bucket", "+Inf"] == frames
        buckets = [each for (sample, _), each in found.items() if sample == f"{name}_bucket"]
        assert buckets == sorted(buckets)
        assert 0 < found[f"{name}_sum", ""] < 100
        assert (f"{name}_bucket", "0.0025") in found
        again = await metrics(it)
        assert again["contrada_http_requests_total", "200,GET /metrics"] == 1
