"""The one line of values: keys, the exact order of numbers, neighbours, cuts."""

import math
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import InvalidNameError, InvalidValueError
from contrada.model import Value
from contrada.model.algebra.value_set import of_keys
from contrada.model.domains import line, values
from contrada.model.domains.line import Cuts
from contrada.model.domains.values import (
    INT_MAX,
    INT_MIN,
    NAN_KEY,
    NUMBER,
    key_of,
    normal,
    predecessor,
    successor,
    value_of,
)
from tests import strategies as some

doubles = st.floats(allow_nan=False)
integers = st.integers(INT_MIN, INT_MAX)
near_limits = st.builds(
    lambda at, step: min(max(at + step, INT_MIN), INT_MAX),
    st.sampled_from([0, 2**53, -(2**53), 2**54, 2**62, INT_MAX, INT_MIN, 2**63 - 1024]),
    st.integers(-2_050, 2_050),
)
numbers = st.one_of(some.ordered_numbers, doubles, integers, near_limits)


def exact(number: int | float) -> Fraction | float:
    """A number that Python compares exactly."""
    return number if math.isinf(number) else Fraction(number)


def is_held(number: int | float) -> bool:
    """Whether int64 or double has the number."""
    return isinstance(number, float) or INT_MIN <= number <= INT_MAX


@given(numbers)
@example(2**53)
@example(2**53 + 1)
@example(float(2**63))
@example(INT_MAX)
@example(INT_MIN)
@example(math.nextafter(-(2.0**63), -math.inf))
@example(math.nextafter(2.0**63, math.inf))
@example(-5e-324)
@example(5e-324)
def test_neighbours_have_nothing_between_them(number: int | float) -> None:
    """`> x and < y` would be taken for empty, or for more than it is."""
    above, below = successor(number), predecessor(number)
    if above is None:
        assert number == math.inf
    else:
        assert exact(above) > exact(number)
        assert is_held(above)
        assert key_of(above) == (NUMBER, above)
        assert type(key_of(above)[1]) is type(above)
        assert predecessor(above) == number
        candidates = [math.nextafter(float(number), math.inf), float(number)]
        if math.isfinite(number) and INT_MIN <= math.floor(number) + 1 <= INT_MAX:
            candidates.append(math.floor(number) + 1)
        assert above == min(c for c in candidates if exact(c) > exact(number))
    if below is None:
        assert number == -math.inf
    else:
        assert exact(below) < exact(number)
        assert is_held(below)
        assert successor(below) == number


@given(numbers, numbers)
def test_the_order_of_numbers_is_exact(a: int | float, b: int | float) -> None:
    """Integers past 2^53 would be taken for the doubles beside them."""
    assert (key_of(a) < key_of(b)) is (exact(a) < exact(b))
    assert (key_of(a) == key_of(b)) is (exact(a) == exact(b))


@given(some.values(), some.values())
def test_keys_tell_values_apart(a: Value, b: Value) -> None:
    """Values of different domains would be equal, or one value would have two keys."""
    assert value_of(key_of(a)) == a or a != a or isinstance(a, bytes)
    assert key_of(value_of(key_of(a))) == key_of(a)
    if isinstance(a, bool) is not isinstance(b, bool):
        assert key_of(a) != key_of(b)
    if isinstance(a, str) and isinstance(b, str):
        assert (key_of(a) < key_of(b)) is (a < b)


@pytest.mark.parametrize(
    ("given_value", "held"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(2.0), 2),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (bytearray(b"\xff"), b"\xff"),
        (memoryview(b"ab"), "ab"),
        (-0.0, 0),
    ],
)
def test_values_of_other_libraries_are_plain_ones(given_value: Value, held: Value) -> None:
    """NumPy's values would be refused, or kept unconverted."""
    assert key_of(given_value) == key_of(held)
    assert type(normal(given_value)) in (int, float, bool, str, bytes)


@pytest.mark.parametrize("bad", [Fraction(1, 2), 1j, [1], {}, object(), np.uint64(2**64 - 1)])
def test_invalid_values_are_refused(bad: Value) -> None:
    """Something without a place in the order would get one."""
    with pytest.raises(InvalidValueError) as caught:
        key_of(bad)
    assert str(caught.value)


keys = some.values().map(key_of)
cuts = st.lists(keys, max_size=6).map(
    lambda held: tuple(sorted({cut for key in held for cut in (line.cut_before(key),)}))
)


@given(keys, keys)
def test_cuts_are_beside_their_value(key: values.Key, other: values.Key) -> None:
    """A point would hold its neighbour."""
    assert line.holds(line.point(key), key)
    assert line.holds(line.point(key), other) is (key == other)
    assert line.single(line.point(key)) == key
    assert line.cut_before(key) <= key < line.cut_after(key) or key == NAN_KEY


@given(cuts, cuts, keys)
def test_operations_on_cuts_are_logic(a: Cuts, b: Cuts, key: values.Key) -> None:
    """Intervals would be joined or parted wrongly, or lose their one form."""
    for joined, expected in (
        (line.union(a, b), line.holds(a, key) or line.holds(b, key)),
        (line.intersection(a, b), line.holds(a, key) and line.holds(b, key)),
        (line.difference(a, b), line.holds(a, key) and not line.holds(b, key)),
        (line.complement(a), not line.holds(a, key)),
    ):
        assert line.holds(joined, key) is expected
        assert list(joined) == sorted(set(joined))
    assert line.includes(a, b) is (line.difference(b, a) == ())
    assert line.overlaps(a, b) is (line.intersection(a, b) != ())


@given(st.lists(keys, max_size=8))
def test_a_set_of_points_holds_just_these(points: list[values.Key]) -> None:
    """Neighbouring points would be lost where they touch."""
    held = of_keys(points)
    assert all(held.holds(key) for key in points)
    assert all(line.holds(held.line, key) for key in points)
    one_by_one: Cuts = ()
    for key in points:
        one_by_one = line.union(one_by_one, line.point(key))
    assert held.line == one_by_one


@given(cuts)
def test_the_friendly_value_is_in_the_set(a: Cuts) -> None:
    """A witness would not be in the set that it speaks for."""
    if a:
        assert line.holds(a, line.friendly_key(a))


ALPHABET = [chr(code).encode() for code in (0, 0x61, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000)]
ALPHABET += [chr(code).encode() for code in (0xFFFF, 0x10000, 0x10FFFF)]
TEXTS_OF_CHARACTERS = sorted(
    {b""} | {a + b for a in [b"", *ALPHABET] for b in ALPHABET if len(a + b) <= 4}
)
BYTES = st.lists(
    st.sampled_from([*ALPHABET, b"\xc3", b"\x80", b"\xed\xa0", b"\xe2\x84", b"\xf4\x90", b"\xff"]),
    max_size=3,
).map(b"".join)


@given(BYTES, BYTES)
@example(b"\xc3", b"\xc3\0")
@example(b"\x7f\x7f\x7f\x7f", b"\x7f\x7f\x7f\x7f\0")
@example(b"\xf4\x8f\xbf\xbf\0", b"\xff")
@example(b"aaa\xc2\x80", b"aaa\xdf")
def test_cuts_move_to_the_next_text_of_characters(low: bytes, high: bytes) -> None:
    """A filter on the envelope would match otherwise, or equal filters would differ."""
    low, high = sorted((low, high))
    given_ = line.interval(line.cut_before((values.TEXT, low)), (values.TEXT, high))
    moved = line.within_characters(given_, 4)
    for text in TEXTS_OF_CHARACTERS:
        assert line.holds(moved, (values.TEXT, text)) is line.holds(given_, (values.TEXT, text))
    for cut in moved:
        assert len(cut) == 1 or cut[1].decode().encode() == cut[1]  # type: ignore[union-attr]
        assert len(cut) == 1 or len(cut[1]) <= 4  # type: ignore[arg-type]
    assert line.within_characters(moved, 4) == moved


@pytest.mark.parametrize("code", [0x00, 0x1F, 0x7F, 0x80, 0x9F])
def test_control_characters_are_in_no_name(code: int) -> None:
    """A name would change the terminal or the log that shows it."""
    for name in (chr(code), f"é{chr(code)}"):
        with pytest.raises(InvalidNameError, match="control characters"):
            values.check_name(name)
    for near in (0x20, 0x7E, 0xA0):
        assert values.check_name(f"é{chr(near)}")


def test_units_of_time_are_their_microseconds() -> None:
    """A pattern would wait longer or shorter than it says."""
    expected = {
        "us": timedelta(microseconds=1),
        "ms": timedelta(milliseconds=1),
        "sec": timedelta(seconds=1),
        "s": timedelta(seconds=1),
        "min": timedelta(minutes=1),
        "h": timedelta(hours=1),
        "d": timedelta(days=1),
    }
    assert {u: timedelta(microseconds=n) for u, n in values.UNITS_US.items()} == expected
