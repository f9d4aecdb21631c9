"""The room of a log: the bounds at which it is full, and has room again."""

from math import inf, nan
from typing import Any

import pytest

from contrada.delivery.retention import TIMES_S_MAX, Retention
from contrada.delivery.store import Extent
from contrada.errors import InvalidValueError


@pytest.mark.parametrize(
    ("name", "least"),
    [
        *(("records_max", 1), ("bytes_max", 1), ("replay_max", 0), ("attempts_max", 0)),
        *((name, 0) for name in ("acknowledge_s", "backoff_s", "backoff_s_max")),
    ],
)
def test_numbers_have_a_least_value(name: str, least: int) -> None:
    """A subscription would keep nothing, or none of its readers get a record."""
    make: Any = Retention
    assert getattr(make(**{name: least}), name) == least
    for wrong in (least - 1, True, "1", None):
        with pytest.raises(InvalidValueError, match=f"{name}: expected"):
            make(**{name: wrong})


def test_times_are_those_that_a_note_can_hold() -> None:
    """The time of the next attempt would be no number of a note, and end the work of a server.

    One that a store holds from before could not be loaded, and its broker not start.
    """
    most = TIMES_S_MAX
    longest = Retention(acknowledge_s=most, backoff_s=most, backoff_s_max=float(most))
    assert longest.acknowledge_us == longest.backoff_us(1_000) == most * 1_000_000
    assert longest.acknowledge_us + 10**17 < 2**63, "the end is beyond a note, for three millennia"
    assert Retention(acknowledge_s=10.0**9, backoff_s_max=10.0**9).acknowledge_us == 10**15
    make: Any = Retention
    for name in ("acknowledge_s", "backoff_s", "backoff_s_max"):
        for wrong in (most + 1, 1e305, inf, nan, 10**400):
            with pytest.raises(InvalidValueError, match=f"{name}: expected seconds"):
                make(**{name: wrong})


@pytest.mark.parametrize("name", ["records_max", "bytes_max", "replay_max", "attempts_max"])
def test_numbers_fit_a_note(name: str) -> None:
    """The subscription would exist, and its note raise an error of the encoder."""
    make: Any = Retention
    make(**{name: 2**63 - 1})
    with pytest.raises(InvalidValueError, match=f"{name}: expected"):
        make(**{name: 2**63})


@pytest.mark.parametrize(
    ("records", "held_bytes", "is_full", "is_full_still"),
    [
        (13, 699, False, False),
        (14, 699, False, True),
        (13, 700, False, True),
        (15, 799, False, True),
        (16, 699, True, True),
        (13, 800, True, True),
    ],
)
def test_a_full_log_has_room_again_below_a_share(
    records: int, held_bytes: int, is_full: bool, is_full_still: bool
) -> None:
    """Each acknowledgement would be announced to all publishers, and each publication again."""
    retention = Retention(records_max=16, bytes_max=800)
    extent = Extent(1, 1 + records, held_bytes)
    assert retention.is_full(extent) is is_full
    assert retention.is_full(extent, was_full=True) is is_full_still
