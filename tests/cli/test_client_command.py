"""The connection of a command: its credentials, and the address of a silent broker."""

import io
import socket
import sys
from pathlib import Path

import pytest

from contrada.cli import client_command
from contrada.cli.client_command import TOKEN_BYTES_MAX, TOKEN_VARIABLE, connect, token_from
from contrada.errors import ConnectionFailedError, InputError
from contrada.net.wire.tokens import new_token
from contrada.service.security.secret_files import write_secret
from contrada.service.security.signing_keys import write_private_key
from tests.asynchronous import on_loop
from tests.service.security.signing_keys import private_key

TOKEN, _ = new_token("desk")


def test_a_token_is_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client could connect."""
    write_secret(tmp_path / "desk.token", f"{TOKEN}\n".encode())
    assert token_from(str(tmp_path / "desk.token")) == TOKEN
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert token_from(None) == ""
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert token_from(None) == TOKEN


def test_another_secret_is_not_taken_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private key would be sent to a broker; or a word of the message reveal a secret."""
    key = tmp_path / "k.pem"
    write_private_key(private_key(1), key)
    with pytest.raises(InputError, match=r"k.pem: found a private key, expected a token, NAME\."):
        token_from(str(key))
    for number, content in enumerate(
        (b"hunter2", b"a.b c", b"a.b\nc.d", b".x", b"a.", b"\xff.x", b"a" * TOKEN_BYTES_MAX + b".a")
    ):
        place = tmp_path / str(number)
        write_secret(place, content)
        with pytest.raises(InputError, match=r"expected a token, NAME[.]SECRET") as refused:
            token_from(str(place))
        assert "hunter2" not in str(refused.value)
    monkeypatch.setenv(TOKEN_VARIABLE, "hunter2")
    with pytest.raises(InputError, match=f"{TOKEN_VARIABLE}: expected a token"):
        token_from(None)
    with pytest.raises(InputError, match="No such file"):
        token_from(str(tmp_path / "nowhere"))


def test_a_token_that_everybody_reads_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody on the machine could act as the user, unnoticed."""
    place = tmp_path / "desk.token"
    place.write_text(TOKEN)
    place.chmod(0o644)
    assert token_from(str(place)) == TOKEN
    assert caplog.messages == [
        f"everybody on this machine can read {place}, which is secret: chmod 600"
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
@on_loop
async def test_a_terminal_shows_the_address_of_a_silent_broker(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    """A person would see nothing for ten seconds; or the log of a script get a line more."""
    monkeypatch.setenv("CONTRADA_LIMITS_CLIENT_CONNECT_WAIT_S", "0.05")
    monkeypatch.setattr(client_command, "SILENT_S", 0.01)
    monkeypatch.setattr(sys, "stderr", errors := io.StringIO())
    monkeypatch.setattr(errors, "isatty", lambda: is_terminal)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It accepts no connection.
        address = f"contrada://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionFailedError, match=r"no answer from a broker within 0.05 s"):
            await connect(address, reconnect=False).open()
    assert errors.getvalue() == (f"connecting to {address}\n" if is_terminal else "")
