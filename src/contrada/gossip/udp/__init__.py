"""Groups that gossip, over UDP: sealed datagrams, and what lies between them and a participant.

    node       a participant of a group, as an access point     |  bridge   a group and a broker
    group      what all participants agree on, and places
    fragments  messages larger than a datagram                  |  pacing   how much goes and comes
    sealing    datagrams that only the group can make and read

It needs the library `cryptography` (extra `gossip`), which nothing else here does.
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
