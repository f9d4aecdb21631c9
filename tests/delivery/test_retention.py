"""The room of a log: the bounds at which it is full, and has room again."""

import pytest

from contrada.delivery.retention import Retention
from contrada.delivery.store import Extent


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
