"""Logical addresses: their spaces, their origin, and their distances."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import AddressError, InvalidValueError, LimitError
from contrada.gossip.addresses import RADIX_MAX, AddressSpace, address_text, branch_of, distance

MIXED = AddressSpace((3, 1, 5, 2))


def test_a_space_is_its_digits() -> None:
    """Equations 6.10 and 6.11 would not hold: an address beyond its radix, or another number."""
    assert MIXED.size == 30
    assert MIXED.levels == 4
    assert [MIXED.radix(level) for level in (1, 2, 3, 4)] == [2, 5, 1, 3]
    addresses = [MIXED.of_number(number) for number in range(30)]
    assert addresses == sorted(set(addresses))
    assert all(MIXED.holds(address) for address in addresses)


def test_a_line_represents_the_subsystem_below_it() -> None:
    """Equation 6.13 would not hold: a line could claim more participants than can be."""
    assert [MIXED.room(level) for level in (1, 2, 3, 4)] == [1, 2, 10, 10]


@pytest.mark.parametrize(
    "address", [(), (0, 0, 0), (3, 0, 0, 0), (0, 0, 0, 2), (0, -1, 0, 0), (0, 0, 0, 0, 0)]
)
def test_other_addresses_are_refused(address: tuple[int, ...]) -> None:
    """A participant could have an address without a line in any table."""
    assert not MIXED.holds(address)
    with pytest.raises(InvalidValueError):
        MIXED.check(address)


def test_no_other_spaces() -> None:
    """A space without addresses, or with endless tables, would be made."""
    for radices in ((), (2, 0), (2, True)):
        with pytest.raises(InvalidValueError):
            AddressSpace(radices)
    with pytest.raises(LimitError):
        AddressSpace((RADIX_MAX + 1,))
    with pytest.raises(LimitError):
        AddressSpace.regular(65, 2)
    with pytest.raises(InvalidValueError):
        MIXED.of_number(30)


def test_hosts_have_the_addresses_of_the_thesis() -> None:
    """IPv4 would not be l = 4 and a = 256, or l = 11 and a = 16 with 4096 ports."""
    hosts = AddressSpace.of_hosts()
    assert (hosts.levels, hosts.size) == (4, 2**32)
    assert hosts.of_host("128.178.73.3") == (128, 178, 73, 3)
    ports = AddressSpace.of_hosts(bits=4, port_bits=12)
    assert (ports.levels, ports.size) == (11, 2**44)
    nibbles = (8, 0, 11, 2, 4, 9, 0, 3)
    assert ports.of_host("128.178.73.3", 0x3ABC, port_bits=12) == (*nibbles, 0xA, 0xB, 0xC)
    assert AddressSpace.of_hosts(bits=16, version=6).of_host("2001:db8::1")[:2] == (0x2001, 0xDB8)


def test_invalid_hosts_are_refused() -> None:
    """A participant could have a foreign address."""
    hosts = AddressSpace.of_hosts()
    for host in ("localhost", "1.2.3", "1.2.3.256"):
        with pytest.raises(AddressError):
            hosts.of_host(host)
    with pytest.raises(InvalidValueError):
        hosts.of_host("::1")
    ports = AddressSpace.of_hosts(bits=4, port_bits=12)
    for port in (None, 0, 65536):
        with pytest.raises(AddressError):
            ports.of_host("127.0.0.1", port, port_bits=12)
    for arguments in ({"bits": 7}, {"version": 5}, {"port_bits": 17}, {"port_bits": 4}):
        with pytest.raises(InvalidValueError):
            AddressSpace.of_hosts(**arguments)


def test_distances_are_levels_of_branches() -> None:
    """Two participants would not meet in the table of the subsystem that both are in."""
    assert distance((128, 178, 73, 3), (128, 178, 73, 3)) == 0
    assert distance((128, 178, 73, 3), (128, 178, 73, 17)) == 1
    assert distance((128, 178, 73, 3), (128, 178, 41, 3)) == 2
    assert distance((128, 178, 73, 3), (18, 178, 73, 3)) == 4
    assert branch_of((128, 178, 73, 3), 1) == (128, 178, 73)
    assert branch_of((128, 178, 73, 3), 4) == ()
    assert address_text((128, 178, 73, 3)) == "128.178.73.3"


_ADDRESSES = st.tuples(*(st.integers(0, 2) for _ in range(4)))


@given(_ADDRESSES, _ADDRESSES, _ADDRESSES)
def test_distance_is_an_ultrametric(
    a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]
) -> None:
    """Subsystems would overlap without one lying in the other."""
    assert distance(a, b) == distance(b, a)
    assert (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= max(distance(a, b), distance(b, c))
    level = distance(a, b)
    assert branch_of(a, level) == branch_of(b, level)
