"""`SinkRules`: only the destinations that the owner of a broker allows."""

from ipaddress import ip_address

import pytest

from contrada.errors import InvalidValueError
from contrada.integrations.http.sink_rules import SinkRules, is_public


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "is_allowed"),
    [
        ("public", "a.example", 80, "8.8.8.8", True),
        ("public", "a.example", 80, "10.2.3.4", False),
        ("public", "a.example", 80, "::1", False),
        ("a.example", "A.Example.", 80, "8.8.8.8", True),
        ("a.example", "a.example", 80, "10.2.3.4", False),
        ("a.example", "b.a.example", 80, "8.8.8.8", False),
        ("a.example:8443", "a.example", 8443, "8.8.8.8", True),
        ("a.example:8443", "a.example", 443, "8.8.8.8", False),
        ("10.2.0.0/16", "any.example", 80, "10.2.3.4", True),
        ("10.2.0.0/16", "any.example", 80, "10.3.3.4", False),
        ("10.2.0.0/16", "any.example", 80, "8.8.8.8", False),
        ("10.2.3.4:8080", "any.example", 8080, "10.2.3.4", True),
        ("10.2.3.4:8080", "any.example", 80, "10.2.3.4", False),
        ("::1", "any.example", 80, "::1", True),
        ("[::1]:8080", "any.example", 8080, "::1", True),
        ("[::1]:8080", "any.example", 80, "::1", False),
        ("localhost", "localhost", 80, "127.0.0.1", True),
        ("0.0.0.0/0", "any.example", 80, "::1", False),
    ],
)
def test_an_address_is_allowed_by_its_entry(
    entry: str, host: str, port: int, address: str, is_allowed: bool
) -> None:
    """A service of the network could be reached that the owner has not listed."""
    rules = SinkRules(allowed=(entry,))
    assert rules.allows(host, port, ip_address(address)) is is_allowed
    assert not SinkRules(allowed=()).allows(host, port, ip_address(address))


@pytest.mark.parametrize(
    ("entries", "host", "may_be"),
    [
        (("public",), "a.example", True),
        (("public",), "10.2.3.4", False),
        (("public",), "localhost", False),
        (("public",), "0x7f.1", False),
        (("a.example",), "a.example", True),
        (("a.example",), "b.example", False),
        (("a.example",), "8.8.8.8", False),
        (("10.0.0.0/8",), "b.example", True),  # Its addresses decide.
        (("10.0.0.0/8",), "11.2.3.4", False),
        ((), "a.example", False),
    ],
)
def test_a_host_is_refused_at_once_where_no_entry_can_allow_it(
    entries: tuple[str, ...], host: str, may_be: bool
) -> None:
    """A subscription would be accepted whose sink cannot get any event."""
    assert SinkRules(allowed=entries).may_allow(host, 80) is may_be


def test_only_listed_hosts_are_not_asked() -> None:
    """A stranger's host would get events that it has not agreed to."""
    rules = SinkRules(unasked=("hooks.example", "10.0.0.0/8"))
    assert not rules.is_asked("hooks.example", 443)
    assert not rules.is_asked("10.1.1.1", 80)
    assert rules.is_asked("other.example", 443)
    assert rules.is_asked("11.1.1.1", 80)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "http://a.example/", "a.example:", "a.example:x", "a.example:70000", "public:80"),
        *("*.example", "10.2.0.0/99", "a b", "u@a.example", "10.2.0.1/16", "::1:x"),
    ],
)
def test_malformed_entries_are_refused(entry: str) -> None:
    """A misspelt entry would allow nothing, or more than was meant, without a word."""
    with pytest.raises(InvalidValueError):
        SinkRules(allowed=(entry,))


@pytest.mark.parametrize("origin", ["", "a b", "é.example", "a\r\nb"])
def test_a_malformed_origin_is_refused(origin: str) -> None:
    """A header of each request would be malformed."""
    with pytest.raises(InvalidValueError):
        SinkRules(origin=origin)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "::7f00:1",
        "fec0::1",
        "192.0.0.192",
        "168.63.129.16",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    """Server-side request forgery: a stranger could reach services that only this host can
    reach.
    """
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    """No sink could be reached."""
    assert is_public(ip_address(address))
