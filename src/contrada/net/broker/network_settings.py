"""The network options of a server, from a file, from flags, or from `connect`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct

from contrada.errors import ServiceError
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.routing.links.link_states import COST_MAX
from contrada.routing.links.topology import TREES_MAX
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Label, Role
from contrada.service.settings import checked


class LinkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A neighbour: an address, or the name of another broker of the file."""

    to: str
    role: Role = Role.PEER
    cost: Annotated[int, Meta(ge=1, le=COST_MAX)] = 1


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The network options, with the same names everywhere. See `contrada serve --help`."""

    name: Label = ""
    neighbours: list[str | LinkSettings] = []
    parent: str | None = None
    general: bool = False
    trees: Annotated[int, Meta(ge=0, le=TREES_MAX)] = 1
    advertisements: bool = False
    sequencer: str = ""
    merging: bool = False

    def links(self) -> Iterator[tuple[str, LinkSettings]]:
        """Yields each neighbour and the parent, with its key."""
        for number, each in enumerate(self.neighbours):
            yield f"neighbours[{number}]", LinkSettings(each) if isinstance(each, str) else each
        if self.parent is not None:
            yield "parent", LinkSettings(self.parent, Role.PARENT)

    def membership(self) -> Membership:
        """Returns the place in the network. Raises AddressError, ServiceError."""
        wanted = [
            WantedLink(parse_address(each.to), each.role, each.cost) for _, each in self.links()
        ]
        if not self.name and (wanted or self.general):
            what = "with neighbours or a parent" if wanted else "of a general network"
            raise ServiceError(f"a broker {what} has a name: add --name NAME")
        return Membership(
            self.name,
            general=self.general,
            trees=self.trees if self.general else 0,
            strategy=Strategy.ADVERTISEMENTS if self.advertisements else Strategy.SUBSCRIPTIONS,
            merging=self.merging,
            sequencer=self.sequencer,
            neighbours=tuple(wanted),
        )


class NetworkOptions(TypedDict, total=False):
    """Options that make an embedded service a server of a network; see `connect`.

    Its publications and subscriptions are routed as at any broker. It makes links to its neighbours
    and its parent, and makes them again after each loss. `general`, `trees`, `advertisements` and
    `sequencer` must be the same at all brokers; see `contrada serve --help`.
    """

    name: str
    """A name that is unique in the network, and the same after a restart."""
    neighbours: Sequence[str | Mapping[str, Any]]
    """Addresses, or `{"to": address, "cost": 3}`."""
    parent: str
    general: bool
    trees: int
    advertisements: bool
    sequencer: str
    merging: bool


def membership_of(options: NetworkOptions) -> Membership:
    """Returns the place of a service. Raises AddressError, InputError, ServiceError."""
    given = dict(options)
    if isinstance(given.get("neighbours"), tuple):
        given["neighbours"] = [*options["neighbours"]]
    settings = checked("connect", given, NetworkSettings)
    if not any(settings.links()):
        reason = "a service without neighbours or a parent is of no network; say neighbours=[…]"
        raise ServiceError(f"{', '.join(options)}: {reason}")
    if not settings.name:
        raise ServiceError("a service with neighbours or a parent has a name there; say name='…'")
    network = settings.membership()
    addresses = [each.address for each in network.neighbours]
    if len(set(addresses)) < len(addresses):
        twice = str(max(addresses, key=addresses.count))
        raise ServiceError(f"neighbours: found {twice!r} again, expected one link to each")
    return network
