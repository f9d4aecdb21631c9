"""`Principal`: the rights of a user: to publish, to subscribe, to use names, to inspect; `Quotas`.

    publish     notifications that its publish filters match, under its own publisher names
    subscribe   filters that its subscribe filters cover; it reads nothing else, on any way
    durable     logs and positions of durable subscriptions with its own names

A name is a principal's own if it is in a list, or lies below one that is: `desk` allows `desk` and
`desk/7`, and `*` any name.

Source: PODC 2000 §6 (security).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from contrada.model import Filter, FilterSet

_Amount: TypeAlias = Annotated[int, Meta(ge=0)]
_Rate: TypeAlias = Annotated[int, Meta(ge=1)]


class Quotas(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The quotas of a user at each broker by itself.

    `subscriptions` counts filters, patterns and readers of durable subscriptions.
    `durable_subscriptions` and `kept_bytes` count the durable subscriptions of the user's own
    names: their number, and the bytes that their retentions let them keep. Rates are per second,
    of the notifications that the user publishes and their encoded bytes. One that is not set is no
    bound.
    """

    connections: _Amount | None = None
    subscriptions: _Amount | None = None
    durable_subscriptions: _Amount | None = None
    kept_bytes: _Amount | None = None
    notifications_per_s: _Rate | None = None
    bytes_per_s: _Rate | None = None

    def limits(self) -> dict[str, int]:
        """Returns the quotas that are set, by name."""
        named = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: most for name, most in named if most is not None}


UNLIMITED: Final = Quotas()

OVER_QUOTA: Final = "over quota"
"""The code of the error for a connection beyond a quota, and the reason of a drop."""

NOTHING: Final = FilterSet([])
EVERYTHING: Final = FilterSet([Filter({})])

NOT_PERMITTED: Final = "not permitted"
"""Reason of a refusal or a drop, and the code of the error for a client without access."""

ANY_NAME: Final = "*"
"""Name in a list that stands for all names."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The user of a connection, with its rights. A right that is not listed is not granted.

    With `narrows`, a request beyond its rights is narrowed to the intersection; otherwise it is
    refused. Without `may_block`, no publisher waits for the user's full queues: they drop the
    oldest. `expires_us` is the time when the user expires.
    """

    name: str
    publish: FilterSet = field(default_factory=lambda: NOTHING)
    subscribe: FilterSet = field(default_factory=lambda: NOTHING)
    publishers: tuple[str, ...] = ()
    durable: tuple[str, ...] = ()
    narrows: bool = False
    may_link: bool = False
    may_inspect: bool = False
    may_push: bool = False
    """Whether it may have subscriptions to sinks."""
    may_block: bool = True
    expires_us: int | None = None
    quotas: Quotas = UNLIMITED
    quota_groups: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The group that sets each quota; empty for one of the user's own."""
    credential: str = field(default="", compare=False, repr=False)
    """The record of the token, or the name in the certificate, that identified the user."""

    @property
    def is_free(self) -> bool:
        """Whether it has all rights."""
        return self.covers(ANYBODY)

    @property
    def is_free_to_route(self) -> bool:
        """Whether no message from or to it, as a server, needs a check."""
        has_names = ANY_NAME in self.publishers and ANY_NAME in self.durable
        reads_all = self.subscribe.covers(EVERYTHING)
        return self.may_link and has_names and self.publishes_all and reads_all

    @property
    def publishes_all(self) -> bool:
        """Whether no notification is refused for its content."""
        return self.publish.covers(EVERYTHING)

    @property
    def speaks_as(self) -> str:
        """The name below which it publishes by default; empty if it has none."""
        return self.name if owns(self.publishers, self.name) else next(iter(self.publishers), "")

    def covers(self, other: "Principal") -> bool:
        """Whether it has all rights of the other principal, so that nothing in force must end.

        Exact within the limits of the algebra; beyond them no.
        """
        return (
            self.publish.covers(other.publish)
            and self.subscribe.covers(other.subscribe)
            and all(owns(self.publishers, each) for each in other.publishers)
            and all(owns(self.durable, each) for each in other.durable)
            and self.may_link >= other.may_link
            and self.may_inspect >= other.may_inspect
            and self.may_push >= other.may_push
            and self.may_block >= other.may_block
        )


def owns(names: tuple[str, ...], name: str) -> bool:
    """Whether a name is one of these, or lies below one of them."""
    return any(each in (name, ANY_NAME) or name.startswith(f"{each}/") for each in names)


def free(name: str) -> Principal:
    """A principal with all rights."""
    every = (ANY_NAME,)
    return Principal(
        *(name, EVERYTHING, EVERYTHING, every, every),
        may_link=True,
        may_inspect=True,
        may_push=True,
    )


ANYBODY: Final = free("anybody")
"""The principal of every client at a broker without users."""
