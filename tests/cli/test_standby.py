"""`WaitingBroker`: what it read before it waited is as it is when it starts."""

import os
from functools import partial
from pathlib import Path

import pytest

from contrada.cli.standby import WaitingBroker
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users
from tests.asynchronous import on_loop

USER = '[users.{}]\ncertificate = "{}.example"\n'


def write(path: Path, *names: str, text: str = "") -> None:
    """Writes a file of users, or another text, by a new file in its place."""
    new = path.with_suffix(".new")
    new.write_text(text or "".join(USER.format(each, each) for each in names), "utf-8")
    os.replace(new, path)


def waiting_with(path: Path) -> WaitingBroker:
    """A broker that waits, with the users of a file."""
    return WaitingBroker(lambda: Broker(users=Users.read(path)), str(path))


@on_loop
async def test_users_that_were_removed_while_it_waits_have_no_rights(tmp_path: Path) -> None:
    """They would be let in after a take-over, as nobody sends a waiting broker a signal."""
    path = tmp_path / "users.toml"
    write(path, "desk", "oslo")
    waiting = waiting_with(path)
    assert waiting.broker.has_user("oslo")
    write(path, "desk")
    waiting.renew_users()
    assert not waiting.broker.has_user("oslo")
    write(path, "desk", "rome")
    waiting.replace(partial(Broker, users=Users.read(path)), str(path))
    assert waiting.broker.has_user("rome")
    await waiting.stop_replaced()
    await waiting.broker.stop()


@on_loop
async def test_a_file_of_users_is_read_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand users would be read in each look, or at the take-over."""
    path = tmp_path / "users.toml"
    write(path, "desk")
    waiting = waiting_with(path)
    with monkeypatch.context() as patch:
        patch.setattr(Users, "read", lambda _: pytest.fail("it is as it was"))
        waiting.renew_users()
    await waiting.broker.stop()


@on_loop
async def test_a_faulty_file_of_users_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A standby would end while somebody edits the file."""
    path = tmp_path / "users.toml"
    write(path, "desk")
    waiting = waiting_with(path)
    write(path, text="[users")
    waiting.renew_users()
    assert "nothing is changed" in caplog.text
    assert waiting.broker.has_user("desk")
    path.unlink()
    waiting.renew_users()
    assert waiting.broker.has_user("desk")
    write(path, "rome")
    waiting.renew_users()
    assert not waiting.broker.has_user("desk")
    await waiting.broker.stop()
