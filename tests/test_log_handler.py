"""`LogHandler`: records of `logging` as notifications, without an end, a wait or a silent loss."""

import logging
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InvalidValueError
from contrada.log_handler import LogHandler
from contrada.service.sync import SyncService


@pytest.fixture
def service() -> Iterator[SyncService]:
    """An open service."""
    with ct.connect_sync() as opened:
        yield opened


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger without other handlers."""
    logger = logging.getLogger("shop.orders")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()
    logger.propagate = True


def test_records_are_notifications(service: SyncService, log: logging.Logger) -> None:
    """A subscriber could not select records by logger, level or an extra field."""
    handler = LogHandler(service, level=logging.WARNING)
    log.addHandler(handler)
    at = datetime(2026, 11, 20, tzinfo=UTC)
    with service.subscribe("level >= 40 and logger prefix 'shop.' and order = 7") as errors:
        log.warning("of %s", "another", extra={"order": 7})
        log.debug("below the level", extra={"order": 7})
        try:
            raise ValueError("no stock")
        except ValueError:
            log.exception("order %d failed", 7, extra={"order": 7, "at": at, "big": 2**70, "x": {}})
        event = errors.next(timeout_s=5)
    handler.close()
    assert (event["message"], event["level_name"]) == ("order 7 failed", "ERROR")
    assert (event["at"], event["big"], event["x"]) == (at, str(2**70), "{}")
    assert event.text("exception").endswith("ValueError: no stock")
    assert event["function"] == "test_records_are_notifications"
    assert event["file"] == __file__
    assert abs(event.envelope.at_us / 1e6 - datetime.now(UTC).timestamp()) < 60
    assert (handler.published, handler.dropped) == (2, {})


class Blocked:
    """A service whose publications wait."""

    def __init__(self, service: SyncService) -> None:
        self._service, self.has_begun, self.goes_on = service, threading.Event(), threading.Event()

    def publish_batch(self, items: Any) -> int:
        """Waits, then publishes."""
        self.has_begun.set()
        assert self.goes_on.wait(60)
        return self._service.publish_batch(items)


def test_a_full_queue_drops_and_counts(service: SyncService, log: logging.Logger) -> None:
    """A program would stop at a broker that is away, or its memory grow."""
    blocked = Blocked(service)
    handler = LogHandler(blocked, records_max=3)  # type: ignore[arg-type]
    log.addHandler(handler)
    log.info("first")
    assert blocked.has_begun.wait(60)
    for _ in range(5):
        log.info("waits")
    assert handler.dropped == {"full": 2}
    blocked.goes_on.set()
    handler.close()
    assert (handler.published, handler.dropped) == (4, {"full": 2})
    log.info("after the end")
    assert handler.dropped == {"full": 2, "closed": 1}


def test_records_left_at_the_end_are_counted(service: SyncService, log: logging.Logger) -> None:
    """A program would not end while its broker is away, or lose records without a count."""
    blocked = Blocked(service)
    handler = LogHandler(blocked, close_wait_s=0.01)  # type: ignore[arg-type]
    log.addHandler(handler)
    log.info("first")
    assert blocked.has_begun.wait(60)
    log.info("second")
    handler.close()
    assert handler.dropped == {"closed": 1}
    blocked.goes_on.set()
    handler._thread.join(60)
    assert (handler.published, handler._thread.is_alive()) == (1, False)


class ClosedMeanwhile(queue.SimpleQueue[Any]):
    """A queue whose handler another thread closes while a record is about to be queued."""

    def __init__(self, handler: LogHandler) -> None:
        self.closing = threading.Thread(target=handler.close)

    def qsize(self) -> int:
        """Returns when the handler is closed, unless that waits for the record."""
        self.closing.start()
        self.closing.join(0.05)
        return super().qsize()


def test_a_record_beside_the_end_is_not_lost(service: SyncService, log: logging.Logger) -> None:
    """A record queued behind the end would be neither published nor counted."""
    handler = LogHandler(service, close_wait_s=0.01)
    read, handler._waiting = handler._waiting, ClosedMeanwhile(handler)
    log.addHandler(handler)
    log.info("beside the end")
    handler._waiting.closing.join(60)
    read.put(None)  # The thread reads the first queue still.
    assert (handler.published, handler.dropped) == (0, {"closed": 1})


def test_own_records_are_not_published(service: SyncService) -> None:
    """A fault of a publication would be published, fail, and be logged again, without end."""
    handler = LogHandler(service)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with service.subscribe("everything") as all_events:
            logging.getLogger("contrada.service").error("own")
            logging.getLogger("asyncio").error("own")
            logging.getLogger("contradance").error("another's")
            assert all_events.next(timeout_s=5)["message"] == "another's"
    finally:
        root.removeHandler(handler)
        handler.close()
    assert (handler.published, handler.dropped) == (1, {})


def test_records_that_cannot_be_published_are_counted(log: logging.Logger) -> None:
    """A program would end at a wrong call of its logger, or a loss be silent."""
    service = ct.connect_sync().open()
    handler = LogHandler(service)
    log.addHandler(handler)
    # Not by the logger, whose other handlers raise in tests.
    handler.handle(log.makeRecord(log.name, logging.INFO, __file__, 1, "%d", ("no",), None))
    log.info("of a wrong name", extra={"@id": 1})
    service.close()
    log.info("too late")
    handler.close()
    assert handler.dropped == {"invalid": 2, "failed": 1}
    with pytest.raises(InvalidValueError, match="records_max"):
        LogHandler(service, records_max=0)
