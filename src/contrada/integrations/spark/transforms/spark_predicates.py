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

DOMAINS: Final = {
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
    low, high = _time(values.TIME_MIN_US), _time(values.TIME_MAX_US)
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
    if attribute.kind not in DOMAINS or attribute.refused or has_collation:
        return None
    return _of_set(value_set, attribute)


def _of_set(value_set: ValueSet, attribute: frames.ColumnAttribute) -> Column | None:
    cuts, text = value_set.parts()
    column = F.expr(attribute.expression)
    domains = DOMAINS[attribute.kind]
    held = [column.isNull()] if line.holds(cuts, values.ABSENT_KEY) else []
    if _has_all(value_set, domains):
        held.append(column.isNotNull())
        return _any(held) if len(held) == 1 else _constant(holds=True)
    if domains == (values.TEXT,):
        part = _of_text(text, _TextColumn(column, is_padded=attribute.is_padded))
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
        elif domain == values.TIME:
            yield _of_times(begin, end, column)
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


_SAME_CALENDAR_US: Final = -2_208_816_000 * 10**6
"""1900-01-03: from here on all calendars of Java agree, and two days before it all time zones."""


def _of_times(begin: Cut, end: Cut, column: Column) -> Column:
    """Returns the predicate of an interval of times.

    Sources of files get comparisons of the column alone, and may order older times by another
    calendar. Older bounds are compared as microseconds, which no source gets.
    """
    low, high = _first(begin, values.TIME_MIN_US), values.TIME_MAX_US
    if end[0] == values.TIME:
        high = _first(end, values.TIME_MIN_US) - 1
    micros, common = F.unix_micros(column), _time(_SAME_CALENDAR_US)
    found = column < common if high < _SAME_CALENDAR_US else None
    one: Column = micros == low if low < _SAME_CALENDAR_US else column == _time(low)
    if low == high and (found is not None or low % 1000 == 0):
        return one if found is None else found & one
    at_least = column >= _time(low) if low >= _SAME_CALENDAR_US else micros >= low
    return at_least & (_at_most(column, high) if found is None else found & (micros <= high))


def _at_most(column: Column, time_us: int) -> Column:
    """Returns the predicate of times up to one. Before Spark 4.2 the statistics of ORC files have
    milliseconds, and a bound within one hides rows: sources get the next one.
    """
    above = -(-time_us // 1000) * 1000
    found: Column = column <= _time(above)
    return found if above == time_us else found & (F.unix_micros(column) <= time_us)


def _time(time_us: int) -> Column:
    return F.timestamp_micros(F.lit(time_us))


_ENDS: Final = {frames.INTEGER: _integers, frames.FLOAT: _doubles, frames.DOUBLE: _doubles}
"""The functions that bound an interval, by the kind of a column."""


def _first(cut: Cut, otherwise: float) -> Any:
    return cut[1] if len(cut) == 2 else otherwise


class _TextColumn:
    """A column of texts, compared by its bytes.

    Sources of files get comparisons of `raw` alone, and their constants as Java's strings: bytes
    that are no UTF-8 are replaced there, ORC orders by UTF-16, and Spark pads those of a CHAR. Only
    ASCII is safe, also where the texts of files are no UTF-8. A bound that is not ASCII is compared
    as BINARY, which no source gets, beside the next ASCII bound for the statistics of files.
    """

    def __init__(self, column: Column, *, is_padded: bool) -> None:
        self.raw, self.binary = column, column.cast("binary")
        self._is_padded = is_padded

    def equals(self, text: bytes) -> Column:
        if self._is_safe(text):
            return self.raw == text.decode()
        return self._beside(self.binary == _binary(text), text, text)

    def between(self, low: bytes, end: bytes | None) -> Column:
        """Returns the predicate of texts from `low`, and below `end`."""
        found = self.raw.isNotNull()
        if low:
            at_least = self._is_safe(low)
            found = self.raw >= low.decode() if at_least else self.binary >= _binary(low)
        if end is not None:
            below = self._is_safe(end)
            found &= self.raw < end.decode() if below else self.binary < _binary(end)
        return self._beside(found, low, end)

    def holds(self, function: Any, text: bytes) -> Column:
        if self._is_safe(text):
            return function(self.raw, F.lit(text.decode()))  # type: ignore[no-any-return]
        return function(self.binary, _binary(text))  # type: ignore[no-any-return]

    def _is_safe(self, text: bytes) -> bool:
        return text.isascii() and not self._is_padded

    def _beside(self, exact: Column, low: bytes, end: bytes | None) -> Column:
        """Returns a predicate with wider bounds in ASCII, where its own are not."""
        if self._is_padded:
            return exact
        if not low.isascii():
            exact &= self.raw >= _ascii_before(low)
        if end is not None and not end.isascii() and (above := _ascii_after(end)):
            exact &= self.raw < above
        return exact


def _ascii_before(text: bytes) -> str:
    """Returns an ASCII text below one that is not: no ASCII follows its beginning later."""
    return _ascii_beginning(text) + "\x7f"


def _ascii_after(text: bytes) -> str:
    """Returns the least ASCII text above all that begin as one that is not; "" if there is none."""
    beginning = _ascii_beginning(text).rstrip("\x7f")
    return beginning[:-1] + chr(ord(beginning[-1]) + 1) if beginning else ""


def _ascii_beginning(text: bytes) -> str:
    return text[: next(place for place, each in enumerate(text) if each > 0x7F)].decode()


def _binary(text: bytes) -> Column:
    return F.lit(bytearray(text))


def _of_text(text: Language, column: _TextColumn) -> list[Column] | None:
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


def _of_interval(begin: Cut, end: Cut | None, column: _TextColumn) -> Column:
    first = line.first_key(begin)[1]
    assert isinstance(first, bytes)
    if end is not None and line.cut_after((values.TEXT, first)) == end:
        return column.equals(first)
    return column.between(first, None if end is None else _first(end, math.nan))


def _of_atom(of: Literal, column: _TextColumn) -> list[Column] | None:
    function = {"suffix": F.endswith, "contains": F.contains}.get(of.atom.operator)
    if function is None:
        return None
    constant: Any = of.atom.constant
    held = column.holds(function, constant)
    return [held if of.positive else ~held]


def _any(held: list[Column]) -> Column:
    return reduce(or_, held) if held else _constant(holds=False)
