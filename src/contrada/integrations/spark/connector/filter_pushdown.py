"""`pushed`: Spark filters as a subscription, so that brokers send only candidate rows.

Spark applies every filter again, so a pushed filter must match all passing rows, and may match
others; docs/spark.md has the table. Of DOUBLE, `>` and `>=` match NaN, too: Spark orders it above
all numbers. Other filters are left to Spark.

IsNull is left to Spark, since a misfit is NULL, too. So are envelope columns, arrays, texts with a
collation, and comparisons with NULL.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.integrations.spark.connector.arrow_columns import OF_ENVELOPE, PYTHON_TYPES
from contrada.model import Filter, ValueSet
from contrada.model.algebra import sets

_NAN: Final = sets.eq(math.nan)


def push_down(filters: Iterable[D.Filter], schema: T.StructType) -> Filter:
    """Returns the conjunction of Spark's filters, as far as a subscription can express it."""
    found: dict[str, ValueSet] = {}
    for each in filters:
        constraint = _constraint(each, schema)
        if constraint is not None:
            name, values = constraint
            found[name] = found[name] & values if name in found else values
    return Filter.of_sets(found)


def _constraint(each: D.Filter, schema: T.StructType) -> tuple[str, ValueSet] | None:
    inner = each.child if isinstance(each, D.Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names or path[0] in OF_ENVELOPE:
        return None
    kind = schema[path[0]].dataType
    wanted = PYTHON_TYPES.get(type(kind))
    if wanted is None or (isinstance(kind, T.StringType) and kind != T.StringType()):
        return None
    value: Any = getattr(inner, "value", ())
    values = tuple(value) if isinstance(inner, D.In) else () if value == () else (value,)
    for each_value in values:
        if type(each_value) is not wanted or getattr(each_value, "tzinfo", True) is None:
            return None
    found = _set(inner, values, is_negated=isinstance(each, D.Not))
    return None if found is None else (path[0], found)


def _set(of: D.Filter, values: tuple[Any, ...], *, is_negated: bool) -> ValueSet | None:
    if is_negated:
        is_known = isinstance(of, D.EqualTo | D.In) and values
        return sets.any_but(*values) if is_known else None
    has_nan = any(type(each) is float and math.isnan(each) for each in values)
    match of:
        case D.EqualTo() | D.EqualNullSafe() | D.In() if values:
            return sets.in_(*values)
        case D.IsNotNull():
            return sets.exists()
        case D.LessThan() if not has_nan:
            return sets.lt(values[0])
        case D.LessThanOrEqual() if not has_nan:
            return sets.le(values[0])
        case D.GreaterThan() if not has_nan:
            return _with_nan(sets.gt(values[0]), values[0])
        case D.GreaterThanOrEqual() if not has_nan:
            return _with_nan(sets.ge(values[0]), values[0])
        case D.StringStartsWith():
            return sets.prefix(values[0])
        case D.StringEndsWith():
            return sets.suffix(values[0])
        case D.StringContains():
            return sets.contains(values[0])
    return None


def _with_nan(found: ValueSet, value: Any) -> ValueSet:
    return found | _NAN if type(value) is float else found
