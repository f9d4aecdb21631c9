"""The file of users: its rights, and its errors."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.model import FilterSet
from contrada.net.broker import users as module
from contrada.net.broker.users import USER_NAME_CHARS_MAX, Users, UserSettings, check_user_name
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
        ("[users.desk]\ntoken = 'x'", "users.desk: .*'x'.*expected scrypt"),
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


def test_changed_credentials_are_detected() -> None:
    """A user with a new token would keep the old connection, or all would have to reconnect."""
    other = new_token("desk")[1]
    users = Users.of(
        "here",
        {
            "desk": UserSettings(token=RECORD),
            "cert": UserSettings(certificate="c"),
            "gone": UserSettings(),
            "same": UserSettings(token=RECORD, publish="a = 1"),
        },
    )
    now = Users.of(
        "here",
        {
            "desk": UserSettings(token=other),
            "cert": UserSettings(certificate="d"),
            "same": UserSettings(token=RECORD, publish="a = 2"),
            "new": UserSettings(),
        },
    )
    assert users.changed(now) == {"desk", "cert", "gone"}
    assert users.changed(users) == set()


def test_a_certificate_is_of_one_user_or_nobodys() -> None:
    """A certificate with the names of two users could be taken for either."""
    users = Users.of(
        "here", {"a": UserSettings(certificate="a.x"), "b": UserSettings(certificate="b.x")}
    )
    assert users.of_certificate(["z", "a.x"]) == users.principals["a"]
    assert users.of_certificate(["a.x", "b.x"]) is None
    assert users.of_certificate(["a", "A.X", "*.x", ""]) is None
    assert users.of_certificate([]) is None
