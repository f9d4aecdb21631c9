"""Events in and out over HTTP, and the answers to failed requests."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from contrada.errors import (
    ConnectionFailedError,
    DeliveryError,
    NotPermittedError,
    QuotaError,
    RefusedRequestError,
)
from contrada.integrations.http import Gateway, event_ingest, event_translation
from contrada.integrations.http.http_responses import refusal_of, token_of
from contrada.model import Envelope, Notification
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import Lines, event, serving

CLOUD_EVENT = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


@on_loop
async def test_events_are_published_and_streamed() -> None:
    """Posted events would be lost, or would not reach their subscribers."""
    async with serving() as it, it.service.subscribe("type = 'com.example.order'") as events:
        asked = {"filter": "data.n >= 1"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = Lines(response)
            one = await it.http.post("/events", content=json.dumps(event(0)), headers=CLOUD_EVENT)
            assert (one.status_code, one.json()) == (202, {"published": 1})
            many = json.dumps([event(n) for n in range(1, 300)])
            several = await it.http.post("/events", content=many, headers=BATCH)
            assert several.json() == {"published": 299}
            binary = {"ce-specversion": "1.0", "ce-id": "b", "ce-source": "/s", "ce-type": "t%20x"}
            body = b'{"n":  300}'
            binary["content-type"] = "application/json"
            await it.http.post("/events", content=body, headers=binary)
            for n in range(1, 300):
                assert json.loads((await lines.next())[2]) == event(n)
            last = json.loads((await lines.next())[2])
            assert (last["type"], last["data"]) == ("t x", {"n": 300})
        first = await anext(events)
        assert (first["id"], first["data.symbol"], first["data.n"]) == ("e0", "DIS", 0)
        assert it.gateway.counts.events == 301
        assert it.gateway._bodies.held_bytes == 0
        await until(lambda: it.gateway.counts.streams == 0)


@on_loop
async def test_a_plain_notification_goes_out_as_an_event() -> None:
    """HTTP clients would not see the notifications of other clients."""
    async with serving() as it:
        asked = {"filter": "price > 3"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            lines = Lines(response)
            envelope = await it.service.publish({"price": 4.5, "symbol": "DIS"})
            found = json.loads((await lines.next())[2])
            assert found["id"] == envelope.id
            assert found["source"] == f"/publishers/{envelope.publisher}"
            assert found["type"] == "contrada.notification"
            assert found["data"] == {"price": 4.5, "symbol": "DIS"}


@on_loop
async def test_filters_of_other_dialects() -> None:
    """A browser could not filter in the dialect of its CloudEvents."""
    async with serving() as it:
        asked = {"filter": "subject LIKE 'a%' AND type = 'com.example.order'", "dialect": "cesql"}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            lines = Lines(response)
            batch = [event(0, subject="b"), event(1), event(2, subject="ab")]
            await it.http.post("/events", content=json.dumps(batch), headers=BATCH)
            assert json.loads((await lines.next())[2])["id"] == "e2"


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        (CLOUD_EVENT, "{", 400, "JSON"),
        (CLOUD_EVENT, "[]", 400, "expected an object"),
        (CLOUD_EVENT, '{"specversion": "1.0"}', 400, "'id'"),
        (CLOUD_EVENT, json.dumps(event(0, specversion="0.3")), 400, "specversion"),
        (CLOUD_EVENT, json.dumps(event(0, time="yesterday")), 400, "time"),
        (CLOUD_EVENT, json.dumps(event(0, Bad="x")), 400, "Bad"),
        (CLOUD_EVENT, '{"id": "a", "id": "b"}', 400, "id"),
        (BATCH, "{}", 400, "expected an array"),
        (BATCH, json.dumps([event(0)] * 10_001), 400, "http_events_max"),
        ({"content-type": "application/cloudevents+avro"}, "", 415, "avro"),
        ({"content-type": "application/cloudevents+json; charset=latin-1"}, "{}", 415, "UTF-8"),
        ({"content-type": "application/json"}, '{"specversion": "1"}', 415, "ce-specversion"),
        ({"content-type": "application/json"}, "{", 400, "JSON"),
        ({"content-type": "application/json", "ce-source": ""}, "{}", 400, "source"),
        ({"content-type": "text/plain"}, "{}", 415, "ce-specversion"),
        ({}, "{}", 415, "ce-specversion"),
        ({"ce-specversion": "1.0", "ce-id": "%ff"}, "", 400, "UTF-8"),
        ({**CLOUD_EVENT, "content-encoding": "gzip"}, json.dumps(event(0)), 415, "gzip"),
        ({"ce-specversion": "1.0", "ce-id": "1"}, "", 400, "source"),
        ({"authorization": "Basic abc"}, "", 401, "Bearer"),
        ({"authorization": f"Bearer {'x' * 9_000}"}, "", 400, "TOKEN_CHARS_MAX"),
        ({"origin": "https://evil.example"}, "", 403, "evil.example"),
        ({"host": "evil.example"}, "", 421, "evil.example"),
    ],
)
def test_malformed_events_are_refused(
    headers: dict[str, str], body: str, status: int, said: str
) -> None:
    """Garbage would be published, or answered as a server error."""

    @on_loop
    async def post() -> None:
        async with serving() as it, it.service.subscribe("everything"):
            answer = await it.http.post("/events", content=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert said in answer.json()["error"]
            assert it.broker.statistics().published == 0

    post()


@on_loop
async def test_plain_json_is_the_data_of_an_event() -> None:
    """A program that posts JSON, as most do, would have to learn CloudEvents first."""
    kind = {"content-type": "application/json"}
    async with serving() as it, it.service.subscribe("data.price > 5 or data = 7") as events:
        for content, headers in (('{"price": 6}', {"ce-type": "order"}), ("7", {})):
            answer = await it.http.post("/events", content=content, headers=kind | headers)
            assert answer.json() == {"published": 1}, answer.text
        first, second = [await anext(events) for _ in range(2)]
        assert first["id"] != second["id"]
        assert isinstance(first, Notification)
        assert isinstance(second, Notification)
        assert (first["type"], first["source"]) == ("order", "/events")
        assert (second["type"], second["data"]) == ("contrada.json", 7)
        event_translation.event_json(first)


@on_loop
async def test_a_failure_counts_all_events_before_it() -> None:
    """A client that sends the rest again would publish some events twice."""

    async def publish_batch(frame: Sequence[Notification]) -> int:
        if len(frame) > 1:
            error = QuotaError("a publication would wait 37 s", 7)
            error.published = 2  # A frame above best effort is more than one publication.
            raise error
        return len(frame)

    certified = Envelope(delivery="certified")
    given = [Notification({"n": 0})]
    given += [Notification({"n": n}, envelope=certified) for n in (1, 2, 3)]
    access: Any = SimpleNamespace(
        service=SimpleNamespace(publish_batch=publish_batch), publishing=asyncio.Lock()
    )
    with pytest.raises(QuotaError) as failed:
        await event_ingest.publish(access, given)
    assert failed.value.published == 3


@on_loop
async def test_a_lone_surrogate_of_an_event_is_shown_as_its_escape() -> None:
    """The answer to a malformed event would be a fault of the broker."""
    async with serving() as it:
        given = json.dumps([event(1), event(2, datacontenttype="\ud800")])
        answer = await it.http.post("/events", content=given, headers=BATCH)
        assert (answer.status_code, answer.json()["index"]) == (400, 1)
        assert r"data of type \ud800 are text" in answer.json()["error"]


@on_loop
async def test_one_malformed_event_refuses_its_batch_with_its_index() -> None:
    """The sender would not know which event is malformed, or which were published."""
    async with serving() as it:
        batch = [event(0), event(1), event(2, source=""), event(3)]
        answer = await it.http.post("/events", content=json.dumps(batch), headers=BATCH)
        assert (answer.status_code, answer.json()["index"]) == (400, 2)
        assert "source" in answer.json()["error"]
        assert it.broker.statistics().published == 0


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({}, 400, "filter"),
        ({"filter": "a = 1 -> a = 2", "durable": "desk"}, 400, "not a pattern"),
        ({"filter": "price >"}, 400, "line 1"),
        ({"filter": "a = 1 and a = 2"}, 400, "no notification can match"),
        ({"filter": "a = 1", "dialect": "cobol"}, 400, "cesql"),
        ({"filter": "a = 1\nb = 2", "dialect": "cesql"}, 400, "one rule"),
        ({"filter": "a = 1", "when_full": "explode"}, 400, "drop-oldest"),
        ({"filter": "a = 1", "durable": "desk"}, 409, "no store"),
    ],
)
def test_malformed_stream_requests_are_refused(
    asked: dict[str, str], status: int, said: str
) -> None:
    """A client with a wrong request would wait for ever."""

    @on_loop
    async def get() -> None:
        async with serving() as it:
            answer = await it.http.get("/subscribe", params=asked)
            assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer

    get()


@on_loop
async def test_streams_end_when_the_gateway_stops() -> None:
    """Clients would see a broken connection, or the gateway would not stop."""
    asked = {"filter": "a > 0"}
    async with serving() as it, it.http.stream("GET", "/subscribe", params=asked) as response:
        lines = Lines(response)
        await it.service.publish({"a": 1})
        await lines.next()
        await it.gateway.stop()
        assert (await lines.next())[1] == "end"
        with pytest.raises(EOFError):
            await lines.next()


@on_loop
async def test_a_port_in_use_is_reported() -> None:
    """A broker would start without its configured port."""
    async with serving() as it:
        port = int(it.gateway.address.rpartition(":")[2])
        with pytest.raises(ConnectionFailedError, match="cannot listen"):
            async with Gateway(lambda _, peer: it.service, port=port):
                pass


@on_loop
async def test_healthz_and_cors() -> None:
    """An allowed page would be refused, or another page served."""
    async with serving(origins=["https://desk.example"]) as it:
        good = {"origin": "https://desk.example"}
        answer = await it.http.get("/healthz", headers=good)
        assert answer.json() == {"status": "ok"}
        assert answer.headers["access-control-allow-origin"] == "https://desk.example"
        asked = {**good, "access-control-request-method": "POST"}
        assert (await it.http.options("/events", headers=asked)).status_code == 200
        bad = await it.http.get("/healthz", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in bad.headers
        assert bad.status_code == 403
        asked = {"filter": "everything", "durable": "desk"}
        for site in ("cross-site", "same-site"):  # As a picture of a page, without an origin.
            picture = {"sec-fetch-site": site}
            bad = await it.http.get("/subscribe", params=asked, headers=picture)
            assert bad.status_code == 403
            asking = {**picture, **good}
            again = await it.http.get("/subscribe", params={"filter": "a ="}, headers=asking)
            assert again.status_code == 400
            assert (await it.http.get("/healthz", headers=picture)).status_code == 200


@on_loop
async def test_unknown_paths_are_answered_in_json() -> None:
    """A program that expects JSON would find plain text."""
    async with serving() as it:
        answer = await it.http.get("/event")
        assert (answer.status_code, "help http" in answer.json()["error"]) == (404, True)
        answer = await it.http.put("/events")
        assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")
        assert answer.json()["error"] == "'/events': found the method PUT, expected OPTIONS, POST"
        for path, methods in (
            ("/subscriptions", "GET, HEAD, POST"),
            ("/subscriptions/x", "DELETE, GET, HEAD"),
        ):
            assert (await it.http.put(path)).headers["allow"] == methods


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_a_foreign_host_name_is_refused_on_loopback(host: str) -> None:
    """DNS rebinding: a page could read the port by a name that is moved to this host later."""

    @on_loop
    async def ask() -> None:
        async with serving(host=host) as it:
            assert (await it.http.get("/healthz")).status_code == 200
            bad = await it.http.get("/healthz", headers={"host": "evil.example"})
            assert bad.status_code == 421

    ask()


@on_loop
async def test_no_redirect_names_the_host_of_a_request() -> None:
    """A page of another host could send a browser to itself by the address of this port."""
    async with serving() as it:
        foreign = {"host": "evil.example"}
        for path, status in (("/openapi.json/", 404), ("/metrics/", 404), ("/console", 421)):
            answer = await it.http.get(path, headers=foreign)
            assert (path, answer.status_code) == (path, status)
            assert "evil.example" not in answer.headers.get("location", "")
        assert (await it.http.get("/console")).headers["location"] == "/console/"


@on_loop
async def test_a_gateway_of_a_remote_broker() -> None:
    """A gateway would need its broker in the same process."""
    async with Broker(port=0) as broker:
        gateway = Gateway(lambda _, peer: TcpService(broker.address), port=0)
        async with gateway, httpx.AsyncClient(base_url=gateway.address) as client:
            answer = await client.post("/events", content=json.dumps(event(0)), headers=CLOUD_EVENT)
            assert answer.status_code == 202
            assert broker.statistics().published == 1


def test_tokens_are_read_from_headers_and_queries() -> None:
    """Another token would be passed on to the broker than the client has shown."""

    def token(query: str = "", scheme: str = "https", host: str = "", **headers: str) -> str:
        packed = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "query_string": query.encode(), "headers": packed}
        return token_of(Request({**scope, "scheme": scheme, "client": (host, 1)}))

    assert token() == ""
    assert token(authorization="Bearer ann.secret") == "ann.secret"
    assert token(authorization="bearer  ann.secret ") == "ann.secret"
    assert token("access_token=ann.secret") == "ann.secret"
    assert token("access_token=bob.other", authorization="Bearer ann.secret") == "ann.secret"
    assert token("access_token=ann.secret", "http", "127.0.0.1") == "ann.secret"
    with pytest.raises(RefusedRequestError, match="HTTPS"):
        token("access_token=ann.secret", "http", "192.0.2.1")


def test_broker_refusals_have_a_status() -> None:
    """A missing permission would be answered as a server error."""
    unknown = ConnectionFailedError("x", "no such user", fault="not permitted")
    assert refusal_of(unknown).status == 401
    assert refusal_of(unknown).headers["WWW-Authenticate"].startswith("Bearer")
    assert refusal_of(NotPermittedError("no")).status == 403
    assert refusal_of(ConnectionFailedError("x", "away")).status == 503


@on_loop
async def test_a_sender_of_events_may_ask_before_it_pushes() -> None:
    """Senders that validate a web-hook, as Event Grid does, could not deliver."""
    async with serving() as it:
        asked = {"WebHook-Request-Origin": "eventemitter.example.com", "WebHook-Request-Rate": "9"}
        answer = await it.http.options("/events", headers=asked)
        assert answer.status_code == 200
        assert answer.headers["webhook-allowed-origin"] == "eventemitter.example.com"
        assert answer.headers["webhook-allowed-rate"] == "*"
        assert "POST" in answer.headers["allow"]
        plain = await it.http.options("/events")
        assert plain.status_code == 200
        assert "webhook-allowed-origin" not in plain.headers
        page = await it.http.options("/events", headers={**asked, "Origin": "https://x.example"})
        assert page.status_code == 403


@on_loop
async def test_a_look_at_the_head_begins_no_durable_subscription(tmp_path: Path) -> None:
    """A link checker would begin one, whose log grows for ever."""
    async with serving(store=tmp_path / "events.db") as it:
        answer = await it.http.head("/subscribe", params={"filter": "id exists", "durable": "d"})
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert it.gateway.counts.streams == 0
        with pytest.raises(DeliveryError, match="no durable subscription 'd'"):
            await it.service.unsubscribe("d")
