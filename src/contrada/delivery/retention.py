"""`Retention`: the room, the replay and the redelivery of a durable subscription."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from sys import maxsize
from typing import Final

from contrada.delivery.store import Extent
from contrada.errors import InvalidValueError

RECORDS_MAX: Final = 1_000_000
"""Records of a durable subscription by default. Beyond it: `OnFull`."""

BYTES_MAX: Final = 2**30
"""Bytes of these records. Beyond it: `OnFull`."""

REDELIVERY_S_MAX: Final = 3_600.0
"""Seconds that a record waits between two attempts by default. Beyond it: it waits no longer."""

TIMES_S_MAX: Final = 10**12
"""Seconds of a time of a `Retention`, whose end a note can hold. Beyond it: InvalidValueError."""

REOPEN_SHARE: Final = 7 / 8
"""A full subscription accepts publications again below this share of its room."""

EMPTY: Final = Extent(1, 1, 0)
_S: Final = 1_000_000


class OnFull(StrEnum):
    """The behaviour of a durable subscription without room for a publication."""

    REFUSE = "refuse"
    """CannotPublishError to the publisher: no subscription gets the notification."""
    DROP_OLDEST = "drop-oldest"
    """The oldest records are dropped, acknowledged or not, and counted."""
    END = "end"
    """The subscription ends, with its log."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The room, the replay and the redelivery of a durable subscription. Raises InvalidValueError.

    `replay_max` acknowledged records are kept for replay. A record that `attempts_max` readers got
    is dead: it moves to the subscription `dead_letter`, or is dropped without one; 0 means
    unlimited.

    A reader has `acknowledge_s` seconds for each record that it got; then the record goes to any
    reader. What it has only prefetched is taken from it when it read nothing for so long. 0 means
    no time-out. After n attempts a record waits `backoff_s` * 2^(n - 1) seconds, at most
    `backoff_s_max`; 0 means that it does not wait.
    """

    records_max: int = RECORDS_MAX
    bytes_max: int = BYTES_MAX
    on_full: OnFull = OnFull.REFUSE
    replay_max: int = 0
    attempts_max: int = 0
    dead_letter: str = ""
    acknowledge_s: float = 0.0
    backoff_s: float = 0.0
    backoff_s_max: float = REDELIVERY_S_MAX

    def __post_init__(self) -> None:
        lowest = {"records_max": 1, "bytes_max": 1, "replay_max": 0, "attempts_max": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= maxsize:
                raise InvalidValueError(
                    value, f"{name}: expected a whole number from {least} to 2^63 - 1"
                )
        for name in ("acknowledge_s", "backoff_s", "backoff_s_max"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= TIMES_S_MAX:
                raise InvalidValueError(value, f"{name}: expected seconds from 0 to {TIMES_S_MAX}")
        if self.on_full not in tuple(OnFull):
            raise InvalidValueError(self.on_full, f"on_full: expected {' or '.join(OnFull)}")
        if not isinstance(self.dead_letter, str):
            raise InvalidValueError(self.dead_letter, "dead_letter: expected a name")
        object.__setattr__(self, "on_full", OnFull(self.on_full))

    def excess(self, records: Sequence[bytes], extent: Extent = EMPTY) -> tuple[int, int] | None:
        """Returns by how many records and bytes these exceed the room, together with a log."""
        over = extent.records + len(records) - self.records_max
        over_bytes = extent.held_bytes + sum(map(len, records)) - self.bytes_max
        return (max(over, 0), max(over_bytes, 0)) if max(over, over_bytes) > 0 else None

    def newest(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the last records that fit an empty log."""
        room = self.bytes_max
        kept: list[bytes] = []
        for data in reversed([each for each in records if len(each) <= room]):
            room -= len(data)
            if room < 0 or len(kept) >= self.records_max:
                break
            kept.append(data)
        return kept[::-1]

    def is_full(self, extent: Extent, *, was_full: bool = False) -> bool:
        """Whether a log refuses publishers; after that, until it has ample room again."""
        part = REOPEN_SHARE if was_full else 1
        return self.on_full is OnFull.REFUSE and (
            extent.records >= self.records_max * part or extent.held_bytes >= self.bytes_max * part
        )

    @property
    def acknowledge_us(self) -> int:
        """The time-out of acknowledgements in microseconds."""
        return int(self.acknowledge_s * _S)

    def backoff_us(self, attempts: int) -> int:
        """Returns the microseconds until a record with so many attempts is handed out again."""
        if not attempts or not self.backoff_s:
            return 0
        # A higher power is beyond any `backoff_s_max`, and would be no float.
        return int(min(self.backoff_s * 2.0 ** min(attempts - 1, 64), self.backoff_s_max) * _S)
