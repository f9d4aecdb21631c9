"""Rate limits of datagrams, and the queue of outgoing ones.

A *bucket* fills with bytes at a rate, up to one second of it. A datagram larger than its content
waits, or is dropped. Incoming datagrams are dropped unopened, so a flood is cheap.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.errors import InvalidValueError
from contrada.gossip.udp.datagram_seal import SEAL_BYTES

OUT_OF_ROOM: Final = "no room to wait"
TOO_FAST: Final = "too fast"
ALL_TOO_FAST: Final = "all too fast"

TURN_BYTES_MAX: Final = 1_048_576
"""Bytes of datagrams sent in one turn of the loop, some ten milliseconds. Beyond it: the next."""

UdpAddress: TypeAlias = tuple[str, int]
"""An IP address and a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Bytes per second, and in a burst: `out`, `in_` from one place, `in_all` from all."""

    out: int = 8_000_000
    in_: int = 4_000_000
    in_all: int = 16_000_000

    def __post_init__(self) -> None:
        for rate in (self.out, self.in_, self.in_all):
            if type(rate) is not int or rate < 2_000:
                raise InvalidValueError(rate, "bytes in a second, 2,000 or more")


class TokenBucket:
    """A token bucket with a burst of one second."""

    __slots__ = ("_left", "_rate", "_since_us")

    def __init__(self, rate: int, now_us: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._since_us = now_us

    def has(self, size: int, now_us: int) -> bool:
        """Returns whether it holds as many bytes now."""
        self._left += max(0, now_us - self._since_us) * self._rate / 1e6
        self._left = min(self._left, self._rate)
        self._since_us = now_us
        return self._left >= size

    def take(self, size: int) -> None:
        """Removes bytes."""
        self._left -= size

    def wait_s(self, size: int) -> float:
        """Returns the seconds until it holds that many bytes."""
        return max(0.0, (size - self._left) / self._rate)


class Inflow:
    """The admission of incoming datagrams."""

    def __init__(self, rates: Rates, now_us: int, places_max: int = 4_096) -> None:
        self._places_max = places_max
        self._rates = rates
        self._all = TokenBucket(rates.in_all, now_us)
        self._sources: OrderedDict[UdpAddress, TokenBucket] = OrderedDict()

    def refuses(self, source: UdpAddress, size: int, now_us: int) -> str:
        """Returns why a datagram of a place is dropped; empty if it is not."""
        bucket = self._sources.get(source)
        if bucket is None:
            if len(self._sources) >= self._places_max:
                self._sources.popitem(last=False)
            bucket = self._sources[source] = TokenBucket(self._rates.in_, now_us)
        else:
            self._sources.move_to_end(source)
        if not bucket.has(size, now_us):
            return TOO_FAST
        if not self._all.has(size, now_us):
            return ALL_TOO_FAST
        bucket.take(size)
        self._all.take(size)
        return ""

    def __len__(self) -> int:
        return len(self._sources)


class Outflow:
    """The queue of outgoing pieces of messages. `dropped` counts messages by reason.

    `send` seals a piece and sends it. Both take long, so many large messages at once are sent in
    several turns of the loop, and those without room are never sealed.
    """

    def __init__(
        self,
        rates: Rates,
        send: Callable[[bytes, UdpAddress], None],
        passed_us: Callable[[], int],
        bytes_max: int = 4 * 2**20,
    ) -> None:
        self._bytes_max = bytes_max
        self.dropped: Counter[str] = Counter()
        self._send = send
        self._passed_us = passed_us
        self._bucket = TokenBucket(rates.out, passed_us())
        self._waiting: deque[tuple[bytes, UdpAddress]] = deque()
        self.waiting_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()
        self._is_held_up = False

    def put(self, pieces: Sequence[bytes], place: UdpAddress) -> bool:
        """Sends the pieces of one message, now or later: all of them, or none."""
        size = sum(map(len, pieces)) + SEAL_BYTES * len(pieces)
        # The bytes that the rate allows at once do not wait.
        if not self._bucket.has(self.waiting_bytes + size - self._bytes_max, self._passed_us()):
            self.dropped[OUT_OF_ROOM] += 1
            return False
        self._waiting.extend((each, place) for each in pieces)
        self.waiting_bytes += size
        self._empty.clear()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._flush)
        return True

    def pause(self) -> None:
        """Pauses: the socket is full."""
        self._is_held_up = True

    def resume(self) -> None:
        """Resumes."""
        self._is_held_up = False
        if self._timer is None:
            self._flush()

    async def wait_empty(self, wait_s: float) -> None:
        """Waits until the queue is empty, within a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._empty.wait()

    def close(self) -> None:
        """Drops the queue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self.waiting_bytes = 0
        self._empty.set()

    def _flush(self) -> None:
        self._timer = None
        left = TURN_BYTES_MAX
        while self._waiting and not self._is_held_up:
            piece, place = self._waiting[0]
            size = len(piece) + SEAL_BYTES
            if left <= 0 or not self._bucket.has(size, self._passed_us()):
                wait_s = self._bucket.wait_s(size)
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._flush)
                return
            self._waiting.popleft()
            self.waiting_bytes -= size
            left -= size
            self._bucket.take(size)
            self._send(piece, place)
        if not self._waiting:
            self._empty.set()
