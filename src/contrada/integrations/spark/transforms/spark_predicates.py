"""`predicate_of`: filters as equal Spark predicates, by the table in docs/spark.md.

A value set is intervals of one line, and atoms on text. Only predicates that are equal on every
possible value of a column are used. An index matches all other filters.

An interval of one value is `c = value`. Its bounds are the least and greatest possible values of
the column in it: so nothing is rounded above 2^53, and NaN, which Spark orders above infinity, is
in no interval. A lower bound of 0 is the double -0.0: Spark treats both as equal, but the
statistics in files may order them.
"""

import math
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it
from pyspark.sql import types as T  # noqa: N812

from contrada.integrations.spark.transforms import frames
from contrada.model import Filter, FilterSet, Notification, ValueSet
from contrada.model.domains import line, values
from contrada.model.domains.line import Cut
from contrada.model.languages.language import Every, Language, Literal, Pieces

_DOMAINS: Final = {
    frames.BOOL: (values.BOOL,),
    frames.INTEGER: (values.NUMBER,),
    frames.FLOAT: (values.NAN, values.NUMBER),
    frames.DOUBLE: (values.NAN, values.NUMBER),
    frames.TIME: (values.TIME,),
    frames.TEXT: (values.TEXT,),
}
"""The domains of the values of a column, by its kind."""


def predicate_of(interest: Filter | FilterSet, frame: frames.NotificationFrame) -> Column | None:
    """Returns the predicate that holds for exactly the rows that a filter matches; None without
    one. It may be NULL instead of false. It ignores bad rows: see `is_bad`.
    """
    if frame.is_packed:
        return None
    members = [_conjunction(member, frame) for member in interest.filters]
    known = [each for each in members if each is not None]
    return _any(known) if len(known) == len(members) else None


def parts_of(interest: Filter | FilterSet) -> int:
    """Returns the approximate number of comparisons in a predicate."""
    parts = [each.parts() for member in interest.filters for each in member.sets.values()]
    return sum(len(cuts) // 2 + _text_parts(text) for cuts, text in parts)


def _text_parts(text: Language) -> int:
    if isinstance(text, Pieces):
        return (len(text.cuts) + 1) // 2
    return 1 if isinstance(text, Literal) else sum(map(_text_parts, text.parts))


def is_bad(frame: frames.NotificationFrame, names: Iterable[str]) -> Column | None:
    """Returns the predicate of rows with an impossible value of an attribute, or None."""
    ends = (values.TIME_MIN_US, values.TIME_MAX_US)
    low, high = (F.timestamp_micros(F.lit(each)) for each in ends)
    asked = [frame.attributes[name] for name in names if name in frame.attributes]
    times = [F.expr(each.expression) for each in asked if each.kind == frames.TIME]
    found = [F.coalesce(~each.between(low, high), _constant(holds=False)) for each in times]
    return _any(found) if found else None


_NOTHING: Final = Notification({})
"""A row without attributes: like all rows of columns, it is not stamped."""


def _constant(*, holds: bool) -> Column:
    return F.expr("true" if holds else "false")


def _conjunction(member: Filter, frame: frames.NotificationFrame) -> Column | None:
    if member.unknown():
        return None
    found = []
    for name, value_set in member.sets.items():
        held = _of_name(name, value_set, frame)
        if held is None:
            return None
        found.append(held)
    return reduce(and_, found) if found else _constant(holds=True)


def _of_name(name: str, value_set: ValueSet, frame: frames.NotificationFrame) -> Column | None:
    attribute = frame.attributes.get(name)
    if attribute is None:
        if any(each.may_be((name,)) for each in frame.attributes.values()):
            return None
        return _constant(holds=any(map(value_set.holds, _NOTHING.keys_of(name))))
    of = attribute.type
    has_collation = isinstance(of, T.StringType) and of.collation != "UTF8_BINARY"
    if attribute.kind not in _DOMAINS or attribute.refused or has_collation:
        return None
    return _of_set(value_set, attribute)


def _of_set(value_set: ValueSet, attribute: frames.ColumnAttribute) -> Column | None:
    """Returns the predicate of a value set on a column."""
    cuts, text = value_set.parts()
    column = F.expr(attribute.expression)
    domains = _DOMAINS[attribute.kind]
    held = [column.isNull()] if line.holds(cuts, values.ABSENT_KEY) else []
    if _has_all(value_set, domains):
        held.append(column.isNotNull())
        return _any(held) if len(held) == 1 else _constant(holds=True)
    if domains == (values.TEXT,):
        part = _of_text(text, column)
        if part is None:
            return None
        held += part
    else:
        for domain in domains:
            held += _of_domain(cuts, domain, column, attribute.kind)
    return _any(held)


def _has_all(value_set: ValueSet, domains: tuple[int, ...]) -> bool:
    """Whether a set has every value of some adjacent domains."""
    whole = line.interval((domains[0],), line.domain_end(domains[-1]))
    cuts, text = value_set.parts()
    if domains == (values.TEXT,):
        return isinstance(text, Pieces) and line.includes(text.cuts, whole)
    return line.includes(cuts, whole)


def _of_domain(cuts: line.Cuts, domain: int, column: Column, kind: str) -> Iterator[Column]:
    whole = line.interval((domain,), line.domain_end(domain))
    for begin, end in line.pieces(line.intersection(cuts, whole)):
        assert end is not None
        if domain == values.NAN:
            yield F.isnan(column)
        elif domain == values.BOOL:
            if len(begin) == 1:
                yield ~column
            if end[0] != domain:
                yield column
        else:
            ends = _ENDS[kind](begin, end)
            if ends is not None:
                wide = column.cast("double") if kind == frames.FLOAT else column
                yield wide == ends[1] if ends[2] else (wide >= ends[0]) & (wide <= ends[1])


def _integers(begin: Cut, end: Cut) -> "tuple[Any, Any, bool] | None":
    """Returns the lowest and highest integers of an interval, and whether they are equal."""
    low = _first(begin, -math.inf)
    after = _first(end, math.inf) if end[0] == values.NUMBER else math.inf
    lowest = values.INT_MIN if low <= values.INT_MIN else math.ceil(low) if low < 2**63 else 2**63
    highest = values.INT_MAX if after > values.INT_MAX else math.ceil(after) - 1
    if lowest > highest:
        return None
    return F.lit(lowest).cast("bigint"), F.lit(highest).cast("bigint"), lowest == highest


def _doubles(begin: Cut, end: Cut) -> "tuple[Any, Any, bool] | None":
    """Returns the lowest and highest doubles of an interval, and whether they are equal."""
    low = _first(begin, -math.inf)
    lowest = float(low)
    if lowest < low:
        lowest = math.nextafter(lowest, math.inf)
    highest = math.inf
    if end[0] == values.NUMBER:
        after = _first(end, math.inf)
        highest = float(after)
        if highest >= after:
            highest = math.nextafter(highest, -math.inf)
    if lowest > highest:
        return None
    is_one = lowest == highest and lowest != 0
    low_zero = -0.0 if lowest == 0 else lowest
    return F.lit(low_zero), F.lit(highest if highest != 0 else 0.0), is_one


def _times(begin: Cut, end: Cut) -> "tuple[Any, Any, bool] | None":
    """Returns the lowest and highest times of an interval, and whether they are equal."""
    lowest = _first(begin, values.TIME_MIN_US)
    highest = values.TIME_MAX_US
    if end[0] == values.TIME:
        highest = _first(end, values.TIME_MIN_US) - 1
    low, high = (F.timestamp_micros(F.lit(int(each))) for each in (lowest, highest))
    return low, high, lowest == highest


_ENDS: Final = {
    frames.INTEGER: _integers,
    frames.FLOAT: _doubles,
    frames.DOUBLE: _doubles,
    frames.TIME: _times,
}
"""The functions that bound an interval, by the kind of a column."""


def _first(cut: Cut, otherwise: float) -> Any:
    return cut[1] if len(cut) == 2 else otherwise


def _of_text(text: Language, column: Column) -> list[Column] | None:
    """Returns the predicates of a set on text, as a disjunction; None if one has no predicate."""
    if isinstance(text, Pieces):
        return [_of_interval(begin, end, column) for begin, end in line.pieces(text.cuts)]
    if isinstance(text, Literal):
        return _of_atom(text, column)
    parts = [_of_text(part, column) for part in text.parts]
    known = [_any(part) for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return [reduce(and_ if isinstance(text, Every) else or_, known)]


def _of_interval(begin: Cut, end: Cut | None, column: Column) -> Column:
    first = line.first_key(begin)[1]
    assert isinstance(first, bytes)
    if end is not None and line.cut_after((values.TEXT, first)) == end:
        return column == _text(first)
    held = column >= _text(first) if first else column.isNotNull()
    return held if end is None else held & (column < _text(_first(end, 0)))


def _of_atom(of: Literal, column: Column) -> list[Column] | None:
    function = {"suffix": F.endswith, "contains": F.contains}.get(of.atom.operator)
    if function is None:
        return None
    held = function(column, _text(of.atom.constant))
    return [held if of.positive else ~held]


def _text(constant: Any) -> Column:
    """Returns bytes as a literal of type STRING, UTF-8 or not."""
    try:
        return F.lit(constant.decode())
    except UnicodeDecodeError:
        return F.lit(bytearray(constant)).cast("string")


def _any(held: list[Column]) -> Column:
    return reduce(or_, held) if held else _constant(holds=False)
