"""The attributes of received plain notifications, compiled and interpreted."""

from typing import Any, cast

import pytest

from contrada.model import Envelope, Notification
from contrada.model.algebra.attributes import good_names_and_marks
from contrada.model.algebra.notification import store_packed
from contrada.model.algebra.plain_encoder import head
from contrada.model.codec import notification_from_msgpack, to_msgpack
from tests.model.test_plain_codec import FORMS, NOW_US


@pytest.mark.parametrize("form", FORMS)
def test_texts_as_those_before_are_shared(form: Any) -> None:
    """A notification would show the text of another, or hold a long one for all later ones."""
    stamp = Envelope("p.1", "p", 1, NOW_US)
    long = "x" * 65
    texts = ["a", "a", "b", "", "ä", "ä", "a\0", "a", long, long, "\ud7ff", "a"]
    taken = [
        form.plain_attributes(to_msgpack(Notification({name: text, "n": text}, envelope=stamp)))
        for name, text in zip("kkkkkklllkkk", texts, strict=True)
    ]
    assert [each["n"] for each in taken] == texts
    assert [next(iter(each)) for each in taken] == [*"kkkkkklllkkk"]
    assert taken[0]["n"] is taken[1]["n"], "shared"
    assert taken[8]["n"] is not taken[9]["n"], "too long"


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_read_of_any_notification(form: Any) -> None:
    """One that was made here, or has no attributes, or was left undecided could not be read."""

    class Undecided(bytes):
        pass

    stamp = Envelope("p.1", "p", 1, NOW_US)
    assert form.value_of(Notification({"a": (1, 2)}), "a") == (1, 2)
    data = to_msgpack(Notification({"a": [2, 1]}, envelope=stamp))
    assert form.value_of(notification_from_msgpack(data), "a") == (1, 2)
    for attributes in ({}, {"a": 1}, {f"a{n}": n for n in range(32)}):
        data = to_msgpack(Notification(attributes, envelope=stamp))
        ((found, *_),) = form.plain_entries([data], 0, good_names_and_marks, Notification, 0)
        store_packed(found, Undecided(data))
        for name in ("b", None, 1, ("b",)):
            with pytest.raises(KeyError) as raised:
                form.value_of(found, name)
            assert raised.value.args == (name,)
        assert dict(found) == attributes


@pytest.mark.parametrize("form", FORMS)
def test_an_unread_notification_keeps_its_attributes_with_another_envelope(form: Any) -> None:
    """A relay that did not look at a notification would publish it without attributes: only the
    encoding has them then, and the copy has none.
    """
    attributes = {"a": 1, "b": "text"}
    data = to_msgpack(Notification(attributes, envelope=Envelope("p.1", "p", 1, NOW_US)))

    def received() -> Notification:
        ((found, *_),) = form.plain_entries([data], 0, good_names_and_marks, Notification, 0)
        return cast(Notification, found)

    other = Envelope("q.2", "q", 2, NOW_US)
    copies = [
        received().with_envelope(other),
        form.stamp_copy(received(), Notification, "q.2", "q", 2, NOW_US),
    ]
    for copy in copies:
        assert (dict(copy), copy["a"], copy.envelope) == (attributes, 1, other)


@pytest.mark.parametrize("form", FORMS)
def test_an_encoding_without_attributes_is_refused(form: Any) -> None:
    """Compiled code would read beyond its end."""
    data = to_msgpack(Notification({}, envelope=Envelope("p.1", "p", 1, NOW_US)))
    assert form.plain_attributes(data) == {}
    for cut in (b"", data[:1], data[: len(head) + 2]):
        with pytest.raises(IndexError, match="without attributes"):
            form.plain_attributes(cut)
