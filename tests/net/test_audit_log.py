"""The audit log: everything that counts is in it, no token is, and it is bounded."""

import json
import logging
import signal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from contrada.connections import connect, connect_sync
from contrada.errors import ConnectionFailedError, InputError, NotPermittedError
from contrada.net.broker.audit_log import AUDIT_LINES_MAX, AUDIT_USER_LINES_MAX, AuditLog
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.tokens import new_token
from contrada.service.security.principals import Quotas
from tests.asynchronous import on_loop, until
from tests.net.processes import serving

TOKEN, RECORD = new_token("desk")
OTHER, OTHER_RECORD = new_token("desk")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def desk(**said: Any) -> UserSettings:
    return UserSettings(**{"token": RECORD, "publish": "a < 5", "subscribe": "a < 5", **said})


def shown(line: dict[str, Any]) -> tuple[str, str, str]:
    return line["action"], line.get("user", ""), line.get("code", "")


@on_loop
async def test_it_has_who_was_let_in_and_what_was_refused(tmp_path: Path) -> None:
    """An operator could not tell who did what, or a reader of the file could act as a user."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    said = {"desk": desk(), "anonymous": UserSettings()}
    async with Broker(port=0, users=Users.of("here", said), audit=audit) as broker:
        for token in (OTHER, "no token", "stranger.secret"):
            with pytest.raises(ConnectionFailedError):
                async with connect(broker.address, token=token, reconnect=False):
                    pass
        async with connect(broker.address):
            pass
        async with connect(broker.address, token=TOKEN, reconnect=False) as service:
            with pytest.raises(NotPermittedError):
                await service.subscribe("a any").open()
            with pytest.raises(NotPermittedError):
                await service.publish_batch([{"a": 1}, {"a": 9}])
            with pytest.raises(NotPermittedError):
                await service.publish({"a": 9}, delivery="reliable")
            with pytest.raises(NotPermittedError):
                await service.subscribe("a = 1", durable="other").open()
            with pytest.raises(NotPermittedError):
                async with service.advertise("b any"):
                    pass
            broker.change_users(Users.of("here", {"desk": desk(token=OTHER_RECORD)}))
            await until(lambda: not broker._connections)
    found = lines(path)
    refused = [("refused", "desk", "NotPermittedError")] * 5
    assert [shown(each) for each in found] == [
        ("refused", "desk", "not permitted"),
        ("refused", "", "not permitted"),
        ("refused", "", "not permitted"),
        ("let in", "anonymous", "client"),
        ("let in", "desk", "client"),
        *refused,
        ("rights changed", "", ""),
        ("ended", "desk", "not permitted"),
    ]
    assert {each["address"].rpartition(":")[0] for each in found if "address" in each} == {
        "127.0.0.1"
    }
    assert [each["reason"] for each in found[3:5]] == ["no credential", "a token"]
    assert "'desk' may not subscribe to a any" in found[5]["reason"]
    assert all(each["time"].endswith("Z") for each in found)
    text = path.read_text()
    for token in (TOKEN, OTHER, "stranger.secret", RECORD, OTHER_RECORD):
        assert token.partition(".")[2] not in text or "." not in token
        assert token not in text


@on_loop
async def test_a_reload_shows_which_rights_changed(tmp_path: Path) -> None:
    """A right that was widened by mistake could not be traced."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    before = {"desk": desk(), "gone": UserSettings(), "same": desk()}
    now = {
        "desk": desk(
            token=OTHER_RECORD,
            old_token=RECORD,
            publish=True,
            durable=["x"],
            narrow=True,
            inspect=True,
            certificate="desk.example",
            quota=Quotas(connections=3),
        ),
        "new": UserSettings(),
        "same": desk(),
    }
    async with Broker(port=0, users=Users.of("here", before), audit=audit) as broker:
        broker.change_users(Users.of("here", now))
        broker.change_users(Users.of("here", now))
    (change, nothing) = lines(path)
    assert (change["added"], change["removed"]) == (["new"], ["gone"])
    (changed,) = change["changed"].values()
    assert changed.pop("quota")[1].startswith("Quotas(connections=3")
    assert changed == {
        "publish": ["a < 5", "everything"],
        "durable": ["('desk',)", "('x',)"],
        "narrow": ["False", "True"],
        "inspect": ["False", "True"],
        "token": "changed",
        "old_token": "changed",
        "certificate": "changed",
    }
    assert nothing["reason"] == "none"
    assert not {"added", "removed", "changed"} & nothing.keys()


def test_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    """After logrotate all lines would go to the old file, or be lost."""
    path = tmp_path / "audit.jsonl"
    path.write_text('{"action": "of before"}\n')
    audit = AuditLog(path)
    audit.record("let in", "a")
    path.rename(tmp_path / "audit.1")
    audit.record("let in", "b")
    path.unlink()
    audit.record("let in", "c")
    audit.close()
    assert [each["action"] for each in lines(tmp_path / "audit.1")] == ["of before", "let in"]
    assert [each["user"] for each in lines(path)] == ["c"]


@on_loop
async def test_wrong_tokens_of_a_user_are_those_of_strangers(tmp_path: Path) -> None:
    """A stranger who knows the name of a user could hide what is refused to that user."""
    path = tmp_path / "audit.jsonl"
    users = Users.of("here", {"desk": desk()})
    async with Broker(port=0, users=users, audit=AuditLog(path, lambda: 100.0)) as broker:
        for _ in range(AUDIT_USER_LINES_MAX + 1):
            with pytest.raises(ConnectionFailedError):
                async with connect(broker.address, token=OTHER, reconnect=False):
                    pass
        async with connect(broker.address, token=TOKEN) as service:
            with pytest.raises(NotPermittedError):
                await service.subscribe("a any").open()
    refused = [each for each in lines(path) if each["action"] == "refused"]
    assert {each["user"] for each in refused} == {"desk"}
    assert [each["code"] for each in refused].count("NotPermittedError") == 1


def test_a_flood_is_counted_and_hides_no_other_user(tmp_path: Path) -> None:
    """A stranger could fill the disk, or hide what others did."""
    path, now = tmp_path / "audit.jsonl", [100.0]
    audit = AuditLog(path, lambda: now[0])
    for _ in range(5_000):
        audit.record("refused", "", "192.0.2.7:5")
    audit.record("refused", "desk")
    audit.record("let in", "desk")
    now[0] += 1
    audit.record("let in", "desk")
    assert len(lines(path)) == AUDIT_USER_LINES_MAX + 4
    assert lines(path)[-2]["count"] == 5_000 - AUDIT_USER_LINES_MAX
    for number in range(AUDIT_LINES_MAX + 100):
        audit.record("refused", f"u{number}")
    audit.close()
    assert len(lines(path)) == AUDIT_USER_LINES_MAX + 4 + AUDIT_LINES_MAX + 1
    assert lines(path)[-1]["count"] == 100


def test_a_full_disk_is_reported_once_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would end with its disk, or go on without a word."""
    audit = AuditLog(tmp_path / "audit.jsonl")

    class Full(StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    stream = audit._file.stream
    with monkeypatch.context() as patch:
        patch.setattr(audit._file, "stream", Full())
        for _ in range(3):
            audit.record("let in", "desk")
    (said,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "cannot be written" in said.getMessage()
    assert "No space left" in said.getMessage()
    assert audit._file.stream is stream
    audit.record("let in", "task")
    audit.close()
    assert [each["user"] for each in lines(tmp_path / "audit.jsonl")] == ["task"]
    with pytest.raises(InputError, match="No such file or directory"):
        AuditLog(tmp_path / "nowhere" / "audit.jsonl")


def test_a_served_broker_writes_it(tmp_path: Path) -> None:
    """The option would have no effect, or a reload would not be recorded."""
    users, path = tmp_path / "users.toml", tmp_path / "audit.jsonl"
    users.write_text(f'[users.desk]\ntoken = "{RECORD}"\npublish = true\n')
    options = ("--port", "0", "--store", "memory:", "--users", str(users))
    with serving(*options, "--audit-log", str(path), folder=tmp_path) as (process, address):
        with connect_sync(address, token=TOKEN, reconnect=False) as service:
            service.publish({"a": 1})
        users.write_text(f'[users.desk]\ntoken = "{RECORD}"\npublish = "a = 1"\n')
        process.send_signal(signal.SIGHUP)
        while len(path.read_text().splitlines()) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert [shown(each) for each in lines(path)] == [
        ("let in", "desk", "client"),
        ("rights changed", "", ""),
    ]
    assert lines(path)[1]["changed"] == {"desk": {"publish": ["everything", "a = 1"]}}
