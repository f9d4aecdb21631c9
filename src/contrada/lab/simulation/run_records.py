"""`History`: the records of a run, for the oracle and for the search for faults.

An *order* numbers the events of a run, so that of two events at one time the first is known. A
*cause* makes servers send messages: a client's request, or a change of links. All messages that
follow from a cause belong to it, and it ends when none of them is in flight.
"""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from contrada.lab.simulation.script_steps import Kind
from contrada.model import Notification
from contrada.patterns import Match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router_messages import Advertise, Effect, Event, Refused, Role, Subscribe
from contrada.service.transition_log import Covered


@dataclass(slots=True, eq=False)
class Cause:
    """A request or change that makes servers send messages, and how many of these are in flight.

    `arrived_us` is the arrival of the last copy of its notification over a line.
    """

    is_control: bool
    begun: int
    in_flight: int = 1
    ended: int | None = None
    ended_us: int = 0
    arrived_us: int = 0


@dataclass(slots=True, eq=False)
class InterestSpan:
    """A subscription or an advertisement of a client that was in force at a server."""

    client: str
    broker: int
    message: Subscribe | Advertise | SubscribePattern
    begun: int
    ended: int | None = None

    def is_held(self, begin: int, end: int) -> bool:
        """Whether it was in force at some time between two orders."""
        return self.begun <= end and (self.ended is None or self.ended >= begin)


@dataclass(slots=True, eq=False)
class PublishedRecord:
    """A notification, and the state of the network at its publishing.

    `settled` is the last order without control messages in flight; `offers` are the advertisements
    of its client that cover it.
    """

    notification: Notification
    client: str
    broker: int
    order: int
    settled: int
    overlaps: bool
    offers: tuple[InterestSpan, ...]
    cause: Cause


class Delivered(msgspec.Struct, frozen=True):
    """A server handed a notification to a client for its subscriptions.

    The client's session takes it unless another server had delivered it before.
    """

    order: int
    client: str
    broker: int
    subscriptions: tuple[str, ...]
    id: str
    is_taken: bool
    at_us: int


@dataclass(frozen=True, slots=True)
class Matched:
    """A server handed a match to a client for its subscription of a pattern."""

    order: int
    client: str
    broker: int
    match: Match[str]


@dataclass(frozen=True, slots=True)
class Change:
    """An end of a line is up or down from now on."""

    order: int
    line: int
    end: int
    is_up: bool


class Handled(msgspec.Struct, frozen=True):
    """A server handled an event."""

    order: int
    at_us: int
    broker: int
    event: Event
    effects: tuple[Effect | Covered, ...]


@dataclass(slots=True)
class History:
    """All records of a run."""

    subscriptions: list[InterestSpan] = field(default_factory=list)
    published: list[PublishedRecord] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    handled: list[Handled] = field(default_factory=list)
    refused: list[tuple[int, Refused]] = field(default_factory=list)
    lost: int = 0
    causes: list[Cause] = field(default_factory=list)
    patterns: list[InterestSpan] = field(default_factory=list)
    matched: list[Matched] = field(default_factory=list)
    time_advances: list[tuple[int, int]] = field(default_factory=list)
    """The announcements of the time to all servers, as order and time."""


class ObservedNetwork(Protocol):
    """A judged network: a simulated one, or real brokers.

    `ends` are the two servers of each line, `costs` the costs of the lines.
    """

    kind: Kind
    history: History
    ends: list[tuple[int, int]]
    costs: list[int]

    def role(self, a: int, b: int) -> Role:
        """The role of the second of two linked servers for the first."""
        ...
