"""Accumulators of single groups; see also test_aggregation."""

import math
import sys
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import EncodingError
from contrada.model import Notification
from contrada.model.domains.values import (
    INT_MAX,
    INT_MIN,
    NUMBER,
    TIME,
    TIME_MAX_US,
    TIME_MIN_US,
    key_of,
)
from contrada.routing import accumulators
from contrada.routing.accumulators import (
    SKETCH_HASHES_LOG2,
    TOTAL_BYTES_MAX,
    Accumulator,
    Best,
    Counted,
    Distinct,
    Extreme,
    Total,
    read_key,
)
from tests.strategies import values

pytest.importorskip("datasketches")  # It has no wheels for Python 3.14.

NOTHING = Notification({})
MAX = sys.float_info.max


def accumulate(held: Accumulator, *given: object) -> Accumulator:
    """An accumulator that has taken values in, each of an item of its own."""
    for each in given:
        held.add((key_of(each),), Notification({"a": each}))  # type: ignore[arg-type]
    return held


def decode(held: Accumulator, new: Accumulator) -> Accumulator:
    """Decodes the encoding of an accumulator."""
    new.restore(msgspec.Raw(msgspec.msgpack.encode(held.packed())))
    return new


def test_counted() -> None:
    """Items without the attribute would be counted as items with it, or not at all."""
    every, some = Counted(every=True), Counted(every=False)
    for held in (every, some):
        held.add((), NOTHING)
        held.add((key_of(1), key_of(2)), NOTHING)
    assert (every.result(), some.result()) == (2, 1)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
@example([5e-324] * 3)
@example([1e308, 1e308, -1e308])
@example([MAX, MAX])
@example([-MAX, -MAX])
@example([2.0**53, 1.0, 2.0**-1074])
def test_a_sum_is_rounded_once(numbers: list[float]) -> None:
    """A sum would not be the double nearest to the exact one."""
    exact = sum(map(Fraction, numbers))
    total = accumulate(Total(), *numbers).result()
    mean = accumulate(Total(is_mean=True), *numbers).result()
    if not numbers:
        assert (total, mean) == (0, None)
        return
    if all(key_of(number)[1].__class__ is int for number in numbers):
        assert total == exact  # Doubles that are integers are integers.
        assert mean == float(exact / len(numbers))
        return
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = math.inf if exact > 0 else -math.inf
    assert total == nearest
    assert mean == float(exact / len(numbers))


def test_a_sum_of_integers_is_one() -> None:
    """Integers would lose digits as doubles; 5.0 is the integer 5."""
    big = 2**63 - 1
    total = accumulate(Total(), big, big, 5.0).result()
    assert total == 2 * big + 5
    assert type(total) is int
    assert type(accumulate(Total(), 1, 0.5, 0.5).result()) is float


def test_other_values_are_skipped_and_counted() -> None:
    """A text would be added, or dropped in silence."""
    held = accumulate(
        Total(), 1, "2", None, True, math.nan, datetime(2026, 1, 1, tzinfo=UTC), b"\xff"
    )
    assert (held.result(), held.skipped) == (1, 6)


def test_infinities() -> None:
    """An infinity would end the query, or be dropped."""
    assert accumulate(Total(), 1, math.inf).result() == math.inf
    assert accumulate(Total(), MAX, -math.inf).result() == -math.inf
    assert math.isnan(accumulate(Total(), math.inf, -math.inf).result())
    assert accumulate(Total(is_mean=True), 1, math.inf).result() == math.inf


def test_the_line_orders_extremes() -> None:
    """Values of several domains would be compared as Python does, which raises."""
    mixed = [None, False, True, math.nan, -math.inf, 7, datetime(2026, 1, 1, tzinfo=UTC), "", "b"]
    for count in range(1, len(mixed)):
        assert accumulate(Extreme(least=False), *mixed[:count]).result() is not None or count == 1
        least = accumulate(Extreme(least=True), *mixed[count:][::-1]).result()
        assert key_of(least) == key_of(mixed[count])
    assert accumulate(Extreme(least=False), *mixed).result() == "b"


def test_best_with_ties() -> None:
    """The choice among equal items would depend on their order."""
    items = [Notification({"a": 1, "n": n}) for n in range(9)]
    for order in (items, items[::-1], items[4:] + items[:4]):
        held = Best("a", 3, least=False)
        for each in order:
            held.add((key_of(1),), each)
        assert [each["n"] for each in held.result()] == [0, 1, 2]


def test_distinct_is_exact_up_to_its_limit() -> None:
    """Few values would be estimated, or bytes and numbers be confused."""
    several = [*range(1000), *map(str, range(1000)), b"\xff", "ÿ", None, True, 1.5, 5.0]
    held = accumulate(Distinct(), *several, *several)
    assert (held.result(), held.bounds) == (2005, None)


def test_distinct_is_estimated_beyond() -> None:
    """An estimate would exceed its stated error, or depend on the order of parts."""
    count = 5 * 2**SKETCH_HASHES_LOG2
    whole = accumulate(Distinct(), *range(count))
    assert abs(whole.result() - count) <= 3 * 0.016 * count
    low, high = whole.bounds or (0, 0)
    assert low <= count <= high
    below, above = whole.result() - low, high - whole.result()
    assert below == pytest.approx(above, rel=0.1), "both are two standard deviations"
    parts = [accumulate(Distinct(), *range(n, count, 3)) for n in range(3)]
    for order in (parts, parts[::-1]):
        joined = accumulate(Distinct(), *range(0, count, 7))
        for each in order:
            joined.combine(decode(each, Distinct()))
        assert joined.packed() == whole.packed()


@given(st.lists(st.integers(0, 2**14)), st.binary(max_size=40), st.integers(0, 60))
def test_hostile_sketches(some: list[int], junk: bytes, at: int) -> None:
    """An invalid sketch would be decoded, or would end the process."""
    data = accumulate(Distinct(), *some).packed()
    for hostile in (junk, data[:at], data + junk, data[:at] + junk + data[at + len(junk) :]):
        try:
            read = decode(_Said(hostile), Distinct())
        except EncodingError:
            continue
        assert read.packed() == hostile


class _Said(Counted):
    """An encoding under test."""

    def __init__(self, said: object) -> None:
        super().__init__(every=True)
        self.said = said

    def packed(self) -> Any:
        return self.said


def test_a_large_sketch_is_held_to_its_hashes() -> None:
    """Hashes out of order would be taken for more values than there are."""
    data = accumulate(Distinct(), *range(5000)).packed()
    swapped = data[:24] + data[32:40] + data[24:32] + data[40:]
    for hostile in (swapped, data[:-8] + b"\xff" * 8, data[:24] + bytes(8) + data[32:]):
        with pytest.raises(EncodingError, match="out of order"):
            decode(_Said(hostile), Distinct())


def test_a_sketch_without_hashes_has_a_threshold() -> None:
    """An error of the library, or of a count 0 / 0, would be a fault of the server."""
    no_hashes = accumulate(Distinct(), *range(5000)).packed()[:8] + bytes(8)
    assert decode(_Said(no_hashes + b"\1" + bytes(7)), Distinct()).result() == 0
    with pytest.raises(EncodingError, match="out of order"):
        decode(_Said(no_hashes + bytes(8)), Distinct())
    with pytest.raises(EncodingError, match="bytes expected"):
        decode(_Said(bytes.fromhex("010303000003cc93")), Distinct())


def test_the_library_reads_only_sizes_that_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library would read a layout of another version, beyond the bytes."""
    data, held = accumulate(Distinct(), *range(9)).packed(), Distinct()
    monkeypatch.setattr(accumulators, "_datasketches", pytest.fail)
    version, kind = data[:1] + b"\4" + data[2:], data[:2] + b"\2" + data[3:]
    for hostile in (version, kind, data[:-1], data[:7], data + bytes(8), b"\4" + data[1:]):
        with pytest.raises(EncodingError):
            held.restore(msgspec.Raw(msgspec.msgpack.encode(hostile)))


@pytest.mark.parametrize(
    "said",
    [
        (0, 0, 0, 0, 0, b"", bytes(TOTAL_BYTES_MAX + 1)),
        (-1, 0, 0, 0, 0, b"", b""),
        (0, 0, 0, 0, 2**63, b"", b""),
        "",
    ],
)
def test_hostile_sums(said: object) -> None:
    """A decoded sum would take unbounded memory."""
    with pytest.raises(msgspec.DecodeError):
        decode(_Said(said), Total())


def test_hostile_bests() -> None:
    """Decoded items would be too many, or lack the attribute."""
    held = accumulate(Best("a", 3, least=True), 1, 2, 3)
    with pytest.raises(EncodingError):
        decode(held, Best("a", 2, least=True))
    assert decode(held, Best("b", 3, least=True)).result() == []
    with pytest.raises(EncodingError):
        decode(_Said([b"junk"]), Best("a", 3, least=True))


@given(values())
def test_keys_survive_encoding(value: object) -> None:
    """A value would change at the combining server."""
    key = key_of(value)  # type: ignore[arg-type]
    read = read_key(msgspec.msgpack.decode(msgspec.msgpack.encode(key)))
    assert (read, type(read[1])) == (key, type(key[1]))


@pytest.mark.parametrize(
    ("tag", "ends"), [(NUMBER, (INT_MIN, INT_MAX)), (TIME, (TIME_MIN_US, TIME_MAX_US))]
)
def test_keys_at_the_ends_of_a_domain_are_read(tag: int, ends: tuple[int, int]) -> None:
    """A partial result with the least or the greatest value would be lost."""
    for end, beyond in zip(ends, (-1, 1), strict=True):
        assert read_key((tag, end)) == (tag, end)
        with pytest.raises(EncodingError):
            read_key((tag, end + beyond))


@pytest.mark.parametrize(
    "packed", [(0, 1), (2, 1), (4, math.nan), (4, 2**63), (4, True), (5, 1.0), (6, "a"), (7, 0)]
)
def test_no_keys(packed: tuple[int, object]) -> None:
    """An invalid key would be compared with values."""
    with pytest.raises(EncodingError):
        read_key(packed)
