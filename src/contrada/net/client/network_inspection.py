"""`NetworkInspection`: asks the brokers of a network, each over a client connection of its own.

    explore    start ==> its links, with addresses ==> the brokers there ==> their links ...
    story      start ==> the same brokers, which tell their transitions of one identity
    follow     start ==> where it would send a notification, with the source ==> those brokers ...

Only links name addresses: as a broker dialled its neighbour, or as the neighbour announced itself.
A loopback address is used only where a broker of this host names it. Each broker is asked with the
rights of the same user, so it shows what it lets this user inspect. A notification is not
published, so no broker recognises duplicates: `follow` goes to each broker once.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import chain
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from contrada.errors import ContradaError, InvalidValueError, ServiceError, shortened
from contrada.net.client.client_limits import NetworkLimits
from contrada.net.wire.address import Address, is_loopback, parse_address
from contrada.net.wire.inspection import (
    STORY_NAMES_MAX,
    ForestPosition,
    HeldStep,
    Inspection,
    LinkArrival,
)
from contrada.routing.interest_forwarder import Strategy
from contrada.routing.route_decision import NO_INTEREST
from contrada.service.story import ServerStory, Story, StoryStep, story_of

T = TypeVar("T")


class BrokerAccess(Protocol):
    """A client of a broker, as `TcpService` is."""

    async def inspection(
        self,
        notification: bytes = b"",
        *,
        arrival: LinkArrival | None = None,
        forest_from: ForestPosition | None = None,
        story: Sequence[str] = (),
    ) -> Inspection:
        """Returns the inspection. Raises ServiceError."""
        ...

    async def broker_statistics(self) -> dict[str, Any]:
        """Returns the counts of the broker. Raises ServiceError."""
        ...


Reach: TypeAlias = Callable[[Address], AbstractAsyncContextManager[BrokerAccess]]
"""Returns the opened service at an address. Raises ContradaError."""

ARRIVED_BEFORE: Final = "it has arrived here before: a duplicate"


class SeenBroker(msgspec.Struct):
    """A broker with its answers, or the `reason` why there are none, though it `is_asked` or not.

    The inspection has the route of the notification as if a client of this broker published it.
    """

    name: str
    address: str = ""
    reason: str = ""
    is_asked: bool = False
    held: Inspection | None = None
    statistics: dict[str, Any] = {}

    def step(self, neighbour: str) -> HeldStep | None:
        """Returns the decision about a link."""
        return next(
            (it for it in (self.held.steps if self.held else ()) if it.name == neighbour), None
        )


class NotificationHop(msgspec.Struct):
    """The arrival of a notification at a broker, and why it ends there or is not known further."""

    broker: str
    came_from: str
    source: str
    reason: str = ""
    held: Inspection | None = None

    @property
    def steps(self) -> Sequence[HeldStep]:
        """The decisions for each link."""
        return () if self.held is None else self.held.steps


class NetworkInspection:
    """The network of the broker behind `start`, for one user."""

    def __init__(
        self,
        start: BrokerAccess,
        reach: Reach,
        limits: NetworkLimits = NetworkLimits(),
        *,
        is_local: bool,
        ways: dict[str, Address | None] | None = None,
    ) -> None:
        """`reach` connects as the user. `is_local`: `start` is on this host. `ways` has the
        addresses that an earlier inspection has found by name, and gets those of this one.
        """
        self._start, self._reach, self._limits = start, reach, limits
        self._turn = asyncio.Semaphore(limits.asked_at_once_max)
        self._is_local = is_local
        self._ways: dict[str, Address | None] = {} if ways is None else ways
        self._until_s = 0.0
        self.brokers: dict[str, SeenBroker] = {}
        """The brokers, the first one first."""
        self.left_out = 0
        """The number of further brokers."""

    async def explore(self, notification: bytes = b"") -> None:
        """Asks all brokers, nearest first. Raises ContradaError where the first does not answer."""
        self._ways.clear()
        self.brokers.clear()
        self._begin()
        held = await self._start.inspection(notification)
        first = SeenBroker(held.name, held=held, statistics=await self._start.broker_statistics())
        self.brokers[first.name], self._ways[first.name] = first, None
        left_out: set[str] = set()
        level = [first]
        while level:
            named: dict[str, SeenBroker] = {}
            for each in level:
                for link in () if each.held is None else each.held.links:
                    known = self.brokers.get(link.name)
                    if known is None and len(self.brokers) >= self._limits.network_brokers_max:
                        left_out.add(link.name)
                    elif known is None or not (known.address or known.held):
                        seen = SeenBroker(link.name, link.address)
                        self.brokers[link.name] = named[link.name] = seen
                        seen.reason = self._why_not_asked(seen, each)
            level = [each for each in named.values() if not each.reason]
            await asyncio.gather(*(self._ask(each, notification) for each in level))
        self.left_out = len(left_out)

    def _begin(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + self._limits.network_answer_s

    def _why_not_asked(self, seen: SeenBroker, namer: SeenBroker) -> str:
        """Returns why a broker cannot be asked; else its way is known."""
        if not seen.address:
            return "no link names its address"
        try:
            address = parse_address(seen.address)
        except ContradaError as error:
            return shortened(str(error))
        way = self._ways[namer.name]
        is_local = self._is_local if way is None else is_loopback(way.host)
        if is_loopback(address.host) and not is_local:
            return f"{seen.address} is an address on the host of {namer.name!r}"
        self._ways[seen.name] = address
        return ""

    async def _ask(self, seen: SeenBroker, notification: bytes) -> None:
        async def ask(service: BrokerAccess) -> tuple[Inspection, dict[str, Any]]:
            held = await service.inspection(notification)
            if held.name != seen.name:
                raise ServiceError(f"the broker at {seen.address} has the name {held.name!r}")
            return held, await service.broker_statistics()

        seen.is_asked = True
        answer = await self._answer_of(seen.name, ask)
        if isinstance(answer, str):
            seen.reason = answer
        else:
            seen.held, seen.statistics = answer

    async def _answer_of(self, name: str, ask: Callable[[BrokerAccess], Awaitable[T]]) -> T | str:
        """Returns the answer of a broker that is asked in its turn, or why it gave none."""
        limits, way = self._limits, self._ways[name]
        whole = asyncio.timeout_at(self._until_s)
        try:
            async with whole, self._turn:
                async with asyncio.timeout(limits.broker_answer_s):
                    service = nullcontext(self._start) if way is None else self._reach(way)
                    async with service as opened:
                        return await ask(opened)
        except TimeoutError:
            if whole.expired():
                return f"not asked within network_answer_s = {limits.network_answer_s:g} s"
            return f"no answer within broker_answer_s = {limits.broker_answer_s:g} s"
        except ContradaError as error:
            return shortened(str(error))

    async def follow(self, notification: bytes, begin: str) -> list[NotificationHop]:
        """Returns the way of a notification that a client of a broker would publish, in order.

        `explore` has found the brokers; the time for its answers goes on.
        """
        hops: list[NotificationHop] = []
        arrived = {begin}
        level = [NotificationHop(begin, "", "")]
        while level:
            await asyncio.gather(*(self._decide(each, notification) for each in level))
            hops += level
            following: list[NotificationHop] = []
            for hop in level:
                for step in hop.steps:
                    if hop.reason or step.reason:
                        continue
                    arrival = NotificationHop(step.name, hop.broker, step.source)
                    if step.name in arrived:
                        arrival.reason = ARRIVED_BEFORE
                        hops.append(arrival)
                    else:
                        arrived.add(step.name)
                        following.append(arrival)
            level = following
        return hops

    async def _decide(self, hop: NotificationHop, notification: bytes) -> None:
        arrival = (hop.came_from, hop.source) if hop.came_from else None
        seen = self.brokers.get(hop.broker)
        found: Inspection | str
        if seen is None or seen.held is None:
            found = "it is not asked" if seen is None else seen.reason
        else:
            found = await self._answer_of(
                hop.broker, lambda service: service.inspection(notification, arrival=arrival)
            )
        if isinstance(found, Inspection) and found.strategy:
            hop.held, hop.reason = found, found.stopped
        else:
            why = found if isinstance(found, str) else "this broker has an earlier version"
            hop.reason = f"not known further: {why}"

    async def story(self, identity: str) -> Story:
        """Returns the story of a notification, subscription or log at all brokers.

        A neighbour knows a forwarded filter by another identity, which the broker that forwarded it
        tells: such brokers are asked again. Raises ContradaError where the first does not answer.
        """
        await self.explore()
        found: dict[str, ServerStory] = {}
        missing = {name: each.reason for name, each in self.brokers.items() if each.reason}
        names = {name: {identity} for name, each in self.brokers.items() if each.held}
        wanted = list(names)
        while wanted:
            asking = (self._read_story(each, sorted(names[each]), found) for each in wanted)
            reasons = await asyncio.gather(*asking)
            missing |= {name: why for name, why in zip(wanted, reasons, strict=True) if why}
            before = {name: len(known) for name, known in names.items()}
            for each in chain.from_iterable(story.transitions for story in found.values()):
                known = names.get(each.to, set())
                if each.step == StoryStep.FORWARDED and each.name and len(known) < STORY_NAMES_MAX:
                    known.add(f"{each.broker}/{each.name}")
            wanted = [name for name, known in names.items() if len(known) > before[name]]
        if self.left_out:
            limit = f"network_brokers_max = {self._limits.network_brokers_max}"
            missing[f"{self.left_out} more brokers"] = f"not asked: {limit}"
        return story_of(identity, found, missing)

    async def _read_story(self, name: str, names: list[str], found: dict[str, ServerStory]) -> str:
        """Adds the transitions at a broker. Returns why it gave none, or nothing."""
        answer = await self._answer_of(name, lambda service: service.inspection(story=names))
        if isinstance(answer, str):
            return answer
        if answer.story is None:
            return "this broker has an earlier version, without stories"
        found[name] = answer.story
        return ""

    async def forest(self, name: str, begin: ForestPosition) -> Inspection:
        """Returns a part of the filters of a broker. Raises ContradaError."""
        if name not in self._ways:
            await self.explore()
        if name not in self._ways:
            seen = self.brokers.get(name)
            why = "no broker of this network" if seen is None else seen.reason
            raise InvalidValueError(shortened(name), why)
        self._begin()
        answer = await self._answer_of(name, lambda service: service.inspection(forest_from=begin))
        if isinstance(answer, str):
            raise ServiceError(f"{name!r}: {answer}")
        return answer

    def missed(self, hops: Iterable[NotificationHop]) -> dict[str, str]:
        """Returns the brokers with matching subscriptions of clients that it does not reach, each
        with the reason.
        """
        arrived = {each.broker: each for each in hops if each.reason != ARRIVED_BEFORE}
        return {
            name: self._why_missed(name, arrived)
            for name, seen in self.brokers.items()
            if name not in arrived and seen.held and seen.held.counts.get("delivering")
        }

    def _why_missed(self, missed: str, arrived: dict[str, NotificationHop]) -> str:
        """Returns the place where the interest of a broker ends before it meets the notification.

        The interest is followed over links, as it was forwarded, then the nearest broker that the
        notification reaches is looked for.
        """
        informed: dict[str, str | None] = {missed: None}
        for name, neighbour in self._walk(informed, is_informed=True):
            if neighbour in arrived:
                hop = arrived[neighbour]
                reasons = (it.reason for it in hop.steps if it.name == name)
                why = hop.reason or next(reasons, "")
                return f"{neighbour} does not forward it to {name}: {why}"
        before = dict.fromkeys(informed)
        for name, neighbour in self._walk(before, is_informed=False):
            if neighbour in arrived:
                while before[name] is not None:
                    name, neighbour = str(before[name]), name
                return self._why_not_informed(name, neighbour)
        return "no link that is known leads there"

    def _walk(
        self, before: dict[str, str | None], *, is_informed: bool
    ) -> Iterable[tuple[str, str]]:
        """Yields links from known brokers to further ones, nearest first, which are known then."""
        waiting = deque(before)
        while waiting:
            name = waiting.popleft()
            seen = self.brokers.get(name)
            for link in () if seen is None or seen.held is None else seen.held.links:
                if link.name in before:
                    continue
                if is_informed and (link.unused or self._is_unknown_at(name, link.name)):
                    continue
                yield name, link.name
                before[link.name] = name
                waiting.append(link.name)

    def _is_unknown_at(self, name: str, neighbour: str) -> bool:
        """Whether a neighbour does not know the matching subscriptions of a broker."""
        seen = self.brokers.get(neighbour)
        step = None if seen is None else seen.step(name)
        return step is None or step.reason == NO_INTEREST

    def _why_not_informed(self, name: str, neighbour: str) -> str:
        """Returns why a neighbour does not know the matching subscriptions of a broker."""
        seen, other = self.brokers[name], self.brokers.get(neighbour)
        held = seen.held
        assert held is not None, "it has links"
        link = next(each for each in held.links if each.name == neighbour)
        if link.unused:
            return f"the link of {name} to {neighbour} is not used: {link.unused}"
        if other is None or other.held is None:
            return (
                f"{neighbour} is not known: {'it is not asked' if other is None else other.reason}"
            )
        step = seen.step(neighbour)
        if step is not None and step.refuses:
            return f"{name} takes no such notification from {neighbour}: {step.refuses}"
        if any(neighbour in each.forwarded for each in held.matching):
            return f"the subscription of {name} has not arrived at {neighbour} yet"
        why = f"{name} has not forwarded its subscription to {neighbour}"
        if held.strategy == Strategy.ADVERTISEMENTS:
            why += ": no advertisement from there meets it"
        return why
