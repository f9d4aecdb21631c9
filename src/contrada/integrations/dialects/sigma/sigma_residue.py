"""`RuleResidue`: comparisons of two fields, and parts of times, which no filter expresses.

Each comparison is an attribute of its own in the rule's condition, true where it holds, false where
it does not, and absent where it cannot be made. So negation and joins remain those of the algebra.
The filters are the condition without these attributes: they cover the rule. The residue evaluates
the comparisons of a notification, and the whole condition.

A comparison of two fields is that of the first with the value of the second as a literal: text
without case, numbers also with their shortest text. It does not hold if one of them is absent or
null. Parts are those of times in UTC; texts have none. `week` is that of ISO 8601.

Source: Sigma specification 2.1.0, appendix modifiers (`fieldref`, time modifiers).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import product
from math import prod
from typing import Final

from contrada.errors import LimitError
from contrada.integrations.dialects.sigma.sigma_refusals import field_name
from contrada.integrations.dialects.sigma.sigma_values import (
    FieldReference,
    Spelling,
    Text,
    TimePart,
    equal,
    modify,
    set_of,
)
from contrada.model.algebra import sets
from contrada.model.algebra.expression import Formula, Member, conjunctions
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import EVERYTHING, NOTHING, PRESENT, ValueSet
from contrada.model.domains.line import domain
from contrada.model.domains.values import ABSENT_KEY, TIME, Key, Value, key_of, value_of

COMPARED_PAIRS_MAX: Final = 10_000
"""Pairs of values that the comparisons of a Sigma rule have in a notification, 10 ms. Beyond it: it
does not match, and it is counted as a failure of an operator."""

_NAMES: Final = "@is.{}"  # Names of the system, which no rule has.
_TIMES: Final = ValueSet(domain(TIME))
_TRUE: Final = sets.eq(True)
_PRESENT: Final = PRESENT - sets.eq(None)

_PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "minute": lambda time: time.minute,
    "hour": lambda time: time.hour,
    "day": lambda time: time.day,
    "week": lambda time: time.isocalendar().week,
    "month": lambda time: time.month,
    "year": lambda time: time.year,
}


class RuleResidue:
    """The comparisons of one rule."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        """The name of each comparison, by its form in the rule."""
        self._outcomes: dict[str, Callable[[Notification], Iterator[bool]]] = {}
        self._fields: dict[str, tuple[str, ...]] = {}
        """The fields of each comparison."""
        self._needed: dict[str, dict[str, ValueSet]] = {}
        """The sets of attributes without which each comparison does not hold."""

    def comparison(self, name: str, value: FieldReference | TimePart, place: str) -> Formula:
        """Returns the condition that a comparison holds. Raises RefusedRuleError for no name."""
        outcomes: Callable[[Notification], Iterator[bool]]
        if isinstance(value, TimePart):
            fields: tuple[str, ...] = (name,)
            needed = {name: _TIMES}
            shown = f"{name}|{value.shown}"
            part, numbers = _PARTS[value.unit], value.numbers

            def outcomes(given: Notification) -> Iterator[bool]:
                for key in given.keys_of(name):
                    time = value_of(key) if key[0] == TIME else None
                    yield isinstance(time, datetime) and numbers.contains(part(time))

        else:
            other = field_name(value.field, place)
            fields = (name, other)
            needed = {name: _PRESENT, other: _PRESENT}
            changes = (*value.changes, *(("cased",) if value.cased else ()))
            shown = f"{'|'.join((name, 'fieldref', *changes))}: {other}"

            def outcomes(given: Notification) -> Iterator[bool]:
                accepted = {key: _accepted(value, key) for key in given.keys_of(other)}
                for key, second in product(given.keys_of(name), accepted):
                    yield accepted[second].holds(key)

        known = self._shown.setdefault(shown, _NAMES.format(len(self._shown)))
        self._outcomes[known], self._fields[known], self._needed[known] = outcomes, fields, needed
        return Member(known, _TRUE)

    def split(
        self, condition: Formula
    ) -> tuple[FilterSet, str, Callable[[Notification], bool] | None]:
        """Returns the filters that cover a condition, the text of the residue, and the residue.

        Cost and errors: as `expression.conjunctions`.
        """
        boxes = conjunctions(condition)
        outcomes = self._outcomes
        named = [{name: box[name] for name in outcomes if name in box} for box in boxes]
        filters = [self._cover(box) for box in boxes]
        used = {name for each in named for name in each}
        if not used:
            return FilterSet(filters), "", None

        compared = [self._fields[name] for name in used]

        def holds(given: Notification) -> bool:
            pairs = sum(prod(len(given.keys_of(name)) for name in each) for each in compared)
            if pairs > COMPARED_PAIRS_MAX:
                raise LimitError("COMPARED_PAIRS_MAX", COMPARED_PAIRS_MAX)
            keys = {name: _keys(outcomes[name](given)) for name in used}
            return any(
                all(any(map(values.holds, keys[name])) for name, values in needed.items())
                and each.matches(given)
                for each, needed in zip(filters, named, strict=True)
            )

        texts = "; ".join(text for text, name in self._shown.items() if name in used)
        return FilterSet([*dict.fromkeys(filters)]), texts, holds

    def _cover(self, box: Mapping[str, ValueSet]) -> Filter:
        """Returns the filter of a box without comparisons."""
        cover = {name: values for name, values in box.items() if name not in self._outcomes}
        for name, values in box.items():
            if name in self._outcomes and values == _TRUE:
                for other, needed in self._needed[name].items():
                    cover[other] = cover.get(other, EVERYTHING) & needed
        return Filter(cover)


def _keys(outcomes: Iterator[bool]) -> set[Key]:
    return {key_of(each) for each in outcomes} or {ABSENT_KEY}


def _accepted(reference: FieldReference, key: Key) -> ValueSet:
    """Returns the values that fit one value of the other field."""
    if key == ABSENT_KEY:
        return NOTHING
    value: Value = value_of(key)
    if value is None:
        return NOTHING
    if not isinstance(value, str):
        if reference.changes:
            return NOTHING
        return (
            equal(value, cased=reference.cased)
            if isinstance(value, int | float)
            else sets.eq(value)
        )
    [parts] = modify((value.encode(),) if value else (), reference.changes, Spelling({}))
    return set_of(Text(parts, reference.cased))
