"""`DeliveryHistory`: the records of delivery guarantees in a run, simulated or real.

An acknowledged record never returns, except if a crash may have lost the acknowledgement.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from contrada.delivery.delivery_class import DeliveryClass
from contrada.delivery.retention import Retention
from contrada.errors import ContradaError
from contrada.model import Notification, Selection


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
    client's causal past. `late_writes` are those of a replaced leader. If a clock of a lease was
    ever wrong, a replaced leader may give records that were acknowledged.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    subscriptions: dict[str, DurableSpan] = field(default_factory=dict)
    reads: defaultdict[tuple[str, str], LogReading] = field(
        default_factory=lambda: defaultdict(LogReading)
    )
    crashes: list[tuple[int, int, bool]] = field(default_factory=list)
    sequencers: set[int] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)
    fallen: list[str] = field(default_factory=list)
    acknowledged: defaultdict[str, dict[int, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    known: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    late_writes: list[str] = field(default_factory=list)
    is_clock_wrong: bool = False

    def note_attempt(self, name: str, position: int, attempt: int) -> None:
        """Records the attempt of a record, which survives restarts: it never falls."""
        before = self.attempts.setdefault((name, position), attempt)
        self.attempts[name, position] = attempt
        if attempt < before and not self.is_clock_wrong:
            self.fallen.append(f"{position} of {name}: attempt {attempt} after {before}")

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
            self.doubles.append(f"{position} of {name} was acknowledged before {client} got it")
        records = self.reads[client, name].records
        if position in records:
            if records[position] != id_:
                self.doubles.append(f"{position} of {name} is {id_}, was {records[position]}")
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
