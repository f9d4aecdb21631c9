"""AsyncAPI documents of apps, by the rules of the specification's structure."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import contrada as ct
from contrada.cli import main
from contrada.errors import InvalidObventError
from contrada.integrations.asyncapi import _rewritten, asyncapi_of


@ct.obvent(name="asyncapi/Market")
@dataclass(frozen=True)
class Market:
    """A part of a quote."""

    name: str


@ct.obvent(name="asyncapi.Quote")
@dataclass(frozen=True)
class Quote:
    """A quote of a share."""

    symbol: str
    price: float | None
    market: Market | None = None
    size: tuple[int, float] = (1, 1.0)


app = ct.App("contrada://broker.example:7655")


@app.subscriber("price < 100 and (currency = 'EUR' or currency absent)", durable="cheap")
async def cheap(event: ct.Notification) -> None:
    """Reports cheap
    shares.

    Once a day.
    """


@app.subscriber("price < 100")
async def quote(event: Quote) -> None: ...


def named_again(event: Quote) -> None: ...


named_again.__name__ = "quote"
app.subscriber()(named_again)
app.subscriber("a = 1 or b = 1")(lambda event: None)
app.subscriber(ct.Pattern("a = 1 -> b = 1"))(lambda match: None)
app.subscriber(durable="existing")(lambda event: None)


@app.replier("service = 'price' and symbol exists")
async def price_of(request: ct.Notification) -> dict[str, float]:
    """The price of a symbol."""
    return {"price": 61.5}


DOCUMENT = asyncapi_of(app, title="Desk", version="1.2.3")


def references(value: Any) -> Iterator[str]:
    """All references in a document."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def resolved(reference: str) -> Any:
    """The value of a reference in the document."""
    found: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def test_its_structure_is_that_of_the_specification() -> None:
    """Tools of AsyncAPI would refuse the document."""
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["defaultContentType"] == "application/json"
    assert DOCUMENT["info"] == {"title": "Desk", "version": "1.2.3"}
    assert DOCUMENT["servers"]["broker_1"] == {
        "host": "broker.example:7655",
        "protocol": "contrada",
    }
    for part in ("channels", "operations", "components"):
        for key in DOCUMENT[part]:
            assert re.fullmatch(r"[\w.-]+", key)
    for kind in ("messages", "schemas"):
        for key in DOCUMENT["components"][kind]:
            assert re.fullmatch(r"[\w.-]+", key)
    for channel in DOCUMENT["channels"].values():
        assert channel["address"] is None
        assert channel["messages"]
        fields = {key for key in channel if not key.startswith("x-")}
        assert fields <= {"address", "messages", "title", "summary", "description"}
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] == "receive"
        assert re.fullmatch(r"#/channels/[\w.-]+", operation["channel"]["$ref"])
    assert all(resolved(each) is not None for each in references(DOCUMENT))
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_handlers_are_operations_with_their_filters() -> None:
    """A reader could not tell which notifications a handler gets."""
    channels, operations = DOCUMENT["channels"], DOCUMENT["operations"]
    assert [*operations] == [
        *("cheap", "quote", "quote_2", "_lambda_", "_lambda__2", "_lambda__3", "price_of")
    ]
    assert operations["cheap"]["summary"] == "Reports cheap shares."
    assert operations["cheap"]["description"] == "Once a day."
    assert channels["cheap"]["x-contrada-durable"] == "cheap"
    for channel in channels.values():
        if (text := channel.get("x-contrada-filter")) is not None:
            assert str(ct.parse(text)) == text
    assert channels["quote"]["messages"] == {
        "asyncapi.Quote": {"$ref": "#/components/messages/asyncapi.Quote"}
    }
    assert "price < 100" in channels["quote"]["x-contrada-filter"]
    assert "x-contrada-filter" not in channels["_lambda__3"]


def test_payloads_are_the_schemas_of_classes_and_the_attributes_of_filters() -> None:
    """A program in another language would send other events than the handler reads."""
    messages, schemas = (DOCUMENT["components"][each] for each in ("messages", "schemas"))
    payload = messages["cheap.notification"]["payload"]
    assert payload["required"] == ["price"], "the currency may be absent"
    assert payload["properties"]["price"] == {"description": "price < 100"}
    assert messages["_lambda_.notification"]["payload"] == {"type": "object"}
    reference = {"$ref": "#/components/schemas/asyncapi.Quote"}
    assert messages["asyncapi.Quote"] == {"name": "asyncapi.Quote", "payload": reference}
    found = schemas["asyncapi.Quote"]
    assert not {"$schema", "$defs"} & {*found}, "only the whole document has them"
    assert found["required"] == ["symbol", "price"]
    assert found["properties"]["market"]["anyOf"][0] == {
        "$ref": "#/components/schemas/asyncapi_Market"
    }
    size = found["properties"]["size"]
    assert [each["type"] for each in size["items"]] == ["integer", "number"]
    assert size["additionalItems"] is False
    assert schemas["asyncapi_Market"]["properties"] == {"name": {"type": "string"}}


def test_a_replier_has_a_channel_for_its_reply() -> None:
    """A reader would not see that somebody replies."""
    operation = DOCUMENT["operations"]["price_of"]
    assert operation["summary"] == "The price of a symbol."
    assert "description" not in operation
    assert operation["reply"] == {"channel": {"$ref": "#/channels/price_of_reply"}}
    asked = ct.parse(DOCUMENT["channels"]["price_of"]["x-contrada-filter"])
    assert asked == ct.parse("service = 'price' and symbol exists")
    messages = DOCUMENT["components"]["messages"]
    assert messages["price_of.notification"]["payload"]["required"] == ["service", "symbol"]
    assert messages["price_of_reply.notification"]["payload"] == {"type": "object"}


def test_a_handler_may_have_the_name_of_a_reply() -> None:
    """The reply would replace the channel of the handler."""
    both = ct.App()

    @both.subscriber("n > 0")
    def price_reply(event: ct.Notification) -> None: ...

    @both.replier("n exists")
    def price(request: ct.Notification) -> None: ...

    document = asyncapi_of(both, title="Desk")
    assert [*document["operations"]] == ["price_reply", "price"]
    assert document["channels"]["price_reply"]["x-contrada-filter"] == "n > 0"
    reply = document["operations"]["price"]["reply"]
    assert reply == {"channel": {"$ref": "#/channels/price_reply_2"}}


def test_references_are_those_of_components() -> None:
    """A reference to a class of an odd name, or a field named as one, would lead nowhere."""
    field = {"properties": {"$ref": {"type": "string"}}}
    assert _rewritten(field) == field
    for name, key in (("a~1b", "a_b"), ("a~0b", "a_b"), ("a~01", "a_1")):
        found = _rewritten({"anyOf": [{"$ref": f"#/$defs/{name}"}]})
        assert found == {"anyOf": [{"$ref": f"#/components/schemas/{key}"}]}


def test_all_brokers_are_servers() -> None:
    """A reader would see one address of two, or one that is none."""
    expected = {"host": "b:2", "protocol": "contradas"}
    for address in ("contradas://a:1,b:2", ["contradas://a:1", "contradas://b:2"]):
        servers = asyncapi_of(ct.App(address), title="Desk")["servers"]
        assert [*servers] == ["broker_1", "broker_2"]
        assert servers["broker_2"] == expected


def test_two_classes_with_one_key_are_refused() -> None:
    """One class would be described by the fields of another."""

    @ct.obvent(name="asyncapi.one/two")
    @dataclass
    class Slash:
        a: int

    @ct.obvent(name="asyncapi.one_two")
    @dataclass
    class Underscore:
        b: int

    both = ct.App()

    @both.subscriber()
    def first(event: Slash) -> None: ...

    @both.subscriber()
    def second(event: Underscore) -> None: ...

    with pytest.raises(InvalidObventError, match="another class is the schema 'asyncapi"):
        asyncapi_of(both, title="Desk")


def test_the_command_prints_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document would need a program of its own, or an installed module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = "import contrada as ct\napp = ct.App()\n@app.subscriber('n > 0')\ndef f(e): ...\n"
    (tmp_path / "desk_of_a_test.py").write_text(code)
    run = CliRunner().invoke(main, ["asyncapi", "desk_of_a_test:app", "--title", "Desk"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.output)
    assert found["info"]["title"] == "Desk"
    assert "servers" not in found
    assert found["channels"]["f"]["x-contrada-filter"] == "n > 0"


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("contrada", "contrada: expected MODULE:APP"),
        ("nowhere_at_all:app", "module 'nowhere_at_all' cannot be imported"),
        ("contrada:Filter", "contrada:Filter: found ABCMeta, expected a contrada.App"),
    ],
)
def test_a_wrong_place_is_one_line(place: str, line: str) -> None:
    """A person would see a traceback."""
    run = CliRunner().invoke(main, ["asyncapi", place])
    assert run.exit_code == 2
    assert line in run.output
    assert len(run.output.splitlines()) == 1
