"""Brokers over TCP: the wire protocol, the broker, and its client.

`contrada.connect` makes the service of a client; `Broker` serves one address.
"""

from contrada.net.broker.broker import Broker, BrokerStatistics
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import PORT_DEFAULT, Address, parse_address, parse_addresses
from contrada.net.wire.tls import Tls

__all__ = [
    "Address",
    "Broker",
    "BrokerStatistics",
    "PORT_DEFAULT",
    "TcpService",
    "Tls",
    "parse_address",
    "parse_addresses",
]
