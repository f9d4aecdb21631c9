"""Principals, and what each of them may do: publish, subscribe, take names, look.

    publish     what its publish filters match, under the names of publishers that are its own
    subscribe   what its subscribe filters cover; so it reads nothing else, by whatever way
    durable     logs and positions of durable subscriptions whose names are its own

A name is one's own where it is in a list, or lies below one that is: with `desk` it may be `desk`
and `desk/7`, and with `*` any.

Source: PODC 2000 §6 (security).
"""

from dataclasses import dataclass, field
from typing import Final

from contrada.model import Filter, FilterSet

NOTHING: Final = FilterSet([])
EVERYTHING: Final = FilterSet([Filter({})])

NOT_PERMITTED: Final = "not permitted"
"""Why something is refused, or does not come; the code of the fault of who may not be there."""

ANY_NAME: Final = "*"
"""Stands in a list of names for all names."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a connection, with its rights. A right that is not listed is not granted.

    With `narrows`, a wish that is wider than its rights is narrowed to the intersection; else it is
    refused. `expires_us`: when the user expires.
    """

    name: str
    publish: FilterSet = field(default_factory=lambda: NOTHING)
    subscribe: FilterSet = field(default_factory=lambda: NOTHING)
    publishers: tuple[str, ...] = ()
    durable: tuple[str, ...] = ()
    narrows: bool = False
    may_link: bool = False
    may_inspect: bool = False
    expires_us: int | None = None

    @property
    def is_free(self) -> bool:
        """Whether it may do everything."""
        return self.covers(ANYBODY)

    @property
    def is_free_to_route(self) -> bool:
        """Whether nothing that it says as a server, or is told as one, has to be looked at."""
        has_names = ANY_NAME in self.publishers and ANY_NAME in self.durable
        reads_all = self.subscribe.covers(EVERYTHING)
        return self.may_link and has_names and self.publishes_all and reads_all

    @property
    def publishes_all(self) -> bool:
        """Whether no notification is refused for what is in it."""
        return self.publish.covers(EVERYTHING)

    @property
    def speaks_as(self) -> str:
        """The name below which it publishes by default; empty where it may publish under none."""
        return self.name if owns(self.publishers, self.name) else next(iter(self.publishers), "")

    def covers(self, other: "Principal") -> bool:
        """Whether it has all rights of the other principal, so that nothing in force has to end.

        Exact within the limits of the algebra; beyond them no.
        """
        return (
            self.publish.covers(other.publish)
            and self.subscribe.covers(other.subscribe)
            and all(owns(self.publishers, each) for each in other.publishers)
            and all(owns(self.durable, each) for each in other.durable)
            and self.may_link >= other.may_link
            and self.may_inspect >= other.may_inspect
        )


def owns(names: tuple[str, ...], name: str) -> bool:
    """Whether a name is one of these, or lies below one of them."""
    return any(each in (name, ANY_NAME) or name.startswith(f"{each}/") for each in names)


def free(name: str) -> Principal:
    """One who may do everything."""
    every = (ANY_NAME,)
    return Principal(name, EVERYTHING, EVERYTHING, every, every, may_link=True, may_inspect=True)


ANYBODY: Final = free("anybody")
"""Whoever comes to a broker that asks nobody who he is."""
