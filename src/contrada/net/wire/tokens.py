"""Tokens, by which clients show who they are, and the records that a broker keeps to check them.

    NAME.SECRET             the token: the secret is 256 random bits
    scrypt$n$r$p$salt$key   the record; the token cannot be found from it

Checking a token takes a thread some hundredths of a second and 16 MiB, on purpose. So one token is
checked at a time, and few may wait. A token that was found right is recognised at once later, by a
keyed digest in memory.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from contrada.errors import FrameError, InvalidValueError

TOKEN_CHARS_MAX: Final = 512
"""Characters of a token. Beyond it: it is no token."""

_N, _R, _P = 2**14, 8, 1
_MEMORY_MAX: Final = 64 * 2**20
_KEY_BYTES: Final = 32


def new_token(name: str) -> tuple[str, str]:
    """A token for a principal, and what is to be kept of it."""
    token = f"{name}.{secrets.token_urlsafe(_KEY_BYTES)}"
    return token, record_of(token, secrets.token_bytes(16))


def record_of(token: str, salt: bytes) -> str:
    """What is kept of a token. Cost: some hundredths of a second."""
    key = _key(token, salt, _N, _R, _P)
    return "$".join(("scrypt", *map(str, (_N, _R, _P)), _text(salt), _text(key)))


def check_record(record: str) -> None:
    """Raises InvalidValueError for what no token is kept as."""
    _parts(record)


def is_token(token: str, record: str) -> bool:
    """Whether a record is that of a token. Cost: some hundredths of a second."""
    n, r, p, salt, key = _parts(record)
    return hmac.compare_digest(_key(token, salt, n, r, p), key)


def name_in(token: str) -> str:
    """The principal that a token names; empty for what is no token."""
    name, dot, secret = token.rpartition(".")
    return name if dot and secret and len(token) <= TOKEN_CHARS_MAX else ""


def publisher_under(token: str) -> str | None:
    """A name to publish under that nobody else has, and that a token's owner may take."""
    name = name_in(token)
    return f"{name}/{secrets.token_hex(8)}" if name else None


def _parts(record: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        kind, n, r, p, salt, key = record.split("$")
        found = int(n), int(r), int(p), _bytes(salt), _bytes(key)
    except ValueError:
        raise InvalidValueError(record, _EXPECTED) from None
    # Else a file that somebody else wrote could take any memory and time.
    if kind != "scrypt" or found[:3] != (_N, _R, _P) or len(found[4]) != _KEY_BYTES:
        raise InvalidValueError(record, _EXPECTED)
    return found


_EXPECTED: Final = f"expected scrypt${_N}${_R}${_P}$SALT$KEY, as `contrada user add` writes it"


def _key(token: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        token.encode(), salt=salt, n=n, r=r, p=p, maxmem=_MEMORY_MAX, dklen=_KEY_BYTES
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


class TokenCheck:
    """Checks tokens, one at a time, and knows again those that were right."""

    def __init__(
        self,
        record_of_name: Callable[[str], str | None],
        *,
        waiting_max: int = 256,
        known_max: int = 10_000,
    ) -> None:
        """`record_of_name` gives what is kept of a principal's token now; None where nothing is."""
        self._record_of_name = record_of_name
        self._waiting_max, self._known_max = waiting_max, known_max
        self._secret = secrets.token_bytes(_KEY_BYTES)
        self._known: dict[bytes, str] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0
        # A token with an unknown name is checked against this record, so that the time tells
        # nothing.
        self._nobody = record_of(secrets.token_urlsafe(_KEY_BYTES), secrets.token_bytes(16))

    def is_known(self, token: str) -> bool:
        """Whether it was found right before, and is still kept."""
        record = self._known.get(self._digest(token))
        return record is not None and record == self._record_of_name(name_in(token))

    async def is_right(self, token: str) -> bool:
        """Whether a token is that of the user it names. Raises FrameError where too many wait."""
        if self.is_known(token):
            return True
        if self._waiting >= self._waiting_max:
            raise FrameError("busy", "too many tokens wait to be checked: come again later")
        self._waiting += 1
        try:
            async with self._turn:
                name = name_in(token)
                record = self._record_of_name(name) or self._nobody
                is_right = await asyncio.to_thread(is_token, token, record)
                is_right = is_right and record == self._record_of_name(name)  # It may be changed.
        finally:
            self._waiting -= 1
        if is_right:
            if len(self._known) >= self._known_max:
                del self._known[next(iter(self._known))]
            self._known[self._digest(token)] = record
        return is_right

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")
