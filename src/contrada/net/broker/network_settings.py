"""What a server is told of its network: by a file, by flags, or by options of `connect`."""

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
    """What is said of a network in the same words everywhere. See `contrada serve --help`."""

    name: Label = ""
    neighbours: list[str | LinkSettings] = []
    parent: str | None = None
    general: bool = False
    trees: Annotated[int, Meta(ge=0, le=TREES_MAX)] = 1
    advertisements: bool = False
    sequencer: str = ""
    merging: bool = False

    def links(self) -> Iterator[tuple[str, LinkSettings]]:
        """Each neighbour and the parent, with the key under which it stands."""
        for number, each in enumerate(self.neighbours):
            yield f"neighbours[{number}]", LinkSettings(each) if isinstance(each, str) else each
        if self.parent is not None:
            yield "parent", LinkSettings(self.parent, Role.PARENT)

    def membership(self) -> Membership:
        """What it is in its network. Raises AddressError, ServiceError."""
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
    """What makes an embedded service a server of a network; see `connect`.

    What is published and asked for there goes through the network, as at any broker. It makes links
    to its neighbours, and to its parent, again whenever one is lost. `general`, `trees`,
    `advertisements` and `sequencer` must be as at all brokers; see `contrada serve --help`.
    """

    name: str
    """What it is called in the network: as no other server, and the same from time to time."""
    neighbours: Sequence[str | Mapping[str, Any]]
    """Addresses, or `{"to": address, "cost": 3}`."""
    parent: str
    general: bool
    trees: int
    advertisements: bool
    sequencer: str
    merging: bool


def membership_of(options: NetworkOptions) -> Membership:
    """What an embedded service is in its network.

    Raises AddressError, InputError, ServiceError.
    """
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
