"""An index of subscriptions: which keys' filters match a notification.

Each filter hangs on one attribute: where it has one that allows only a few single values, on
these values; else on the name of an attribute that must be present; else on nothing. A
notification looks up its own values and names, and checks the few filters it finds there.

Invariant: every filter of every key hangs on at least one place, and on a place that every
notification it matches will look at.
"""

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from contrada.model import Filter, FilterSet, Notification, ValueSet, line
from contrada.model.values import ABSENT_KEY, Key

K = TypeVar("K", bound=Hashable)

POINTS_MAX: Final = 16
"""A filter hangs on the values of an attribute only where these are at most as many."""

_Place: TypeAlias = tuple[str, Key] | str | None


class Index(Generic[K]):
    """Keys with their filters. `match` gives the keys whose filter matches."""

    def __init__(self) -> None:
        self._filters: dict[K, tuple[Filter, ...]] = {}
        self._hanging: dict[_Place, dict[tuple[K, int], Filter]] = {}

    def add(self, key: K, subscription: Filter | FilterSet) -> None:
        """Adds a key with its filter or filters; the key's earlier ones are replaced."""
        self.remove(key)
        members = subscription.filters if isinstance(subscription, FilterSet) else (subscription,)
        self._filters[key] = members
        for number, member in enumerate(members):
            for place in _places(member):
                self._hanging.setdefault(place, {})[key, number] = member

    def remove(self, key: K) -> None:
        """Removes a key and its filters; a key that is not there is no error."""
        for number, member in enumerate(self._filters.pop(key, ())):
            for place in _places(member):
                hanging = self._hanging[place]
                del hanging[key, number]
                if not hanging:
                    del self._hanging[place]

    def match(self, notification: Notification) -> list[K]:
        """The keys whose filter, or one of whose filters, matches; each once."""
        found: dict[K, None] = {}
        for place in _looked_at(notification):
            for (key, _), member in self._hanging.get(place, {}).items():
                if key not in found and member.matches(notification):
                    found[key] = None
        return list(found)

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters


def _places(member: Filter) -> list[_Place]:
    """Where a filter hangs."""
    by_name: _Place = None
    for name, value_set in member.sets.items():
        points = _single_values(value_set)
        if points is not None:
            return [(name, key) for key in points]
        if by_name is None and name[0] != "@" and not value_set.holds(ABSENT_KEY):
            by_name = name
    return [by_name]


def _single_values(value_set: ValueSet) -> list[Key] | None:
    """The present values of a set that has only a few single ones, else None."""
    cuts = value_set.line
    if value_set.text is not None or len(cuts) & 1 or len(cuts) > 2 * POINTS_MAX:
        return None
    keys = [line.single((start, end)) for start, end in line.pieces(cuts) if end is not None]
    if None in keys or ABSENT_KEY in keys:
        return None
    return keys  # type: ignore[return-value]


def _looked_at(notification: Notification) -> Iterator[_Place]:
    yield None
    for name in (*notification, "@id", "@publisher", "@time"):
        yield name
        for key in notification.keys_of(name):
            yield name, key
