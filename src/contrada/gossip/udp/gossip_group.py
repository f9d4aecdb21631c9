"""`GossipGroup`: the common configuration of a group over UDP; and the text of places.

A *place* is the address at which a participant receives and from which it sends: `10.0.0.7:7656`,
`[fd00::7]:7656`. Datagrams from another address are ignored.
"""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from contrada.errors import AddressError, InvalidValueError
from contrada.gossip.addresses import AddressSpace, LogicalAddress
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import Contact
from contrada.gossip.group_policy import Chance, GroupPolicy
from contrada.gossip.hpmcast import Hpmcast, Pmcast, Rfpbcast
from contrada.gossip.parameters import Parameters
from contrada.gossip.udp.rate_limits import UdpAddress
from contrada.net.wire.address import check_host

GOSSIP_PORT_DEFAULT: Final = 7656

USUAL: Final = Parameters(
    levels=4, branching=64, fanout=3, loss=0.05, crashes=0.01, audience=8, constant=2.0
)
"""The default parameters of a group: more reliable for few participants than the fewest rounds.

It has 2^24 addresses, so random ones rarely collide: among a thousand participants the chance is 3
in 100."""

ProtocolName: TypeAlias = Literal["hpmcast", "pmcast", "rfpbcast"]

PROTOCOLS: Final = {"hpmcast": Hpmcast, "pmcast": Pmcast, "rfpbcast": Rfpbcast}

_PLACE_EXPECTED: Final = "HOST:PORT, for example 10.0.0.7:7656 or [fd00::7]:7656"


@dataclass(frozen=True, slots=True)
class GossipGroup:
    """The common configuration of a group; another configuration is another group.

    Without a `space`, addresses have l digits below a. Raises InvalidValueError, LimitError.
    """

    protocol: ProtocolName = "hpmcast"
    parameters: Parameters = USUAL
    conduct: GroupPolicy = field(default_factory=GroupPolicy)
    space: AddressSpace | None = None

    def __post_init__(self) -> None:
        """Refuses a configuration without possible participants."""
        if self.protocol not in PROTOCOLS:
            raise InvalidValueError(self.protocol, f"expected one of {', '.join(PROTOCOLS)}")
        if self.protocol != "hpmcast" and self.parameters.levels != 1:
            reason = f"levels l: {self.protocol} has one, in which all know all"
            raise InvalidValueError(self.parameters.levels, reason)
        if self.addresses.levels != self.parameters.levels:
            reason = f"levels l: addresses have {self.addresses.levels} digits"
            raise InvalidValueError(self.parameters.levels, reason)

    @property
    def addresses(self) -> AddressSpace:
        """The space of addresses."""
        if self.space is not None:
            return self.space
        return AddressSpace.regular(self.parameters.levels, self.parameters.branching)

    @property
    def agreed(self) -> bytes:
        """The configuration as bytes, from which keys are derived."""
        parts = (self.protocol, self.parameters, self.conduct, self.addresses)
        return msgspec.json.encode(parts)

    def participant(
        self,
        address: LogicalAddress,
        place: str,
        rng: Chance,
        limits: GossipLimits = GossipLimits(),
    ) -> Hpmcast:
        """Returns a participant of the group. Raises InvalidValueError for a foreign address."""
        contact = Contact(self.addresses.check(address), place)
        made = PROTOCOLS[self.protocol]
        return made(contact, self.addresses, self.parameters, rng, self.conduct, limits)


def place_text(place: UdpAddress) -> str:
    """Returns the text of a place."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_place(text: str, port: int | None = GOSSIP_PORT_DEFAULT) -> tuple[str, int]:
    """Returns host and port of a text, with a default port. Raises AddressError."""
    host, colon, digits = text.rpartition(":")
    if not colon or digits.endswith("]") or (":" in host and not host.endswith("]")):
        host, digits = text, "" if port is None else str(port)
    host = host.removeprefix("[").removesuffix("]")
    is_port = digits.isascii() and digits.isdigit() and len(digits) < 6 and int(digits) < 1 << 16
    if not is_port or any(each.isspace() or not each.isprintable() for each in host):
        raise AddressError(text, _PLACE_EXPECTED)
    try:
        check_host(host)
    except AddressError:
        raise AddressError(text, _PLACE_EXPECTED) from None
    return host, int(digits)


async def resolve_place(text: str) -> UdpAddress:
    """Returns the IP address and port of a text. Raises AddressError."""
    host, port = split_place(text)
    if port == 0:
        raise AddressError(text, _PLACE_EXPECTED)
    try:
        return str(ipaddress.ip_address(host)), port
    except ValueError:
        loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        raise AddressError(text, "a host that can be found, or its IP address") from None
    return str(found[0][4][0]), port


def own_host(towards: UdpAddress) -> str:
    """Returns the IP address of this machine that reaches a place; nothing is sent."""
    family = socket.AF_INET6 if ":" in towards[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(towards)
        except OSError as error:
            reason = f"a place that is reached from here ({error.strerror})"
            raise AddressError(place_text(towards), reason) from None
        return str(probe.getsockname()[0])


def check_own_host(host: str) -> str:
    """Returns a usable IP address of a participant. Raises AddressError."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise AddressError(host, "the IP address at which this is reached") from None
    if address.is_unspecified or address.is_multicast:
        raise AddressError(host, "the one IP address at which others reach this")
    return str(address)
