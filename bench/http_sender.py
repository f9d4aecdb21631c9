"""A plain client of HTTP in a process of its own: batches of CloudEvents over kept connections.

`python -m bench.http_sender PORT CONNECTIONS BATCH EVENTS` connects, and for each line of its input
posts so many events in batches, and prints the seconds of that.
"""

import json
import socket
import sys
import threading
from time import perf_counter
from typing import Final

KINDS: Final = 500
"""Events that differ; a client makes none while it is measured."""


def event(number: int) -> dict[str, object]:
    """One event of some 260 bytes."""
    return {
        "specversion": "1.0",
        "id": f"order-{number}",
        "source": "/shop/orders",
        "type": "com.example.order.placed",
        "time": f"2026-11-24T02:10:{number % 60:02}.5Z",
        "datacontenttype": "application/json",
        "data": {
            "symbol": f"S{number % 50}",
            "price": 12.5 + number,
            "count": number,
            "side": "buy",
        },
    }


def request(batch: int, first: int) -> bytes:
    """The bytes of one request."""
    body = json.dumps([event((first + n) % KINDS) for n in range(batch)]).encode()
    head = (
        "POST /events HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/cloudevents-batch+json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def send(sock: socket.socket, said: bytes, times: int) -> None:
    """Posts a request so often, one after the other."""
    for _ in range(times):
        sock.sendall(said)
        answer = sock.recv(65_536)
        while not answer.endswith(b"}"):
            answer += sock.recv(65_536)
        if not answer.startswith(b"HTTP/1.1 202"):
            raise ConnectionError(answer.decode())


def main(port: int, connections: int, batch: int, events: int) -> None:
    """See the module."""
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    requests = [request(batch, n * batch) for n in range(connections)]
    times = events // batch // connections
    print("ready", flush=True)
    for _ in sys.stdin:
        began_s = perf_counter()
        threads = [
            threading.Thread(target=send, args=(*each, times))
            for each in zip(socks, requests, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(perf_counter() - began_s, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
