"""The operator `cidr`: texts that are IP addresses of a network.

Spelling does not matter, and an IPv4 address mapped into IPv6, `::ffff:10.0.0.1`, is that IPv4
address. Otherwise the two families never meet: `::/0` has no IPv4 address. IPv4 is four decimal
numbers without leading zeros; an address with a zone (`%eth0`) is in no network. The spellings of a
network's addresses are a regular set. Networks alone are decided without it.

Source: RFC 4632 §3.1, RFC 4291 §2.2, §2.3 and §2.5.5.2.
"""

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from contrada.errors import InvalidFilterError
from contrada.model.languages import regex_syntax
from contrada.model.languages.atoms import Atom, Operator, registry
from contrada.model.languages.automaton import Automaton, difference
from contrada.model.languages.regex_machine import Machine

ADDRESSES_CACHED_MAX: Final = 4_096
"""Cached IP addresses, and as many networks. Beyond it: the least recently used is parsed again."""

ADDRESS_BYTES_MAX: Final = 45
"""Bytes of a text that may be an IP address. Beyond it: it is none."""

Network: TypeAlias = IPv4Network | IPv6Network

MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""The prefix of the IPv4 addresses in IPv6."""


class Cidr(Operator):
    """Text that is an address of the network."""

    name = "cidr"

    def check(self, constant: bytes) -> None:
        network_of(constant)

    def apply(self, value: bytes, constant: bytes) -> bool:
        address = address_of(value)
        return address is not None and address in network_of(constant)

    def automaton(self, constant: bytes) -> Automaton:
        """Returns all spellings of all addresses of the network: a hundred states or two."""
        network = network_of(constant)
        if isinstance(network, IPv4Network):
            low = int(MAPPED.network_address) | int(network.network_address)
            mapped = IPv6Network((low, MAPPED.prefixlen + network.prefixlen))
            return _spelled(f"{_dotted(_bits(network))}|{_ipv6(_bits(mapped))}")
        spelled = _spelled(_ipv6(_bits(network)))
        if not MAPPED.subnet_of(network):
            return spelled
        return difference(spelled, _spelled(_ipv6(_bits(MAPPED))))

    def examples(self, constant: bytes) -> tuple[bytes, ...]:
        """Returns the first and the last address: a narrower network lacks one of them."""
        network = network_of(constant)
        return str(network[0]).encode(), str(network[-1]).encode()

    def covers(self, constant: bytes, other: Atom) -> bool | None:
        if other.operator != self.name:
            return None
        outer, inner = network_of(constant), network_of(other.constant)
        if isinstance(outer, IPv4Network):
            return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
        return isinstance(inner, IPv6Network) and inner.subnet_of(outer)

    def intersects(self, constant: bytes, other: Atom) -> bool | None:
        if other.operator != self.name:
            return None
        return network_of(constant).overlaps(network_of(other.constant))


@lru_cache(maxsize=ADDRESSES_CACHED_MAX)
def address_of(text: bytes) -> IPv4Address | IPv6Address | None:
    """Returns the address of a text, or None."""
    if len(text) > ADDRESS_BYTES_MAX or b"%" in text or not text.isascii():
        return None
    try:
        address = ip_address(text.decode())
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


@lru_cache(maxsize=ADDRESSES_CACHED_MAX)
def network_of(constant: bytes) -> Network:
    """Returns the network of `ADDRESS` or `ADDRESS/BITS`. Raises InvalidFilterError."""
    address, slash, bits = constant.decode(errors="replace").partition("/")
    try:
        if "%" in address or (slash and not (bits.isascii() and bits.isdigit() and len(bits) <= 3)):
            raise ValueError(address)
        network = ip_network(f"{address}/{int(bits)}" if slash else address, strict=False)
    except ValueError:
        reason = 'expected an IP address and a number of bits, as in "10.0.0.0/8"'
        raise InvalidFilterError("cidr", (constant,), reason) from None
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):
        mapped = network.network_address.ipv4_mapped
        return IPv4Network((mapped, network.prefixlen - MAPPED.prefixlen))
    return network


# --- spellings ----------------------------------------------------------------------------------


def _spelled(pattern: str) -> Automaton:
    return Machine(regex_syntax.read(f"\\A(?i:{pattern})\\z")).automaton()


def _bits(network: Network) -> str:
    """Returns the network's addresses as bits, `x` for either."""
    length = network.max_prefixlen
    fixed = f"{int(network.network_address):0{length}b}"[: network.prefixlen]
    return fixed.ljust(length, "x")


def _dotted(bits: str) -> str:
    """Returns four decimal numbers of eight bits each."""
    return "\\.".join(_decimal(bits[at : at + 8]) for at in range(0, 32, 8))


def _decimal(bits: str) -> str:
    if bits == "x" * 8:
        return "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    low, high = int(bits.replace("x", "0"), 2), int(bits.replace("x", "1"), 2)
    return f"(?:{'|'.join(map(str, range(low, high + 1)))})"


def _ipv6(bits: str) -> str:
    groups = [_hexadecimal(bits[at : at + 16]) for at in range(0, 128, 16)]
    dotted = _dotted(bits[96:])
    rest = ""
    for read in range(7, 0, -1):
        ways = [f":{groups[read]}{rest}", *_gap(groups, dotted, bits, read)]
        if read == 6:
            ways.append(f":{dotted}")
        rest = f"(?:{'|'.join(ways)})"
    return "|".join((groups[0] + rest, *_gap(groups, dotted, bits, 0)))


def _gap(groups: list[str], dotted: str, bits: str, read: int) -> Iterator[str]:
    for last in range(8 - read):
        if "1" in bits[16 * read : 128 - 16 * last]:
            continue
        yield "::" + ":".join(groups[8 - last :])
        if last >= 2:
            yield "::" + ":".join((*groups[8 - last : 6], dotted))


def _hexadecimal(bits: str) -> str:
    """Returns one to four hexadecimal digits of 16 bits; zeros in front may be left out."""
    if bits == "x" * 16:
        return "[0-9a-f]{1,4}"
    digits = [_digit(bits[at : at + 4]) for at in range(0, 16, 4)]
    found = digits[3]
    for place in (2, 1, 0):
        may_be_zero = "1" not in bits[: 4 * place + 4]
        found = f"(?:{digits[place]}{found}{'|' + found if may_be_zero else ''})"
    return found


def _digit(bits: str) -> str:
    if bits == "xxxx":
        return "[0-9a-f]"
    low, high = int(bits.replace("x", "0"), 2), int(bits.replace("x", "1"), 2)
    return f"[{''.join(f'{digit:x}' for digit in range(low, high + 1))}]"


registry.add(Cidr())
