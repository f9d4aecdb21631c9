"""`StoreLease`: which of the brokers that share a store leads; its PostgreSQL database decides.

    contrada_lease   epoch: of the store; holder: a process; renewals: a count, RELEASED at its end

`LeaseTerm` says when a standby may claim the lease. The claim ends the connections of the leader
before, and the new leader opens the store under another epoch.

Invariant: a leader reads no record after its lease by its own clock, and writes none after another
one has opened the store, whether it was paused, cut off or killed.

A database that is silent holds nobody up: after the lease the connections of the store are cut, and
the calls of the lease itself are made in threads for which no process waits.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Final

from contrada.delivery.lease_term import LOOK_S, RELEASED, RENEWALS, LeaseTerm
from contrada.errors import LeaseError, StoreError
from contrada.service.loop_guards import in_daemon
from contrada.service.stores.postgres_store import (
    PostgresConnection,
    PostgresStore,
    lock_key,
    open_connection,
    store_errors,
    url_parts,
)

# It counts while a machine is suspended.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS contrada_lease (
    epoch BIGINT NOT NULL, holder TEXT NOT NULL, renewals BIGINT NOT NULL
);
DELETE FROM contrada_lease
"""
_BEGIN: Final = (
    "INSERT INTO contrada_lease SELECT epoch, %s, 0 FROM contrada_store WHERE epoch = %s"
)
_RENEW: Final = (
    f"UPDATE contrada_lease SET renewals = renewals + 1 WHERE holder = %s AND renewals > {RELEASED}"
    " AND epoch = (SELECT epoch FROM contrada_store)"
)
_RELEASE: Final = f"UPDATE contrada_lease SET renewals = {RELEASED} WHERE holder = %s"
_FIND: Final = "SELECT holder, renewals FROM contrada_lease JOIN contrada_store USING (epoch)"
_CLAIM: Final = (
    "UPDATE contrada_lease SET holder = %s, renewals = renewals + 1"
    " WHERE holder = %s AND renewals = %s"
)
_END_LEADER: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 1
    AND (classid::bigint << 32) | objid::bigint = %s
"""

_LOG: Final = logging.getLogger(__name__)


class StoreLease:
    """The turn of one process to lead. Its methods that block are called in threads."""

    def __init__(self, url: str, seconds: float) -> None:
        """`url` is that of the store. `seconds`: see `BrokerLimits.lease_s`. Raises StoreError."""
        self._conninfo, self._schema, self._place = url_parts(url)
        self._term = LeaseTerm(seconds)
        self._holder = token_hex(16)
        self._db: PostgresConnection | None = None
        self._closed = threading.Event()

    # --- the wait of a standby ----------------------------------------------------------------

    async def turn(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Waits until this process may open the store. A database that is away is tried again.

        `follow` takes over what the leader has written, after each look at the lease.
        """
        told = ""
        while True:
            await asyncio.sleep(LOOK_S)  # First, as its last turn may have failed just now.
            try:
                if await in_daemon(self._may_lead):
                    return
                await follow()
                told = ""
            except StoreError as error:
                if str(error) != told:
                    told = str(error)
                    _LOG.warning("the database cannot be read yet: %(reason)s", {"reason": error})

    def _may_lead(self) -> bool:
        """Looks at the lease, and claims it if its leader is silent. Raises StoreError."""
        with store_errors(self._place):
            db = self._connected()
            query = "SELECT to_regclass('contrada_store'), to_regclass('contrada_lease')"
            store, lease = db.execute(query).fetchone() or (None, None)
            found = db.execute(_FIND).fetchone() if store and lease else None
            if found is None:  # The owner of the store has no lease.
                return self._is_unlocked(db)
            if not self._term.may_claim((found[0], found[1]), _now_s()):
                return False
            if db.execute(_CLAIM, (self._holder, *found)).rowcount != 1:
                return False
            db.execute(_END_LEADER, (lock_key(self._schema),))
            return True

    def _is_unlocked(self, db: PostgresConnection) -> bool:
        key = (lock_key(self._schema),)
        if db.execute("SELECT pg_try_advisory_lock(%s)", key).fetchone() != (True,):
            return False
        db.execute("SELECT pg_advisory_unlock(%s)", key)
        return True

    # --- leading ------------------------------------------------------------------------------

    def begin(self, store: object) -> None:
        """Begins the lease of an open `PostgresStore`, which from now on is read within it only.

        Raises StoreError.
        """
        assert isinstance(store, PostgresStore), "it is at the URL of this lease"
        begun_s = _now_s()
        with store_errors(self._place), (db := self._connected()).transaction():
            db.execute(_TABLE)
            if db.execute(_BEGIN, (self._holder, store.epoch)).rowcount != 1:
                raise StoreError(f"{self._place}: another broker has opened it since")
        self._term.renew(begun_s)
        store.check_lease = self.check
        threading.Thread(target=self._watch, args=(store,), name="lease", daemon=True).start()

    def _watch(self, store: PostgresStore) -> None:
        """Cuts the store off after the lease: a read in the event loop may wait for its server."""
        while rest_s := self._term.rest_s(_now_s()):
            if self._closed.wait(rest_s):
                return
        store.interrupt()

    async def ended(self) -> str:
        """Renews the lease until it is lost. Returns why it is."""
        reason = ""
        while rest_s := self._term.rest_s(_now_s()):
            try:
                async with asyncio.timeout(rest_s):
                    if not await in_daemon(self._renew):
                        self._term.end()
                        return "another broker leads"
                reason = ""
            except TimeoutError:
                return "its database does not answer"
            except StoreError as error:
                reason = str(error)
            await asyncio.sleep(self._term.seconds / RENEWALS)
        return reason or "this process was suspended"

    def _renew(self) -> bool:
        begun_s = _now_s()
        with store_errors(self._place):
            if self._connected().execute(_RENEW, (self._holder,)).rowcount != 1:
                return False
        self._term.renew(begun_s)
        return True

    @property
    def is_over(self) -> bool:
        """Whether another broker may lead."""
        return not self._term.rest_s(_now_s())

    def check(self) -> None:
        """Raises LeaseError after the end of the lease. Cost: a look at the clock."""
        if self.is_over:
            raise LeaseError(f"{self._place}: its lease has ended: another broker may lead")

    async def release(self) -> None:
        """Lets a standby take over at once. Call it when the store is closed."""
        try:
            async with asyncio.timeout(self._term.rest_s(_now_s())):
                await in_daemon(self._release)
        except (StoreError, TimeoutError) as error:  # A standby takes over after the lease.
            reason = str(error) or "its database does not answer"
            _LOG.warning("the lease cannot be released: %(reason)s", {"reason": reason})

    def _release(self) -> None:
        with store_errors(self._place):
            self._connected().execute(_RELEASE, (self._holder,))

    def close(self) -> None:
        """Closes the connection of the lease, also while it is used."""
        self._closed.set()
        if self._db is not None:
            self._db.close()

    def _connected(self) -> PostgresConnection:
        if self._db is None or self._db.closed:
            self._db = open_connection(self._conninfo, self._schema)
        return self._db


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)
