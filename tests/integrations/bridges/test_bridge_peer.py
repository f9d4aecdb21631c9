"""Addresses of other systems."""

import pytest

from contrada.errors import AddressError
from contrada.integrations.bridges.bridge_peer import AddressForm, PeerAddress, PeerSettings
from contrada.net.wire.tls import Tls

FORM = AddressForm(("x", "xs"), (1, 2), is_cluster=True, has_path=True)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x://a", PeerAddress("x", (("a", 1),))),
        ("xs://me@[::1]:7,b/c", PeerAddress("xs", (("::1", 7), ("b", 2)), True, "me", "p", "c")),
        ("x://a%40b@h/%2f", PeerAddress("x", (("h", 1),), user="a@b", password="p", path="/")),
    ],
)
def test_addresses_are_parsed(text: str, place: PeerAddress) -> None:
    """A bridge would connect to another host."""
    assert FORM.parse(text, place.password) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "http://a",
        "x://",
        "x://a:0",
        "x://a:b",
        "x://a\n",
        "x://a,,b",
        "x://a/b?c",
        "x://a?b",
        "x://a#b",
    ],
)
def test_malformed_addresses_are_refused(text: str) -> None:
    """A typing error would end in a confusing network error."""
    with pytest.raises(AddressError, match=r"expected x://\[USER@\]HOST"):
        FORM.parse(text)
    plain = AddressForm(("x", "xs"), (1, 2))
    for beyond in ("x://a,b", "x://a/b"):
        with pytest.raises(AddressError):
            plain.parse(beyond)


@pytest.mark.parametrize("before", ["x://me:", "x://me:s/", "x://me:s@", "me:", "x://:"])
def test_a_password_in_an_address_is_refused_and_not_shown(before: str) -> None:
    """Every user of the machine could read it in the process list, and later in the log."""
    with pytest.raises(AddressError, match="without a password") as caught:
        FORM.parse(f"{before}hidden@a")
    assert "hidden" not in str(caught.value)
    assert "secret" not in repr(FORM.parse("x://me@a", "secret"))


def test_an_address_with_tls_has_it_without_settings() -> None:
    """The password would be sent in plain text."""
    assert PeerSettings(FORM.parse("xs://me@a", "secret"), "b").tls == Tls()
    assert PeerSettings(FORM.parse("x://me@a", "secret"), "b").tls is None
