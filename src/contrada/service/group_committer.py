"""`GroupCommitter`: brings the work of a `DeliveryServer` to the disk, a group at a time.

Work gathers in the store until a thread writes it with one fsync; meanwhile the next group gathers.
So the loop never waits for the disk, and concurrent publishers share an fsync. Effects that readers
and neighbours can see follow the commit of their group: a crash changes nothing that was seen.

    publish, append, acknowledge          group 3 gathers
    store.seal                            group 2 is written (thread)
    readers, `committed`         <======  group 1 is on the disk

Invariant: work that precedes a call of `committed` is on stable storage when that returns.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_server import RETRY_US
from contrada.delivery.store import Store
from contrada.delivery.transit import SendMessage
from contrada.errors import StoreError
from contrada.service.loop_guards import off_loop

RETRY_S: Final = RETRY_US / 1e6
"""Seconds until a failed group is tried again."""

_LOG: Final = logging.getLogger(__name__)

VisibleEffect = HandRecords | SendMessage


class GroupCommitter:
    """The groups of one store; without a store, effects are shown at once."""

    def __init__(
        self, store: Store | None, show: Callable[[Sequence[VisibleEffect]], None]
    ) -> None:
        self._store, self._show = store, show
        self._effects: list[VisibleEffect] = []
        self._group: asyncio.Future[None] | None = None  # the group that gathers
        self._previous: asyncio.Future[None] | None = None  # the group that is written
        self._committing: asyncio.Task[None] | None = None
        self._is_failing = False
        self.is_closing = False
        """Whether a failed group is tried only once more."""

    def add(self, effects: Sequence[VisibleEffect]) -> None:
        """Adds work that the store has gathered; its effects are shown when it is on the disk."""
        if self._store is None:
            self._show(effects)
            return
        self._effects += effects
        if self._group is None:
            self._group = asyncio.get_running_loop().create_future()
        self._begin()

    async def committed(self) -> None:
        """Returns when all work so far is on stable storage.

        Raises StoreError when a group failed; it is tried again.
        """
        last = self._group or self._previous
        if last is not None:
            await asyncio.shield(last)

    def _begin(self) -> None:
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())

    async def _commit(self) -> None:
        """Writes one group after the other, until none gathers."""
        store = self._store
        assert store is not None, "it has a disk"
        try:
            while self._group is not None:
                group, self._group = self._group, None
                self._previous = group
                shown, self._effects = self._effects, []
                try:
                    await off_loop(store.seal())
                except Exception as error:  # noqa: BLE001 - any class may be a store
                    self._fail(group, shown, error)
                    if not self.is_closing:
                        return
                    continue
                self._is_failing = False
                self._show(shown)
                group.set_result(None)
        finally:
            self._committing = self._previous = None

    def _fail(
        self, group: asyncio.Future[None], shown: list[VisibleEffect], error: Exception
    ) -> None:
        """The store keeps the group, and soon tries it again together with the next one."""
        if not self._is_failing:
            _LOG.warning("what is promised cannot be written yet: %(reason)s", {"reason": error})
        self._is_failing = True
        self._effects[:0] = shown
        if not isinstance(error, StoreError):
            error = StoreError(f"the store failed: {error!r}")
        group.set_exception(error)
        group.exception()  # Marks it as retrieved: perhaps no caller waits for it.
        if self.is_closing:
            return
        loop = asyncio.get_running_loop()
        if self._group is None:
            self._group = loop.create_future()
        loop.call_later(RETRY_S, self._begin_again)

    def _begin_again(self) -> None:
        if self._group is not None:
            self._begin()
