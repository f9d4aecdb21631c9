"""`Options`: the checked options of `format("contrada")`; errors name the option and the
expectation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from contrada.errors import ServiceError
from contrada.integrations.spark.connector.sequence_numbers import BATCH_MAX
from contrada.model.domains.values import time_us_of
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.endpoint import ConnectOptions
from contrada.net.wire.tls import Tls

RECONNECT_WAIT_S: Final = 60.0
"""Seconds for which a task or stream retries a lost broker, unless `reconnect_wait` is set. Beyond
it: it fails with ConnectionFailedError, and Spark may retry it."""


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
        """Raises ServiceError for a missing, unknown or malformed option."""
        known = {each.name: each for each in fields(cls)}
        unknown = [name for name in given if name.lower() not in {*known, *_OF_SPARK}]
        if unknown:
            raise ServiceError(
                f"unknown option {', '.join(sorted(unknown))}; expected {', '.join(known)}"
            )
        lowered = {name.lower(): text for name, text in given.items()}
        if "path" in lowered:
            lowered.setdefault("address", lowered["path"])
        if not lowered.get("address"):
            raise ServiceError('option("address", "contrada://host:7655") says which broker')
        return cls(**{name: _read(name, lowered[name]) for name in known if name in lowered})

    def service(self, publisher: str | None = None) -> TcpService:
        """Returns a client of the broker, not open yet. Raises AddressError, InputError."""
        tls = Tls(self.tls_certificate or None, self.tls_key or None, self.tls_authority or None)
        is_told = self.tls_certificate or self.tls_authority or self.tls_key
        return TcpService(
            self.address,
            publisher=publisher,
            reconnect_wait_s=self.reconnect_wait,
            options=ConnectOptions(tls.client_context() if is_told else None, self.token),
        )


def _time(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(text)
    return time_us_of(moment)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> int:
    if not 0 <= int(text) <= BATCH_MAX:
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ValueError(text)
    return float(text)


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


_WHOLE: Final = (_positive, "a whole number from 1")
_TIME: Final = (_time, "a time with its zone, as 2026-01-31T12:00:00Z")
_READERS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "position": _WHOLE,
    "count": _WHOLE,
    "partitions": _WHOLE,
    "max_rows": _WHOLE,
    "since": _TIME,
    "until": _TIME,
    "seconds": (_seconds, "seconds, more than 0"),
    "reconnect_wait": (_seconds, "seconds, more than 0"),
    "batch": (_number, f"a whole number from 0 to {BATCH_MAX}"),
    "misfits": (_one_of("null", "fail"), "null or fail"),
    "delivery": (_one_of("best-effort", "reliable", "certified"), "a class of delivery"),
}


def _read(name: str, text: str) -> Any:
    read, expected = _READERS.get(name, (str, "a text"))
    try:
        return read(text)
    except (ValueError, OverflowError):
        raise ServiceError(f"option {name} = {text!r}: expected {expected}") from None
