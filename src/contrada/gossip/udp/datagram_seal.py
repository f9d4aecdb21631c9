"""Datagrams that only a group can make and read, each taken once.

    byte 0     version, 1
    1 to 4     the group: a digest of key and parameters
    5 to 12    the sender's incarnation, drawn when it begins
    13 to 16   how many it sealed before
    17 to 24   when, in UTC microseconds since 1970
    25 …       the content by ChaCha20-Poly1305, with its tag of 16 bytes

Incarnation and number are the nonce. Beside the content, all bytes before it and the address of the
receiver are authenticated, so that a datagram cannot be handed on to another participant. The key
is derived from the group's key and from the parameters that its participants agree on. So a
participant with other parameters is in another group. The last numbers of each sender are
remembered, so that no datagram is taken twice. A sender that was silent for long is forgotten. From
then on datagrams of unknown senders are refused if they were sealed before the forgotten sender's
last one, whatever the clock does meanwhile. So when a participant's clock is put back, known
senders stay, and newcomers are kept out until the clock is where it was. Participants whose clocks
are further apart than `CLOCK_APART_MAX_US` do not hear each other.
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

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from contrada.errors import InputError
from contrada.service.security.number_window import NumberWindow
from contrada.service.security.secret_files import read_secret, write_secret

CLOCK_APART_MAX_US: Final = 60_000_000
"""Microseconds between the clock of who seals and of who opens. Beyond it: refused, counted."""

SENDERS_MAX: Final = 65_536
"""Senders whose numbers are remembered. Beyond it: others are refused until one is silent for
`SENDER_SILENT_US`, counted."""

SENDER_SILENT_US: Final = 2 * CLOCK_APART_MAX_US
"""Microseconds after which a silent sender may be forgotten: by then its clock refuses what it
sent."""

REPLAY_WINDOW: Final = 1_024
"""Datagrams of a sender of which it is known singly whether they came. Beyond it: one that is older
is refused, counted."""

KEY_BYTES: Final = 32
VERSION: Final = 1
_HEADER: Final = struct.Struct(">B4s8sIq")
_TAG_BYTES: Final = 16
SEAL_BYTES: Final = _HEADER.size + _TAG_BYTES
"""What sealing adds."""

_KEY_MARK: Final = "contrada-gossip-key-1:"
_KEY_EXPECTED: Final = "a line as `contrada gossip key` makes it"
_KEY_FILE_BYTES_MAX: Final = 4_096

# Why a datagram is refused.
TRUNCATED: Final = "truncated"
VERSION_UNKNOWN: Final = "unknown version"
WRONG_GROUP: Final = "wrong group"
CLOCK: Final = "clock"
REPLAYED: Final = "replayed"
FORGED: Final = "forged"
SENDERS_FULL: Final = "too many senders"


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The secret that the participants of a group share, and nobody else has."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuses a wrong length; the error does not show the secret."""
        if len(self.secret) != KEY_BYTES:
            raise InputError("key", f"{len(self.secret)} bytes, expected {KEY_BYTES}")

    @classmethod
    def new(cls) -> Self:
        """One of chance."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def of_text(cls, text: str, source: str = "key") -> Self:
        """The key that a line is. Raises InputError, which names the source."""
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
        """The key in a file. Raises InputError where there is none."""
        hint = "; `contrada gossip key FILE` makes one"
        content = read_secret(path, _KEY_FILE_BYTES_MAX, hint)
        return cls.of_text(content.decode("utf-8", "replace"), str(path))

    @property
    def text(self) -> str:
        """The line that `of_text` reads."""
        return _KEY_MARK + base64.b64encode(self.secret).decode()

    def write(self, path: Path | str) -> None:
        """Makes a file that only its owner reads. Raises InputError, also where there is one."""
        write_secret(path, f"{self.text}\n".encode())


@dataclass(frozen=True, slots=True)
class Unsealed:
    """The content of a datagram, and the incarnation that sealed it."""

    incarnation: bytes
    content: bytes


class _SenderWindow(NumberWindow):
    """What came of one, and when."""

    __slots__ = ("heard_us", "sealed_us")

    def __init__(self) -> None:
        super().__init__(REPLAY_WINDOW)
        self.sealed_us = 0
        self.heard_us = 0

    def heard(self, number: int, sealed_us: int, heard_us: int) -> None:
        """A number has come."""
        self.take(number)
        self.sealed_us = max(self.sealed_us, sealed_us)
        self.heard_us = heard_us


class GroupSeal:
    """Seals the datagrams that one participant sends, and opens those that it receives.

    A nonce comes twice only where two incarnations, of 64 random bits, are equal: among a million
    the chance of that is 3 in 10⁸.
    """

    def __init__(
        self,
        key: GroupKey,
        agreed: bytes,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`agreed` is what all participants have alike beside the key; `draw` gives chance."""
        info = b"contrada gossip 1\0" + agreed
        derived = HKDF(SHA256(), KEY_BYTES + 4, None, info).derive(key.secret)
        self._cipher = ChaCha20Poly1305(derived[:KEY_BYTES])
        self._group = derived[KEY_BYTES:]
        self._draw = draw
        self._incarnation = draw(8)
        self._sealed = 0
        self._senders: OrderedDict[bytes, _SenderWindow] = OrderedDict()
        self._forgotten_us = -(2**63)

    def seal(self, content: bytes, to: str, now_us: int) -> bytes:
        """A datagram for who is at a place."""
        if self._sealed >= 1 << 32:
            self._incarnation, self._sealed = self._draw(8), 0
        header = _HEADER.pack(VERSION, self._group, self._incarnation, self._sealed, now_us)
        self._sealed += 1
        return header + self._cipher.encrypt(header[5:17], content, header + to.encode())

    def is_ours(self, datagram: bytes) -> str:
        """Why a datagram cannot be of the group; empty where it can. Costs next to nothing."""
        if len(datagram) < SEAL_BYTES:
            return TRUNCATED
        if datagram[0] != VERSION:
            return VERSION_UNKNOWN
        return "" if datagram[1:5] == self._group else WRONG_GROUP

    def open(self, datagram: bytes, at: str, now_us: int, passed_us: int) -> Unsealed | str:
        """The content of a datagram received at a place, or the reason why it is refused.

        `now_us` is the time of the wall clock, `passed_us` that of a monotonic one. Cost: some
        microseconds; a repeated datagram is refused before that.
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
        except InvalidTag:
            return FORGED
        if sender is None:
            sender = self._admit(incarnation, passed_us)
            if sender is None:
                return SENDERS_FULL
        sender.heard(number, sealed_us, passed_us)
        self._senders.move_to_end(incarnation)
        return Unsealed(incarnation, content)

    def _admit(self, incarnation: bytes, passed_us: int) -> _SenderWindow | None:
        """A sender that is new, where there is room; those that were silent for long go."""
        while self._senders:
            oldest = next(iter(self._senders.values()))
            if passed_us - oldest.heard_us <= SENDER_SILENT_US:
                break
            self._senders.popitem(last=False)
            self._forgotten_us = max(self._forgotten_us, oldest.sealed_us)
        if len(self._senders) >= SENDERS_MAX:
            return None
        return self._senders.setdefault(incarnation, _SenderWindow())

    @property
    def senders(self) -> int:
        """How many senders are remembered."""
        return len(self._senders)
