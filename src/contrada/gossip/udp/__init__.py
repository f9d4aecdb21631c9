"""Gossip groups over UDP, with sealed datagrams.

    gossip_node    a participant of a group, as an access point | group_bridge  a group and a broker
    gossip_group   the common configuration, and places
    fragments      messages larger than a datagram                |  rate_limits   bytes per second
    datagram_seal  authenticated encryption for the group

It needs the library `cryptography` (extra `gossip`).
"""

from contrada.gossip.udp.datagram_seal import GroupKey
from contrada.gossip.udp.gossip_group import GOSSIP_PORT_DEFAULT, GossipGroup
from contrada.gossip.udp.gossip_node import GossipNode, NodeStatistics
from contrada.gossip.udp.rate_limits import Rates

__all__ = [
    "GOSSIP_PORT_DEFAULT",
    "GossipNode",
    "GossipGroup",
    "GroupKey",
    "NodeStatistics",
    "Rates",
]
