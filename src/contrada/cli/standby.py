"""A broker that leads only while no other one of its name does; see `StoreLease`."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contrada.cli.broker_settings import BrokerSettings
from contrada.errors import ContradaError, StoreError
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.users import Users

if TYPE_CHECKING:
    from contrada.service.stores.lease import StoreLease

_LOG: Final = logging.getLogger(__name__)


class WaitingBroker:
    """The broker that a standby starts once it may: it follows the store of the leader."""

    def __init__(self, build: Callable[[], Broker], users: str | None) -> None:
        """`build` makes the broker, and reads the file of its users. Raises ContradaError."""
        self._users, self._stamp = users, _stamp(users)
        self.broker = build()
        self._replaced: list[Broker] = []

    def replace(self, build: Callable[[], Broker], users: str | None) -> None:
        """Has another broker start, with other settings, which follows from the beginning.

        Raises ContradaError, and has changed nothing then.
        """
        stamp, broker = _stamp(users), build()
        self._replaced.append(self.broker)
        self.broker, self._users, self._stamp = broker, users, stamp

    def renew_users(self) -> None:
        """Reads the file of users again if it has changed: who was removed has no rights."""
        stamp = _stamp(self._users)
        if self._users is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.broker.change_users(Users.read(Path(self._users)))
        except ContradaError as error:
            _LOG.error("%(reason)s; nothing is changed", {"reason": error})

    async def follow(self) -> None:
        """Takes over what the leader has written; see `BrokerLogs.follow`."""
        await self.stop_replaced()
        self.renew_users()
        await self.broker.logs.follow()

    async def stop_replaced(self) -> None:
        """Stops the brokers that will not start."""
        while self._replaced:
            await self._replaced.pop().stop()


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    """Returns what tells one content of a file from another; None if it is not there."""
    try:
        found = os.stat(path or "")
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def turn(
    settings: BrokerSettings, waiting: WaitingBroker, ending: asyncio.Future[int]
) -> "StoreLease | None":
    """Returns the lease once this broker may lead; None if the process ends before."""
    from contrada.service.stores.lease import StoreLease  # Its library is an extra.

    limits = settings.all_limits().broker or BrokerLimits()
    lease = StoreLease(settings.place() or "", limits.lease_s)
    _LOG.warning("standby: another broker leads, or its lease has not expired yet")
    notify_manager("READY=1")
    turn = asyncio.create_task(lease.turn(waiting.follow))
    await asyncio.wait((turn, ending), return_when=asyncio.FIRST_COMPLETED)
    await waiting.stop_replaced()
    if not turn.done():
        turn.cancel()
        lease.close()
        await waiting.broker.stop()
        return None
    turn.result()
    waiting.renew_users()
    return lease


async def started(broker: Broker, lease: "StoreLease | None") -> bool:
    """Starts a broker. Returns False where another one of its name was first. Raises StoreError."""
    try:
        await broker.start()
        if lease is not None:
            lease.begin(broker.logs.host.store)
    except StoreError as error:
        if lease is None:
            raise
        _LOG.warning("does not lead yet: %(reason)s", {"reason": error})
        lease.close()
        with suppress(StoreError):  # Nothing was confirmed.
            await broker.stop()
        return False
    return True


@asynccontextmanager
async def running(broker: Broker, lease: "StoreLease | None") -> AsyncIterator[asyncio.Future[str]]:
    """Stops a broker at the end; cuts its connections when it loses its lease.

    Yields the future loss of the lease. The lease is renewed while the broker stops, too.
    """

    def lose(lost: asyncio.Future[str]) -> None:
        if not lost.cancelled():
            _LOG.error("leads no more: %(reason)s", {"reason": lost.result()})
            broker.abort()

    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    if lease is not None:
        lost = asyncio.create_task(lease.ended())
    lost.add_done_callback(lose)
    try:
        yield lost
    finally:
        try:
            await broker.stop()
        except StoreError:
            if lease is None or not lease.is_over:  # Records lost with a lease were not confirmed.
                raise
        finally:
            lost.cancel()
            if lease is not None:
                if not lease.is_over:
                    await lease.release()
                lease.close()


def notify_manager(state: str) -> None:
    """Notifies a service manager, such as systemd with Type=notify."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.sendto(state.encode(), "\0" + place[1:] if place[0] == "@" else place)
        except OSError as error:
            _LOG.warning(
                "%(path)s cannot be notified: %(reason)s", {"path": place, "reason": error}
            )
