"""`Script` and its steps: the external events of a network, as data that can be stored and left
out.

An impossible step (a client of a crashed server, an unknown subscription) does nothing, so any part
of a script is a script.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from contrada.delivery.retention import OnFull
from contrada.errors import InputError
from contrada.lab.simulation.simulated_line import Faults
from contrada.model import Advertisement, Pattern
from contrada.model.algebra.notification import PRIORITY_DEFAULT
from contrada.model.syntax import parse_filter, parse_filter_set
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Offer

BROKERS_MAX: Final = 1_000
"""Servers of a simulated network. Beyond it: the network is refused."""


FaultName: TypeAlias = Literal["kill", "end", "start", "pause", "go on", "cut", "mend"]
"""A fault of a member of a group, or its end."""


MEMBERS: Final = 3
"""Members of a group. Beyond it: a script with another one is refused."""


class _BaseStep(msgspec.Struct, frozen=True, tag_field="step"):
    """An event and its time."""

    at_us: int


class _LinkStep(_BaseStep, frozen=True):
    a: int
    b: int


class _BrokerStep(_BaseStep, frozen=True):
    broker: int


class _ClientStep(_BaseStep, frozen=True):
    client: str


class _NamedStep(_ClientStep, frozen=True):
    identity: str


class Connect(_LinkStep, frozen=True, tag="connect"):
    """A link between two servers; with `is_parent` the first is the parent of the second.

    Shortest paths are those of the least `cost`, over the links of a mesh alone.
    """

    is_parent: bool
    delay_us: int
    cost: int = 1


class CutLine(_LinkStep, frozen=True, tag="cut"):
    """The transport of a link carries nothing from now on."""


class MendLine(_LinkStep, frozen=True, tag="mend"):
    """The transport of a link carries packets again."""


class Crash(_BrokerStep, frozen=True, tag="crash"):
    """A server crashes; `keeps_store`: its clients' subscriptions survive until the restart."""

    keeps_store: bool


class Restart(_BrokerStep, frozen=True, tag="restart"):
    """A server restarts."""


class Move(_ClientStep, frozen=True, tag="move"):
    """A client connects to a server, at first or after another, and repeats its registrations."""

    broker: int


class Leave(_ClientStep, frozen=True, tag="leave"):
    """A client disconnects, with its subscriptions and advertisements."""


class AddFilter(_NamedStep, frozen=True, tag="subscribe"):
    """A client subscribes; the filter is in the text syntax."""

    filters: str


class DropFilter(_NamedStep, frozen=True, tag="unsubscribe"):
    """A client withdraws a subscription."""


class AddOffer(_NamedStep, frozen=True, tag="advertise"):
    """A client advertises; an open offer is a filter, which allows further attributes."""

    offer: str
    is_open: bool = False


class DropOffer(_NamedStep, frozen=True, tag="unadvertise"):
    """A client withdraws an advertisement."""


class PublishStep(_ClientStep, frozen=True, tag="publish"):
    """A client publishes."""

    id: str
    values: dict[str, int | float | str | bool | None]
    ttl_us: int | None = None
    priority: int = PRIORITY_DEFAULT
    delivery: str = "best-effort"


class OpenDurable(_NamedStep, frozen=True, tag="stand"):
    """A client creates a durable subscription at its server, and reads it."""

    filters: str
    is_durable: bool
    records_max: int
    on_full: OnFull
    replay_max: int


class AttachReader(_NamedStep, frozen=True, tag="attach"):
    """A client reads a durable subscription, maybe another's."""


class DetachReader(_NamedStep, frozen=True, tag="detach"):
    """A client stops reading a durable subscription."""


class EndDurable(_NamedStep, frozen=True, tag="end"):
    """A client ends a durable subscription."""


class PassSequence(_BrokerStep, frozen=True, tag="pass"):
    """The sequencer of a sequence hands it over to another server."""

    sequence: str


class FillDisk(_BrokerStep, frozen=True, tag="fill"):
    """The disk of a server is full."""


class FreeDisk(_BrokerStep, frozen=True, tag="free"):
    """The disk of a server has room again."""


class MemberFault(_BaseStep, frozen=True, tag="member"):
    """A fault of a member begins or ends; without one, of the leader, or at the end of all."""

    fault: FaultName
    member: int | None = None


class JumpClock(_BaseStep, frozen=True, tag="jump"):
    """The wall clock of a member jumps; `also_lease`: the clock of its lease, too, ahead."""

    member: int
    by_us: int
    also_lease: bool


class Pause(_ClientStep, frozen=True, tag="pause"):
    """A client stops reading; its notifications wait."""


class Resume(_ClientStep, frozen=True, tag="resume"):
    """A client reads again, waiting notifications first."""


class AddPattern(_NamedStep, frozen=True, tag="subscribe pattern"):
    """A client subscribes to a pattern, which is in the text syntax."""

    pattern: str


class DropPattern(_NamedStep, frozen=True, tag="unsubscribe pattern"):
    """A client withdraws a subscription of a pattern."""


class AdvanceTime(_BaseStep, frozen=True, tag="tell time"):
    """All servers learn the time, for waiting patterns."""


_NetworkSteps: TypeAlias = Connect | CutLine | MendLine | Crash | Restart | AdvanceTime
_ClientSteps: TypeAlias = Move | Leave | AddFilter | DropFilter | AddOffer | DropOffer | PublishStep
_ReaderSteps: TypeAlias = Pause | Resume | AddPattern | DropPattern | OpenDurable | AttachReader
_DeliverySteps: TypeAlias = DetachReader | EndDurable | PassSequence | FillDisk | FreeDisk
_GroupSteps: TypeAlias = MemberFault | JumpClock
Step: TypeAlias = _NetworkSteps | _ClientSteps | _ReaderSteps | _DeliverySteps | _GroupSteps

NetworkShape: TypeAlias = Literal["central", "hierarchical", "acyclic", "general", "hybrid"]
"""The links of servers: a single one, a tree of parents, a tree of peers, peers with redundant
links, or peers with redundant links that are roots of trees."""


class Kind(msgspec.Struct, frozen=True, order=True):
    """The configuration of the servers of a network. A kind is selected by its name."""

    shape: NetworkShape
    strategy: Strategy
    covering: bool = True
    merging: bool = False
    reliable: bool = msgspec.field(default=False, name="promises")
    trees: int = 0
    standby: bool = False
    """Whether the one server is a group with one database, of which one leads."""

    @property
    def name(self) -> str:
        """As in `general, advertisement forwarding, covering`."""
        saving = "merging" if self.merging else "covering" if self.covering else "plain"
        reliable = ", standby" if self.standby else ", promises" if self.reliable else ""
        trees = f" on {self.trees} shared tree{'s' * (self.trees > 1)}" if self.trees else ""
        return f"{self.shape}{trees}, {self.strategy}, {saving}{reliable}"


class Script(msgspec.Struct, frozen=True):
    """A network and its steps, in order of time."""

    seed: int
    kind: Kind
    brokers: int
    faults: Faults
    steps: tuple[Step, ...]
    storeless: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise ValueError(f"{self.brokers} servers, expected 1 to BROKERS_MAX = {BROKERS_MAX}")
        before_us = 0
        for step in self.steps:
            named = (getattr(step, each, 0) for each in ("a", "b", "broker"))
            if not all(0 <= each < self.brokers for each in named):
                raise ValueError(f"there is no such server: {step}")
            if not 0 <= (getattr(step, "member", 0) or 0) < MEMBERS:
                raise ValueError(f"there is no such member: {step}")
            if step.at_us < before_us:
                raise ValueError(f"not in order of time: {step}")
            before_us = step.at_us

    def with_steps(self, steps: Sequence[Step]) -> "Script":
        """Returns the script with other steps."""
        return msgspec.structs.replace(self, steps=tuple(steps))


def to_text(script: Script) -> str:
    """Returns a script as JSON, a step on a line."""
    fields = msgspec.structs.asdict(script)
    del fields["steps"]
    head = msgspec.json.encode(fields).decode().removesuffix("}") + ',"steps":'
    lines = ",\n".join("  " + msgspec.json.encode(step).decode() for step in script.steps)
    return f"{head}[\n{lines}\n]}}"


def from_text(text: str, source: str) -> Script:
    """Parses a script. Raises InputError, with the place."""
    try:
        return msgspec.json.decode(text, type=Script)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(source, str(error)) from None


# Texts of steps are parsed once: made worlds repeat them.
_cached: Final = lru_cache(maxsize=4_096)
filter_of, filters_of = _cached(parse_filter), _cached(parse_filter_set)
pattern_of, advertisement_of = _cached(Pattern), _cached(Advertisement)


def offer_of(text: str, *, is_open: bool) -> Offer:
    """Parses an offer; an open one is a filter."""
    return filter_of(text) if is_open else advertisement_of(text)
