"""`/ws`: subscriptions and events as JSON messages."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets import Subprotocol
from websockets.asyncio.client import ClientConnection, connect

from contrada.integrations.http import GatewayLimits
from contrada.integrations.http.websocket_api import Conversation, _OpenSubscription
from contrada.model import Notification
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import Served, event, serving
from tests.integrations.http.test_tokens import known


@asynccontextmanager
async def talking(it: Served, **options: Any) -> AsyncIterator[ClientConnection]:
    address = it.gateway.address.replace("http://", "ws://") + "/ws"
    async with connect(address, **options) as socket:
        yield socket


async def say(socket: ClientConnection, **said: Any) -> Any:
    """Returns the answer to a message."""
    await socket.send(json.dumps(said))
    return json.loads(await socket.recv())


@on_loop
async def test_subscribing_publishing_and_leaving() -> None:
    """A page could not subscribe and publish over one connection."""
    async with serving() as it, talking(it) as socket:
        assert await say(socket, type="subscribe", id="s", filter="data.n > 0") == {
            "type": "ack",
            "id": "s",
        }
        await socket.send(
            json.dumps({"type": "publish", "id": "p", "events": [event(0), event(1)]})
        )
        told = [json.loads(await socket.recv()) for _ in range(2)]
        assert {"type": "event", "id": "s", "event": event(1)} in told
        assert {"type": "ack", "id": "p", "published": 2} in told
        assert (await say(socket, type="unsubscribe", id="s"))["type"] == "ack"
        await until(lambda: it.broker.statistics().subscriptions == 0)


@on_loop
async def test_matches_of_a_pattern_arrive_whole() -> None:
    """A page could not tell which events belong together."""
    async with serving() as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="data.n = 1 -> data.n = 2")
        await say(socket, type="publish", id="p", events=[event(1), event(2)])
        told = json.loads(await socket.recv())
        assert told == {"type": "match", "id": "s", "events": [event(1), event(2)]}


@on_loop
async def test_a_fault_ends_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page would wait for events in vain."""

    def faulty(of: Notification) -> Any:
        raise ZeroDivisionError(of)

    monkeypatch.setattr("contrada.integrations.http.websocket_api.event_of", faulty)
    async with serving() as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="n = 1")
        await it.service.publish({"n": 1})
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()


@on_loop
async def test_a_fault_is_not_forgotten_with_its_subscription() -> None:
    """Nobody would learn of a fault, if its client subscribes again before the connection ends."""

    async def fail() -> None:
        raise ZeroDivisionError

    unused: Any = None
    conversation = Conversation(unused, unused, unused, unused)
    writing = asyncio.create_task(fail())
    await asyncio.wait([writing])
    conversation._tasks["s"] = writing
    conversation._open["s"] = _OpenSubscription(AsyncExitStack(), "event", None)
    await conversation._forget_ended()
    with pytest.raises(ZeroDivisionError):
        await conversation._end([])


def id_of(said: str) -> str:
    """Returns the id of a message that an answer can repeat."""
    found = re.search('"id": "([a-z]{1,128})"', said)
    return found[1] if found else ""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"type": "ack", "id": "\\ud800"}', "a lone surrogate is not text"),
        ('{"type": "subscribe", "id": "s", "filter": "a > 1", "form": "\\ud800"}', "surrogate is"),
        ("{", "JSON"),
        ("[]", "object"),
        ('{"type": "dance"}', "dance"),
        ('{"type": "dance", "id": "d"}', "dance"),
        ('{"type": "subscribe", "id": "s", "filter": "a > 1", "flter": "b"}', "flter"),
        ('{"type": "subscribe", "id": "s", "durable": "d", "when_full": "block"}', "when_full"),
        ('{"type": "unsubscribe", "id": 7}', "str"),
        ('{"type": "subscribe", "id": "s"}', "filter"),
        ('{"type": "subscribe", "id": "s", "filter": "a >"}', "line 1"),
        ('{"type": "subscribe", "id": "s", "filter": "a > 1", "dialect": "x"}', "cesql"),
        ('{"type": "subscribe", "id": "s", "filter": "a > 1", "durable": "a\\ud800"}', "surrogate"),
        ('{"type": "subscribe", "id": "s", "durable": "a\\ud800"}', "surrogate"),
        ('{"type": "unsubscribe", "id": "s"}', "no subscription"),
        ('{"type": "ack", "id": "s", "position": 1}', "no subscription"),
        ('{"type": "publish", "id": "p", "events": [{}]}', "'id'"),
        ('{"type": "publish", "id": "p", "events": 7}', "array"),
        (json.dumps({"type": "unsubscribe", "id": "x" * 129}), "WEBSOCKET_ID"),
    ],
)
def test_a_failed_message_is_answered_and_the_conversation_goes_on(
    said: str, expected: str
) -> None:
    """One bad message would end a page's connection, or be ignored silently."""

    @on_loop
    async def talk() -> None:
        async with serving() as it, talking(it) as socket:
            await socket.send(said)
            told = json.loads(await socket.recv())
            assert told["type"] == "error"
            assert told["status"] == 400
            assert expected in told["error"]
            assert not re.search("codec|Error", told["error"]), "a name of Python's"
            assert told["id"] == id_of(said), "a client could not tell which one failed"
            assert (await say(socket, type="publish", id="p", events=[]))["published"] == 0

    talk()


@on_loop
async def test_a_durable_subscription_is_acknowledged_by_its_client(tmp_path: Path) -> None:
    """Events that a page has not processed would be lost with its connection."""
    async with serving(tmp_path / "events.db", durable=True) as it:
        asked = {"type": "subscribe", "id": "s", "durable": "desk"}
        async with talking(it) as socket:
            await say(socket, **asked, filter="n >= 0")
            await it.service.publish_batch({"n": n} for n in range(4))
            told = [json.loads(await socket.recv()) for _ in range(4)]
            assert [(it["position"], it["attempt"]) for it in told] == [(n, 1) for n in range(1, 5)]
            assert (await say(socket, type="ack", id="s", position=2))["position"] == 2
        async with talking(it) as socket:
            await say(socket, **asked)
            told = [json.loads(await socket.recv()) for _ in range(2)]
            assert [each["position"] for each in told] == [3, 4]


@on_loop
async def test_the_end_of_a_subscription_has_its_reason(tmp_path: Path) -> None:
    """A client would subscribe again, and so create a subscription that was removed."""
    async with serving(tmp_path / "events.db") as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="n >= 0", durable="desk")
        await it.service.unsubscribe("desk")
        end = json.loads(await socket.recv())
        assert (end["type"], end["id"], end["status"]) == ("end", "s", 409)
        assert end["error"] == "'desk': the subscription has ended"


@on_loop
async def test_a_conversation_ends_with_the_gateway() -> None:
    """A page would wait for events for ever."""
    async with serving() as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="n >= 0")
        await it.gateway.stop()
        assert json.loads(await socket.recv()) == {"type": "end", "id": "s"}
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()


@on_loop
async def test_ended_subscriptions_need_no_unsubscribe(tmp_path: Path) -> None:
    """A client whose durable subscriptions are removed now and then could soon subscribe no more,
    and an id would be in force for ever.
    """
    limits = GatewayLimits(websocket_subscriptions_max=2)
    async with serving(tmp_path / "events.db", limits=limits) as it, talking(it) as socket:
        await say(socket, type="subscribe", id="stays", filter="n >= 0")
        for name in ("s", "t", "t"):
            asked = {"type": "subscribe", "id": name, "filter": "n >= 0", "durable": "desk"}
            assert await say(socket, **asked) == {"type": "ack", "id": name}
            await it.service.unsubscribe("desk")
            assert json.loads(await socket.recv())["type"] == "end"
        # Its client may not have read the end before.
        assert (await say(socket, type="unsubscribe", id="t"))["type"] == "ack"
        assert (await say(socket, type="subscribe", id="stays", filter="n = 1"))["type"] == "error"
        await it.service.publish({"n": 1})
        assert json.loads(await socket.recv())["id"] == "stays"


@on_loop
async def test_unsettled_records_do_not_delay_the_end(tmp_path: Path) -> None:
    """The stop would wait for a client that settles nothing, and end without a word to it; one of
    a removed user would stay for ever.
    """
    async with serving(tmp_path / "events.db") as it, talking(it) as socket:
        asked = {"type": "subscribe", "id": "s", "filter": "n >= 0", "durable": "desk"}
        await say(socket, **asked, prefetch=1)
        await it.service.publish({"n": 1})
        assert json.loads(await socket.recv())["position"] == 1
        await it.gateway.stop()
        assert json.loads(await socket.recv())["type"] == "end"
        with pytest.raises(websockets.ConnectionClosedOK):
            await socket.recv()


@on_loop
async def test_a_websocket_at_an_unknown_path_is_answered_with_404() -> None:
    """A wrong path would look like a missing permission."""
    async with serving() as it:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with connect(it.gateway.address.replace("http", "ws") + "/socket"):
                pass
        answer = refused.value.response
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
        assert json.loads(answer.body)["error"] == (
            "'/socket': there is nothing here; `contrada help http` lists the paths"
        )


@on_loop
async def test_pages_of_other_origins_are_refused() -> None:
    """Any page that a person opens could read a broker on the same machine."""
    async with serving(origins=["https://desk.example"]) as it:
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with talking(it, origin="https://evil.example"):
                pass
        assert refused.value.response.status_code == 403
        async with talking(it, origin="https://desk.example") as socket:
            assert (await say(socket, type="publish", id="p", events=[]))["published"] == 0


@on_loop
async def test_an_oversized_message_ends_the_websocket() -> None:
    """One client could make the gateway hold any number of bytes."""
    async with serving() as it, talking(it, max_size=None) as socket:
        await socket.send("x" * (2**20 + 1))
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await until(lambda: it.gateway.counts.websockets == 0)


@on_loop
async def test_a_message_of_many_frames_ends_the_websocket() -> None:
    """The bound of bytes does not bound empty frames."""
    limits = GatewayLimits(websocket_message_bytes_max=2**13)
    async with serving(limits=limits) as it, talking(it) as socket:
        with suppress(websockets.ConnectionClosed):
            await socket.send([""] * 60_000)  # More than the system hands over at once.
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()
        await until(lambda: it.gateway._port.connections == 0)


@on_loop
async def test_pings_are_no_part_of_a_message() -> None:
    """A page that only listens would be cut after some days: its pongs would count."""
    limits = GatewayLimits(websocket_message_bytes_max=1_000)
    async with serving(limits=limits) as it, talking(it) as socket:
        for _ in range(100):
            await (await socket.ping(b"x" * 100))
        assert (await say(socket, type="publish", id="p", events=[]))["type"] == "ack"


@on_loop
async def test_pongs_for_a_client_that_does_not_read_are_bounded() -> None:
    """A client that only sends pings would fill the memory with the answers to them."""
    async with serving() as it, talking(it) as client:
        transport = client.transport
        transport.pause_reading()
        (connection,) = it.gateway._port.held
        frame = b"\x89\xfd" + bytes(4) + b"x" * 125
        while transport.get_write_buffer_size() < 2**20:  # Until the port reads no more.
            transport.write(frame * 1_000)
            await until(
                lambda: (
                    transport.get_write_buffer_size() == 0 or not connection._transport.is_reading()
                )
            )
        assert connection._transport.get_write_buffer_size() < 2**20
        transport.resume_reading()
        await until(lambda: transport.get_write_buffer_size() == 0)
        assert (await say(client, type="publish", id="p", events=[]))["type"] == "ack"


@on_loop
async def test_invalid_positions_are_refused(tmp_path: Path) -> None:
    """One number would end the WebSocket with all its subscriptions."""
    async with serving(tmp_path / "b.db") as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="a > 1", durable="desk")
        for position in (2**70, -(2**70), -1, 2**63):
            told = await say(socket, type="ack", id="s", position=position)
            assert told["type"] == "error", position
            assert told["status"] == 400


def token_protocols(token: str) -> list[Subprotocol]:
    """Returns the subprotocols of a client with a token."""
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return [Subprotocol("contrada"), Subprotocol(f"contrada.token.{encoded}")]


@on_loop
async def test_a_token_is_accepted_as_a_subprotocol() -> None:
    """A page could only send its token in the address, which proxies and browsers keep."""
    users, _, tokens = known()
    async with (
        serving(users=users, token=tokens["root"]) as it,
        talking(it, subprotocols=token_protocols(tokens["desk"])) as socket,
    ):
        assert socket.subprotocol == "contrada"
        order = "type = 'com.example.order'"
        assert (await say(socket, type="subscribe", id="s", filter=order))["type"] == "ack"


@pytest.mark.parametrize(
    ("token", "expected"), [("desk.wrong", "token"), ("désk/1.x", "token"), ("", "no token")]
)
def test_a_refusal_is_a_message_for_a_client_with_the_subprotocol(
    token: str, expected: str
) -> None:
    """A page could not tell a wrong token from a broker that is away: browsers hide the answer."""

    @on_loop
    async def talk() -> None:
        protocols = token_protocols(token) if token else [Subprotocol("contrada")]
        async with (
            serving(users=known()[0], token=known()[2]["root"]) as it,
            talking(it, subprotocols=protocols) as socket,
        ):
            told = json.loads(await socket.recv())
            assert (told["type"], told["id"], told["status"]) == ("error", "", 401)
            assert expected in told["error"]
            assert "wrong" not in told["error"], "the secret would be in a log"
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008

    talk()


@on_loop
async def test_a_malformed_token_is_refused_without_being_shown() -> None:
    """A damaged token would count as none, and the client as anonymous; or be logged."""
    async with serving() as it:
        protocols = [Subprotocol("contrada"), Subprotocol("contrada.token.secret!")]
        async with talking(it, subprotocols=protocols) as socket:
            told = json.loads(await socket.recv())
            assert told["status"] == 401
            assert "base64url" in told["error"]
            assert "secret!" not in told["error"]


@on_loop
async def test_another_origin_is_refused_with_the_subprotocol_too() -> None:
    """A page of another origin could open a WebSocket and read that a broker is there."""
    async with serving(origins=["https://desk.example"]) as it:
        with pytest.raises(websockets.InvalidStatus):
            async with talking(
                it, origin="https://evil.example", subprotocols=token_protocols("a")
            ):
                pass


@on_loop
async def test_notifications_are_exchanged_whole() -> None:
    """A client would lose the types of values, the body or the envelope."""
    given = Notification(
        {"n": 2**63 - 1, "b": b"\x00\xff", "x": 0.5}, body=b"\x01", content_type="a/b"
    )
    async with serving() as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", filter="n > 0", form="notification")
        await socket.send(
            json.dumps(
                {"type": "publish", "id": "p", "notifications": [json.loads(given.to_json())]}
            )
        )
        told = [json.loads(await socket.recv()) for _ in range(2)]
        (shown,) = [each["event"] for each in told if each["type"] == "event"]
        found = Notification.from_json(json.dumps(shown))
        assert (dict(found), found.body, found.content_type) == (dict(given), b"\x01", "a/b")
        assert found.envelope.publisher


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"notifications": [{}]}, "version 1"),
        ({"notifications": [{"contrada": 2, "notification": {}}]}, "version 1"),
        ({"notifications": [{"contrada": 1, "filter": "a > 1"}]}, "expected a notification"),
        ({"notifications": [7]}, "version 1"),
        ({"notifications": [{"contrada": 1, "notification": {"attributes": 7}}]}, "version 1"),
        ({"events": [event(data="\ud800")]}, "surrogate"),
        ({"notifications": [{"contrada": 1, "notification": {"attributes": {"a": {}}}}]}, "JSON"),
        ({"events": [{}], "notifications": [{}]}, "both"),
    ],
)
def test_malformed_notifications_are_refused(said: dict[str, Any], expected: str) -> None:
    """One client could end the WebSocket, or publish a part of its message."""

    @on_loop
    async def talk() -> None:
        async with serving() as it, talking(it) as socket:
            told = await say(socket, type="publish", id="p", **said)
            assert (told["type"], told["status"]) == ("error", 400)
            assert expected in told["error"]
            assert not re.search("codec|Error", told["error"]), "a name of Python's"
            assert it.broker.statistics().published == 0

    talk()


@on_loop
async def test_records_are_settled_one_by_one(tmp_path: Path) -> None:
    """A client with several workers would acknowledge the record of a slower one."""
    async with serving(tmp_path / "events.db", durable=True) as it, talking(it) as socket:
        await say(socket, type="subscribe", id="s", durable="desk", filter="n >= 0")
        await it.service.publish_batch({"n": n} for n in range(3))
        told = [json.loads(await socket.recv()) for _ in range(3)]
        assert (await say(socket, type="extend", id="s", positions=[1])) == {
            "type": "ack",
            "id": "s",
        }
        assert (await say(socket, type="ack", id="s", positions=[1, 3])) == {
            "type": "ack",
            "id": "s",
        }
        await socket.send('{"type": "nack", "id": "s", "positions": [2], "delay_s": 0}')
        told = [json.loads(await socket.recv()) for _ in range(2)]
        (again,) = [each for each in told if each["type"] == "event"]
        assert (again["position"], again["attempt"]) == (2, 2)
        wrong = await say(socket, type="nack", id="s", positions=[9])
        assert (wrong["status"], wrong["error"]) == (
            400,
            "9: expected a position that this reader got, up to 3",
        )


@on_loop
async def test_the_prefetch_bounds_unsettled_records(tmp_path: Path) -> None:
    """A slow page would hold a whole log, since a browser reads on for it."""
    async with serving(tmp_path / "events.db", durable=True) as it, talking(it) as socket:
        asked = {"type": "subscribe", "id": "s", "durable": "desk", "filter": "n >= 0"}
        assert (await say(socket, **asked, prefetch=0))[
            "error"
        ] == "0: prefetch: expected 1 to 10000"
        await say(socket, **asked, prefetch=2)
        await it.service.publish_batch({"n": n} for n in range(5))
        told = [json.loads(await socket.recv()) for _ in range(2)]
        # The answer is the next message: a third record would be before it.
        assert (await say(socket, type="publish", id="p", events=[]))["type"] == "ack"
        assert it.gateway.counts.delivered == 2
        await socket.send('{"type": "ack", "id": "s", "position": 2}')
        told = [json.loads(await socket.recv()) for _ in range(3)]
        assert [each.get("position") for each in told if each["type"] == "event"] == [3, 4]


@on_loop
async def test_only_a_durable_subscription_has_records() -> None:
    """A client would wait for records that it cannot settle."""
    async with serving() as it, talking(it) as socket:
        bad = await say(socket, type="subscribe", id="s", filter="a > 1", prefetch=2)
        assert "durable" in bad["error"]
        await say(socket, type="subscribe", id="s", filter="a > 1")
        for kind in ("ack", "nack", "extend"):
            told = await say(socket, type=kind, id="s", positions=[1])
            assert told["error"] == "'s': this subscription is not durable: it has no records"
