"""Networks of IP addresses, in all the ways that addresses are spelled."""

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError
from contrada.model import ValueSet
from contrada.model.algebra import sets
from contrada.model.languages import decision
from contrada.model.languages.ip_network import Cidr, address_of

ipv4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
ipv6 = st.one_of(
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**64 - 1),
    st.lists(st.sampled_from([0, 0, 1, 0xFFFF, 0xDB8, 0x2001]), min_size=8, max_size=8).map(
        lambda groups: int("".join(f"{group:04x}" for group in groups), 16)
    ),
    st.integers(0, 2**32 - 1).map(lambda low: 0xFFFF << 32 | low),
).map(ipaddress.IPv6Address)
addresses = st.one_of(ipv4, ipv6)
networks = st.one_of(st.tuples(ipv4, st.integers(0, 32)), st.tuples(ipv6, st.integers(0, 128))).map(
    lambda pair: f"{pair[0]}/{pair[1]}"
)

few_networks = st.sampled_from(
    ["0.0.0.0/0", "10.0.0.0/8", "1.2.3.4/31", "::/0", "::/79", "1:ffff::/37", "::ffff:0:0/104"]
)
"""Each costs a tenth of a second where an automaton is needed."""

ALL = [Cidr().automaton(network) for network in (b"0.0.0.0/0", b"::/0")]


@st.composite
def spellings(draw: st.DrawFn) -> tuple[int, str]:
    """An IPv6 address as a number, and one of its spellings."""
    address = draw(ipv6)
    groups = [f"{int(address) >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
    written = [g.zfill(draw(st.integers(len(g), 4))) for g in groups]
    if draw(st.booleans()):
        written[6:] = [str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))]
    first = draw(st.integers(0, len(written) - 1))
    last = draw(st.integers(first, len(written)))
    if last > first and all(set(w) == {"0"} for w in written[first:last]):
        text = ":".join(written[:first]) + "::" + ":".join(written[last:])
    else:
        text = ":".join(written)
    return int(address), draw(st.sampled_from([text, text.upper()]))


def ours(network: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """A network, of IPv4 where it is one of mapped addresses."""
    found = ipaddress.ip_network(network, strict=False)
    low = int(found.network_address)
    if isinstance(found, ipaddress.IPv6Network) and found.prefixlen >= 96 and low >> 32 == 0xFFFF:
        return ipaddress.IPv4Network((low & 0xFFFFFFFF, found.prefixlen - 96))
    return found


def is_in(address: int, network: str) -> bool:
    """By the definition: mapped addresses are IPv4's, the families are apart."""
    if address >> 32 == 0xFFFF:
        return ipaddress.IPv4Address(address & 0xFFFFFFFF) in ours(network)
    return ipaddress.IPv6Address(address) in ours(network)


@given(spellings(), networks)
def test_every_spelling_is_the_address(spelled: tuple[int, str], network: str) -> None:
    """An address would be in a network in one spelling and not in another."""
    address, text = spelled
    assert sets.cidr(network).contains(text) is is_in(address, network)


@given(spellings(), few_networks)
@example((1, "::1"), "::/0")
@example((0xFFFF0A000001, "::FFFF:10.0.0.1"), "10.0.0.0/8")
@example((0xFFFF0A000001, "::ffff:a00:1"), "::/0")
def test_every_spelling_is_decided(spelled: tuple[int, str], network: str) -> None:
    """The automaton of a network would miss a spelling of an address."""
    address, text = spelled
    held = sets.cidr(network)
    assert held.contains(text) is is_in(address, network)
    assert sets.eq(text).issubset(held) is held.contains(text)
    assert (~held).meets(sets.eq(text)) is not held.contains(text)


@given(ipv4, networks)
def test_ipv4_is_in_the_networks_of_ipv4(address: ipaddress.IPv4Address, network: str) -> None:
    """An IPv4 address would be lost, or found in a network of IPv6."""
    expected = is_in(0xFFFF << 32 | int(address), network)
    assert sets.cidr(network).contains(str(address)) is expected


@given(networks, networks)
@example("::/0", "10.0.0.0/8")
@example("::/80", "::ffff:0:0/96")
@example("10.0.0.0/8", "::ffff:10.1.0.0/112")
@example("::/0", "1::/16")
def test_networks_are_decided_among_each_other(a: str, b: str) -> None:
    """Whether one network holds another would be a guess, or cost an automaton."""
    decision.safe_answers.clear()
    first, second = ours(a), ours(b)
    apart = type(first) is not type(second)
    assert sets.cidr(a).meets(sets.cidr(b)) is (not apart and first.overlaps(second))
    held = not apart and second.subnet_of(first)  # type: ignore[arg-type]
    assert sets.cidr(a).issuperset(sets.cidr(b)) is held
    assert decision.safe_answers.total() == 0


@pytest.mark.slow
def test_networks_and_addresses_are_decided_with_other_operators() -> None:
    """A network would be opaque beside operators that are not."""
    held = sets.cidr("10.0.0.0/8") & sets.suffix(".7") & sets.prefix("10.1.")
    assert held.issubset(sets.cidr("10.1.0.0/16"))
    assert not held.issubset(sets.cidr("10.1.0.0/17"))
    assert held.meets(sets.contains("255"))
    assert not sets.cidr("::/0").meets(sets.contains("g"))
    assert sets.cidr("1.2.3.4/32") & sets.prefix("1") == sets.eq("1.2.3.4")


@given(networks)
def test_the_text_of_a_network_is_the_network(network: str) -> None:
    """A printed network would parse as another."""
    held = sets.cidr(network)
    assert ValueSet.parse(str(held)) == held


@given(st.text("0123456789abcdef:.%/xF ", max_size=20))
@example("1:2:3:4:5:6:7::")
@example("::1:2:3:4:5:6:7")
@example("1:2:3:4::5:6:7:8")
@example("00001::")
@example("::1.2.3.4")
@example("1::1.2.3.4")
@example("::ffff:1.2.3.4")
@example("1:2:3:4:5:6:1.2.3.4")
@example("::1.2.3.04")
@example("fe80::1%eth0")
@example("1.2.3.4.5")
@example("256.1.1.1")
def test_the_automaton_knows_the_same_addresses(text: str) -> None:
    """Matching and deciding would disagree on addresses."""
    known = address_of(text.encode()) is not None
    held = sets.cidr("0.0.0.0/0") | sets.cidr("::/0")
    assert held.contains(text) is known
    assert sets.eq(text).issubset(held) is known
    assert any(automaton.accepts(text.encode()) for automaton in ALL) is known


def test_an_automaton_has_the_addresses_of_its_network_alone() -> None:
    """Zeros that may be left out in front of a group would stand for other digits, too."""
    network = "1b0::/20"
    automaton = Cidr().automaton(network.encode())
    for group in ("01b0", "1b0", "b0", "0", "", "11b0"):
        for rest in ("::1", ":0fff::", ":1000::", ":0:0:0:0:0:0:7"):
            text = group + rest
            assert automaton.accepts(text.encode()) is sets.cidr(network).contains(text), text


@pytest.mark.parametrize(
    "network",
    [
        *("", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0/8", "::/129", "x"),
        *("10.0.0.0/+8", "10.0.0.0/٨", "10.0.0.0 /8", b"\xff", 8, "fe80::%1/64"),
    ],
)
def test_invalid_networks_are_refused(network: str) -> None:
    """A network would be read from something else."""
    with pytest.raises(InvalidFilterError):
        sets.cidr(network)


@pytest.mark.parametrize("value", [b"\xff", b"1" * 100_000, "١.2.3.4", "10.0.0.1\n", 10, None])
def test_other_texts_are_in_no_network(value: str) -> None:
    """Something that is no text of an address would be taken for one."""
    assert not sets.cidr("0.0.0.0/0").contains(value)
    assert not sets.cidr("::/0").contains(value)


def test_the_examples_of_a_network_are_its_ends() -> None:
    """A decision would not find the address that a narrower network lacks."""
    assert Cidr().examples(b"10.0.0.0/30") == (b"10.0.0.0", b"10.0.0.3")
