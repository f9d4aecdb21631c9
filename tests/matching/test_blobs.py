"""Byte strings one behind another: taken, joined, numbered and shared out."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from contrada.matching.blobs import blobs_in, blobs_of, joined

STRINGS = st.lists(st.sampled_from((b"", b"a", b"b", b"ab", b"a" * 300)) | st.binary(), max_size=30)


@given(STRINGS, st.data())
def test_rows_are_taken_in_their_order(strings: list[bytes], data: st.DataObject) -> None:
    """A match would get the notifications of others."""
    blobs = blobs_of(strings)
    assert list(blobs.each()) == strings
    rows = data.draw(st.lists(st.integers(0, len(strings) - 1))) if strings else []
    taken = blobs.taken(np.array(rows, dtype=np.int64))
    assert list(taken.each()) == [strings[row] for row in rows]
    assert [blobs.at(row) for row in rows] == [strings[row] for row in rows]


@given(STRINGS, STRINGS)
def test_joined_ones_come_one_behind_another(first: list[bytes], second: list[bytes]) -> None:
    """What is held and what comes would be mixed."""
    assert list(joined([blobs_of(first), blobs_of([]), blobs_of(second)]).each()) == first + second


@given(STRINGS)
def test_equal_strings_have_one_number(strings: list[bytes]) -> None:
    """Two groups would be one, or one group two."""
    codes, firsts = blobs_of(strings).codes()
    known = {each: number for number, each in enumerate(dict.fromkeys(strings))}
    assert codes.tolist() == [known[each] for each in strings]
    assert [strings[row] for row in firsts] == list(known)


@given(STRINGS, st.integers(1, 7))
def test_a_string_falls_to_one_part(strings: list[bytes], count: int) -> None:
    """A group would be followed in two places, each with half of it."""
    parts = blobs_of(strings).parts(count).tolist()
    assert all(0 <= part < count for part in parts)
    again = blobs_of([*strings, b"other"]).parts(count).tolist()
    assert again[:-1] == parts


def test_parts_are_the_same_in_every_process() -> None:
    """State that was written down would belong to other parts when a stream goes on."""
    assert blobs_of([b"", b"a", b"host-1", b"host-2"]).parts(5).tolist() == [2, 1, 4, 1]


def test_parts_are_about_equal() -> None:
    """Groups that differ little would fall to one part."""
    parts = blobs_of([b"host-%d" % number for number in range(10_000)]).parts(8)
    assert np.bincount(parts).min() > 1_000


@given(STRINGS, st.integers(0, 3))
def test_arrow_columns_are_read_where_they_lie(strings: list[bytes], begin: int) -> None:
    """A column that is a part of another would be read from its beginning."""
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([None, *strings], kind).slice(min(begin, len(strings)))
        assert list(blobs_in(column).each()) == [each or b"" for each in column.to_pylist()]
