"""`Options`: the checked options of `format("contrada")`."""

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from time import monotonic
from typing import Any, Final

from pyspark import TaskContext

from contrada.errors import ConnectionFailedError, FormatError
from contrada.model.domains.values import time_us_of
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls
from contrada.service.backoff import Backoff
from contrada.service.sync import SyncService

RECONNECT_WAIT_S: Final = 60.0
"""Seconds for which a task or stream retries a lost broker, unless `reconnect_wait` is set. Beyond
it: it fails with ConnectionFailedError, and Spark may retry it."""

BATCH_MAX: Final = 2**40
"""The highest number of a batch. Beyond it: it is refused."""

_OF_SPARK: Final = ("path", "checkpointlocation")  # which Spark passes on, too


@dataclass(frozen=True, slots=True)
class Options:
    """The options in `docs/spark.md`; names are case-insensitive."""

    address: str
    filter: str = ""
    pattern: str = ""
    durable: str = ""
    position: int | None = None
    since: int | None = None
    until: int | None = None
    count: int | None = None
    seconds: float | None = None
    partitions: int | None = None
    max_rows: int | None = None
    misfits: str = "null"
    delivery: str = "reliable"
    query: str = ""
    batch: int | None = None
    reconnect_wait: float = RECONNECT_WAIT_S
    tls_certificate: str = ""
    tls_key: str = ""
    tls_authority: str = ""
    token: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Raises FormatError for a missing, unknown or malformed option."""
        known = {each.name: each for each in fields(cls)}
        unknown = [name for name in given if name.lower() not in {*known, *_OF_SPARK}]
        if unknown:
            names = ", ".join(sorted(unknown))
            reason = f"unknown option {names}; expected {', '.join(known)}"
            raise FormatError("UNKNOWN_OPTION", reason)
        lowered = {name.lower(): text for name, text in given.items()}
        if "path" in lowered:
            lowered.setdefault("address", lowered["path"])
        if not lowered.get("address"):
            reason = 'option("address", "contrada://host:7655") names the broker'
            raise FormatError("MISSING_OPTION", reason)
        return cls(**{name: _read(name, lowered[name]) for name in known if name in lowered})

    def open(self, publisher: str | None = None) -> tuple[TcpService, SyncService]:
        """Returns an open client of the broker, and its blocking form, which must be closed.

        A task retries a broker that is away for `reconnect_wait` seconds; elsewhere that is an
        error at once. Raises ConnectionFailedError, AddressError, InputError.
        """
        tls = Tls(self.tls_certificate or None, self.tls_key or None, self.tls_authority or None)
        is_told = self.tls_certificate or self.tls_authority or self.tls_key
        client = TcpService(
            self.address,
            publisher=publisher,
            reconnect_wait_s=self.reconnect_wait,
            options=ConnectOptions(tls.client_context() if is_told else None, self.token),
        )
        service, backoff = SyncService(client), Backoff()
        until_s = monotonic() + (self.reconnect_wait if TaskContext.get() else 0.0)
        while True:
            try:
                return client, service.open()
            except ConnectionFailedError as error:
                # Spark repeats a failed task at once, and ends the job after some attempts: all
                # tasks that begin while a broker restarts would fail.
                if error.fault or monotonic() >= until_s:
                    raise
            time.sleep(backoff.next_s())


def _time(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return time_us_of(moment)


def _seconds(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ValueError(text)
    return float(text)


_ANY: Final = None
_WHOLE: Final = (int, range(1, 2**64), "a whole number from 1")
_TIME: Final = (_time, _ANY, "a time with its zone, as 2026-01-31T12:00:00Z")
_SECONDS: Final = (_seconds, _ANY, "seconds, more than 0")
_READERS: Final[dict[str, tuple[Callable[[str], Any], Container[Any] | None, str]]] = {
    "position": _WHOLE,
    "count": _WHOLE,
    "partitions": _WHOLE,
    "max_rows": _WHOLE,
    "since": _TIME,
    "until": _TIME,
    "seconds": _SECONDS,
    "reconnect_wait": _SECONDS,
    "batch": (int, range(BATCH_MAX + 1), f"a whole number from 0 to {BATCH_MAX}"),
    "misfits": (str, ("null", "fail"), "null or fail"),
    "delivery": (str, ("best-effort", "reliable", "certified"), "a class of delivery"),
}
"""The conversion of an option, its allowed values, and their description."""


def _read(name: str, text: str) -> Any:
    convert, allowed, expected = _READERS.get(name, (str, _ANY, "a text"))
    try:
        value = convert(text)
        if allowed is not None and value not in allowed:
            raise ValueError(text)
        return value
    except (ValueError, OverflowError):
        reason = f"option {name} = {text!r}: expected {expected}"
        raise FormatError("INVALID_OPTION", reason) from None
