"""Batches: spans of msgpack, and tables in columns, give the answers of single notifications."""

from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, EncodingError
from contrada.model.algebra.notification import Envelope
from tests import strategies
from tests.matching.engines import COMPILED, naive, new_index

encode = msgspec.msgpack.Encoder().encode


def rows(batch: tuple[Any, Any]) -> list[list[Any]]:
    """The keys of each notification of a batch, in order."""
    offsets, keys = batch
    listed = keys.tolist()
    return [sorted(listed[begin:end]) for begin, end in pairwise(offsets)]


@pytest.mark.parametrize("compiled", COMPILED)
@given(
    subscriptions=st.lists(strategies.filters() | strategies.filter_sets(), max_size=8),
    notifications=st.lists(strategies.notifications(), max_size=5),
    is_text=st.booleans(),
)
def test_spans_are_matched_as_every_filter_says(
    compiled: Any, subscriptions: Any, notifications: Any, is_text: Any
) -> None:
    """Bytes would be matched otherwise than the notification that they are."""
    by_key = {str(i) if is_text else i: each for i, each in enumerate(subscriptions)}
    index: ct.Index[Any] = new_index(compiled)
    for key, subscription in by_key.items():
        index.add(key, subscription)
    spans = [each.span for each in notifications]
    expected = [naive(by_key, each) for each in notifications]

    def envelope_of(row: int) -> Envelope:
        return notifications[row].envelope  # type: ignore[no-any-return]

    single = [index.match_span(s, envelope_of(i)) for i, s in enumerate(spans)]
    assert list(map(sorted, single)) == expected
    assert rows(index.match_spans(spans, envelope_of)) == expected
    assert rows(index.match_batch(notifications)) == expected
    for kind in (pa.binary(), pa.large_binary()):
        column = pa.array([b"\x80", *spans], kind).slice(1)
        assert rows(index.match_spans(column, envelope_of)) == expected
        pieces = pa.chunked_array([column, column])
        unstamped = [index.match_span(each) for each in spans]
        assert rows(index.match_batch(pieces)) == list(map(sorted, unstamped * 2))


@pytest.mark.quick_first
@pytest.mark.parametrize("compiled", COMPILED)
def test_spans_are_matched_as_columns(compiled: Any) -> None:
    """The same rows as bytes and as columns would reach other subscribers."""
    index: ct.Index[Any] = new_index(compiled)
    for i in range(300):
        index.add(i, ct.Filter(f"symbol = 'S{i % 7}' and price > {i}"))
    given = [{"symbol": f"S{i % 11}", "price": 3.0 * i} for i in range(200)]
    by_column = rows(index.match_batch(pa.Table.from_pylist(given)))
    assert rows(index.match_spans([encode(each) for each in given])) == by_column
    assert rows(index.match_batch(given)) == by_column
    assert sum(map(len, by_column)) > 1_000


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_undecided_span_is_matched_alone(compiled: Any) -> None:
    """A number between doubles, or a time in an odd form, would cost the whole batch its answer."""
    index: ct.Index[Any] = new_index(compiled)
    index.add(1, ct.Filter({"n": 2**53 + 1}))
    index.add(2, ct.Filter({"n": ct.ops.gt(5)}))
    index.add(3, ct.Filter({"t": datetime(2026, 1, 1, tzinfo=UTC)}))
    values = [7, 2**53 + 1, 2**53, 2**53 + 3, 4]
    spans = [encode({"n": each}) for each in values]
    spans.append(encode({"t": datetime(2026, 1, 1, tzinfo=UTC)}))
    expected = [[2], [1, 2], [2], [2], [], [3]]
    assert rows(index.match_spans(spans)) == expected
    assert rows(index.match_spans(pa.array(spans))) == expected
    assert index.statistics().notifications >= len(spans)


@pytest.mark.parametrize("compiled", COMPILED)
def test_the_envelope_is_asked_for_only_where_a_filter_does(compiled: Any) -> None:
    """Every span would cost an envelope, or a filter on one would not be met."""
    index: ct.Index[Any] = new_index(compiled)
    index.add(1, ct.Filter("x = 1"))
    span = encode({f"a{i}": i for i in range(15)} | {"x": 1})

    asked = [index.asks_for_envelopes]
    assert rows(index.match_spans([span], lambda row: [][row])) == [[1]]
    index.add(2, ct.Filter("@publisher = 'p' and @time > @2026-01-01T00:00:00Z and x = 1"))
    assert [*asked, index.asks_for_envelopes] == [False, True]
    late = Envelope(publisher="p", time_us=1_800_000_000_000_000)
    assert rows(index.match_spans([span, span], lambda row: (late, Envelope())[row])) == [
        [1, 2],
        [1],
    ]
    assert sorted(index.match_span(span, late)) == [1, 2]
    assert index.match_span(span) == [1]
    assert rows(index.match_spans(pa.array([span, None]))) == [[1], []]


@pytest.mark.parametrize("compiled", [E for E in COMPILED if E.values[0] is not False])
@given(data=st.binary(max_size=40), cut=st.integers(0, 60))
def test_bytes_that_are_no_span_are_refused_or_pass(compiled: Any, data: Any, cut: Any) -> None:
    """Memory behind truncated bytes would be read, or another error be raised."""
    index: ct.Index[Any] = new_index(compiled)
    index.add(1, ct.Filter("b = 'xyz' and a exists"))
    whole = encode({"b": "xyz", "a": [1, "text", None], "c": "x" * 20})
    for span in (data, whole[:cut], whole[:3] + data):
        for match in (index.match_span, lambda s: rows(index.match_spans([b"\x80", s]))[1]):
            with suppress(ContradaError):
                assert match(span) in ([], [1])
    with pytest.raises(EncodingError):
        index.match_span(b"")
    with pytest.raises(EncodingError):
        index.match_spans([whole, whole[:9]])
    with pytest.raises(EncodingError):
        index.match_spans(pa.array([b"", b""]))


def test_a_column_that_is_not_binary_is_no_column_of_spans() -> None:
    """Texts would be read as msgpack."""
    with pytest.raises(TypeError):
        new_index(False).match_spans(pa.array(["a"]))


@pytest.mark.parametrize("compiled", COMPILED)
def test_tuples_are_keys_of_batches(compiled: Any) -> None:
    """A batch would take a key that is a tuple for a row of keys."""
    index: ct.Index[Any] = new_index(compiled)
    index.add(("a", 1), ct.Filter("x = 1"))
    index.add(("b", 2), ct.Filter("x = 1"))
    assert rows(index.match_batch([{"x": 1}, {}])) == [[("a", 1), ("b", 2)], []]
