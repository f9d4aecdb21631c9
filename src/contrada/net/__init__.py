"""Brokers over TCP: the wire protocol, the broker and its client.

`wire` is the protocol without input and output; `broker` serves it and `client` uses it. The names
here are loaded at first use: `import contrada.net` loads no broker and no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from contrada.net.broker.broker import Broker, BrokerStatistics
    from contrada.net.client.tcp_service import TcpService
    from contrada.net.wire.address import PORT_DEFAULT, Address, parse_address, parse_addresses
    from contrada.net.wire.tls import Tls

_MODULES: Final = {
    "Address": "wire.address",
    "Broker": "broker.broker",
    "BrokerStatistics": "broker.broker",
    "PORT_DEFAULT": "wire.address",
    "TcpService": "client.tcp_service",
    "Tls": "wire.tls",
    "parse_address": "wire.address",
    "parse_addresses": "wire.address",
}
"""The modules below this package by the public names that they define."""

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


def __getattr__(name: str) -> Any:
    """Loads a public name at first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
