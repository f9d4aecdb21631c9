"""The Subscriptions API: matching events are pushed to sinks, which may fail, and must be
public.
"""

import asyncio
import errno
import json
import os
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from contrada.errors import InputError, InvalidValueError
from contrada.integrations.http import GatewayLimits, push_service
from contrada.integrations.http.push_service import Pushes
from contrada.integrations.http.sink_rules import SinkRules
from contrada.integrations.http.sinks import PushAnswer, Sinks
from contrada.service.clock import wall_clock_us
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import LOCAL, event, serving
from tests.net.soon import SOON

Answering = Callable[[int], bytes]
"""The answer of a sink to its n-th request."""


class Sink:
    """An HTTP server that records the requests."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.methods: list[str] = []
        self.times_s: list[float] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.methods.append(head[0].split()[0])
                self.requests.append((headers, body))
                self.times_s.append(asyncio.get_running_loop().time())
                writer.write(self._answer(len(self.requests)))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def status(code: int, *headers: str) -> bytes:
    told = "".join(f"{each}\r\n" for each in headers)
    return f"HTTP/1.1 {code} X\r\ncontent-length: 0\r\n{told}\r\n".encode()


@asynccontextmanager
async def sink(answer: Answering = lambda _: status(204)) -> AsyncIterator[Sink]:
    it = Sink(answer)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"
    try:
        yield it
    finally:
        server.close()


async def post(it: Any, *events: dict[str, Any]) -> None:
    headers = {"content-type": "application/cloudevents-batch+json"}
    answer = await it.http.post("/events", content=json.dumps(events), headers=headers)
    assert answer.status_code == 202


def numbers_of(to: Sink) -> list[int]:
    """The numbers of the events that a sink was sent."""
    return [json.loads(each)["n"] for _, each in to.requests]


@on_loop
async def test_matching_events_are_pushed_in_order() -> None:
    """A sink would receive no events, or others than were published."""
    async with sink() as to, serving(sinks=LOCAL) as it:
        wanted = {
            "sink": to.address,
            "protocol": "HTTP",
            "types": ["com.example.order"],
            "filters": [{"sql": "subject LIKE 'a%'"}],
            "protocolsettings": {"headers": {"Authorization": "Bearer theirs"}},
        }
        begun = await it.http.post("/subscriptions", json=wanted)
        assert begun.status_code == 201, begun.text
        said = begun.json()
        assert said == {**wanted, "id": said["id"], "status": said["status"]}
        place = begun.headers["location"]
        assert (await it.http.get(place)).json() == begun.json()
        assert (await it.http.get("/subscriptions")).json() == [begun.json()]
        await post(it, *(event(n, subject="ab ü"[: n % 5]) for n in range(1, 11) if n % 5))
        await until(lambda: it.gateway.counts.pushed["delivered"] == 8)
        headers, body = to.requests[3]
        assert (headers["ce-id"], headers["ce-subject"]) == ("e4", "ab%20%c3%bc")
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "bearer theirs"
        assert headers["host"] == to.address.split("/")[2]
        assert json.loads(body) == {"n": 4, "symbol": "DIS"}
        numbers = numbers_of(to)
        assert numbers == [n for n in range(1, 11) if n % 5]
        assert (await it.http.delete(place)).status_code == 204
        assert (await it.http.get(place)).status_code == 404
        assert it.broker.statistics().subscriptions == 0
        assert it.gateway.counts.pushed == {"delivered": 8}


@on_loop
async def test_a_failed_push_is_retried() -> None:
    """One bad answer would lose an event, or a refused event would be pushed for ever."""
    answers = [status(500), status(429, "Retry-After: 0"), b"garbage\r\n\r\n", status(200)]
    answers += [status(400), status(200)]
    async with sink(lambda n: answers[n - 1]) as to, serving(sinks=LOCAL) as it:
        await it.http.post("/subscriptions", json={"sink": to.address})
        await post(it, event(1), event(2), event(3))
        await until(lambda: len(to.requests) == 6)
        numbers = numbers_of(to)
        assert numbers == [1, 1, 1, 1, 2, 3]
        await until(lambda: it.gateway.counts.pushed["delivered"] == 2)
        assert it.gateway.counts.pushed["refused"] == 1
        assert it.gateway.counts.pushed["tried again"] == 3


@on_loop
async def test_retry_after_delays_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy sink would receive requests without a pause."""
    waits: list[float] = []
    real = Pushes._wait_s

    def wait_s(*said: Any) -> float:
        waits.append(real(*said))
        return 0.0

    monkeypatch.setattr(Pushes, "_wait_s", wait_s)
    answers = [status(503, "Retry-After: 17"), status(503, "Retry-After: 999999"), status(200)]
    async with sink(lambda n: answers[n - 1]) as to, serving(sinks=LOCAL) as it:
        await it.http.post("/subscriptions", json={"sink": to.address})
        await post(it, event(1))
        await until(lambda: it.gateway.counts.pushed["delivered"] == 1)
        assert waits == [17.0, 3_600.0]


@on_loop
async def test_a_sink_that_is_gone_ends_its_subscription() -> None:
    """Unwanted events would be pushed until a person ends the subscription."""
    async with sink(lambda _: status(410)) as to, serving(sinks=LOCAL) as it:
        await it.http.post("/subscriptions", json={"sink": to.address})
        await post(it, event(1), event(2))
        await until(lambda: it.broker.statistics().subscriptions == 0)
        assert (await it.http.get("/subscriptions")).json() == []
        assert len(to.requests) == 1


@on_loop
async def test_subscriptions_survive_a_restart(tmp_path: Path) -> None:
    """Events published while the gateway is down, or the subscription itself, would be lost."""
    kept = tmp_path / "sinks.json"
    options: dict[str, Any] = {"subscriptions": kept, "durable": True, "sinks": LOCAL}
    answers = [status(200), status(503)]
    async with sink(lambda n: answers.pop(0) if answers else status(200)) as to:
        async with serving(tmp_path / "events.db", **options) as it:
            begun = await it.http.post("/subscriptions", json={"sink": to.address})
            assert begun.status_code == 201, begun.text
            await post(it, event(1), event(2))
            await until(lambda: len(to.requests) >= 2)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        async with serving(tmp_path / "events.db", **options) as it:
            (found,) = (await it.http.get("/subscriptions")).json()
            # Since when it pushes is of this gateway, maybe a second later.
            assert {**found, "status": {}} == {**begun.json(), "status": {}}
            await post(it, event(3))
            await until(lambda: 3 in numbers_of(to))
            await it.http.delete(begun.headers["location"])
        numbers = numbers_of(to)
        assert sorted(set(numbers)) == [1, 2, 3]
        assert numbers.count(2) >= 2  # It was refused at first.
        assert json.loads(kept.read_text()) == []


@on_loop
async def test_a_full_disk_ends_and_begins_no_subscription(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was ended would be back after a restart; or its client told of a bad request."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = tmp_path / "sinks.json"
    options: dict[str, Any] = {"subscriptions": kept, "durable": True, "sinks": LOCAL}
    async with sink() as to, serving(tmp_path / "events.db", **options) as it:
        begun = await it.http.post("/subscriptions", json={"sink": to.address})
        with monkeypatch.context() as patched:
            patched.setattr(push_service, "replace_file", full)
            answers = [
                await it.http.post("/subscriptions", json={"sink": to.address}),
                await it.http.delete(begun.headers["location"]),
            ]
        assert [each.status_code for each in answers] == [503, 503]
        assert "sinks cannot be written: No space left" in answers[0].json()["error"]
        (found,) = (await it.http.get("/subscriptions")).json()
        await until(lambda: it.broker.statistics().subscriptions == 1)
        await post(it, event(1))
        await until(lambda: numbers_of(to) == [1])
        assert found["id"] == json.loads(kept.read_text())[0]["id"] == begun.json()["id"]
        assert (await it.http.delete(begun.headers["location"])).status_code == 204
        assert json.loads(kept.read_text()) == []


@on_loop
async def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    """All subscriptions would be lost silently, and the file overwritten."""
    kept = tmp_path / "sinks.json"
    kept.write_text('[{"id": "x"')
    with pytest.raises(InputError, match=r"sinks\.json"):
        async with serving(subscriptions=kept):
            pass


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ({}, "sink"),
        ({"sink": "ftp://example.com/"}, "http://host"),
        ({"sink": "http:///x"}, "http://host"),
        ({"sink": "http://u:p@example.com/"}, "user and password"),
        ({"sink": "http://u:p@exa_mple!/"}, "user and password"),  # Its text is not repeated.
        ({"sink": "http://127.0.0.1/"}, "does not allow"),
        ({"sink": "http://[::1]:80/"}, "does not allow"),
        ({"sink": "http://169.254.169.254/latest"}, "does not allow"),
        ({"sink": "http://localhost:80/"}, "does not allow"),
        ({"sink": "http://LocalHost./"}, "does not allow"),
        ({"sink": "http://a.localhost/"}, "does not allow"),
        ({"sink": "http://2130706433/"}, "does not allow"),
        ({"sink": "http://0x7f.1/"}, "does not allow"),
        ({"sink": "http://127.1/"}, "does not allow"),
        ({"sink": "http://127.0.0.1./"}, "does not allow"),
        ({"sink": "http://example.com/", "id": "mine"}, "made here"),
        ({"sink": "http://example.com/", "protocol": "AMQP"}, "HTTP"),
        ({"sink": "http://example.com/", "filters": [{"regex": {"a": "b"}}]}, "dialect"),
        ({"sink": "http://example.com/", "surprise": 1}, "surprise"),
        ({"sink": "http://example.com/", "config": {"a": "\ud800"}}, "surrogate"),
        ({"sink": "http://example.com/", "protocolsettings": {"headers": {"Host": "x"}}}, "header"),
        (
            {"sink": "http://example.com/", "protocolsettings": {"headers": {"X-A": "a\r\nB: c"}}},
            "one line",
        ),
    ],
)
def test_malformed_subscriptions_are_refused(wanted: Any, said: str) -> None:
    """A subscription would be stored and fail later, or reach private addresses."""

    @on_loop
    async def ask() -> None:
        async with serving() as it:
            content = wanted if isinstance(wanted, str) else json.dumps(wanted)
            answer = await it.http.post("/subscriptions", content=content)
            assert answer.status_code == 400, answer.text
            assert said in answer.json()["error"]

    ask()


@on_loop
async def test_names_of_private_addresses_are_refused_on_connecting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A host name with a private address would reach it, even a name that the owner allows."""
    caplog.set_level("INFO", "contrada")
    async with sink() as to, serving(sinks=SinkRules(allowed=("public", "sink.example"))) as it:
        address = to.address.replace("127.0.0.1", "sink.example")
        resolve_here(monkeypatch, {"sink.example": "127.0.0.1"})
        begun = await it.http.post("/subscriptions", json={"sink": address})
        await post(it, event(1))
        await until(lambda: caplog.text.count("sink.example is at 127.0.0.1, which") > 2)
        assert to.requests == []
        assert "127.0.0.1" not in (await it.http.get(begun.headers["location"])).text


def resolve_here(monkeypatch: pytest.MonkeyPatch, known: dict[str, str]) -> None:
    """Resolves these names of `.example`, and no other."""
    real = socket.getaddrinfo

    def named(host: Any, *args: Any, **options: Any) -> Any:
        if str(host).endswith(".example") and host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(known.get(host, host), *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", named)


@on_loop
async def test_a_name_server_without_an_answer_delays_no_other_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One user could stop the pushes of all others, and the end of the broker's process."""
    real, asked, answers = socket.getaddrinfo, threading.Event(), threading.Event()

    def slow(host: Any, *args: Any, **options: Any) -> Any:
        if host == "slow.example":
            asked.set()
            answers.wait()
        return real("127.0.0.1" if host == "slow.example" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    try:
        async with sink() as to, serving(sinks=LOCAL) as it:
            await it.http.post("/subscriptions", json={"sink": "http://slow.example/"})
            await until(asked.is_set)
            await it.http.post("/subscriptions", json={"sink": to.address})
            await post(it, event(1))
            await until(lambda: len(to.requests) == 1)
    finally:
        answers.set()


ASKED = SinkRules(allowed=("127.0.0.0/8",), origin="events.example")


@on_loop
async def test_a_sink_gets_events_only_after_it_has_agreed() -> None:
    """Anybody could direct the events of a broker at a service that does not expect them."""
    answers = [
        status(405),
        status(200),
        status(200, "WebHook-Allowed-Origin: other.example"),
        status(200, "WebHook-Allowed-Origin: *", "WebHook-Allowed-Rate: 0"),
        status(200, "WebHook-Allowed-Origin: *", "WebHook-Allowed-Rate: many"),
    ]
    good = status(500, "webhook-allowed-origin: Events.example", "webhook-allowed-rate: *")
    agrees = asyncio.Event()

    def answer(number: int) -> bytes:
        if number <= len(answers) or not agrees.is_set():
            return answers[min(number, len(answers)) - 1]
        return good if to.methods[-1] == "OPTIONS" else status(204)

    async with sink(answer) as to, serving(sinks=ASKED) as it:
        wanted = {"sink": to.address, "protocolsettings": {"headers": {"X-Key": "k"}}}
        place = (await it.http.post("/subscriptions", json=wanted)).headers["location"]
        await post(it, event(1), event(2))
        await until(lambda: len(to.requests) > len(answers))
        shown = (await it.http.get(place)).json()["status"]
        assert (shown["state"], "answer" in shown) == ("waiting", False)
        assert "not agreed" in shown["error"]
        assert set(to.methods) == {"OPTIONS"}
        agrees.set()
        await until(lambda: it.gateway.counts.pushed["delivered"] == 2)
        assert to.methods[-3:] == ["OPTIONS", "POST", "POST"]
        origins = {headers["webhook-request-origin"] for headers, _ in to.requests}
        assert origins == {"events.example"}
        assert {headers["x-key"] for headers, _ in to.requests} == {"k"}
        assert (await it.http.get(place)).json()["status"]["state"] == "pushing"


@on_loop
async def test_a_sink_that_never_agrees_ends_its_subscription() -> None:
    """It would be asked for ever, and its log would grow."""
    limits = GatewayLimits(push_backoff=SOON, push_s_max=2.0)
    async with sink(lambda _: status(200)) as to, serving(sinks=ASKED, limits=limits) as it:
        begun = await it.http.post("/subscriptions", json={"sink": to.address})
        assert begun.status_code == 201
        await until(lambda: it.broker.statistics().subscriptions == 0)
        assert (await it.http.get("/subscriptions")).json() == []
        assert set(to.methods) == {"OPTIONS"}


@on_loop
async def test_the_rate_that_a_sink_allows_is_kept() -> None:
    """A sink would get more requests than it has agreed to."""
    agreed = status(200, "WebHook-Allowed-Origin: *", "WebHook-Allowed-Rate: 1200")
    async with sink(lambda n: agreed if n == 1 else status(204)) as to, serving(sinks=ASKED) as it:
        await it.http.post("/subscriptions", json={"sink": to.address})
        begun_s = asyncio.get_running_loop().time()
        await post(it, *(event(n) for n in range(4)))
        await until(lambda: it.gateway.counts.pushed["delivered"] == 4)
        assert to.times_s[4] - begun_s > 3 * 60 / 1200 - 0.02, "the clock may round"


UNASKED = SinkRules(allowed=ASKED.allowed, unasked=("public",))


@pytest.mark.parametrize("rules", [ASKED, UNASKED], ids=["asked", "unasked"])
def test_the_status_is_no_oracle(rules: SinkRules, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user could find out the names, the hosts and the ports of the network of the broker."""

    @on_loop
    async def ask() -> None:
        async with sink(lambda _: b"garbage\r\n\r\n") as broken, serving(sinks=rules) as it:
            known = {"sink.example": "127.0.0.1", "inner.example": "10.2.3.4"}
            resolve_here(monkeypatch, known)
            for place in (
                "http://unknown.example/",  # Has no address.
                "http://inner.example/",  # Is at a forbidden address.
                "http://sink.example:9/",  # Refuses the connection.
                broken.address.replace("127.0.0.1", "sink.example"),
            ):
                begun = await it.http.post("/subscriptions", json={"sink": place})
                assert begun.status_code == 201, begun.text
            await post(it, event(1))
            pushes = [*it.gateway._pushes._pushes.values()]
            if rules is UNASKED:
                await until(lambda: all(each.progress.unanswered_us for each in pushes))
            await until(lambda: len(broken.requests) > 3)
            now_us = wall_clock_us()
            for later_us, error in ((0, ""), (60_000_000, "no answer")):
                shown = [each.progress.to_json(now_us + later_us, 20_000_000) for each in pushes]
                for each in shown:
                    del each["since"]
                assert shown == shown[:1] * 4
                wanted = "not agreed" if rules is ASKED else error
                assert wanted in shown[0].get("error", "")

    ask()


@on_loop
async def test_values_that_no_header_can_hold_block_no_events() -> None:
    """One event that cannot be sent unchanged would end its subscription, or block it for a day."""
    types = ("text/plain; x=\u2603", "text/plain\r\nX-Evil: 1", " a\x00b ", "text/plain; x=é")
    async with sink() as to, serving(sinks=LOCAL) as it:
        address = to.address.replace("/in", "?a=1")
        await it.http.post("/subscriptions", json={"sink": address})
        await post(it, *(event(1, datacontenttype=each, data="x") for each in types), event(2))
        await until(lambda: len(to.requests) == 5)
        shown = [headers["content-type"] for headers, _ in to.requests]
        assert shown[:2] == ["text/plain; x=%e2%98%83", "text/plain%0d%0ax-evil: 1"]
        assert all("x-evil" not in headers for headers, _ in to.requests)
        assert {headers["host"] for headers, _ in to.requests} == {address[7:-4]}


@on_loop
async def test_the_status_shows_the_progress() -> None:
    """A sink that fails for a day would look like one without events."""
    answers = [status(204), status(404), status(503), b"garbage\r\n\r\n"]
    async with sink(lambda n: answers[min(n, 4) - 1]) as to, serving(sinks=LOCAL) as it:
        begun = await it.http.post("/subscriptions", json={"sink": to.address})

        async def shown() -> dict[str, Any]:
            found: dict[str, Any] = (await it.http.get(begun.headers["location"])).json()["status"]
            assert found.pop("since").endswith("Z")
            return found

        assert await shown() == {"state": "pushing", "delivered": 0, "dropped": 0}
        await post(it, event(1))
        await until(lambda: it.gateway.counts.pushed["delivered"] == 1)
        assert await shown() == {"state": "pushing", "delivered": 1, "dropped": 0, "answer": 204}
        await post(it, event(2))
        await until(lambda: it.gateway.counts.pushed["refused"] == 1)
        found = await shown()
        assert (found["state"], found["dropped"], found["answer"]) == ("pushing", 1, 404)
        assert "404" in found["error"]
        await post(it, event(3))
        await until(lambda: it.gateway.counts.pushed["tried again"] >= 2)
        found = await shown()
        assert (found["state"], found["delivered"]) == ("waiting", 1)
        assert found["error"]


@on_loop
async def test_a_sink_that_leads_back_makes_no_loop() -> None:
    """One event would be published again and again without a pause."""
    async with serving(sinks=LOCAL) as it:
        await it.http.post("/subscriptions", json={"sink": f"{it.gateway.address}/events"})
        await post(it, event(1))
        await until(lambda: it.gateway.counts.pushed["refused"] == 1)
        assert it.broker.statistics().published == 1
        assert it.gateway.counts.requests["POST /events", 508] == 1
        (shown,) = (await it.http.get("/subscriptions")).json()
        assert shown["status"]["answer"] == 508


@on_loop
async def test_pushes_of_one_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with many slow sinks would delay those of all others."""
    most, running, go = 0, 0, asyncio.Event()

    async def push(sinks: Sinks, *_: Any) -> PushAnswer:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return PushAnswer(204)

    monkeypatch.setattr(Sinks, "push", push)
    async with serving(sinks=LOCAL, limits=GatewayLimits(pushes_at_once_per_user_max=2)) as it:
        for _ in range(4):
            await it.http.post("/subscriptions", json={"sink": "http://127.0.0.1:9/"})
        other = {"authorization": "Bearer other.x"}
        await it.http.post("/subscriptions", json={"sink": "http://127.0.0.1:9/"}, headers=other)
        await post(it, event(1))
        await until(lambda: running == 3)  # Two of them, and the one of the other.
        go.set()
        await until(lambda: it.gateway.counts.pushed["delivered"] == 5)
        assert most == 3


@on_loop
async def test_a_fault_is_logged_and_does_not_end_the_subscription(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stop pushing, and no log would show it."""
    async with sink() as to, serving(sinks=LOCAL) as it:
        await it.http.post("/subscriptions", json={"sink": to.address})
        with monkeypatch.context() as broken:
            broken.setattr(push_service, "binary_event_of", lambda _: 1 / 0)
            await post(it, event(1))
            await until(lambda: "ZeroDivisionError" in caplog.text)
        async with asyncio.timeout(20):
            while not to.requests:  # It misses the events before it reads again.
                await post(it, event(2))


def test_malformed_sinks_are_refused() -> None:
    """A sink would be another address than a person reads there."""
    for text in (
        "http://example.com/\x00",
        "http://exa mple/",
        "http://x:99999/",
        "//x",
        "x" * 3000,
        "http://a..b/",
        f"http://{'a' * 64}.example/",
    ):
        with pytest.raises(InvalidValueError):
            Sinks().check(text)
