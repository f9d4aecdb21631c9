"""`TokenCheck`: checks the tokens of clients against the records of a broker.

    NAME.SECRET             the token: the secret is 256 random bits
    scrypt$n$r$p$salt$key   the record; the token cannot be computed from it

A check takes a thread some hundredths of a second and 16 MiB, on purpose. So one token is checked
at a time, and few may wait. A verified token is recognised later by a keyed digest in memory.
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
    """Returns a new token for a principal, and its record."""
    token = f"{name}.{secrets.token_urlsafe(_KEY_BYTES)}"
    return token, record_of(token, secrets.token_bytes(16))


def record_of(token: str, salt: bytes) -> str:
    """Returns the record of a token. Cost: some hundredths of a second."""
    key = _key(token, salt, _N, _R, _P)
    return "$".join(("scrypt", *map(str, (_N, _R, _P)), _text(salt), _text(key)))


def is_token(token: str, record: str) -> bool:
    """Returns whether a token has this record. Cost: some hundredths of a second."""
    n, r, p, salt, key = record_parts(record)
    return hmac.compare_digest(_key(token, salt, n, r, p), key)


def name_in(token: str) -> str:
    """Returns the principal in a token; empty for no token."""
    name, dot, secret = token.rpartition(".")
    return name if dot and secret and len(token) <= TOKEN_CHARS_MAX else ""


def publisher_under(token: str) -> str | None:
    """Returns a unique publisher name that the owner of a token may use."""
    name = name_in(token)
    return f"{name}/{secrets.token_hex(8)}" if name else None


def record_parts(record: str) -> tuple[int, int, int, bytes, bytes]:
    """Returns the parts of a record. Raises InvalidValueError for an invalid one."""
    try:
        kind, n, r, p, salt, key = record.split("$")
        found = int(n), int(r), int(p), _bytes(salt), _bytes(key)
    except ValueError:
        raise InvalidValueError(record, _EXPECTED) from None
    # Else a foreign file could demand any memory and time.
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
    """Checks tokens, one at a time, and caches verified ones."""

    def __init__(
        self,
        record_of_name: Callable[[str], str | None],
        *,
        waiting_max: int = 256,
        known_max: int = 10_000,
    ) -> None:
        """`record_of_name` returns the present record of a principal; None without one."""
        self._record_of_name = record_of_name
        self._waiting_max, self._known_max = waiting_max, known_max
        self._secret = secrets.token_bytes(_KEY_BYTES)
        self._known: dict[bytes, str] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0
        # The record for unknown names, so that the time of the check does not reveal them.
        self._nobody = record_of(secrets.token_urlsafe(_KEY_BYTES), secrets.token_bytes(16))

    def is_known(self, token: str) -> bool:
        """Returns whether a token was verified before, and has the same record."""
        record = self._known.get(self._digest(token))
        return record is not None and record == self._record_of_name(name_in(token))

    async def is_right(self, token: str) -> bool:
        """Returns whether a token is valid. Raises FrameError where too many wait."""
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
                # The record may be changed.
                is_right = is_right and record == self._record_of_name(name)
        finally:
            self._waiting -= 1
        if is_right:
            if len(self._known) >= self._known_max:
                del self._known[next(iter(self._known))]
            self._known[self._digest(token)] = record
        return is_right

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")
