"""A search for the costliest request per byte, against a broker's own code.

Requests are made from lists of numbers, which select choices; the lists of the costliest are
mutated and tried again. The cost is the longest processor time that the loop of the broker spends
without a turn for others.

    python -m tests.net.costly [SECONDS] [SEED]

It prints the worst request of each kind, and fails where one is above `TURN_S_MAX`.
"""

import asyncio
import contextlib
import gc
import logging
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Raw
from starlette.datastructures import Headers

from contrada.delivery.queue_messages import (
    AskQueue,
    AskQueues,
    PeekQueue,
    PurgeQueue,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.delivery.retention import Retention
from contrada.errors import ContradaError
from contrada.integrations.files import (
    ReadOptions,
    notification_of_object,
    notification_of_shown,
    read_document,
)
from contrada.integrations.files.csv_rows import CsvRows
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.http.event_ingest import (
    BATCH,
    STRUCTURED,
    decode_content,
    notifications_in,
)
from contrada.model import (
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    ValueSet,
    from_json,
    parse,
)
from contrada.model.algebra import sets
from contrada.model.algebra.attributes import VALUES_MAX
from contrada.model.codec import to_msgpack
from contrada.model.extensions import bit_sets, filter_values, terms
from contrada.model.languages.work_budget import Work
from contrada.net.broker.broker import Broker
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.durable_messages import Publications, PublisherHello, encode_durable
from contrada.net.wire.frames import (
    Credit,
    Frame,
    Hello,
    LogRequest,
    Ping,
    Pong,
    Request,
    StatisticsRequest,
    encode,
)
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.net.wire.tokens import new_token
from contrada.routing.delegation import SubscribePattern
from contrada.service.clock import wall_clock_us
from contrada.service.security.permits import Permit
from tests.net.requests import publish, subscribe, unsubscribe

TURN_S_MAX: Final = 0.25
"""Seconds of the processor that a broker may take without a turn for others."""

MAKING_WORK: Final = 1_000_000
"""Steps that it may take to make a filter or a set: more would be asked for in vain."""


IDLE_MAX: Final = 100_000
"""Turns of the loop after which no more is waited for."""

QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the records of a queue."""

GENES: Final = 48
KEPT: Final = 6
WIDE: Final = 2

C = TypeVar("C")


class Choices:
    """Choices by a list of numbers between 0 and 1, in a cycle."""

    def __init__(self, genes: Sequence[float]) -> None:
        self._genes = genes
        self._at = 0

    def next(self) -> float:
        self._at += 1
        return self._genes[self._at % len(self._genes)]

    def size(self, most: int) -> int:
        """A size from one to the most, small ones as likely as large ones."""
        return max(1, round(math.pow(most, self.next())))

    def one(self, among: Sequence[C]) -> C:
        return among[min(int(self.next() * len(among)), len(among) - 1)]


class Memory(asyncio.Transport):
    """A client that reads everything, and may keep it."""

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = 0
        self.kept = bytearray()
        self.keeps = keeps
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += len(data)
        if self.keeps:
            self.kept += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Desk:
    """A broker and its clients, without sockets."""

    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or Broker()
        self._transports: dict[ServerConnection, Memory] = {}

    def client(self, *, keeps: bool = False) -> ServerConnection:
        """Returns a client after its hello, which may keep what it is sent."""
        return self.stranger(encode(Hello(CLIENT)), keeps=keeps)

    def stranger(self, data: bytes, *, keeps: bool = False) -> ServerConnection:
        """Returns a client that begins with any bytes."""
        peer, transport = ServerConnection(self.broker), Memory(keeps=keeps)
        self._transports[peer] = transport
        peer.connection_made(transport)
        peer.data_received(data)
        return peer

    def is_closed(self, peer: ServerConnection) -> bool:
        """Whether the broker has closed the connection of a client."""
        return self._transports[peer].closed

    def written(self, peer: ServerConnection) -> int:
        """How many bytes a client was sent."""
        return self._transports[peer].written

    def take_kept(self, peer: ServerConnection) -> bytes:
        """Returns what a client has kept since the last call."""
        kept = self._transports[peer].kept
        taken = bytes(kept)
        kept.clear()
        return taken

    async def longest_s(self, peer: ServerConnection, data: bytes) -> float:
        """Returns the longest occupation of the loop until a client's requests are answered."""
        return await self.longest_of(lambda: peer.data_received(data), peer)

    async def longest_of(self, act: Callable[[], object], peer: ServerConnection) -> float:
        """As `longest_s`, of anything that a client does."""
        transport = self._transports[peer]
        written = transport.written
        began_s = time.thread_time()
        act()
        longest_s = time.thread_time() - began_s
        idle = 0
        while idle < IDLE_MAX:
            idle += not peer._turn_due  # A paused connection is not done yet.
            began_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - began_s)
            if transport.written > written or transport.closed or not peer._transport:
                break
        return longest_s


# --- the parts of requests ----------------------------------------------------------------------

_EXPRESSIONS: Final = [
    "(a|b)*a(a|b){{{n}}}c{{{m}}}?$",
    "(?:a.{{1,{m}}}){{{n}}}c",
    "(a?b?c?d?){{{n}}}e",
    "(?i)[\\x{{80}}-\\x{{2000}}]{{{m}}}k",
    "((a|b|ab)*c){{{m}}}",
    "\\b\\w+\\b.{{{n}}}z",
    "(?:(?:a?){{{m}}}){{{m}}}b",
    "[^a]{{{n}}}|a{{{n}}}b",
    "(?:abc|abd|ab|a[b-z]){{{m}}}",
    "(?s).*a.{{{m}}}b.*c.{{{m}}}",
]


def text(of: Choices, most: int) -> bytes:
    alphabet = of.one([b"a", b"ab", b"\x01", b"abc ", "äK\u212a".encode(), b"\xff", b"(a,_X"])
    length = of.size(most)
    start = int(of.next() * 50)
    return (alphabet * (length // len(alphabet) + 1))[:length] + b"%d" % start


def expression(of: Choices) -> str:
    shape: str = of.one(_EXPRESSIONS)
    return shape.format(n=of.size(300), m=of.size(30))


def number(of: Choices) -> int:
    return int(of.next() * 1000)


def term(of: Choices) -> str:
    shape = of.one(["f({})", "g({},_X)", "f(g(_X),{})"])
    part = of.one(["_X", "a", "f(_Y,_Y)", "_Z1"])
    inner: str = ",".join([part] * of.size(2_000))
    return str(shape.format(inner))


def inner_filter(of: Choices) -> str:
    parts = [f"a = {n} or b matches /{expression(of)}/" for n in range(of.size(40))]
    return " or ".join(parts)


_SETS: Final[list[Callable[[Choices], ValueSet]]] = [
    lambda of: sets.suffix(text(of, 5_000)),
    lambda of: sets.contains(text(of, 15_000)),
    lambda of: sets.contains(text(of, 100).decode(errors="replace"), nocase=True),
    lambda of: sets.suffix(text(of, 2_000).decode(errors="replace"), nocase=True),
    lambda of: sets.prefix(text(of, 2_000).decode(errors="replace"), nocase=True),
    lambda of: sets.prefix(text(of, 100)),
    lambda of: sets.matches(expression(of)),
    lambda of: sets.wildcard("*?" * of.size(200) + "a" + "?b*" * of.size(20)),
    lambda of: sets.wildcard("?K*" * of.size(50), nocase=True),
    lambda of: sets.cidr(of.one(["10.0.0.0/9", "2001:db8::/33", "::ffff:1.2.3.4/128"])),
    lambda of: sets.in_(*[f"{number(of)}-{n}" for n in range(of.size(5_000))], nocase=True),
    lambda of: sets.in_(*range(of.size(30_000))),
    lambda of: sets.between(number(of), number(of) + 500),
    lambda of: sets.extension("set<=", text(of, 3_000)),
    lambda of: sets.extension("set~", text(of, 3_000)),
    lambda of: sets.extension("unifies", term(of)),
    lambda of: sets.extension("&&", inner_filter(of)),
    lambda of: ~sets.contains(text(of, 50)),
]


def value_set(of: Choices, levels: int = WIDE) -> ValueSet:
    kind = of.next()
    if levels == 0 or kind < 0.5:
        make: Callable[[Choices], ValueSet] = of.one(_SETS)
        try:
            return make(of)
        except ContradaError:
            return sets.contains(b"refused")
    parts = [value_set(of, levels - 1) for _ in range(of.size(60 if levels == WIDE else 5))]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part if kind < 0.65 else joined | part
    return ~joined if kind > 0.95 else joined


def filter_of(of: Choices) -> Filter:
    with Work("MAKING_WORK", MAKING_WORK):
        return _filter_of(of)


def _filter_of(of: Choices) -> Filter:
    return Filter.of_sets({f"x{n % 12}": value_set(of) for n in range(of.size(6))})


def filters_of(of: Choices) -> bytes:
    if of.next() < 0.05:
        return to_msgpack(FilterSet([Filter({})])).replace(
            b"\x91\x80", b"\xdd" + (count := of.size(500_000)).to_bytes(4, "big") + b"\x80" * count
        )
    made = [filter_of(of) for _ in range(of.size(8))]
    copies = of.size(3_000 // len(made))
    spread = [
        Filter.of_sets({**each.sides, "copy": sets.eq(n)}) for each in made for n in range(copies)
    ]
    return to_msgpack(FilterSet(made + spread))


def _values_of(of: Choices, makes: Sequence[Callable[[Choices], Any]]) -> Any:
    """One value, or several."""
    make = of.one(makes)
    if of.next() < 0.7:
        return make(of)
    short = make(of) if make is number else make(of)[: of.size(400)]
    if isinstance(short, int):
        return [short + n for n in range(of.size(VALUES_MAX))]
    end = b"%d" if isinstance(short, bytes) else "%d"
    return [short + end % n for n in range(of.size(VALUES_MAX))]


def notification_of(of: Choices) -> bytes:
    attributes: dict[str, Any] = {
        f"x{n % 12}": _values_of(of, [number, partial(text, most=200_000), term, inner_filter])
        for n in range(of.size(12))
    }
    return to_msgpack(Notification(attributes))


# --- requests of all kinds ----------------------------------------------------------------------


async def subscribing(of: Choices) -> tuple[float, int]:
    """One subscription, and one more that is alike."""
    desk = Desk()
    peer = desk.client()
    data = filters_of(of)
    if len(data) > CONTENT_BYTES_MAX:
        return 0.0, 1
    frames = [encode(subscribe(n, n, data, 0)) for n in (1, 2)]
    return max([await desk.longest_s(peer, each) for each in frames]), len(frames[0])


async def publishing(of: Choices) -> tuple[float, int]:
    """Measures publications for a client with many subscriptions, by one of the engines."""
    desk = Desk()
    peer = desk.client()
    for n in range(of.size(40)):
        data = to_msgpack(filter_of(of))
        frame = encode(subscribe(n, n, data, 2**30))
        await desk.longest_s(peer, frame)
        peer._scheduler._over_s = 0.0
    publisher = desk.client()
    notifications = [notification_of(of)] * of.size(256)
    while sum(map(len, notifications)) > CONTENT_BYTES_MAX:
        notifications = notifications[: len(notifications) // 2]
    if not notifications:
        return 0.0, 1
    frame = encode(publish(1, 0, notifications))
    return await desk.longest_s(publisher, frame), len(frame)


async def many_small(of: Choices) -> tuple[float, int]:
    """Many small frames, requests and subscriptions of one client, which then leaves."""
    desk = Desk()
    peer = desk.client()
    plain = to_msgpack(Filter(of.one(["x = 1", "everything", "x contains 'a'", "x < 5"])))
    small = to_msgpack(of.one([Notification({"x": 1}), Notification({"x": "a"})]))
    makes: list[Callable[[int], Frame]] = [
        lambda n: subscribe(n, n, plain, 2**20),
        lambda n: unsubscribe(n, n),
        lambda n: publish(n, 0, [small] * 200),
        lambda n: Ping(n),
        lambda n: Pong(n),
        lambda n: Credit(str(n), 1),
        lambda n: StatisticsRequest(n),
        lambda n: Request(n, Raw(b"\xc0")),
    ]
    longest_s, size = 0.0, 0
    for _ in range(of.size(4)):
        mixed = [of.one(makes) for _ in range(of.size(8))]
        frames = (encode(mixed[n % len(mixed)](n)) for n in range(of.size(24_000)))
        data = b"".join(frames)[: 256 * 1024]
        size += len(data)
        longest_s = max(longest_s, await desk.longest_s(peer, data))
    return max(longest_s, await desk.longest_of(lambda: peer.connection_lost(None), peer)), size


async def deciding(of: Choices) -> tuple[float, int]:
    """A decision, as a server of a network makes it for a request."""
    with Work("MAKING_WORK", MAKING_WORK):
        one, two = value_set(of), value_set(of)
    ask: Callable[[], object] = of.one(
        [
            lambda: one.meets(two),
            lambda: one >= two,
            lambda: one == two,
            lambda: one.is_empty,
            lambda: one.some_key(),
            lambda: Filter.of_sets({"a": one, "b": two}).covers(Filter.of_sets({"a": two})),
        ]
    )
    began_s = time.thread_time()
    try:
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            ask()
    except ContradaError:
        pass
    return time.thread_time() - began_s, len(to_msgpack(one)) + len(to_msgpack(two))


# --- texts of files -----------------------------------------------------------------------------

FILE_BYTES_MAX: Final = 4_096
"""Bytes of a tried record or rule: readers read them one by one."""

_FRAGMENTS: Final = [
    *["a = 1 and ", "a = 'x' or ", "not (", "(", ")", "~", "a in (1,", "1, ", "'", '"', "--", "-"],
    *["a contains nocase 'k' | ", "a matches /(a|b)*a(a|b){9}/ and ", "/", "`a` ", "# ", "\n", " "],
    *["{", "}", "[", "]", '{"a":', '"a":[', '[{"x":1},', "1,", "1", "0", "1e", ".", "\\u00e9", ","],
    *['{"prefix":"a"},', '{"anything-but":["a"]},', '{"wildcard":"*a*b"},', '"$or":[', "null,"],
    *["<e>", "</e>", "<e a='1'>", "&amp;", "<!--", "a: ", "- ", "&a [*a,*a]\n", "*", "'*a?'"],
    *[
        "a LIKE '%a_' AND ",
        "a IS NULL OR ",
        "NOT ",
        "CASE WHEN ",
        "EXISTS a AND ",
        "a BETWEEN 1 AND ",
    ],
    *[
        "rate(x[5m]) > ",
        'x{a=~"(a|b)*c"} > 1 and ',
        "sum by (a) (",
        "selection and ",
        "1 of them or ",
    ],
    "title: t\nlogsource: {product: p}\ndetection:\n  s:\n    f|re: '(a|b)*a(a|b){9}'\n",
    "  condition: s\n",
    *["  s|contains:\n    - 'a'\n", "    f|base64offset|contains: aa\n", "    f|windash: ' -a'\n"],
]

_HEADER: Final = ",".join(f"c{n}" for n in range(20))


def _record_of(line: str) -> object:
    return CsvRows(_HEADER, ReadOptions()).notification(line)


def _rules_in(dialect: str, text: str) -> object:
    return [*DIALECTS[dialect].reader()(text)]


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "text": parse,
    "json": lambda line: notification_of_object(line, ReadOptions()),
    "shown": notification_of_shown,
    "csv": _record_of,
    "xml": lambda text: [*read_document(text.encode(), "", ReadOptions(entries="e"))],
    "types": from_json,
    **{name: partial(_rules_in, name) for name in DIALECTS},
}


async def reading(of: Choices) -> tuple[float, int]:
    """One record, filter or file of rules, as commands and clients read it."""
    read = _READERS[of.one([*_READERS])]
    parts = [of.one(_FRAGMENTS) * of.size(2_000) for _ in range(of.size(12))]
    text = "".join(parts)[:FILE_BYTES_MAX]
    began_s = time.thread_time()
    with contextlib.suppress(ContradaError):
        read(text)
    return time.thread_time() - began_s, len(text.encode())


async def fanning_out(of: Choices) -> tuple[float, int]:
    """Publications for very many equal subscriptions of several clients."""
    desk = Desk()
    plain = to_msgpack(Filter("x = 1"))
    clients = [desk.client() for _ in range(of.size(100))]
    for peer in clients:
        numbers = range(of.size(20_000) // len(clients) + 1)
        peer.data_received(b"".join(encode(subscribe(n, n, plain, 2**30)) for n in numbers))
        while peer._steps is not None or len(peer._connection.reader):
            await asyncio.sleep(0)
            peer._scheduler._over_s = 0.0
    small = [to_msgpack(Notification({"x": 1, "n": n})) for n in range(of.size(64))]
    frame = encode(publish(1, 0, small))
    publisher = desk.client()
    longest_s = await desk.longest_s(publisher, frame)
    written = -1
    while written < (written := sum(map(desk.written, clients))):
        began_s = time.thread_time()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.thread_time() - began_s)
    return longest_s, len(frame)


async def assembling(of: Choices) -> tuple[float, int]:
    """Publications for patterns with very many runs, until no work is left."""
    desk = Desk()
    router = desk.broker.dispatcher.router
    peer, publisher = desk.client(), desk.client()
    shape: str = of.one(["every x any -> y any", "every x any -> x any -> y any", "x any -> y any"])
    by = of.one(["", " by k", " within 1 h", " by k within 1 h"])
    for number in range(of.size(200)):
        message = encode_message(SubscribePattern(str(number), Pattern(shape + by)))
        await desk.longest_s(peer, encode(Request(number, message, 2**30)))
        peer._scheduler._over_s = 0.0
    time_us, keys = wall_clock_us(), [*range(of.size(VALUES_MAX))]
    names = ["x"] * of.size(1_500) + ["y"] * of.size(50)
    size, longest_s = 0, 0.0
    for number, name in enumerate(names):
        envelope = Envelope(time_us=time_us + number - len(names))
        data = to_msgpack(Notification({name: number, "k": keys}, envelope=envelope))
        frame = encode(publish(number, 0, [data]))
        longest_s = max(longest_s, await desk.longest_s(publisher, frame))
        publisher._scheduler._over_s = 0.0
        size += len(frame)
        if number % 100 == 0 or name == "y":  # The time passes as by the clock of the broker.
            while router.due_us is not None:
                began_s = time.thread_time()
                due_us = max(time_us, router.due_us + 1)
                desk.broker.dispatcher.pass_time(due_us)
                longest_s = max(longest_s, time.thread_time() - began_s)
                began_s = time.thread_time()
                await asyncio.sleep(0)
                longest_s = max(longest_s, time.thread_time() - began_s)
    return longest_s, size


async def queueing(of: Choices) -> tuple[float, int]:
    """A request about queues with large or very many records, some of them acknowledged."""
    desk = Desk()
    host = desk.broker.logs.host
    for number in range(of.size(150)):
        host.create(f"q{number}", FilterSet("n any"), Retention(), is_durable=False)
    host.create("q", FilterSet("n any"), Retention(dead_letter="dead"), is_durable=False)
    size = of.size(QUEUED_BYTES // 16)
    count = min(of.size(50_000), QUEUED_BYTES // size) + 1
    data = to_msgpack(Notification({"n": 1, "text": "x" * size}))
    name: str = of.one(["q", "dead"])
    log = host.server.logs.log_of(name)
    log.append([data] * count, 1)
    apart = of.size(100) + 1
    log.acknowledge([(at, at + 1) for at in range(2, count, max(apart, count // 5_000))])
    request = of.one(
        [
            AskQueue(name),
            AskQueues(),
            PeekQueue(name),
            PurgeQueue(name),
            RedriveQueue("dead"),
            ReleaseQueue(name),
        ]
    )
    frame = encode(LogRequest(1, encode_durable(request)))
    longest_s = await desk.longest_s(desk.client(), frame)
    await desk.broker.logs.aclose()
    return longest_s, len(frame)


async def widening(of: Choices) -> tuple[float, int]:
    """Publications with very many attributes and values, plain or reliable, of several clients."""
    desk = Desk()
    for n in range(of.size(4)):
        frame = encode(subscribe(n, n, to_msgpack(FilterSet(f"x{n} any or x1 = 1")), 2**30))
        await desk.longest_s(desk.client(), frame)
    count = of.size(VALUES_MAX)
    few = max(1, min(of.size(VALUES_MAX), MAKING_WORK // 10 // count))  # More are refused.
    value: Any = of.one([1, "a", 0.5, [*range(few)], ["a", "b"], True])
    delivery = of.one(["best-effort", "reliable"])
    envelope = Envelope(publisher="p", delivery=delivery)
    each = to_msgpack(Notification({f"x{n}": value for n in range(count)}, envelope=envelope))
    many = [each] * max(1, min(of.size(400), CONTENT_BYTES_MAX // len(each)))
    publishers = [desk.client() for _ in range(of.size(4))]
    frame = encode(publish(1, 0, many))
    if delivery == "reliable":
        frame = encode(LogRequest(2, Raw(encode_durable(Publications(many)))))
        for n, peer in enumerate(publishers):
            hello = encode_durable(PublisherHello("p", f"p{n}"))
            await desk.longest_s(peer, encode(LogRequest(1, Raw(hello))))
    else:
        settings = of.one([None, UserSettings(), UserSettings(publish="x1 = 1 and x2 any")])
        for peer in publishers:
            peer.permit = None if settings is None else Permit(settings.principal("p"))
    longest_s = max([await desk.longest_s(peer, frame) for peer in publishers])
    await desk.broker.logs.aclose()
    return longest_s, len(frame)


async def posting(of: Choices) -> tuple[float, int]:
    """A body that is posted over HTTP, as far as it is decoded on the loop of the broker."""
    part = of.one(['"k@":@', '"k@":{"a":{}}', '"k@":["a","b"]', '"k@":"\\u0041@"', '"k":[[]]'])
    data = ",".join([part.replace("@", str(n)) for n in range(of.size(200_000))])
    text = '{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{' + data + "}}"
    body = of.one([text, f"[{text}]"])[: 4 * 2**20].encode()
    kind = of.one([STRUCTURED, BATCH])
    decode: Any = partial(list, notifications_in(Headers({"content-type": kind}), body))
    longest_s, began_s = 0.0, time.thread_time()
    task = asyncio.create_task(decode_content(decode, len(body)))
    while not task.done():
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.thread_time() - began_s)
        began_s = time.thread_time()
    with contextlib.suppress(ContradaError):
        task.result()
    return longest_s, len(body)


async def intruding(of: Choices) -> tuple[float, int]:
    """Very many strangers with wrong tokens."""
    users = {"desk": UserSettings(token=new_token("desk")[1])}
    desk = Desk(Broker(users=Users.of("users", users)))
    hello = encode(Hello(CLIENT, token=of.one(["desk.", "x.", ""]) + "A" * of.size(500)))
    began_s = time.thread_time()
    for _ in range(of.size(300)):
        desk.stranger(hello)  # All in one turn of the loop.
    return time.thread_time() - began_s, len(hello)


async def lagging(of: Choices) -> tuple[float, int]:
    """Publications for readers with little credit."""
    desk = Desk()
    rule = to_msgpack(FilterSet(of.one(["x any", "x >= 0 or x < 0"])))
    readers = [desk.client() for _ in range(of.size(50))]
    for peer in readers:
        for n in range(of.size(8)):
            await desk.longest_s(peer, encode(subscribe(n, n, rule, of.size(2_000))))
    publisher = desk.client()
    small = [to_msgpack(Notification({"x": n})) for n in range(of.size(2_000))]
    longest_s, size = 0.0, 0
    for number in range(of.size(30)):
        frame = encode(publish(number, 20, small))
        longest_s = max(longest_s, await desk.longest_s(publisher, frame))
        for peer in readers:
            peer.data_received(encode(Credit("0", of.size(2_000))))
        size += len(frame)
    return longest_s, size


KINDS: Final = (
    *(subscribing, publishing, many_small, fanning_out, assembling, deciding, reading, queueing),
    *(widening, posting, intruding, lagging),
)


@dataclass(order=True)
class Tried:
    """A request and its cost."""

    took_s: float
    size: int
    genes: list[float] = field(compare=False)


def _changed(genes: list[float], rng: random.Random) -> list[float]:
    return [
        rng.random() if rng.random() < 0.08 else min(max(each + rng.gauss(0, 0.03), 0), 0.999)
        for each in genes
    ]


def search(kind: Any, seconds: float, seed: int) -> list[Tried]:
    """The costliest that were found, the worst first."""
    rng = random.Random(seed)
    best: list[Tried] = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        new = not best or rng.random() < 0.4
        genes = [rng.random() for _ in range(GENES)]
        if not new:
            genes = _changed(rng.choice(best).genes, rng)
        gc.collect()
        gc.disable()  # Else a request would pay for the remains of all before it.
        try:
            took_s, size = asyncio.run(kind(Choices(genes)))
        except ContradaError:  # It is too much work to make it.
            continue
        finally:
            gc.enable()
        best = sorted([*best, Tried(took_s, size, genes)], reverse=True)[:KEPT]
    return best


def prepare() -> None:
    """Loads the extensions, and all modules of their first use."""
    for kind in (bit_sets.SetType, terms.UnifyType, filter_values.FilterType):
        kind().define()
    Filter("x unifies 'f(_X)' or y && 'a = 1 or b = 2'".partition(" or ")[0])
    sets.matches("a{3}b|c$").meets(sets.suffix("x", nocase=True))


def worst(seconds: float, seed: int) -> Iterator[tuple[str, list[Tried]]]:
    """The worst of each kind."""
    prepare()
    logging.disable()
    try:
        for kind in KINDS:
            yield kind.__name__, search(kind, seconds / len(KINDS), seed)
    finally:
        logging.disable(logging.NOTSET)


def main() -> int:
    """Searches, prints, and exits with the status of the limits."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    is_late = False
    for name, found in worst(seconds, seed):
        for each in found[:3]:
            per_byte = each.took_s / max(each.size, 1) * 1e6
            print(  # noqa: T201
                f"{name:12} {each.took_s * 1000:7.0f} ms {each.size:8} B {per_byte:8.1f} us/B"
            )
        is_late |= bool(found) and found[0].took_s > TURN_S_MAX
    return int(is_late)


if __name__ == "__main__":
    sys.exit(main())
