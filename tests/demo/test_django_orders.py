"""The example of a Django project: orders of its view reach its worker."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contrada.delivery.memory_store import MemoryStore
from pytest_contrada.running_broker import RunningBroker
from tests.asynchronous import on_loop, until

django = pytest.importorskip("django")


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBroker]:
    """A broker; the project and its worker use it, and a database of the test."""
    zone = os.environ.get("TZ")
    with RunningBroker(MemoryStore()) as running:
        monkeypatch.setenv("CONTRADA_BROKER", running.address)
        monkeypatch.setenv("ORDERS", str(tmp_path / "orders.sqlite3"))
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "examples.django_orders.project")
        yield running
    # Django's settings change the time zone of the process, and with it of later tests.
    os.environ.pop("TZ", None)
    if zone is not None:
        os.environ["TZ"] = zone
    time.tzset()


@on_loop
async def test_orders_reach_the_worker(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader's web project would not publish, or its worker have no database."""
    from django.test import Client

    django.setup()
    from examples.django_orders.project import service
    from examples.django_orders.worker import app

    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown += capsys.readouterr().out
        return "\n" in shown

    client = Client(raise_request_exception=False)
    with service:
        async with app:
            for count, status in ((5, 201), (0, 500), (100, 201)):
                url = f"/orders/DIS/{count}"
                assert (await asyncio.to_thread(client.post, url)).status_code == status
            await until(is_shown)
    assert shown == "large order of DIS, 105 in all\n"
