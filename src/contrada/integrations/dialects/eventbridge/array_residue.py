"""`ArrayResidue`: patterns that require absence within arrays, decided as AWS does.

AWS visits the fields of a pattern in the order of their names. For each it takes a value of the
event that is in no other element of an array than the previous values; `exists: false` requires
that the event has no such value. So absence depends on the previous fields. Filters cannot express
this, as each covers itself with a further constraint: they match whenever AWS does, and this
residue decides.

        {"e": [{"f": 1}, {"l": 2}]}
        {"e": {"f": [1], "l": [{"exists": false}]}}      matches: the element of `f` has no `l`
        {"e": {"l": [{"exists": false}]}}                does not: some element has an `l`

Source: AWS Event Ruler, README, "JSON Array Matching".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, product
from typing import Any, Final, TypeAlias

from contrada.errors import ContradaError, LimitError
from contrada.integrations.dialects.eventbridge.eventbridge_events import JSON_TYPE, value_of_json
from contrada.integrations.dialects.json_text import check_depth, decode_json
from contrada.integrations.dialects.kleene import filters_of
from contrada.model.algebra.expression import CONJUNCTIONS_MAX, Formula, Member, Or
from contrada.model.algebra.notification import Notification
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import ABSENT_KEY, Key, key_of
from contrada.model.languages.decision import safe_answers

VALUES_TRIED_MAX: Final = 300_000
"""Values tried for one event and pattern with `exists: false`, after each choice of elements of
arrays: half a second. Beyond it: the event is taken to match, counted in `safe_answers` as
`eventbridge.arrays`."""

Elements: TypeAlias = frozenset[tuple[int, int]]
"""Arrays by number, each with the position of the element that contains a value."""

ValuesByName: TypeAlias = Mapping[str, list[tuple[Key, Elements]]]
"""The values of an event by name."""

FieldConstraints: TypeAlias = tuple[tuple[str, ValueSet], ...]
"""The sets that fields must be in, in the order of their names."""


@dataclass(frozen=True, slots=True)
class ArrayResidue:
    """Decides a pattern on the whole event, which is the body of a notification.

    A notification without such a body is an event of its attributes, without arrays of objects.
    """

    alternatives: tuple[FieldConstraints, ...]

    def __call__(self, notification: Notification) -> bool:
        """Whether the event matches. Cost: the alternatives, and the choices of elements."""
        is_event = notification.content_type == JSON_TYPE
        fields = _fields_in(notification.body) if is_event else None
        if fields is None:
            keys = {name: notification.keys_of(name) for name in notification}
            fields = {name: [(key, frozenset()) for key in each] for name, each in keys.items()}
        return any(_holds(each, fields) for each in self.alternatives)


def residue_of(condition: Formula) -> ArrayResidue | None:
    """Returns the residue of a condition; None if filters are exact."""
    members = list(_members(condition))  # Alternatives may constrain the same field.
    names = {each.name for each in members}
    # A field without a dot in its name is in no array, unless there are constraints on its content:
    # only then can its values be in other elements than those of another field.
    is_absent = any("." in each.name and each.values.holds(ABSENT_KEY) for each in members)
    if not is_absent and not _has_content(names):
        return None
    if filters_of(condition) > CONJUNCTIONS_MAX:
        raise LimitError("CONJUNCTIONS_MAX", CONJUNCTIONS_MAX)
    alternatives = [
        # Names are compared as in Java.
        sorted(each, key=lambda member: member.name.encode("utf-16-be"))
        for each in _alternatives(condition)
    ]
    if not is_absent and not any(
        _has_content({part.name for part in each}) for each in alternatives
    ):
        return None
    return ArrayResidue(
        tuple(tuple((each.name, each.values) for each in asked) for asked in alternatives)
    )


def _has_content(names: set[str]) -> bool:
    """Whether one of the fields may lie in another."""
    return any(
        name[:end] in names
        for name in names
        for end, character in enumerate(name)
        if character == "."
    )


def _members(condition: Formula) -> Iterator[Member]:
    if isinstance(condition, Member):
        yield condition
    else:
        for part in condition.parts:
            yield from _members(part)


def _alternatives(condition: Formula) -> Iterator[tuple[Member, ...]]:
    if isinstance(condition, Member):
        yield (condition,)
    elif isinstance(condition, Or):
        for part in condition.parts:
            yield from _alternatives(part)
    else:
        for chosen in product(*(list(_alternatives(part)) for part in condition.parts)):
            yield tuple(member for members in chosen for member in members)


def _holds(asked: FieldConstraints, fields: ValuesByName) -> bool:
    """Whether a choice of elements satisfies all constraints."""
    waiting: list[tuple[int, Elements]] = [(0, frozenset())]
    seen = set(waiting)
    tried = 0
    while waiting:
        place, chosen = waiting.pop()
        if place == len(asked):
            return True
        name, values = asked[place]
        given = fields.get(name, ())
        tried += len(given) + 1
        if tried > VALUES_TRIED_MAX:
            safe_answers.add("eventbridge.arrays")
            return True
        is_there = False
        following: set[Elements] = set()
        for key, inside in given:
            joined = chosen | inside
            if len(joined) > len(dict(joined)):
                continue  # It is in another element of an array.
            is_there = True
            if values.holds(key):
                following.add(joined)
        if not is_there and values.holds(ABSENT_KEY):
            following.add(chosen)
        new = {(place + 1, each) for each in following} - seen
        seen |= new
        waiting += new
    return False


@lru_cache(maxsize=1)  # An event becomes several notifications, and meets several patterns.
def _fields_in(body: bytes) -> ValuesByName | None:
    """Returns the values of an event; None if the body is no event."""
    try:
        content = decode_json(body, exact=True)
        if not isinstance(content, dict):
            return None
        fields: dict[str, list[tuple[Key, Elements]]] = {}
        for name, key, inside in _values_in(content, None, frozenset(), 1, count()):
            fields.setdefault(name, []).append((key, inside))
        return fields
    except ContradaError:
        return None


def _values_in(
    content: Any, name: str | None, inside: Elements, depth: int, arrays: Iterator[int]
) -> Iterator[tuple[str, Key, Elements]]:
    """Yields the values of an event by name, each with the elements around it."""
    check_depth(depth)
    if isinstance(content, dict):
        for step, inner in content.items():
            path = step if name is None else f"{name}.{step}"
            yield from _values_in(inner, path, inside, depth + 1, arrays)
        return
    assert name is not None, "an event is an object"
    if not isinstance(content, list):
        yield name, key_of(value_of_json(name, content)), inside
        return
    array = next(arrays)
    for place, inner in enumerate(content):
        is_element = isinstance(inner, dict | list)
        around = inside | {(array, place)} if is_element else inside
        yield from _values_in(inner, name, around, depth + 1, arrays)
