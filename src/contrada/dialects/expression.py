"""Conditions of `and`, `or` and `not` over attributes, and the filter set that each one is.

A member condition says that an attribute's value lies in a value set, which may hold *absent*.
Negation goes down to these and takes the complements of their sets, so `not` of one holds where
the attribute is absent, unless the set held absent.

Invariant: for notifications with one value per attribute, the filter set matches exactly where
the condition holds. With several values a negated member would ask for none of them, but filters
ask for one: dialects that allow both say what they do.

Values of one attribute stay one set, so that a thousand alternatives of it are one filter.
"""

from collections.abc import Iterable
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from contrada.errors import LimitError
from contrada.model.filter import Filter, FilterSet
from contrada.model.valueset import ValueSet, intersection, union

CONJUNCTIONS_MAX: Final = 10_000
"""Filters that one condition may become. Beyond it the rule is refused."""


class Member(NamedTuple):
    """The attribute's value, or its absence, is in the set."""

    name: str
    values: ValueSet


class Every(NamedTuple):
    """All parts hold. Without parts: true."""

    parts: tuple["Condition", ...]


class Some(NamedTuple):
    """At least one part holds. Without parts: false."""

    parts: tuple["Condition", ...]


Condition: TypeAlias = Member | Every | Some

TRUE: Final = Every(())
FALSE: Final = Some(())

_Sets: TypeAlias = dict[str, ValueSet]


def negation(condition: Condition) -> Condition:
    """The condition that holds exactly where this one does not."""
    if isinstance(condition, Member):
        return Member(condition.name, ~condition.values)
    dual = Some if isinstance(condition, Every) else Every
    return dual(tuple(negation(part) for part in condition.parts))


def filter_set(condition: Condition) -> FilterSet:
    """The filters of which one matches exactly where the condition holds.

    Cost: the number of filters, at most `CONJUNCTIONS_MAX`, beyond which LimitError is raised.
    """
    return FilterSet(Filter(sets) for sets in _conjunctions(condition))


def _conjunctions(condition: Condition) -> list[_Sets]:
    if isinstance(condition, Member):
        return [{condition.name: condition.values}]
    parts = [_conjunctions(part) for part in condition.parts]
    return _any_of(parts) if isinstance(condition, Some) else _all_of(parts)


def _any_of(parts: Iterable[list[_Sets]]) -> list[_Sets]:
    """All alternatives; those that test one attribute only, and the same one, become one."""
    alone: dict[str, list[ValueSet]] = {}
    several: list[_Sets] = []
    for sets in (each for part in parts for each in part):
        if len(sets) == 1:
            [(name, values)] = sets.items()
            alone.setdefault(name, []).append(values)
        else:
            several.append(sets)
    found = [{name: union(each)} for name, each in alone.items()] + several
    _check_number(len(found))
    return found


def _all_of(parts: list[list[_Sets]]) -> list[_Sets]:
    """Every choice of one alternative per part, but those in which an attribute has no value."""
    certain = _joined(part[0] for part in parts if len(part) == 1)
    choices = [part for part in parts if len(part) != 1]
    found = [certain]
    for alternatives in choices:
        _check_number(len(found) * len(alternatives))
        joined = (_joined(pair) for pair in product(found, alternatives))
        found = [sets for sets in joined if not _is_plainly_empty(sets)]
    return [sets for sets in found if not _is_plainly_empty(sets)]


def _joined(conjunctions: Iterable[_Sets]) -> _Sets:
    sets: dict[str, list[ValueSet]] = {}
    for each in conjunctions:
        for name, values in each.items():
            sets.setdefault(name, []).append(values)
    return {name: intersection(each) for name, each in sets.items()}


def _is_plainly_empty(sets: _Sets) -> bool:
    """Whether some set is empty and shows it. No decision is made: it could cost much."""
    return any(not values.line and values.text is None for values in sets.values())


def _check_number(conjunctions: int) -> None:
    if conjunctions > CONJUNCTIONS_MAX:
        raise LimitError("CONJUNCTIONS_MAX", CONJUNCTIONS_MAX, conjunctions)
