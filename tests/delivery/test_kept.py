"""Best-effort notifications of a durable subscription, and its terms."""

import pytest

from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.outbox import SPOOL
from contrada.delivery.retention import OnFull, Retention
from contrada.errors import DeliveryError, InvalidValueError
from contrada.model import FilterSet, Notification

FILTERS = FilterSet("n >= 0")


def notifications(count: int) -> list[Notification]:
    """So many."""
    return [Notification({"n": n}) for n in range(count)]


def test_best_effort_finds_no_room_where_publishers_are_refused() -> None:
    """Best-effort publications would fill an unread log without bound."""
    server = DeliveryServer("a", incarnation=1, store=MemoryStore())
    server.create_subscription("s", FILTERS, 1, Retention(records_max=3), is_durable=True)
    server.append("s", notifications(5), 2)
    kept = server.statistics().logs["s"]
    assert (kept.appended, kept.dropped) == (3, 2)


def test_dropped_notifications_are_counted() -> None:
    """Best effort would mean silent losses."""
    store = MemoryStore()
    server = DeliveryServer("a", incarnation=1, store=store)
    server.create_subscription("s", FILTERS, 1, is_durable=True)
    store.is_full = True
    server.append("s", notifications(2), 2)
    assert server.statistics().logs["s"].dropped == 2


def test_a_large_record_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the task that appends best-effort notifications."""
    monkeypatch.setattr("contrada.delivery.store.RECORD_BYTES_MAX", 300)
    server = DeliveryServer("a", incarnation=1, store=MemoryStore())
    server.create_subscription("s", FILTERS, 1, is_durable=True)
    server.append("s", [Notification({"n": 1, "t": 300 * "x"}), *notifications(1)], 2)
    kept = server.statistics().logs["s"]
    assert (kept.appended, kept.dropped) == (1, 1)


def test_a_subscription_cannot_take_the_name_of_the_spool() -> None:
    """Its consumers would receive shipments for other servers, and acknowledge them."""
    server = DeliveryServer("a", incarnation=1, store=MemoryStore())
    with pytest.raises(InvalidValueError, match="spool"):
        server.create_subscription(SPOOL, FILTERS, 1, is_durable=True)
    with pytest.raises(InvalidValueError, match="spool"):
        server.create_subscription("s", FILTERS, 1, Retention(dead_letter=SPOOL), is_durable=True)
    server.create_subscription("spool", FILTERS, 1, is_durable=True)


def test_its_terms_survive_a_restart() -> None:
    """A reader with other terms could not be refused."""
    store, retention = MemoryStore(), Retention(replay_max=3, on_full=OnFull.DROP_OLDEST)
    server = DeliveryServer("a", incarnation=1, store=store)
    server.create_subscription("s", FILTERS, 1, retention, is_durable=True)
    server.create_subscription("t", FILTERS, 1)
    store.sync()
    assert server.logs.terms("t") == (FILTERS, Retention(), False)
    store.crash()
    again = DeliveryServer("a", incarnation=2, store=store)
    assert again.logs.terms("s") == (FILTERS, retention, True)
    assert again.logs.terms("t") is None


@pytest.mark.parametrize(
    "wrong", [{"records_max": 0}, {"replay_max": -1}, {"attempts_max": 1.5}, {"on_full": "wait"}]
)
def test_a_retention_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    """A misspelt word would be accepted, and have no effect on a full log."""
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        Retention(**wrong)  # type: ignore[arg-type]
    assert Retention(on_full="end").on_full is OnFull.END  # type: ignore[arg-type]


def test_appending_to_an_unknown_log_is_an_error() -> None:
    """Notifications for an ended subscription would seem stored."""
    with pytest.raises(DeliveryError, match="'s'"):
        DeliveryServer("a", incarnation=1).append("s", notifications(1), 1)
