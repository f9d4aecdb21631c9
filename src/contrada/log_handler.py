"""`LogHandler`: a handler of `logging` that publishes records as notifications.

service = ct.connect_sync("contrada://127.0.0.1:7655")
logging.getLogger().addHandler(LogHandler(service))
...
service.subscribe("level >= 40 and logger prefix 'shop.'")

A record waits in a bounded queue, which a thread publishes at best effort. So logging never waits
for the network. Records that find it full are dropped and counted. Contrada's own records, and
those of asyncio, are not published: a fault of a publication would be published again, without end.
"""

import atexit
import logging
import queue
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from contrada.errors import ContradaError, InvalidValueError
from contrada.model import Envelope, Notification
from contrada.model.domains.values import INT_MAX, INT_MIN

if TYPE_CHECKING:
    from contrada.service.sync import SyncService

LOG_RECORDS_MAX: Final = 10_000
"""Records that wait for publication, by default. Beyond it: they are dropped, and counted."""

CLOSE_WAIT_S: Final = 5.0
"""Wait for queued records at the end of a handler, by default. Beyond it: they are dropped, and
counted."""

_BATCH: Final = 512
_OWN: Final = ("contrada", "asyncio")
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; the others are extras of the program."""


class LogHandler(logging.Handler):
    """Publishes the records of loggers by a service, which stays the caller's.

    The attributes are `logger`, `level` (40 is ERROR), `level_name`, `message`, `file`, `line`,
    `function`, `thread`, `process`, `exception` (the traceback) and those of `extra=`, of which
    other values than numbers, texts, booleans, times and None become texts. The envelope has the
    time of the record.
    """

    def __init__(
        self,
        service: "SyncService",
        *,
        level: int | str = logging.NOTSET,
        records_max: int = LOG_RECORDS_MAX,
        close_wait_s: float = CLOSE_WAIT_S,
    ) -> None:
        """`records_max` bounds the queue, `close_wait_s` the end. Raises InvalidValueError."""
        super().__init__(level)
        given: object = records_max
        if type(given) is not int or given < 1:
            raise InvalidValueError(records_max, "records_max: expected a whole number from 1")
        self._service = service
        self._records_max, self._close_wait_s = records_max, close_wait_s
        # Both may be entered again, by a signal handler or a finalizer that logs.
        self._waiting: queue.SimpleQueue[Notification | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._dropped: Counter[str] = Counter()
        self._published = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="contrada-log", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # Before the service, which was made earlier, is closed.

    @property
    def published(self) -> int:
        """The number of published records."""
        return self._published

    @property
    def dropped(self) -> Mapping[str, int]:
        """The numbers of dropped records, by reason.

        "full" is the queue, "invalid" a record that is no notification, "failed" a publication that
        failed, and "closed" a record after the end, or left in the queue there.
        """
        with self._lock:
            return dict(self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a record; never waits, raises, or logs. Cost: some ten microseconds."""
        if record.name.partition(".")[0] in _OWN:
            return
        try:
            notification = _notification_of(record)
        except Exception:  # noqa: BLE001 - of the caller's own message, its arguments and extras
            self._drop("invalid")
            return
        with self._lock:  # Else a record could be queued behind the end, and not be counted.
            if self._is_closed:
                self._drop("closed")
            elif self._waiting.qsize() >= self._records_max:
                self._drop("full")
            else:
                self._waiting.put(notification)

    def close(self) -> None:
        """Publishes the queued records, within `close_wait_s`; a second call does nothing."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._waiting.put(None)
            self._thread.join(self._close_wait_s)
            self._drop("closed", len(self._taken(self._records_max)[0]))
            self._waiting.put(None)  # For a thread that is late.
            atexit.unregister(self.close)
        super().close()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            first = self._waiting.get()
            if first is None:
                return
            batch, is_last = self._taken(_BATCH - 1)
            self._publish([first, *batch])

    def _taken(self, most: int) -> tuple[list[Notification], bool]:
        """The queued records, at most so many, and whether they are the last."""
        taken: list[Notification] = []
        while len(taken) < most:
            try:
                each = self._waiting.get_nowait()
            except queue.Empty:
                break
            if each is None:
                return taken, True
            taken.append(each)
        return taken, False

    def _publish(self, batch: list[Notification]) -> None:
        try:
            self._published += self._service.publish_batch(batch)
        except ContradaError as error:
            published: int = getattr(error, "published", None) or 0
            self._published += published
            self._drop("failed", len(batch) - published)

    def _drop(self, reason: str, count: int = 1) -> None:
        if count:
            with self._lock:
                self._dropped[reason] += count


def _notification_of(record: logging.LogRecord) -> Notification:
    attributes: dict[str, Any] = {
        name: _value_of(value) for name, value in vars(record).items() if name not in _USUAL
    }
    attributes |= {
        "logger": record.name,
        "level": record.levelno,
        "level_name": record.levelname,
        "message": record.getMessage(),
        "file": record.pathname,
        "line": record.lineno,
        "function": record.funcName or "",
        "thread": record.threadName or "",
        "process": record.process or 0,
    }
    if record.exc_info and record.exc_info[0] is not None:
        attributes["exception"] = logging.Formatter().formatException(record.exc_info)
    return Notification(attributes, envelope=Envelope(time_us=round(record.created * 1e6)))


def _value_of(value: Any) -> Any:
    """Returns the value of an extra, as a text if it is none of an attribute."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else str(value)
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else str(value)
    return value if value is None or type(value) in (bool, float, str) else str(value)
