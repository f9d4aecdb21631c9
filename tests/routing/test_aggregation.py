"""`Partial`: parts in any grouping and order give the result of plain Python."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError, InvalidCombinationError, LimitError
from contrada.model import Notification
from contrada.model.domains.values import key_of
from contrada.routing import aggregation
from contrada.routing.aggregation import (
    AGGREGATES_MAX,
    TOP_MAX,
    Aggregate,
    AggregateKind,
    Combination,
    Partial,
    aggregate_of,
)
from tests.strategies import pooled_values

pytest.importorskip("datasketches")  # It has no wheels for Python 3.14.

ALL = Combination(
    (
        Aggregate(AggregateKind.COUNT),
        Aggregate(AggregateKind.COUNT, "v"),
        Aggregate(AggregateKind.SUM, "v"),
        Aggregate(AggregateKind.MEAN, "v"),
        Aggregate(AggregateKind.MIN, "v"),
        Aggregate(AggregateKind.MAX, "v"),
        Aggregate(AggregateKind.TOP, "v", 2),
        Aggregate(AggregateKind.BOTTOM, "v", 3),
        Aggregate(AggregateKind.DISTINCT, "v"),
    ),
    by="g",
)

items = st.lists(
    st.builds(
        Notification,
        st.fixed_dictionaries(
            {"n": st.integers(0, 3)},
            optional={
                "v": st.one_of(pooled_values, st.lists(pooled_values, min_size=1, max_size=3)),
                "g": st.one_of(st.sampled_from([1, 1.0, "a"]), st.just([1, 2])),
            },
        ),
    ),
    max_size=12,
)


def partial_of(items: Sequence[Notification], combination: Combination = ALL) -> Partial:
    """Returns the partial result of items."""
    partial = Partial(combination)
    partial.add_all(items)
    return partial


@given(items, st.lists(st.integers(0, 3)), st.randoms(use_true_random=False))
def test_any_grouping_in_any_order_is_one(
    items: list[Notification], parts: list[int], chance: Any
) -> None:
    """A result would depend on the path of the query."""
    whole = partial_of(items).to_bytes()
    divided: dict[int, list[Notification]] = defaultdict(list)
    for number, item in enumerate(items):
        divided[parts[number % len(parts)] if parts else 0].append(item)
    waiting = [partial_of(each) for each in divided.values()]
    waiting.append(Partial(ALL))
    while len(waiting) > 1:
        chance.shuffle(waiting)
        one = waiting.pop()
        waiting[0].combine(
            Partial.from_bytes(ALL, one.to_bytes()) if chance.random() < 0.5 else one
        )
    assert waiting[0].to_bytes() == whole
    assert Partial.from_bytes(ALL, whole).to_bytes() == whole


def expected_results(items: list[Notification]) -> dict[str, Any]:
    """Returns all results of one group by plain Python."""
    keys = [key for item in items if "v" in item for key in item.keys_of("v")]
    numbers: list[Any] = [key[1] for key in keys if key[0] == 4]
    infinite = {number for number in numbers if isinstance(number, float) and math.isinf(number)}
    if len(infinite) == 2:
        total: Any = math.nan
    elif infinite:
        (total,) = infinite
    elif all(type(number) is int for number in numbers):
        total = sum(numbers)
    else:
        try:
            total = math.fsum(numbers)
        except OverflowError:
            total = None  # Some partial sum of fsum is beyond the doubles.
    with_value = [item for item in items if "v" in item]
    by_bytes = sorted(with_value, key=lambda item: msgspec.msgpack.encode(item.span))
    top = sorted(by_bytes, key=lambda item: max(item.keys_of("v")), reverse=True)
    bottom = sorted(by_bytes, key=lambda item: min(item.keys_of("v")))
    return {
        "count": len(items),
        "count(v)": len(with_value),
        "sum(v)": total,
        "min(v)": min(keys, default=None),
        "max(v)": max(keys, default=None),
        "top 2(v)": [max(item.keys_of("v")) for item in top[:2]],
        "bottom 3(v)": [min(item.keys_of("v")) for item in bottom[:3]],
        "distinct(v)": len(Counter(keys)),
        "skipped": len(keys) - len(numbers),
    }


@given(items)
def test_results_are_those_by_hand(items: list[Notification]) -> None:
    """A result would differ from a plain computation over all items."""
    groups: dict[Any, list[Notification]] = defaultdict(list)
    for item in items:
        for key in item.keys_of("g"):
            groups[key].append(item)
    results = partial_of(items).results()
    assert [
        Notification({k: v for k, v in each.items() if k == "g"}).keys_of("g") for each in results
    ] == [(key,) for key in sorted(groups)]
    for result, key in zip(results, sorted(groups), strict=True):
        expected = expected_results(groups[key])
        for name in ("count", "count(v)", "distinct(v)"):
            assert result[name] == expected[name]
        assert result.get("skipped", {}).get("sum(v)", 0) == expected["skipped"]
        if expected["sum(v)"] is not None:
            same = result["sum(v)"], expected["sum(v)"]
            assert same[0] == same[1] or (math.isnan(same[0]) and math.isnan(same[1]))
            assert type(same[0]) is type(same[1])
        for name in ("min(v)", "max(v)"):
            found = None if expected[name] is None else key_of(result[name])
            assert found == expected[name]
        assert [max(i.keys_of("v")) for i in result["top 2(v)"]] == expected["top 2(v)"]
        assert [min(i.keys_of("v")) for i in result["bottom 3(v)"]] == expected["bottom 3(v)"]


def test_without_groups_there_is_one_result() -> None:
    """An empty result would be invisible."""
    combination = Combination((Aggregate(AggregateKind.COUNT), Aggregate(AggregateKind.MAX, "v")))
    assert Partial(combination).results() == [{"count": 0, "max(v)": None}]
    assert partial_of([Notification({"v": 3})], combination).results() == [
        {"count": 1, "max(v)": 3}
    ]
    assert Partial(ALL).results() == []


def test_mappings_are_items() -> None:
    """A source would have to make notifications itself."""
    partial = Partial(ALL)
    partial.add({"g": "a", "v": 0.5})
    assert partial.results()[0]["sum(v)"] == 0.5


def test_more_groups_than_allowed_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups would take all memory, or be dropped in silence."""
    monkeypatch.setattr(aggregation, "GROUPS_MAX", 2)
    partial = partial_of([Notification({"g": 1}), Notification({"g": 2})])
    with pytest.raises(LimitError, match="GROUPS_MAX"):
        partial.add({"g": 3})
    other = partial_of([Notification({"g": 3})])
    with pytest.raises(LimitError, match="GROUPS_MAX"):
        partial.combine(other)


def test_more_bytes_than_allowed_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large items, or many hashes, would take all memory."""
    monkeypatch.setattr(aggregation, "PARTIAL_BYTES_MAX", 2_000)
    best = Combination((Aggregate(AggregateKind.TOP, "v", 3),))
    with pytest.raises(LimitError, match="PARTIAL_BYTES_MAX"):
        partial_of([Notification({"v": 1, "t": "x" * 1_000})] * 2, best)
    distinct = Combination((Aggregate(AggregateKind.DISTINCT, "v"),))
    with pytest.raises(LimitError, match="PARTIAL_BYTES_MAX"):
        partial_of([Notification({"v": n}) for n in range(300)], distinct)
    only_last = partial_of(
        [Notification({"v": n, "t": "x" * 600}) for n in range(50)],
        Combination((Aggregate(AggregateKind.TOP, "v", 1),)),
    )
    assert only_last.results()[0]["top 1(v)"][0]["v"] == 49


@pytest.mark.parametrize(
    ("kind", "attribute", "number"),
    [
        ("median", "v", 0),
        ("sum", "", 0),
        ("sum", "v", 1),
        ("top", "v", 0),
        ("top", "v", TOP_MAX + 1),
        ("top", "v", True),
        ("sum", "a\n", 0),
    ],
)
def test_no_aggregates(kind: Any, attribute: str, number: int) -> None:
    """An invalid aggregate would fail far away."""
    with pytest.raises(InvalidCombinationError):
        Aggregate(kind, attribute, number)


def test_no_combinations() -> None:
    """Two results would share one name, or there would be none."""
    count, total = Aggregate(AggregateKind.COUNT), Aggregate(AggregateKind.SUM, "v")
    wrong: list[tuple[Any, str]] = [
        ((), ""),
        ((count, count), ""),
        ((count,), "count"),
        ((count,), "skipped"),
        ((count,), "\n"),
        (tuple(Aggregate(AggregateKind.SUM, f"v{n}") for n in range(AGGREGATES_MAX + 1)), ""),
        (("sum",), ""),
        (count, ""),
    ]
    for aggregates, by in wrong:
        with pytest.raises(InvalidCombinationError):
            Combination(aggregates, by)
    with pytest.raises(InvalidCombinationError):
        Partial(Combination((count,))).combine(Partial(Combination((total,))))


def test_a_combination_travels() -> None:
    """A server would compute something else, or not find the question it has."""
    packed = msgspec.msgpack.encode(ALL)
    assert {ALL: 1}[msgspec.msgpack.decode(packed, type=Combination)] == 1


def test_aggregates_are_written_as_text() -> None:
    """A result would have another name than its question."""
    for each in ALL.aggregates:
        assert aggregate_of(each.name) == aggregate_of(each) == each
    assert aggregate_of(" top 3 (a b) ") == Aggregate(AggregateKind.TOP, "a b", 3)
    for wrong in ("median(v)", "top3(v)", "sum(v) of", "", 3):
        with pytest.raises(InvalidCombinationError, match="expected one of count, sum"):
            aggregate_of(wrong)  # type: ignore[arg-type]


@given(items, st.binary(max_size=30), st.integers(0, 300))
def test_hostile_bytes(items: list[Notification], junk: bytes, at: int) -> None:
    """Bytes of a stranger would raise unexpected errors, or be misread."""
    data = partial_of(items).to_bytes()
    for hostile in (junk, data[:at], data[:at] + junk + data[at + len(junk) :], data + junk):
        try:
            read = Partial.from_bytes(ALL, hostile)
        except EncodingError:
            continue
        assert read.results() is not None
        Partial.from_bytes(ALL, read.to_bytes())


@pytest.mark.parametrize(
    "groups",
    [
        [((4, 1), [1]), ((4, 1.0), [1])],
        [((4, 1), [1, 1])],
        [((4, 1), [])],
        [((4, 1), ["1"])],
        [((9, 1), [1])],
        [((4, 1), [msgspec.Raw(b"\x91" * 100_000 + b"\xc0")])],
    ],
)
def test_groups_from_elsewhere(groups: Any) -> None:
    """A group would appear twice, or have unrequested results."""
    combination = Combination((Aggregate(AggregateKind.COUNT),), by="g")
    with pytest.raises(EncodingError):
        Partial.from_bytes(combination, msgspec.msgpack.encode(groups))
