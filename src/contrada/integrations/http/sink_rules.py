"""`SinkRules`: the destinations that the owner of a broker allows for sinks.

Users name sinks, so a sink could be a service that only this host can reach: on the loopback
interface, in its network, or the metadata service of a cloud (server-side request forgery). By
default sinks have public addresses. An allowed name does not allow a private address, since others
may decide what the name resolves to (DNS rebinding): only an allowed address does.

    public                   every public address
    hooks.example.com        this host, at public addresses; :8443 behind it allows one port
    10.2.0.0/16, ::1         these addresses, whatever the name; :8443 likewise behind one address
"""

import socket
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, NamedTuple, TypeAlias

from contrada.errors import AddressError, InvalidValueError
from contrada.net.wire.address import check_host

IpAddress: TypeAlias = IPv4Address | IPv6Address

PUBLIC: Final = "public"
"""The entry of a list of destinations for all public addresses."""

_PORT_MAX: Final = 65_535
_NAT64: Final = IPv6Network("64:ff9b::/96")
_UNICAST: Final = IPv6Network("2000::/3")
"""The part of IPv6 that is assigned to hosts of the Internet."""
_OWN_USE: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
"""IETF protocol assignments, and the virtual host of a cloud."""


class AllowedPlace(NamedTuple):
    """An entry: a network or the name of a host, and a port or None for all."""

    place: IPv4Network | IPv6Network | str
    port: int | None

    def has(self, host: str, port: int, address: IpAddress | None) -> bool:
        """Whether it names this host or address."""
        if self.port not in (None, port):
            return False
        if isinstance(self.place, str):
            return self.place in (host, PUBLIC) and (address is None or is_public(address))
        return address is not None and address in self.place

    def has_host(self, host: str, port: int, address: IpAddress | None) -> bool:
        """Whether it names this host as it is written, at any address."""
        if isinstance(self.place, str):
            return self.port in (None, port) and self.place == host
        return self.has(host, port, address)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRules:
    """Destinations of pushes. Raises InvalidValueError for a malformed entry."""

    allowed: tuple[str, ...] = (PUBLIC,)
    """Entries of allowed destinations; none allows no sink."""
    unasked: tuple[str, ...] = ()
    """Entries of destinations that get events without the web-hook handshake. They are compared
    with the host as the sink names it."""
    origin: str = "contrada"
    """The DNS name by which this sender asks for permission."""
    _allowed: tuple[AllowedPlace, ...] = field(init=False, repr=False)
    _unasked: tuple[AllowedPlace, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.origin.isascii() or not self.origin.replace(".", "").replace("-", "").isalnum():
            raise InvalidValueError(self.origin, "expected a DNS name, such as events.example.com")
        object.__setattr__(self, "_allowed", tuple(map(parse_allowed, self.allowed)))
        object.__setattr__(self, "_unasked", tuple(map(parse_allowed, self.unasked)))

    def may_allow(self, host: str, port: int) -> bool:
        """Whether a sink may name this host. For a name, `allows` decides about its addresses."""
        address, name = address_in(host), _plain(host)
        if address is not None:
            return self.allows(host, port, address)
        has_network = any(not isinstance(each.place, str) for each in self._allowed)
        return has_network or any(each.has(name, port, None) for each in self._allowed)

    def allows(self, host: str, port: int, address: IpAddress) -> bool:
        """Whether events may be sent to this address of the host of a sink."""
        return any(each.has(_plain(host), port, address) for each in self._allowed)

    def is_asked(self, host: str, port: int) -> bool:
        """Whether the sink has to agree before it gets events."""
        address, name = address_in(host), _plain(host)
        return not any(each.has(name, port, address) for each in self._unasked)


def parse_allowed(entry: str) -> AllowedPlace:
    """Returns an entry of a list of destinations. Raises InvalidValueError."""
    network = _network_in(entry)
    if network is not None:
        return AllowedPlace(network, None)
    place, colon, digits = entry.rpartition(":")
    port = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not colon:
        place = entry
    elif not 0 < port <= _PORT_MAX:
        raise InvalidValueError(entry, "expected a port from 1 to 65535 behind the colon")
    host = place.removeprefix("[").removesuffix("]")
    try:
        check_host(host)
    except AddressError:
        host = ""
    if not host or set(host) & set("/*@ ") or (host == PUBLIC and colon):
        expected = "public, a host, or a network such as 10.2.0.0/16"
        raise InvalidValueError(entry, f"expected {expected}")
    found = address_in(host)
    network = None if found is None else _network_in(str(found))
    return AllowedPlace(network or _plain(host), port if colon else None)


def _network_in(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")


def address_in(host: str) -> IpAddress | None:
    """The address of a literal host, also in the forms of resolvers: 127.1, 0x7f000001."""
    plain = _plain(host)
    if plain == "localhost" or plain.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    try:
        return ip_address(plain)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(plain))
    except OSError:
        return None


def is_public(address: IpAddress) -> bool:
    """Whether an address is on the public Internet, also one embedded in an IPv6 address."""
    if isinstance(address, IPv6Address):
        inner: Any = address.ipv4_mapped or address.sixtofour
        if address.teredo is not None:
            inner = address.teredo[1]
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:  # `is_global` holds for unassigned addresses, too.
            return False
    if any(address in each for each in _OWN_USE):
        return False
    return address.is_global and not address.is_multicast
