"""Conditions of `and`, `or` and `not` over attributes, and the filter set that each one is.

A member condition says that an attribute's value lies in a value set, which may hold *absent*.
Negation goes down to these and takes the complements of their sets, so `not` of one holds where
the attribute is absent, unless the set held absent.

Invariant: for notifications with one value per attribute, the filter set matches exactly where
the condition holds. With several values a negated member would ask for none of them, but filters
ask for one: dialects that allow both say what they do.

Values of one attribute stay one set, so that a thousand alternatives of it are one filter. And
many exceptions, `not (a and b)`, become about as many filters, not a power of two (`_parted`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model import language, line
from contrada.model.decision import EMPTY, find
from contrada.model.filter import Filter, FilterSet
from contrada.model.language import Language, atoms_of
from contrada.model.valueset import ValueSet, intersection, union

CONJUNCTIONS_MAX: Final = 10_000
"""Filters that one condition may become. Beyond it the rule is refused."""


CHOICES_TRIED_MAX: Final = 8
"""Choices of alternatives that are all made, so that small conditions become the filters that one
would write. Beyond it the filters are made to overlap less."""


PAIRS_ASKED_MAX: Final = 2_500
"""Pairs of operators on text, of two sets, that are asked whether the one set is in the other."""

RELATIONS_ASKED_MAX: Final = 300_000
"""Questions whether one set of a condition lies in another, pairs of operators counted with them.
Beyond it the rule is refused."""


@dataclass(frozen=True, slots=True)
class Member:
    """The attribute's value, or its absence, is in the set."""

    name: str
    values: ValueSet


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold. Without parts: true."""

    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Some:
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
    parts = [_conjunctions(part) for part in _flat(condition)]
    return _any_of(parts) if isinstance(condition, Some) else _all_of(parts)


def _flat(condition: Every | Some) -> Iterator[Condition]:
    """The parts, with those of a part of the same kind in its place."""
    for part in condition.parts:
        if isinstance(part, Member) or not isinstance(part, type(condition)):
            yield part
        else:
            yield from _flat(part)


def _any_of(parts: Iterable[list[_Sets]]) -> list[_Sets]:
    """All alternatives; those that test one attribute only, and the same one, become one."""
    alone: dict[str, dict[int, ValueSet]] = {}  # by id: what is named often counts once
    several: list[_Sets] = []
    for sets in (each for part in parts for each in part):
        if len(sets) == 1:
            [(name, values)] = sets.items()
            alone.setdefault(name, {})[id(values)] = values
        else:
            several.append(sets)
    found = [{name: union(each.values())} for name, each in alone.items()] + several
    _check_number(len(found))
    return found


def _all_of(parts: list[list[_Sets]]) -> list[_Sets]:
    """Every choice of one alternative per part, but those in which an attribute has no value."""
    certain = _joined(part[0] for part in parts if len(part) == 1)
    choices = [part for part in parts if len(part) != 1]
    if prod(map(len, choices)) > CHOICES_TRIED_MAX:
        return _parted(certain, choices)
    found = [certain]
    for alternatives in choices:
        joined = (_joined(pair) for pair in product(found, alternatives))
        found = [sets for sets in joined if not _is_plainly_empty(sets)]
    return [sets for sets in found if not _is_plainly_empty(sets)]


def _parted(certain: _Sets, choices: list[list[_Sets]]) -> list[_Sets]:
    """The same where the choices would be many: conjunctions that overlap less.

    Behind an alternative that tests one attribute only, the others are taken where it fails.
    What fails is often a few values, for which the alternatives of other parts hold anyway, and
    such parts are then left out. So n parts `a is not A_n or b is not B_n` become about n + 1
    conjunctions, not 2^n.
    """
    boxes = [_Box()]
    relations = _Relations()
    for alternatives in choices:
        ordered = sorted(alternatives, key=len)
        boxes = [part for box in boxes for part in _split(box, ordered, relations)]
        _check_number(len(boxes))
    sets = ({name: intersection(each) for name, each in box.items()} for box in boxes)
    found = [_joined((certain, each)) for each in sets]
    return [sets for sets in found if not _is_plainly_empty(sets)]


def _split(box: "_Box", alternatives: list[_Sets], relations: "_Relations") -> Iterator["_Box"]:
    if any(relations.implies(box, sets) for sets in alternatives):
        yield box
        return
    for sets in alternatives:
        part = relations.narrowed(box, sets)
        if part is not None:
            yield part
        if len(sets) == 1:
            rest = relations.narrowed(box, relations.opposite(sets))
            if rest is None:
                return
            box = rest


class _Box(dict[str, tuple[ValueSet, ...]]):
    """A conjunction whose sets are not intersected yet."""


class _Relations:
    """Which of the sets of a condition lie in which others; each is decided once."""

    def __init__(self) -> None:
        self._opposites: dict[int, tuple[ValueSet, ValueSet]] = {}
        """By id, a set and its complement; so what is known by its id is kept."""
        self._subsets: dict[tuple[int, int], bool] = {}
        self._asked = 0

    def opposite(self, sets: _Sets) -> _Sets:
        """What fails a test of one attribute."""
        [(name, values)] = sets.items()
        return {name: self._complement(values)}

    def implies(self, box: _Box, sets: _Sets) -> bool:
        """Whether one set of the box on each attribute lies in the set of that attribute."""
        return all(
            any(self._within(known, values) for known in box.get(name, ()))
            for name, values in sets.items()
        )

    def narrowed(self, box: _Box, sets: _Sets) -> _Box | None:
        """Both together, or None where two sets of an attribute have no value in common."""
        part = _Box(box)
        for name, values in sets.items():
            known = box.get(name, ())
            if any(self._within(each, self._complement(values)) for each in known):
                return None
            if not any(self._within(each, values) for each in known):
                needed = (each for each in known if not self._within(values, each))
                part[name] = (*needed, values)
        return part

    def _complement(self, values: ValueSet) -> ValueSet:
        known = self._opposites.get(id(values))
        if known is None:
            opposite = ~values
            known = self._opposites[id(values)] = (values, opposite)
            self._opposites[id(opposite)] = (opposite, values)
        return known[1]

    def _within(self, inner: ValueSet, outer: ValueSet) -> bool:
        """Raises LimitError beyond RELATIONS_ASKED_MAX."""
        reverse = (id(self._complement(outer)), id(self._complement(inner)))
        pair = min((id(inner), id(outer)), reverse)  # of which both are so or neither
        known = self._subsets.get(pair)
        if known is None:
            known = self._subsets[pair] = self._lies_in(inner, outer)
        return known

    def _lies_in(self, inner: ValueSet, outer: ValueSet) -> bool:
        """Whether the one set is known to lie in the other. No also where it would cost to tell."""
        (cuts_a, text_a), (cuts_b, text_b) = inner.parts(), outer.parts()
        pairs = len(list(atoms_of(text_a))) * len(list(atoms_of(text_b)))
        self._asked += 1 + min(pairs, PAIRS_ASKED_MAX)
        if self._asked > RELATIONS_ASKED_MAX:
            raise LimitError("RELATIONS_ASKED_MAX", RELATIONS_ASKED_MAX)
        if pairs > PAIRS_ASKED_MAX or not line.includes(cuts_b, cuts_a):
            return False
        return _text_lies_in(text_a, text_b)


def _text_lies_in(inner: Language, outer: Language) -> bool:
    """Asks operators of the two sets in pairs only."""
    if isinstance(inner, language.Some):
        return all(_text_lies_in(part, outer) for part in inner.parts)
    if isinstance(outer, language.Every):
        return all(_text_lies_in(inner, part) for part in outer.parts)
    if isinstance(inner, language.Every):
        return any(_text_lies_in(part, outer) for part in inner.parts)
    if isinstance(outer, language.Some):
        return any(_text_lies_in(inner, part) for part in outer.parts)
    return find(language.every((inner, language.negation(outer)))) == EMPTY


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
