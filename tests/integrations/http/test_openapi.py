"""`/openapi.json` is complete, valid and true."""

import json
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from starlette.routing import Mount, Route, WebSocketRoute

from contrada.integrations.http.openapi import OPERATIONS, openapi_json
from tests.asynchronous import on_loop
from tests.integrations.http.conftest import LOCAL, Served, event, serving
from tests.integrations.http.test_tokens import known

DOCUMENT: dict[str, Any] = json.loads(openapi_json())


def test_the_document_is_valid() -> None:
    """Generators of clients would refuse it."""
    validate(DOCUMENT)


@on_loop
async def test_the_document_has_the_routes_of_the_port() -> None:
    """A route would be missing in the document, or described and not there."""
    async with serving() as it:
        found: set[tuple[str, str]] = set()
        for route in it.gateway._routes():
            if isinstance(route, Route):
                assert route.methods is not None
                # Of GET it answers HEAD by itself.
                implied = {"HEAD"} if "HEAD" not in OPERATIONS.get(route.path, {}) else set()
                found |= {(route.path, each) for each in route.methods - implied}
            elif isinstance(route, WebSocketRoute):
                found.add((route.path, "GET"))
            else:
                assert isinstance(route, Mount)
                assert route.path == "/console", "its files are no operations"
    found.discard(("/{path:path}", "GET"))  # It refuses.
    found = {each for each in found if each[0] != "/" and not each[0].startswith("/console")}
    described = {(path, method) for path, methods in OPERATIONS.items() for method in methods}
    assert described - {("/contrada", "GET")} == found, "without a broker's own port"


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (path, method)
        for path, methods in OPERATIONS.items()
        for method, operation in methods.items()
        if any(each["in"] == "query" for each in operation.parameters)
    ],
)
def test_the_parameters_are_those_of_the_port(path: str, method: str) -> None:
    """A client would send a parameter that the port refuses, or not know one."""

    @on_loop
    async def ask() -> None:
        async with serving() as it:
            answer = await it.http.request(method, f"{path}?stranger=1")
            named = answer.json()["error"].partition("there are ")[2].split(", ")
            operation = OPERATIONS[path][method]
            described = [each["name"] for each in operation.parameters if each["in"] == "query"]
            assert sorted(named) == sorted([*described, "access_token"])

    ask()


def check(method: str, path: str, answer: Any) -> None:
    """Checks an answer against its schema in the document."""
    response = DOCUMENT["paths"][path][method.lower()]["responses"][str(answer.status_code)]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][str(answer.status_code)]
    if not answer.content:
        assert "content" not in response
        return
    media = answer.headers["content-type"].partition(";")[0]
    schema = {**response["content"][media]["schema"], "components": DOCUMENT["components"]}
    OAS31Validator(schema).validate(answer.json() if media == "application/json" else answer.text)


async def ask(it: Served, method: str, path: str, **options: Any) -> Any:
    """Returns an answer that the document describes."""
    name = options.pop("at", path)
    answer = await it.http.request(method, name, **options)
    check(method, path, answer)
    return answer


@on_loop
async def test_answers_are_as_described(tmp_path: Any) -> None:
    """A client that was generated from the document would refuse the port's answers."""
    async with serving(tmp_path / "events.db", durable=True, sinks=LOCAL) as it:
        async with it.service.subscribe("n any", durable="desk"):
            pass
        batch = {"content-type": "application/cloudevents-batch+json"}
        await it.service.publish({"n": 1})
        for content, status in (([event(1)], 202), ([{}], 400)):
            options = {"content": json.dumps(content), "headers": batch}
            assert (await ask(it, "POST", "/events", **options)).status_code == status
        odd = await ask(it, "POST", "/events", content="x", headers={"content-type": "a/b"})
        assert odd.status_code == 415
        desk = {"params": {"name": "desk"}}
        assert (await ask(it, "GET", "/queues")).json()["queues"]
        assert (await ask(it, "GET", "/queues", **desk)).json()["unread"] == 1
        assert (await ask(it, "GET", "/queues/records", **desk)).json()["records"]
        await ask(it, "POST", "/queues/release", **desk)
        assert (await ask(it, "POST", "/queues/redrive", **desk)).status_code in (200, 409)
        both = {"params": {"name": "desk", "position": 1}}
        assert (await ask(it, "POST", "/queues/nacks", **both)).status_code == 409
        assert (await ask(it, "POST", "/queues/acknowledgements", **both)).status_code == 409
        assert (await ask(it, "DELETE", "/queues/records", **desk)).json() == {"purged": 1}
        assert (await ask(it, "DELETE", "/queues", **desk)).status_code == 204
        sink = {"sink": "http://127.0.0.1:9/", "types": ["never"]}
        push = (await ask(it, "POST", "/subscriptions", json=sink)).json()
        await ask(it, "GET", "/subscriptions")
        one, at = "/subscriptions/{id}", f"/subscriptions/{push['id']}"
        await ask(it, "GET", one, at=at)
        assert (await ask(it, "DELETE", one, at=at)).status_code == 204
        assert (await ask(it, "GET", one, at=at)).status_code == 404
        for path in ("/healthz", "/openapi.json", "/metrics"):
            await ask(it, "GET", path)
        await ask(it, "OPTIONS", "/events")
        assert (await ask(it, "GET", "/subscribe", params={"filter": "a >"})).status_code == 400


@on_loop
async def test_anyone_may_read_the_document_and_it_has_no_secret() -> None:
    """A generator of clients would need a token, or a stranger learn names of this broker."""
    users, _, tokens = known()
    async with serving(users=users, token=tokens["root"]) as it:
        answer = await it.http.get("/openapi.json")
        assert answer.status_code == 200
        assert answer.content == openapi_json()
        for secret in (*tokens, *tokens.values(), it.gateway.address):
            assert f'"{secret}"' not in answer.text
        refused = await it.http.get("/queues", headers={"authorization": "Bearer desk.x"})
        assert refused.status_code == 401
        check("GET", "/queues", refused)
