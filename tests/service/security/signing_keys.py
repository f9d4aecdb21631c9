"""Keys of tests, the same in each run, and who signs with them."""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contrada.service.security.signatures import Signer, Verifier


def private_key(number: int) -> Ed25519PrivateKey:
    """A key, always the same of a number."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


DESK: Final = Signer("desk", private_key(1))
FEED: Final = Signer("feed", private_key(2))
FORGER: Final = Signer("desk", private_key(2))
"""Signs as `desk` with the key of `feed`."""

STRANGER: Final = Signer("desk", private_key(3))
VERIFIER: Final = Verifier({"desk": DESK.public_key, "feed": [FEED.public_key]})
