"""Numbers of rows, by which brokers recognise repetitions; no test here starts Spark."""

import pytest

from contrada.errors import DeliveryError
from contrada.integrations.spark.connector.connector_options import BATCH_MAX
from contrada.integrations.spark.connector.frame_writers import SequenceNumbers
from contrada.model.domains.values import INT_MAX

ROWS = [b"a", b"b", b"c"]


def numbered(batch: int, known: int = 0, rows: list[bytes] = ROWS) -> list[int]:
    numbering = SequenceNumbers("q", batch, 0)
    assert numbering.resume_after(known)
    numbers = [numbering.next(each) for each in rows]
    numbering.end()
    return numbers


def test_numbers_grow_from_row_to_row_and_from_batch_to_batch() -> None:
    """Brokers would drop new rows as duplicates."""
    numbers = [number for batch in range(3) for number in numbered(batch)]
    assert numbers == sorted(set(numbers))
    last = SequenceNumbers("q", BATCH_MAX, 7)
    assert 0 < last.next(b"x") <= INT_MAX
    assert last.publisher == f"q/7/{BATCH_MAX // 2**16}"


def test_published_rows_get_no_number() -> None:
    """A repeated batch would be published twice."""
    first, second, third = numbered(5)
    assert numbered(5, first) == [0, second, third]
    assert numbered(5, third) == [0, 0, 0]
    assert numbered(6, third) == numbered(6)


def test_a_later_batch_was_published_before() -> None:
    """Old rows would be refused one by one."""
    assert not SequenceNumbers("q", 5, 0).resume_after(numbered(6)[0])


@pytest.mark.parametrize("rows", [[b"b", b"a", b"c"], [b"a", b"x", b"c"], [b"a"]])
def test_other_rows_than_published_ones_are_detected(rows: list[bytes]) -> None:
    """They would be lost silently."""
    _, second, _ = numbered(5)
    with pytest.raises(DeliveryError, match="than when it was published before"):
        numbered(5, second, rows)
