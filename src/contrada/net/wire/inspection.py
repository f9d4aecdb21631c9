"""The answer to an inspection of a broker: its links, clients, filters and advertisements."""

from typing import Annotated, TypeAlias

import msgspec


class HeldLink(msgspec.Struct, frozen=True):
    """A link to a neighbour; `unused` says why the link is not used; empty where it is."""

    name: str
    role: str
    cost: int
    unused: str = ""


class HeldText(msgspec.Struct, frozen=True):
    """A filter or an advertisement, as text, maybe cut, and who asked for it or offered it."""

    text: str
    parties: list[str]


class Inspection(msgspec.Struct, frozen=True):
    """What a broker holds, the first of each, and in `counts` how many there are.

    `clients` has the number of subscriptions of each. Where a notification was asked about,
    `matching` are the filters that match it, and `neighbours` those to which it would go.
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
"""Where a page begins: the number of its first durable subscription, and of its first other
filter."""

HeldFilters: TypeAlias = tuple[str, list[bytes]]
"""The name of a durable subscription and its filters; or no name, and filters that stand alone."""


class FilterPage(msgspec.Struct, frozen=True, array_like=True):
    """What clients ask for, and where the next page begins; None after the last one."""

    held: list[HeldFilters]
    following: Position | None = None
