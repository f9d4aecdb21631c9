"""Brokers over TCP: the wire protocol, the broker, its client, and `connect`.

`frames` and `connection` are the protocol without input and output; `broker` and `peer` serve it,
`client`, `reconnecting` and `wire` use it.
"""

from contrada.net.broker.broker import Broker, BrokerStatistics
from contrada.net.client.tcp_service import TcpService
from contrada.net.service_factory import connect, connect_sync
from contrada.net.wire.address import PORT_DEFAULT, Address, parse_address, parse_addresses
from contrada.net.wire.tls import Tls

__all__ = [
    "Address",
    "Broker",
    "BrokerStatistics",
    "PORT_DEFAULT",
    "TcpService",
    "Tls",
    "connect",
    "connect_sync",
    "parse_address",
    "parse_addresses",
]
