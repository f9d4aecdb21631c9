"""Servers of events over HTTP that carry the same load: POST requests, one stream of events.

The bodies are CloudEvents as JSON of some 260 bytes, posted over `CONNECTIONS` kept connections,
one request at a time on each; one subscriber reads them all as server-sent events. The client is
one plain process, the same for all. Contrada parses each event and has a content filter; peers pass
the bytes of a channel on (nchan), or parse them for a channel (faye).

nchan is a module of nginx, with one worker, without logs. It takes one event in a request. faye
runs on Node.js. A server that is not installed is left out.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

from bench.http_sender import KINDS, event
from bench.wire_load import find_program, running, spent

CONNECTIONS: Final = 4
IN_FLIGHT: Final = 5_000
"""Posted events that the subscriber has not read. Beyond it: it reads before more are posted."""

TIMEOUT_S: Final = 60.0
"""Seconds without an answer or an event. Beyond it: the run fails."""

MARK: Final = b'"order-'
"""The bytes that each event has once, in its id."""

NCHAN: Final = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class HttpServer(ABC):
    """A server of events."""

    name: str
    has_batches = True

    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return True

    @abstractmethod
    def command(self, port: int, folder: Path) -> list[str]:
        """Returns the command of a server that listens at the port."""

    @abstractmethod
    def body(self, events: list[object]) -> tuple[str, str, object]:
        """Returns the path, the media type and the JSON of a request that publishes events."""

    def stream(self, port: int) -> str:
        """Subscribes where this needs requests; returns the path of the stream."""
        return "/subscribe"

    def request(self, first: int, batch: int) -> bytes:
        """Returns a request that publishes some events."""
        events: list[object] = [event((first + n) % KINDS) for n in range(batch)]
        return post(*self.body(events))


class ContradaHttp(HttpServer):
    """The HTTP port of a broker."""

    name = "contrada"

    def command(self, port: int, folder: Path) -> list[str]:
        command = [sys.executable, "-m", "contrada", "serve", "--port", "0"]
        return [*command, "--http", str(port), "--store", "memory:"]

    def body(self, events: list[object]) -> tuple[str, str, object]:
        if len(events) == 1:
            return "/events", "application/cloudevents+json", events[0]
        return "/events", "application/cloudevents-batch+json", events

    def stream(self, port: int) -> str:
        return "/subscribe?when_full=block&filter=" + quote('data.side = "buy" and data.price > 3')


class Nchan(HttpServer):
    """nginx with nchan; its buffer holds all events in flight."""

    name = "nchan"
    has_batches = False

    def is_installed(self) -> bool:
        return NCHAN.exists() and find_program("nginx") is not None

    def command(self, port: int, folder: Path) -> list[str]:
        folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        kept = "".join(f"{each}_temp_path {folder}/{each};" for each in folders)
        file = folder / "nginx.conf"
        channel = "nchan_channel_id market"
        file.write_text(
            f"load_module {NCHAN}; daemon off; worker_processes 1; pid {folder}/pid;"
            " error_log stderr; events {} http {"
            f" access_log off; keepalive_requests 1000000000; client_body_buffer_size 1m; {kept}"
            f" nchan_shared_memory_size 256M; server {{ listen 127.0.0.1:{port};"
            f" location = /publish {{ nchan_publisher; {channel};"
            f" nchan_message_buffer_length {2 * IN_FLIGHT}; }}"
            f" location = /subscribe {{ nchan_subscriber eventsource; {channel};"
            " nchan_subscriber_first_message newest; } } }",
            "utf-8",
        )
        return ["nginx", "-c", str(file)]

    def body(self, events: list[object]) -> tuple[str, str, object]:
        (one,) = events
        return "/publish", "application/json", one


FAYE: Final = """
const server = require('http').createServer();
new (require('faye').NodeAdapter)({mount: '/bayeux'}).attach(server);
server.listen(Number(process.argv[1]), '127.0.0.1');
"""


class Faye(HttpServer):
    """faye, an installed package of Node.js: messages of Bayeux, in arrays."""

    name = "faye"

    def is_installed(self) -> bool:
        return faye_version() is not None

    def command(self, port: int, folder: Path) -> list[str]:
        return [*node(), "-e", FAYE, str(port)]

    def body(self, events: list[object]) -> tuple[str, str, object]:
        return "/bayeux", "application/json", [{"channel": "/m", "data": each} for each in events]

    def stream(self, port: int) -> str:
        kinds = ["eventsource"]
        handshake = {"channel": "/meta/handshake", "version": "1.0"}
        (answer,) = ask(port, "/bayeux", [{**handshake, "supportedConnectionTypes": kinds}])
        client = answer["clientId"]
        asked = {"channel": "/meta/subscribe", "clientId": client, "subscription": "/m"}
        (answer,) = ask(port, "/bayeux", [asked])
        assert answer["successful"], answer
        return f"/bayeux/{client}"


SERVERS: Final = (ContradaHttp(), Nchan(), Faye())


@cache
def node() -> tuple[str, ...]:
    """Returns the command of Node.js that finds packages of the whole machine."""
    if shutil.which("npm") is None:
        return ("node",)
    command = ["npm", "root", "--global"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return ("env", f"NODE_PATH={done.stdout.strip()}", "node")


@cache
def faye_version() -> str | None:
    """Returns the version of faye, None where it is not installed."""
    if shutil.which("node") is None:
        return None
    command = [*node(), "-p", "require('faye/package.json').version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def post(path: str, media_type: str, value: object) -> bytes:
    """Returns a request."""
    body = json.dumps(value).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {media_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def read_answer(sock: socket.socket) -> bytes:
    """Returns the body of an answer. Raises ConnectionError unless its status is 200 to 202."""
    read = b""
    while (head := read.find(b"\r\n\r\n")) < 0:
        read += receive(sock)
    found = _LENGTH.search(read, 0, head + 2)
    if found is None or read[9:12] not in (b"200", b"201", b"202"):
        raise ConnectionError(read.decode(errors="replace"))
    while len(read) < head + 4 + int(found[1]):
        read += receive(sock)
    return read[head + 4 :]


def receive(sock: socket.socket) -> bytes:
    """Returns the next bytes. Raises ConnectionError at the end."""
    if not (data := sock.recv(2**18)):
        raise ConnectionError("the server has closed a connection")
    return data


def connect(port: int) -> socket.socket:
    """Returns a connection."""
    sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(port: int, path: str, value: object) -> list[dict[str, object]]:
    """Returns the answer to one request."""
    with closing(connect(port)) as sock:
        sock.sendall(post(path, "application/json", value))
        answer: list[dict[str, object]] = json.loads(read_answer(sock))
        return answer


@dataclass
class EventStream:
    """A subscriber that counts events."""

    sock: socket.socket
    count: int = 0
    _end: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, port: int, path: str) -> "EventStream":
        """Begins a stream."""
        sock = connect(port)
        head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n"
        sock.sendall(head.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += receive(sock)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(answer.decode(errors="replace"))
        return cls(sock)

    def read(self) -> None:
        """Waits for bytes, and counts their events."""
        data = self._end + receive(self.sock)
        self.count += data.count(MARK)
        self._end = data[1 - len(MARK) :]


@dataclass(frozen=True, slots=True)
class HttpRun:
    """Events a second, and processor seconds of the server for each."""

    per_second: float
    server_s: float


class HttpLoad:
    """A running server with its subscriber."""

    def __init__(self, port: int, process: int, server: HttpServer, stack: ExitStack) -> None:
        self._port, self._process, self._server = port, process, server
        self._stream = EventStream.of(port, server.stream(port))
        stack.callback(self._stream.sock.close)
        self.sent = 0

    @property
    def read(self) -> int:
        """Events that the subscriber has read."""
        return self._stream.count

    def run(self, total: int, batch: int) -> HttpRun:
        """Posts so many events over new connections, and reads them all."""
        requests = [self._server.request(n * batch, batch) for n in range(CONNECTIONS)]
        with ExitStack() as stack:
            socks = [stack.enter_context(closing(connect(self._port))) for _ in requests]
            began_s, before_s = time.monotonic(), self._spent_s()
            for _ in range(total // batch // CONNECTIONS):
                for sock, said in zip(socks, requests, strict=True):
                    sock.sendall(said)
                for sock in socks:
                    read_answer(sock)
                self.sent += batch * CONNECTIONS
                while self.sent - self.read > IN_FLIGHT:
                    self._stream.read()
            while self.read < self.sent:
                self._stream.read()
            took_s, server_s = time.monotonic() - began_s, self._spent_s() - before_s
        if self.read > self.sent:
            raise ConnectionError(f"{self._server.name}: {self.read} events of {self.sent}")
        return HttpRun(total / took_s, server_s / total)

    def _spent_s(self) -> float:
        """Returns processor seconds of the server and of its workers."""
        workers = Path(f"/proc/{self._process}/task/{self._process}/children").read_text().split()
        return sum(spent(each)["server"] for each in (self._process, *map(int, workers)))


@contextmanager
def loaded(server: HttpServer) -> Iterator[HttpLoad]:
    """Runs a server with its clients."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        port, process = stack.enter_context(running(lambda port: server.command(port, folder)))
        yield HttpLoad(port, process, server, stack)
