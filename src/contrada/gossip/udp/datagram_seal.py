"""`GroupSeal`: authenticated encryption of a group's datagrams, with protection against replay.

    byte 0     version, 1
    1 to 4     the group: a digest of key and parameters
    5 to 12    the sender's incarnation, drawn at its start
    13 to 16   the number of datagrams sealed before
    17 to 24   the time, in UTC microseconds since 1970
    25 …       the content by ChaCha20-Poly1305, with its tag of 16 bytes

Incarnation and number are the nonce. The header and the address of the receiver are authenticated
too, so a datagram cannot be forwarded to another participant. The key is derived from the group's
key and its parameters, so a participant with other parameters is in another group.

The last numbers of each sender are remembered, so no datagram is accepted twice. A sender that is
silent for long is forgotten. From then on, datagrams of unknown senders are refused if they were
sealed before the forgotten sender's last one, whatever the clock does. So after a clock is put
back, known senders stay, and newcomers are refused until the clock is where it was. Participants
with clocks further apart than `CLOCK_APART_MAX_US` do not hear each other.
"""

import base64
import binascii
import secrets
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from contrada.errors import InputError
from contrada.service.security.number_window import NumberWindow
from contrada.service.security.secret_files import read_secret, write_secret

CLOCK_APART_MAX_US: Final = 60_000_000
"""Microseconds between the clocks of sender and receiver. Beyond it: refused, counted."""

SENDER_SILENT_US: Final = 2 * CLOCK_APART_MAX_US
"""Microseconds until a silent sender may be forgotten: its datagrams are too old then."""

REPLAY_WINDOW: Final = 1_024
"""Datagrams of a sender that are remembered singly. Beyond it: an older one is refused, counted."""

KEY_BYTES: Final = 32
VERSION: Final = 1
_HEADER: Final = struct.Struct(">B4s8sIq")
_TAG_BYTES: Final = 16
SEAL_BYTES: Final = _HEADER.size + _TAG_BYTES
"""The bytes that a seal adds."""

_KEY_MARK: Final = "contrada-gossip-key-1:"
_KEY_EXPECTED: Final = "a line as `contrada gossip key` makes it"
_KEY_FILE_BYTES_MAX: Final = 4_096

# The reasons of refusals.
TRUNCATED: Final = "truncated"
VERSION_UNKNOWN: Final = "unknown version"
WRONG_GROUP: Final = "wrong group"
CLOCK: Final = "clock"
REPLAYED: Final = "replayed"
FORGED: Final = "forged"
SENDERS_FULL: Final = "too many senders"


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The shared secret of a group."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuses a wrong length; the error does not show the secret."""
        if len(self.secret) != KEY_BYTES:
            raise InputError("key", f"{len(self.secret)} bytes, expected {KEY_BYTES}")

    @classmethod
    def new(cls) -> Self:
        """Returns a random key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def of_text(cls, text: str, source: str = "key") -> Self:
        """Returns the key in a line. Raises InputError with the source."""
        encoded = text.strip().removeprefix(_KEY_MARK)
        try:
            secret = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise InputError(source, f"no key; expected {_KEY_EXPECTED}") from None
        if not text.strip().startswith(_KEY_MARK) or len(secret) != KEY_BYTES:
            raise InputError(source, f"no key; expected {_KEY_EXPECTED}")
        return cls(secret)

    @classmethod
    def of_file(cls, path: Path | str) -> Self:
        """Returns the key in a file. Raises InputError."""
        hint = "; `contrada gossip key FILE` makes one"
        content = read_secret(path, _KEY_FILE_BYTES_MAX, hint)
        return cls.of_text(content.decode("utf-8", "replace"), str(path))

    @property
    def text(self) -> str:
        """The line for `of_text`."""
        return _KEY_MARK + base64.b64encode(self.secret).decode()

    def write(self, path: Path | str) -> None:
        """Makes a file with private permissions. Raises InputError, also for an existing file."""
        write_secret(path, f"{self.text}\n".encode())


@dataclass(frozen=True, slots=True)
class Unsealed:
    """The content of a datagram, and the incarnation that sealed it."""

    incarnation: bytes
    content: bytes


class _SenderWindow(NumberWindow):
    """The received numbers of one sender, with times."""

    __slots__ = ("heard_us", "sealed_us")

    def __init__(self) -> None:
        super().__init__(REPLAY_WINDOW)
        self.sealed_us = 0
        self.heard_us = 0

    def add(self, number: int, sealed_us: int, heard_us: int) -> None:
        self.take(number)
        self.sealed_us = max(self.sealed_us, sealed_us)
        self.heard_us = heard_us


class GroupSeal:
    """Seals the datagrams of one participant, and opens those that it receives.

    A nonce repeats only if two incarnations, of 64 random bits, are equal: among a million the
    chance is 3 in 10⁸.
    """

    def __init__(
        self,
        key: GroupKey,
        agreed: bytes,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        senders_max: int = 65_536,
    ) -> None:
        """`agreed` is the configuration that all participants share; `draw` gives random bytes."""
        # Here, so that the command's help and `key` need no library.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        self._forgery = InvalidTag
        info = b"contrada gossip 1\0" + agreed
        derived = HKDF(SHA256(), KEY_BYTES + 4, None, info).derive(key.secret)
        self._cipher = ChaCha20Poly1305(derived[:KEY_BYTES])
        self._group = derived[KEY_BYTES:]
        self._draw, self._senders_max = draw, senders_max
        self._incarnation = draw(8)
        self._sealed = 0
        self._senders: OrderedDict[bytes, _SenderWindow] = OrderedDict()
        self._forgotten_us = -(2**63)

    def seal(self, content: bytes, to: str, now_us: int) -> bytes:
        """Returns a datagram for the receiver at a place."""
        if self._sealed >= 1 << 32:
            self._incarnation, self._sealed = self._draw(8), 0
        header = _HEADER.pack(VERSION, self._group, self._incarnation, self._sealed, now_us)
        self._sealed += 1
        return header + self._cipher.encrypt(header[5:17], content, header + to.encode())

    def is_ours(self, datagram: bytes) -> str:
        """Returns why a datagram is not of the group; empty if it may be. Almost free."""
        if len(datagram) < SEAL_BYTES:
            return TRUNCATED
        if datagram[0] != VERSION:
            return VERSION_UNKNOWN
        return "" if datagram[1:5] == self._group else WRONG_GROUP

    def open(self, datagram: bytes, at: str, now_us: int, passed_us: int) -> Unsealed | str:
        """Returns the content of a datagram received at a place, or a refusal.

        `now_us` is the wall clock, `passed_us` a monotonic one. Cost: some microseconds; a replayed
        datagram is refused before that.
        """
        if reason := self.is_ours(datagram):
            return reason
        _, _, incarnation, number, sealed_us = _HEADER.unpack_from(datagram)
        sender = self._senders.get(incarnation)
        if sender is not None and sender.is_replay(number):
            return REPLAYED
        is_late = sender is None and sealed_us <= self._forgotten_us
        if is_late or abs(sealed_us - now_us) > CLOCK_APART_MAX_US:
            return CLOCK
        aside = datagram[: _HEADER.size] + at.encode()
        try:
            content = self._cipher.decrypt(datagram[5:17], datagram[_HEADER.size :], aside)
        except self._forgery:
            return FORGED
        if sender is None:
            sender = self._admit(incarnation, passed_us)
            if sender is None:
                return SENDERS_FULL
        sender.add(number, sealed_us, passed_us)
        self._senders.move_to_end(incarnation)
        return Unsealed(incarnation, content)

    def _admit(self, incarnation: bytes, passed_us: int) -> _SenderWindow | None:
        """Returns a new sender, if there is room; forgets senders that were silent for long."""
        while self._senders:
            oldest = next(iter(self._senders.values()))
            if passed_us - oldest.heard_us <= SENDER_SILENT_US:
                break
            self._senders.popitem(last=False)
            self._forgotten_us = max(self._forgotten_us, oldest.sealed_us)
        if len(self._senders) >= self._senders_max:
            return None
        return self._senders.setdefault(incarnation, _SenderWindow())

    @property
    def senders(self) -> int:
        """The number of remembered senders."""
        return len(self._senders)
