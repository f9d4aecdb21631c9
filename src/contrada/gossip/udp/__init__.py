"""Gossip groups over UDP, with sealed datagrams. It needs `cryptography` (extra `gossip`)."""

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
