"""Event streams: durable ones, slow readers, and who has left."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from contrada.integrations.http import event_stream
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import Lines, serving


@on_loop
async def test_a_durable_stream_goes_on_after_the_last_event(tmp_path: Path) -> None:
    """A browser that connects again would miss events, or get some twice."""
    async with serving(tmp_path / "events.db", durable=True) as it:
        asked = {"filter": "n >= 0", "durable": "desk"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            assert response.status_code == 200, await response.aread()
            lines = Lines(response)
            await it.service.publish_batch({"n": n} for n in range(10))
            found = [await lines.next() for _ in range(6)]
            assert [int(each[0]) for each in found] == [*range(1, 7)]
        await it.service.publish({"n": 10})
        after = {"last-event-id": "4"}  # 5 and 6 were lost on their way.
        async with it.http.stream("GET", "/subscribe", params=asked, headers=after) as response:
            assert response.status_code == 200, await response.aread()
            lines = Lines(response)
            found = [await lines.next() for _ in range(7)]
            assert [int(each[0]) for each in found] == [*range(5, 12)]
            assert [json.loads(each[2])["data"]["n"] for each in found] == [*range(4, 11)]
        await until(lambda: it.gateway.counts.streams == 0)


@on_loop
async def test_a_durable_stream_takes_the_place_of_the_one_that_broke(tmp_path: Path) -> None:
    """Two would share what comes, while the first is nobody's any more."""
    async with serving(tmp_path / "events.db", durable=True) as it:
        asked = {"filter": "n >= 0", "durable": "desk"}
        async with it.http.stream("GET", "/subscribe", params=asked) as first:
            lines = Lines(first)
            await it.service.publish({"n": 0})
            await lines.next()
            after = {"last-event-id": "1"}
            async with it.http.stream("GET", "/subscribe", params=asked, headers=after) as second:
                assert second.status_code == 200, await second.aread()
                await it.service.publish_batch({"n": n} for n in range(1, 5))
                lines = Lines(second)
                assert [(await lines.next())[0] for _ in range(4)] == ["2", "3", "4", "5"]


@on_loop
async def test_what_is_not_kept_any_more_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was away for long would believe that it has all."""
    monkeypatch.setattr(event_stream, "STREAM_REPLAY_MAX", 3)
    async with serving(tmp_path / "events.db", durable=True) as it:
        asked = {"filter": "n >= 0", "durable": "desk"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            lines = Lines(response)
            await it.service.publish_batch({"n": n} for n in range(10))
            for _ in range(10):
                await lines.next()
        await until(lambda: it.gateway.counts.streams == 0)
        after = {"last-event-id": "1"}
        async with it.http.stream("GET", "/subscribe", params=asked, headers=after) as response:
            lines = Lines(response)
            _, name, told = await lines.next()
            assert name == "dropped"
            first = int((await lines.next())[0])
            assert json.loads(told) == {"not kept": first - 2}


@pytest.mark.parametrize("after", ["x", "-1", "9" * 30, "77"])
def test_positions_that_there_are_not(after: str, tmp_path: Path) -> None:
    """A stream would begin somewhere else than was asked."""

    @on_loop
    async def ask() -> None:
        async with serving(tmp_path / "events.db", durable=True) as it:
            asked = {"filter": "n >= 0", "durable": "desk"}
            async with it.http.stream("GET", "/subscribe", params=asked):
                pass
            await until(lambda: it.gateway.counts.streams == 0)
            headers = {"last-event-id": after}
            answer = await it.http.get("/subscribe", params=asked, headers=headers)
            assert answer.status_code in (400, 409), answer
            assert answer.json()["error"].startswith(f"Last-Event-ID: found '{after}', "), answer

    ask()


@on_loop
async def test_a_parameter_that_there_is_not_is_refused() -> None:
    """A slip would be passed over, and the stream not be durable."""
    async with serving() as it:
        answer = await it.http.get("/subscribe", params={"filter": "n = 1", "duarble": "desk"})
        assert answer.status_code == 400
        told = answer.json()["error"]
        assert "duarble" in told
        assert "durable" in told
        # One of them would be passed over.
        answer = await it.http.get("/subscribe", params={"filter": ["n = 1", "n = 2"]})
        assert answer.status_code == 400
        assert answer.json()["error"] == "'filter': the parameter is there twice"


async def _slow_reader(address: str, query: str) -> socket.socket:
    """One that asks and never reads."""
    host, _, port = address.removeprefix("http://").partition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (host, int(port)))
    await loop.sock_sendall(
        sock, f"GET /subscribe?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    )
    return sock


@on_loop
async def test_a_slow_reader_holds_up_nobody_and_is_told_what_it_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Publishers would wait for it, its events take any memory, or be lost in silence."""
    monkeypatch.setattr(event_stream, "STREAM_QUIET_S", 1_000.0)
    async with serving() as it:
        sock = await _slow_reader(it.gateway.address, "filter=n>=0")
        await until(lambda: it.gateway.counts.streams == 1)
        for _ in range(12):
            await it.service.publish_batch({"n": n, "text": "x" * 1_000} for n in range(2_000))
        assert it.broker.statistics().dropped["queue full"] > 1_000
        data = bytearray()
        loop = asyncio.get_running_loop()
        while b"event: dropped" not in data[-200_000:]:
            data += await loop.sock_recv(sock, 65_536)
        sock.close()
        await until(lambda: it.gateway.counts.streams == 0)
        assert it.gateway.counts.dropped["queue full"] > 0


@on_loop
async def test_one_that_takes_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who never reads would keep a connection and its memory for ever."""
    monkeypatch.setattr(event_stream, "STREAM_WAIT_S", 0.05)
    async with serving() as it:
        sock = await _slow_reader(it.gateway.address, "filter=n>=0")
        await until(lambda: it.gateway.counts.streams == 1)
        await it.service.publish_batch({"n": n, "text": "x" * 1_000} for n in range(2_000))
        await until(lambda: it.gateway.counts.streams == 0)
        assert it.gateway.counts.dropped["too slow"] == 1
        assert it.gateway._port.connections == 0
        sock.close()


@on_loop
async def test_a_quiet_stream_says_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would take it for dead."""
    monkeypatch.setattr(event_stream, "STREAM_QUIET_S", 0.01)
    asked = {"filter": "n >= 0"}
    async with serving() as it, it.http.stream("GET", "/subscribe", params=asked) as response:
        lines = response.aiter_lines()
        found = [await anext(lines) for _ in range(6)]
        assert found[0] == "retry: 2000"
        assert found.count(": quiet") >= 2


@on_loop
async def test_whoever_leaves_leaves_nothing_behind() -> None:
    """Streams of clients that are gone would fill the broker."""
    async with serving() as it:
        for _ in range(20):
            async with it.http.stream("GET", "/subscribe", params={"filter": "n >= 0"}):
                pass
        await until(lambda: it.gateway.counts.streams == 0)
        await until(lambda: it.broker.statistics().subscriptions == 0)
