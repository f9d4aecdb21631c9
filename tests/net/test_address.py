"""Addresses say where a broker is, or what is wrong with them."""

import pytest

from contrada.errors import AddressError
from contrada.net import Address, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("contrada://127.0.0.1:9000", Address("127.0.0.1", 9000)),
        ("contrada://desk.example", Address("desk.example", 7655)),
        ("contrada://desk.example/", Address("desk.example", 7655)),
        ("contrada://[::1]:9000", Address("::1", 9000)),
    ],
)
def test_addresses_are_read(text: str, expected: Address) -> None:
    """A client would connect elsewhere."""
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


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
        "contrada://..",
        "contrada://host\udcff",
        pytest.param("contrada://" + "x" * 64, id="label of 64 letters"),
    ],
)
def test_malformed_addresses_say_what_was_expected(text: str) -> None:
    """A typing error would end in a strange error of the network, or be guessed away."""
    with pytest.raises(AddressError, match="expected contrada://host") as caught:
        parse_address(text)
    assert caught.value.address == text
