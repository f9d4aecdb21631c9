"""The file of users: its rights, and its errors."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InputError
from contrada.model import Filter, FilterSet
from contrada.net.broker import users as module
from contrada.net.broker.users import (
    USER_NAME_CHARS_MAX,
    RightsSettings,
    Users,
    UserSettings,
    check_user_name,
)
from contrada.net.wire.tokens import new_token
from contrada.service.security.principals import EVERYTHING, NOTHING, Principal

TOKEN, RECORD = new_token("desk")


def read(folder: Path, text: str) -> Users:
    path = folder / "users.toml"
    path.write_text(text, "utf-8")
    return Users.read(path)


def test_a_file_sets_the_permissions_of_users(tmp_path: Path) -> None:
    """A user could do more than the file allows."""
    users = read(
        tmp_path,
        f"""
        [users.desk]
        token = "{RECORD}"
        certificate = "desk.example"
        publish = "symbol any and price > 0"
        subscribe = ["symbol prefix 'D'", "what = 'alert' or what = 'news'"]
        publishers = ["desk", "old"]
        durable = []
        narrow = true
        inspect = true
        expires = 2027-01-01T00:00:00Z
        [users.oslo]
        publish = true
        subscribe = true
        publishers = ["*"]
        durable = ["*"]
        link = true
        [users.anonymous]
        """,
    )
    assert users.principals["desk"] == Principal(
        "desk",
        FilterSet("symbol any and price > 0"),
        FilterSet("symbol prefix 'D' or what in ('alert', 'news')"),
        ("desk", "old"),
        (),
        narrows=True,
        may_inspect=True,
        expires_us=int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000,
    )
    oslo = users.principals["oslo"]
    assert (oslo.publish, oslo.subscribe) == (EVERYTHING, EVERYTHING)
    assert oslo.is_free_to_route
    assert (oslo.publishers, oslo.durable) == (("*",), ("*",))
    nobody = users.principals["anonymous"]
    assert (nobody.publish, nobody.subscribe) == (NOTHING, NOTHING)
    assert (users.records, users.certificates) == ({"desk": RECORD}, {"desk.example": "desk"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[users.desk]\nmay = true", "users.desk: .*may"),
        ("[other]", "found .*other"),
        ("users = 1", "users"),
        ("[users]\ndesk = 1", "users"),
        ("[users.desk]\ntoken = 'x'", "users.desk: .*'x'.*expected blake2b"),
        ("[users.desk]\npublish = 'price <'", "users.desk: publish: line 1, column 8"),
        ("[users.desk]\nsubscribe = ['a = 1', 'b <']", "users.desk: subscribe: line 1"),
        ("[users.desk]\nsubscribe = 'a wobbles 1'", "users.desk: subscribe: .*wobbles"),
        ("[users.desk]\nexpires = 2027-01-01T00:00:00", "users.desk: .*"),
        ("[users.desk]\nnarrow = 1", "users.desk: narrow: .*bool"),
        ("[users.'a/b']", "users.a/b: name: found 'a/b', expected"),
        ("[users.'*']", "users.*: name"),
        ("[users.'']", "users.: name: found ''"),
        (
            "[users.a]\ncertificate = 'x'\n[users.b]\ncertificate = 'x'",
            "users.b: found the certificate of 'a' again",
        ),
        ("[users.a", "Expected ']'"),
    ],
)
def test_errors_name_the_entry(text: str, words: str, tmp_path: Path) -> None:
    """A broker would begin with users that may something else than was meant."""
    with pytest.raises(InputError, match=words):
        read(tmp_path, text)


def test_more_users_than_may_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file could take any memory."""
    monkeypatch.setattr(module, "USERS_MAX", 2)
    with pytest.raises(InputError, match="more than USERS_MAX = 2 users"):
        read(tmp_path, "[users.a]\n[users.b]\n[users.c]")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "*", "a*", "\n", "\u202e", "x" * 101])
def test_names_that_could_be_taken_for_others_are_refused(name: str) -> None:
    """A name could be below another one, match all, or look like another."""
    with pytest.raises(InputError, match=f"1 to {USER_NAME_CHARS_MAX} printable"):
        check_user_name(name)


@pytest.mark.parametrize("name", ["desk", "desk.7", "d@example.com", "é", "x" * 100])
def test_other_names_are_names(name: str) -> None:
    """A person could not use their own name."""
    check_user_name(name)


def test_a_certificate_is_of_one_user_or_nobodys() -> None:
    """A certificate with the names of two users could be taken for either."""
    users = Users.of(
        "here", {"a": UserSettings(certificate="a.x"), "b": UserSettings(certificate="b.x")}
    )
    found = users.of_certificate(["z", "a.x"])
    assert found == users.principals["a"]
    assert found is not None
    assert found.credential == "a.x", "it ends with this certificate"
    assert users.of_certificate(["a.x", "b.x"]) is None
    assert users.of_certificate(["a", "A.X", "*.x", ""]) is None
    assert users.of_certificate([]) is None


# --- groups ---------------------------------------------------------------------------------------

ODD_NAMES = ["d17", "o'b\"x\\", "'or'a'any'", "{user}", "a{b}", "x`y", ")|(", "é#", "a.b:c@d", "&&"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_template_gives_exactly_the_name(name: str) -> None:
    """A name could be read as a part of the filter, and give the rights of others."""
    group = RightsSettings(
        publish="device = {user} and kind in ('state', {user})  # of '{a device'",
        subscribe=["to = {user}", "to none of ({user}, 'x') and all = true and t matches /'a/"],
        publishers=["{user}", "old/{user}"],
        durable=["{user}"],
    )
    settings = {name: UserSettings(token=RECORD, groups=["device"]), "other": UserSettings()}
    user = Users.of("here", settings, {"device": group}).principals[name]
    device, kinds = Filter({"device": name}), Filter({"kind": ["state", name]})
    assert user.publish == FilterSet([device & kinds])
    rest = Filter({"to": ct.ops.none_of(name, "x")}) & Filter("all = true and t matches /'a/")
    assert user.subscribe == FilterSet([Filter({"to": name}), rest])
    assert (user.publishers, user.durable) == ((name, f"old/{name}"), (name,))


EXPECTED = "expected {user} as a value behind =, != or in a list, without quotes or nocase"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("topic prefix {user}", EXPECTED),
        ("topic matches {user}", EXPECTED),
        ("topic wildcard {user}", EXPECTED),
        ("topic = nocase {user}", EXPECTED),
        ("topic in nocase ('all', {user})", EXPECTED),
        ("topic >= {user}", EXPECTED),
        ("topic between 'a' and {user}", EXPECTED),
        ("topic near= {user}", EXPECTED),
        ("{user} = 1", EXPECTED),
        ("a any and\n {user} = 1", EXPECTED),
        ("a == {user}", "groups.device: 'a == {user}': line 1, column 4: found '='"),
        ("a = '{user}'", EXPECTED),
        ('a = "x{user}"', EXPECTED),
        ("a matches /{user}/", EXPECTED),
        ("`{user}` = 1", EXPECTED),
        ("a = {user} # of {user}", EXPECTED),
        ("a = {user}5", EXPECTED),
        ("a = -{user}", EXPECTED),
        ("a = 271828 or b = '{user}'", EXPECTED),
        ("a{user} = 271828", EXPECTED),
        ("a = 1 -> b = 1 within {user} s", EXPECTED),
        ("a = {user", "users.desk: publish: line 1"),
    ],
)
def test_a_template_that_would_give_more_than_the_name_is_refused(
    template: str, words: str
) -> None:
    """A name would be a pattern, the beginning of other names, or never be replaced."""
    with pytest.raises(InputError, match=re.escape(words)):
        Users.of(
            "here",
            {"desk": UserSettings(groups=["device"])},
            {"device": RightsSettings(publish=template)},
        )


def test_a_user_has_its_own_rights_and_those_of_its_groups(tmp_path: Path) -> None:
    """A group would take rights away, give names of other users, or be forgotten."""
    users = read(
        tmp_path,
        """
        [groups.reads]
        subscribe = "a = 1"
        inspect = true
        [groups.writes]
        publish = ["b = {user}", "b = 0"]
        durable = ["logs/{user}"]
        [groups.all]
        publish = true
        [users.desk]
        subscribe = "a = 2"
        groups = ["reads", "writes"]
        [users.root]
        groups = ["writes", "all"]
        [users.plain]
        """,
    )
    desk = users.principals["desk"]
    assert desk.subscribe == FilterSet("a in (1, 2)")
    assert desk.publish == FilterSet("b = 'desk' or b = 0")
    assert (desk.publishers, desk.durable) == (("desk",), ("logs/desk",))
    assert (desk.may_inspect, desk.narrows, desk.may_link) == (True, False, False)
    assert users.principals["root"].publish is EVERYTHING
    assert users.principals["plain"] == Principal(
        "plain", publishers=("plain",), durable=("plain",)
    )
    with pytest.raises(InputError, match=r"users.desk: groups: found 'raeds', .* groups: reads"):
        read(tmp_path, "[groups.reads]\n[users.desk]\ngroups = ['raeds']")
    with pytest.raises(InputError, match=r"groups.reads: .*token"):
        read(tmp_path, "[groups.reads]\ntoken = 'x'")


# --- two tokens -----------------------------------------------------------------------------------


def test_a_credential_is_known_until_it_is_withdrawn_or_ends() -> None:
    """A withdrawn token would stay valid, or a new one end the connections of all."""
    now = datetime.now(UTC)
    other = new_token("desk")[1]

    def knows(credential: str, **said: Any) -> bool:
        return Users.of("here", {"desk": UserSettings(**said)}).knows("desk", credential)

    assert knows(RECORD, token=RECORD)
    assert knows(RECORD, token=other, old_token=RECORD)
    assert knows(RECORD, token=other, old_token=RECORD, old_token_ends=now + timedelta(hours=1))
    assert not knows(RECORD, token=other, old_token=RECORD, old_token_ends=now)
    assert not knows(RECORD, token=other)
    assert not knows(RECORD, certificate="desk.example")
    assert knows("desk.example", certificate="desk.example")
    assert not knows("desk.example", certificate="task.example")
