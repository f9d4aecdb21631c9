"""Hostile streams of frames: brokers with nearly valid bytes.

Good frames of `vectors.json`, and good messages and contents in frames, are mutated: bits, ends,
lengths, parts of others, any value of msgpack anywhere, another order. Brokers of this process get
them by `ServerConnection.data_received`, a few frames to a connection, as a client's or a
neighbour's; some by TCP. Invariants, as long as `Fuzz` runs:

- a broker delivers nothing that was not published, and finds no fault of its own;
- no call takes longer than `CALL_S_MAX` of the processor, and all tasks end;
- with the connections all their requests end; memory stays (see `tests.net.memory`);
- a good client is served in between.

`python -m tests.net.fuzz FRAMES` runs long; failures can be repeated by their seed.
"""

import asyncio
import gc
import json
import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from contrada.connections import connect
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.address import parse_address
from contrada.net.wire.connection import CLIENT, NEIGHBOUR
from contrada.net.wire.frames import Hello, Request, encode
from contrada.routing.router import Strategy
from tests.asynchronous import until
from tests.net.costly import Memory
from tests.net.memory import Table, is_flat, rss_kb, tables

FRAMES_PER_STREAM: Final = 12
"""Frames of a connection at most."""

STREAMS_PER_ROUND: Final = 400
"""Connections after which tables must be empty, and a good client is served."""

ROUNDS_PER_BROKER: Final = 8
"""Rounds of a broker. Logs of durable subscriptions stay with it, as they must."""

OVER_TCP: Final = 20
"""Connections of a round that are over TCP as well."""

CALL_S_MAX: Final = 1.0
"""Seconds of processor time of a call of a broker: four times the limit of `costly`."""

END_S_MAX: Final = 60.0
"""Seconds until all tasks must have ended after all connections."""

_DECODER: Final = msgspec.msgpack.Decoder()
_ENCODER: Final = msgspec.msgpack.Encoder()
_HEADER_BYTES: Final = 8

INTERESTING: Final[list[Any]] = [
    *(None, True, False, 0, 1, -1, 255, 256, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 2**64 - 1),
    *(0.0, -0.0, 1e308, float("inf"), float("nan"), "", "a", "@id", "\0", "x" * 256, "x" * 5000),
    *("best-effort", "durable", "certified", "client", "neighbour", "a", "b", "1", "2"),
    *(b"", b"\x00", b"\xff" * 9, b"x" * 5000, [], {}, [[]], {"a": 1}, [None] * 100, {"": []}),
    *([1, "filter", {}], [1, "notification", [{}, [], b"", ""]], [[[[[[[[]]]]]]]]),
]
"""Replacement values."""

ROUGH: Final = [
    *(b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff"),
    *(b"\xc6\xff\xff\xff\xff", b"\x91" * 5000, b"\xd4\xff\x00", b"\xc7\x0c\xff" + b"\xff" * 12),
]
"""Invalid msgpack, or of excessive declared length or depth."""


class Seeds:
    """Good frames, by sender."""

    def __init__(self) -> None:
        vectors = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))
        of = {
            group: [bytes.fromhex(each["hex"]) for each in vectors if each["group"] == group]
            for group in {each["group"] for each in vectors}
        }
        self.hellos = {
            CLIENT: encode(Hello(CLIENT)),
            NEIGHBOUR: next(each for each in of["frame"] if b"neighbour" in each),
        }
        alive = [each for each in of["frame"] if each[3] in (4, 5)]
        kinds = {CLIENT: (16, 17, 18, 22, 24), NEIGHBOUR: (19, 20, 21, 25)}
        self.frames = {
            role: [each for each in of["frame"] if each[3] in known] + alive
            for role, known in kinds.items()
        }
        raw = msgspec.Raw
        self.frames[CLIENT] += [
            encode(Request(number, raw(each), 65536, 0))
            for number, each in enumerate(of["message to a broker"], 2)
        ]
        self.frames[NEIGHBOUR] += [
            frame(19, _ENCODER.encode([[raw(each)]])) for each in of["message between brokers"]
        ]
        self.contents = of["content"]
        self.all = of["frame"]


def frame(kind: int, payload: bytes, length: int | None = None) -> bytes:
    """Returns the bytes of a frame, with a right or wrong length."""
    size = len(payload) if length is None else length
    return b"ct\x02" + bytes([kind]) + size.to_bytes(4, "big") + payload


class Mutator:
    """Streams of nearly good frames."""

    def __init__(self, seed: int) -> None:
        self.seeds = Seeds()
        self._chance = random.Random(seed)
        self._changes: list[Callable[[bytes, str], bytes]] = [
            *(self._flip, self._cut, self._lie, self._splice, self._rough, self._other_kind),
            *(self._value,) * 6,
        ]

    def stream(self, role: str) -> list[bytes]:
        """The frames of a connection, its hello among them, mostly first and good."""
        chance = self._chance
        frames = [
            self._changed(chance.choice(self.seeds.frames[role]), role)
            for _ in range(chance.randrange(1, FRAMES_PER_STREAM))
        ]
        hello = self.seeds.hellos[role]
        if chance.random() < 0.03:
            hello = self._changed(hello, role)
        frames.insert(0 if chance.random() < 0.99 else chance.randrange(len(frames)), hello)
        return frames

    def _changed(self, good: bytes, role: str) -> bytes:
        if self._chance.random() < 0.25:
            return good
        return self._chance.choice(self._changes)(good, role)

    def _flip(self, good: bytes, _role: str) -> bytes:
        chance, data = self._chance, bytearray(good)
        first = 0 if chance.random() < 0.1 else min(_HEADER_BYTES, len(data) - 1)
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(first, len(data))] ^= 1 << chance.randrange(8)
        return bytes(data)

    def _cut(self, good: bytes, _role: str) -> bytes:
        payload = good[_HEADER_BYTES:]
        cut = payload[: self._chance.randrange(len(payload) + 1)]
        return frame(good[3], cut, None if self._chance.random() < 0.7 else len(payload))

    def _lie(self, good: bytes, _role: str) -> bytes:
        payload = good[_HEADER_BYTES:]
        size = len(payload)
        lies = (0, size - 1, size + 1, 2 * size, 2**16, 2**24, 2**24 + 1, 2**31, 2**32 - 1)
        return frame(good[3], payload, max(0, self._chance.choice(lies)))

    def _splice(self, good: bytes, role: str) -> bytes:
        chance, other = self._chance, self._chance.choice(self.seeds.frames[role])
        a, b = good[_HEADER_BYTES:], other[_HEADER_BYTES:]
        return frame(good[3], a[: chance.randrange(len(a) + 1)] + b[chance.randrange(len(b) + 1) :])

    def _rough(self, good: bytes, _role: str) -> bytes:
        payload = good[_HEADER_BYTES:]
        at = self._chance.randrange(len(payload) + 1)
        return frame(good[3], payload[:at] + self._chance.choice(ROUGH) + payload[at:][:1000])

    def _other_kind(self, good: bytes, _role: str) -> bytes:
        if self._chance.random() < 0.5:
            return self._chance.choice(self.seeds.all)
        return frame(self._chance.randrange(48), good[_HEADER_BYTES:])

    def _value(self, good: bytes, _role: str) -> bytes:
        """Returns valid msgpack with another value somewhere, also within packed bytes."""
        try:
            return frame(good[3], self._repacked(good[_HEADER_BYTES:]))
        except (msgspec.DecodeError, msgspec.EncodeError, TypeError, OverflowError):
            return self._flip(good, "")  # No one value, or one that cannot be packed.

    def _repacked(self, data: bytes) -> bytes:
        packed: bytes = _ENCODER.encode(self._replaced(_DECODER.decode(data)))
        return packed

    def _replaced(self, value: Any, levels: int = 12) -> Any:
        chance = self._chance
        here = chance.random()
        if levels and here < 0.9:
            if isinstance(value, list) and value:
                at = chance.randrange(len(value))
                part = self._replaced(value[at], levels - 1)
                return [*value[:at], part, *value[at + 1 :]]
            if isinstance(value, dict) and value:
                key = chance.choice(list(value))
                return {**value, key: self._replaced(value[key], levels - 1)}
            if isinstance(value, bytes) and len(value) > 2 and here < 0.8:
                return self._repacked(value) if here < 0.6 else chance.choice(self.seeds.contents)
        if isinstance(value, list) and here < 0.97:
            return value * chance.choice((0, 2, 300)) if len(value) < 100 else value[::-1]
        if isinstance(value, int) and here < 0.97:
            return value + chance.choice((-1, 1, 2**16))
        return chance.choice(INTERESTING)


MEMBERSHIPS: Final = [
    Membership("b"),
    Membership("b", general=True),
    Membership("b", strategy=Strategy.ADVERTISEMENTS, merging=True),
]
"""The roles of the brokers in turn; neighbours have equal options."""


class Fuzz:
    """Feeds streams to one broker after the other, and checks the invariants."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._mutator = Mutator(seed)
        self._said: list[bytes] = []
        self.frames = 0
        """How many were taken in; not those that were left when a connection was closed."""
        self.longest_s = 0.0
        self.calls: list[float] = []
        self.memory_kb: list[int] = []

    async def run(self, frames: int, on_broker: Callable[["Fuzz"], None] = lambda _: None) -> None:
        """Runs until a number of frames. AssertionError names the broken invariant."""
        loop = asyncio.get_running_loop()
        faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        number = 0
        while self.frames < frames:
            membership = MEMBERSHIPS[number % len(MEMBERSHIPS)]
            number += 1
            alike = {
                **membership.shared_options(),
                "as": "peer",
                "cost": 1,
                "name": "a",
                "instance": "a-1",
            }
            self._mutator.seeds.hellos[NEIGHBOUR] = encode(Hello(NEIGHBOUR, "", alike))
            async with Broker(port=0, network=membership) as broker:
                empty = tables(broker)
                for _ in range(ROUNDS_PER_BROKER):
                    await self._round(broker, empty)
                    assert not faults, f"{self._where}: the loop was told {faults[0]}"
                    assert not broker.refused["internal"], f"{self._where}: a fault of the broker"
                    if self.frames >= frames:
                        break
            gc.collect()
            self.memory_kb.append(rss_kb())
            on_broker(self)

    @property
    def _where(self) -> str:
        said = " ".join(each.hex() for each in self._said)
        return f"seed {self._seed}, frame {self.frames}, said {said[:20_000]}"

    async def _round(self, broker: Broker, empty: Table) -> None:
        for number in range(STREAMS_PER_ROUND):
            role = CLIENT if number % 2 else NEIGHBOUR
            self._said = self._mutator.stream(role)
            try:
                await self._feed(broker, self._said)
            except Exception as error:
                raise AssertionError(f"{self._where}: {error!r} came out") from error
            if number % (STREAMS_PER_ROUND // OVER_TCP) == 0:
                await self._send(broker, b"".join(self._said))
        try:
            async with asyncio.timeout(END_S_MAX):
                await until(lambda: tables(broker) == empty)
        except TimeoutError:
            held = tables(broker)
            left = {name: size for name, size in held.items() if size != empty[name]}
            raise AssertionError(f"{self._where}: there is left {left}") from None
        await _serves_well(broker)

    async def _feed(self, broker: Broker, frames: list[bytes]) -> None:
        peer, transport = ServerConnection(broker), Memory()
        peer.connection_made(transport)
        try:
            for each in frames:
                self._timed(partial(peer.data_received, each))
                self.frames += 1
                if transport.closed:
                    break
                if peer._turn_due or self.frames % 4 == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            self._timed(partial(peer.connection_lost, None))

    def _timed(self, call: Callable[[], None]) -> None:
        began_s = time.thread_time()
        call()
        took_s = time.thread_time() - began_s
        self.longest_s = max(self.longest_s, took_s)
        assert took_s < CALL_S_MAX, f"it took {took_s:.1f} s"

    async def _send(self, broker: Broker, data: bytes) -> None:
        """Sends over TCP, to the end of the stream; half of the connections are reset then."""
        address = parse_address(broker.address)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(data)
        if len(data) % 2:
            linger = struct.pack("ii", 1, 0)
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await asyncio.sleep(0)
        else:
            writer.write_eof()
            # Until the broker has ended it, too; where something is unread then, by a reset.
            with suppress(ConnectionResetError):
                async with asyncio.timeout(END_S_MAX):
                    await reader.read()
        writer.transport.abort()


async def _serves_well(broker: Broker) -> None:
    """A good client gets all deliveries, whatever others sent before."""
    async with (
        connect(broker.address) as client,
        client.advertise("good = 1 and n any"),
        client.subscribe("good = 1") as events,
    ):
        for number in range(3):
            await client.publish({"good": 1, "n": number})
        for number in range(3):
            assert (await anext(events))["n"] == number


def progress(fuzz: Fuzz) -> None:
    """A line for a person."""
    used_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    rate, longest_ms = fuzz.frames / used_s, 1000 * fuzz.longest_s
    speed = f"{rate:.0f} per second of the processor, longest {longest_ms:.0f} ms"
    told = f"{fuzz.frames} frames, {speed}, {fuzz.memory_kb[-1]} KB"
    print(told, flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    fuzz = Fuzz(int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32))
    asyncio.run(fuzz.run(int(sys.argv[1]), progress))
    if not is_flat(fuzz.memory_kb):
        sys.exit(f"memory grows: {fuzz.memory_kb} KB after one broker and the next")
