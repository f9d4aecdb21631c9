"""What clients and servers of the network say, and what a router is told and asks to be done.

A *message* travels between a client and its server, or between two servers. A subscription or an
advertisement has an identity, which its sender chose and which means something only between these
two; what is withdrawn is named by it alone. In a general topology each is also labelled by its
*home*, which is the server where it entered the mesh of peers, or the tree that all share along
which it goes, and a notification by its *source*, the server where it entered the mesh; elsewhere
both are empty. An *event* is a message that has come, or a change of
links or clients. An *effect* is something that the owner of a router does for it. What is made anew
for each notification is a struct, since making a frozen dataclass takes ten times as long.

Source: PODC 2000 §2 (the interface of the service) and §4 (the server protocol).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.errors import ContradaError
from contrada.matching.packed import Bundle
from contrada.model import Advertisement, Filter, Notification, Selection
from contrada.model.algebra.product import HeldProduct
from contrada.patterns import Match
from contrada.routing import delegation
from contrada.routing.aggregation import Combination
from contrada.routing.delegation import PatternMessage, RouterMessage
from contrada.routing.disjuncts import Disjunct

VERSION: Final = delegation.VERSION
"""The version of the messages. A router refuses any other."""

LABEL_CHARS_MAX: Final = 255
"""Characters of a server's name, and of an identity. Beyond it: refused, counted."""

Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=LABEL_CHARS_MAX)]
"""A server's name as it is decoded: one that is longer is never held."""

SUBSCRIPTION_FILTERS_MAX: Final = 10_000
"""Filters of one subscription. Beyond it: refused, counted."""

QUESTION_HOPS_MAX: Final = 64
"""Links that a question goes over, unless it gives a limit of its own. Beyond it: nobody is
asked."""


REPORTS_MAX: Final = 100_000
"""Sources that one question reaches. Beyond it: the branch that has more of them is reported as
failed."""


class Client(msgspec.Struct, frozen=True, order=True, gc=False):
    """A client of this server, by its name."""

    name: str


class Neighbour(msgspec.Struct, frozen=True, order=True, gc=False):
    """A server with a link to this one, by its name."""

    name: str


Origin: TypeAlias = Client | Neighbour
"""From whom a message comes."""


class NextHop(msgspec.Struct, frozen=True, order=True, gc=False):
    """A neighbour, and the home of what comes from it or goes to it: one tree through one link."""

    neighbour: Neighbour
    owner: str = ""


Party: TypeAlias = Client | NextHop
"""Who asks for something or offers it here."""

Offer: TypeAlias = Advertisement | Filter
"""What may be published. A filter offers any further attributes, as an open type does."""


Notifications: TypeAlias = tuple[Notification, ...] | Bundle
"""Several in order; those of a bundle are passed on as bytes."""


class Publish(RouterMessage, frozen=True, tag="publish"):
    """Notifications on their way, in order; `hops` counts the links that they have come over."""

    notifications: Notifications
    hops: int = 0
    source: Label = ""
    version: int = VERSION


class Ask(RouterMessage, frozen=True, tag="ask"):
    """A question on its way to the sources whose descriptions it meets; answers come back on it.

    The asker's name, empty for an anonymous one, and the identity, which the asker chose, identify
    the question in the network. `timeout_us`: how long its sender waits for answers. `window`: how
    many items the sender takes before it says `More`. `limit`: how many items at most, 0 for all.
    With a `combination` the answer holds no items, but the result that is combined of all items.
    The question goes over `hops_max` links at most.

    Source: CU-CS-948-03 §2, §5 (queries are forwarded by what is advertised).
    """

    alternatives: tuple[Disjunct, ...]
    asker: str
    identity: str
    timeout_us: int
    window: int
    limit: int = 0
    combination: Combination | None = None
    hops_max: int = QUESTION_HOPS_MAX
    hops: int = 0
    source: Label = ""
    version: int = VERSION


class SourceState(StrEnum):
    """What became of a source that was asked."""

    ASKED = "asked"
    ANSWERED = "answered"
    EMPTY = "empty"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    STOPPED = "stopped"


class SourceReport(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a source, or of a server, whose name begins with `@`, that passed it on.

    `count` items of it came; `reason` says why it failed.
    """

    name: str
    state: SourceState
    count: int = 0
    reason: str = ""

    def __str__(self) -> str:
        said = f"{self.name}: {self.state}, {self.count} items"
        return f"{said} ({self.reason})" if self.reason else said


def failed(reports: Iterable[SourceReport], reason: str) -> list[SourceReport]:
    """The reports, with sources that answered reported as failed."""
    return [
        msgspec.structs.replace(each, state=SourceState.FAILED, count=0, reason=reason)
        if each.state is SourceState.ANSWERED
        else each
        for each in reports
    ]


class Answer(RouterMessage, frozen=True, tag="answer"):
    """Items and reports of a question, on their way back to the asker.

    `partial` is the combination over all sources that the same message reports as answered.
    """

    asker: str
    identity: str
    items: tuple[Notification, ...] = ()
    reports: tuple[SourceReport, ...] = ()
    partial: bytes = b""
    is_last: bool = False
    version: int = VERSION


class More(RouterMessage, frozen=True, tag="more"):
    """Who asked takes so many more items."""

    asker: str
    identity: str
    count: int
    version: int = VERSION


class Cancel(RouterMessage, frozen=True, tag="cancel"):
    """Nobody waits for answers to a question any longer."""

    asker: str
    identity: str
    version: int = VERSION


class Subscribe(RouterMessage, frozen=True, tag="subscribe"):
    """The sender wants what one of the filters matches."""

    identity: str
    filters: Selection
    owner: Label = ""
    version: int = VERSION


class Unsubscribe(RouterMessage, frozen=True, tag="unsubscribe"):
    """The sender withdraws the subscription of this identity."""

    identity: str
    owner: Label = ""
    version: int = VERSION


class Advertise(RouterMessage, frozen=True, tag="advertise"):
    """The sender, or a party behind it, may publish notifications that the offer covers."""

    identity: str
    offer: HeldProduct
    owner: Label = ""
    version: int = VERSION


class Unadvertise(RouterMessage, frozen=True, tag="unadvertise"):
    """The sender withdraws the advertisement of this identity."""

    identity: str
    owner: Label = ""
    version: int = VERSION


class Describe(RouterMessage, frozen=True, tag="describe"):
    """The sender, or a party behind it, has data that these offers describe: it may be asked.

    Of a client, `identity` is the name of the source.

    Source: CU-CS-948-03 §2, §4 (a source may give several descriptions).
    """

    identity: str
    offers: tuple[HeldProduct, ...]
    owner: Label = ""
    version: int = VERSION


class Undescribe(RouterMessage, frozen=True, tag="undescribe"):
    """The sender withdraws the descriptions of this identity."""

    identity: str
    owner: Label = ""
    version: int = VERSION


class Follow(RouterMessage, frozen=True, tag="follow"):
    """A client wants to be told by its server what is on offer there, and how that changes."""

    version: int = VERSION


class Unfollow(RouterMessage, frozen=True, tag="unfollow"):
    """A client does not want to be told any longer."""

    version: int = VERSION


class Role(StrEnum):
    """The role of the server at the other end of a link.

    Source: PODC 2000 §4 (hierarchical client/server and peer-to-peer architectures).
    """

    PEER = "peer"
    PARENT = "parent"
    CHILD = "child"


class Adjacency(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A link as one of its ends sees it: the neighbour, its role, and the cost of the link."""

    name: str
    role: Role
    cost: int = 1


class LinkState(msgspec.Struct, frozen=True, array_like=True):
    """The links that a server has, in order of their names; of two the higher number is newer."""

    origin: str
    number: int
    links: tuple[Adjacency, ...]


class AnnounceLinks(RouterMessage, frozen=True, tag="tell links"):
    """What the sender has learned of links, and has not told before."""

    states: tuple[LinkState, ...]
    version: int = VERSION


class AckLinks(RouterMessage, frozen=True, tag="took links"):
    """The sender has taken in what it was told of links, and can be told more."""

    version: int = VERSION


QuestionMessage: TypeAlias = Ask | Answer | More | Cancel
"""What is said about one question."""

Message: TypeAlias = (
    Publish
    | Subscribe
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Describe
    | Undescribe
    | QuestionMessage
    | AnnounceLinks
    | AckLinks
    | PatternMessage
)


class Received(msgspec.Struct, frozen=True):
    """A message has come from a client or a neighbour."""

    origin: Origin
    message: Message


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link to a neighbour is there; nothing was sent over it yet.

    Of several paths the one of the least cost is taken.
    """

    neighbour: Neighbour
    role: Role
    cost: int = 1


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link is gone, with all subscriptions, advertisements and questions that came over it."""

    neighbour: Neighbour


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client is gone, and with it its subscriptions and advertisements."""

    client: Client


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The clock says that the time of some question is over; see `Router.question_due_us`."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """What is published from now on has a timestamp of at least this, less the slack at most.

    Patterns that wait for something later go on, where no notification tells the time. Refused
    where it goes back, or is far ahead of the clock.
    """

    time_us: int


Event: TypeAlias = Received | LinkUp | LinkDown | ClientGone | TimePassed | DeadlinePassed


class Reason(StrEnum):
    """Why something was refused."""

    VERSION = "another version"
    UNKNOWN_NEIGHBOUR = "unknown neighbour"
    KNOWN_NEIGHBOUR = "the neighbour has a link already"
    SECOND_PARENT = "a server has one parent"
    UNKNOWN_SUBSCRIPTION = "unknown subscription"
    UNKNOWN_ADVERTISEMENT = "unknown advertisement"
    UNKNOWN_SOURCE = "unknown source"
    CLOCK_JUMPED = "time goes back, or far ahead of the clock"
    UNKNOWN_CLIENT = "unknown client"
    IDENTITY_IN_USE = "the identity is in use for something else"
    UNSATISFIABLE = "no notification can match"
    NOT_ADVERTISED = "not advertised by its publisher"
    NOT_DUE = "a parent sends only notifications"
    TOO_MANY_HOPS = "too many hops, or fewer than none"
    FULL = "a table is full"
    TOO_LONG = "a name or an identity is too long"
    WRONG_OWNER = "the home or source does not fit the link"
    WRONG_LINK_STATE = "a link state that no server says"
    OWN_NAME = "a neighbour has this server's own name"
    NAME_IN_USE = "another server has this server's name"
    UNCONFIRMED = "the other end does not name the link alike"
    LOOP = "the link closes a loop"
    DUPLICATE = "it has come already"
    NO_IDENTITY = "a notification without an identity"
    WRONG_QUESTION = "a question that says no time, or no window"
    UNKNOWN_OPERATOR = "a pattern has an operator that is unknown here"
    WRONG_PATTERN = "it does not fit what was said of a pattern before"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message over a link; what is sent over a link arrives in order."""

    to: Neighbour
    message: Message


class Deliver(msgspec.Struct, frozen=True):
    """Hand notifications to a client, each once, for all of its subscriptions that match them."""

    client: Client
    subscriptions: tuple[str, ...]
    notifications: Notifications


@dataclass(frozen=True, slots=True)
class DeliverMatch:
    """Hand a match of a pattern to a client; its key is the identity of the subscription."""

    client: Client
    match: Match[str]


@dataclass(frozen=True, slots=True)
class DeliverQuestion:
    """Hand a question to a client, once, for all of its sources whose descriptions it meets."""

    client: Client
    sources: tuple[str, ...]
    question: Ask


@dataclass(frozen=True, slots=True)
class NotifyClient:
    """Tell a client the news of a question that it asked, or that it was asked."""

    client: Client
    message: Answer | More | Cancel


@dataclass(frozen=True, slots=True)
class OfferChanged:
    """Something is on offer here that was not, or no longer is. Told by a router that is to."""

    offer: Offer
    is_on_offer: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """An event changed nothing, and why. It was counted.

    `error` carries what a client needs to know beside the reason, a limit or a value, where there
    is something to say.
    """

    event: Event
    reason: Reason
    error: ContradaError | None = field(default=None, compare=False)


Effect: TypeAlias = (
    Send | Deliver | DeliverMatch | DeliverQuestion | NotifyClient | OfferChanged | Refused
)
