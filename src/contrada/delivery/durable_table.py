"""`DurableTable`: the durable subscriptions of all servers.

The *owner* of a durable subscription keeps its log, and announces it to all servers in versions. So
an access point knows the owners that must take a notification, reachable or not.

Invariants: the table holds exactly one version of each owner's newest incarnation; only a server
itself changes its own announcements.

Source: EPFL 2503 §5.3.6 (durable subscriptions); PODC 2000 §4 (subscriptions are forwarded).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TypeAlias

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import AnnounceOwner, DurableEntry
from contrada.delivery.store import Notes, StoreChanges
from contrada.errors import CannotPublishError, LimitError
from contrada.matching.index import Index
from contrada.model import Notification

_Age: TypeAlias = tuple[int, int, int]

Addressees: TypeAlias = dict[str, list[int]]
"""Owners, and the numbers of the subscriptions there."""


@dataclass(slots=True)
class LogOwner:
    """A server: its incarnation, its boot number, its durable subscriptions."""

    incarnation: int
    boot: int
    version: int
    has_store: bool
    sequences: bool
    entries: dict[int, DurableEntry] = field(default_factory=dict)

    @property
    def age(self) -> _Age:
        """Its incarnation, boot and version."""
        return self.incarnation, self.boot, self.version


class DurableTable:
    """The durable subscriptions of this server and of others."""

    def __init__(
        self, name: str, own: LogOwner, notes: Notes, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self.name, self._limits, self.own = name, limits, own
        self.owners: dict[str, LogOwner] = {name: own}
        self.left_out = 0
        self._notes = notes
        self._names: dict[str, dict[tuple[str, int], None]] = {}  # by name, mostly one
        self._index: Index[tuple[str, int]] = Index()
        self._matched: tuple[list[Notification], list[Addressees]] = [], []
        self.follow(notes.all())

    def __len__(self) -> int:
        return len(self._index)

    def follow(self, changes: StoreChanges) -> None:
        """Takes over the announcements of others that another process has learned or forgotten."""
        named: dict[str, list[str]] = {"home": [], "standing": []}
        for kind, _, name in (each.partition("/") for each in changes.notes):
            if kind in named:
                named[kind].append(name)
        gone = set[str]()
        for owner in named["home"]:
            found = self._notes.get("home", owner, tuple[_Age, bool, bool])
            if found is None:
                gone.add(owner)
                continue
            start, has_store, sequences = found
            entries = self.owners[owner].entries if owner in self.owners else {}
            self.owners[owner] = LogOwner(*start, has_store, sequences, entries)
        for name in named["standing"]:
            number, _, owner = name.partition("/")
            entry = self._notes.get("standing", name, DurableEntry)
            self._set(owner, self.owners[owner], int(number), entry)
        for owner in gone & self.owners.keys():
            del self.owners[owner]

    def set_own(self, number: int, entry: DurableEntry | None) -> None:
        """Sets a subscription of this server that it need not announce, or has not begun to.

        Raises LimitError beyond the limits of `Index.add`.
        """
        self._set(self.name, self.own, number, entry)

    def change(self, number: int, entry: DurableEntry | None) -> AnnounceOwner:
        """Adds or removes a subscription of this server. Returns the announcement.

        Raises LimitError beyond the limits of `Index.add`.
        """
        self._set(self.name, self.own, number, entry)
        self.own.version += 1
        changes = ((number, entry),)
        return self._announce(self.name, self.own, changes, is_whole=False)

    def announcements(self) -> Iterator[AnnounceOwner]:
        """Yields all announcements, for a new neighbour."""
        for name, owner in self.owners.items():
            yield self._announce(name, owner, tuple(owner.entries.items()), is_whole=True)

    def check_room(self, count: int) -> None:
        """Raises LimitError without room for `count` more."""
        maximum = self._limits.durable_subscriptions_max
        if len(self) + count > maximum:
            raise LimitError("durable_subscriptions_max", maximum, len(self) + count)

    def learn(self, message: AnnounceOwner) -> bool:
        """Takes an announcement. Returns whether it was news, to be flooded."""
        owner, age = self.owners.get(message.owner), message.age
        if message.owner == self.name or (owner is not None and owner.age >= age):
            return False
        if owner is None:
            if len(self.owners) >= self._limits.owners_max:
                self.left_out += 1
                return False
            owner = LogOwner(*age[:2], -1, message.has_store, message.sequences)
        changes = dict(message.changes)
        if message.is_whole:
            changes = dict.fromkeys(owner.entries.keys() - changes.keys()) | changes
        elif age != (owner.incarnation, owner.boot, owner.version + 1):
            return False  # A full announcement is in flight.
        self.owners[message.owner] = owner
        owner.incarnation, owner.boot, owner.version = age
        owner.has_store, owner.sequences = message.has_store, message.sequences
        for number, entry in changes.items():
            self._set(message.owner, owner, number, entry)
            self._notes.put("standing", f"{number}/{message.owner}", owner.entries.get(number))
        self._notes.put("home", message.owner, (age, owner.has_store, owner.sequences))
        return True

    def forget(self, name: str) -> None:
        """Removes a server that will never be back, with its subscriptions."""
        for number in list(self.owners[name].entries):
            self._set(name, self.owners[name], number, None)
            self._notes.put("standing", f"{number}/{name}", None)
        del self.owners[name]
        self._notes.put("home", name, None)

    def _set(self, name: str, owner: LogOwner, number: int, entry: DurableEntry | None) -> None:
        """Sets one entry. Beyond a limit: LimitError for this server; others' are left out."""
        key = name, number
        self._matched = [], []
        before = owner.entries.get(number)
        try:
            if entry is None:
                self._index.remove(key)
            elif before is None or before.filters != entry.filters:
                if name != self.name and before is None:
                    self.check_room(1)
                self._index.add(key, entry.filters)
        except LimitError:
            if name == self.name:
                raise
            self._index.remove(key)
            self.left_out += 1
            entry = None
        owner.entries.pop(number, None)
        if before is not None:
            named = self._names[before.name]
            del named[key]
            if not named:
                del self._names[before.name]
        if entry is not None:
            owner.entries[number] = entry
            self._names.setdefault(entry.name, {})[key] = None

    def _announce(
        self,
        name: str,
        owner: LogOwner,
        changes: tuple[tuple[int, DurableEntry | None], ...],
        *,
        is_whole: bool,
    ) -> AnnounceOwner:
        return AnnounceOwner(name, *owner.age, is_whole, changes, owner.has_store, owner.sequences)

    # --- publishing ---------------------------------------------------------------------------

    def addressees(self, notifications: Sequence[Notification]) -> list[Addressees]:
        """Returns the owners that must take each notification, with the subscriptions there.

        In order of names and numbers, so that a run is a function of its events.
        """
        (of, found), self._matched = self._matched, ([], [])
        if len(of) == len(notifications) and all(map(is_, of, notifications)):
            return found
        found = []
        for keys, count in self._index.match_runs(notifications):
            keys.sort()
            for _ in range(count):
                owners: Addressees = {}
                for owner, number in keys:
                    owners.setdefault(owner, []).append(number)
                found.append(owners)
        return found

    def match(self, notifications: Sequence[Notification]) -> None:
        """Matches ahead: the same notifications are free at the next `addressees`."""
        self._matched = [*notifications], self.addressees(notifications)

    def with_room(self, notifications: Sequence[Notification]) -> list[Addressees]:
        """As `addressees`. Raises CannotPublishError if one of the subscriptions is full."""
        found = self.addressees(notifications)
        for owners in found:
            for owner, ids in owners.items():
                entries = self.owners[owner].entries
                for each in ids:
                    if entries[each].is_full:
                        raise CannotPublishError(entries[each].name)
        return found

    def owner_of(self, name: str) -> tuple[str, int] | None:
        """Returns the owner of a name, and the number there; the first of several."""
        return min(self._names.get(name, ()), default=None)

    def owners_of(self, name: str) -> list[str]:
        """Returns the owners of a name; several, where it was created at several at once."""
        return sorted(owner for owner, _ in self._names.get(name, ()))

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all subscriptions."""
        held = {(name, number) for name, owner in self.owners.items() for number in owner.entries}
        assert held == set(self._index), "the index has other subscriptions"
        assert self.owners[self.name] is self.own, "this server is not among the owners"
