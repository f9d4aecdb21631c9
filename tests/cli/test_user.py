"""`contrada user`: its file has the requested permissions, and nothing else changes."""

import fcntl
import json
import os
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.cli.users_file import changing, write_anew
from contrada.model import FilterSet
from contrada.net.broker.users import Users
from contrada.net.wire.tokens import is_token
from contrada.service.security.principals import EVERYTHING, NOTHING, Quotas


def user(folder: Path, *arguments: str) -> Result:
    path = str(folder / "users.toml")
    return CliRunner().invoke(main, ["user", *arguments, "--users", path])


def test_a_user_is_added_with_a_token_that_is_nowhere_kept(tmp_path: Path) -> None:
    """A user could not connect, or a reader of the file could act as the user."""
    added = user(
        tmp_path,
        *("add", "desk", "--publish", "symbol any", "--publish", "what = 'alert'"),
        *("--subscribe", "price < 100", "--publisher", "desk", "--publisher", "old"),
        *("--durable", "kept", "--narrow", "--inspect", "--expires", "2027-01-31T00:00:00Z"),
        "--no-block",
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
    assert not desk.may_block
    assert desk.expires_us == int(datetime(2027, 1, 31, tzinfo=UTC).timestamp()) * 1_000_000


def test_a_filter_is_listed_as_it_is(tmp_path: Path) -> None:
    """A class of characters in brackets would be shown as another expression."""
    user(tmp_path, "add", "desk", "--subscribe", "name matches /[a-z]+/")
    assert "name matches /[a-z]+/" in user(tmp_path, "list").output


def test_what_is_not_said_he_may_not(tmp_path: Path) -> None:
    """A user would have more permissions than requested."""
    assert user(tmp_path, "add", "desk").exit_code == 0
    desk = Users.read(tmp_path / "users.toml").principals["desk"]
    assert (desk.publish, desk.subscribe) == (NOTHING, NOTHING)
    assert (desk.publishers, desk.durable) == (("desk",), ("desk",))
    assert not any((desk.narrows, desk.may_inspect, desk.may_link, desk.expires_us))
    assert user(tmp_path, "add", "root", "--everything", "--link").exit_code == 0
    root = Users.read(tmp_path / "users.toml").principals["root"]
    assert (root.publish, root.subscribe, root.may_link) == (EVERYTHING, EVERYTHING, True)
    for option in ("--publish", "--subscribe"):
        refused = user(tmp_path, "add", "oslo", "--everything", option, "a = 1")
        assert refused.exit_code == 2
        assert "--everything includes" in refused.output
    assert "oslo" not in Users.read(tmp_path / "users.toml").principals


def test_who_shows_something_else_gets_no_token(tmp_path: Path) -> None:
    """A token that nobody requested could be used."""
    for name, *options in (("cert", "--certificate", "desk.example"), ("anonymous",)):
        added = user(tmp_path, "add", name, *options)
        assert (added.exit_code, added.output) == (0, "")
    users = Users.read(tmp_path / "users.toml")
    assert (users.records, users.certificates) == ({}, {"desk.example": "cert"})


def test_what_a_person_wrote_stays(tmp_path: Path) -> None:
    """Comments, and settings of other users, would be lost."""
    path = tmp_path / "users.toml"
    text = "# ours\n[users.old]  # away till May\nsubscribe = 'a = 1' # all of it\n"
    path.write_text(text)
    token = user(tmp_path, "add", "desk", "--subscribe", "a = 2").output.strip()
    assert path.read_text().startswith(text)
    again = user(tmp_path, "add", "desk", "--subscribe", "a = 3")
    assert again.exit_code == 2
    assert "there is a user 'desk' already: --replace gives them a new token" in again.output
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


def test_a_new_token_leaves_the_old_one_valid_until_its_end(tmp_path: Path) -> None:
    """Clients would be cut off before they have the new token, or the old one be valid for ever."""
    path, late = tmp_path / "users.toml", tmp_path / "late.token"
    old = user(tmp_path, "add", "desk", "--publish", "a = 1").output.strip()
    path.write_text(f"# ours\n{path.read_text()}")
    made = user(tmp_path, "token", "desk", "--old-until", "7d")
    assert made.exit_code == 0, made.output
    new = made.output.split("\n")[0]
    users = Users.read(path)
    record, ends_us = users.old_records["desk"]
    assert (is_token(new, users.records["desk"]), is_token(old, record)) == (True, True)
    assert ends_us is not None
    assert ends_us / 1e6 - datetime.now(UTC).timestamp() == pytest.approx(7 * 86_400, abs=60)
    assert users.principals["desk"].publish == FilterSet("a = 1")
    assert path.read_text().startswith("# ours\n")
    again = user(tmp_path, "token", "desk")
    assert again.exit_code == 2
    assert "'desk' has two valid tokens: end the old one by --withdraw first" in again.output
    assert "two tokens" in user(tmp_path, "list").output
    listed = json.loads(user(tmp_path, "list", "--json").output)
    assert (listed["token"], listed["old_token"]) == ("kept", "kept")
    withdrawn = user(tmp_path, "token", "desk", "--withdraw")
    assert (withdrawn.exit_code, "at SIGHUP" in withdrawn.output) == (0, True)
    users = Users.read(path)
    assert is_token(new, users.records["desk"])
    assert not users.old_records
    assert "has no old token" in user(tmp_path, "token", "desk", "--withdraw").output
    assert user(tmp_path, "token", "desk", "--token-file", str(late)).exit_code == 0
    users = Users.read(path)
    assert is_token(late.read_text().strip(), users.records["desk"])
    assert users.old_records["desk"][1] is None
    assert (
        "--withdraw makes no new"
        in user(tmp_path, "token", "desk", "--withdraw", "--old-until", "1h").output
    )
    user(tmp_path, "add", "cert", "--certificate", "x")
    assert "no token that could be replaced" in user(tmp_path, "token", "cert").output
    assert "there is no user 'x'" in user(tmp_path, "token", "x").output


def test_a_user_is_added_to_groups(tmp_path: Path) -> None:
    """A user would have no rights, or a group that is missing be found only by the broker."""
    path = tmp_path / "users.toml"
    path.write_text("[groups.device]\npublish = 'device = {user}'\n")
    assert user(tmp_path, "add", "d17", "--group", "device").exit_code == 0
    assert Users.read(path).principals["d17"].publish == FilterSet("device = 'd17'")
    assert "in device" in user(tmp_path, "list").output
    wrong = user(tmp_path, "add", "d18", "--group", "devices")
    assert (wrong.exit_code, "found 'devices', expected" in wrong.output) == (2, True)
    assert user(tmp_path, "remove", "d17").exit_code == 0
    assert "[groups.device]" in path.read_text()


def test_a_replaced_user_keeps_its_quotas(tmp_path: Path) -> None:
    """Who replaces the token of a user would take off its quotas unnoticed."""
    user(tmp_path, "add", "desk")
    user(tmp_path, "quota", "desk", "--connections", "5")
    user(tmp_path, "add", "desk", "--everything", "--replace")
    assert user(tmp_path, "quota", "desk").output == "connections 5\n"


def test_quotas_are_set_printed_and_removed(tmp_path: Path) -> None:
    """A quota would not be in the file, change other settings, or stay for ever."""
    path = tmp_path / "users.toml"
    path.write_text("[groups.device]\nquota = { connections = 1, bytes_per_s = 9 }\n# ours\n")
    token = user(tmp_path, "add", "d1", "--group", "device", "--publish", "a = 1").output.strip()

    def quota(*arguments: str) -> str:
        found = user(tmp_path, "quota", *arguments)
        assert found.exit_code == 0, found.output
        return found.output

    assert "at SIGHUP" in quota("d1", "--connections", "5", "--kept-bytes", "1000000")
    assert quota("d1") == "connections 5\nkept_bytes 1000000\nbytes_per_s 9\n"
    quota("d1", "--kept-bytes", "none", "--subscriptions", "0")
    quota("device", "--group", "--bytes-per-s", "none", "--notifications-per-s", "7")
    assert quota("d1") == "connections 5\nsubscriptions 0\nnotifications_per_s 7\n"
    assert quota("device", "--group") == "connections 1\nnotifications_per_s 7\n"
    users = Users.read(path)
    assert users.principals["d1"].quotas == Quotas(
        connections=5, subscriptions=0, notifications_per_s=7
    )
    assert is_token(token, users.records["d1"])
    assert users.principals["d1"].publish == FilterSet("a = 1")
    assert "# ours" in path.read_text()
    assert "subscriptions 0" in user(tmp_path, "list").output
    before = path.read_text()
    for arguments, words in (
        (("d1", "--connections", "-1"), "found '-1', expected a number, or none"),
        (("d1", "--notifications-per-s", "0"), "notifications_per_s: found 0, expected int >= 1"),
        (("x", "--connections", "1"), "there is no user 'x'; there are: d1"),
        (("x", "--group", "--connections", "1"), "there is no group 'x'; there are: device"),
    ):
        wrong = user(tmp_path, "quota", *arguments)
        assert (wrong.exit_code, words in " ".join(wrong.output.split())) == (2, True), wrong.output
    assert path.read_text() == before


def test_users_are_listed_without_their_tokens(tmp_path: Path) -> None:
    """A person could not see the permissions, or would see secrets."""
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
    assert "blake2b" not in listed.output + str(lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a/b"), "found 'a/b', expected 1 to 100 printable characters"),
        (("add", "eyJ.a"), "'eyJ.a': a token of this name looks like a JWT: choose another one"),
        (("add", "desk", "--publish", "price <"), "users.desk: publish: line 1, column 8"),
        (("add", "desk", "--subscribe", "a wobbles 1"), "wobbles"),
        (
            ("add", "desk", "--expires", "2020-01-01T00:00:00Z"),
            "2020-01-01T00:00:00Z', which is over",
        ),
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
    """A user would expire at once, or never."""
    for text, period in (("12h", timedelta(hours=12)), ("8w", timedelta(weeks=8))):
        user(tmp_path, "add", "desk", "--expires", text, "--replace")
        found = Users.read(tmp_path / "users.toml").principals["desk"].expires_us
        assert found is not None
        left = datetime.fromtimestamp(found / 1_000_000, UTC) - datetime.now(UTC)
        assert timedelta(0) <= period - left < timedelta(minutes=2)


def test_whoever_might_read_the_file_still_may(tmp_path: Path) -> None:
    """A broker of another system user could not read the file any more, and would not start."""
    path = tmp_path / "users.toml"
    user(tmp_path, "add", "old")
    owner = (12345, 12345) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(path, *owner)
    path.chmod(0o640)
    for arguments in (("add", "desk"), ("remove", "old")):
        assert user(tmp_path, *arguments).exit_code == 0
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (*owner, 0o640)


def test_a_file_whose_owner_cannot_be_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file would be taken from its readers, or be half written."""
    path = tmp_path / "users.toml"
    path.write_text("[users.old]\n")
    owner = path.stat()

    def other(number: int) -> os.stat_result:
        return os.stat_result((*owner[:4], owner.st_uid + 1, *owner[5:]))

    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fstat", other)
    monkeypatch.setattr(os, "fchown", forbidden)
    refused = user(tmp_path, "add", "desk")
    assert refused.exit_code == 2
    assert f"it belongs to {owner.st_uid}:{owner.st_gid}" in " ".join(refused.output.split())
    assert path.read_text() == "[users.old]\n"
    assert os.listdir(tmp_path) == ["users.toml"]


def test_a_file_behind_a_link_is_changed_where_it_is(tmp_path: Path) -> None:
    """The link would become a file, and a removed user stay in the one that brokers read."""
    real, here = tmp_path / "real", tmp_path / "here"
    real.mkdir()
    here.mkdir()
    user(real, "add", "desk")
    (here / "users.toml").symlink_to(real / "users.toml")
    assert user(here, "remove", "desk").exit_code == 0
    assert (here / "users.toml").is_symlink()
    assert not Users.read(real / "users.toml").principals


def test_who_change_the_file_at_once_do_so_one_after_the_other(tmp_path: Path) -> None:
    """Of six users added at once one would remain."""
    path = tmp_path / "users.toml"
    path.write_text("")
    with changing(path):
        folder = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)

    def add(name: str) -> None:
        with changing(path) as file:
            write_anew(file, f"{file.read_text()}[users.{name}]\n")

    threads = [threading.Thread(target=add, args=(f"u{number}",)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(Users.read(path).principals) == 6


def test_who_removes_a_user_is_told_when_it_is_in_force(tmp_path: Path) -> None:
    """An operator would believe that a user is gone who is connected until SIGHUP."""
    user(tmp_path, "add", "desk")
    assert "at SIGHUP (systemctl reload contrada)" in user(tmp_path, "remove", "desk").output


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    """A wrong name of the file would look like a broker without users."""
    for arguments in (("list",), ("remove", "desk")):
        found = user(tmp_path, *arguments)
        assert found.exit_code == 2
        assert "there is no such file" in found.output
    elsewhere = user(tmp_path / "nowhere", "add", "desk")
    assert elsewhere.exit_code == 2
    assert "No such file or directory" in elsewhere.output


def test_a_token_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    """With `> desk.token` everybody on the machine could act as the user."""
    before = os.umask(0o022)
    token_file = tmp_path / "desk.token"
    try:
        added = user(tmp_path, "add", "desk", "--token-file", str(token_file))
    finally:
        os.umask(before)
    assert (added.exit_code, added.output) == (0, "")
    assert token_file.stat().st_mode & 0o777 == 0o600
    kept = token_file.read_text()
    assert is_token(kept.strip(), Users.read(tmp_path / "users.toml").records["desk"])
    again = user(tmp_path, "add", "desk", "--replace", "--token-file", str(token_file))
    assert again.exit_code == 2
    assert "it is there already" in again.output
    assert token_file.read_text() == kept
    assert is_token(kept.strip(), Users.read(tmp_path / "users.toml").records["desk"])
    nobody = user(tmp_path, "add", "anonymous", "--token-file", str(tmp_path / "x"))
    assert nobody.exit_code == 2
    assert "the user 'anonymous' gets no token" in nobody.output


def test_no_token_is_left_where_no_user_could_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token without a user would fail later, without a reason."""
    monkeypatch.setattr(os, "replace", mock.Mock(side_effect=OSError(28, "No space left")))
    added = user(tmp_path, "add", "desk", "--token-file", str(tmp_path / "desk.token"))
    assert added.exit_code == 2
    assert os.listdir(tmp_path) == []
