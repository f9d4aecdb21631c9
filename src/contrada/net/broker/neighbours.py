"""`Server`: one server of a network; `Neighbours`: its links, outgoing and incoming.

A `Broker` also listens and has clients. An embedded service with neighbours has a `Server` that
makes links and accepts none.

The hello of both sides has the options that all brokers of a network share, and is compared. A lost
neighbour is tried again for ever, with growing waits. Two brokers have one link. Of two connections
made at the same time, the one made by the broker with the lesser name stays. A new connection
replaces the old one if the same side makes it again, or if the neighbour has restarted: then the
old connection is dead, though this side may not know it yet.

Source: PODC 2000 §4 (servers, and their connection to one another).
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta, Struct

from contrada.delivery.store import Store
from contrada.errors import ContradaError, FrameError, ServiceError, shortened
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.link import Link
from contrada.net.broker.server_connection import (
    ConnectionHandler,
    ConnectionHost,
    ServerConnection,
)
from contrada.net.wire.address import Address, is_loopback, parse_address
from contrada.net.wire.connection import BROKER, NEIGHBOUR
from contrada.net.wire.endpoint import describe_os_error, dial
from contrada.net.wire.frames import FRAME_BYTES_MAX, Hello
from contrada.net.wire.pattern_codec import AHEAD_PER_SLACK, BROKER_PATTERN_LIMITS, PATTERN_SLACK_US
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import TokenSource, present_token
from contrada.routing.links.link_states import COST_MAX, OPPOSITE
from contrada.routing.links.topology import TREES_MAX
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    LABEL_CHARS_MAX,
    VERSION,
    Label,
    LinkUp,
    Neighbour,
    Role,
)
from contrada.service import ConnectionState
from contrada.service.backoff import Backoff
from contrada.service.dispatcher import Dispatcher, new_router
from contrada.service.loop_guards import stop_tasks
from contrada.service.service_limits import CoreLimits
from contrada.service.settings import checked
from contrada.service.stores.store_location import check_store

_LOG: Final = logging.getLogger(__name__)

_ALL_ADDRESSES: Final = ("0.0.0.0", "::")
"""The hosts of a broker that listens at all addresses of its machine."""


@dataclass(frozen=True, slots=True)
class WantedLink:
    """A link to be made: the neighbour's address, its role, and the cost of the link."""

    address: Address
    role: Role = Role.PEER
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of a broker in its network. A broker without a name is alone.

    `general`, `trees`, `strategy` and `slack_us` are the same at all brokers of a network, see
    `Router`; so is `sequencer`, the broker that orders sequences, see `DeliveryServer`.
    """

    name: str = ""
    general: bool = False
    trees: int = 0
    strategy: Strategy = Strategy.SUBSCRIPTIONS
    merging: bool = False
    slack_us: int = PATTERN_SLACK_US
    sequencer: str = ""
    neighbours: tuple[WantedLink, ...] = field(default=())
    token: TokenSource = field(default="", repr=False)
    """The token of this broker for its outgoing links."""

    def router(self, limits: CoreLimits) -> Router:
        """Returns a router with these options. Raises InvalidValueError."""
        return new_router(
            strategy=self.strategy,
            name=self.name,
            general=self.general,
            trees=self.trees,
            merging=self.merging,
            slack_us=self.slack_us,
            ahead_max_us=self.slack_us // AHEAD_PER_SLACK,
            pattern_limits=limits.patterns or BROKER_PATTERN_LIMITS,
            limits=limits.router,
        )

    def shared_options(self) -> dict[str, int | str | bool]:
        """Returns the options that both ends of a link must share."""
        return {
            "messages": VERSION,
            "general": self.general,
            "trees": self.trees,
            "strategy": str(self.strategy),
            "slack_us": self.slack_us,
            "sequencer": self.sequencer,
        }


class Neighbours:
    """The links of one broker."""

    def __init__(
        self,
        broker: ConnectionHost,
        network: Membership,
        client_context: ssl.SSLContext | None,
        tell: Callable[[ConnectionState], object],
    ) -> None:
        """`tell` gets the state of outgoing links; one is connected with its subscriptions."""
        self._broker, self.network, self._tell = broker, network, tell
        self.client_context = client_context
        """The TLS context of outgoing links; made at first use if None."""
        self.listens_at = ""
        """The address of this broker, which it announces to the neighbours that it dials."""
        self._connected: set[WantedLink] = set()
        self._links: dict[str, tuple[Link, str, bool]] = {}
        self._names: dict[WantedLink, str] = {}  # the broker that answered at its address
        self._tasks: dict[WantedLink, asyncio.Task[None]] = {}
        self._outgoing: dict[ServerConnection, tuple[WantedLink, asyncio.Future[None]]] = {}

    def __iter__(self) -> Iterator[Link]:
        return iter([link for link, _, _ in self._links.values()])

    def __len__(self) -> int:
        return len(self._links)

    def change(self, wanted: Sequence[WantedLink]) -> None:
        """Makes these links, again after each loss; outgoing links to others are ended."""
        if self._broker.is_stopping:
            return
        self.network = replace(self.network, neighbours=tuple(wanted))
        for each in self._tasks.keys() - set(wanted):
            self._tasks.pop(each).cancel()
            self._names.pop(each, None)
            self._connected.discard(each)
            for connection, (made, _) in self._outgoing.items():
                if made == each:
                    connection.close("this neighbour is not wanted any more")
            _LOG.info("neighbour %(address)s is not wanted any more", {"address": each.address})
        for each in wanted:
            if each not in self._tasks:
                self._tasks[each] = asyncio.create_task(self._maintain(each))

    async def stop(self) -> None:
        """Makes no more links. The present ones stay until their connections end."""
        await stop_tasks(self._tasks.values())

    # --- making links -------------------------------------------------------------------------

    async def _maintain(self, wanted: WantedLink) -> None:
        clock = asyncio.get_running_loop().time
        limits = self._broker.limits.backoff
        backoff, address, attempt = Backoff(limits), str(wanted.address), 0
        away_s, warned = clock(), ""
        while True:
            begun_s = clock()
            reason, is_brief = await self._hold_link(wanted)
            if wanted in self._connected:
                self._connected.discard(wanted)
                self._tell(ConnectionState("lost", address, reason))
                attempt, away_s, warned = 0, clock(), ""
            if clock() - begun_s >= limits.steady_s:  # It was not refused or replaced at once.
                backoff.reset()
            wait_s = backoff.next_s()
            said = reason or "it is gone"
            # A wrong address or setting would show nowhere else. A restart of the neighbour is no
            # news, the other side may have made the link, and all attempts would fill the log.
            is_long = clock() - away_s >= limits.steady_s and self._link_to(wanted) is None
            is_news = is_long and said != warned
            _LOG.log(
                logging.WARNING if is_news else logging.INFO,
                "neighbour %(address)s is away (%(reason)s); it is tried again in %(wait_s).1f s",
                {"address": str(address), "reason": said, "wait_s": wait_s},
            )
            warned = said if is_news else warned
            attempt += 1
            if not is_brief:  # Else a service that opens waits for the next attempt.
                self._tell(ConnectionState("trying", address, reason, attempt, wait_s))
            await asyncio.sleep(wait_s)
            # Two links to one broker would replace one another.
            while (link := self._link_to(wanted)) is not None:
                await asyncio.wait([link.connection.ended])
                away_s, warned = clock(), ""

    def _link_to(self, wanted: WantedLink) -> Link | None:
        """Returns the link to the broker that answered at an address, whichever side made it."""
        link, *_ = self._links.get(self._names.get(wanted, ""), (None,))
        return None if link is None or link.is_down else link

    async def _hold_link(self, wanted: WantedLink) -> tuple[str, bool]:
        """Makes a link, and waits for its end.

        Returns why it ended, or could not be made, and whether the neighbour was only busy.
        """
        if self.network.token and not wanted.address.is_private:
            return "a token is sent over TLS (contradas://) only", False
        loop = asyncio.get_running_loop()
        try:
            hello = self._hello(wanted)
        except ContradaError as error:  # Its token may be replaced just now.
            return str(error), False
        connection = ServerConnection(self._broker, hello=hello)
        up: asyncio.Future[None] = loop.create_future()
        self._outgoing[connection] = wanted, up
        try:
            async with asyncio.timeout(self._broker.limits.link_wait_s):
                if wanted.address.is_tls and self.client_context is None:
                    self.client_context = Tls().client_context()
                await dial(connection, wanted.address, self.client_context)
                await asyncio.wait((up, connection.ended), return_when=asyncio.FIRST_COMPLETED)
            await connection.ended
        except TimeoutError:
            connection.abort()
            return f"no answer within link_wait_s = {self._broker.limits.link_wait_s:g} s", False
        except OSError as error:
            return describe_os_error(error), False
        except asyncio.CancelledError:
            if not up.done():  # Else the stopping broker sends the goodbye itself.
                connection.abort()
            raise
        else:
            return shortened(connection.failure), connection.is_refused_briefly
        finally:
            del self._outgoing[connection]

    def _hello(self, wanted: WantedLink) -> Hello:
        options: dict[str, int | str | bool] = {
            "as": str(OPPOSITE[wanted.role]),
            "cost": wanted.cost,
            "address": self.listens_at,
        }
        capabilities = self.capabilities() | options
        software, token = self._broker.hello.software, present_token(self.network.token)
        return Hello(NEIGHBOUR, software, capabilities, token)

    def capabilities(self) -> dict[str, int | str | bool]:
        """Returns the capabilities in every hello of this broker."""
        network = self.network
        capabilities: dict[str, int | str | bool] = {"frame_bytes_max": FRAME_BYTES_MAX}
        if network.name:
            capabilities |= {"name": network.name, "instance": self._broker.instance}
            capabilities |= network.shared_options()
        return capabilities

    # --- meeting ------------------------------------------------------------------------------

    def handler_for(self, connection: ServerConnection, hello: Hello) -> Link:
        """Returns the link for a broker's hello. Raises FrameError where it does not fit."""
        network, capabilities = self.network, hello.capabilities
        name, instance = self._check(capabilities)
        made = self._outgoing.get(connection)
        is_ours = made is not None
        if made is not None:
            self._names[made[0]] = name
            role, cost = made[0].role, made[0].cost
        else:
            role, cost = _options_of(capabilities)
        if not 1 <= cost <= COST_MAX:
            raise FrameError("options", f"no cost of a link: {cost}; expected 1 to {COST_MAX}")
        if role is Role.PARENT and not is_ours:
            raise FrameError("options", "a broker chooses its parent itself, by --parent")
        self._replace(name, instance, is_ours=is_ours)
        if self._broker.dispatcher.router.is_withdrawing(Neighbour(name)):
            raise FrameError("busy", f"{network.name!r} withdraws its former link; connect again")
        event = LinkUp(Neighbour(name), role, cost)
        try:
            link = Link(connection, event, self._on_synchronized, self._on_ended)
        except ContradaError as error:
            raise FrameError("refused", shortened(str(error))) from None
        link.address = (
            str(made[0].address)
            if made is not None
            else _announced(capabilities.get("address"), connection)
        )
        self._links[name] = link, instance, is_ours
        _LOG.info("link to %(neighbour)s, a %(role)s", {"neighbour": name, "role": role})
        if made is not None and not made[1].done():
            made[1].set_result(None)
        return link

    def _check(self, capabilities: Mapping[str, Any]) -> tuple[str, str]:
        """Returns the name and instance of a broker that fits."""
        network = self.network
        if not network.name:
            raise FrameError("no network", "this broker has no name, so it takes no neighbours")
        name, instance = capabilities.get("name"), capabilities.get("instance")
        if not isinstance(name, str) or not isinstance(instance, str) or not name:
            raise FrameError("no network", "the other broker has no name: give it one")
        if len(name) > LABEL_CHARS_MAX:
            raise FrameError("name", f"a name of more than LABEL_CHARS_MAX = {LABEL_CHARS_MAX}")
        if name == network.name:
            raise FrameError("name", f"both brokers have the name {name!r}")
        for option, here in network.shared_options().items():
            if capabilities.get(option) != here:
                there = f"{capabilities.get(option)!r} at {name!r} and {here!r} at {network.name!r}"
                reason = f"{option} is {there}; it must be the same at all brokers of a network"
                raise FrameError("options", reason)
        return name, instance

    def _replace(self, name: str, instance: str, *, is_ours: bool) -> None:
        """Ends an existing link that the new one replaces; else raises FrameError."""
        if name not in self._links:
            return
        link, known, was_ours = self._links[name]
        if not link.is_down:
            lesser_is_ours = self.network.name < name
            if known == instance and was_ours != is_ours and is_ours != lesser_is_ours:
                raise FrameError("linked", f"there is a link to {name!r} already")
            link.connection.end(FrameError("linked", f"there is a newer link to {name!r}"))
        link.cut()

    def _on_synchronized(self, link: Link) -> None:
        made = self._outgoing.get(link.connection)
        if made is not None and made[0] not in self._connected:
            self._connected.add(made[0])
            self._tell(ConnectionState("connected", str(made[0].address)))

    def _on_ended(self, link: Link) -> None:
        if link.name in self._links and self._links[link.name][0] is link:
            del self._links[link.name]
            _LOG.info("the link to %(neighbour)s is down", {"neighbour": link.name})


def _announced(told: object, connection: ServerConnection) -> str:
    """Returns the address at which a broker that made a link says that it listens.

    In place of all addresses of its host it gets that of the connection. A loopback address means
    nothing on another host.
    """
    peer = connection.transport.get_extra_info("peername")
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = parse_address(told)  # type: ignore[arg-type]
    except ContradaError:
        return ""
    if address.host in _ALL_ADDRESSES:
        address = replace(address, host=host)
    is_elsewhere = is_loopback(address.host) and not is_loopback(host)
    return "" if is_elsewhere or not address.host else str(address)


def _options_of(capabilities: Mapping[str, Any]) -> tuple[Role, int]:
    role, cost = capabilities.get("as"), capabilities.get("cost")
    if role not in {*Role}:
        raise FrameError("options", f"no role of a neighbour: {role!r}")
    if type(cost) is not int:
        raise FrameError("options", f"no cost of a link: {cost!r}")
    return Role(str(role)), cost


class LinkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A neighbour: an address, or the name of another broker of the file."""

    to: str
    role: Role = Role.PEER
    cost: Annotated[int, Meta(ge=1, le=COST_MAX)] = 1


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The network options, with the same names everywhere. See `contrada serve --help`."""

    name: Label = ""
    neighbours: list[str | LinkSettings] = []
    parent: str | None = None
    general: bool = False
    trees: Annotated[int, Meta(ge=0, le=TREES_MAX)] = 1
    advertisements: bool = False
    sequencer: str = ""
    merging: bool = False

    def links(self) -> Iterator[tuple[str, LinkSettings]]:
        """Yields each neighbour and the parent, with its key."""
        for number, each in enumerate(self.neighbours):
            yield f"neighbours[{number}]", LinkSettings(each) if isinstance(each, str) else each
        if self.parent is not None:
            yield "parent", LinkSettings(self.parent, Role.PARENT)

    def membership(self) -> Membership:
        """Returns the place in the network. Raises AddressError, ServiceError."""
        wanted = [WantedLink(parse_address(it.to), it.role, it.cost) for _, it in self.links()]
        if not self.name and (wanted or self.general):
            what = "with neighbours or a parent" if wanted else "of a general network"
            raise ServiceError(f"a broker {what} has a name: add --name NAME")
        return Membership(
            self.name,
            general=self.general,
            trees=self.trees if self.general else 0,
            strategy=Strategy.ADVERTISEMENTS if self.advertisements else Strategy.SUBSCRIPTIONS,
            merging=self.merging,
            sequencer=self.sequencer,
            neighbours=tuple(wanted),
        )


class NetworkOptions(TypedDict, total=False):
    """Options that make an embedded service a server of a network; see `connect`.

    Its publications and subscriptions are routed as at any broker. It makes links to its neighbours
    and its parent, and makes them again after each loss. `general`, `trees`, `advertisements` and
    `sequencer` must be the same at all brokers; see `contrada serve --help`.
    """

    name: str
    """A name that is unique in the network, and the same after a restart."""
    neighbours: Sequence[str | Mapping[str, Any]]
    """Addresses, or `{"to": address, "cost": 3}`."""
    parent: str
    general: bool
    trees: int
    advertisements: bool
    sequencer: str
    merging: bool


def membership_of(options: NetworkOptions) -> Membership:
    """Returns the place of a service. Raises AddressError, InputError, ServiceError."""
    given = dict(options)
    if isinstance(given.get("neighbours"), tuple):
        given["neighbours"] = [*options["neighbours"]]
    settings = checked("connect", given, NetworkSettings)
    if not any(settings.links()):
        reason = "a service without neighbours or a parent is in no network; add neighbours=[…]"
        raise ServiceError(f"{', '.join(options)}: {reason}")
    if not settings.name:
        raise ServiceError(
            "a service with neighbours or a parent needs a name in the network; add name='…'"
        )
    network = settings.membership()
    addresses = [each.address for each in network.neighbours]
    if len(set(addresses)) < len(addresses):
        twice = str(max(addresses, key=addresses.count))
        raise ServiceError(f"neighbours: found {twice!r} again, expected one link to each")
    return network


_HANDOVER_LOOK_S: Final = 0.01


class Server(ConnectionHost):
    """The common part of brokers and embedded servers."""

    def __init__(
        self,
        network: Membership,
        store: str | Path | Store | None,
        *,
        limits: BrokerLimits = BrokerLimits(),
        core_limits: CoreLimits | None = None,
        client_context: ssl.SSLContext | None = None,
        no_store: str,
        tell: Callable[[ConnectionState], object] = lambda _: None,
    ) -> None:
        """`client_context` is the TLS context of outgoing links; by default, the system
        authorities.

        `no_store` is the hint of errors about a missing store. `tell` gets the state of each
        outgoing link. Raises InvalidValueError, InputError, and ServiceError for an invalid store.
        """
        core = core_limits or CoreLimits()
        dispatcher = Dispatcher(network.router(core), core.service)
        check_store(store)
        logs = BrokerLogs(
            *(dispatcher, network.name, network.sequencer, store, no_store, limits), core.delivery
        )
        super().__init__(dispatcher, logs, limits)
        self.neighbours = Neighbours(self, network, client_context, tell)
        self.hello = Hello(BROKER, "contrada", self.neighbours.capabilities())
        self._ticker: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Makes links, and starts to check connections."""
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        self.neighbours.change(self.neighbours.network.neighbours)

    async def disconnect_all(self) -> None:
        """Hands over the queues, within a bounded time, and closes all connections."""
        self.is_stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        try:
            await self.neighbours.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hand_over(), self.limits.handover_wait_s)
            for connection in list(self._connections):
                connection.close("the broker stops")
            with contextlib.suppress(TimeoutError):  # Connections that do not read are aborted.
                await asyncio.wait_for(self._empty.wait(), self.limits.stop_wait_s)
        finally:  # Also when the caller is cancelled.
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    async def _hand_over(self) -> None:
        """Waits until no bytes are held and neighbours have processed all notifications."""
        while (
            self._held_bytes or self.logs.due or any(it.queue.in_flight for it in self.neighbours)
        ):
            await asyncio.sleep(_HANDOVER_LOOK_S)

    async def close(self) -> None:
        """Ends all tasks, and closes the store. Raises StoreError for unwritten records."""
        await asyncio.sleep(0)  # Each task begins: else its entries would be lost uncounted.
        await stop_tasks(self._work)  # All connections are closed, so nothing can be delivered.
        await self.logs.aclose()

    def links(self, most: int | None = None) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the sent and the queued notifications by link, of the first links by name."""
        links = sorted(self.neighbours, key=attrgetter("name"))[:most]
        sent = {each.name: each.queue.sent for each in links}
        return sent, {each.name: len(each.queue) for each in links}

    def handler_for(self, connection: ServerConnection, hello: Hello) -> ConnectionHandler:
        return self.neighbours.handler_for(connection, hello)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.limits.broker_tick_s)
            for connection in list(self._connections):
                self.check_alive(connection)

    def check_alive(self, connection: ServerConnection) -> None:
        """Ends a connection that is silent."""
        connection.tick()
