"""The notifications of documents in the console."""

import json

import pytest

from contrada.errors import InputError, InvalidValueError
from contrada.integrations.console import pasted_records
from contrada.integrations.console.pasted_records import (
    PastedDocument,
    answer_document,
    notifications_in,
)
from contrada.integrations.feeds.feed_formats import read_feed

STORIES = "<a><s><t>x</t></s><s><t>y</t></s></a>"


@pytest.mark.parametrize(
    ("strategy", "records"),
    [
        ("multi", ['{"a.s.t":["x","y"]}']),
        ("split", ['{"a.s.t":"x"}', '{"a.s.t":"y"}']),
        ("index", ['{"a.s.0.t":"x","a.s.1.t":"y"}']),
    ],
)
def test_the_shown_notifications_are_those_that_are_published(
    strategy: str, records: list[str]
) -> None:
    """A sender would publish other notifications than the page shows."""
    document = PastedDocument(STORIES, strategy)
    rows = answer_document(document)["records"]
    assert [each["record"] for each in rows] == records
    shown = [json.loads(each["record"]) for each in rows]
    assert [{**each} for each in notifications_in(document)] == [
        {name: tuple(value) if isinstance(value, list) else value for name, value in each.items()}
        for each in shown
    ]


@pytest.mark.parametrize("name", ["\0", "s:", "\x1f", "\ufffe", "\ud800"])
def test_names_of_no_element_are_refused(name: str) -> None:
    """They would be a fault of the broker, or end a command and the polling of all feeds."""
    (row,) = answer_document(PastedDocument(STORIES, entries=name))["records"]
    assert "expected the name of an element" in row["error"]
    with pytest.raises(InputError, match="expected the name of an element"):
        read_feed(STORIES.encode(), "a.xml", name)


def test_a_document_comes_back() -> None:
    """The page would not show what a receiver makes of the notification."""
    (row,) = answer_document(PastedDocument(STORIES, "index"))["records"]
    assert row["document"] == STORIES
    assert "document" not in answer_document(PastedDocument(STORIES, "multi"))["records"][0]
    (row,) = answer_document(PastedDocument('{"a": [{"b": 1}, {"b": 2}]}', "daemon"))["records"]
    assert json.loads(row["document"]) == {"a": [{"b": 1}, {"b": 2}]}


def test_entries_are_notifications_of_their_own() -> None:
    """A document of entries would be published as one notification."""
    assert len(notifications_in(PastedDocument(STORIES, entries="s"))) == 2


def test_nothing_of_a_damaged_document_is_published() -> None:
    """A part of a document would be published, and again after it is mended."""
    with pytest.raises(InputError, match="records"):
        notifications_in(PastedDocument('{"a": 1}\n{"a"'))
    assert "error" in answer_document(PastedDocument('{"a": 1}\n{"a"'))["records"][1]


def test_unknown_strategies_and_too_many_notifications_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pasted file would be published in part."""
    with pytest.raises(InvalidValueError, match="strategy"):
        answer_document(PastedDocument(STORIES, "xslt"))
    monkeypatch.setattr(pasted_records, "DOCUMENT_RECORDS_MAX", 2)
    assert len(notifications_in(PastedDocument("a\n1\n2"))) == 2
    answer = answer_document(PastedDocument("a\n1\n2\n3"))
    assert (len(answer["records"]), answer["is_cut"]) == (2, True)
    with pytest.raises(InvalidValueError, match="DOCUMENT_RECORDS_MAX"):
        notifications_in(PastedDocument("a\n1\n2\n3"))
