"""The pytest plugin: fixtures with a service, a broker, and a clock that a test moves.

pytest loads it in every project where Contrada is installed. So it imports nothing of Contrada
before a fixture is used.

def test_dear_shares_are_reported(contrada_service: SyncService) -> None:
    with contrada_service.subscribe("price > 100") as dear:
        contrada_service.publish({"price": 120})
        assert dear.next(timeout_s=5)["price"] == 120
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from contrada.delivery.store import Store
    from contrada.service.sync import SyncService
    from pytest_contrada.moved_clock import MovedClock
    from pytest_contrada.running_broker import RunningBroker


@pytest.fixture
def contrada_store() -> "str | Path | Store | None":
    """The store of `contrada_service` or `contrada_broker`, as in `ct.connect`.

    None, as here, is a store in memory for each of them. Override it for one on disk.
    """
    return None


@pytest.fixture
def contrada_service(contrada_store: "str | Path | Store | None") -> "Iterator[SyncService]":
    """An embedded service for one test, on an event loop of its own; see `ct.connect_sync`."""
    import contrada
    from contrada.delivery.memory_store import MemoryStore

    with contrada.connect_sync(store=contrada_store or MemoryStore()) as service:
        yield service


@pytest.fixture
def contrada_broker(contrada_store: "str | Path | Store | None") -> "Iterator[RunningBroker]":
    """A broker for one test, on a free port of this machine, in a thread of this process."""
    from contrada.delivery.memory_store import MemoryStore
    from pytest_contrada.running_broker import RunningBroker

    with RunningBroker(contrada_store or MemoryStore()) as broker:
        yield broker


@pytest.fixture
def contrada_clock() -> "Iterator[MovedClock]":
    """The clock of all services of this process, which `advance` and `sleep` move on."""
    from pytest_contrada.moved_clock import MovedClock

    with MovedClock() as clock:
        yield clock
