"""JSON lines."""

import math
from datetime import UTC, datetime

import pytest

from contrada.integrations.files import BadRecord, ReadOptions, Record, notification_of_object
from contrada.integrations.files.json_objects import read_array, read_objects
from contrada.model import Notification
from tests.integrations.files.blocks import blocks_of


def made(line: str, options: ReadOptions | None = None) -> Notification:
    return notification_of_object(line, options or ReadOptions())


def test_objects_are_flattened_by_dots() -> None:
    """Else a filter could not reach into an object."""
    line = '{"a":{"b":1,"c":{"d":"x"}},"e":null,"f":{},"g":-0.0,"":{"h":true}}'
    assert made(line) == Notification({"a.b": 1, "a.c.d": "x", "e": None, "g": 0, ".h": True})


def test_arrays_of_scalars_are_several_values() -> None:
    """Else a tag in a list could not be matched."""
    found = made('{"tags":["b","a","b",1,null],"none":[]}')
    assert found == Notification({"tags": ["a", "b", 1, None]})
    assert found.body == b""


def test_content_without_attributes_stays_in_the_body() -> None:
    """Else a part of the record would be lost, or be matched out of its context."""
    line = '{"a":1,"list":[{"b":1}],"deep":{"c":[[1]],"d":2}}'
    found = made(line)
    assert found.attributes == {"a": 1, "deep.d": 2}
    assert (found.body, found.content_type) == (line.encode(), "application/json")


def test_integers_are_exact() -> None:
    """Else 2^53+1 would match a filter for 2^53."""
    assert made('{"a":9007199254740993}')["a"] == 2**53 + 1


def test_declared_types_are_applied_to_texts() -> None:
    """JSON could not carry times and NaN."""
    found = made('{"a":"NaN","b":"12","c":12,"d":["1","x"]}', ReadOptions(types={"a": "number"}))
    value = found["a"]
    assert isinstance(value, float)
    assert math.isnan(value)
    assert (found["b"], found["c"], found["d"]) == ("12", 12, ("1", "x"))


BAD = [
    ("[1]", 1, "a JSON array"),
    ("1", 1, "a JSON number"),
    ('{"a":1', 7, "the end of the line"),
    ('{"a" 1}', 6, "'1'"),
    ('{"a":1}{"a":2}', 8, "'{'"),
    ('{"a":NaN}', 6, "found NaN"),
    (r'{"NaN":"\"-Infinity","b": -Infinity}', 27, "found -Infinity"),
    ('{"a":1e999}', 6, "the number 1e999"),
    ('{"a":1,"a":2}', None, "'a': found twice in an object"),
    ('{"a":' + "9" * 5000 + "}", 6, "the integer 9999"),
    ('{"a":123456789012345678901}', None, "64 bits"),
    ('{"@id":1}', None, "reserved"),
    ('{"a":"\\ud800"}', None, "surrogate"),
    ('{"":1}', None, "1 to 255 bytes"),
    ('{"a":' * 70 + "1" + "}" * 70, None, "OBJECT_DEPTH_MAX"),
    ('{"a":' * 100_000, None, "OBJECT_DEPTH_MAX"),
]


@pytest.mark.parametrize(("line", "column", "reason"), BAD)
def test_bad_records(line: str, column: int | None, reason: str) -> None:
    """Else something that is not the record would be matched in its place."""
    first, second = read_objects(blocks_of([line, '{"a":1}']), "f.json", ReadOptions())
    assert isinstance(first, BadRecord)
    assert (first.line, first.column) == (1, column)
    assert reason in first.reason
    assert second == Record("f.json", 2, Notification({"a": 1}))


QUAKES = (
    b'{"type": "All", "x": {"features": [\n{"p": {"mag": 5.1}, "c": [1, [2]]}, 7, {"p": null}]}}'
)


def test_an_array_in_a_document_is_read_by_its_name() -> None:
    """GeoJSON and other single documents could not be read."""
    first, second, third = read_array(QUAKES, "f.json", ReadOptions(entries="x.features"))
    assert isinstance(first, Record)
    assert (first.number, dict(first.notification)) == (1, {"p.mag": 5.1})
    assert first.notification.body == b'{"p": {"mag": 5.1}, "c": [1, [2]]}'
    assert isinstance(second, BadRecord)
    assert second.reason == "x.features 2: found a JSON number, expected a JSON object"
    assert isinstance(third, Record)
    assert (third.number, dict(third.notification)) == (3, {"p": None})
    (found,) = read_array(b'\n[{"a": 1}]', "f.json", ReadOptions(entries="."))
    assert isinstance(found, Record)


@pytest.mark.parametrize(
    ("data", "entries", "said"),
    [
        (QUAKES, "features", "expected an array at 'features'"),
        (QUAKES, "type", "found a JSON string at 'type', expected an array"),
        (QUAKES, "type.x", "no such member"),
        (b'{"a": [\n 1,\n }', "a", "found '}', expected a JSON value"),
        (b'{"a": [\n NaN]}', "a", "found NaN, expected JSON"),
        (b"\xff", "a", "expected"),
        (b"{}", ".", "found a JSON object at '.', expected an array"),
    ],
)
def test_a_document_without_the_array_is_one_bad_record(
    data: bytes, entries: str, said: str
) -> None:
    """Else a slip in a name would look as if there were no records."""
    (found,) = read_array(data, "f.json", ReadOptions(entries=entries))
    assert isinstance(found, BadRecord)
    assert said in found.reason
    if b"\n" in data and data != QUAKES:
        assert (found.line or 0) > 1


def test_names_are_dropped_and_changed_before_all_else() -> None:
    """Else records with names that no attribute can have could not be read at all."""
    options = ReadOptions(
        rename={"@id": "id", "t.at": "at"}, drop=frozenset({"agent"}), types={"at": "time"}
    )
    line = '{"@id": "x", "agent": {"id": 1, "l": [{}]}, "agents": 2, "t": {"at": "2013-01-01"}}'
    (found,) = read_objects(blocks_of([line]), "f", options)
    assert isinstance(found, Record)
    at = datetime(2013, 1, 1, tzinfo=UTC)
    assert dict(found.notification) == {"id": "x", "agents": 2, "at": at}
    assert found.notification.body == b""


def test_dropped_members_are_not_in_the_body() -> None:
    """A password would travel on in the body of those records that have one."""
    options = ReadOptions(drop=frozenset({"password", "legs.pin"}), rename={"user": "who"})
    # pragma: allowlist nextline secret
    line = '{"user": "x", "password": "pw", "legs": [{"a": 1, "pin": {"x": 2}}, [{"pin": 3}]]}'
    for keep in (False, True):
        found = notification_of_object(line, options, keep=keep)
        assert dict(found) == {"who": "x"}
        assert found.body == b'{"user": "x", "legs": [{"a": 1}, [{}]]}'
