"""Kernels that write: single values as msgpack, and hashes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from contrada.matching.kernels import msgpack_writer
from contrada.model.domains.values import INT_MAX, INT_MIN

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = (0, 31, 32, 33, 127, 128, 129, 255, 256, 32767, 32768, 32769, 65535, 65536, 2**31, 2**32)


def written(put: Any, value: int) -> bytes:
    """The output of a kernel for a value."""
    out = np.zeros(20, dtype=np.uint8)
    return out[: put(out, 0, value)].tobytes()


@pytest.mark.parametrize("edge", [*EDGES, 2**31 + 1, 2**32 - 1, INT_MAX])
def test_integers_take_as_few_bytes_as_they_need(edge: int) -> None:
    """Two forms of one integer would be two values for a comparison of bytes."""
    for value in (edge, -edge, -edge - 1):
        assert value >= INT_MIN
        expected = msgspec.msgpack.encode(value)
        assert written(msgpack_writer.put_int, value) == expected
        assert msgpack_writer.int_size(value) == len(expected)


@pytest.mark.parametrize("length", [0, 31, 32, 255, 256, 65535, 65536])
def test_texts_have_the_shortest_head(length: int) -> None:
    """The columns of a table would be written over one another, or leave bytes between them."""
    expected = len(msgspec.msgpack.encode("x" * length)) - length
    assert msgpack_writer.head_size(length) == expected


@pytest.mark.parametrize("seconds", [0, 1, 2**32 - 1, 2**32, 2**34 - 1, 2**34, -1, -(10**10)])
@pytest.mark.parametrize("microseconds", [0, 1, 999_999])
def test_times_take_as_few_bytes_as_they_need(seconds: int, microseconds: int) -> None:
    """A time would be another one, or be written otherwise than a notification writes it."""
    time = EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
    expected = msgspec.msgpack.encode(time)
    assert written(msgpack_writer.put_time, seconds * 1_000_000 + microseconds) == expected
    assert msgpack_writer.time_size(seconds * 1_000_000 + microseconds) == len(expected)


def test_a_hash_depends_on_all_bytes() -> None:
    """Groups would fall to one part, and be slow to find."""
    data = np.frombuffer(b"host-1host-2", dtype=np.uint8)
    hashes = {
        msgpack_writer.hashed(data, begin, end) for begin in range(12) for end in range(begin, 13)
    }
    texts = {bytes(data[begin:end]) for begin in range(12) for end in range(begin, 13)}
    assert len(hashes) == len(texts)
    assert msgpack_writer.is_same(data, 0, 5, 6, 11)
    assert not msgpack_writer.is_same(data, 0, 6, 6, 12)


def test_equal_texts_fall_to_one_part() -> None:
    """A group would be divided, and counted in several processes."""
    data, starts = np.frombuffer(b"aabbcd", dtype=np.uint8), np.array([0, 1, 2, 4, 5, 6])
    parts = np.full(5, -1)
    msgpack_writer.parts_of(starts, data, 1_000, parts)
    hashes = [msgpack_writer.hashed(data, *ends) for ends in pairwise(starts)]
    assert [*parts] == [(each >> 8) % 1_000 for each in hashes]
    assert parts[0] == parts[1]
    assert len({*parts}) == 4
