"""`Broker`: a TCP server with one dispatcher and many clients.

    async with Broker("127.0.0.1", 0) as broker:
        print(broker.address)
        await broker.closed()

A peer that breaks the protocol gets one Failure frame with the reason. Its connection is closed,
and the fault is counted by name. Other connections are unaffected.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Final, Self

import msgspec

from contrada.delivery.store import Store
from contrada.errors import ConnectionFailedError, DeliveryError, FrameError, ServiceError
from contrada.net.broker.audit_log import AuditLog
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.inspector import Inspected, answer_inspection
from contrada.net.broker.jwt_verifier import JwtSettings, JwtVerifier
from contrada.net.broker.latencies import Latencies
from contrada.net.broker.neighbours import Membership, Server
from contrada.net.broker.server_connection import ConnectionHandler, ServerConnection
from contrada.net.broker.user_usage import UserUsage, UserUsages
from contrada.net.broker.users import Authenticator, Users
from contrada.net.wire.address import PORT_DEFAULT, Address, check_host, is_loopback
from contrada.net.wire.connection import CLIENT, NEIGHBOUR
from contrada.net.wire.endpoint import listen, stop_listening
from contrada.net.wire.frames import Hello, InspectReply, InspectRequest
from contrada.net.wire.tls import TLS_FAULT, RevocationLists, Tls
from contrada.net.wire.tokens import name_in
from contrada.service.clock import wall_clock_us
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.security.permits import Permit, PublishFilters
from contrada.service.security.principals import NOT_PERMITTED, Principal
from contrada.service.service_limits import CoreLimits
from contrada.service.subscription_queue import PUBLISH_WAIT_S
from contrada.service.timekeeper import ReaderWaits, Timekeeper

STATISTICS_NAMES_MAX: Final = 20
"""Links, and subscriptions, with counts of their own in the statistics. Beyond it: the first links
by name, and the subscriptions with the longest queues."""

STATISTICS_CLIENTS_MAX: Final = 20
"""Clients searched for these subscriptions. Beyond it: those that hold most bytes."""

_NO_STORE: Final = "this broker has no store: contrada serve --store FILE gives it one"
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """The counts of a broker up to one moment.

    `refused` counts faults of peers and refused requests by name, `dropped` lost notifications by
    reason. `held_bytes` are in queues and unfinished frames. `delivery` has the fields of
    `DeliveryStatistics`, and is empty without durable traffic. `safe_answers` and
    `operator_failures` belong to the whole process; see `ServiceStatistics`. `link_sent` and
    `link_waiting` count notifications by link. `subscription_waiting` and `subscription_dropped`
    count them by `client/identity`, for the longest queues. Those that begin with `queue_` have the
    fields of `QueueState`, for the longest queues of durable subscriptions here. Each has
    STATISTICS_NAMES_MAX entries at most. `latency_us` counts Delivery frames by the age of their
    oldest notification, see `Latencies`; `latency_sum_us` is the sum of these ages. `began_us` is
    the start of the counts, in microseconds since 1970, `now_us` their end, by the broker's clock.
    `store` has the bytes of a store in a file, `store_failures` the failed writes since the last
    success, by reason; `stuck_logs` are those that cannot be read, each with the reason.
    `quota_used` and `quota_limits` count by `user quota`, for those nearest to their limits.
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
    queue_unread: Mapping[str, int] = field(default_factory=dict)
    queue_handed: Mapping[str, int] = field(default_factory=dict)
    queue_oldest_us: Mapping[str, int] = field(default_factory=dict)
    queue_dead: Mapping[str, int] = field(default_factory=dict)
    queue_damaged: Mapping[str, int] = field(default_factory=dict)
    queue_readers: Mapping[str, int] = field(default_factory=dict)
    queue_attempts: Mapping[str, int] = field(default_factory=dict)
    latency_us: Mapping[str, int] = field(default_factory=dict)
    latency_sum_us: int = 0
    began_us: int = 0
    now_us: int = 0
    store: Mapping[str, int] = field(default_factory=dict)
    store_failures: Mapping[str, int] = field(default_factory=dict)
    stuck_logs: Mapping[str, int] = field(default_factory=dict)
    quota_used: Mapping[str, int] = field(default_factory=dict)
    quota_limits: Mapping[str, int] = field(default_factory=dict)


class Broker(Server):
    """A broker at one address."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = PORT_DEFAULT,
        *,
        network: Membership | None = None,
        tls: Tls | None = None,
        store: str | Path | Store | None = None,
        users: Users | None = None,
        jwt: JwtSettings | None = None,
        anyone: bool = False,
        audit: AuditLog | None = None,
        limits: BrokerLimits = BrokerLimits(),
        core_limits: CoreLimits | None = None,
    ) -> None:
        """Port 0 takes a free port; see `address` after the start.

        `network` is the place in a network of brokers; without it the broker is alone. With a
        certificate in `tls`, all connections must use TLS. `store` holds durable subscriptions and
        certified notifications, as in `connect`; without one they are in memory. With `users` only
        these may connect, each within its rights; without them every client has all rights. `jwt`
        is the issuer of tokens from outside, whose subjects and groups the users name. A
        broker that other machines reach therefore needs users, TLS with required certificates, or
        `anyone`. `audit` records who is let in, what is refused, and changes of rights; the broker
        closes it.

        Raises InvalidValueError, InputError, and ServiceError for an invalid store.
        """
        self._server_context = (
            tls.server_context(self._fail_handshake, asks=users is not None) if tls else None
        )
        super().__init__(
            network or Membership(),
            store,
            limits=limits,
            core_limits=core_limits,
            client_context=tls.client_context() if tls else None,
            no_store=_NO_STORE,
        )
        self._revocations = _revocations_of(tls)
        verifier = None if jwt is None else JwtVerifier(jwt, self.start_work, limits)
        self._authenticator = None if users is None else Authenticator(users, limits, verifier)
        if verifier is not None and users is None:
            raise ServiceError("tokens from outside name users or groups: give the broker users")
        self._usages = UserUsages(monotonic, limits.rate_wait_s, limits.losses_per_s_max)
        self.is_open = users is None
        self.audit = audit
        self._is_guarded = anyone or users is not None or (tls and tls.require_certificate)
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._sessions: dict[ServerConnection, ClientSession] = {}
        self.latencies = Latencies()
        self._is_ending = False
        self._stopped = asyncio.Event()
        self._connections_total = 0
        self._began_us = wall_clock_us()
        now_us, waits = EnvelopeFactory(None).now_us, ReaderWaits(self.dispatcher)
        self._timekeeper = Timekeeper(self.dispatcher, now_us, PUBLISH_WAIT_S, waits)
        self.dispatcher.on_due = self._timekeeper.wake

    async def start(self) -> None:
        """Starts to listen.

        Raises AddressError, ConnectionFailedError where the address is not available, StoreError,
        and ServiceError where other machines reach a broker without users or `anyone`.
        """
        check_host(self._host)
        if not (self._is_guarded or is_loopback(self._host)):
            raise ServiceError(
                f"at {self._host} other machines reach it, and it authenticates nobody: "
                "give it users, or anyone=True"
            )
        if self._server is not None or self._is_ending:
            raise ServiceError("a broker is started once")
        self.logs.open()
        try:
            self._server = await listen(
                self.accept,
                self._host,
                self._port,
                backlog=self.limits.backlog_max,
                tls=self._server_context,
                address=str(Address(self._host, self._port, self._server_context is not None)),
            )
        except ConnectionFailedError:
            await self.logs.aclose()
            raise
        self.neighbours.listens_at = self.address
        self._began_us = wall_clock_us()
        self.begin()
        if self._authenticator is not None and self._authenticator.jwt is not None:
            self._authenticator.jwt.keys.begin_reading()  # Read, so that the log shows a fault now.
        _LOG.info("listening at %(address)s", {"address": self.address})

    def accept(self) -> ServerConnection:
        """Returns the protocol of an incoming connection, for any transport; see `dial`."""
        return ServerConnection(self)

    @property
    def address(self) -> str:
        """The address of the listening socket: `contrada://host:port`, `contradas://` with TLS."""
        if self._server is None or not self._server.sockets:
            raise ServiceError("the broker does not listen")
        port = self._server.sockets[0].getsockname()[1]
        return str(Address(self._host, port, self._server_context is not None))

    def reload_tls(self, tls: Tls) -> None:
        """Reads the files of `tls` again for new connections: the certificate, the revocation
        lists, and the authorities of outgoing links. Ends connections with a certificate that is
        revoked now.

        The authorities for client certificates stay. After an InputError nothing has changed.
        """
        client_context = tls.client_context()
        if self._server_context is not None:
            tls.load_files(self._server_context)
        self.neighbours.client_context = client_context
        self._revocations = _revocations_of(tls)
        for connection in list(self._connections):
            try:
                self._check_revoked(connection)
            except FrameError as error:
                connection.end(error)

    def _check_revoked(self, connection: ServerConnection) -> None:
        """Raises FrameError for a connection whose other side has a revoked certificate."""
        if self._revocations is None or connection.is_gone:
            return
        tls = connection.transport.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(binary_form=True)
        if shown and self._revocations.has(shown):
            raise FrameError(NOT_PERMITTED, "the certificate of the other side is revoked")

    def change_users(self, users: Users) -> None:
        """Replaces the users and their rights.

        A connection stays if its user keeps its rights. With fewer rights, or where a filter was
        narrowed, the client or neighbour has to connect again, and does so at once; its queued
        best-effort notifications are lost. Connections of removed users are ended. Raises
        ServiceError for a broker that was started without users.
        """
        if self._authenticator is None:
            raise ServiceError("a broker that began without users cannot have them later")
        if self.audit is not None:
            self.audit.record_change(self._authenticator.users, users)
        self._authenticator.users = users
        if self._authenticator.jwt is not None:
            self._authenticator.jwt.keys.begin_reading()
        self.publish_filters = PublishFilters()  # Drops the filters of removed users.
        for connection in list(self._connections):
            principal = connection.principal
            if principal is None:  # An outgoing link, or not identified yet.
                continue
            now = self._authenticator.current(principal)
            if now is None:
                reason = (
                    f"the user {principal.name!r} was removed, or has another token or certificate"
                )
                connection.end(FrameError(NOT_PERMITTED, reason))
                continue
            self.usage_of(now)  # It takes over the present quotas.
            if not connection.change_to(now):
                connection.close("the rights of this user have changed: connect again")

    def has_user(self, name: str) -> bool:
        """Returns whether a user exists; always True for a broker without users."""
        return self._authenticator is None or name in self._authenticator.users.principals

    def end_durable(self, name: str) -> None:
        """Ends a durable subscription and its log, if it exists. Raises StoreError."""
        with suppress(DeliveryError):
            self.logs.host.end(name)
            self.logs.cancel_expiry(name)

    def identify(
        self, connection: ServerConnection, hello: Hello
    ) -> Principal | Awaitable[Principal]:
        self._check_revoked(connection)  # A resumed TLS session checks no certificate.
        if self._authenticator is None:
            return super().identify(connection, hello)
        if (claimed := name_in(hello.token)) in self._authenticator.users.principals:
            connection.claimed = claimed
        return self._authenticator.identify(connection.transport, hello)

    def usage_of(self, principal: Principal) -> UserUsage | None:
        return None if self._authenticator is None else self._usages.of(principal)

    def check_alive(self, connection: ServerConnection) -> None:
        """Ends a connection that is silent, or whose user has expired."""
        super().check_alive(connection)
        keeper, principal = self._authenticator, connection.principal
        if keeper is not None and principal is not None and keeper.current(principal) is None:
            reason = f"the user {principal.name!r} has expired, or its old token has"
            connection.end(FrameError(NOT_PERMITTED, reason))

    async def stop(self) -> None:
        """Hands over the queues, and closes, also before the start; twice is once.

        Raises StoreError for lost records.
        """
        if self._is_ending:
            return
        self._is_ending, server, self._server = True, self._server, None
        try:
            if server is not None:
                await stop_listening(server)
                await self.disconnect_all()
        finally:  # Also when the caller is cancelled.
            self._timekeeper.cancel()
            await self._timekeeper.ended()
            try:
                await self.close()
            finally:
                if self.audit is not None:
                    self.audit.close()
                self._stopped.set()

    def abort(self) -> None:
        """Cuts all connections at once, and accepts no publications; then it is stopped."""
        self.is_stopping = True
        for connection in list(self._connections):
            connection.abort()

    async def closed(self) -> None:
        """Waits until the broker has stopped."""
        await self._stopped.wait()

    def statistics(self) -> BrokerStatistics:
        """Returns the counts so far. Cost: the clients, and the subscriptions of the busiest."""
        counts = self.dispatcher.statistics()
        link_sent, link_waiting = self.links(STATISTICS_NAMES_MAX)
        busiest = self._busiest()
        queues = self.logs.queues(STATISTICS_NAMES_MAX)
        quotas = self._quotas(STATISTICS_NAMES_MAX)
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
            queue_unread={each.name: each.unread for each in queues},
            queue_handed={each.name: each.handed for each in queues},
            queue_oldest_us={each.name: each.oldest_us for each in queues},
            queue_dead={each.name: each.dead for each in queues},
            queue_damaged={each.name: each.damaged for each in queues},
            queue_readers={each.name: each.readers for each in queues},
            queue_attempts={each.name: each.attempts for each in queues},
            latency_us=self.latencies.counts(),
            latency_sum_us=self.latencies.sum_us,
            began_us=self._began_us,
            now_us=wall_clock_us(),
            store=self.logs.store_counts(),
            store_failures=self.logs.store_failures(),
            stuck_logs=self.logs.stuck_logs(STATISTICS_NAMES_MAX),
            quota_used={name: used for name, used, _ in quotas},
            quota_limits={name: most for name, _, most in quotas},
        )

    def _quotas(self, count: int) -> list[tuple[str, int, int]]:
        """Returns the quotas nearest to their limits: `user quota`, use and limit."""
        if self._authenticator is None:
            return []
        host = self.logs.used_host
        logs = None if host is None else host.server.logs
        users = dict(self._authenticator.users.principals)
        users |= {
            each.principal.name: each.principal for each in self._connections if each.principal
        }
        return self._usages.nearest(users.values(), logs, count)

    def _busiest(self) -> list[tuple[str, int, int]]:
        """Returns the subscriptions with the longest queues: name, queue length, losses."""
        holding = [each for each in self._sessions if each.budget.held_bytes]
        connections = nlargest(STATISTICS_CLIENTS_MAX, holding, key=lambda it: it.budget.held_bytes)
        waiting = chain.from_iterable(self._sessions[each].waiting() for each in connections)
        found = nlargest(STATISTICS_NAMES_MAX, waiting, key=itemgetter(1))
        return [each for each in found if each[1]]

    def counts(self) -> dict[str, int | dict[str, int]]:
        """Returns the statistics by name, as sent to clients."""
        counts: dict[str, int | dict[str, int]] = msgspec.to_builtins(self.statistics())
        return counts

    def clients(self) -> dict[str, int]:
        """Returns the number of subscriptions by client name."""
        return {each.client: each.subscriptions for each in self._sessions.values()}

    def _inspect(
        self, request: InspectRequest, permit: Permit | None
    ) -> Generator[None, None, InspectReply]:
        inspected = Inspected(self.dispatcher, self.logs, self.clients(), self.neighbours, permit)
        return answer_inspection(request, inspected, self.limits)

    def admit(self, connection: ServerConnection) -> bool:
        super().admit(connection)
        self._connections_total += 1
        return len(self._connections) <= self.limits.connections_max or connection.who == NEIGHBOUR

    def handler_for(self, connection: ServerConnection, hello: Hello) -> ConnectionHandler:
        if hello.role != CLIENT:
            return super().handler_for(connection, hello)
        session = ClientSession(connection, self.latencies, self.counts, self._inspect)
        if connection.usage is not None:
            connection.usage.sessions.add(session)
        self._sessions[connection] = session
        return session

    def forget(self, connection: ServerConnection) -> None:
        session = self._sessions.pop(connection, None)
        if session is not None and connection.usage is not None:
            connection.usage.sessions.discard(session)
        super().forget(connection)

    def _fail_handshake(self, reason: str) -> None:
        self.refused[TLS_FAULT] += 1
        if self.audit is not None:
            self.audit.record("refused", code=TLS_FAULT, reason=reason)
        _LOG.info("a connection is refused: %(reason)s", {"reason": reason})

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _revocations_of(tls: Tls | None) -> RevocationLists | None:
    """Reads the revocation lists; expired ones are logged. Raises InputError."""
    lists = None if tls is None else tls.revocations()
    if lists is not None:
        lists.warn()
    return lists
