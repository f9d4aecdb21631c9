"""The memory as compiled kernels have it: the same numbers that Python wrote."""

from typing import Any

import numpy as np
import pytest

from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels.schema import ARRAYS
from tests.matching.engines import needs_numba

pytestmark = needs_numba

ROW = 3
NUMBERS = [
    (name, field)
    for name, kind in ARRAYS.items()
    for field in (kind.names or ("",))
    if name != "counters"
]


def filled() -> Arrays:
    """Arrays of which each number of a row is another one."""
    arrays = Arrays()
    for name in ARRAYS:
        arrays.reserve(name, ROW + 2)
    for value, (name, field) in enumerate(NUMBERS):
        array = arrays.of[name][field] if field else arrays.of[name]
        array[ROW] = value % 251 if array.dtype == np.uint8 else -1_000 - value
    return arrays


def compiled_of(lines: list[str]) -> Any:
    """A compiled function of an address and an array of integers, of these lines."""
    import numba

    from contrada.matching.kernels import native

    source = "\n    ".join(("def asked(at, found):", "m = memory_at(at)", *lines))
    names: dict[str, Any] = {"memory_at": native.memory_at}
    exec(source, names)
    return numba.njit([(numba.int64, numba.int64[::1])])(names["asked"])


def place(name: str, field: str, row: int = ROW) -> str:
    return f"m.{name}[{row}].{field}" if field else f"m.{name}[{row}]"


def test_a_kernel_reads_pythons_value_of_every_field() -> None:
    """A kernel would read a field of another name, of another array, or of another width."""
    lines = [f"found[{n}] = {place(*each)}" for n, each in enumerate(NUMBERS)]
    arrays, found = filled(), np.zeros(len(NUMBERS), dtype=np.int64)
    compiled_of(lines)(arrays.memory, found)
    for value, (name, field) in enumerate(NUMBERS):
        array = arrays.of[name][field] if field else arrays.of[name]
        assert found[value] == array[ROW], (name, field)
    assert len(set(found.tolist())) > len(NUMBERS) - 10, "each number is another one"


def test_python_reads_a_kernels_value_of_every_field() -> None:
    """A kernel would write a field beside the one that it means."""
    lines = [f"{place(*each)} = found[{n}]" for n, each in enumerate(NUMBERS)]
    arrays = filled()
    values = [
        n % 256 if ARRAYS[name] == np.uint8 else n - 70 for n, (name, _) in enumerate(NUMBERS)
    ]
    compiled_of(lines)(arrays.memory, np.array(values, dtype=np.int64))
    for value, (name, field) in zip(values, NUMBERS, strict=True):
        array = arrays.of[name][field] if field else arrays.of[name]
        assert array[ROW] == value, (name, field)
        assert not array[[ROW - 1, ROW + 1]].any(), "its neighbours are as they were"


def test_a_kernel_knows_how_long_an_array_is() -> None:
    """A kernel would look up a hash in half of a table, or behind its end."""
    lines = [f"found[{n}] = len(m.{name})" for n, name in enumerate(ARRAYS)]
    asked, arrays = compiled_of(lines), Arrays()
    found = np.zeros(len(ARRAYS), dtype=np.int64)
    for rows in (0, 100, 1_000):  # those that grow move, too
        for name in ARRAYS:
            arrays.reserve(name, rows)
        asked(arrays.memory, found)
        assert found.tolist() == [len(arrays.of[name]) for name in ARRAYS]


def test_rows_are_copied_as_a_whole() -> None:
    """An entry that takes another's place would keep a field of its own."""
    arrays = filled()
    compiled_of([f"m.entries[0] = m.entries[{ROW}]"])(arrays.memory, np.zeros(1, dtype=np.int64))
    assert arrays.of["entries"][0] == arrays.of["entries"][ROW]
    assert not arrays.of["entries"][1]["filter"]


def test_a_row_is_counted_in_any_integer() -> None:
    """A row number of 32 bits, as in the arrays, would be truncated."""
    arrays = Arrays()
    arrays.reserve("texts", 2**17)
    arrays.texts[2**17 - 1] = 200
    arrays.links.next[0] = 2**17 - 1
    arrays.attrs.name[0] = 2**17 - 1
    found = np.zeros(2, dtype=np.int64)
    lines = ["found[0] = m.texts[m.links[0].next]", "found[1] = m.texts[m.attrs[0].name]"]
    compiled_of(lines)(arrays.memory, found)
    assert found.tolist() == [200, 200]


def test_an_operator_has_the_kernels_bits() -> None:
    """A number would be another one in columns and in msgpack."""
    from contrada.matching.filter_compiler import number_key
    from contrada.matching.kernels.native import double_bits
    from contrada.matching.kernels.scratch import ordered

    for number in (0.0, -0.0, 1.5, -1.5, 5e-324, 1e308, 2**53, -(2**62)):
        assert ordered(double_bits(number)) == number_key(number)[0]


@pytest.mark.slow
def test_memory_is_read_by_its_type() -> None:
    """A column of a narrow type would be read in pairs, or without its sign."""
    from contrada.matching.kernels.native import number_at

    for kind in (np.int8, np.uint8, np.int16, np.uint32, np.int64, np.float32, np.float64):
        column: Any = np.array([1, 100, 0]).astype(kind)
        column[2] = -3 if kind not in (np.uint8, np.uint32) else 200
        found = [float(number_at(column.ctypes.data, row, kind)) for row in range(3)]
        assert found == column.astype(float).tolist()


def test_bytes_are_read_without_their_sign_and_as_many_as_there_are() -> None:
    """A text would be read as another, or on behind its end."""
    import numba

    from contrada.matching.kernels.native import bytes_at, bytes_of

    @numba.njit
    def listed(several: Any) -> Any:
        return [several[at] for at in range(len(several))]

    @numba.njit
    def both(address: Any, length: Any, text: Any) -> Any:
        return listed(bytes_at(address, length)), listed(bytes_of(text))

    data: Any = np.array([0, 127, 128, 255, 7], dtype=np.uint8)
    for length in (np.int64(0), np.int64(4), np.uint8(4)):
        first, second = both(data.ctypes.data, length, b"\x00\xff\x80")
        assert (first, second) == (data.tolist()[:length], [0, 255, 128])
