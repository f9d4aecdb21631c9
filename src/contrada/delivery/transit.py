"""`Transit`: forwards delivery messages to neighbours.

Messages for one server, or for a few, follow the routes of the link states. Without a route a
message is dropped and counted: the server that holds it sends it again. Messages for all servers
are flooded: each server forwards news.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from contrada.delivery import delivery_messages as messages
from contrada.routing.links.topology import HOPS_MAX
from contrada.routing.router_messages import Neighbour


class SendMessage(NamedTuple):
    """Send a message to a neighbour."""

    to: Neighbour
    message: messages.DeliveryMessage


class Transit:
    """The neighbours of a server `name`, and the routes over them; `outgoing` is to be sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.routes: Mapping[str, str] = {}
        self.outgoing: list[SendMessage] = []
        self.stranded = 0
        self._neighbours: dict[Neighbour, None] = {}

    def link_up(self, neighbour: Neighbour, known: Iterable[messages.DeliveryMessage]) -> None:
        """Adds a neighbour, and sends it the announcements."""
        self._neighbours[neighbour] = None
        self.outgoing += [SendMessage(neighbour, message) for message in known]

    def link_down(self, neighbour: Neighbour) -> None:
        """Removes a neighbour."""
        self._neighbours.pop(neighbour, None)

    def flood(
        self, message: messages.AnnounceOwner | messages.Sequenced, but: Neighbour | None = None
    ) -> None:
        """Sends a message to all neighbours but its sender."""
        self.outgoing += [SendMessage(each, message) for each in self._neighbours if each != but]

    def forward(self, message: messages.Transfer) -> None:
        """Forwards shipments towards all their owners but this server."""
        by_server: dict[str, list[messages.Shipment]] = {}
        for shipment in message.shipments:
            if len(shipment.to) == 1:  # by far the most
                owner = shipment.to[0].owner
                route = self._next_server(owner, message.hops) if owner != self.name else None
                if route is not None:
                    by_server.setdefault(route, []).append(shipment)
                continue
            routes: dict[str, list[messages.Destination]] = {}
            for address in shipment.to:
                if address.owner != self.name:
                    route = self._next_server(address.owner, message.hops)
                    if route is not None:
                        routes.setdefault(route, []).append(address)
            for route, to in routes.items():
                by_server.setdefault(route, []).append(
                    messages.Shipment(tuple(to), shipment.body, shipment.context)
                )
        for route, shipments in by_server.items():
            carry = msgspec.structs.replace(
                message, shipments=tuple(shipments), hops=message.hops + 1
            )
            self.outgoing.append(SendMessage(Neighbour(route), carry))

    def forward_ack(self, message: messages.StreamAck) -> None:
        """Forwards an acknowledgement towards its source."""
        route = self._next_server(message.source, message.hops)
        if route is not None:
            message = msgspec.structs.replace(message, hops=message.hops + 1)
            self.outgoing.append(SendMessage(Neighbour(route), message))

    def _next_server(self, server: str, hops: int) -> str | None:
        route = self.routes.get(server) if hops < HOPS_MAX else None
        self.stranded += route is None
        return route
