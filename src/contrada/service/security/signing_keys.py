"""Keys of Ed25519: as texts, and in files.

A private key is a file of PEM (PKCS #8), as of OpenSSL. A public key is one line: its 32 bytes in
base64. A file of public keys is TOML, with the keys of each publisher's name:

    desk = "…"
    "feeds/rates" = ["…", "…"]
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from contrada.errors import InputError, InvalidValueError, MissingRequirementError
from contrada.service.security.secret_files import read_secret, write_secret

if TYPE_CHECKING:  # Loaded where somebody signs or verifies.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE_BYTES_MAX: Final = 4_096
"""Bytes of a file with a private key. Beyond it: InputError."""

PUBLIC_KEYS_FILE_BYTES_MAX: Final = 4 * 2**20
"""Bytes of a file of public keys. Beyond it: InputError."""

_RAW_BYTES: Final = 32
_PUBLIC_EXPECTED: Final = "a public key as `contrada key show` prints it"

PublicKeys: TypeAlias = Mapping[str, str | list[str]]
"""Names of publishers, each with its public keys as texts."""


def check_signing() -> None:
    """Raises MissingRequirementError without the library for signatures."""
    try:
        import cryptography  # noqa: F401 - others import of it
    except ModuleNotFoundError:
        remedy = "install it with: pip install 'contrada[signing]'"
        raise MissingRequirementError("cryptography, which signs and verifies", remedy) from None


def new_private_key() -> "Ed25519PrivateKey":
    """A random private key. Raises MissingRequirementError."""
    check_signing()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def public_text(key: "Ed25519PrivateKey") -> str:
    """The public key of a private one, as text."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def raw_public(text: str) -> bytes:
    """The bytes of a public key. Raises InvalidValueError."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raw = b""
    if len(raw) != _RAW_BYTES:
        raise InvalidValueError(text, f"no key; expected {_PUBLIC_EXPECTED}")
    return raw


def fingerprint_of(raw: bytes) -> str:
    """The 16 characters that name a public key in signatures."""
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()[:12]).decode()


def private_key_in(path: Path | str) -> "Ed25519PrivateKey":
    """The private key in a file. Raises InputError, MissingRequirementError."""
    check_signing()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = read_secret(path, KEY_FILE_BYTES_MAX, "; `contrada key make FILE` makes one")
    _check_size(path, content, KEY_FILE_BYTES_MAX)
    found = "another kind of key"
    try:
        key = load_pem_private_key(content, password=None)
        if isinstance(key, Ed25519PrivateKey):
            return key
    except TypeError:
        raise InputError(str(path), "it has a password; expected one without") from None
    except (ValueError, UnsupportedAlgorithm):
        found = "no key"
    expected = "a private key of Ed25519 as `contrada key make` makes it"
    raise InputError(str(path), f"{found}; expected {expected}")


def write_private_key(key: "Ed25519PrivateKey", path: Path | str) -> None:
    """Creates a file that only its owner can read. Raises InputError, also if it exists."""
    from cryptography.hazmat.primitives import serialization as form

    pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_secret(path, pem)


def public_keys_in(path: Path | str) -> PublicKeys:
    """The public keys in a file. Raises InputError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(PUBLIC_KEYS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(str(path), error.strerror or str(error)) from None
    _check_size(path, content, PUBLIC_KEYS_FILE_BYTES_MAX)
    try:
        return msgspec.toml.decode(content, type=dict[str, str | list[str]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = 'expected lines as: desk = "…", the key as `contrada key show` prints it'
        raise InputError(str(path), f"{error}; {expected}") from None


def _check_size(path: Path | str, content: bytes, bytes_max: int) -> None:
    if len(content) > bytes_max:
        raise InputError(str(path), f"more than {bytes_max} bytes; expected a file of keys")
