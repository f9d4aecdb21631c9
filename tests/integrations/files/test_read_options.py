"""Options of a source."""

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from contrada.errors import ContradaError, InvalidNotificationError
from contrada.integrations import files
from contrada.integrations.documents.naming_strategies import Named, Slot
from contrada.integrations.files import ReadOptions, plain_attributes, plain_time
from contrada.integrations.files.read_options import SlotReader
from contrada.model import Envelope, Notification
from contrada.model.algebra.attributes import ATTRIBUTES_MAX


def test_constants_and_the_time_of_the_envelope() -> None:
    """Else a pattern over the stream would order events by when they were read."""
    time = datetime(2013, 1, 1, tzinfo=UTC)
    found = ReadOptions(add={"kind": "flight"}, time="at").notification({"kind": "x", "at": [time]})
    assert found == Notification(
        {"kind": "flight", "at": time}, envelope=Envelope(time_us=1_356_998_400_000_000)
    )
    assert plain_time(found) == "2013-01-01T00:00:00Z"


@pytest.mark.parametrize("stamp", [None, "2013", [], 1])
def test_a_record_without_its_time_is_refused(stamp: str | int | list[object] | None) -> None:
    """Else it would silently be an event of 1970."""
    with pytest.raises(InvalidNotificationError) as caught:
        ReadOptions(time="at").notification({"at": stamp})  # type: ignore[dict-item]
    assert caught.value.name == "at"


def test_type_marks() -> None:
    """A typed subscriber would not see the notifications of a pipeline."""
    found = ReadOptions(marks=("StockObvent", "StockQuote")).notification({"price": 1})
    assert found["@is.StockObvent"] is True
    assert found["@is.StockQuote"] is True


@pytest.mark.parametrize(
    "options",
    [
        *({"types": {"a": "int"}}, {"types": {"": "text"}}, {"types": {"@id": "text"}}),
        *({"add": {"a": 2**64}}, {"add": {"": 1}}, {"add": {"@time": 1}}, {"add": {"@is.T": True}}),
        *({"time": "\0"}, {"time": ""}, {"time": "@time"}),
        {"time": "a", "add": {"a": 1}},
        {"rename": {"a": "b"}, "time": "a"},
        {"rename": {"a": "b"}, "types": {"a": "text", "b": "bool"}},
        {"rename": {"a": "c", "b": "c"}, "types": {"a": "text", "b": "bool"}},
        *({"marks": ("",)}, {"marks": ("T", "\n")}),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    """Else every record would be bad for a fault of the options."""
    with pytest.raises(ContradaError):
        ReadOptions(**options)


def test_options_travel_to_other_processes() -> None:
    """A task on Spark would read with other options than the driver."""
    options = ReadOptions(types={"a": "time"}, absent=frozenset({"NA"}), entries="e", marks=("T",))
    assert pickle.loads(pickle.dumps(options)) == options


def test_plain_attributes() -> None:
    """Else a match could not be written as JSON that every program reads."""
    time = datetime(2013, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    found = Notification(
        {"n": float("nan"), "i": float("-inf"), "t": time, "m": [1, "x"], "z": None}
    )
    assert plain_attributes(found) == {
        "n": "NaN",
        "i": "-Infinity",
        "t": "2013-01-01T00:00:00.000005Z",
        "m": [1, "x"],
        "z": None,
    }
    assert plain_time(found) is None
    at_epoch = found.with_envelope(Envelope(time_us=0))
    assert plain_time(at_epoch) == "1970-01-01T00:00:00Z"


def test_the_former_name_is_deprecated() -> None:
    """A program for the former version would end at its import, or never hear of the new name."""
    with pytest.warns(DeprecationWarning, match="ReadOptions"):
        assert files.Reading is ReadOptions
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        files.__getattr__("Other")


@pytest.mark.parametrize("name", ["a", "a{}"])
def test_a_document_with_too_many_values_is_read_to_the_limit(name: str) -> None:
    """Its refusal would cost as much as the document is long."""

    def endless() -> Iterator[Named]:
        for number in count():
            found = name.format(number)
            yield Named(found, Slot(found, found, (), found, "1"))

    with pytest.raises(ContradaError, match=f"_MAX = {ATTRIBUTES_MAX}"):
        SlotReader(ReadOptions()).of(endless())
