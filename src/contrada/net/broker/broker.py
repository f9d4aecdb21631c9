"""A broker: one TCP server, one exchange, many clients.

    async with Broker("127.0.0.1", 0) as broker:
        print(broker.address)
        await broker.closed()

A bad peer (wrong version, garbage, an oversized frame, silence) gets one Failure frame that
says what was wrong, is closed and counted by the name of its fault; nobody else notices.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Final, Self

import msgspec

from contrada.delivery.store import Store
from contrada.errors import ConnectionFailedError, DeliveryError, FrameError, ServiceError
from contrada.net.broker.authenticator import Authenticator
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.latencies import Latencies
from contrada.net.broker.neighbours import Membership
from contrada.net.broker.server import Server
from contrada.net.broker.server_connection import ConnectionHandler, ServerConnection
from contrada.net.broker.users import Users
from contrada.net.wire.address import PORT_DEFAULT, Address, check_host, is_loopback
from contrada.net.wire.connection import CLIENT, NEIGHBOUR
from contrada.net.wire.frames import Hello
from contrada.net.wire.tls import TLS_FAULT, TLS_WAIT_S, Tls
from contrada.service.clock import wall_clock_us
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.security.permits import PublishFilters
from contrada.service.security.principals import NOT_PERMITTED, Principal
from contrada.service.subscription_queue import PUBLISH_WAIT_S
from contrada.service.timekeeper import Timekeeper

STATISTICS_NAMES_MAX: Final = 20
"""Links, and subscriptions, of which the statistics of a broker tell one by one. Beyond it: of
links the first by name are told, of subscriptions those for which most waits."""

STATISTICS_CLIENTS_MAX: Final = 20
"""Clients whose subscriptions are looked at for that. Beyond it: those for which most is held."""

_NO_STORE: Final = "this broker has no store: contrada serve --store FILE gives it one"
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """What a broker did up to one moment.

    `refused` counts faults of peers and refused requests by name, `dropped` notifications that
    a subscription did not get, by reason. `held_bytes` waits to be delivered or worked off, or
    for the rest of its frame. `delivery` counts what is promised, as `DeliveryStatistics`; nothing
    where nothing was promised. `safe_answers` and `operator_failures` are those of the whole
    process; see `ServiceStatistics`. Of links `link_sent` and `link_waiting` tell by name how many
    notifications went over each, and wait for it. Of the subscriptions, as `client/identity`, for
    which most waits, `subscription_waiting` and `subscription_dropped` tell how many wait and were
    lost. Both tell of STATISTICS_NAMES_MAX at most. `latency_us` counts frames of deliveries by the
    age of their oldest notification, see `Latencies`, and `latency_sum_us` is the sum of these.
    `began_us` is the time at which it was made, since when it counts, in microseconds since 1970.
    """

    connections: int
    connections_total: int
    links: int
    subscriptions: int
    published: int
    matched: int
    dropped: Mapping[str, int]
    refused: Mapping[str, int]
    held_bytes: int
    safe_answers: Mapping[str, int]
    operator_failures: Mapping[str, int]
    delivery: Mapping[str, int] = field(default_factory=dict)
    link_sent: Mapping[str, int] = field(default_factory=dict)
    link_waiting: Mapping[str, int] = field(default_factory=dict)
    subscription_waiting: Mapping[str, int] = field(default_factory=dict)
    subscription_dropped: Mapping[str, int] = field(default_factory=dict)
    latency_us: Mapping[str, int] = field(default_factory=dict)
    latency_sum_us: int = 0
    began_us: int = 0


class Broker(Server):
    """Serves clients on one address."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = PORT_DEFAULT,
        *,
        network: Membership | None = None,
        tls: Tls | None = None,
        store: str | Path | Store | None = None,
        users: Users | None = None,
        anyone: bool = False,
        limits: BrokerLimits = BrokerLimits(),
    ) -> None:
        """Port 0 takes a free one; see `address` once it has started.

        `network` gives its place among other brokers; without it, it is alone. With a certificate
        in `tls`, all connections must speak TLS. `store` is where it keeps durable subscriptions
        and certified notifications, as in `connect`; without one all is in memory. With `users`
        only these may connect, each within its rights; without them anybody may connect and do
        everything. Where others than this machine reach it that has to be meant: by `anyone`, or
        TLS that requires a certificate.

        Raises InvalidValueError, InputError, ServiceError for what is no store.
        """
        self._server_context = (
            tls.server_context(self._fail_handshake, asks=users is not None) if tls else None
        )
        super().__init__(
            network or Membership(),
            store,
            limits=limits,
            client_context=tls.client_context() if tls else None,
            no_store=_NO_STORE,
        )
        self._authenticator = None if users is None else Authenticator(users, limits)
        self.is_open = users is None
        self._is_guarded = anyone or users is not None or (tls and tls.require_certificate)
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._sessions: dict[ServerConnection, ClientSession] = {}
        self.latencies = Latencies()
        self._stopped = asyncio.Event()
        self._connections_total = 0
        self._began_us = wall_clock_us()
        self._timekeeper = Timekeeper(self.dispatcher, EnvelopeFactory(None).now_us, PUBLISH_WAIT_S)
        self.dispatcher.on_due = self._timekeeper.wake

    async def start(self) -> None:
        """Listen. Raises AddressError, ConnectionFailedError when the address cannot be had.

        And StoreError when its store cannot be used; ServiceError where others than this machine
        reach it, and nobody said who may come.
        """
        check_host(self._host)
        if not (self._is_guarded or is_loopback(self._host)):
            raise ServiceError(
                f"at {self._host} others than this machine reach it, and it asks nobody who he is: "
                "give it users, or anyone=True"
            )
        if self._server is not None or self._stopped.is_set():
            raise ServiceError("a broker is started once")
        loop = asyncio.get_running_loop()
        self.logs.open()
        try:
            self._server = await loop.create_server(
                self.accept,
                self._host,
                self._port,
                backlog=self.limits.backlog_max,
                ssl=self._server_context,
                ssl_handshake_timeout=TLS_WAIT_S if self._server_context else None,
            )
        except (OSError, OverflowError) as error:
            await self.logs.aclose()
            wanted = str(Address(self._host, self._port, self._server_context is not None))
            reason = getattr(error, "strerror", None) or error
            raise ConnectionFailedError(wanted, f"cannot listen: {reason}") from None
        self.begin()
        _LOG.info("listening at %(address)s", {"address": self.address})

    def accept(self) -> ServerConnection:
        """This side of a connection that is being made to it, whatever carries it; see `dial`."""
        return ServerConnection(self)

    @property
    def address(self) -> str:
        """Where it listens, as `contrada://host:port`, or `contradas://` with TLS."""
        if self._server is None or not self._server.sockets:
            raise ServiceError("the broker does not listen")
        port = self._server.sockets[0].getsockname()[1]
        return str(Address(self._host, port, self._server_context is not None))

    def reload_tls(self, tls: Tls) -> None:
        """Uses the present files of `tls` for new connections: its own certificate, and the
        authorities it trusts on links that it makes.

        Which client certificates it trusts stays as it is. Raises InputError, and has changed
        nothing.
        """
        client_context = tls.client_context()
        if self._server_context is not None:
            tls.load_certificate(self._server_context)
        self._client_context = client_context

    def change_users(self, users: Users) -> None:
        """From now on these users may connect, with these rights.

        A connection whose user keeps its rights goes on. One whose user has fewer rights, or was
        granted less than it asked for, is told to come again, which clients and neighbours do at
        once; notifications of best effort that were queued for it are lost, as when a connection
        breaks. Connections of users who may not come any more are ended. Raises ServiceError for a
        broker that began without users.
        """
        if self._authenticator is None:
            raise ServiceError("a broker that began without users cannot have them later")
        known, self._authenticator.users = self._authenticator.users, users
        self.publish_filters = PublishFilters()  # Those of users who are gone are given up.
        shown = known.changed(users)
        for connection in list(self._connections):
            principal = connection.principal
            if principal is None:  # It is ours, or not known yet.
                continue
            now = self._authenticator.current(principal)
            if now is None or principal.name in shown:
                reason = f"the user {principal.name!r} is gone, or shows otherwise who it is"
                connection.end(FrameError(NOT_PERMITTED, reason))
            elif not connection.change_to(now):
                connection.close("what this user may do has changed: connect again")

    def has_user(self, name: str) -> bool:
        """Whether there is a user of this name; where nobody is asked who he is, always."""
        return self._authenticator is None or name in self._authenticator.users.principals

    def end_durable(self, name: str) -> None:
        """Ends a durable subscription with its log, where there is one, whosever it is.

        Raises StoreError.
        """
        with suppress(DeliveryError):
            self.logs.host.end(name)
            self.logs.cancel_expiry(name)

    def identify(
        self, connection: ServerConnection, hello: Hello
    ) -> Principal | Awaitable[Principal]:
        """Whose connection it is. Raises FrameError, or what is awaited does."""
        if self._authenticator is None:
            return super().identify(connection, hello)
        return self._authenticator.identify(connection.transport, hello)

    def check_alive(self, connection: ServerConnection) -> None:
        """Looks whether one who is there is still alive, and may still be here."""
        super().check_alive(connection)
        keeper, principal = self._authenticator, connection.principal
        if keeper is not None and principal is not None and keeper.current(principal) is None:
            connection.end(FrameError(NOT_PERMITTED, f"the user {principal.name!r} has expired"))

    async def stop(self) -> None:
        """Listen no more, hand over what is queued, say goodbye to all, and close. Twice is once.

        What clients publish meanwhile is not taken. Raises StoreError where what is promised could
        not be brought to the disk.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        try:
            await self.disconnect_all()
        finally:  # Also where whoever stops it is cancelled.
            self._timekeeper.cancel()
            await self._timekeeper.ended()
            try:
                await self.close()
            finally:
                self._stopped.set()

    async def closed(self) -> None:
        """Wait until it was stopped."""
        await self._stopped.wait()

    def statistics(self) -> BrokerStatistics:
        """What it did so far. Cost: the number of clients, and what the busiest asked for."""
        counts = self.dispatcher.statistics()
        link_sent, link_waiting = self.links(STATISTICS_NAMES_MAX)
        busiest = self._busiest()
        return BrokerStatistics(
            connections=len(self._connections),
            connections_total=self._connections_total,
            links=len(self.neighbours),
            subscriptions=counts.subscriptions,
            published=counts.published,
            matched=counts.matched or 0,
            dropped=dict(self.dropped + Counter(counts.dropped)),
            refused=dict(self.refused),
            held_bytes=self._held_bytes,
            safe_answers=counts.safe_answers,
            operator_failures=counts.operator_failures,
            delivery=self.logs.counts(),
            link_sent=link_sent,
            link_waiting=link_waiting,
            subscription_waiting={name: waiting for name, waiting, _ in busiest},
            subscription_dropped={name: dropped for name, _, dropped in busiest},
            latency_us=self.latencies.counts(),
            latency_sum_us=self.latencies.sum_us,
            began_us=self._began_us,
        )

    def _busiest(self) -> list[tuple[str, int, int]]:
        """The subscriptions for which most waits: how many, and how many they lost."""
        holding = [each for each in self._sessions if each.budget.held_bytes]
        connections = nlargest(
            STATISTICS_CLIENTS_MAX, holding, key=lambda each: each.budget.held_bytes
        )
        waiting = chain.from_iterable(self._sessions[each].waiting() for each in connections)
        found = nlargest(STATISTICS_NAMES_MAX, waiting, key=itemgetter(1))
        return [each for each in found if each[1]]

    def counts(self) -> dict[str, int | dict[str, int]]:
        """The same by name, as it is told to who may ask."""
        counts: dict[str, int | dict[str, int]] = msgspec.to_builtins(self.statistics())
        return counts

    def clients(self) -> dict[str, int]:
        """How many subscriptions each client has, by what the exchange calls it."""
        return {each.client: each.subscriptions for each in self._sessions.values()}

    def admit(self, connection: ServerConnection) -> bool:
        """A connection was made; False when there are too many. One of its own may always be."""
        super().admit(connection)
        self._connections_total += 1
        return len(self._connections) <= self.limits.connections_max or connection.who == NEIGHBOUR

    def handler_for(self, connection: ServerConnection, hello: Hello) -> ConnectionHandler:
        """Who deals with what the other side asks for. Raises FrameError where it is refused."""
        if hello.role != CLIENT:
            return super().handler_for(connection, hello)
        session = self._sessions[connection] = ClientSession(connection, self)
        return session

    def forget(self, connection: ServerConnection) -> None:
        """A connection has ended."""
        self._sessions.pop(connection, None)
        super().forget(connection)

    def _fail_handshake(self, reason: str) -> None:
        self.refused[TLS_FAULT] += 1
        _LOG.info("one who came is refused: %(reason)s", {"reason": reason})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
