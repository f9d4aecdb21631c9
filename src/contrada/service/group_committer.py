"""`GroupCommitter`: brings the work of a `DeliveryServer` to the disk, a group at a time.

Work gathers in the store until a thread writes it with one fsync; meanwhile the next group gathers.
So the loop never waits for the disk, and concurrent publishers share an fsync. Effects that readers
and neighbours can see follow the commit of their group: a crash changes nothing that was seen.
Without a store, effects are shown at once.

    publish, append, acknowledge          group 3 gathers
    store.seal                            group 2 is written (thread)
    readers, `when_committed`    <======  group 1 is on the disk

A group costs the loop one call for its seal, and one for its end: no task and no future of asyncio
is woken, since each wake-up is a round of the loop.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_server import RETRY_US
from contrada.delivery.store import Store
from contrada.delivery.transit import SendMessage
from contrada.errors import LeaseError, StoreDamagedError, StoreError

RETRY_S: Final = RETRY_US / 1e6
"""Seconds until a failed group is tried again."""

VisibleEffect: TypeAlias = HandRecords | SendMessage

Committed: TypeAlias = Callable[[list[Any], StoreError | None], None]
"""Takes what waited for a group, and why the group was not written, if so."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _CommitGroup:
    """The effects of a group, and what waits for it."""

    effects: list[VisibleEffect] = field(default_factory=list)
    waiting: dict[Committed, list[Any]] = field(default_factory=dict)

    def end(self, failure: StoreError | None) -> None:
        for call, items in self.waiting.items():
            call(items, failure)


class GroupCommitter:
    """Writes the groups of a store, on one event loop."""

    def __init__(
        self,
        store: Store | None,
        show: Callable[[Sequence[VisibleEffect]], None],
        on_damage: Callable[[StoreDamagedError], None],
    ) -> None:
        """`on_damage` is called after a write that cannot succeed later either."""
        self._store, self._show, self._on_damage = store, show, on_damage
        self._gathering: _CommitGroup | None = None
        self._written: _CommitGroup | None = None  # in the thread
        self._empty: _CommitGroup | None = None  # nothing is written for it
        self._is_due = False
        self._writes: SimpleQueue[Callable[[], None] | None] | None = None  # of the thread
        self.failures: Counter[str] = Counter()
        """The failed writes since the last one that succeeded, by reason."""
        self.is_closing = False
        """Whether a failed group is tried only once more."""

    def add(self, effects: Sequence[VisibleEffect]) -> None:
        """Adds work that the store has gathered; its effects are shown when it is on the disk."""
        if self._store is None:
            self._show(effects)
            return
        if self._gathering is None:
            self._gathering = _CommitGroup()
        self._gathering.effects += effects
        self._begin()

    def when_committed(self, call: Committed, item: Any) -> None:
        """Calls once all work so far is on stable storage, never in this turn of the loop.

        Items of one function that wait for the same group are given to it in one call.
        """
        last = self._gathering or self._written or self._empty
        if last is None:
            last = self._empty = _CommitGroup()
            asyncio.get_running_loop().call_soon(self._end_empty)
        last.waiting.setdefault(call, []).append(item)

    async def committed(self) -> None:
        """Returns when all work so far is on stable storage.

        Raises StoreError when a group failed; it is tried again.
        """
        if self._gathering or self._written:
            done = asyncio.get_running_loop().create_future()
            self.when_committed(_resolve, done)
            await done

    def close(self) -> None:
        """Ends the thread, after the last group."""
        if self._writes is not None:
            self._writes.put(None)
            self._writes = None

    def _end_empty(self) -> None:
        empty, self._empty = self._empty, None
        assert empty is not None, "it was begun"
        empty.end(None)

    def _begin(self) -> None:
        """Writes the group after this turn of the loop, unless one is written."""
        if self._written is None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        if self._gathering is None or self._written is not None:
            return
        self._written, self._gathering = self._gathering, None
        store, loop = self._store, asyncio.get_running_loop()
        assert store is not None, "it has a disk"
        try:
            sealed = store.seal()
        except Exception as error:  # noqa: BLE001 - any class may be a store
            loop.call_soon(self._finish, error)
            return
        try:
            if self._writes is None:
                writes = SimpleQueue[Callable[[], None] | None]()
                # The end of the process does not wait for it: the database may hang.
                Thread(target=_run, args=(writes,), name="contrada-store", daemon=True).start()
                self._writes = writes
        except RuntimeError:  # Python starts no threads after the main one has ended.
            self._bring(loop, sealed)
        else:
            self._writes.put(partial(self._bring, loop, sealed))
            if self.is_closing:  # This may be the last group, and a later one gets a new thread.
                self.close()

    def _bring(self, loop: asyncio.AbstractEventLoop, write: Callable[[], None]) -> None:
        """Writes a group, in the thread, and reports its end to the loop."""
        failure: Exception | None = None
        try:
            write()
        except Exception as error:  # noqa: BLE001 - any class may be a store
            failure = error
        if not loop.is_closed():  # Nobody waits on a closed one.
            loop.call_soon_threadsafe(self._finish, failure)

    def _finish(self, error: Exception | None) -> None:
        """Ends the written group, and writes the one that has gathered meanwhile."""
        group, self._written = self._written, None
        assert group is not None, "it was written"
        try:
            if error is not None:
                self._fail(group, error)
            else:
                self.failures.clear()
                self._show(group.effects)
                group.end(None)
        finally:
            if error is None or self.is_closing:
                self._write()

    def _fail(self, group: _CommitGroup, error: Exception) -> None:
        """The store keeps the group, and soon tries it again together with the next one."""
        if not self.failures:
            _LOG.warning("durable records cannot be written yet: %(reason)s", {"reason": error})
        self.failures[str(error)] += 1
        if not self.is_closing:
            self._gathering = self._gathering or _CommitGroup()
            asyncio.get_running_loop().call_later(RETRY_S, self._begin_again)
        if self._gathering is not None:
            self._gathering.effects[:0] = group.effects
            if isinstance(error, LeaseError):  # A new leader gets the unanswered requests.
                for call, items in group.waiting.items():
                    self._gathering.waiting.setdefault(call, [])[:0] = items
                return
        group.end(
            error if isinstance(error, StoreError) else StoreError(f"the store failed: {error!r}")
        )
        if isinstance(error, StoreDamagedError):
            self._on_damage(error)

    def _begin_again(self) -> None:
        if self._gathering is not None:
            self._begin()


def _run(writes: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (write := writes.get()) is not None:
        write()


def _resolve(waiting: Sequence[asyncio.Future[None]], failure: StoreError | None) -> None:
    for each in waiting:
        if each.done():  # It was cancelled.
            continue
        if failure is None:
            each.set_result(None)
        else:
            each.set_exception(failure)
