"""The limits of delivery at their ends: as many are allowed, and one more is refused."""

from collections.abc import Callable
from typing import Final

import pytest

from contrada.delivery.access_point import _common_class
from contrada.delivery.delivery_server import SERVER_NAME_CHARS_MAX, DeliveryServer
from contrada.delivery.store import (
    KEPT_BYTES_MAX,
    LOG_NAME_CHARS_MAX,
    NOTE_NAME_CHARS_MAX,
    RECORD_BYTES_MAX,
    check_log_name,
    check_note_name,
    check_records,
)
from contrada.errors import ContradaError
from contrada.model import Envelope, Notification

RELIABLE: Final = Envelope(delivery="reliable")
SPAN_BYTES: Final = len(Notification({}, envelope=RELIABLE).span)

BOUNDS: Final[dict[str, tuple[int, int, Callable[[int], object]]]] = {
    "a server's name": (
        1,
        SERVER_NAME_CHARS_MAX,
        lambda size: DeliveryServer("s" * size, incarnation=1),
    ),
    "a log's name": (1, LOG_NAME_CHARS_MAX, lambda size: check_log_name("n" * size)),
    "a note's name": (1, NOTE_NAME_CHARS_MAX, lambda size: check_note_name("n" * size)),
    "a record": (0, RECORD_BYTES_MAX, lambda size: check_records([b"", bytes(size)])),
    "a notification": (
        0,
        KEPT_BYTES_MAX - SPAN_BYTES,
        lambda size: _common_class([Notification({}, body=bytes(size), envelope=RELIABLE)]),
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_a_limit_is_allowed_and_one_more_is_refused(case: str) -> None:
    """What the page of limits allows would be refused, or more be taken than it says."""
    least, most, take = BOUNDS[case]
    for size in (least, most):
        take(size)
    for size in (least - 1, most + 1):
        if size >= 0:
            with pytest.raises(ContradaError):
                take(size)
