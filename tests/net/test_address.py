"""Addresses, and errors in them."""

import re
from typing import Any

import pytest

from contrada.errors import AddressError
from contrada.net.wire.address import Address, parse_address, parse_addresses, shown_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contrada://127.0.0.1:9000", Address("127.0.0.1", 9000)),
        ("contrada://desk.example", Address("desk.example", 7655)),
        ("contrada://desk.example/", Address("desk.example", 7655)),
        ("contrada://[::1]:9000", Address("::1", 9000)),
        ("contradas://desk.example", Address("desk.example", 7655, is_tls=True)),
    ],
)
def test_addresses_are_read(text: str, expected: Address) -> None:
    """A client would connect elsewhere."""
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


SEVERAL = (Address("a"), Address("::1", 9000), Address("b", 9001))


@pytest.mark.parametrize(
    "given",
    [
        "contrada://a,[::1]:9000,b:9001",
        "contrada://a,contrada://[::1]:9000,b:9001",
        ["contrada://a", "contrada://[::1]:9000", "contrada://b:9001"],
        ("contrada://a:7655,[::1]:9000", "contrada://b:9001,a"),
    ],
)
def test_several_addresses_are_read(given: Any) -> None:
    """A client would not find the alternative broker."""
    assert parse_addresses(given) == SEVERAL
    assert parse_addresses(shown_addresses(SEVERAL)) == SEVERAL


def test_further_addresses_are_spoken_to_as_the_first() -> None:
    """A secret would be sent in the clear to the alternative broker."""
    given = "contradas://a,b,contrada://c,d"
    found = parse_addresses(given)
    assert [each.is_tls for each in found] == [True, True, False, True]
    assert parse_addresses(shown_addresses(found)) == found


@pytest.mark.parametrize("given", [[], (), "contrada://a,", "contrada://,a", "a,b", ["a"], [5], 5])
def test_one_of_several_that_is_wrong_is_refused(given: Any) -> None:
    """It would be found out on the day on which the others are away."""
    with pytest.raises(AddressError, match="expected contrada://host"):
        parse_addresses(given)


@pytest.mark.parametrize("text", ["127.0.0.1:7655", "desk.example", "[::1]:9000"])
@pytest.mark.parametrize("scheme", ["", "tcp://", "nats://"])
def test_an_address_without_its_scheme_is_named_with_it(text: str, scheme: str) -> None:
    """A person would look for the fault in the host."""
    with pytest.raises(AddressError, match=re.escape(f"did you mean contrada://{text}?")):
        parse_address(scheme + text)


@pytest.mark.parametrize(
    ("scheme", "meant"), [("http", "ws"), ("ws", "ws"), ("https", "wss"), ("wss", "wss")]
)
def test_an_address_of_an_http_port_is_named_as_such(scheme: str, meant: str) -> None:
    """A person would be sent to the HTTP port with the protocol of the other one."""
    expected = f"did you mean contrada+{meant}://host:8080?"
    with pytest.raises(AddressError, match=re.escape(expected)):
        parse_address(f"{scheme}://host:8080")


@pytest.mark.parametrize("given", [5, b"contrada://h", ["contrada://h"]])
def test_a_value_that_is_no_text_is_refused(given: Any) -> None:
    """The error would be one of a library, and a program could not catch it."""
    with pytest.raises(AddressError, match="expected contrada://host"):
        parse_address(given)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:7655",
        "http://127.0.0.1:7655",
        "contrada://",
        "contrada://:7655",
        "contrada://host:",
        "contrada://host:0",
        "contrada://host:65536",
        "contrada://host:port",
        "contrada://host/path",
        "contrada://user@host",
        "contrada://host?x=1",
        "contrada://[::1",
        "contrada://ho st",
        "contrada://host\n",
        "contrada://host,other",
        "contrada://..",
        "contrada://host\udcff",
        pytest.param("contrada://" + "x" * 64, id="label of 64 letters"),
    ],
)
def test_errors_of_malformed_addresses_give_the_expected_form(text: str) -> None:
    """A typing error would end in a strange error of the network, or be guessed away."""
    with pytest.raises(AddressError, match="expected contrada://host") as caught:
        parse_address(text)
    assert caught.value.address == text
