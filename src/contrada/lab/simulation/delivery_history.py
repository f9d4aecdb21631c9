"""`DeliveryHistory`: what is noted of a run that promises, simulated or real, for `keeping`.

What is acknowledged never comes again, but where a crash may have taken what was said of it.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from contrada.delivery.delivery_class import DeliveryClass
from contrada.delivery.durable_log import Retention
from contrada.errors import ContradaError
from contrada.model import Notification, Selection


@dataclass(slots=True, eq=False)
class Sent:
    """A notification that a client published, more than at best effort.

    `known` are the standing subscriptions that all servers knew then and that it matches; `past`
    are those that its publisher had published or read before, and theirs.
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
    """A standing subscription, and its home."""

    name: str
    filters: Selection
    broker: int
    is_durable: bool
    retention: Retention
    has_ended: bool = False
    is_lost: bool = False  # with its server, or its server's disk

    @property
    def replays(self) -> bool:
        """Whether it keeps what was acknowledged."""
        return self.retention.replay_max > 0


@dataclass(slots=True)
class LogReading:
    """What one client has read of a standing subscription, by position; `late` are not answered."""

    records: dict[int, str] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    is_open: bool = False
    is_stale: bool = False  # its home has crashed since, and will not hear what it says
    opened: int = 0
    refused: int = 0

    def consumer(self, client: str) -> str:
        """The name under which it reads since it opened last: what was for another one is gone."""
        return f"{client}/{self.opened}"


@dataclass
class DeliveryHistory:
    """All of it; `crashes` are order, server, and whether its disk survived.

    `sequencers` are all that ever were. `acknowledged` are positions of each standing subscription
    that must not come again, with the time and the reader's server. `known` is what each client has
    published and read of causal order, with all that came before that.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    subscriptions: dict[str, DurableSpan] = field(default_factory=dict)
    reads: defaultdict[tuple[str, str], LogReading] = field(
        default_factory=lambda: defaultdict(LogReading)
    )
    crashes: list[tuple[int, int, bool]] = field(default_factory=list)
    sequencers: set[int] = field(default_factory=set)
    doubles: list[str] = field(default_factory=list)
    acknowledged: defaultdict[str, dict[int, tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    known: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def note_sent(self, sent: Sent) -> None:
        """A client publishes; the notification's `past` is fixed from now on."""
        sent.past = frozenset(self.known[sent.client])
        self.sent[sent.id] = sent
        if sent.guarantee.is_causal:
            self.known[sent.client].add(sent.id)

    def note_read(
        self, client: str, name: str, position: int, id_: str, *, is_replay: bool
    ) -> None:
        """A client reads a record."""
        if position in self.acknowledged[name] and not is_replay:
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
        """A crash may have taken acknowledgements: on their way, or before the disk had them.

        What was said at the home itself until `synced_us` is on its disk.
        """
        for name, positions in self.acknowledged.items():
            owner = self.subscriptions[name].broker
            for position, (at_us, where) in list(positions.items()):
                if broker in (owner, where) and not (where == owner and at_us <= synced_us):
                    del positions[position]
