"""Documents rebuilt from notifications."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InputError
from contrada.integrations.documents import DOCUMENT_DEPTH_MAX, SHAPE_TYPE, document_of, names_in
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer
from contrada.model import Notification
from contrada.model.codec import notification_from_msgpack, to_msgpack
from tests.integrations.documents.documents import (
    STORIES,
    canonical,
    canonical_with_beside,
    documents,
    objects,
)

KEEPING = st.sampled_from(("index", "daemon", "pattern"))


def rendered(data: bytes, options: ReadOptions, form: str = "xml") -> list[Notification]:
    found = list(Renderer(options, form).render(data))
    assert not [each for each in found if isinstance(each, BadRecord)]
    return [each.notification for each in found if isinstance(each, Record)]


@given(documents(), KEEPING)
def test_a_document_is_rebuilt(data: bytes, strategy: str) -> None:
    """Structure without values would be lost, or values be misplaced."""
    (made,) = rendered(data, ReadOptions(strategy=strategy))
    sent = notification_from_msgpack(to_msgpack(made))
    assert canonical_with_beside(document_of(sent)) == canonical_with_beside(data)
    assert all(not isinstance(value, tuple) for value in made.attributes.values())


@given(documents(), KEEPING)
def test_it_is_rebuilt_with_any_options(data: bytes, strategy: str) -> None:
    """Else a renamed, typed, absent or added attribute would change the document."""
    options = ReadOptions(
        strategy=strategy,
        rename={"root.a": "other", "root.b": "root.p:a"},
        types={"root.a": "text", "root.a.b": "text"},
        absent=frozenset({"NA", "x"}),
        add={"root.b": "added", "root": 1},
    )
    (made,) = rendered(data, options)
    assert canonical_with_beside(document_of(made)) == canonical_with_beside(data)


@given(objects(), KEEPING)
def test_an_object_is_rebuilt(content: dict[str, Any], strategy: str) -> None:
    """Else JSON would be less than XML."""
    data = json.dumps(content).encode()
    if "" in content and not isinstance(content[""], dict):
        content = {f"k{key}": each for key, each in content.items()}
        data = json.dumps(content).encode()
    (made,) = rendered(data, ReadOptions(strategy=strategy), "json")
    back = json.loads(document_of(notification_from_msgpack(to_msgpack(made))))
    assert json.dumps(back) == json.dumps(content)


def test_values_are_not_in_the_shape() -> None:
    """Else each would travel twice; those that an attribute spells otherwise must be there."""
    (made,) = rendered(STORIES, ReadOptions(strategy="index"))
    assert made.content_type == SHAPE_TYPE
    assert b"Game" not in made.body
    assert b"2001" not in made.body
    assert b"1.0" in made.body


def test_changed_attributes_change_the_document() -> None:
    """The rebuilt document would contradict the attributes."""
    (made,) = rendered(STORIES, ReadOptions(strategy="daemon"))
    attributes = {**made.attributes, "backslash.story.title~2": "Three"}
    changed = Notification(attributes, body=made.body, content_type=made.content_type)
    assert b"<title>Three</title>" in document_of(changed)
    del attributes["backslash.story.title~2"]
    lacking = Notification(attributes, body=made.body, content_type=made.content_type)
    with pytest.raises(InputError, match="missing"):
        document_of(lacking)


def test_dropped_parts_are_nowhere() -> None:
    """A dropped part would be readable in the body."""
    for strategy in ("index", "daemon"):
        options = ReadOptions(strategy=strategy, drop=frozenset({"backslash.story"}))
        (made,) = rendered(STORIES, options)
        assert not [name for name in made.attributes if "story" in name]
        assert not [word for word in (b"Game", b"said", b"again") if word in made.body]
        back = document_of(made)
        assert b"<title></title>" in back
        assert b"<e a.b=" in back
    mixed = b"<r><a>secret<?p i?>more</a><b c='secret'>kept</b></r>"
    (made,) = rendered(mixed, ReadOptions(strategy="index", drop=frozenset({"r.a", "r.b.c"})))
    assert b"secret" not in made.body
    assert document_of(made) == b'<r><a><?p i?></a><b c="">kept</b></r>'
    content = {"a": {"b": "secret"}, "c": [{"b": "secret", "d": 1}]}
    data = json.dumps(content).encode()
    options = ReadOptions(strategy="index", drop=frozenset({"a", "c.b"}))
    (made,) = rendered(data, options, "json")
    assert b"secret" not in made.body
    assert json.loads(document_of(made)) == {"c": [{"d": 1}]}


def test_with_entries_the_entry_is_rebuilt() -> None:
    """Else a reader of one entry could not have it as it was."""
    for strategy in ("index", "daemon"):
        _, second = rendered(STORIES, ReadOptions(strategy=strategy, entries="story"))
        assert canonical(document_of(second)) == canonical(
            b'<story xmlns:b="urn:b"><title>Two</title>said <b>here</b> again</story>'
        )


def test_two_prefixes_of_one_namespace() -> None:
    """An attribute would get another prefix than in its document."""
    data = b'<a xmlns:x="urn:1" xmlns:y="urn:1" y:n="1" x:m="2"/>'
    (made,) = rendered(data, ReadOptions(strategy="index"))
    assert canonical(document_of(made)) == canonical(data)


def test_names_have_their_originals() -> None:
    """Else a naming service would have nothing to record."""
    (made,) = rendered(STORIES, ReadOptions(strategy="daemon"))
    found = names_in(made)
    assert found is not None
    assert found.kind == "backslash"
    assert found.names == {
        "backslash.story.title~2": ("backslash.story.title", "backslash.story[2].title"),
        "backslash.story~2_2": ("backslash.story", "backslash.story[2].text()[2]"),
    }
    feed = b'<f xmlns="urn:f"><l h="1"/><l h="2"/><e><t/><t>x</t><t>y</t></e></f>'
    (made,) = rendered(feed, ReadOptions(strategy="index", entries="e"))
    found = names_in(made)
    assert found is not None
    assert found.kind == "{urn:f}f"
    assert found.names == {
        "f.e.t.1": ("f.e.t", "f.e.t[2]"),
        "f.e.t.2": ("f.e.t", "f.e.t[3]"),
        "f.l.0.h": ("f.l.h", "f.l[1].@h"),
        "f.l.1.h": ("f.l.h", "f.l[2].@h"),
    }
    assert names_in(Notification({"a": 1})) is None


def test_a_shape_that_is_damaged_is_refused() -> None:
    """Foreign bytes would raise an unexpected error."""
    (made,) = rendered(STORIES, ReadOptions(strategy="index"))
    (of_json,) = rendered(b'{"a":[1,"x"]}', ReadOptions(strategy="index"), "json")
    with pytest.raises(InputError, match="shape"):
        document_of(Notification({"a": 1}))
    for body in _damaged(made.body, of_json.body):
        notification = Notification(dict(made.attributes), body=body, content_type=SHAPE_TYPE)
        for read in (document_of, names_in):
            with suppress(InputError):
                read(notification)


def _damaged(*bodies: bytes) -> list[bytes]:
    found = [b"", b"\x90", b"\x01"]
    for body in bodies:
        found += [body[:at] for at in range(0, len(body), 7)]
        for at in range(len(body)):
            found += [bytes([*body[:at], byte, *body[at + 1 :]]) for byte in (0, 0x90, 0xC0, 0xC2)]
    for depth in (100, 250, 100_000):
        head = msgspec.msgpack.encode([1, "xml", "k", "index", None, [], ["a"], [[], 0, []]])
        deep = b"\x94\x00\x90\x90\x91" * depth + b"\x00"
        found.append(head[:-2] + deep + head[-1:])
    return found


def test_the_deepest_document_is_rebuilt() -> None:
    """A readable document could not be rebuilt."""
    data = b"<a>" * DOCUMENT_DEPTH_MAX + b"x" + b"</a>" * DOCUMENT_DEPTH_MAX
    (made,) = rendered(data, ReadOptions(strategy="daemon", rename={".".join("a" * 64): "deep"}))
    assert document_of(made) == data


def test_frozen_readings_can_be_changed() -> None:
    """Else one reading could not be made of another."""
    assert replace(ReadOptions(), strategy="last").strategy == "last"


def shaped(content: Any, *texts: str, form: str = "xml", strategy: str = "index") -> Notification:
    head = [1, form, "k", strategy, None, [], list(texts), content]
    body = msgspec.msgpack.encode(head)
    return Notification({"a": "\x01", "n": 1}, body=body, content_type=SHAPE_TYPE)


def element(name: Any, *content: Any, spaces: Any = (), attributes: Any = ()) -> list[Any]:
    return [name, list(spaces), list(attributes), list(content)]


def nested(inner: Any, times: int, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(times):
        inner = wrap(inner)
    return inner


HOSTILE_SHAPES = {
    "deep": shaped([[], nested(element(0), 240, lambda each: element(0, each)), []], "a"),
    "a little too deep": shaped(
        [[], nested(element(0), 64, lambda each: element(0, each)), []], "a"
    ),
    "deep objects": shaped(nested(None, 240, lambda each: {"a": each}), form="json"),
    "deep arrays": shaped({"a": nested(None, 240, lambda each: [each])}, form="json"),
    "deep bytes": shaped({"a": b"[" * 5_000 + b"]" * 5_000}, form="json"),
    "a list": shaped([None], form="json"),
    "a number": shaped({"a": 5}, form="json"),
    "no text": shaped(["a", "b", "c"], "a"),
    "nil": shaped(None, "a"),
    "a map": shaped({"a": 1}, "a"),
    "no name": shaped([[], element(0), []], ""),
    "a name with a blank": shaped([[], element(0), []], "a b='c'"),
    "a name with a tag": shaped([[], element(0), []], "a><b/></a><a"),
    "a name with a digit": shaped([[], element(0), []], "1a"),
    "an attribute with another": shaped([[], element(0, attributes=[1, 0]), []], "a", "b='1' c"),
    "a prefix with an attribute": shaped([[], element(0, spaces=[1, 0]), []], "a", "b='1' c"),
    "an unbound prefix": shaped([[], element(0), []], "p:a"),
    "an instruction with a tag": shaped([[], element(0, [1, 2, 0]), []], "a", "p", "?><b/><?c "),
    "a target with a tag": shaped([[], element(0, [1, 0, 0]), []], "a", "p?><b/><?c"),
    "a negative position": shaped([[], element(-1), []], "a"),
    "a true position": shaped([[], element(True), []], "a", "b"),
    "a control in a text": shaped([[], element(0, 1), []], "a", "\x01"),
    "another form": shaped([[], element(0), []], "a", form="yaml"),
    "another strategy": shaped([[], element(0), []], "a", strategy="multi"),
    "one text often": shaped([[], element(0, *[element(0, 1)] * 10_000), []], "a", "x" * 10**4),
}


@pytest.mark.parametrize("name", HOSTILE_SHAPES)
def test_hostile_shapes(name: str) -> None:
    """A foreign body would end the process, fill the memory, or write arbitrary XML."""
    for read in (document_of, names_in):
        with pytest.raises(InputError, match="shape"):
            read(HOSTILE_SHAPES[name])


def test_a_value_that_xml_cannot_hold() -> None:
    """The result would be no document."""
    with pytest.raises(InputError, match="XML cannot hold"):
        document_of(shaped([[], element(0, None), []], "a"))
