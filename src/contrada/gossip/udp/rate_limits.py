"""Rates of sending and receiving datagrams, and the bounds of what waits for them.

A *bucket* fills with bytes at a rate, up to a burst. A datagram larger than the bucket's content
has to wait, or is dropped. Received datagrams are dropped unopened, so that a flood costs next to
nothing.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.errors import InvalidValueError

UNSENT_BYTES_MAX: Final = 4 * 2**20
"""Bytes of datagrams that wait to be sent. Beyond it: a message is dropped, counted."""

PLACES_RATED_MAX: Final = 4_096
"""Places from which datagrams come whose rates are known singly. Beyond it: the one that was silent
for longest is forgotten."""

OUT_OF_ROOM: Final = "no room to wait"
TOO_FAST: Final = "too fast"
ALL_TOO_FAST: Final = "all too fast"

UdpAddress: TypeAlias = tuple[str, int]
"""An IP address and a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Bytes in a second, and as many at once: `out`, `in_` from one place, `in_all` from all."""

    out: int = 8_000_000
    in_: int = 4_000_000
    in_all: int = 16_000_000

    def __post_init__(self) -> None:
        """Refuses what is no rate, with the value."""
        for rate in (self.out, self.in_, self.in_all):
            if type(rate) is not int or rate < 2_000:
                raise InvalidValueError(rate, "bytes in a second, 2,000 or more")


class TokenBucket:
    """So many bytes in a second; as many at once as come in a second."""

    __slots__ = ("_left", "_rate", "_since_us")

    def __init__(self, rate: int, now_us: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._since_us = now_us

    def has(self, size: int, now_us: int) -> bool:
        """Whether there is as much in it now."""
        self._left += max(0, now_us - self._since_us) * self._rate / 1e6
        self._left = min(self._left, self._rate)
        self._since_us = now_us
        return self._left >= size

    def take(self, size: int) -> None:
        """Takes so much out."""
        self._left -= size

    def wait_s(self, size: int) -> float:
        """Seconds until the bucket holds that many bytes."""
        return max(0.0, (size - self._left) / self._rate)


class Inflow:
    """Which of what comes is looked at."""

    def __init__(self, rates: Rates, now_us: int) -> None:
        self._rates = rates
        self._all = TokenBucket(rates.in_all, now_us)
        self._sources: OrderedDict[UdpAddress, TokenBucket] = OrderedDict()

    def refuses(self, source: UdpAddress, size: int, now_us: int) -> str:
        """Why so many bytes from a place are not looked at; empty where they are."""
        bucket = self._sources.get(source)
        if bucket is None:
            if len(self._sources) >= PLACES_RATED_MAX:
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
    """What waits to be sent. `dropped` counts messages by reason."""

    def __init__(
        self, rates: Rates, send: Callable[[bytes, UdpAddress], None], passed_us: Callable[[], int]
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._send = send
        self._passed_us = passed_us
        self._bucket = TokenBucket(rates.out, passed_us())
        self._waiting: deque[tuple[bytes, UdpAddress]] = deque()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()
        self._is_held_up = False

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait."""
        return self._bytes

    def put(self, datagrams: Sequence[bytes], place: UdpAddress) -> bool:
        """Sends the datagrams of one message, now or later: all of them, or none."""
        size = sum(map(len, datagrams))
        if self._bytes + size > UNSENT_BYTES_MAX:
            self.dropped[OUT_OF_ROOM] += 1
            return False
        self._waiting.extend((each, place) for each in datagrams)
        self._bytes += size
        self._empty.clear()
        if self._timer is None:
            self._flush()
        return True

    def hold_up(self) -> None:
        """The socket takes no more at present."""
        self._is_held_up = True

    def go_on(self) -> None:
        """It does again."""
        self._is_held_up = False
        if self._timer is None:
            self._flush()

    async def emptied(self, wait_s: float) -> None:
        """Waits until all is sent, for so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._empty.wait()

    def close(self) -> None:
        """Drops what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._bytes = 0
        self._empty.set()

    def _flush(self) -> None:
        self._timer = None
        while self._waiting and not self._is_held_up:
            datagram, place = self._waiting[0]
            if not self._bucket.has(len(datagram), self._passed_us()):
                wait_s = self._bucket.wait_s(len(datagram))
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._flush)
                return
            self._waiting.popleft()
            self._bytes -= len(datagram)
            self._bucket.take(len(datagram))
            self._send(datagram, place)
        if not self._waiting:
            self._empty.set()
