"""The answers to an inspection of a broker, and the pages of its exported filters."""

import importlib.metadata
from functools import cache
from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.delivery.queue_messages import QueueState
from contrada.service.story import ServerStory


@cache
def software_version() -> str:
    """Returns the version of Contrada, or an empty text where it runs without an installation."""
    try:
        return importlib.metadata.version("contrada")
    except importlib.metadata.PackageNotFoundError:
        return ""


class HeldLink(msgspec.Struct, frozen=True):
    """A link to a neighbour; `unused` has the reason if the link is not in use.

    `address` is where clients reach the neighbour, as it was dialled or as it announced; empty if
    it is not known. The neighbour must know `wanted` filters, of which `sent` ones were sent, since
    these cover the others. `owners` has the labels of trees over the link, the first ones.
    """

    name: str
    role: str
    cost: int
    unused: str = ""
    address: str = ""
    wanted: int = 0
    sent: int = 0
    owners: list[str] = []


class HeldText(msgspec.Struct, frozen=True):
    """The text of a filter or an advertisement, possibly cut, with its clients and neighbours.

    A filter of a route or a forest has its `number` too. `forwarded` has the neighbours that know
    it or one that covers it, `below` counts its children in the forest.
    """

    text: str
    parties: list[str]
    number: int = -1
    forwarded: list[str] = []
    below: int = 0


class HeldStep(msgspec.Struct, frozen=True):
    """What happens to a notification at one link.

    It is forwarded with a `source`, unless there is a `reason` against. `refuses` is why it would
    be refused if it arrived over this link.
    """

    name: str
    source: str = ""
    reason: str = ""
    refuses: str = ""


class Inspection(msgspec.Struct, frozen=True):
    """The state of a broker: the first items of each kind, and in `counts` their numbers.

    `clients` counts subscriptions by client, `queues` are those of durable subscriptions, not in
    memory. For a notification, `matching` has the matching filters, `neighbours` the next hops,
    and `steps` the decision for each link, those of next hops first. It is not routed if `stopped`
    has a reason. `not_yours` is why the asking user may not publish it. Of a part of a forest,
    `filters` has the nodes, and `following` the number of the next one, -1 after the last.
    `version` is that of Contrada, empty at an earlier one. Of a story, `story` has the transitions.
    """

    name: str
    counts: dict[str, int]
    links: list[HeldLink]
    clients: dict[str, int]
    filters: list[HeldText]
    advertisements: list[HeldText]
    matching: list[HeldText] = []
    neighbours: list[str] = []
    queues: list[QueueState] = []
    strategy: str = ""
    steps: list[HeldStep] = []
    stopped: str = ""
    not_yours: str = ""
    following: int = -1
    version: str = ""
    story: ServerStory | None = None


_NotNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

Position: TypeAlias = tuple[_NotNegative, _NotNegative]
"""The start of a page: the numbers of its first durable subscription, and first other filter."""

LinkArrival: TypeAlias = tuple[str, str]
"""The neighbour from which a notification arrives, and its source."""

ForestPosition: TypeAlias = tuple[str, str, int, _NotNegative]
"""A part of a forest: neighbour, owner, the number of the parent or -1 for roots, and the first
number. Without a neighbour: all filters, by number."""

STORY_NAMES_MAX: Final = 256
"""Names in a request for a story. Beyond it: the frame is malformed."""

StoryNames: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(max_length=STORY_NAMES_MAX)]
"""The identity of a story, and `neighbour/identity` for each forwarded filter."""

HeldFilters: TypeAlias = tuple[str, list[bytes]]
"""The name of a durable subscription and its filters; or an empty name and other filters."""


class FilterPage(msgspec.Struct, frozen=True, array_like=True):
    """Exported filters, and the start of the next page; None after the last one."""

    held: list[HeldFilters]
    following: Position | None = None
