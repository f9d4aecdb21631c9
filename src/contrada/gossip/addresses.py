"""Logical addresses: the place of a participant in the hierarchy, and distances.

An address is a tuple of l digits, x(l-1) first and x(0) last, each below the radix of its place. A
*branch address of level i* is its prefix, x(l-1) … x(i): it names the subsystem of all addresses
with this prefix. So the branch of level l is empty and names the whole group; a branch of level 1
names a lowest group, in which all members know one another. The *table of level i* has a line for
each x(i-1) below it.

Source: EPFL 2503 §6.4.1, equations 6.10 to 6.13.
"""

import ipaddress
from dataclasses import dataclass
from math import prod
from typing import Final, Self, TypeAlias

from contrada.errors import AddressError, InvalidValueError, LimitError
from contrada.gossip.parameters import HIERARCHY_LEVELS_MAX

LogicalAddress: TypeAlias = tuple[int, ...]
"""The digits of a participant, the highest first."""

Branch: TypeAlias = tuple[int, ...]
"""The common prefix of a subsystem's addresses."""

RADIX_MAX: Final = 65_536
"""Values of one digit, so that a table has no more lines. Beyond it: LimitError."""

PORT_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """The space of addresses: the radix of each digit, the highest first.

    Raises InvalidValueError without radices, or for a radix that is no whole number from 1, and
    LimitError beyond `HIERARCHY_LEVELS_MAX` digits, or `RADIX_MAX` values of one.

    Source: EPFL 2503 §6.4.1, equation 6.10.
    """

    radices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.radices:
            raise InvalidValueError(self.radices, "an address has at least one digit")
        if len(self.radices) > HIERARCHY_LEVELS_MAX:
            raise LimitError("HIERARCHY_LEVELS_MAX", HIERARCHY_LEVELS_MAX, len(self.radices))
        for radix in self.radices:
            if type(radix) is not int or radix < 1:
                raise InvalidValueError(radix, "a radix is a whole number, 1 or more")
            if radix > RADIX_MAX:
                raise LimitError("RADIX_MAX", RADIX_MAX, radix)

    @classmethod
    def regular(cls, levels: int, radix: int) -> Self:
        """Returns the space with equal radices."""
        return cls((radix,) * levels)

    @classmethod
    def of_hosts(cls, *, bits: int = 8, port_bits: int = 0, version: int = 4) -> Self:
        """Returns the space of IP addresses in digits of some bits, with some bits of a port
        below.

        By default l = 4 and a = 256. With 4 bits and 12 of the port l = 11 and a = 16. Raises
        InvalidValueError where the bits do not fill all digits.
        """
        width = _WIDTHS.get(version)
        if width is None:
            raise InvalidValueError(version, "version: 4 or 6")
        if not 0 <= port_bits <= PORT_BITS:
            raise InvalidValueError(port_bits, f"port_bits: 0 to {PORT_BITS}")
        if not 1 <= bits <= PORT_BITS or width % bits or port_bits % bits:
            raise InvalidValueError(bits, f"bits: a divisor of {width} and of {port_bits}")
        return cls.regular((width + port_bits) // bits, 1 << bits)

    @property
    def levels(self) -> int:
        """l, the digits of an address."""
        return len(self.radices)

    @property
    def size(self) -> int:
        """The number of addresses. Source: EPFL 2503 §6.4.1, equation 6.11."""
        return prod(self.radices)

    def check(self, address: LogicalAddress) -> LogicalAddress:
        """Returns the address. Raises InvalidValueError outside this space."""
        if not self.holds(address):
            shown = ".".join(map(str, self.radices))
            raise InvalidValueError(address, f"an address has a digit below each of {shown}")
        return address

    def holds(self, address: LogicalAddress) -> bool:
        """Returns whether an address is in the space."""
        return len(address) == len(self.radices) and all(
            type(digit) is int and 0 <= digit < radix
            for digit, radix in zip(address, self.radices, strict=True)
        )

    def radix(self, level: int) -> int:
        """Returns the most lines of a level's table."""
        return self.radices[-level]

    def room(self, level: int) -> int:
        """Returns the most participants of a line of a level's table (equation 6.13)."""
        return prod(self.radices[self.levels - level + 1 :])

    def of_number(self, number: int) -> LogicalAddress:
        """Returns the address with this number, in order. Raises InvalidValueError."""
        if not 0 <= number < self.size:
            raise InvalidValueError(number, f"an address's number is below {self.size}")
        digits: list[int] = []
        for radix in reversed(self.radices):
            number, digit = divmod(number, radix)
            digits.append(digit)
        return tuple(reversed(digits))

    def of_host(self, host: str, port: int | None = None, *, port_bits: int = 0) -> LogicalAddress:
        """Returns the address of a host and a port, in a space of `of_hosts`.

        The lowest `port_bits` of the port count. Raises AddressError for an invalid IP address or
        port, and InvalidValueError in another space.
        """
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            raise AddressError(host, "an IP address") from None
        if self.size != 1 << (_WIDTHS[ip.version] + port_bits):
            reason = f"a space of {self.size} addresses is none of IPv{ip.version}, port apart"
            raise InvalidValueError(host, reason)
        number = int(ip) << port_bits
        if port_bits:
            if port is None or not 0 < port < 1 << PORT_BITS:
                raise AddressError(f"{host}:{port}", "a port from 1 to 65535")
            number |= port & ((1 << port_bits) - 1)
        return self.of_number(number)


_WIDTHS: Final = {4: 32, 6: 128}
"""The bits of an IP address by its version."""


def branch_of(address: LogicalAddress, level: int) -> Branch:
    """Returns the branch address of a level: from 0, the address itself, to l, the empty one."""
    return address[: len(address) - level]


def distance(one: LogicalAddress, other: LogicalAddress) -> int:
    """Returns the level of the longest common branch, 0 to l. Source: EPFL 2503 §6.4.1."""
    level = len(one)
    for mine, theirs in zip(one, other, strict=True):
        if mine != theirs:
            break
        level -= 1
    return level


def address_text(address: LogicalAddress) -> str:
    """Returns the text of an address, such as `128.178.73.3`."""
    return ".".join(map(str, address))
