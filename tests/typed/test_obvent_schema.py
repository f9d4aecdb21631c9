"""Obvent classes as JSON Schemas, and classes made of schemas."""

import json
import subprocess
import sys
import textwrap
from dataclasses import fields
from typing import Any

import pytest

from contrada.errors import InvalidObventError
from contrada.typed import Obvent
from contrada.typed.obvent_schema import class_of_schema, schema_of
from tests.typed.test_obvent_codec import (
    FULL,
    Node,
    OfPydantic,
    OfStruct,
    Party,
    Plain,
    Renamed,
    Trade,
)

ALL: list[type[Any]] = [Trade, Party, Node, OfStruct, Renamed, Plain, OfPydantic]


@pytest.mark.parametrize("cls", ALL)
def test_a_schema_is_json_and_names_what_is_needed(cls: type[Any]) -> None:
    """Programs in other languages could not read the definition of an event."""
    schema = json.loads(json.dumps(schema_of(cls)))
    assert schema["type"] == "object"
    assert set(schema["required"]) <= set(schema["properties"])
    assert schema["x-obvent"]["name"] == schema["title"]


def test_a_class_that_is_known_is_the_class() -> None:
    """A second class would take its name."""
    assert class_of_schema(schema_of(Trade)) is Trade


def test_another_process_reads_by_the_schema_alone() -> None:
    """A process without the publisher's code could not subscribe by its types."""
    script = """
        import json, sys
        import msgspec
        import contrada as ct
        from contrada.typed.obvent_schema import class_of_schema, schema_of
        said = json.load(sys.stdin)
        cls = class_of_schema(said["schema"])
        for name, wanted in said["schema"]["properties"].items():
            assert schema_of(cls)["properties"][name] == wanted, (name, schema_of(cls))
        got = cls.from_notification(ct.Notification.from_json(said["notification"]))
        assert isinstance(got, cls), type(got)
        assert (got.price, got.party.name, got.legs[0]) == (got.price, "Hill", ("A", 0.5)), got
        sent, again = ct.Notification.from_json(said["notification"]), got.to_notification()
        assert dict(again) == dict(sent)
        assert msgspec.msgpack.decode(again.body) == msgspec.msgpack.decode(sent.body)
    """
    schema = schema_of(Trade)
    # A named tuple has no schema of its own; it is a tuple.
    said = {"schema": schema, "notification": FULL.to_notification().to_json()}
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        input=json.dumps(said),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "title"),
        ({"title": "s.A", "type": "array"}, "s.A: expected the schema of an object"),
        ({"title": "s.B", "type": "object", "properties": {"a b": {}}}, "a b: no name"),
        (
            {"title": "s.C", "type": "object", "properties": {"a": {"type": "odd"}}},
            "s.C.a: type 'odd'",
        ),
        (
            {"title": "s.D", "type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}},
            "s.D.a: 'x' is not defined",
        ),
        ({"title": "s.E", "type": "object", "properties": {"class": {}}}, "s.E.class: no name"),
        ({"title": "s.F", "type": "object", "properties": {"__init__": {}}}, "__init__: no name"),
        ({"title": "s.G", "type": "object", "properties": {"a": {"anyOf": 5}}}, "of no class"),
        ({"title": "s.H", "type": "object", "properties": {"a": {"type": ["x"]}}}, "of no class"),
        ({"title": "s.I", "type": "object", "required": 5, "properties": {"a": {}}}, "of no class"),
        ({"title": "s.J", "x-obvent": 5}, "x-obvent = 5"),
        ({"title": "s.K", "type": "object", "x-obvent": {"supertypes": [5]}}, "of no class"),
    ],
)
def test_an_unsupported_schema_is_refused_with_its_place(schema: dict[str, Any], said: str) -> None:
    """A field would silently be of any type."""
    with pytest.raises(InvalidObventError, match=said):
        class_of_schema(schema)


def test_supertypes_are_made() -> None:
    """A subscription to a supertype would miss objects of the new class."""
    schema = {
        "title": "s.Special",
        "type": "object",
        "properties": {"name": {"type": "string"}, "rate": {"type": "number"}},
        "required": ["name"],
        "x-obvent": {"name": "s.Special", "supertypes": ["s.Unknown", "carry.Party"]},
    }
    cls: Any = class_of_schema(schema)
    assert Party in cls.__mro__
    assert [each.name for each in fields(cls)] == ["name", "address", "rate"]
    made: Any = cls(name="x", rate=1.0)
    assert isinstance(made, Obvent)
    marks = {name for name in made.to_notification() if name.startswith("@is.")}
    assert marks == {"@is.s.Special", "@is.s.Unknown", "@is.carry.Party"}
    assert Party.to_filters().covers(cls.to_filters())
