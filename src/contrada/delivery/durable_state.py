"""`DurableState`: the durable subscriptions that a store holds, and their index.

A `DeliveryServer` begins with one. A standby makes it long before, and follows the changes that the
leader writes to the store: so it begins without a look at each subscription.

Invariant: after `follow` it is as one that is made from the store anew.
"""

from collections.abc import Iterator

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import DurableEntry
from contrada.delivery.durable_table import DurableTable, LogOwner
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.redelivery import load_attempts, log_of_attempts
from contrada.delivery.retention import Retention
from contrada.delivery.store import Notes, Store, StoreChanges


class DurableState:
    """The table of all durable subscriptions, and the logs of those of this server."""

    def __init__(
        self, name: str, store: Store | None, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        """Reads all subscriptions of a store. Raises LimitError, UnknownOperatorError."""
        self.store, self.notes = store, Notes(store)
        own = LogOwner(0, 0, 0, store is not None, sequences=True)
        self.table = DurableTable(name, own, self.notes, limits)
        self.logs = OwnedLogs(store, limits)
        for _ in self._follow_own(self.notes.all()):
            pass

    def follow(self, changes: StoreChanges) -> Iterator[str]:
        """Takes over what another process has changed in the store, before a server begins.

        Yields the name of each subscription of this server whose terms or log have changed. Raises
        as the constructor, and is to be dropped then. Cost: the changes, and a look at the name of
        each note.
        """
        self.table.follow(changes)
        return self._follow_own(changes)

    def _follow_own(self, changes: StoreChanges) -> Iterator[str]:
        self.logs.next = self.notes.get("next", "subscription", int) or 1
        noted, logs = dict[int, None](), [*changes.logs]
        for kind, _, name in (each.partition("/") for each in changes.notes):
            if kind == "subscription":
                noted[int(name)] = None
            elif kind == "attempts":
                logs.append(log_of_attempts(name))
        known = (self.logs.number(each) for each in logs)
        numbers = noted | dict.fromkeys(each for each in known if each is not None)
        # A name may be in use again under another number.
        before = {number: self.logs.unload(number) for number in numbers}
        attempts = load_attempts(self.notes)
        for number, was in before.items():
            now = self._terms(number) if number in noted else was
            if now is not None:
                rows = attempts.get(now[0].name, ())
                self.logs.load(number, *now, rows, is_durable=True)
            if now is not was:
                self.table.set_own(number, None if now is None else now[0])
            for terms in (was, now) if was is not now else (now,):
                if terms is not None:
                    yield terms[0].name

    def _terms(self, number: int) -> tuple[DurableEntry, Retention] | None:
        return self.notes.get("subscription", str(number), tuple[DurableEntry, Retention])
