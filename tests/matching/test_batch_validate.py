"""The kernel that looks at packed notifications: one by one, in both kinds, and never too far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.matching.kernels.memory import address_of
from contrada.model import Envelope, Notification, to_msgpack
from tests import strategies
from tests.matching.engines import COMPILED, module, needs_native

STAMPED = Envelope("an id", "publisher", 7, 1_700_000_000_000_000)
PADDING = bytes(16)


def parts_of(msg: bytes, compiled: bool, begin: int = 0) -> list[int] | None:
    """The kernel's results for a notification at a position."""
    passing = module("kernels.batch_validate", compiled)
    parts = np.zeros(passing.PARTS, dtype=np.int64)
    names = np.zeros((passing.NAMES_MAX, 2), dtype=np.int64)
    data = bytearray(msg + PADDING)
    starts = np.array([begin, len(msg)])
    is_plain = passing.are_plain(address_of(data), starts, names, parts)
    return parts.tolist() if is_plain else None


@pytest.mark.parametrize("compiled", COMPILED)
def test_parts_are_at_their_positions(compiled: bool) -> None:
    """A notification would be known by another's name, or matched by other bytes."""
    one = Notification({"a": 1, "b": "x"}, envelope=STAMPED)
    before, data = b"before", to_msgpack(one)
    parts = parts_of(before + data, compiled, len(before))
    assert parts is not None
    span, time_us, *texts = parts
    whole = before + data
    assert whole[span:].startswith(one.span)
    assert time_us == STAMPED.time_us
    found = [whole[at : at + length] for at, length in zip(texts[::2], texts[1::2], strict=True)]
    assert found == [b"an id", b"publisher"]


@pytest.mark.parametrize("compiled", COMPILED)
def test_bytes_that_are_cut_off_are_none(compiled: bool) -> None:
    """The kernel would read the bytes behind the end as a part."""
    data = to_msgpack(Notification({"a": 1, "b": "x", "c": 2.5, "d": None}, envelope=STAMPED))
    assert parts_of(data, compiled) is not None
    for end in range(len(data)):
        assert parts_of(data[:end], compiled) is None
    assert parts_of(data + b"\x00", compiled) is None


@pytest.mark.parametrize("compiled", COMPILED)
def test_two_attributes_of_one_name_are_none(compiled: bool) -> None:
    """Filters would look at one of them, and its subscriber at the other."""
    data = to_msgpack(Notification({"aa": 1, "ab": 2}, envelope=STAMPED))
    assert parts_of(data, compiled) is not None
    assert parts_of(data.replace(b"ab", b"aa"), compiled) is None
    assert parts_of(data.replace(b"ab", b"@b"), compiled) is None
    assert parts_of(data.replace(b"ab", b"a\x7f"), compiled) is None


# Seconds of 64 bits may overflow where compiled; both refuse such a time by its header.
@needs_native
@given(one=strategies.notifications(), at=st.integers(0, 400), byte=st.integers(0, 255))
def test_both_kinds_say_the_same(one: Notification, at: int, byte: int) -> None:
    """The kernel tested in plain Python would differ from the compiled one."""
    data = bytearray(to_msgpack(one.with_envelope(STAMPED)))
    data[at % len(data)] = byte
    assert parts_of(bytes(data), False) == parts_of(bytes(data), True)
