"""Tokens: a request has the permissions of its token's user."""

import asyncio
import json
import logging
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import websockets

from contrada.integrations.http import GatewayLimits
from contrada.integrations.http.event_translation import notification_of
from contrada.integrations.http.sinks import PushAnswer, Sinks
from contrada.net.broker import users as users_module
from contrada.net.broker.users import RightsSettings, Users, UserSettings
from contrada.net.wire import tokens as net_tokens
from contrada.net.wire.tokens import is_slow, new_token
from contrada.service.clock import wall_clock_us
from contrada.service.security.principals import Quotas
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import LOCAL, Lines, Served, event, serving
from tests.net.issuer import issuing
from tests.net.test_tokens import older_record_of

EVENT = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


@cache
def known() -> tuple[Users, dict[str, dict[str, str]], dict[str, str]]:
    """Returns users, and for each the headers and the token."""
    tokens = {name: new_token(name) for name in ("shop", "desk", "root")}
    order = "type = 'com.example.order'"
    said = {
        "shop": UserSettings(tokens["shop"][1], publish=f"{order} and data.n < 5"),
        "desk": UserSettings(tokens["desk"][1], subscribe=order, sinks=True),
        "root": UserSettings(tokens["root"][1], publish=True, subscribe=True, inspect=True),
        "old": UserSettings(older_record_of("old.secret")),
    }
    shown = {name: {"authorization": f"Bearer {token}"} for name, (token, _) in tokens.items()}
    return Users.of("users", said), shown, {name: token for name, (token, _) in tokens.items()}


@on_loop
async def test_forbidden_events_are_reported_and_the_others_published() -> None:
    """One event would refuse its batch, or be published without permission."""
    users, shown, tokens = known()
    async with (
        serving(users=users, token=tokens["root"]) as it,
        it.service.subscribe("everything") as events,
    ):
        batch = [event(n % 6) for n in range(600)]
        answer = await it.http.post(
            "/events", content=json.dumps(batch), headers={**BATCH, **shown["shop"]}
        )
        assert answer.status_code == 403
        told = answer.json()
        assert told["published"] == 500
        assert told["refused"] == [*range(5, 600, 6)]
        assert "may not publish" in told["error"]
        assert [(await anext(events))["data.n"] for _ in range(500)] == [*range(5)] * 100
        assert it.broker.statistics().published == 500


@on_loop
async def test_forbidden_notifications_above_best_effort_affect_no_others(tmp_path: Path) -> None:
    """One would refuse all, or end the WebSocket; or published ones would be among the refused."""
    users, shown, tokens = known()
    order = {"type": "com.example.order", "data.n": 1}
    wanted = [("certified", order), ("certified", {"n": 1}), ("best-effort", {"n": 2})]
    wanted += [("best-effort", order), ("certified", order), ("reliable", {"n": 3})]
    told = [
        {"contrada": 1, "notification": {"attributes": each, "envelope": {"delivery": delivery}}}
        for delivery, each in wanted
    ]
    async with (
        serving(tmp_path / "events.db", users=users, token=tokens["root"]) as it,
        it.service.subscribe("everything") as events,
        websockets.connect(
            it.gateway.address.replace("http:", "ws:") + "/ws", additional_headers=shown["shop"]
        ) as socket,
    ):
        await socket.send(json.dumps({"type": "publish", "id": "p", "notifications": told}))
        answer = json.loads(await socket.recv())
        assert (answer["status"], answer["published"]) == (403, 3)
        assert answer["refused"] == [1, 2, 5]
        assert [(await anext(events)).envelope.delivery for _ in range(3)] == [
            wanted[at][0] for at in (0, 3, 4)
        ]


@on_loop
async def test_an_unknown_token_is_answered_with_401() -> None:
    """A wrong token would be answered as a server error, or accepted."""
    users, shown, _ = known()
    wrong = {"authorization": shown["desk"]["authorization"] + "x"}
    async with serving(users=users, token=known()[2]["root"]) as it:
        unsaid = {"authorization": "Bearer"}
        for headers in (wrong, unsaid, {"authorization": "Bearer nobody.x"}, {}):
            for path in ("/subscribe?filter=everything", "/metrics", "/subscriptions"):
                answer = await it.http.get(path, headers=headers)
                assert answer.status_code == 401, (headers, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await it.http.get("/healthz")).status_code == 200
        assert len(it.gateway._accesses) == 0


@on_loop
async def test_a_refused_websocket_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Clients without a token could fill the logs with server errors."""
    users, shown, tokens = known()
    wrong = {"authorization": shown["desk"]["authorization"] + "x"}
    async with serving(users=users, token=tokens["root"]) as it:
        address = it.gateway.address.replace("http://", "ws://") + "/ws"
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(address, additional_headers=wrong)
        assert refused.value.response.status_code == 401
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("is_kept", [True, False])
def test_wrong_tokens_do_not_block_known_ones(
    is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with many invented tokens would lock out all users."""
    users, _, tokens = known()
    checks = threading.Event()

    def slowly(token: str, record: str) -> bool:
        return (not is_slow(record) or checks.wait(20)) and is_token(token, record)

    is_token = net_tokens.is_token

    @on_loop
    async def ask() -> None:
        async with serving(
            users=users,
            token=tokens["root"],
            limits=GatewayLimits(
                gateway_tokens_max=2, gateway_unproven_max=4, gateway_opening_max=2
            ),
        ) as it:

            async def asked(token: str) -> int:
                headers = {"authorization": f"Bearer {token}"}
                return (await it.http.get("/subscriptions", headers=headers)).status_code

            for name in ("desk", "shop"):
                assert await asked(tokens[name]) == 200
            if not is_kept:
                for token, access in list(it.gateway._accesses._opened.items()):
                    it.gateway._accesses._drop(token, access)
            monkeypatch.setattr(net_tokens, "is_token", slowly)
            wrong = [asyncio.ensure_future(asked(f"old.{n}")) for n in range(4)]
            try:
                await until(lambda: len(it.gateway._accesses._unproven) == 4)
                assert await asked("nobody.1") == 503
                for name in ("desk", "shop"):
                    assert await asyncio.wait_for(asked(tokens[name]), 10) == 200
            finally:
                checks.set()
            assert await asyncio.gather(*wrong) == [401] * 4
            assert await asked(tokens["root"]) == 200  # There is room for a known token.
            assert len(it.gateway._accesses) == 2

    ask()


@on_loop
async def test_a_revoked_token_is_not_known() -> None:
    """A removed user would keep the priority of known tokens for ever."""
    users, shown, tokens = known()
    async with serving(users=users, token=tokens["root"]) as it:
        assert (await it.http.get("/subscriptions", headers=shown["desk"])).status_code == 200
        assert tokens["desk"] in it.gateway._accesses.known
        left = {name: each for name, each in users.principals.items() if name != "desk"}
        it.broker.change_users(Users(left, {"root": users.records["root"]}))
        await until(lambda: it.broker.statistics().connections == 1)
        assert (await it.http.get("/subscriptions", headers=shown["desk"])).status_code == 401
        assert tokens["desk"] not in it.gateway._accesses.known


@on_loop
async def test_filters_are_checked_against_permissions() -> None:
    """A filter over HTTP would read events without permission."""
    users, shown, tokens = known()
    async with serving(users=users, token=tokens["root"]) as it:
        wide = await it.http.get(
            "/subscribe", params={"filter": "everything"}, headers=shown["desk"]
        )
        assert wide.status_code == 403
        assert (await it.http.get("/metrics", headers=shown["desk"])).status_code == 403
        assert (await it.http.get("/metrics", headers=shown["root"])).status_code == 200
        asked = {"filter": "type = 'com.example.order'", "access_token": tokens["desk"]}
        async with it.http.stream("GET", "/subscribe", params=asked) as response:
            assert response.status_code == 200
            lines = Lines(response)
            await it.service.publish({"type": "other"})
            await it.service.publish({"type": "com.example.order", "n": 1})
            assert json.loads((await lines.next())[2])["data"]["n"] == 1


@on_loop
async def test_streams_of_a_removed_user_end() -> None:
    """An open stream would continue for a removed user."""
    users, shown, tokens = known()
    async with serving(users=users, token=tokens["root"]) as it:
        asked = {"filter": "type = 'com.example.order'"}
        async with it.http.stream(
            "GET", "/subscribe", params=asked, headers=shown["desk"]
        ) as response:
            lines = Lines(response)
            left = {name: each for name, each in users.principals.items() if name != "desk"}
            records = {name: each for name, each in users.records.items() if name != "desk"}
            it.broker.change_users(Users(left, records))
            assert (await lines.next())[1] == "end"
        again = await it.http.get("/subscribe", params=asked, headers=shown["desk"])
        assert again.status_code == 401
        await until(lambda: it.gateway.counts.streams == 0)


@on_loop
async def test_subscriptions_to_sinks_are_seen_by_their_owner_alone() -> None:
    """One user would read, or end, the subscription of another."""
    users, shown, tokens = known()
    async with serving(users=users, token=tokens["root"], sinks=LOCAL) as it:
        wanted = {"sink": "http://127.0.0.1:9/", "types": ["com.example.order"]}
        begun = await it.http.post("/subscriptions", json=wanted, headers=shown["desk"])
        assert begun.status_code == 201, begun.text
        place = begun.headers["location"]
        assert (await it.http.get("/subscriptions", headers=shown["root"])).json() == []
        assert (await it.http.get(place, headers=shown["root"])).status_code == 404
        assert (await it.http.delete(place, headers=shown["root"])).status_code == 404
        assert len((await it.http.get("/subscriptions", headers=shown["desk"])).json()) == 1
        wide = await it.http.post(
            "/subscriptions", json={"sink": "http://127.0.0.1:9/"}, headers=shown["desk"]
        )
        assert wide.status_code == 403
        assert (await it.http.delete(place, headers=shown["desk"])).status_code == 204
        assert (await it.http.get("/subscriptions", headers=shown["desk"])).json() == []


@on_loop
async def test_only_users_with_the_right_have_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user could direct requests of the broker at other hosts, also after the owner forbids."""
    pushed: list[int] = []

    async def push(*_: Any) -> PushAnswer:
        pushed.append(1)
        return PushAnswer(204)

    monkeypatch.setattr(Sinks, "push", push)
    users, shown, tokens = known()
    desk = users.principals["desk"]
    others = Users({**users.principals, "desk": replace(desk, may_push=False)}, users.records)
    async with serving(users=others, token=tokens["root"], sinks=LOCAL) as it:
        wanted = {"sink": "http://127.0.0.1:9/", "types": ["com.example.order"]}

        async def ask() -> int:
            begun = await it.http.post("/subscriptions", json=wanted, headers=shown["desk"])
            assert begun.status_code == 201 or "users with `sinks` may" in begun.text
            return begun.status_code

        assert await ask() == 403
        it.broker.change_users(users)
        assert await ask() == 201
        (one,) = it.gateway._pushes._pushes.values()
        await it.service.publish({"type": "com.example.order"})
        await until(lambda: pushed == [1])
        it.broker.change_users(others)
        await until(lambda: "users with `sinks` may" in one.progress.error)
        assert one.progress.state == "waiting"
        it.broker.change_users(users)
        await until(lambda: it.broker.statistics().subscriptions == 1)
        await it.service.publish({"type": "com.example.order"})
        await until(lambda: pushed == [1, 1])


@on_loop
async def test_a_sink_waits_for_the_next_token_of_its_issuer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would end with its first token, or be that of another user; or pushes would go on."""
    pushed: list[str] = []

    async def push(*said: Any) -> PushAnswer:
        pushed.append(dict(said[2])["ce-id"])
        return PushAnswer(204)

    monkeypatch.setattr(Sinks, "push", push)
    token, record = new_token("root")
    traders = RightsSettings(jwt="Traders", publish=True, subscribe=True, sinks=True)
    said = {"root": UserSettings(token=record, publish=True, subscribe=True)}
    users = Users.of("users", said, {"traders": traders})
    options: dict[str, Any] = {"durable": True, "sinks": LOCAL}
    async with (
        issuing() as it,
        serving(tmp_path / "b.db", users=users, token=token, jwt=it.settings(), **options) as here,
    ):

        def shown(hours: int) -> dict[str, str]:
            made = it.token("bob", "Traders", seconds=3_600 * hours)
            return {"authorization": f"Bearer {made}"}

        wrong = {"authorization": f"Bearer {it.token('bob', 'Others')}"}
        wanted = {"sink": "http://127.0.0.1:9/"}
        refused = await here.http.post("/subscriptions", json=wanted, headers=wrong)
        assert refused.status_code == 401
        begun = await here.http.post("/subscriptions", json=wanted, headers=shown(1))
        assert begun.status_code == 201, begun.text
        (one,) = here.gateway._pushes._pushes.values()
        assert (one.owner, one.durable) == ("bob", f"bob/http-{one.id}")
        await post(here, shown(1), event(1))
        await until(lambda: pushed == ["e1"])
        passed_us = 2 * 3_600_000_000
        monkeypatch.setattr(users_module, "wall_clock_us", lambda: wall_clock_us() + passed_us)
        here.broker.change_users(users)  # Decides again about open connections.
        await until(lambda: one.progress.state == "waiting" and "expired" in one.progress.error)
        await here.service.publish(notification_of(event(2)))
        place = begun.headers["location"]
        assert (await here.http.get(place, headers=shown(1))).status_code == 401
        assert (await here.http.get(place, headers=shown(3))).status_code == 200
        await until(lambda: pushed[-1] == "e2")  # The first may be pushed again.


async def post(here: Served, shown: dict[str, str], *events: dict[str, Any]) -> None:
    """Publishes events over HTTP."""
    headers = {**BATCH, **shown}
    answer = await here.http.post("/events", content=json.dumps(events), headers=headers)
    assert answer.status_code == 202, answer.text


@on_loop
async def test_refusals_are_logged_with_user_and_address(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the log nor the answer would show the refused user and address."""
    users, shown, tokens = known()
    caplog.set_level(logging.INFO, "contrada")
    async with serving(users=users, token=tokens["root"]) as it:
        asked = {"filter": "everything"}
        answer = await it.http.get("/subscribe", params=asked, headers=shown["desk"])
        assert answer.json()["error"].startswith("this broker refused: ")
        (said,) = [each.args for each in caplog.records if "is refused a request" in each.msg]
        assert isinstance(said, dict)
        assert said["user"] == "desk"
        assert said["peer"].startswith("HTTP 127.0.0.1:")


@on_loop
async def test_quotas_hold_over_http_and_are_answered_with_429() -> None:
    """A user would evade its quotas by HTTP, or get an answer that means a fault of the server."""
    users, shown, tokens = known()
    quota = Quotas(connections=1, subscriptions=1, bytes_per_s=1)
    both = UserSettings(users.records["shop"], publish=True, subscribe=True, quota=quota)
    root = UserSettings(users.records["root"], inspect=True)
    said = Users.of("users", {"shop": both, "root": root})
    asked: dict[str, Any] = {"params": {"filter": "everything"}, "headers": shown["shop"]}
    async with serving(users=said, token=tokens["root"]) as it:
        headers = {**EVENT, **shown["shop"]}
        posted = [await it.http.post("/events", json=event(), headers=headers) for _ in range(2)]
        assert [each.status_code for each in posted] == [202, 429]
        assert "the quota bytes_per_s of the user 'shop' is 1" in posted[1].json()["error"]
        assert int(posted[1].headers["Retry-After"]) > 1
        async with it.http.stream("GET", "/subscribe", **asked) as response:
            assert response.status_code == 200
            more = await it.http.get("/subscribe", **asked)
            assert (more.status_code, more.headers.get("Retry-After")) == (429, None)
            assert "the quota subscriptions of the user 'shop' is 1" in more.json()["error"]
            metrics = (await it.http.get("/metrics", headers=shown["root"])).text
            assert 'contrada_quota_used{quota="shop subscriptions"} 1.0' in metrics
            assert 'contrada_quota_limits{quota="shop connections"} 1.0' in metrics
    full = UserSettings(users.records["shop"], subscribe=True, quota=Quotas(connections=0))
    async with serving(
        users=Users.of("users", {"shop": full, "root": root}), token=tokens["root"]
    ) as it:
        refused = await it.http.get("/subscribe", **asked)
        assert refused.status_code == 429
        assert "the quota connections of the user 'shop' is 0" in refused.json()["error"]


def logs_of(it: Served) -> int:
    """Returns the number of durable subscriptions of the broker."""
    return len(it.broker.logs.host.server.subscriptions())


def replaced(users: Users, name: str) -> tuple[Users, dict[str, str]]:
    """Returns the users with a new token for one of them, and its header."""
    token, record = new_token(name)
    shown = {"authorization": f"Bearer {token}"}
    return Users(users.principals, {**users.records, name: record}), shown


@pytest.mark.parametrize("path", ["/subscriptions", "/subscribe?filter=nothing", "delete"])
def test_a_sink_uses_the_new_token_of_its_owner(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stop pushing silently; or ending it would leave its log behind."""
    users, shown, tokens = known()
    kept = tmp_path / "sinks.json"
    pushed: list[int] = []

    async def push(*_: Any) -> PushAnswer:
        pushed.append(1)
        return PushAnswer(204)

    monkeypatch.setattr(Sinks, "push", push)

    @on_loop
    async def ask() -> None:
        options: dict[str, Any] = {"subscriptions": kept, "durable": True, "sinks": LOCAL}
        async with serving(tmp_path / "b.db", users=users, token=tokens["root"], **options) as it:
            wanted = {"sink": "http://127.0.0.1:9/", "types": ["com.example.order"]}
            begun = await it.http.post("/subscriptions", json=wanted, headers=shown["desk"])
            place = begun.headers["location"]
            others, now = replaced(users, "desk")
            it.broker.change_users(others)
            (one,) = it.gateway._pushes._pushes.values()
            await until(lambda: one.progress.state == "waiting")
            if path == "delete":
                assert (await it.http.delete(place, headers=now)).status_code == 204
                assert json.loads(kept.read_text()) == []
                assert logs_of(it) == 0
                return
            async with it.http.stream("GET", path, headers=now):
                await it.service.publish({"type": "com.example.order", "n": 1})
                await until(lambda: pushed == [1])
            assert json.loads(kept.read_text())[0]["token"] in now["authorization"]
            assert (await it.http.get(place, headers=now)).json()["status"]["state"] == "pushing"

    ask()


@pytest.mark.parametrize("is_under_way", [False, True])
@on_loop
async def test_the_sinks_of_a_removed_user_end(is_under_way: bool, tmp_path: Path) -> None:
    """Their logs would grow without an owner; or retried events would still be pushed."""
    users, shown, tokens = known()
    kept = tmp_path / "sinks.json"
    options: dict[str, Any] = {"subscriptions": kept, "durable": True, "sinks": LOCAL}
    async with serving(tmp_path / "b.db", users=users, token=tokens["root"], **options) as it:
        wanted = {"sink": "http://127.0.0.1:9/", "types": ["com.example.order"]}
        begun = await it.http.post("/subscriptions", json=wanted, headers=shown["desk"])
        assert begun.status_code == 201, begun.text
        assert logs_of(it) == 1
        if is_under_way:
            events = json.dumps([event(1)])
            await it.http.post("/events", content=events, headers={**BATCH, **shown["root"]})
            await until(lambda: it.gateway.counts.pushed["tried again"] > 0)
        left = {name: each for name, each in users.principals.items() if name != "desk"}
        it.broker.change_users(Users(left, users.records))
        await until(lambda: logs_of(it) == 0)
        assert json.loads(kept.read_text()) == []


@on_loop
async def test_sinks_of_the_anonymous_user(tmp_path: Path) -> None:
    """Anonymous users could have none with a store; or a refusal would not name the missing
    permission.
    """
    users, shown, tokens = known()
    said = {
        "anonymous": UserSettings(subscribe=True, sinks=True),
        "root": UserSettings(users.records["root"], publish=True, subscribe=True, inspect=True),
        "desk": UserSettings(
            users.records["desk"], subscribe=True, durable=["elsewhere"], sinks=True
        ),
    }
    options: dict[str, Any] = {"durable": True, "sinks": LOCAL}
    others = Users.of("users", said)
    async with serving(tmp_path / "b.db", users=others, token=tokens["root"], **options) as it:
        wanted = {"sink": "http://127.0.0.1:9/"}
        begun = await it.http.post("/subscriptions", json=wanted)
        assert begun.status_code == 201, begun.text
        assert (await it.http.delete(begun.headers["location"])).status_code == 204
        refused = await it.http.post("/subscriptions", json=wanted, headers=shown["desk"])
        assert refused.status_code == 403
        assert "its own name in `durable`" in refused.json()["error"]
        assert logs_of(it) == 0
