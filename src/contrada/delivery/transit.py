"""`Transit`: how messages go on from a server to its neighbours.

Messages for one server, or for a few, take the routes that link states give. Where there is no
route a message is dropped and counted: the server that holds it sends it again. Messages for all
servers are flooded: each server passes on what is news to it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from contrada.delivery.delivery_messages import (
    AnnounceHome,
    Carry,
    DeliveryMessage,
    Destination,
    Parcel,
    Sequenced,
    Taken,
)
from contrada.routing.links.topology import HOPS_MAX
from contrada.routing.router_messages import Neighbour


class Tell(NamedTuple):
    """Send a message to a neighbour."""

    to: Neighbour
    message: DeliveryMessage


class Transit:
    """The neighbours of a server `name`, and the ways over them; `tells` is what is to be sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ways: Mapping[str, str] = {}
        self.tells: list[Tell] = []
        self.stranded = 0
        self._neighbours: dict[Neighbour, None] = {}

    def link_up(self, neighbour: Neighbour, known: Iterable[DeliveryMessage]) -> None:
        """There is a link; the neighbour is told what all are to know."""
        self._neighbours[neighbour] = None
        self.tells += [Tell(neighbour, said) for said in known]

    def link_down(self, neighbour: Neighbour) -> None:
        """A link is gone, with what was on its way."""
        self._neighbours.pop(neighbour, None)

    def flood(self, said: AnnounceHome | Sequenced, but: Neighbour | None = None) -> None:
        """Sends a message to all neighbours but the one that it came from."""
        self.tells += [Tell(each, said) for each in self._neighbours if each != but]

    def carry(self, message: Carry) -> None:
        """Sends parcels on towards all their homes but this server."""
        by_way: dict[str, list[Parcel]] = {}
        for parcel in message.parcels:
            if len(parcel.to) == 1:  # by far the most
                home = parcel.to[0].home
                way = self._way(home, message.hops) if home != self.name else None
                if way is not None:
                    by_way.setdefault(way, []).append(parcel)
                continue
            ways: dict[str, list[Destination]] = {}
            for address in parcel.to:
                if address.home != self.name:
                    way = self._way(address.home, message.hops)
                    if way is not None:
                        ways.setdefault(way, []).append(address)
            for way, to in ways.items():
                by_way.setdefault(way, []).append(Parcel(tuple(to), parcel.body, parcel.context))
        for way, parcels in by_way.items():
            carry = msgspec.structs.replace(message, parcels=tuple(parcels), hops=message.hops + 1)
            self.tells.append(Tell(Neighbour(way), carry))

    def acknowledge(self, message: Taken) -> None:
        """Sends towards its source what a home has taken."""
        way = self._way(message.source, message.hops)
        if way is not None:
            said = msgspec.structs.replace(message, hops=message.hops + 1)
            self.tells.append(Tell(Neighbour(way), said))

    def _way(self, server: str, hops: int) -> str | None:
        way = self.ways.get(server) if hops < HOPS_MAX else None
        self.stranded += way is None
        return way
