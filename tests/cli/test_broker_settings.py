"""Settings of a broker, from flags and files: a broker has them, or they are refused with their
place.
"""

from pathlib import Path
from typing import Any

import pytest

from contrada.cli.broker_settings import (
    BrokerSettings,
    LogSettings,
    TlsSettings,
    settings_of,
    settings_of_network,
)
from contrada.errors import ContradaError, InputError, ServiceError
from contrada.net.broker.neighbours import LinkSettings, Membership, WantedLink
from contrada.net.wire.address import Address
from contrada.routing.router_messages import Role

ONE = """
name = "south"
port = 7702
general = true
neighbours = [
    "contrada://127.0.0.1:7701",
    { to = "contrada://10.0.0.7", role = "child", cost = 3 },
]
parent = "contradas://desk.example"
extensions = ["geometry.operators:Shapes"]
log = { level = "info" }
tls = { certificate = "south.pem", authority = "/etc/ours.pem" }
"""

MANY = """
general = true
tls = { authority = "ours.pem" }

[brokers.oslo]
port = 7701
tls = { certificate = "oslo.pem" }

[brokers.riga]
host = "10.0.0.7"
anyone = true
port = 7702
parent = "oslo"
neighbours = [{ to = "bern", cost = 2 }, "contrada://127.0.0.1:7709"]

[brokers.bern]
port = 7703
general = false
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "contrada.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_says_what_flags_say(tmp_path: Path) -> None:
    """A broker would ignore its file."""
    found = settings_of(written(tmp_path, ONE), {})
    assert found.membership() == Membership(
        "south",
        general=True,
        trees=1,
        neighbours=(
            WantedLink(Address("127.0.0.1", 7701)),
            WantedLink(Address("10.0.0.7"), Role.CHILD, 3),
            WantedLink(Address("desk.example", is_tls=True), Role.PARENT),
        ),
    )
    assert (found.host, found.port, found.extensions) == (
        "127.0.0.1",
        7702,
        ["geometry.operators:Shapes"],
    )
    assert found.log == LogSettings("info")
    assert found.tls == TlsSettings(str(tmp_path / "south.pem"), authority="/etc/ours.pem")


def test_flags_win(tmp_path: Path) -> None:
    """A trial would need a change of the file."""
    flags = {"port": 0, "neighbours": ["contrada://b"], "log": {"json": True}, "tls": {"key": "k"}}
    found = settings_of(written(tmp_path, ONE), flags)
    assert (found.name, found.port) == ("south", 0)
    assert [each for _, each in found.links()] == [
        LinkSettings("contrada://b:7655"),
        LinkSettings("contradas://desk.example:7655", Role.PARENT),
    ]
    assert found.log == LogSettings("info", json=True)
    assert found.tls.key == "k", "from where one stands"
    assert found.tls.certificate == str(tmp_path / "south.pem")
    assert settings_of(None, {}) == BrokerSettings()


def test_one_file_is_of_many(tmp_path: Path) -> None:
    """The brokers of a network would need a file each, with every link twice."""
    path = written(tmp_path, MANY)
    all_of_them = settings_of_network(path)
    assert list(all_of_them) == ["oslo", "riga", "bern"]
    for name, each in all_of_them.items():
        assert each == settings_of(path, {"name": name})
    riga = all_of_them["riga"]
    assert (riga.name, riga.host, riga.general) == ("riga", "10.0.0.7", True)
    assert riga.tls == TlsSettings(authority=str(tmp_path / "ours.pem"))
    assert [each for _, each in riga.links()] == [
        LinkSettings("contrada://127.0.0.1:7703", cost=2),
        LinkSettings("contrada://127.0.0.1:7709"),
        LinkSettings("contradas://127.0.0.1:7701", Role.PARENT),
    ]
    assert not all_of_them["bern"].general


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "prot = 1",
            ": found the key prot (did you mean port?), expected one of: name, neighbours, ",
        ),
        ("port = 65536", ": port: found 65536, expected int <= 65535"),
        ("trees = 9", ": trees: found 9, expected int <= "),
        ("neighbours = [{ to = 'contrada://x', cost = 0 }]", "].cost: found 0, expected int >= 1"),
        ("neighbours = ['x']", ": neighbours[0]: address 'x': expected contrada://host"),
        ("parent = 'x'", ": parent: address 'x': expected contrada://host"),
        ("log = { level = 'loud' }", "log.level: found 'loud', expected one of: debug, info, "),
        ("neighbours = ['contrada://x']", ": a broker with neighbours or a parent has a name"),
        ("host = ''", ": address '': expected the name of a host"),
        ("tls = { key = 'a.pem' }", "a.pem: a key of TLS needs its certificate"),
        ("store = 'redis://:secret@x'", ": store = 'redis://…': expected the path of a file"),
        ("store = 'none/kept.db'", "there is no folder "),
        (f"name = '{'a' * 256}'", ": name: found 'aaa"),
        ("tls = 5", ": tls: found 5, expected table"),
        ("brokers = 5", ": brokers: found 5, expected table"),
        ("[brokers]\na = 5", ": brokers.a: found 5, expected table"),
        ("[brokers.a]", ": found no --name, expected one of its brokers: a"),
        ("[brokers.a]\nname = 'b'", ": brokers.a: found the key name, but 'a' is its name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """A slip would be run as another setting, or have to be searched for."""
    path = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        settings_of(path, {})
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("neighbours = ['osol']", "brokers.riga: neighbours[0]: address 'osol': .* oslo, riga"),
        ("neighbours = ['riga']", "brokers.riga: neighbours.0.: found itself, expected another"),
        ("neighbours = ['oslo', { to = 'oslo', cost = 3 }]", "found 'oslo' again, expected one"),
        ("parent = 'oslo'\nneighbours = ['contrada://127.0.0.1:1']", "parent: found 'oslo' again"),
        ("parent = 'free'", "brokers.riga: parent: found 'free', which has no port"),
        ("port = '1'", "brokers.riga: port: found '1', expected int"),
        ("neighbours = ['wide']", "'wide' listens at 0.0.0.0, expected its address, contrada://"),
    ],
)
def test_what_is_wrong_with_one_of_many_is_named(tmp_path: Path, text: str, said: str) -> None:
    """A network would start without a link, or with an impossible one."""
    described = f"[brokers.oslo]\nport = 1\n[brokers.riga]\n{text}\n[brokers.free]\nport = 0\n"
    described += "[brokers.wide]\nhost = '0.0.0.0'\nport = 2\n"
    path = written(tmp_path, described)
    with pytest.raises(InputError, match=said.replace("[0]", r"\[0\]")):
        settings_of_network(path)
    with pytest.raises(InputError, match="found --name rome, expected one of its brokers: oslo"):
        settings_of(path, {"name": "rome"})


@pytest.mark.parametrize(
    "flags", [{"general": True}, {"parent": "contrada://a"}, {"neighbours": ["contrada://a"]}]
)
def test_a_broker_without_a_name_is_in_no_network(flags: dict[str, Any]) -> None:
    """A nameless broker would run alone, although its owner expects a network."""
    with pytest.raises(ServiceError, match="has a name: add --name NAME"):
        settings_of(None, flags).membership()


def test_one_broker_is_no_network(tmp_path: Path) -> None:
    """A command that starts a network would silently start nothing."""
    with pytest.raises(ContradaError, match=r"expected a table of its own .*brokers\.NAME"):
        settings_of_network(written(tmp_path, "port = 1"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "broker.example"])
def test_a_broker_that_others_reach_asks_who_they_are(host: str) -> None:
    """Everybody who reaches the port could do everything, without a word in the settings."""
    with pytest.raises(ServiceError, match="authenticates nobody"):
        settings_of(None, {"host": host})
    assert settings_of(None, {"host": host, "anyone": True}).host == host
    assert settings_of(None, {"host": host, "users": "users.toml"}).users == "users.toml"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_broker_of_this_machine_asks_nobody(host: str) -> None:
    """A newcomer's first broker would not start."""
    assert settings_of(None, {"host": host}).host == host
