"""`History`: the records of a run, simulated or real, for the oracle and for the search for faults.

An *order* numbers the events of a run, so that of two events at one time the first is known. A
*cause* makes servers send messages: a client's request, or a change of links. All messages that
follow from a cause belong to it, and it ends when none of them is in flight.

`DeliveryHistory` has the records of delivery guarantees. An acknowledged record never returns,
except if a crash may have lost the acknowledgement.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from contrada.delivery.delivery_class import DeliveryClass
from contrada.delivery.retention import Retention
from contrada.errors import ContradaError
from contrada.lab.simulation.script_steps import Kind
from contrada.model import Notification, Selection
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


# --- delivery guarantees --------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Sent:
    """A publication above best effort.

    `known` are the matching durable subscriptions that all servers knew then; `past` are the
    publications that its publisher had published or read before, and their own past.
    """

    id: str
    notification: Notification
    guarantee: DeliveryClass
    client: str
    sequence: int
    past: frozenset[str] = frozenset()
    brokers: list[int] = field(default_factory=list)
    known: frozenset[str] = frozenset()
    order: int = 0
    is_accepted: bool = False
    error: ContradaError | None = None


@dataclass(slots=True, eq=False)
class DurableSpan:
    """A durable subscription, and its owner."""

    name: str
    filters: Selection
    broker: int
    is_durable: bool
    retention: Retention
    has_ended: bool = False
    is_lost: bool = False  # with its server, or its server's disk

    @property
    def replays(self) -> bool:
        """Whether it keeps acknowledged records."""
        return self.retention.replay_max > 0


@dataclass(slots=True)
class LogReading:
    """The records that a client has read of a subscription, by position.

    `late` ones are not acknowledged, since these times. `taken` counts those since the opening.
    """

    records: dict[int, str] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    taken: int = 0
    is_open: bool = False
    is_stale: bool = False  # its owner has crashed since, and ignores it
    opened: int = 0
    refused: int = 0

    def consumer(self, client: str) -> str:
        """The consumer's name since the last opening: records for an earlier one are void."""
        return f"{client}/{self.opened}"


@dataclass
class DeliveryHistory:
    """All records; `crashes` are order, server, and whether its disk survived.

    `sequencers` are all servers that ever were one. `acknowledged` are positions of each durable
    subscription that must not return, with the time and the reader's server. `known` is each
    client's causal past. `faults` are violated rules, each in a word, with the case. If a clock of
    a lease was ever wrong, a replaced leader may give records that were acknowledged.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    subscriptions: dict[str, DurableSpan] = field(default_factory=dict)
    reads: defaultdict[tuple[str, str], LogReading] = field(
        default_factory=lambda: defaultdict(LogReading)
    )
    crashes: list[tuple[int, int, bool]] = field(default_factory=list)
    sequencers: set[int] = field(default_factory=set)
    faults: list[tuple[str, str]] = field(default_factory=list)
    acknowledged: defaultdict[str, dict[int, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    known: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    is_clock_wrong: bool = False

    def note_attempt(self, name: str, position: int, attempt: int) -> None:
        """Records the attempt of a record, which survives restarts: it never falls."""
        before = self.attempts.setdefault((name, position), attempt)
        self.attempts[name, position] = attempt
        if attempt < before and not self.is_clock_wrong:
            case = f"{position} of {name}: attempt {attempt} after {before}"
            self.faults.append(("attempt", case))

    def note_sent(self, sent: Sent) -> None:
        """Records a publication; its `past` is fixed from now on."""
        sent.past = frozenset(self.known[sent.client])
        self.sent[sent.id] = sent
        if sent.guarantee.is_causal:
            self.known[sent.client].add(sent.id)

    def note_read(
        self, client: str, name: str, position: int, id_: str, *, is_replay: bool
    ) -> None:
        """Records the reading of a record."""
        is_excused = is_replay or self.is_clock_wrong
        if position in self.acknowledged[name] and not is_excused:
            case = f"{position} of {name} was acknowledged before {client} got it"
            self.faults.append(("double", case))
        records = self.reads[client, name].records
        if position in records:
            if records[position] != id_:
                case = f"{position} of {name} is {id_}, was {records[position]}"
                self.faults.append(("double", case))
        else:
            records[position] = id_
            if self.sent[id_].guarantee.is_causal:
                self.known[client] |= {id_, *self.sent[id_].past}

    def forget_acknowledged(self, broker: int, synced_us: int) -> None:
        """Forgets acknowledgements that a crash may have lost: in flight, or not on the disk.

        Those made at the owner itself until `synced_us` are on its disk.
        """
        for name, positions in self.acknowledged.items():
            owner = self.subscriptions[name].broker
            for position, (at_us, where) in list(positions.items()):
                if broker in (owner, where) and not (where == owner and at_us <= synced_us):
                    del positions[position]
