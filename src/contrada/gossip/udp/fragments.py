"""Fragments: messages larger than a datagram, in pieces; and `Reassembly`.

    bytes 0 to 3   the number of the message at its sender
    4 and 5        the index of the piece, from 0
    6 and 7        the number of pieces
    8 …            the piece: `PIECE_BYTES`, or 1 to as many for the last

Each piece is sealed, so only the group can make one. Incomplete messages are bounded in number, in
bytes, in time and by sender; a sender with too many loses its own oldest first.
"""

import struct
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import GOSSIP_BYTES_MAX
from contrada.gossip.udp.datagram_seal import SEAL_BYTES

DATAGRAM_BYTES_MAX: Final = 1_400
"""Bytes of a datagram, which usual networks do not fragment. Beyond it: a message is cut; a larger
datagram is refused, counted."""

_HEAD: Final = struct.Struct(">IHH")
PIECE_BYTES: Final = DATAGRAM_BYTES_MAX - SEAL_BYTES - _HEAD.size
PIECES_MAX: Final = -(-GOSSIP_BYTES_MAX // PIECE_BYTES)
"""Pieces of a message: as many as GOSSIP_BYTES_MAX takes. Beyond it: refused, counted."""

MALFORMED: Final = "malformed fragment"
INCOMPLETE: Final = "incomplete message"


def pieces_of(content: bytes, number: int) -> list[bytes]:
    """Returns the pieces of a message, each to be sealed."""
    count = max(1, -(-len(content) // PIECE_BYTES))
    return [
        _HEAD.pack(number & 0xFFFFFFFF, index, count)
        + content[index * PIECE_BYTES : (index + 1) * PIECE_BYTES]
        for index in range(count)
    ]


@dataclass(slots=True)
class _Incomplete:
    count: int
    begun_us: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Reassembly:
    """Incomplete messages. `refused` counts by reason."""

    def __init__(self, limits: GossipLimits = GossipLimits()) -> None:
        self._limits = limits
        self.refused: Counter[str] = Counter()
        self._held: OrderedDict[tuple[bytes, str, int], _Incomplete] = OrderedDict()
        self._of_sender: Counter[bytes] = Counter()
        self.bytes_ = 0

    def __len__(self) -> int:
        return len(self._held)

    def take(self, sender: bytes, place: str, piece: bytes, passed_us: int) -> bytes | None:
        """Adds a sender's piece. Returns a completed message, at a cost linear in it, else None."""
        if len(piece) < _HEAD.size:
            return self._refuse()
        number, index, count = _HEAD.unpack_from(piece)
        content = piece[_HEAD.size :]
        is_full = len(content) == PIECE_BYTES
        is_last = index == count - 1 and 0 < len(content) <= PIECE_BYTES
        if not (index < count <= PIECES_MAX and (is_full or is_last)):
            return self._refuse()
        if count == 1:
            return content
        self.forget(passed_us)
        key = sender, place, number
        held = self._held.get(key)
        if held is None:
            if self._of_sender[sender] >= self._limits.incomplete_of_sender_max:
                self._add_lost(next(key for key in self._held if key[0] == sender))
            if len(self._held) >= self._limits.incomplete_max:
                self._add_lost(next(iter(self._held)))
            held = self._held[key] = _Incomplete(count, passed_us)
            self._of_sender[sender] += 1
        if held.count != count or index in held.pieces:
            return self._refuse()
        held.pieces[index] = content
        held.size += len(content)
        self.bytes_ += len(content)
        if len(held.pieces) == count:
            self._drop(key)
            return b"".join(held.pieces[each] for each in range(count))
        while self.bytes_ > self._limits.incomplete_bytes_max:
            self._add_lost(next(iter(self._held)))
        return None

    def forget(self, passed_us: int) -> None:
        """Drops messages that have waited too long."""
        while self._held:
            key, oldest = next(iter(self._held.items()))
            if passed_us - oldest.begun_us <= self._limits.incomplete_wait_us:
                return
            self._add_lost(key)

    def _add_lost(self, key: tuple[bytes, str, int]) -> None:
        self._drop(key)
        self.refused[INCOMPLETE] += 1

    def _drop(self, key: tuple[bytes, str, int]) -> None:
        self.bytes_ -= self._held.pop(key).size
        self._of_sender[key[0]] -= 1
        if not self._of_sender[key[0]]:
            del self._of_sender[key[0]]

    def _refuse(self) -> bytes | None:
        self.refused[MALFORMED] += 1
        return None
