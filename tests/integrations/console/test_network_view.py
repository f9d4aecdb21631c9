"""The forest of a broker's filters in the console."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import ContradaError
from contrada.integrations.console.network_view import NetworkQuestion, parents_of, types_in
from contrada.model import Notification
from contrada.model.algebra.relations import covers
from contrada.net.broker.inspector import FOREST_MAX
from contrada.net.wire.payload_codec import notifications_from


def test_each_filter_lies_below_the_narrowest_that_covers_it() -> None:
    """An operator would see covering that is not there, or a flat list."""
    texts = ["a < 10", "a < 5", "a < 7", "b = 1", "a < 5 and b = 1", "a < …"]
    assert parents_of(texts) == [None, 2, 0, None, 1, None]


@given(st.lists(st.integers(0, 4), max_size=8))
def test_parents_cover_their_children_without_a_circle(bounds: list[int]) -> None:
    """The page would draw a tree without a root, and never end."""
    texts = [f"a < {each}" for each in bounds]
    parents = parents_of(texts)
    for child, parent in enumerate(parents):
        seen = {child}
        while parent is not None:
            assert parent not in seen
            assert covers(texts[parent], texts[child])
            seen.add(parent)
            parent = parents[parent]
    assert parents_of(["a = 1"] * (FOREST_MAX + 1))[-1] is None


def test_types_are_found_in_the_texts_of_filters() -> None:
    """A person could not choose a type by its name, or would be offered parts of other texts."""
    texts = [
        "@is.Tick = true and price < 3",
        "`@is.my ``own`` type` any",
        "@is.Tick any and `@is.by(Market)` any and a@is.b = 1",
    ]
    assert types_in(texts) == ["Tick", "my `own` type"]


def test_a_notification_is_asked_for_as_its_user_would_publish_it() -> None:
    """The answer would be about another publisher and time than those of a real publication."""
    question = NetworkQuestion('{"price": 5}')
    packed, again = (notification_of(question.packed("desk")) for _ in range(2))
    assert dict(packed) == {"price": 5}
    assert packed.envelope.publisher.startswith("desk/")
    assert packed.envelope.time_us is not None
    assert packed.envelope.id != again.envelope.id
    assert NetworkQuestion(" ").packed("desk") == b""
    for text in ("{", "[]", '[{"a": 1}, {"a": 2}]'):
        with pytest.raises(ContradaError):
            NetworkQuestion(text).packed("desk")


def notification_of(packed: bytes) -> Notification:
    (notification,) = notifications_from([packed])
    return notification
