"""`contrada key`, `pub --sign` and `sub --verify` together."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.connections import connect_sync
from contrada.service.security.signatures import Verifier


def contrada(*arguments: str) -> Result:
    """Returns the output and status of a command."""
    return CliRunner().invoke(main, arguments)


def test_signed_files_verify(tmp_path: Path, broker_address: str) -> None:
    """A user of a shell could not verify publishers."""
    key, keys = tmp_path / "desk.pem", tmp_path / "keys.toml"
    made = contrada("key", "make", str(key))
    assert (made.exit_code, contrada("key", "show", str(key)).stdout) == (0, made.stdout)
    keys.write_text(f'desk = "{made.stdout.strip()}"\n', "utf-8")
    sub = ("sub", "signed any", "--to", broker_address, "--durable", "signed", "--json")
    pub = ("pub", "--to", broker_address, "--publisher", "desk")
    assert contrada(*sub, "--seconds", "0.01").exit_code == 0
    assert contrada(*pub, "signed=no").exit_code == 0
    assert contrada(*pub, "--sign", str(key), "signed=one").exit_code == 0
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"signed": {number}}}\n' for number in range(3)), "utf-8")
    assert contrada(*pub, "--sign", str(key), "--json", str(lines)).exit_code == 0
    told = contrada(*sub, "--verify", str(keys), "--count", "4", "--timeout", "20")
    assert [json.loads(line)["signed"] for line in told.stdout.splitlines()] == ["one", 0, 1, 2]
    assert told.stderr == "1 dropped: unsigned\n"
    with connect_sync(broker_address) as service:
        service.unsubscribe("signed")


def test_a_key_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """By one slip nobody could sign any more as he did."""
    key = tmp_path / "desk.pem"
    public = contrada("key", "make", str(key)).stdout
    again = contrada("key", "make", str(key))
    assert (again.exit_code, "there already" in again.stderr) == (2, True)
    assert contrada("key", "show", str(key)).stdout == public
    Verifier({"desk": public.strip()})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("key", "show", "{}/none"), "`contrada key make FILE` makes one"),
        (("key", "show", "{}/text"), "no key; expected a private key of Ed25519"),
        (("pub", "--sign", "{}/text", "a=1"), "give it with --publisher NAME"),
        (("pub", "--sign", "{}/text", "--publisher", "desk", "a=1"), "no key"),
        (("sub", "everything", "--verify", "{}/text"), 'expected lines as: desk = "…"'),
        (("sub", "everything", "--verify", "{}/none"), "No such file"),
        (("sub", "--durable", "x", "--verify", "{}/text"), "--verify needs the FILTER"),
    ],
)
def test_signing_errors_are_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Somebody would sign or verify with nothing, or see a trace."""
    (tmp_path / "text").write_text("no key\n", "utf-8")
    ended = contrada(*(each.format(tmp_path) for each in arguments))
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
