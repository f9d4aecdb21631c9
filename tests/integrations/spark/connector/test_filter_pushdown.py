"""Pushed filters match every passing row; no test here starts Spark."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.integrations.spark.connector.arrow_columns import ArrowColumns
from contrada.integrations.spark.connector.frame_readers import push_down
from contrada.model import Filter, Notification

if not hasattr(D, "Filter"):
    pytest.skip("Spark 4.0 pushes no filters", allow_module_level=True)

SCHEMA = T.StructType(
    [
        T.StructField("i", T.LongType()),
        T.StructField("d", T.DoubleType()),
        T.StructField("s", T.StringType()),
        T.StructField("c", T.StringType("UTF8_LCASE")),
        T.StructField("t", T.TimestampType()),
        T.StructField("a", T.ArrayType(T.LongType())),
        T.StructField("@time", T.TimestampType()),
    ]
)
NAN = math.nan
VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 4, 5, 6, -(2**63), 2**63 - 1],
    "d": [None, -0.0, 0.0, 4.5, 5.0, 2.0**53, math.inf, -math.inf, NAN],
    "s": [None, "", "a", "ab", "ba", "é", "\U0001f600", "\uffff"],
}


def order(value: Any) -> Any:
    """Compares as Spark: NaN is above all numbers and equals itself, texts are bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def passes(each: D.Filter, value: Any) -> bool:
    """Whether a non-NULL value passes in Spark."""
    match each:
        case D.Not(child=child):
            return not passes(child, value)
        case D.EqualTo(value=other) | D.EqualNullSafe(value=other):
            return bool(order(value) == order(other))
        case D.In(value=others):
            return order(value) in [order(other) for other in others]
        case D.IsNotNull():
            return True
        case D.LessThan(value=other):
            return bool(order(value) < order(other))
        case D.LessThanOrEqual(value=other):
            return bool(order(value) <= order(other))
        case D.GreaterThan(value=other):
            return bool(order(value) > order(other))
        case D.GreaterThanOrEqual(value=other):
            return bool(order(value) >= order(other))
        case D.StringStartsWith(value=other):
            return bool(value.startswith(other))
        case D.StringEndsWith(value=other):
            return bool(value.endswith(other))
        case D.StringContains(value=other):
            return other in value
    raise AssertionError(each)


def filters_of(name: str) -> list[D.Filter]:
    path = (name,)
    kinds = [
        D.EqualTo,
        D.EqualNullSafe,
        D.LessThan,
        D.LessThanOrEqual,
        D.GreaterThan,
        D.GreaterThanOrEqual,
    ]
    if name == "s":
        kinds += [D.StringStartsWith, D.StringEndsWith, D.StringContains]
    values = [each for each in VALUES[name] if each is not None]
    found: list[D.Filter] = [kind(path, value) for kind in kinds for value in values]
    found += [D.Not(D.EqualTo(path, value)) for value in values]
    found += [D.In(path, (values[0], values[-1])), D.Not(D.In(path, (values[1], values[-1])))]
    return [*found, D.IsNotNull(path)]


@pytest.mark.parametrize("name", VALUES)
def test_pushed_filters_match_every_passing_row(name: str) -> None:
    """Rows that pass Spark's filter would be missing."""
    narrowed = 0
    for each in filters_of(name):
        subscription = push_down([each], SCHEMA)
        for value in VALUES[name]:
            notification = Notification({} if value is None else {name: value})
            if value is not None and passes(each, value):
                assert subscription.matches(notification), (each, value)
            elif not subscription.matches(notification):
                narrowed += 1
    assert narrowed > len(filters_of(name))


def test_other_filters_are_left_to_spark() -> None:
    """Rows would be missing."""
    left: list[D.Filter] = [
        D.IsNull(("i",)),
        D.Not(D.IsNotNull(("i",))),
        D.EqualNullSafe(("i",), None),
        D.Not(D.In(("i",), (1, None))),
        D.Not(D.StringContains(("s",), "x")),
        D.LessThan(("d",), NAN),
        D.EqualTo(("c",), "x"),
        D.EqualTo(("a",), [1]),
        D.EqualTo(("i", "inner"), 1),
        D.GreaterThan(("@time",), datetime(2026, 1, 1, tzinfo=UTC)),
        D.GreaterThan(("t",), datetime(2026, 1, 1)),  # noqa: DTZ001 - the tried value
    ]
    assert push_down(left, SCHEMA) == Filter({})


def test_several_filters_are_one_subscription() -> None:
    """Only the last filter would be pushed."""
    found = push_down(
        [D.GreaterThan(("i",), 4), D.LessThan(("i",), 9), D.EqualTo(("s",), "x")], SCHEMA
    )
    assert found == Filter('i > 4 and i < 9 and s = "x"')


def test_impossible_columns_are_refused_by_name() -> None:
    """A read would fail late, or return NULL for everything."""
    ArrowColumns(SCHEMA)
    for kind in (
        T.DateType(),
        T.TimestampNTZType(),
        T.DecimalType(),
        T.BinaryType(),
        T.FloatType(),
    ):
        with pytest.raises(Exception, match="column x "):
            ArrowColumns(T.StructType([T.StructField("x", kind)]))
    with pytest.raises(Exception, match="column @time string: expected timestamp"):
        ArrowColumns(T.StructType([T.StructField("@time", T.StringType())]))
