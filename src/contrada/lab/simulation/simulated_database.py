"""`SimulatedDatabase`: the database that the members of a group share, and the lease in it.

`StoreLease` and `PostgresStore` have the statements that its methods stand for. Each is atomic. A
member reaches it unless it is cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contrada.delivery.lease_term import RELEASED
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.store import StoreChanges, StoredRecord
from contrada.errors import LeaseError, StoreError


class SimulatedDatabase:
    """A store that each opening gives another epoch, and its lease."""

    def __init__(self) -> None:
        self.content = MemoryStore()
        self.epoch = 0
        self.is_full = False
        self.is_cut: set[int] = set()
        """Members that do not reach it."""
        self.faults: list[tuple[str, str]] = []
        """Writes of a member that another one had replaced."""
        self._locked_by: int | None = None
        self._lease: tuple[int, str, int] | None = None

    # --- the lease ----------------------------------------------------------------------------

    def find(self) -> tuple[str, int] | None:
        """Returns the holder and the count of renewals; None where the leader has no lease."""
        if self._lease is None or self._lease[0] != self.epoch:
            return None
        return self._lease[1:]

    def claim(self, holder: str, found: tuple[str, int]) -> bool:
        """Takes over a lease that is as it was found, and ends the connection of its leader."""
        if self.find() != found:
            return False
        self._lease = self.epoch, holder, found[1] + 1
        self._locked_by = None
        return True

    def begin(self, holder: str, epoch: int) -> bool:
        """Begins the lease of an open store."""
        if epoch == self.epoch:
            self._lease = epoch, holder, 0
        return epoch == self.epoch

    def renew(self, holder: str) -> bool:
        """Counts a renewal, unless another one leads."""
        found = self.find()
        if found is None or found[0] != holder or found[1] == RELEASED:
            return False
        self._lease = self.epoch, holder, found[1] + 1
        return True

    def release(self, holder: str) -> None:
        """Lets a standby claim the lease at once."""
        if (found := self.find()) is not None and found[0] == holder:
            self._lease = self.epoch, holder, RELEASED

    # --- the store ----------------------------------------------------------------------------

    def lock(self, member: int) -> bool:
        """Takes the lock, which belongs to a connection."""
        if self._locked_by in (None, member):
            self._locked_by = member
        return self._locked_by == member

    def unlock(self, member: int) -> None:
        """Ends the connection of a member that is there to end it."""
        if self._locked_by == member and member not in self.is_cut:
            self._locked_by = None

    @property
    def is_locked(self) -> bool:
        """Whether a member has the lock."""
        return self._locked_by is not None

    def may_write(self, epoch: int) -> bool:
        """Whether the store was not opened again since. Each transaction checks it."""
        return epoch == self.epoch


class MemberStore(MemoryStore):
    """The store as a member knows it: it follows, then opens it. A failed group is tried again."""

    def __init__(self, database: SimulatedDatabase, member: int) -> None:
        super().__init__()
        self.database, self.member = database, member
        self.epoch = 0
        self.check_lease: Callable[[], None] = lambda: None
        self._calls: list[Callable[[], None]] = []

    def follow(self) -> StoreChanges:
        """Returns what has changed since the last call."""
        return self.open_disk_of(self.database.content)

    def open(self, check_lease: Callable[[], None]) -> StoreChanges:
        """Opens the store for the member with the lock. Returns what has changed."""
        self.database.epoch += 1
        self.epoch, self.check_lease = self.database.epoch, check_lease
        self.is_full = self.database.is_full
        return self.follow()

    def read(self, log: str, first: int, count: int) -> list[StoredRecord]:
        """See `MemoryStore.read`. Raises LeaseError after the end of a lease."""
        self.check_lease()
        return super().read(log, first, count)

    @property
    def has_changes(self) -> bool:
        """Whether a sealed group changes something."""
        return any(changes for _, changes in self._sealed)

    def when_written(self, call: Callable[[], None]) -> None:
        """Calls when the group that gathers is on the disk."""
        self._calls.append(call)

    def seal(self) -> "MemberWrite":
        """See `MemoryStore.seal`."""
        calls, self._calls = self._calls, []
        return MemberWrite(self, super().seal(), calls)


@dataclass(frozen=True, slots=True)
class MemberWrite:
    """The writing of a group; a second time without effect."""

    store: MemberStore
    bring: Callable[[], None]
    calls: Sequence[Callable[[], None]]

    def __call__(self) -> None:
        """Raises StoreError while it is impossible."""
        self.store.check_lease()
        if not self.store.has_changes:  # The database is not asked.
            self.arrive()
            return
        if self.store.member in self.store.database.is_cut:
            raise StoreError("its database does not answer")
        if not self.store.database.lock(self.store.member):
            raise StoreError("another member has the lock")
        self.arrive()

    def arrive(self) -> None:
        """The group has reached the database. Raises LeaseError."""
        database = self.store.database
        if self.store.has_changes:
            if not database.may_write(self.store.epoch):
                raise LeaseError("another member has opened it since")
            if self.store.epoch != database.epoch:
                late = f"{self.store.member} writes as before {database.epoch}"
                database.faults.append(("two leaders", late))
        self.bring()
        for call in self.calls:
            call()
