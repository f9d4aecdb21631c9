"""The memory as plain Python has it, where every access is checked."""

import ctypes
import subprocess
import sys
from array import array
from typing import Any

import numpy as np
import pytest

from contrada.matching.kernels.memory import MAPPED_BYTES_MIN, Rows
from contrada.matching.kernels.schema import Layout
from tests.matching.engines import module

PAIR = Layout("i", ("one", "two"))


def test_a_row_is_seen_through() -> None:
    """A kernel that is not compiled would work on a copy."""
    rows = Rows.zeros(PAIR, 3)
    row = rows[1]
    row.two = 7
    assert rows.two.tolist() == [0, 7, 0]
    rows.one[2] = -5
    assert rows[2].one == -5
    rows.numbers[2] = 9
    assert row.one == 9, "a row is no copy"
    assert len(rows) == 3
    assert rows.part(1, 3).tolist() == [9, 7, -5, 0]


def test_rows_are_copied_as_a_whole() -> None:
    """An entry that takes another's place would keep a field of its own."""
    rows = Rows(PAIR, array("i", [1, 2, 3, 4]))
    rows[0] = rows[1]
    rows[1].one = 8
    assert rows.numbers.tolist() == [3, 4, 8, 4]


FORKED = """
import os
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import Layout
rows = Rows.zeros(Layout("B"), {count})
if os.fork() == 0:
    rows.numbers[0] = 7
    os._exit(0)
os.wait()
print(rows.numbers[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("count", [8, MAPPED_BYTES_MIN])
def test_a_forked_process_writes_to_its_own_rows(count: int) -> None:
    """A child that subscribes or matches would change the index of its parent."""
    program = [sys.executable, "-c", FORKED.format(count=count)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("row", [-1, 3, 2**31])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    """Python would count from the end; compiled code would read before the beginning."""
    rows = Rows.zeros(PAIR, 3)
    with pytest.raises(IndexError):
        rows[row]
    with pytest.raises(IndexError):
        rows[row] = rows[0]


def test_a_field_that_is_not_there_is_refused() -> None:
    """A name that is written wrongly would become a field of its own."""
    rows = Rows.zeros(PAIR, 3)
    with pytest.raises(AttributeError):
        _ = rows.three
    with pytest.raises(AttributeError):
        _ = rows[0].three
    with pytest.raises(AttributeError):
        rows[0].three = 1


def test_a_number_that_has_no_room_is_refused() -> None:
    """A number of more bits would be cut, as compiled code does, and no test see it."""
    rows = Rows.zeros(PAIR, 3)
    with pytest.raises(ValueError, match="format"):
        rows[0].one = 2**31
    with pytest.raises(ValueError, match="format"):
        Rows.zeros(Layout("B"), 3).numbers[0] = -1


def test_large_arrays_are_mapped() -> None:
    """An index with much reserved room would use all of it at once."""
    rows = Rows.zeros(Layout("q"), 2**20)
    assert type(rows.numbers.obj).__name__ == "mmap"
    rows.numbers[2**20 - 1] = -1
    assert rows.part(2**20 - 2, 2**20).tolist() == [0, -1]


def test_columns_are_read_by_their_types() -> None:
    """A column of a narrow type would be read in pairs, or without its sign."""
    memory = module("kernels.memory")
    codes: dict[str, Any] = {
        "b": np.int8,
        "B": np.uint8,
        "h": np.int16,
        "H": np.uint16,
        "i": np.int32,
    }
    codes |= {"I": np.uint32, "q": np.int64, "f": np.float32, "d": np.float64}
    for code, kind in codes.items():
        column = np.array([1, 100, 0]).astype(kind)
        column[2] = 200 if code in "BHI" else -3
        found = [memory.number_at(column.ctypes.data, row, code) for row in range(3)]
        assert found == column.tolist(), code
    data = ctypes.create_string_buffer(b"\x00\xff\x80")
    assert memory.bytes_at(ctypes.addressof(data), 3).tolist() == [0, 255, 128]


def test_numbers_of_arrays_are_pythons() -> None:
    """A hash of NumPy's integers would overflow, with a warning, where Python's does not."""
    found = []
    entry = module("kernels.memory").entry(lambda numbers: found.append(type(numbers[0])))
    entry(np.zeros(1, dtype=np.int64))
    assert found == [int]


def test_operations_of_single_instructions() -> None:
    """A double would have other bits; a prefetch do anything at all."""
    memory = module("kernels.memory")
    assert memory.prefetch(None, 10**9) is None
    assert memory.double_bits(-0.0) == -(2**63)
