"""`Transit`: how messages go on from a server to its neighbours.

Messages for one server, or for a few, take the routes that link states give. Where there is no
route a message is dropped and counted: the server that holds it sends it again. Messages for all
servers are flooded: each server passes on what is news to it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from contrada.delivery.delivery_messages import (
    AnnounceOwner,
    DeliveryMessage,
    Destination,
    Sequenced,
    Shipment,
    StreamAck,
    Transfer,
)
from contrada.routing.links.topology import HOPS_MAX
from contrada.routing.router_messages import Neighbour


class SendMessage(NamedTuple):
    """Send a message to a neighbour."""

    to: Neighbour
    message: DeliveryMessage


class Transit:
    """The neighbours of a server `name`, and the ways over them; `tells` is what is to be sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ways: Mapping[str, str] = {}
        self.tells: list[SendMessage] = []
        self.stranded = 0
        self._neighbours: dict[Neighbour, None] = {}

    def link_up(self, neighbour: Neighbour, known: Iterable[DeliveryMessage]) -> None:
        """There is a link; the neighbour is told what all are to know."""
        self._neighbours[neighbour] = None
        self.tells += [SendMessage(neighbour, said) for said in known]

    def link_down(self, neighbour: Neighbour) -> None:
        """A link is gone, with what was on its way."""
        self._neighbours.pop(neighbour, None)

    def flood(self, said: AnnounceOwner | Sequenced, but: Neighbour | None = None) -> None:
        """Sends a message to all neighbours but the one that it came from."""
        self.tells += [SendMessage(each, said) for each in self._neighbours if each != but]

    def carry(self, message: Transfer) -> None:
        """Sends parcels on towards all their homes but this server."""
        by_way: dict[str, list[Shipment]] = {}
        for shipment in message.shipments:
            if len(shipment.to) == 1:  # by far the most
                owner = shipment.to[0].owner
                way = self._way(owner, message.hops) if owner != self.name else None
                if way is not None:
                    by_way.setdefault(way, []).append(shipment)
                continue
            ways: dict[str, list[Destination]] = {}
            for address in shipment.to:
                if address.owner != self.name:
                    way = self._way(address.owner, message.hops)
                    if way is not None:
                        ways.setdefault(way, []).append(address)
            for way, to in ways.items():
                by_way.setdefault(way, []).append(
                    Shipment(tuple(to), shipment.body, shipment.context)
                )
        for way, shipments in by_way.items():
            carry = msgspec.structs.replace(
                message, shipments=tuple(shipments), hops=message.hops + 1
            )
            self.tells.append(SendMessage(Neighbour(way), carry))

    def acknowledge(self, message: StreamAck) -> None:
        """Sends towards its source what a home has taken."""
        way = self._way(message.source, message.hops)
        if way is not None:
            said = msgspec.structs.replace(message, hops=message.hops + 1)
            self.tells.append(SendMessage(Neighbour(way), said))

    def _way(self, server: str, hops: int) -> str | None:
        way = self.ways.get(server) if hops < HOPS_MAX else None
        self.stranded += way is None
        return way
