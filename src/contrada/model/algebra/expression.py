"""Conditions of `and`, `or` and `not` over attributes, and their conversion to unions of boxes.

Negation moves down to the members and complements their sets, so `not` of a member is true for an
absent attribute unless its set includes *absent*.

Invariant: a notification with one value per attribute is in one of the boxes exactly if the
condition holds. One with several values is in a box if the condition holds for some choice of one
value per attribute, as everywhere in the algebra.

The values of one attribute remain one set. Many exceptions, `not (a and b)`, become about as many
filters, not a power of two: their boxes are subtracted (`boxes.subtract_boxes`) by the relations
that their operators show without automata.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, TypeAlias

from contrada.errors import LimitError
from contrada.model.algebra import boxes
from contrada.model.algebra.boxes import Box as Sets
from contrada.model.algebra.boxes import FormRelations
from contrada.model.algebra.value_set import ValueSet, intersection, union

CONJUNCTIONS_MAX: Final = 10_000
"""Filters of one condition. Beyond it: LimitError; a rule of a dialect is refused."""

MEMBERS_MAX: Final = 1_000_000
"""Value sets of the filters of a condition. Beyond it: LimitError; a rule is refused."""

CHOICES_TRIED_MAX: Final = 8
"""Choices of alternatives that are all enumerated, so that small conditions become the filters that
a person would write. Beyond it: the filters are made to overlap less."""

MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons with their two sides exchanged."""


@dataclass(frozen=True, slots=True)
class Member:
    """The attribute's value, or its absence, is in the set."""

    name: str
    values: ValueSet


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold. Without parts: true."""

    parts: tuple["Formula", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds. Without parts: false."""

    parts: tuple["Formula", ...]


Formula: TypeAlias = Member | And | Or

TRUE: Final = And(())
FALSE: Final = Or(())


def negation(condition: Formula) -> Formula:
    """Returns the condition that holds exactly where this one does not."""
    if isinstance(condition, Member):
        return Member(condition.name, ~condition.values)
    dual = Or if isinstance(condition, And) else And
    return dual(tuple(negation(part) for part in condition.parts))


def conjunctions(condition: Formula) -> list[Sets]:
    """Returns the boxes of which one holds exactly where the condition does.

    Cost: the number of boxes, at most `CONJUNCTIONS_MAX`, and their sets, at most `MEMBERS_MAX`;
    beyond these, and beyond `boxes.FORMS_WORK_MAX`, LimitError is raised.
    """
    return _conjunctions(condition, {})


def _conjunctions(condition: Formula, known: dict[int, list[Sets]]) -> list[Sets]:
    """As `conjunctions`; `known` has the results by id, so a repeated part is computed once."""
    if isinstance(condition, Member):
        return [{condition.name: condition.values}]
    found = known.get(id(condition))
    if found is None:
        distinct = {id(part): part for part in _flatten_parts(condition)}.values()
        parts = [_conjunctions(part, known) for part in distinct]
        found = _any_of(parts) if isinstance(condition, Or) else _all_of(parts)
        known[id(condition)] = found
    return found


def _flatten_parts(condition: And | Or) -> Iterator[Formula]:
    for part in condition.parts:
        while not isinstance(part, Member) and len(part.parts) == 1:
            part = part.parts[0]
        if isinstance(part, Member) or not isinstance(part, type(condition)):
            yield part
        else:
            yield from _flatten_parts(part)


def _any_of(parts: Iterable[list[Sets]]) -> list[Sets]:
    """Returns all alternatives; those that test one and the same attribute are joined into one."""
    alone: dict[str, dict[int, ValueSet]] = {}  # by id: `named` often counts once
    several: dict[int, Sets] = {}
    for sets in (each for part in parts for each in part):
        if len(sets) == 1:
            [(name, values)] = sets.items()
            alone.setdefault(name, {})[id(values)] = values
        else:
            several[id(sets)] = sets
    found = [{name: union(each.values())} for name, each in alone.items()]
    return checked((*found, *several.values()))


def _all_of(parts: list[list[Sets]]) -> list[Sets]:
    """Returns every choice of one alternative per part in which each attribute can have a value."""
    certain = _joined(part[0] for part in parts if len(part) == 1)
    # An alternative without sides holds everywhere, so its choice does.
    choices = [part for part in parts if len(part) != 1 and all(part)]
    if len(choices) > 1 and prod(map(len, choices)) > CHOICES_TRIED_MAX:
        found = checked(_overlapping_less(certain, _without_idle(choices)))
    else:
        found = checked(_joined((certain, *chosen)) for chosen in product(*choices))
    # Makes no decision, which could be costly.
    return [
        sets for sets in found if all(each.line or each.text is not None for each in sets.values())
    ]


def _without_idle(choices: list[list[Sets]]) -> list[list[Sets]]:
    """Returns the choices without those that have all alternatives of another one."""
    kept: dict[frozenset[int], list[Sets]] = {}
    for choice in sorted(choices, key=len):
        form = frozenset(map(id, choice))
        if not any(other <= form for other in kept):
            kept[form] = choice
    return list(kept.values())


def _overlapping_less(certain: Sets, choices: list[list[Sets]]) -> Iterator[Sets]:
    """Returns boxes of which one holds if `certain` and an alternative of each choice hold.

    A choice of alternatives that test one attribute each is an exception: its complement is a box,
    which is subtracted. Of the other choices every alternative is used.
    """
    asking = FormRelations()
    exceptions = [
        _joined({name: ~values} for sets in choice for name, values in sets.items())
        for choice in choices
        if max(map(len, choice)) == 1
    ]
    several = [choice for choice in choices if max(map(len, choice)) > 1]
    for chosen in product(*several):
        asking.take(sum(map(len, chosen)))
        yield from boxes.subtract_boxes(_joined((certain, *chosen)), exceptions, asking)


def _joined(conjunctions: Iterable[Sets]) -> Sets:
    sets: dict[str, list[ValueSet]] = {}
    for each in conjunctions:
        for name, values in each.items():
            sets.setdefault(name, []).append(values)
    return {name: intersection(each) for name, each in sets.items()}


def checked(found: Iterable[Sets]) -> list[Sets]:
    """Returns the conjunctions. Raises LimitError as soon as they, or their sets, are too many."""
    taken: list[Sets] = []
    members = 0
    for sets in found:
        taken.append(sets)
        members += len(sets)
        if len(taken) > CONJUNCTIONS_MAX:
            raise LimitError("CONJUNCTIONS_MAX", CONJUNCTIONS_MAX)
        if members > MEMBERS_MAX:
            raise LimitError("MEMBERS_MAX", MEMBERS_MAX)
    return taken
