"""An honest publisher beside clients that ask for as much as they can.

    python -m tests.net.honest [SECONDS]

A broker process has users. For each kind of attacker, `ATTACKERS` processes run at full speed, and
the honest publisher publishes `RATE` notifications a second. It prints the rates, and fails where
one is below half.
"""

import asyncio
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from contrada.connections import connect
from contrada.model import Envelope, Filter, Notification, Pattern
from contrada.model.codec import to_msgpack
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.frames import Hello, Request, encode
from contrada.net.wire.message_codec import encode_message
from contrada.routing.delegation import SubscribePattern
from tests.net.requests import publish, subscribe
from tests.net.test_neighbours import free_ports
from tests.own_operators import CONTRADA

RATE: Final = 300
ATTACKERS: Final = 2
WAITING_MAX: Final = 64
"""Unanswered publications of the honest publisher. Beyond it: it waits."""

BYTES_AT_ONCE: Final = 65_536


def _drain(peer: socket.socket) -> None:
    """Reads all that a broker sends, in a thread."""

    def read() -> None:
        with suppress(OSError):
            while peer.recv(BYTES_AT_ONCE):
                pass

    threading.Thread(target=read, daemon=True).start()


def _flood(peer: socket.socket, frame: bytes) -> None:
    """Publishes as fast as the broker answers: it ends who does not wait for answers."""
    while True:
        peer.sendall(frame)
        if not peer.recv(BYTES_AT_ONCE):
            raise ConnectionResetError


def _client(port: int, token: str) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port))
    peer.sendall(encode(Hello(CLIENT, "", {}, token)))
    return peer


def wide(port: int, _: int, token: str) -> None:
    """Publishes notifications of 4,000 attributes, 400 at once."""
    peer = _client(port, token)
    wide = to_msgpack(Notification({f"a{n}": n for n in range(4_000)}))
    frame = encode(publish(1, 0, [wide] * 400))
    _flood(peer, frame)


def patterns(port: int, _: int, token: str) -> None:
    """Watches 99 patterns of which each notification begins a run, and publishes."""
    peer = _client(port, token)
    for n in range(99):
        pattern = encode_message(SubscribePattern(str(n), Pattern("every n any -> z any")))
        peer.sendall(encode(Request(n, pattern, 2**30)))
    frame = encode(publish(100, 0, [to_msgpack(Notification({"n": n})) for n in range(100)]))
    _flood(peer, frame)


def fanning(port: int, _: int, token: str) -> None:
    """Publishes for 10,000 equal subscriptions of its own."""
    peer = _client(port, token)
    plain = to_msgpack(Filter("x = 1"))
    for n in range(10_000):
        peer.sendall(encode(subscribe(n, n, plain, 2**30)))
        if n % 100 == 0:
            peer.recv(BYTES_AT_ONCE)
    frame = encode(publish(1, 0, [to_msgpack(Notification({"x": 1}))] * 16))
    _flood(peer, frame)


def slow(port: int, _: int, token: str) -> None:
    """Subscribes to all with little credit, and grants none."""
    peers = [_client(port, token) for _ in range(20)]
    for peer in peers:
        _drain(peer)
        peer.sendall(encode(subscribe(1, 1, to_msgpack(Filter({})), 600)))
    threading.Event().wait()


def many(port: int, _: int, token: str) -> None:
    """Has 4,000 subscriptions to all, and reads none of them."""
    peer = _client(port, token)
    _drain(peer)
    for n in range(4_000):
        peer.sendall(encode(subscribe(n, n, to_msgpack(Filter({})), 600)))
    threading.Event().wait()


def strangers(port: int, _: int, token: str) -> None:
    """Connects with wrong tokens."""
    while True:
        with suppress(OSError):
            peers = [_client(port, token[:-4] + f"{n:04}") for n in range(50)]
            for peer in peers:
                peer.recv(BYTES_AT_ONCE)
                peer.close()


def bodies(_: int, port: int, token: str) -> None:
    """Posts 4 MiB of nested objects."""
    nested = [{"a": {"b": {"c": n}}} for n in range(150_000)]
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": nested}
    body = json.dumps(event)[: 4 * 2**20]
    headers = {"Content-Type": "application/cloudevents+json", "Authorization": f"Bearer {token}"}
    while True:
        with suppress(OSError, http.client.HTTPException):
            one = http.client.HTTPConnection("127.0.0.1", port)
            one.request("POST", "/events", body, headers)
            one.getresponse().read()
            one.close()


ATTACKS: Final[dict[str, Callable[[int, int, str], None]]] = {
    each.__name__: each for each in (wide, patterns, fanning, slow, many, strangers, bodies)
}


async def rate(address: str, token: str, seconds: float) -> float:
    """Notifications a second that were published and answered."""
    async with connect(address, token=token, publisher="honest") as service:
        running = set[asyncio.Task[Envelope]]()
        began_s = time.monotonic()
        count = 0
        while time.monotonic() < began_s + seconds:
            count += 1
            task = asyncio.create_task(service.publish({"honest": count}))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(max(0.0, began_s + count / RATE - time.monotonic()))
            if len(running) > WAITING_MAX:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*running)
        return count / (time.monotonic() - began_s)


def measured(seconds: float) -> dict[str, float]:
    """The rates alone, and beside each kind of attackers."""
    port, http_port = free_ports(2)
    address = f"contrada://127.0.0.1:{port}"
    with TemporaryDirectory() as folder, ExitStack() as stack:
        users = Path(folder) / "users.toml"
        tokens = {}
        for name in ("honest", "attacker"):
            rights = "--everything", "--publisher", "*"
            added = [*CONTRADA, "user", "add", name, "--users", str(users), *rights]
            made = subprocess.run(added, check=True, capture_output=True, text=True)
            tokens[name] = made.stdout.split()[-1]
        served = ["serve", "--port", str(port), "--http", str(http_port), "--store", "memory:"]
        broker = stack.enter_context(
            subprocess.Popen(
                [*CONTRADA, *served, "--users", str(users)], stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(broker.terminate)
        assert broker.stdout is not None
        assert broker.stdout.readline().strip() == address
        rates = {"alone": asyncio.run(rate(address, tokens["honest"], seconds))}
        for name in ATTACKS:
            with ExitStack() as attack:
                for _ in range(ATTACKERS):
                    command = [sys.executable, "-m", "tests.net.honest", name, str(port)]
                    process = subprocess.Popen([*command, str(http_port), tokens["attacker"]])
                    attack.callback(process.wait)
                    attack.callback(process.kill)
                # A publisher waits for slow readers once, then never for as long again.
                asyncio.run(rate(address, tokens["honest"], seconds))
                rates[name] = asyncio.run(rate(address, tokens["honest"], seconds))
    return rates


def main() -> int:
    """Returns 1 where an honest publisher is below half of its rate."""
    if len(sys.argv) > 2:
        while True:
            with suppress(OSError):  # The broker may end it.
                ATTACKS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    rates = measured(float((sys.argv[1:] or ["10"])[0]))
    for name, found in rates.items():
        sys.stdout.write(f"{name:12} {found:6.1f}/s\n")
    return any(found < RATE / 2 for found in rates.values())


if __name__ == "__main__":
    sys.exit(main())
