"""Condensed interests: one set of filters that covers those of a whole subsystem.

A higher line represents more participants, and is evaluated more often. So its filters may be less
accurate. Each accuracy covers the one before it: condensed filters may match additional events,
which costs traffic, but miss none.

    EXACT        the filters themselves
    ATTRIBUTES   intervals of values only, without other operators on text
    SELECTIVE    one filter for related types, without attributes on which they differ
    TYPES        type marks only

Source: EPFL 2503 §6.4.2 (regroup patterns), §6.6.1 (filter coverage).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from contrada.errors import EncodingError, LimitError, UnknownOperatorError
from contrada.gossip.gossip_messages import INTERESTS_BYTES_MAX
from contrada.model import Filter, FilterSet, Notification, ValueSet, from_msgpack, to_msgpack
from contrada.model.algebra.simplification import simplify
from contrada.model.algebra.value_set import of_cuts
from contrada.model.domains import line
from contrada.model.domains.values import MARK_PREFIX
from contrada.model.languages.work_budget import Work, spend

INTERESTS_KEPT_MAX: Final = 16_384
"""Cached decoded sets of filters. Beyond it: the least recently used one is decoded again."""


class Accuracy(StrEnum):
    """The accuracy of a subsystem's filters in the lines above it."""

    EXACT = "exact"
    ATTRIBUTES = "attributes"
    SELECTIVE = "selective"
    TYPES = "types"


CONDENSING_WORK_MAX: Final = 100_000
"""Steps, of about 1 µs, to condense a table's filters. Beyond it: a lower accuracy is used."""

CONDENSED_TEXTS_MAX: Final = 64
"""Filters of a table with texts that are no intervals. Beyond it: a lower accuracy is used."""

_NO_BOUND: Final = 2**48
_ACCURACIES: Final = tuple(Accuracy)


def condense(filters: Iterable[FilterSet], accuracy: Accuracy = Accuracy.EXACT) -> FilterSet:
    """Returns filters that cover all the filters, at an accuracy. Cost: as of `simplify`.

    Members have a canonical order, so that equal filters give equal bytes. Raises LimitError beyond
    a surrounding budget of work.
    """
    members = [member for each in filters for member in each.filters]
    if accuracy is Accuracy.TYPES:
        members = [Filter.of_sets(_marks(each)) for each in members]
    elif accuracy is not Accuracy.EXACT:
        members = [
            Filter.of_sets({name: _intervals(values) for name, values in each.sets.items()})
            for each in members
        ]
    if accuracy is Accuracy.SELECTIVE:
        members = _selective(members)
    members = sorted(simplify(members).filters, key=to_msgpack)
    return FilterSet(members)


def encode_interests(filters: Sequence[FilterSet], accuracy: Accuracy = Accuracy.EXACT) -> bytes:
    """Returns the bytes of `condense`, less accurate where they are too many, or take too long.

    Where even types exceed `INTERESTS_BYTES_MAX`, everything is wanted.
    """
    members = (member for each in filters for member in each.filters)
    texts = sum(any(it.text is not None for it in member.sets.values()) for member in members)
    for each in _ACCURACIES[_ACCURACIES.index(accuracy) :]:
        if each is Accuracy.EXACT and texts > CONDENSED_TEXTS_MAX:
            continue
        # Decisions about texts are cached, so a second one costs less: a budget could let one
        # delegate finish, and stop another one before it.
        work = CONDENSING_WORK_MAX if each is not Accuracy.EXACT or not texts else _NO_BOUND
        try:
            with Work("CONDENSING_WORK_MAX", work):
                packed = to_msgpack(condense(filters, each))
        except LimitError:
            continue
        if len(packed) <= INTERESTS_BYTES_MAX:
            return packed
    return to_msgpack(FilterSet([Filter({})]))


@lru_cache(maxsize=INTERESTS_KEPT_MAX)
def read_interests(packed: bytes) -> FilterSet:
    """Returns the filters of a line. Raises EncodingError where the bytes are no filter set."""
    found = from_msgpack(packed)
    if not isinstance(found, FilterSet):
        raise EncodingError("gossip", "the interests of a line are a set of filters")
    return found


def is_interested(filters: FilterSet, event: Notification) -> bool:
    """Whether filters match the event, ◁ of the thesis; one with an unknown operator does."""
    try:
        return filters.matches(event)
    except UnknownOperatorError:
        return True


def _intervals(values: ValueSet) -> ValueSet:
    """Returns the set itself if it consists of intervals; else with all text added."""
    return values if values.text is None else of_cuts(line.union(values.line, line.ALL_TEXT))


def _marks(of: Filter) -> dict[str, ValueSet]:
    return {name: values for name, values in of.sets.items() if name.startswith(MARK_PREFIX)}


def _selective(filters: Sequence[Filter]) -> list[Filter]:
    """Returns one filter for each most general type, with the common sets of that type."""
    kinds = [_marks(each) for each in filters]
    groups: list[tuple[dict[str, ValueSet], list[Filter]]] = []
    for at in sorted(range(len(filters)), key=lambda at: (len(kinds[at]), at)):
        for kind, members in groups:
            spend(1)
            # Filters without a type are a group of their own, without subtypes.
            if bool(kind) == bool(kinds[at]) and _agrees(kind, kinds[at]):
                members.append(filters[at])
                break
        else:
            groups.append((kinds[at], [filters[at]]))
    return [_join_members(kind, members) for kind, members in groups]


def _agrees(kind: Mapping[str, ValueSet], of: Mapping[str, ValueSet]) -> bool:
    """Returns whether these sets contain each set of a kind, as in a subtype of it."""
    return all(name in of and of[name].form() == values.form() for name, values in kind.items())


def _join_members(kind: Mapping[str, ValueSet], members: Sequence[Filter]) -> Filter:
    first, *others = members
    common = {
        name: values
        for name, values in first.sets.items()
        if all(_agrees({name: values}, each.sets) for each in others)
    }
    return Filter.of_sets({**common, **kind})
