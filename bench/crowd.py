"""Thousands of subscribers in one process: sockets of few bytes, each with its own subscription.

`python -m bench.crowd PORT FIRST COUNT EACH` connects so many, subscriber n to `to = n and k >= 0`,
and prints "ready". For each line of its input it reads until each has received `EACH` more
notifications with `k` = 0, 1, 2 ..., and prints the number of subscribers with others.
"""

import resource
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import contrada as ct
from contrada.model.codec import from_msgpack
from contrada.net.wire.frames import (
    Delivery,
    FrameReader,
    Hello,
    Ping,
    Pong,
    Reply,
    Request,
    encode,
)
from contrada.net.wire.message_codec import encode_message
from contrada.routing.router_messages import Subscribe

AT_ONCE: Final = 500
CREDIT: Final = 2**30
SPARE: Final = 200
"""Files that a process has open beside its connections."""

HELLO: Final = encode(Hello("client"))


def allow_files(count: int) -> None:
    """Lets this process, and those that it starts, have so many connections. Raises OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise OSError(f"{wanted} open files are wanted, the hard limit (ulimit -Hn) is {hard}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(slots=True, eq=False)
class Subscriber:
    """One connection, and its received bytes."""

    number: int
    sock: socket.socket
    reader: FrameReader = field(default_factory=FrameReader)
    answers: int = 0
    came: int = 0
    is_wrong: bool = False

    @classmethod
    def at(cls, port: int, number: int) -> "Subscriber":
        """One that has asked, and not been answered."""
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(HELLO + encode(Request(2, encode_message(subscribe(number)), CREDIT)))
        return cls(number, sock)

    def read(self) -> None:
        """Takes the received bytes."""
        data = self.sock.recv(65_536)
        if not data:
            raise ConnectionError(f"subscriber {self.number} was closed")
        self.reader.feed(data)
        while (frame := self.reader.next()) is not None:
            match frame:
                case Hello() | Reply(code=""):
                    self.answers += 1
                case Ping(token):
                    self.sock.sendall(encode(Pong(token)))
                case Delivery():
                    self.is_wrong |= frame.dropped > 0
                    for each in frame.notifications:
                        found = from_msgpack(each)
                        assert isinstance(found, ct.Notification)
                        expected = (self.number, self.came)
                        self.is_wrong |= (found["to"], found["k"]) != expected
                        self.came += 1
                case _:
                    raise ConnectionError(f"subscriber {self.number} got {frame}")


def subscribe(number: int) -> Subscribe:
    return Subscribe("1", ct.FilterSet(f"to = {number} and k >= 0"))


def read_until(
    watched: selectors.BaseSelector, waiting: set[Subscriber], enough: str, count: int
) -> None:
    """Reads all until each of these has enough."""
    while waiting:
        for key, _ in watched.select():
            each: Subscriber = key.data
            each.read()
            if getattr(each, enough) >= count:
                waiting.discard(each)


def main(port: int, first: int, count: int, each: int) -> None:
    """See the module."""
    allow_files(count)
    watched = selectors.DefaultSelector()
    crowd: list[Subscriber] = []
    for begin in range(first, first + count, AT_ONCE):
        few = [Subscriber.at(port, n) for n in range(begin, min(begin + AT_ONCE, first + count))]
        for one in few:
            watched.register(one.sock, selectors.EVENT_READ, one)
        read_until(watched, set(few), "answers", 2)
        crowd += few
    print("ready", flush=True)
    total = each
    for _ in sys.stdin:
        read_until(watched, set(crowd), "came", total)
        wrong = sum(one.is_wrong or one.came != total for one in crowd)
        print(wrong, flush=True)
        total += each


# --- the broker and its crowd -------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A broker in a process of its own."""

    pid: int
    address: str

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address.rsplit(":", 1)[1])

    @property
    def rss_bytes(self) -> int:
        """Its resident memory."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))

    @property
    def cpu_s(self) -> float:
        """Its time of the processor."""
        text = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / 100


@contextmanager
def broker(*command: str) -> Iterator[Process]:
    """A broker, or another server that prints its address."""
    serve = (
        "-c",
        "from contrada.cli import main; main()",
        "serve",
        "--port",
        "0",
        "--store",
        "memory:",
    )
    with subprocess.Popen(
        [sys.executable, *(command or serve)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Process(process.pid, process.stdout.readline().strip())
        finally:
            process.terminate()


class Crowd:
    """Several processes of subscribers."""

    def __init__(self, processes: list["subprocess.Popen[str]"]) -> None:
        self._processes = processes
        self._hear()

    def _hear(self) -> list[str]:
        return [each.stdout.readline().strip() for each in self._processes if each.stdout]

    def ask(self) -> None:
        """Lets the subscribers read."""
        for each in self._processes:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()

    def wrong(self) -> list[int]:
        """The number of each with wrong notifications, once all have received theirs."""
        return list(map(int, self._hear()))


@contextmanager
def crowd(port: int, counts: list[int], each: int) -> Iterator[Crowd]:
    """So many subscribers in each of some processes, all in force."""
    with ExitStack() as stack:
        processes, first = [], 0
        for count in counts:
            numbers = map(str, (port, first, count, each))
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.crowd", *numbers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
            first += count
        yield Crowd(processes)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
