"""`contrada user`: the file that it writes says what was asked for, and nothing else changes."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.model import FilterSet
from contrada.net.tokens import is_token
from contrada.net.users import Users
from contrada.security.principals import EVERYTHING, NOTHING


def user(folder: Path, *arguments: str) -> Result:
    path = str(folder / "users.toml")
    return CliRunner().invoke(main, ["user", *arguments, "--users", path])


def test_a_user_is_added_with_a_token_that_is_nowhere_kept(tmp_path: Path) -> None:
    """A user could not come, or whoever reads the file could come as him."""
    added = user(
        tmp_path,
        *("add", "desk", "--publish", "symbol any", "--publish", "what = 'alert'"),
        *("--subscribe", "price < 100", "--publisher", "desk", "--publisher", "old"),
        *("--durable", "kept", "--narrow", "--inspect", "--expires", "2027-01-31T00:00:00Z"),
    )
    assert added.exit_code == 0, added.output
    token = added.output.strip()
    path = tmp_path / "users.toml"
    assert token.partition(".")[2] not in path.read_text("utf-8")
    assert path.stat().st_mode & 0o777 == 0o600, "for its owner alone"
    users = Users.read(path)
    assert is_token(token, users.records["desk"])
    desk = users.principals["desk"]
    assert desk.publish == FilterSet("symbol any or what = 'alert'")
    assert desk.subscribe == FilterSet("price < 100")
    assert (desk.publishers, desk.durable) == (("desk", "old"), ("kept",))
    assert (desk.narrows, desk.may_inspect, desk.may_link) == (True, True, False)
    assert desk.expires_us == int(datetime(2027, 1, 31, tzinfo=UTC).timestamp()) * 1_000_000


def test_what_is_not_said_he_may_not(tmp_path: Path) -> None:
    """A user would be added who may more than was said."""
    assert user(tmp_path, "add", "desk").exit_code == 0
    desk = Users.read(tmp_path / "users.toml").principals["desk"]
    assert (desk.publish, desk.subscribe) == (NOTHING, NOTHING)
    assert (desk.publishers, desk.durable) == (("desk",), ("desk",))
    assert not any((desk.narrows, desk.may_inspect, desk.may_link, desk.expires_us))
    assert user(tmp_path, "add", "root", "--everything", "--link").exit_code == 0
    root = Users.read(tmp_path / "users.toml").principals["root"]
    assert (root.publish, root.subscribe, root.may_link) == (EVERYTHING, EVERYTHING, True)


def test_who_shows_something_else_gets_no_token(tmp_path: Path) -> None:
    """Somebody could come by a token that nobody asked for."""
    for name, *options in (("cert", "--certificate", "desk.example"), ("anonymous",)):
        added = user(tmp_path, "add", name, *options)
        assert (added.exit_code, added.output) == (0, "")
    users = Users.read(tmp_path / "users.toml")
    assert (users.records, users.certificates) == ({}, {"desk.example": "cert"})


def test_what_a_person_wrote_stays(tmp_path: Path) -> None:
    """Comments, and what is said of others, would be gone."""
    path = tmp_path / "users.toml"
    text = "# ours\n[users.old]  # away till May\nsubscribe = 'a = 1' # all of it\n"
    path.write_text(text)
    token = user(tmp_path, "add", "desk", "--subscribe", "a = 2").output.strip()
    assert path.read_text().startswith(text)
    again = user(tmp_path, "add", "desk", "--subscribe", "a = 3")
    assert again.exit_code == 2
    assert "there is a user 'desk' already: --replace gives him a new token" in again.output
    replaced = user(tmp_path, "add", "desk", "--subscribe", "a = 3", "--replace").output.strip()
    users = Users.read(path)
    assert not is_token(token, users.records["desk"])
    assert is_token(replaced, users.records["desk"])
    assert users.principals["desk"].subscribe == FilterSet("a = 3")
    assert user(tmp_path, "remove", "desk").exit_code == 0
    assert path.read_text().strip() == text.strip()
    gone = user(tmp_path, "remove", "desk")
    assert gone.exit_code == 2
    assert "there is no user 'desk'; there are: old" in gone.output


def test_users_are_listed_without_their_tokens(tmp_path: Path) -> None:
    """A person could not see what is in force, or would show what is kept."""
    user(tmp_path, "add", "desk", "--publish", "a = 1", "--narrow")
    user(tmp_path, "add", "cert", "--certificate", "x", "--everything", "--expires", "30d")
    listed = user(tmp_path, "list")
    assert listed.exit_code == 0
    for words in ("desk", "token", "a = 1", "nothing", "narrow", "cert", "certificate", "until"):
        assert words in listed.output
    lines = [json.loads(line) for line in user(tmp_path, "list", "--json").output.splitlines()]
    assert [(each["name"], each.get("token")) for each in lines] == [
        ("desk", "kept"),
        ("cert", None),
    ]
    assert "scrypt" not in listed.output + str(lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a/b"), "found 'a/b', expected 1 to 100 printable characters"),
        (("add", "desk", "--publish", "price <"), "users.desk: publish: line 1, column 8"),
        (("add", "desk", "--subscribe", "a wobbles 1"), "wobbles"),
        (("add", "desk", "--expires", "soon"), "--expires: found 'soon', expected a time"),
        (("add", "desk", "--expires", "2027-01-01T00:00:00"), "expected a time with its zone"),
        (("add", "desk", "--certificate", "x"), "found the certificate of 'other' again"),
    ],
)
def test_what_is_wrong_changes_nothing(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """A broker that reads the file again would lose its users."""
    user(tmp_path, "add", "other", "--certificate", "x")
    before = (tmp_path / "users.toml").read_text()
    wrong = user(tmp_path, *arguments)
    assert wrong.exit_code == 2
    assert words in re.sub(r"\s+", " ", wrong.output)
    assert (tmp_path / "users.toml").read_text() == before
    assert os.listdir(tmp_path) == ["users.toml"], "nothing is left beside it"


def test_a_period_ends_so_much_later(tmp_path: Path) -> None:
    """A user would end at once, or never."""
    for text, period in (("12h", timedelta(hours=12)), ("8w", timedelta(weeks=8))):
        user(tmp_path, "add", "desk", "--expires", text, "--replace")
        found = Users.read(tmp_path / "users.toml").principals["desk"].expires_us
        assert found is not None
        left = datetime.fromtimestamp(found / 1_000_000, UTC) - datetime.now(UTC)
        assert timedelta(0) <= period - left < timedelta(minutes=2)
