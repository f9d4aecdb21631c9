"""`TokenCheck`: checks the tokens of clients against the records of a broker.

    NAME.SECRET             the token: the secret is 256 random bits
    eyJ….….…                a token from outside, a JWT: see `JwtVerifier`
    blake2b$salt$key        the record; the token cannot be computed from it
    scrypt$n$r$p$salt$key   the record of older files, still accepted

Nobody can guess 256 random bits, so a slow hash adds no safety: it only let strangers with wrong
tokens occupy the broker. The keyed hash takes microseconds and is checked at once. An older record
takes a thread some hundredths of a second and 16 MiB; so one is checked at a time, and few may
wait. After its first success it is kept in memory in the new form.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, TypeAlias

from contrada.errors import FrameError, InvalidValueError

TOKEN_CHARS_MAX: Final = 8_192
"""Characters of a token. Beyond it: it is no token."""

TokenSource: TypeAlias = str | Callable[[], str]
"""A token, or a function that returns the present one, for each connection."""

_FAST, _SLOW = "blake2b", "scrypt"
_N, _R, _P = 2**14, 8, 1
_MEMORY_MAX: Final = 64 * 2**20
_KEY_BYTES: Final = 32


def new_token(name: str) -> tuple[str, str]:
    """Returns a new token for a principal, and its record.

    Raises InvalidValueError for a name whose token would be taken for one from outside.
    """
    token = f"{name}.{secrets.token_urlsafe(_KEY_BYTES)}"
    if is_jwt(token):
        raise InvalidValueError(name, "a token of this name looks like a JWT: choose another one")
    return token, record_of(token, secrets.token_bytes(16))


def record_of(token: str, salt: bytes) -> str:
    """Returns the record of a token. `salt` has 1 to 64 bytes. Cost: microseconds."""
    return "$".join((_FAST, *map(_text, (salt, _hash(_FAST, token, salt)))))


def is_token(token: str, record: str) -> bool:
    """Returns whether a token has this record. Cost: microseconds, or as `is_slow` says."""
    kind, salt, key = record_parts(record)
    return hmac.compare_digest(_hash(kind, token, salt), key)


def is_slow(record: str) -> bool:
    """Returns whether a check of this record takes some hundredths of a second, and 16 MiB."""
    return record.startswith(f"{_SLOW}$")


def name_in(token: str) -> str:
    """Returns the principal in a token; empty for no token, or one from outside."""
    name, dot, secret = token.rpartition(".")
    is_own = dot and secret and len(token) <= TOKEN_CHARS_MAX and not is_jwt(token)
    return name if is_own else ""


def present_token(token: TokenSource) -> str:
    """Returns the present token. Raises the errors of its function."""
    return token if isinstance(token, str) else token()


def is_jwt(token: str) -> bool:
    """Returns whether a token is one from outside: three parts, the first a JSON object."""
    return token.startswith("eyJ") and token.count(".") == 2 and len(token) <= TOKEN_CHARS_MAX


def publisher_under(token: str) -> str | None:
    """Returns a unique publisher name that the owner of a token may use."""
    name = name_in(token)
    return f"{name}/{secrets.token_hex(8)}" if name else None


def record_parts(record: str) -> tuple[str, bytes, bytes]:
    """Returns the hash, salt and key of a record. Raises InvalidValueError for an invalid one."""
    try:
        kind, *numbers, salt_text, key_text = record.split("$")
        salt, key = _bytes(salt_text), _bytes(key_text)
    except ValueError:
        raise InvalidValueError(record, _EXPECTED) from None
    # Else a foreign file could demand any memory and time.
    wanted = {_FAST: [], _SLOW: [str(each) for each in (_N, _R, _P)]}.get(kind)
    if numbers != wanted or len(key) != _KEY_BYTES or not 1 <= len(salt) <= _SALT_BYTES_MAX:
        raise InvalidValueError(record, _EXPECTED)
    return kind, salt, key


_SALT_BYTES_MAX: Final = hashlib.blake2b.MAX_KEY_SIZE
_EXPECTED: Final = f"expected {_FAST}$SALT$KEY, as `contrada user add` writes it"


def _hash(kind: str, token: str, salt: bytes) -> bytes:
    if kind == _FAST:
        return hashlib.blake2b(token.encode(), key=salt, digest_size=_KEY_BYTES).digest()
    return hashlib.scrypt(
        token.encode(), salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY_MAX, dklen=_KEY_BYTES
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


class TokenCheck:
    """Checks tokens: at once, or one at a time where the user has an older record."""

    def __init__(
        self,
        record_of_name: Callable[[str], str | None],
        *,
        waiting_max: int = 256,
        known_max: int = 10_000,
    ) -> None:
        """`record_of_name` returns the present record of a principal; None without one."""
        self.record_of_name = record_of_name
        self._waiting_max, self._known_max = waiting_max, known_max
        self._renewed: dict[str, str] = {}
        """The new form of older records, by the record."""
        self._turn = asyncio.Lock()
        self._waiting = 0
        # The record for unknown names, so that the time of the check does not reveal them.
        self._nobody = new_token("")[1]

    def is_right_at_once(self, token: str) -> bool | None:
        """Returns whether a token is valid; None where `is_right` has to check an older record."""
        found = self.record_of_name(name_in(token))
        record = self._renewed.get(found, found) if found else self._nobody
        return None if is_slow(record) else is_token(token, record)

    async def is_right(self, token: str) -> bool:
        """Returns whether a token is valid. Raises FrameError where too many wait."""
        if self._waiting >= self._waiting_max:
            raise FrameError("busy", "too many tokens wait to be checked: try again later")
        self._waiting += 1
        try:
            async with self._turn:
                # The record may be changed, or known by now.
                record = self.record_of_name(name_in(token))
                at_once = self.is_right_at_once(token)
                if at_once is not None or record is None:
                    return bool(at_once)
                is_right = await asyncio.to_thread(is_token, token, record)
                is_right = is_right and record == self.record_of_name(name_in(token))
        finally:
            self._waiting -= 1
        if is_right:
            if len(self._renewed) >= self._known_max:
                del self._renewed[next(iter(self._renewed))]
            self._renewed[record] = record_of(token, secrets.token_bytes(16))
        return is_right
