"""The memory as plain Python has it, where every access is checked."""

import numpy as np
import pytest

from contrada.matching.kernels.memory import Fields, views_of
from tests.matching.engines import module

ROW = np.dtype([("one", np.int32), ("two", np.int32)])


def test_a_row_is_seen_through() -> None:
    """A kernel that is not compiled would work on a copy."""
    array = np.zeros(3, dtype=ROW)
    fields = views_of(array)
    row = fields[1]
    row.two = 7
    assert array["two"].tolist() == [0, 7, 0]
    fields.one[2] = -5
    assert fields[2].one == -5
    array["one"][1] = 9
    assert row.one == 9, "a row is no copy"
    assert len(fields) == 3


def test_rows_are_copied_as_a_whole() -> None:
    """An entry that takes another's place would keep a field of its own."""
    array = np.array([(1, 2), (3, 4)], dtype=ROW)
    fields = Fields(array)
    fields[0] = fields[1]
    fields[1].one = 8
    assert array.tolist() == [(3, 4), (8, 4)]


@pytest.mark.parametrize("row", [-1, 3, 2**31])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    """Python would count from the end; compiled code would read before the beginning."""
    fields = Fields(np.zeros(3, dtype=ROW))
    with pytest.raises(IndexError):
        fields[row]
    with pytest.raises(IndexError):
        fields[row] = fields[0]


def test_a_field_that_is_not_there_is_refused() -> None:
    """A name that is written wrongly would become a field of its own."""
    fields = Fields(np.zeros(3, dtype=ROW))
    with pytest.raises(AttributeError):
        _ = fields.three
    with pytest.raises(AttributeError):
        _ = fields[0].three
    with pytest.raises(AttributeError):
        fields[0].three = 1


def test_a_number_that_has_no_room_is_refused() -> None:
    """A number of more bits would be cut, as compiled code does, and no test see it."""
    fields = Fields(np.zeros(3, dtype=ROW))
    with pytest.raises(ValueError, match="format"):
        fields[0].one = 2**31
    numbers = views_of(np.zeros(3, dtype=np.uint8))
    with pytest.raises(ValueError, match="format"):
        numbers[0] = -1


def test_operations_of_compiled_code_are_refused() -> None:
    """Columns would be read from anywhere in memory."""
    memory = module("kernels.memory")
    for operation in (memory.number_at, memory.bytes_at):
        with pytest.raises(NotImplementedError):
            operation(0, 1)
    assert memory.prefetch(None, 10**9) is None
    assert memory.double_bits(-0.0) == -(2**63)
