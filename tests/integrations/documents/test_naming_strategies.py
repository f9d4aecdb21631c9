"""The strategies on the paper's example, and on odd documents."""

import json
from typing import Any

import pytest
from hypothesis import given

from contrada.errors import InputError
from contrada.integrations.documents import STRATEGIES
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer
from tests.integrations.documents.documents import STORIES, documents


def rendered(data: bytes, form: str = "xml", **options: Any) -> list[dict[str, Any]]:
    renderer = Renderer(ReadOptions(**options), form)
    found = list(renderer.render(data))
    assert not [each for each in found if isinstance(each, BadRecord)]
    return [dict(each.notification) for each in found if isinstance(each, Record)]


def test_the_strategies_of_the_paper() -> None:
    """Erenkrantz 2001 §6: a strategy would not match its name."""
    around = {"backslash.e.a.b": 1.0, "backslash.e": "x"}
    first = {
        "backslash.story.b:n": 1,
        "backslash.story.title": "Game",
        "backslash.story.time": 2001,
    }
    assert rendered(STORIES, strategy="last") == [
        {
            **first,
            "backslash.story.title": "Two",
            "backslash.story.b": "here",
            "backslash.story": "again",
            **around,
        }
    ]
    several = ("again", "said")
    assert rendered(STORIES) == [
        {
            **first,
            "backslash.story.title": ("Game", "Two"),
            "backslash.story.b": "here",
            "backslash.story": several,
            **around,
        }
    ]
    second = {
        "backslash.story.title": "Two",
        "backslash.story.b": "here",
        "backslash.story": several,
    }
    assert rendered(STORIES, strategy="split") == [{**first, **around}, {**second, **around}]
    own = {"backslash.e.a%2Eb": 1.0, "backslash.e": "x"}
    assert rendered(STORIES, strategy="index") == [
        {
            "backslash.story.0.b:n": 1,
            "backslash.story.0.title": "Game",
            "backslash.story.0.time": 2001,
            "backslash.story.1.title": "Two",
            "backslash.story.1.0": "said",
            "backslash.story.1.b": "here",
            "backslash.story.1.1": "again",
            **own,
        }
    ]
    assert rendered(STORIES, strategy="pattern") == rendered(STORIES, strategy="index")
    assert rendered(STORIES, strategy="daemon") == [
        {
            **first,
            "backslash.story.title~2": "Two",
            "backslash.story": "said",
            "backslash.story.b": "here",
            "backslash.story~2_2": "again",
            **own,
        }
    ]


def test_lost_and_repeated_names_are_reported() -> None:
    """Erenkrantz 2001 §6.1, §6.2: else a source could not be changed, and loss be silent."""
    renderer = Renderer(ReadOptions(strategy="last"))
    list(renderer.render(STORIES))
    assert renderer.lost == {"backslash.story.title": 1, "backslash.story": 1}
    for strategy in STRATEGIES:
        if strategy != "xslt":
            renderer = Renderer(ReadOptions(strategy=strategy))
            list(renderer.render(STORIES))
            assert renderer.repeated == {"backslash.story": 2}, strategy


def test_an_attribute_and_an_element_of_one_name() -> None:
    """Else two values would share a name that is to be unambiguous."""
    data = b'<a b="1"><b>2</b></a>'
    assert rendered(data, strategy="index") == [{"a.b": 1, "a.b.0": 2}]
    assert rendered(data, strategy="daemon") == [{"a.b": 1, "a.b~1": 2}]


@given(documents())
def test_names_are_unambiguous(data: bytes) -> None:
    """A name would mean several values, and no document could be rebuilt."""
    several = sum(
        len(value) if isinstance(value, tuple) else 1
        for value in rendered(data, types={"none": "text"})[0].values()
    )
    for strategy in ("index", "daemon"):
        (found,) = rendered(data, strategy=strategy)
        assert len(found) >= several
        assert not [each for each in found.values() if isinstance(each, tuple)]


def test_which_element_is_split() -> None:
    """The events of a document would be unpredictable."""
    for data, name, count in (
        (b"<r><a/><b><c>1</c><c>2</c></b></r>", "r.b.c", 2),
        (b"<r><a>1</a><b/><b/><b>3</b><a/></r>", "r.b", 3),
        (b"<r><a>1</a><b>2</b><b>3</b><a>4</a></r>", "r.a", 2),
    ):
        renderer = Renderer(ReadOptions(strategy="split"))
        assert len(list(renderer.render(data))) == count
        assert name in renderer.repeated
    assert rendered(b"<r><a n='1'><b/></a></r>", strategy="split") == [{"r.a.n": 1}]


def test_objects_have_the_same_strategies() -> None:
    """Else a sender of JSON would have to choose another way."""
    content = {"t": "x", "story": [{"title": "a", "n": [1, 2]}, {"title": "b"}]}
    data = json.dumps(content).encode()
    assert rendered(data, "json", strategy="last") == [{"t": "x", "story.title": "b", "story.n": 2}]
    assert rendered(data, "json", strategy="split") == [{"title": "a", "n": (1, 2)}, {"title": "b"}]
    assert rendered(data, "json", strategy="index") == [
        {"t": "x", "story.0.title": "a", "story.0.n.0": 1, "story.0.n.1": 2, "story.1.title": "b"}
    ]
    assert rendered(data, "json", strategy="daemon") == [
        {"t": "x", "story.title": "a", "story.n": 1, "story.n~1_2": 2, "story.title~2": "b"}
    ]
    assert rendered(b'{"0":{"1a":1,"a.b":2}}', "json", strategy="index") == [
        {"%30.%31a": 1, "%30.a%2Eb": 2}
    ]
    assert rendered(data, "json", strategy="index", entries="story")[0]["n.1"] == 2


def test_a_type_of_a_plain_name_holds_for_all() -> None:
    """Else the second of two values would have another type than the first."""
    data = b"<r><a>1</a><a>2</a></r>"
    types = {"r.a": "text"}
    assert rendered(data, strategy="daemon", types=types) == [{"r.a": "1", "r.a~2": "2"}]
    assert rendered(data, strategy="index", types=types) == [{"r.a.0": "1", "r.a.1": "2"}]
    only = {"r.a.1": "text"}
    assert rendered(data, strategy="index", types=only) == [{"r.a.0": 1, "r.a.1": "2"}]


def test_refused_patterns() -> None:
    """Else a slip would be found out when events are missing."""
    with pytest.raises(InputError, match="expected one of multi, last"):
        ReadOptions(strategy="first")
    with pytest.raises(InputError, match="needs a stylesheet"):
        ReadOptions(strategy="xslt")
    with pytest.raises(InputError, match="for XML"):
        Renderer(ReadOptions(schema=b"<!ELEMENT a ANY>"), "json")
    with pytest.raises(InputError, match="expected xml or json"):
        Renderer(ReadOptions(), "csv")
