"""What an assembler asks its router to do, and what the router tells it of the network."""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from contrada.model import Filter
from contrada.patterns import Match
from contrada.routing.delegation import PatternMessage
from contrada.routing.messages import Client, Neighbour, Origin


class Outlook(Protocol):
    """What the router knows of where notifications come from."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of that at all; else nothing is ever delegated."""

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """From where a part can come, of a pattern that this requester asked for.

        None stands for clients of this server, or for what is not known.
        """

    def counts(self, origin: Origin, requester: Origin) -> bool:
        """Whether notifications from an origin count for patterns of a requester."""


@dataclass(frozen=True, slots=True)
class Want:
    """Subscribe this server to a filter, under a number."""

    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unwant:
    """Withdraw that."""

    number: int


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message about a pattern to a neighbour."""

    to: Neighbour
    message: PatternMessage


@dataclass(frozen=True, slots=True)
class Matched:
    """Hand a match to a client; its key is the identity of the subscription."""

    client: Client
    match: Match[str]


Action: TypeAlias = Want | Unwant | Say | Matched
