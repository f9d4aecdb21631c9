"""`hold_lease`: a lock for an output at an address, where files cannot be locked.

The lease is a file that is created exclusively. Its holder rewrites it while it works. A lease that
was not renewed for long belongs to a killed process, and is taken over. Its age is measured by the
file system's own clock.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import time
from typing import Final

from contrada.errors import ContradaError, InputError
from contrada.integrations.spark.pipeline.hadoop_paths import HadoopPath

LOCK_LEASE_S: Final = 60.0
"""Seconds for which a lease holds without renewal. Beyond it: another run may take it."""

LOCK_RENEWED_S: Final = LOCK_LEASE_S / 6
"""Seconds between renewals of a lease."""

_LOG: Final = logging.getLogger("contrada.integrations.spark")


@dataclass(eq=False)
class Lease:
    """The right to write at an address, as long as it is renewed."""

    file: HadoopPath
    token: bytes = field(default_factory=lambda: secrets.token_hex(8).encode())
    turn: threading.Lock = field(default_factory=threading.Lock)

    def take(self, taken: str) -> None:
        """Takes the lease. Raises InputError with the message `taken` if another run holds it."""
        if not self._make():
            known = self._known()
            if self._age_ms() < LOCK_LEASE_S * 1000 or self._known() != known:
                raise InputError(str(self.file.parent), taken)
            self.file.unlink(missing_ok=True)
            if not self._make():
                raise InputError(str(self.file.parent), taken)

    def renew(self) -> None:
        """Renews it. Raises InputError if another run has taken it."""
        with self.turn:  # A read during a write could be incomplete.
            if self._known() != self.token:
                raise InputError(str(self.file.parent), "another run has taken the lock")
            self.file.write_bytes(self.token)

    def keep(self, ended: threading.Event) -> None:
        """Renews it periodically until `ended`; retries after errors."""
        while not ended.wait(LOCK_RENEWED_S):
            try:
                self.renew()
            except ContradaError as error:
                _LOG.warning("%(reason)s", {"reason": error})

    def release(self) -> None:
        """Deletes it, unless another run has it."""
        try:
            if self._known() == self.token:
                self.file.unlink(missing_ok=True)
        except ContradaError as error:  # The error of the block is more important.
            _LOG.warning("the lock ends by itself: %(reason)s", {"reason": error})

    def _make(self) -> bool:
        with suppress(FileExistsError):
            self.file.write_bytes(self.token, is_new=True)
            return True
        return False

    def _known(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return self.file.read_bytes()
        return None

    def _age_ms(self) -> float:
        """Returns the time since its renewal, by the file system's clock."""
        now = self.file.parent / f"{self.file.name}.{self.token.decode()}"
        now.write_bytes(b"")
        ms, renewed_ms = now.modified_ms(), self.file.modified_ms()
        now.unlink()
        return LOCK_LEASE_S * 1000 if ms is None or renewed_ms is None else ms - renewed_ms


@contextmanager
def hold_lease(file: HadoopPath, taken: str) -> Iterator[Callable[[], None]]:
    """Holds a lease within the block; yields a check that raises InputError after its loss."""
    lease, ended = Lease(file), threading.Event()
    lease.take(taken)
    keeper = threading.Thread(target=lease.keep, args=(ended,), name="lease", daemon=True)
    keeper.start()
    try:
        yield lease.renew
    finally:
        ended.set()
        keeper.join()
        lease.release()


def is_leased(file: HadoopPath) -> bool:
    """Whether a run holds the lease, by this machine's clock. Only reads."""
    renewed_ms = file.modified_ms()
    return renewed_ms is not None and time() * 1000 - renewed_ms < LOCK_LEASE_S * 1000
