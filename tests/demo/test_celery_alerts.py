"""The example of Celery: severe alerts become tasks, whose results are events."""

from collections.abc import Iterator

import pytest

import contrada as ct
from contrada.delivery.memory_store import MemoryStore
from pytest_contrada.running_broker import RunningBroker
from tests.asynchronous import on_loop

pytest.importorskip("celery")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    """A broker, which the tasks and their forwarder use."""
    with RunningBroker(MemoryStore()) as running:
        monkeypatch.setenv("CONTRADA_BROKER", running.address)
        yield running


@on_loop
async def test_severe_alerts_run_a_task(broker: RunningBroker) -> None:
    """A reader's alerts would start no task, or its task publish nothing."""
    from celery.contrib.testing.worker import start_worker

    from examples.celery_alerts.forwarder import app
    from examples.celery_alerts.tasks import celery, service

    with service, start_worker(celery, perform_ping_check=False, shutdown_timeout=60):
        async with (
            app,
            await ct.connect(broker.address) as other,
            other.subscribe("checked exists") as events,
        ):
            for level, host in ((10, "rome"), (50, "oslo")):
                alert = {"alert": "disk full", "host": host, "level": level}
                await other.publish(alert, delivery="certified")
            found = await events.next(60)
    assert dict(found) == {"checked": "oslo", "alert": "disk full", "is_well": False}
