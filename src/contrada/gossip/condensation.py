"""Condensing interests upwards: one set of filters that covers those of a whole subsystem.

The higher a line stands, the more it stands for, and the more often it is asked about. So filters
may be kept less accurately there. Each accuracy covers the one before it: what is condensed may
match more than anybody wants, which costs traffic, and never less.

    EXACT        what the filters match, and nothing else
    ATTRIBUTES   intervals of values only: no operator on text that is no interval is asked
    SELECTIVE    one filter for related types; an attribute of which they want different values
                 is not asked about
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
"""Sets of filters that were read and are kept, so that participants share equal ones. Beyond it:
one that was not asked for the longest is read anew."""


class Accuracy(StrEnum):
    """How much of the filters of a subsystem is kept above it."""

    EXACT = "exact"
    ATTRIBUTES = "attributes"
    SELECTIVE = "selective"
    TYPES = "types"


CONDENSING_WORK_MAX: Final = 100_000
"""Steps of about a microsecond to condense the filters of a table. Beyond it: they are
condensed more coarsely."""

CONDENSED_TEXTS_MAX: Final = 64
"""Filters of a table with operators on text that are no intervals. Beyond it: they are condensed
more coarsely."""

_NO_BOUND: Final = 2**48
_ACCURACIES: Final = tuple(Accuracy)


def condensed(filters: Iterable[FilterSet], accuracy: Accuracy = Accuracy.EXACT) -> FilterSet:
    """What covers all the filters, at an accuracy. Cost: as of `simplify`.

    Members come in an order of their own, so that all who condense the same in the same order get
    the same bytes. Raises LimitError where a budget of work is around it and not enough.
    """
    members = [member for each in filters for member in each.filters]
    if accuracy is Accuracy.TYPES:
        members = [Filter.of_sets(_marks(each)) for each in members]
    elif accuracy is not Accuracy.EXACT:
        members = [_intervals(each) for each in members]
    if accuracy is Accuracy.SELECTIVE:
        members = _selective(members)
    members = sorted(simplify(members).filters, key=to_msgpack)
    return FilterSet(members)


def packed_interests(filters: Sequence[FilterSet], accuracy: Accuracy = Accuracy.EXACT) -> bytes:
    """The bytes of `condensed`, less accurate where they would be too many, or take too long.

    Where even types are too many (`INTERESTS_BYTES_MAX`) everything is taken to be wanted.
    """
    texts = sum(_asks_text(member) for each in filters for member in each.filters)
    for each in _ACCURACIES[_ACCURACIES.index(accuracy) :]:
        if each is Accuracy.EXACT and texts > CONDENSED_TEXTS_MAX:
            continue
        # What is decided about texts is kept, so that to ask again costs less: no budget is around
        # it, else one delegate could finish what another, who asks it first, cannot.
        work = CONDENSING_WORK_MAX if each is not Accuracy.EXACT or not texts else _NO_BOUND
        try:
            with Work("CONDENSING_WORK_MAX", work):
                packed = to_msgpack(condensed(filters, each))
        except LimitError:
            continue
        if len(packed) <= INTERESTS_BYTES_MAX:
            return packed
    return to_msgpack(FilterSet([Filter({})]))


@lru_cache(maxsize=INTERESTS_KEPT_MAX)
def read_interests(packed: bytes) -> FilterSet:
    """The filters of a line. Raises EncodingError where the bytes are no set of filters."""
    found = from_msgpack(packed)
    if not isinstance(found, FilterSet):
        raise EncodingError("gossip", "the interests of a line are a set of filters")
    return found


def interested(filters: FilterSet, event: Notification) -> bool:
    """Whether somebody behind the filters wants the event: ◁ of the thesis.

    An operator that is not registered here cannot be decided: then the event counts as wanted.
    """
    try:
        return filters.matches(event)
    except UnknownOperatorError:
        return True


def _asks_text(of: Filter) -> bool:
    return any(values.text is not None for values in of.sets.values())


def _intervals(of: Filter) -> Filter:
    return Filter.of_sets({name: _interval_set(values) for name, values in of.sets.items()})


def _interval_set(values: ValueSet) -> ValueSet:
    """The set itself where it consists of intervals; else the set with all text added."""
    return values if values.text is None else of_cuts(line.union(values.line, line.ALL_TEXT))


def _marks(of: Filter) -> dict[str, ValueSet]:
    return {name: values for name, values in of.sets.items() if name.startswith(MARK_PREFIX)}


def _selective(filters: Sequence[Filter]) -> list[Filter]:
    """One filter for each most general type, with the sets on which all of the type agree."""
    kinds = [_marks(each) for each in filters]
    groups: list[tuple[dict[str, ValueSet], list[Filter]]] = []
    for at in sorted(range(len(filters)), key=lambda at: (len(kinds[at]), at)):
        for kind, members in groups:
            spend(1)
            # What names no type is a kind of its own, and no type is a subtype of it.
            if bool(kind) == bool(kinds[at]) and _agrees(kind, kinds[at]):
                members.append(filters[at])
                break
        else:
            groups.append((kinds[at], [filters[at]]))
    return [_joined(kind, members) for kind, members in groups]


def _agrees(kind: Mapping[str, ValueSet], of: Mapping[str, ValueSet]) -> bool:
    """Whether these sets contain each set of a kind, so that they are a subtype of it."""
    return all(name in of and of[name].form() == values.form() for name, values in kind.items())


def _joined(kind: Mapping[str, ValueSet], members: Sequence[Filter]) -> Filter:
    first, *others = members
    common = {
        name: values
        for name, values in first.sets.items()
        if all(_agrees({name: values}, each.sets) for each in others)
    }
    return Filter.of_sets({**common, **kind})
