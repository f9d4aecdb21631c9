"""The answers to an inspection of a broker, and the pages of its exported filters."""

from typing import Annotated, TypeAlias

import msgspec


class HeldLink(msgspec.Struct, frozen=True):
    """A link to a neighbour; `unused` has the reason if the link is not in use."""

    name: str
    role: str
    cost: int
    unused: str = ""


class HeldText(msgspec.Struct, frozen=True):
    """The text of a filter or an advertisement, possibly cut, with its clients and neighbours."""

    text: str
    parties: list[str]


class Inspection(msgspec.Struct, frozen=True):
    """The state of a broker: the first items of each kind, and in `counts` their numbers.

    `clients` counts subscriptions by client. For a notification, `matching` has the matching
    filters, and `neighbours` the next hops.
    """

    name: str
    counts: dict[str, int]
    links: list[HeldLink]
    clients: dict[str, int]
    filters: list[HeldText]
    advertisements: list[HeldText]
    matching: list[HeldText] = []
    neighbours: list[str] = []


_NotNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

Position: TypeAlias = tuple[_NotNegative, _NotNegative]
"""The start of a page: the numbers of its first durable subscription, and first other filter."""

HeldFilters: TypeAlias = tuple[str, list[bytes]]
"""The name of a durable subscription and its filters; or an empty name and other filters."""


class FilterPage(msgspec.Struct, frozen=True, array_like=True):
    """Exported filters, and the start of the next page; None after the last one."""

    held: list[HeldFilters]
    following: Position | None = None
