"""Keys are read as they were written, and errors reveal no secrets."""

import stat
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey

from contrada.errors import InputError, MissingRequirementError
from contrada.service.security.signatures import Signer, Verifier
from contrada.service.security.signing_keys import (
    KEY_FILE_BYTES_MAX,
    check_signing,
    new_private_key,
    private_key_in,
    public_keys_in,
    public_text,
    write_private_key,
)
from tests.service.security.signing_keys import DESK, private_key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "desk.pem"


def test_a_key_comes_back_and_only_its_owner_reads_it(path: Path) -> None:
    """Others on the machine could sign; or a key be lost when one is made again."""
    made = new_private_key()
    write_private_key(made, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public_text(private_key_in(path)) == public_text(made)
    assert Signer.of_file("desk", path).public_key == public_text(made)
    with pytest.raises(InputError, match="there already"):
        write_private_key(private_key(1), path)
    assert public_text(private_key_in(path)) == public_text(made)
    with pytest.raises(InputError, match="directory"):
        write_private_key(made, path / "below")


def test_what_is_no_private_key_is_told(path: Path) -> None:
    """A publisher would sign with an empty key, or the key be logged."""
    with pytest.raises(InputError, match="contrada key make FILE"):
        private_key_in(path)
    other = Ed448PrivateKey.generate().private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
    )
    locked = private_key(1).private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
    )
    for content, said in [
        (b"secret", "no key; expected a private key of Ed25519"),
        (b"", "no key"),
        (other, "another kind of key"),
        (locked, "it has a password"),
        (bytes(KEY_FILE_BYTES_MAX + 1), f"more than {KEY_FILE_BYTES_MAX} bytes"),
    ]:
        path.write_bytes(content)
        with pytest.raises(InputError, match=said) as found:
            private_key_in(path)
        assert "secret" not in str(found.value)


def test_public_keys_are_read_from_a_file(path: Path) -> None:
    """Subscribers could not get the public keys."""
    key = DESK.public_key
    path.write_text(f'desk = "{key}"\n"feeds/rates" = ["{key}"]\n', "utf-8")
    assert public_keys_in(path) == {"desk": key, "feeds/rates": [key]}
    Verifier.of_file(path)
    for content, said in [
        ("desk = 5", "Expected"),
        ("desk", "expected lines as"),
        ('desk = "x"', "no key; expected a public key"),
        ('desk = "\xff"', "expected lines as"),
    ]:
        path.write_text(content, "latin-1")
        with pytest.raises(InputError, match=said) as found:
            Verifier.of_file(path)
        assert str(path) in str(found.value)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library a person would see a trace."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingRequirementError, match=r"contrada\[signing\]"):
        check_signing()


def test_a_private_key_that_everybody_reads_is_told_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every user of the machine could sign, unnoticed."""
    write_private_key(private_key(1), path)
    private_key_in(path)
    path.chmod(0o640)
    private_key_in(path)
    assert not caplog.messages
    path.chmod(0o644)
    private_key_in(path)
    assert caplog.messages == [
        f"everybody on this machine can read {path}, which is secret: chmod 600"
    ]
