"""Messages between clients and servers, and the events and effects of a `Router`.

A *message* travels between a client and its server, or between two servers. A subscription or an
advertisement has an identity. Its sender chose it, and it is valid only between these two; a
withdrawal names the identity alone. In a general topology each registration is also labelled by its
*owner*: the server at which it entered the mesh of peers, or the shared tree that it follows. A
notification is labelled by its *source*, the server at which it entered the mesh. Elsewhere both
labels are empty. An *event* is a received message, or a change of links or clients. An *effect* is
an instruction to the program that runs the router. Objects that are created for each notification
are structs, since a frozen dataclass takes ten times as long to create.

Source: PODC 2000 §2 (the interface of the service) and §4 (the server protocol).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.errors import ContradaError, InvalidFilterError, LimitError
from contrada.matching.packed import Bundle
from contrada.model import Advertisement, Filter, Notification, Query, Selection, ValueSet
from contrada.model.algebra.product import HeldProduct
from contrada.model.algebra.value_set import EVERYTHING, PRESENT, intersection
from contrada.model.domains.values import ABSENT_KEY, check_name
from contrada.patterns import Match
from contrada.routing import delegation
from contrada.routing.aggregation import Combination
from contrada.routing.delegation import PatternMessage, RouterMessage

VERSION: Final = delegation.VERSION
"""The version of the messages. A router refuses any other."""

LABEL_CHARS_MAX: Final = 255
"""Characters of a server's name, and of an identity. Beyond it: refused, counted."""

Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=LABEL_CHARS_MAX)]
"""The name of a server as decoded; a longer one is refused by the decoder."""

SUBSCRIPTION_FILTERS_MAX: Final = 10_000
"""Filters of one subscription. Beyond it: refused, counted."""

QUESTION_HOPS_MAX: Final = 64
"""Links that a query crosses, unless it sets a limit of its own. Beyond it: no source is asked."""

REPORTS_MAX: Final = 100_000
"""Sources that one query reaches. Beyond it: the branch that exceeds it is reported as failed."""

SAME_NAMES_MAX: Final = 256
"""Attributes of a disjunct that must be equal to others. Beyond it: LimitError."""


class Client(msgspec.Struct, frozen=True, order=True, gc=False):
    """A client of this server, by its name."""

    name: str


class Neighbour(msgspec.Struct, frozen=True, order=True, gc=False):
    """A server with a link to this one, by its name."""

    name: str


Origin: TypeAlias = Client | Neighbour
"""The sender of a message."""


class NextHop(msgspec.Struct, frozen=True, order=True, gc=False):
    """A neighbour and an owner: one tree over one link."""

    neighbour: Neighbour
    owner: str = ""


Party: TypeAlias = Client | NextHop
"""The holder of a registration."""

Offer: TypeAlias = Advertisement | Filter
"""A promise of notifications. A filter offers any further attributes, as an open type does."""


Notifications: TypeAlias = tuple[Notification, ...] | Bundle
"""Several in order; a bundle is forwarded as bytes."""


class Publish(RouterMessage, frozen=True, tag="publish"):
    """Notifications in order; `hops` counts the links crossed."""

    notifications: Notifications
    hops: int = 0
    source: Label = ""
    version: int = VERSION


class Disjunct(msgspec.Struct, frozen=True, array_like=True):
    """One alternative of a query: a set for each attribute, and groups of equal attributes.

    A variable in several attributes makes a group. Only an item shows whether values are equal, so
    routing uses the sets alone, narrowed by the groups, and a source decides exactly. `alternative`
    makes the normal form: groups have no attribute in common, and all attributes of one have the
    same set, without *absent*.

    Source: CU-CS-948-03 §4 (application and intersection) and §9 (variables, its future work).
    """

    query: Query
    same: tuple[tuple[str, ...], ...] = ()

    def matches(self, item: Notification) -> bool:
        """Whether an item meets this disjunct. Exact.

        An item with several values of an attribute is matched as by filters: it matches if some
        choice of one value per attribute does. Values are equal as in the model: 5 = 5.0, NaN is
        NaN, and values of two domains are never equal. Raises UnknownOperatorError for an operator
        that is not registered.
        """
        sets = self.query.sides
        for name, values in sets.items():
            if not any(map(values.holds, item.keys_of(name))):
                return False
        for group in self.same:
            common = set.intersection(*(set(item.keys_of(name)) for name in group))
            for name in group:
                common = {key for key in common if sets.get(name, EVERYTHING).holds(key)}
            if not common - {ABSENT_KEY}:
                return False
        return True


def alternative(sets: Mapping[str, ValueSet], same: Iterable[Iterable[str]] = ()) -> Disjunct:
    """Returns the disjunct of these sets and equal attributes, in normal form.

    Groups that share an attribute are united; all attributes of a group get the intersection of
    their sets, which is exact for each by itself; a group of one requires any value. Raises
    LimitError beyond SAME_NAMES_MAX, InvalidNameError and InvalidFilterError. Cost: linear.
    """
    narrowed = dict(sets)
    groups = []
    for group in _merge_groups(same) if same else ():
        values = intersection([PRESENT, *(sets[name] for name in group if name in sets)])
        narrowed |= dict.fromkeys(group, values)
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return Disjunct(Query.of_sets(narrowed), tuple(sorted(groups)))


def _merge_groups(same: Iterable[Iterable[str]]) -> list[set[str]]:
    """Returns the groups, united if they share an attribute. Raises as `alternative`."""
    joined: list[set[str]] = []
    count = 0
    for each in same:
        if isinstance(each, str):
            raise InvalidFilterError("same", (each,), "expected the names of attributes")
        group = {check_name(name) for name in each}
        count += len(group)
        if count > SAME_NAMES_MAX:
            raise LimitError("SAME_NAMES_MAX", SAME_NAMES_MAX)
        apart = [other for other in joined if other.isdisjoint(group)]
        joined = [*apart, group.union(*(other for other in joined if other not in apart))]
    return [group for group in joined if group]


class Ask(RouterMessage, frozen=True, tag="ask"):
    """A query, forwarded to all sources with matching descriptions; answers return on its path.

    The asker's name, empty for an anonymous one, and the identity identify the query in the
    network. `timeout_us`: how long the sender waits for answers. `window`: the items that the
    sender accepts before it sends `More`. `limit`: the most items, 0 for all. With a `combination`
    the answer holds no items, but their combined result. The query crosses at most `hops_max`
    links.

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
    """The outcome of a query at one source."""

    ASKED = "asked"
    ANSWERED = "answered"
    EMPTY = "empty"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    STOPPED = "stopped"


class SourceReport(msgspec.Struct, frozen=True, array_like=True):
    """The outcome at a source, or a server (`@NAME`): the number of items, why it failed."""

    name: str
    state: SourceState
    count: int = 0
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: {self.state}, {self.count} items"
        return f"{text} ({self.reason})" if self.reason else text


def failed(reports: Iterable[SourceReport], reason: str) -> list[SourceReport]:
    """Returns the reports, with answered sources turned into failed ones."""
    return [
        msgspec.structs.replace(each, state=SourceState.FAILED, count=0, reason=reason)
        if each.state is SourceState.ANSWERED
        else each
        for each in reports
    ]


class Answer(RouterMessage, frozen=True, tag="answer"):
    """Items and reports on their way back; `partial` combines the sources reported with it."""

    asker: str
    identity: str
    items: tuple[Notification, ...] = ()
    reports: tuple[SourceReport, ...] = ()
    partial: bytes = b""
    is_last: bool = False
    version: int = VERSION


class More(RouterMessage, frozen=True, tag="more"):
    """The asker accepts `count` more items."""

    asker: str
    identity: str
    count: int
    version: int = VERSION


class Cancel(RouterMessage, frozen=True, tag="cancel"):
    """The asker waits for no further answers."""

    asker: str
    identity: str
    version: int = VERSION


class _Withdrawal(RouterMessage, frozen=True):
    """Ends what the sender has entered under this identity."""

    identity: str
    owner: Label = ""
    version: int = VERSION


class Subscribe(RouterMessage, frozen=True, tag="subscribe"):
    """The sender subscribes to the union of the filters."""

    identity: str
    filters: Selection
    owner: Label = ""
    version: int = VERSION


class Unsubscribe(_Withdrawal, frozen=True, tag="unsubscribe"):
    """The sender withdraws the subscription of this identity."""


class Advertise(RouterMessage, frozen=True, tag="advertise"):
    """The sender, or a party behind it, may publish notifications that the offer covers."""

    identity: str
    offer: HeldProduct
    owner: Label = ""
    version: int = VERSION


class Unadvertise(_Withdrawal, frozen=True, tag="unadvertise"):
    """The sender withdraws the advertisement of this identity."""


class Describe(RouterMessage, frozen=True, tag="describe"):
    """The sender, or a party behind it, has data that these offers describe, and answers queries.

    In a client's message, `identity` is the name of the source.

    Source: CU-CS-948-03 §2, §4 (a source may give several descriptions).
    """

    identity: str
    offers: tuple[HeldProduct, ...]
    owner: Label = ""
    version: int = VERSION


class Undescribe(_Withdrawal, frozen=True, tag="undescribe"):
    """The sender withdraws the descriptions of this identity."""


class Follow(RouterMessage, frozen=True, tag="follow"):
    """A client asks its server for the offers there, and for their changes."""

    version: int = VERSION


class Unfollow(RouterMessage, frozen=True, tag="unfollow"):
    """A client ends `Follow`."""

    version: int = VERSION


class Role(StrEnum):
    """The role of the server at the other end of a link. Source: PODC 2000 §4."""

    PEER = "peer"
    PARENT = "parent"
    CHILD = "child"


class Adjacency(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A link as one of its ends sees it: the neighbour, its role, and the cost."""

    name: str
    role: Role
    cost: int = 1


class LinkState(msgspec.Struct, frozen=True, array_like=True):
    """The links of a server, in order of their names; the higher number is newer."""

    origin: str
    number: int
    links: tuple[Adjacency, ...]


class AnnounceLinks(RouterMessage, frozen=True, tag="tell links"):
    """Link states that are news from the sender."""

    states: tuple[LinkState, ...]
    version: int = VERSION


class AckLinks(RouterMessage, frozen=True, tag="took links"):
    """The sender has processed an `AnnounceLinks`, sent what it changes, and takes more."""

    version: int = VERSION


QuestionMessage: TypeAlias = Ask | Answer | More | Cancel
"""The messages about one query."""

OwnerMessage: TypeAlias = Subscribe | Unsubscribe | Advertise | Unadvertise | Describe | Undescribe
"""Messages that carry the label of an owner."""

StateMessage: TypeAlias = OwnerMessage | AnnounceLinks | AckLinks | PatternMessage
"""Messages that change tables."""

Message: TypeAlias = Publish | QuestionMessage | StateMessage


class Received(msgspec.Struct, frozen=True):
    """A client or a neighbour sent a message."""

    origin: Origin
    message: Message


class LinkUp(msgspec.Struct, frozen=True):
    """A link is up, and unused so far. Of several paths the cheapest is used."""

    neighbour: Neighbour
    role: Role
    cost: int = 1


class LinkDown(msgspec.Struct, frozen=True):
    """A link is down; its subscriptions, advertisements and queries are gone."""

    neighbour: Neighbour


class ClientGone(msgspec.Struct, frozen=True):
    """A client disconnected; its subscriptions and advertisements are gone."""

    client: Client


class DeadlinePassed(msgspec.Struct, frozen=True):
    """The deadline of some query has passed; see `Router.question_due_us`."""


class TurnPassed(msgspec.Struct, frozen=True):
    """The program has done something else meanwhile; see `Router.is_rerouting`."""


class TimePassed(msgspec.Struct, frozen=True):
    """Later notifications are at most a slack older. Refused if it decreases or is far ahead."""

    time_us: int


Event: TypeAlias = (
    Received | LinkUp | LinkDown | ClientGone | TimePassed | DeadlinePassed | TurnPassed
)


class Reason(StrEnum):
    """Why an event was refused."""

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
    WRONG_LINK_STATE = "a link state without its server"
    OWN_NAME = "a neighbour has this server's own name"
    NAME_IN_USE = "another server has this server's name"
    UNCONFIRMED = "the other end does not name the link alike"
    LOOP = "the link closes a loop"
    DUPLICATE = "it has come already"
    NO_IDENTITY = "a notification without an identity"
    WRONG_QUESTION = "a query without a time or a window"
    UNKNOWN_OPERATOR = "a pattern has an operator that is unknown here"
    WRONG_PATTERN = "it does not fit the earlier messages of this pattern"


class RefusedError(Exception):
    """An event changes nothing. The error never leaves the router, which answers `Refused`.

    `error` adds the exceeded limit or the offending value for a client, where the reason is not
    enough.
    """

    def __init__(self, reason: Reason, error: ContradaError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        # Without its traceback, whose frames an answer would keep alive.
        self.error = None if error is None else error.with_traceback(None)


def check_limit(limits: object, name: str, size: int) -> None:
    """Refuses a size beyond the limit of this name."""
    maximum: int = getattr(limits, name)
    if size > maximum:
        raise RefusedError(Reason.FULL, LimitError(name, maximum, size))


def check_label(*labels: str) -> None:
    """Refuses names and identities of more than LABEL_CHARS_MAX characters."""
    longest = max(map(len, labels))
    if longest > LABEL_CHARS_MAX:
        error = LimitError("LABEL_CHARS_MAX", LABEL_CHARS_MAX, longest)
        raise RefusedError(Reason.TOO_LONG, error)


class Send(msgspec.Struct, frozen=True):
    """Send a message over a link, which keeps the order."""

    to: Neighbour
    message: Message


class Deliver(msgspec.Struct, frozen=True):
    """Hand notifications to a client, each once for all of its matching subscriptions."""

    client: Client
    subscriptions: tuple[str, ...]
    notifications: Notifications


class DeliverMatch(msgspec.Struct, frozen=True):
    """Hand a match of a pattern to a client; its key is the identity of the subscription."""

    client: Client
    match: Match[str]


class PatternEnded(msgspec.Struct, frozen=True):
    """End a client's pattern, which costs too much; the client's access point withdraws it."""

    client: Client
    subscription: str


class DeliverQuestion(msgspec.Struct, frozen=True):
    """Hand a query to a client, once for all of its matching sources."""

    client: Client
    sources: tuple[str, ...]
    question: Ask


class NotifyClient(msgspec.Struct, frozen=True):
    """Forward an answer, credit or cancellation to the client that asks or answers."""

    client: Client
    message: Answer | More | Cancel


class OfferChanged(msgspec.Struct, frozen=True):
    """An offer appeared or disappeared. Only routers with `tells_offers` report it."""

    offer: Offer
    is_on_offer: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """An event changed nothing, counted. `error` has the exceeded limit or the wrong value."""

    event: Event
    reason: Reason
    error: ContradaError | None = field(default=None, compare=False)


Effect: TypeAlias = (
    Send
    | Deliver
    | DeliverMatch
    | PatternEnded
    | DeliverQuestion
    | NotifyClient
    | OfferChanged
    | Refused
)
