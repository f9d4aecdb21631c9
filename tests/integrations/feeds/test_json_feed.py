"""Feeds in JSON."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import ContradaError, InputError, LimitError, ParseError
from contrada.integrations.feeds.feed_formats import only, read_feed
from contrada.integrations.feeds.feed_poller import FeedPoller, Poll
from contrada.integrations.feeds.feed_states import FeedStates
from contrada.integrations.feeds.json_feed import is_json
from contrada.integrations.files import BadRecord, ReadOptions, Record
from tests.asynchronous import on_loop

ABOUT = {
    "version": "https://jsonfeed.org/version/1.1",
    "title": "T",
    "feed_url": "https://example.org/feed.json",
}
ITEMS = [
    {"id": "1", "title": "a", "tags": ["x", "y"], "date_published": "2026-01-01T00:00:00Z"},
    {"id": 2, "title": "b", "date_modified": "2026-01-01T00:00:00Z"},
    5,
]


def feed_of(*items: Any, **about: Any) -> bytes:
    return json.dumps({**ABOUT, **about, "items": items}).encode()


async def polled(path: Path, **options: Any) -> Poll:
    states = FeedStates(path.with_suffix(".state"))
    poller = FeedPoller([str(path)], states=states, **options)
    (poll,) = [each async for each in poller.polls()]
    return poll


@on_loop
async def test_new_and_changed_items_are_given(tmp_path: Path) -> None:
    """Feeds in JSON could not be followed, or each poll would yield all of them."""
    path = tmp_path / "feed"
    path.write_bytes(feed_of(*ITEMS))
    poll = await polled(path, options=ReadOptions(types={"date_published": "time"}))
    assert (poll.new, poll.changed, poll.unchanged, poll.bad, poll.error) == (3, 0, 0, 1, None)
    first, second, third = poll.records
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert first.notification["tags"] == ("x", "y")
    assert first.notification["feed.title"] == second.notification["feed.title"] == "T"
    assert second.notification["id"] == 2
    assert isinstance(third, BadRecord)
    assert third.reason == "items 3: found a JSON number, expected a JSON object"
    changed = {**ITEMS[0], "title": "A"}  # type: ignore[dict-item]
    unchanged = {**ITEMS[1], "title": "B"}  # type: ignore[dict-item]
    path.write_bytes(feed_of(unchanged, {"id": "3"}, changed, 5))
    poll = await polled(path)
    assert (poll.new, poll.changed, poll.unchanged, poll.bad) == (1, 1, 2, 0)
    assert [dict(each.notification)["id"] for each in poll.records if isinstance(each, Record)] == [
        "3",
        "1",
    ]
    again, edited = (
        [each.version for each in read_feed(data, "s", "items").entries]
        for data in (feed_of(ITEMS[1]), feed_of(unchanged))
    )
    assert again == edited
    poll = await polled(path, edits=True)
    assert (poll.new, poll.changed, poll.unchanged) == (0, 1, 3)


def test_a_feed_is_known_by_its_address_or_home() -> None:
    """A feed at a new place would be another one."""
    assert read_feed(feed_of(), "s").identity == ABOUT["feed_url"]
    home = {"feed_url": None, "home_page_url": "https://example.org/"}
    assert read_feed(feed_of(**home), "s").identity == "https://example.org/ T"
    assert read_feed(feed_of(feed_url=None), "s").identity == "s"
    marked = b"\xef\xbb\xbf" + feed_of(*ITEMS)
    assert is_json(marked)
    assert len(read_feed(marked, "s").entries) == 3
    assert not is_json(b"<rss/>")


def test_any_json_with_its_entries_named() -> None:
    """Only feeds of one format could be followed."""
    data = json.dumps({"a": {"b": [{"k": {"id": 1}, "v": 1}, {"k": {"id": 2}}]}}).encode()
    feed = read_feed(data, "s", "a.b", "k.id")
    moved = read_feed(data.replace(b'"v": 1', b'"v": 2'), "s", "a.b", "k.id")
    assert [each.identity for each in feed.entries] == [each.identity for each in moved.entries]
    assert feed.entries[0].version != moved.entries[0].version
    assert json.loads(only(feed, feed.entries[1:])) == {"a": {"b": [{"k": {"id": 2}}]}}
    whole = read_feed(b"[1, 2]", "s", ".")
    assert json.loads(only(whole, whole.entries)) == [1, 2]


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (b'{"items": []}', InputError, "s: found JSON that is no JSON Feed"),
        (b"[]", InputError, "s: found JSON that is no JSON Feed"),
        (feed_of().replace(b"items", b"item"), ParseError, "found no array at 'items'"),
        (b'{"a": 1,\n "a": 2}', ContradaError, "'a'"),
        (b'{"a":\n }', ParseError, "line 2, column 2"),
        (feed_of(*ITEMS), LimitError, "feed_entries_max"),
        (b'{"a":' * 100_000, LimitError, "OBJECT_DEPTH_MAX"),
    ],
)
def test_other_json_is_refused(data: bytes, error: type[ContradaError], reason: str) -> None:
    """A wrong address would look like a feed without news."""
    with pytest.raises(error) as found:
        read_feed(data, "s", entries_max=2)
    assert reason in str(found.value)


@on_loop
async def test_options_of_xml_are_refused(tmp_path: Path) -> None:
    """A stylesheet would be left out without a word."""
    path = tmp_path / "feed"
    path.write_bytes(feed_of(*ITEMS))
    sheet = b'<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"/>'
    poll = await polled(path, options=ReadOptions(stylesheet=sheet))
    assert "it is for XML" in str(poll.error)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("id", "url", "feed", "date_modified", "x", "")), inner)
    ),
    max_leaves=6,
)


@given(items=st.lists(VALUES, max_size=4), piece=st.binary(max_size=3), at=st.integers(0, 300))
def test_any_json_is_a_feed_or_refused(items: list[Any], piece: bytes, at: int) -> None:
    """A hostile feed would end the polls of all feeds."""
    data = feed_of(*items)
    feed = read_feed(data, "s")
    again = read_feed(only(feed, feed.entries), "s", "items")
    assert len(again.entries) == len(items)
    with suppress(ContradaError):
        read_feed(data[:at] + piece + data[at:], "s")


@on_loop
async def test_a_deep_item_is_no_fault(tmp_path: Path) -> None:
    """An item as deep as can just be read would end the polls of all feeds."""
    for depth in range(200, 1_200, 50):
        text = b'{"a":' * depth + b"1" + b"}" * depth
        path = tmp_path / f"{depth}"
        path.write_bytes(feed_of(1).replace(b"[1]", b"[" + text + b"]"))
        poll = await polled(path)
        assert poll.error or poll.bad


@on_loop
async def test_an_item_with_a_lone_surrogate_is_a_bad_record(tmp_path: Path) -> None:
    """One item of a hostile feed would end the polling of all feeds."""
    path = tmp_path / "f.json"
    path.write_bytes(feed_of({"id": "\ud800", "title": "a"}, {"id": "2"}))
    poll = await polled(path)
    assert [type(each) for each in poll.records] == [BadRecord, Record]
