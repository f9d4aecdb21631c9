"""Event streams: durable subscriptions, slow readers, and clients that leave."""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from contrada.integrations.http import GatewayLimits
from contrada.model import Envelope, Notification
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import Lines, serving


@on_loop
async def test_a_durable_stream_resumes_after_the_last_event_id(tmp_path: Path) -> None:
    """A browser that reconnects would miss events, or receive some twice."""
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
async def test_a_durable_stream_replaces_a_broken_one(tmp_path: Path) -> None:
    """Two streams would share the events, and those of the broken one would be lost."""
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
async def test_deleted_events_are_reported(tmp_path: Path) -> None:
    """A client that was away for long would believe that it has all events."""
    async with serving(
        tmp_path / "events.db", durable=True, limits=GatewayLimits(stream_replay_max=3)
    ) as it:
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
def test_invalid_positions_are_refused(after: str, tmp_path: Path) -> None:
    """A stream would begin at another position than requested."""

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
async def test_an_unknown_parameter_is_refused() -> None:
    """A typing error would be ignored, and the stream would not be durable."""
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
    """Opens a stream and never reads."""
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
async def test_a_slow_reader_delays_no_publisher_and_sees_its_losses() -> None:
    """Publishers would wait for it, its queue would grow without bound, or events would be lost
    silently.
    """
    async with serving(limits=GatewayLimits(stream_quiet_s=1_000.0)) as it:
        sock = await _slow_reader(it.gateway.address, "filter=n>=0")
        await until(lambda: it.gateway.counts.streams == 1)
        for _ in range(12):
            await it.service.publish_batch({"n": n, "text": "x" * 1_000} for n in range(2_000))
        await until(lambda: it.broker.statistics().dropped["queue full"] > 1_000)
        data = bytearray()
        loop = asyncio.get_running_loop()
        while b"event: dropped" not in data[-200_000:]:
            data += await loop.sock_recv(sock, 65_536)
        sock.close()
        await until(lambda: it.gateway.counts.streams == 0)
        assert it.gateway.counts.dropped["queue full"] > 0


@on_loop
async def test_a_reader_that_stops_is_cut() -> None:
    """A client that never reads would keep a connection and its memory for ever."""
    async with serving(limits=GatewayLimits(stream_wait_s=0.05)) as it:
        sock = await _slow_reader(it.gateway.address, "filter=n>=0")
        await until(lambda: it.gateway.counts.streams == 1)
        await it.service.publish_batch({"n": n, "text": "x" * 1_000} for n in range(2_000))
        await until(lambda: it.gateway.counts.streams == it.gateway._port.connections == 0)
        assert it.gateway.counts.dropped["too slow"] == 1
        sock.close()


@on_loop
async def test_a_quiet_stream_sends_comments() -> None:
    """A proxy would close it as idle."""
    asked = {"filter": "n >= 0"}
    async with (
        serving(limits=GatewayLimits(stream_quiet_s=0.01)) as it,
        it.http.stream("GET", "/subscribe", params=asked) as response,
    ):
        lines = response.aiter_lines()
        found = [await anext(lines) for _ in range(6)]
        assert found[0] == "retry: 2000"
        assert found.count(": quiet") >= 2


@on_loop
async def test_a_client_that_leaves_frees_its_resources() -> None:
    """Streams of disconnected clients would fill the broker."""
    async with serving() as it:
        for _ in range(20):
            async with it.http.stream("GET", "/subscribe", params={"filter": "n >= 0"}):
                pass
        await until(lambda: it.gateway.counts.streams == 0)
        await until(lambda: it.broker.statistics().subscriptions == 0)


@on_loop
async def test_a_stream_of_notifications_is_exact() -> None:
    """A client would see other values, envelopes or bodies than were published."""
    odd = {"n": 2**60, "f": float("nan"), "g": -1.5, "none": None, "b": b"\0", "s": ("x", "null")}
    given = [
        Notification({"s": "null"}),
        Notification({"f": float("inf"), "n": 1}),
        Notification.with_marks(odd, ["Tick", "Quote"], body=b"\xff", content_type="x/y"),
        Notification({}, envelope=Envelope(id="a", publisher="b", ttl_us=10**9, priority=7)),
    ]
    async with (
        serving() as it,
        it.service.subscribe("everything") as events,
        it.http.stream(
            "GET", "/subscribe", params={"filter": "everything", "form": "notification"}
        ) as response,
    ):
        assert response.status_code == 200, await response.aread()
        lines = Lines(response)
        await it.service.publish_batch(given)
        for _ in given:
            _, _, data = await lines.next()
            assert Notification.from_json(data).is_identical(await events.next(20))


@on_loop
async def test_a_stream_of_a_pattern_has_its_matches() -> None:
    """A program over HTTP could not see sequences, or would see their parts in another order."""
    sequence = "gust > 35 -> delay > 120 by origin within 5 min"
    parts = [{"gust": 40, "origin": "JFK"}, {"delay": 130, "origin": "JFK"}]
    plain, exact = {"filter": sequence}, {"filter": sequence, "form": "notification"}
    async with (
        serving() as it,
        it.http.stream("GET", "/subscribe", params=plain) as events,
        it.http.stream("GET", "/subscribe", params=exact) as notifications,
    ):
        for each in (parts[0], {"gust": 50, "origin": "EWR"}, parts[1]):
            await it.service.publish(each)
        _, _, data = await Lines(events).next()
        assert [each["data"] for each in json.loads(data)] == parts
        _, _, data = await Lines(notifications).next()
        found = [Notification.from_json(json.dumps(each)) for each in json.loads(data)]
        assert found == [*map(Notification, parts)]


@on_loop
async def test_a_client_acknowledges_by_hand(tmp_path: Path) -> None:
    """Records would be lost that a person has not dealt with, or come again after they have."""
    async with serving(tmp_path / "events.db", durable=True) as it:
        asked = {"filter": "n >= 0", "durable": "desk", "acknowledge": "manual"}
        acknowledge = "/queues/acknowledgements?name=desk&position="
        assert (await it.http.post(f"{acknowledge}1")).status_code == 409
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            assert response.status_code == 200, await response.aread()
            lines = Lines(response)
            await it.service.publish_batch({"n": n} for n in range(4))
            assert [(await lines.next())[0] for _ in range(4)] == ["1", "2", "3", "4"]
            for position, status in (("9", 400), ("x", 400), ("2", 200)):
                answer = await it.http.post(f"{acknowledge}{position}")
                assert answer.status_code == status, answer.text
        await until(lambda: it.gateway.counts.streams == 0)
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            lines = Lines(response)
            assert [(await lines.next())[0] for _ in range(2)] == ["3", "4"]
            for position, status in (("9", 400), ("3", 200)):
                answer = await it.http.post(f"/queues/nacks?name=desk&position={position}")
                assert answer.status_code == status, answer.text
            assert (await lines.next())[0] == "3"
        for wrong in ({"acknowledge": "later"}, {"form": "xml"}, {"durable": ""}):
            refused = await it.http.get("/subscribe", params={**asked, **wrong})
            assert refused.status_code == 400, refused.text


@on_loop
async def test_a_rule_with_a_residue_holds_no_event_back() -> None:
    """An event would wait in the broker for the next one that the rule selects."""
    text = "price > 100 AND n < 100 + price - price"
    async with serving() as it:
        asked = {"filter": text, "dialect": "cesql"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            assert response.status_code == 200, await response.aread()
            await it.service.publish_batch({"price": 200, "n": n} for n in (2, 300, 500))
            lines = Lines(response)
            found = [json.loads((await lines.next())[2])]
            await it.service.publish_batch({"price": 200, "n": n} for n in (400, 4))
            found.append(json.loads((await lines.next())[2]))
            assert [each["data"]["n"] for each in found] == [2, 4]
