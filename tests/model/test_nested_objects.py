"""Mappings of callers: nested objects, lists, and objects that represent values."""

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from contrada.errors import InvalidNotificationError, LimitError
from contrada.integrations.files import ReadOptions, notification_of_object, notification_of_shown
from contrada.matching.index import Index
from contrada.model import Filter, Notification, from_json, to_json
from contrada.model.algebra.nested_objects import OBJECT_DEPTH_MAX

AT = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    WHEN = AT
    BOTH = ("red", "blue")


class Mixed(str, Enum):  # noqa: UP042 - its text is not its value
    RED = "red"


class Plain(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Flags(IntFlag):
    A = 1
    B = 2


STANDS_FOR: list[tuple[Any, Any]] = [
    (Decimal("61.5"), 61.5),
    (Decimal("0.1"), 0.1),
    (Decimal("-0.0"), 0),
    (Decimal("5.00"), 5),
    (Decimal("9007199254740993"), 2**53 + 1),
    (Decimal(2**63 - 1), 2**63 - 1),
    (Decimal("1e300"), 1e300),
    (Decimal("Infinity"), math.inf),
    (UUID("12345678123456781234567812345678"), "12345678-1234-5678-1234-567812345678"),
    (Colour.RED, "red"),
    (Colour.WHEN, AT),
    (Mixed.RED, "red"),
    (Plain.RED, "red"),
    (Level.HIGH, 3),
    (Flags.A | Flags.B, 3),
    (bytearray(b"\xff"), b"\xff"),
    (memoryview(b"abc")[1:], "bc"),
    (np.int64(5), 5),
    (np.uint8(5), 5),
    (np.float32(0.5), 0.5),
    (np.float64(0.1), 0.1),
    (np.longdouble(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.bytes_(b"\xff"), b"\xff"),
    (pd.Timestamp("2026-11-20T09:30:00Z"), AT),
]

REFUSED: list[tuple[Any, str]] = [
    (Decimal("0.10000000000000000001"), "digits of a double"),
    (Decimal(2**64), "digits of a double"),
    (Decimal("1e400"), "digits of a double"),
    (Decimal("1e-400"), "digits of a double"),
    (Decimal("1e999999"), "digits of a double"),
    (date(2026, 11, 20), "a date is no moment"),
    (datetime(2026, 11, 20), "needs a zone"),  # noqa: DTZ001
    (time(9, 30), "type time is no value"),
    (timedelta(1), "type timedelta is no value"),
    (Fraction(1, 3), "type Fraction is no value"),
    (Colour.BOTH, "type tuple is no value"),
    (1j, "type complex is no value"),
    (pd.NaT, "this is no time"),
    (pd.NA, "type NAType is no value"),
    (pd.Timestamp("2026-11-20T09:30:00.000000001Z"), "a time has microseconds"),
    (pd.Timestamp("2026-11-20T09:30:00"), "needs a zone"),
    (np.datetime64("2026-11-20"), "type datetime64 is no value"),
    (np.timedelta64(5, "s"), "type timedelta64 is no value"),
    (np.longdouble("0.1"), "no double equals it"),
    (np.array([1, 2]), "type ndarray is no value"),
    (np.uint64(2**64 - 1), "64 bits"),
]


@pytest.mark.parametrize(("given", "value"), STANDS_FOR, ids=lambda each: type(each).__name__)
def test_objects_that_represent_values_are_values(given: Any, value: Any) -> None:
    """A value would be another one than its reader meant, or would be refused without need."""
    found = Notification({"a": given, "b": [given], "c": {"d": given}})
    assert found == Notification({"a": value, "b": value, "c.d": value})
    assert type(found["a"]) is type(Notification({"a": value})["a"])
    assert Filter({"a": given}) == Filter({"a": value})
    assert Filter({"a": given}).matches(found)


def test_a_decimal_that_is_no_number_is_nan() -> None:
    """It would be refused, or be compared."""
    assert Filter({"a": math.nan}).matches(Notification({"a": Decimal("NaN")}))
    assert Filter({"a": math.nan}).matches(Notification({"a": Decimal("sNaN")}))


@pytest.mark.parametrize(("given", "reason"), REFUSED, ids=lambda each: type(each).__name__)
def test_lossy_values_are_refused_with_a_reason(given: Any, reason: str) -> None:
    """Digits would be lost silently, or a bare error of a library be raised."""
    for attributes in ({"x": 1, "a": given}, {"a": [given]}, {"a": {"b": given}}):
        with pytest.raises(InvalidNotificationError, match=reason) as caught:
            Notification(attributes)
        assert caught.value.name in ("a", "a.b")


NESTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": {"b": 1, "c": {"d": "x"}}, "e": None, "f": {}}, {"a.b": 1, "a.c.d": "x", "e": None}),
    ({"a.b": 1, "a": {"b": 2}}, {"a.b": [1, 2]}),
    ({"a": {"b": ["y", "x", "y"]}, "c": []}, {"a.b": ["x", "y"]}),
    ({"a": {"$time": "2026-11-20T10:30:00+01:00"}}, {"a": AT}),
    ({"a": [{"$time": "2026-11-20T09:30:00Z"}, 1]}, {"a": [AT, 1]}),
    ({"a": {"$bytes": "0aff"}, "b": {"$number": "-Infinity"}}, {"a": b"\n\xff", "b": -math.inf}),
    ({"a": {"$time": "x", "b": 1}}, {"a.$time": "x", "a.b": 1}),
    ({"a": {"$other": "x"}}, {"a.$other": "x"}),
]


@pytest.mark.parametrize(("given", "attributes"), NESTED)
def test_objects_in_objects_are_read_alike_everywhere(
    given: dict[str, Any], attributes: dict[str, Any]
) -> None:
    """A notification of a dict would differ from the same of JSON."""
    expected = Notification(attributes)
    line = json.dumps(given)
    for found in (
        Notification(given),
        notification_of_object(line, ReadOptions()),
        notification_of_shown(line),
    ):
        assert (found, found.body) == (expected, b"")
    for name in attributes:
        index: Index[int] = Index()
        index.add(1, Filter({name: expected[name]}))
        assert index.match(given) == index.match(expected) == [1]


@pytest.mark.parametrize("inner", [{"b": [{"c": 1}], "d": 2}, {"b": [[1]], "d": 2}])
def test_lists_of_objects_remain_in_the_body(inner: dict[str, Any]) -> None:
    """A part of the publication would be lost, or be matched out of its context."""
    given = {"a": inner, "t": AT, "n": [math.nan, b"\xff"]}
    found = Notification(given)
    assert found == Notification(
        {"a.d": 2, "t": AT, "n": [math.nan, b"\xff"]}, body=found.body, content_type=JSON
    )
    assert json.loads(found.body) == {
        "a": inner,
        "t": {"$time": "2026-11-20T09:30:00Z"},
        "n": [{"$number": "NaN"}, {"$bytes": "ff"}],
    }
    assert notification_of_shown(found.body.decode()) == found
    assert Notification(given, body=given) == found
    with pytest.raises(InvalidNotificationError, match="given already"):
        Notification(given, body=b"mine")


JSON = "application/json"


def test_order_and_repeats_are_kept_in_the_body_when_asked() -> None:
    """The original order could not be restored."""
    given = {"tags": ["b", "a", "b"]}
    found = Notification(given, body=given)
    assert (found["tags"], found.body, found.content_type) == (
        ("a", "b"),
        b'{"tags":["b","a","b"]}',
        JSON,
    )
    assert Notification(given, body={}).body == b"{}"
    assert Notification(given, body=given, content_type="text/x").content_type == "text/x"
    with pytest.raises(InvalidNotificationError, match="bytes, or a mapping"):
        Notification({}, body="text")  # type: ignore[arg-type]


BAD: list[tuple[dict[Any, Any], str, str]] = [
    ({"a": {1: 2}}, "1", "a name is a str"),
    ({"a": {"": {"\x00": 2}}}, "a..\x00", "control characters"),
    ({"a": {"$time": "yesterday"}}, "a", "a time as 2026"),
    ({"a": {"$time": "2026-11-20T09:30:00"}}, "a", "a time as 2026"),
    ({"a": {"$time": 5}}, "a", "a text"),
    ({"a": {"$bytes": "0g"}}, "a", "hexadecimal"),
    ({"a": [{"$number": "1"}]}, "a", "one of NaN Infinity -Infinity"),
    ({"a": {"b": object()}}, "a.b", "type object is no value"),
    ({"a": [[object()]]}, "a", "type object is no value"),
    ({"a": [{"\ud800": 1}]}, "@body", "surrogate"),
    ({"a": [{"b": "\ud800"}]}, "b", "surrogate"),
    ({"a": [{2: 1}]}, "a", "a name is a str"),
    ({"@id": {"x": 1}, "@": {"is": {"T": True}}, "@is": {"T": True}}, "@is.T", "reserved"),
]


@pytest.mark.parametrize(("given", "name", "reason"), BAD, ids=lambda each: type(each).__name__)
def test_invalid_parts_are_named(given: Any, name: str, reason: str) -> None:
    """A caller would have to search for the place, or a mark could be forged by dots."""
    with pytest.raises(InvalidNotificationError, match=reason) as caught:
        Notification(given)
    assert str(caught.value.name) == name


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: {"a": [inner]}])
def test_depth_is_bounded(wrap: Callable[[Any], Any]) -> None:
    """A cycle would end the process."""
    deep: Any = {"a": 1}
    for _ in range(OBJECT_DEPTH_MAX + 1):
        deep = wrap(deep)
    with pytest.raises(LimitError, match="OBJECT_DEPTH_MAX"):
        Notification(deep)
    cycle: dict[str, Any] = {}
    cycle["a"] = wrap(cycle)
    with pytest.raises(LimitError):
        Notification(cycle)


def test_json_has_one_spelling_of_each_special_value() -> None:
    """A record reader could not parse a notification's JSON."""
    of = Notification({"t": AT, "b": b"\xff", "n": [math.inf, math.nan]})
    shown = json.loads(to_json(of))["notification"]["attributes"]
    assert shown["t"] == {"$time": "2026-11-20T09:30:00Z"}
    assert notification_of_object(json.dumps(shown), ReadOptions()) == of == from_json(to_json(of))
