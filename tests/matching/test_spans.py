"""Spans of msgpack: what is given, the envelope behind it, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import EncodingError, InvalidNotificationError
from contrada.matching.spans import EMPTY_SPAN, asked_for, decoded, encode, exactly, with_envelope
from contrada.model.algebra.notification import UNSTAMPED, Envelope
from contrada.model.domains.values import datetime_of
from tests import strategies

NAMES = ("@id", "@publisher", "@time")


@given(
    attributes=st.dictionaries(st.integers(0, 99).map("a{}".format), st.integers(), max_size=20),
    envelope=strategies.envelopes,
    names=st.lists(st.sampled_from(NAMES), unique=True, min_size=1).map(tuple),
)
def test_the_envelope_stands_behind_the_attributes(
    attributes: Any, envelope: Any, names: Any
) -> None:
    """A filter on the publisher would miss what is published, or an attribute be lost."""
    span = encode({name: n % 2**63 for name, n in attributes.items()})
    found = msgspec.msgpack.decode(with_envelope(span, envelope, names))
    times = envelope.time_us or 0
    expected = {
        "@id": envelope.id,
        "@publisher": envelope.publisher,
        "@time": ct.Notification({"t": datetime_of(times)})["t"],
    }
    assert list(found)[len(attributes) :] == list(names)
    assert found == msgspec.msgpack.decode(span) | {name: expected[name] for name in names}


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_a_map_of_any_width_gets_an_envelope(count: int) -> None:
    """The lead of a large map would be read as that of a small one."""
    span = encode({str(n): n for n in range(count)})
    found = msgspec.msgpack.decode(with_envelope(span, Envelope(publisher="p"), ("@publisher",)))
    assert len(found) == count + 1
    assert found["@publisher"] == "p"


@pytest.mark.parametrize("span", [b"", b"\x01", b"\x91\x01", b"\xc1"])
def test_what_is_no_map_is_left_to_who_reads_it(span: bytes) -> None:
    """Bytes that are no map would become one."""
    assert with_envelope(span, UNSTAMPED, NAMES) == span


@pytest.mark.parametrize("span", [b"", b"\x01", b"\xc1", b"\x81\xa1a", b"\x81\xa1a\x01\x00"])
def test_bytes_that_are_no_span_are_refused(span: bytes) -> None:
    """Another error than Contrada's would come out of matching."""
    with pytest.raises(EncodingError):
        decoded(span)
    with pytest.raises(EncodingError):
        exactly(span, UNSTAMPED, ())


def test_a_value_that_none_can_have_is_refused() -> None:
    """A map for a value would reach the filters."""
    for span in (encode({"a": {"b": 1}}), encode({"a": 2**64 - 1}), encode({"a": [[1]]})):
        with pytest.raises((InvalidNotificationError, EncodingError)):
            exactly(span, UNSTAMPED, ())


def test_what_is_given_becomes_a_notification() -> None:
    """What only the model can tell would be asked of another notification."""
    given_ = ct.Notification({"a": 1})
    assert exactly(given_, UNSTAMPED, ()) is given_
    late = Envelope(publisher="p", time_us=5)
    of_span = exactly(given_.span, late, ())
    assert (of_span, of_span.envelope) == (given_.with_envelope(late), late)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    mapping: dict[str, Any] = {"a": [1, when], "unasked": object(), "@id": "x"}
    of_mapping = exactly(mapping, late, {"a", "@id"})
    assert of_mapping == ct.Notification({"a": [1, when]})
    assert of_mapping.envelope == UNSTAMPED
    assert asked_for(mapping, {"a", "@id"}) == {"a": [1, when]}


def test_the_empty_span_has_no_attributes() -> None:
    """NULL in a column would be refused."""
    assert decoded(EMPTY_SPAN) == {}
