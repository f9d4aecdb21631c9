"""XML documents to records, whole and damaged."""

import pytest

from contrada.integrations.files import BadRecord, ReadOptions, Record, read_document
from contrada.model import Notification

FEED = b"""<?xml version="1.0"?>
<feed xmlns="urn:f" xmlns:cap="urn:c" lang="en">
  <updated>2013</updated>
  <entry><id>1</id><cap:event>Wind</cap:event></entry>
  <entry><id>2</id></entry>
  <entry n="3"/>
  <entry><id>4</id></entry>
</feed>
"""

ENTRIES = ReadOptions(entries="entry", types={"feed.entry.id": "text"})


def read(data: bytes, options: ReadOptions = ENTRIES) -> tuple[list[Record], list[BadRecord]]:
    found = list(read_document(data, "f", options))
    records = [each for each in found if isinstance(each, Record)]
    return records, [each for each in found if isinstance(each, BadRecord)]


def ids(records: list[Record]) -> list[object]:
    return [each.notification.get("feed.entry.id") for each in records]


def test_one_notification_per_entry() -> None:
    """Else a feed would be one event with all its entries mixed."""
    records, bad = read(FEED)
    assert (len(records), bad) == (4, [])
    assert records[0] == Record(
        "f",
        1,
        Notification(
            {
                "feed.lang": "en",
                "feed.updated": 2013,
                "feed.entry.id": "1",
                "feed.entry.cap:event": "Wind",
            }
        ),
    )


def test_without_entries_the_document_is_one_notification() -> None:
    """Else repeated elements would be lost, as in the paper's own system."""
    ((record,), _) = read(FEED, ReadOptions())
    assert record.notification["feed.entry.id"] == (1, 2, 4)


BROKEN = [
    # (replaced text, replacement, place of the fault, ids that are still read)
    (b"<id>2</id>", b"<id>2</di>", (5, 20), ["1", None, "4"]),
    (b"<id>2</id>", b"a & b", (5, 13), ["1", None, "4"]),
    (b"<id>1</id>", b"<id a=1>1</id>", (4, 16), ["2", None, "4"]),
    (b"<id>2</id></entry>", b"<id>2</id>", (5, 3), ["1", None, "4"]),
    (b"<id>2</id>", b"<no:id>2</no:id>", (5, 16), ["1", None, "4"]),
]


@pytest.mark.parametrize(("old", "new", "place", "left"), BROKEN)
def test_a_broken_entry_costs_no_other(
    old: bytes, new: bytes, place: tuple[int, int], left: list[object]
) -> None:
    """Else everything after the first fault would be lost."""
    records, (bad,) = read(FEED.replace(old, new))
    assert ids(records) == left
    assert (bad.line, bad.column) == place
    assert all(each.notification["feed.updated"] == 2013 for each in records)


@pytest.mark.parametrize("broken", [b"<entry a=1/>", b'<entry a="1" a="2"/>', b"<entry no:a='1'/>"])
@pytest.mark.parametrize("before", [b"", b"<entry/>", b"<entry><id>0</id></entry>\n"])
@pytest.mark.parametrize("behind", [b"", b"<entry/>", b"<entry><id>9</id></entry>", b"<updated/>"])
def test_a_broken_empty_entry_costs_no_other(broken: bytes, before: bytes, behind: bytes) -> None:
    """An entry without an end tag would be one with the entry behind it, and cost both."""
    kept = FEED.replace(b'<entry n="3"/>', before + behind)
    records, (bad,) = read(FEED.replace(b'<entry n="3"/>', before + broken + behind))
    assert records == read(kept)[0]
    assert bad.line == 6 + before.count(b"\n")
    assert bad.text == broken.decode()


@pytest.mark.parametrize("cut", [b"</feed>", b"eed>\n", b"/feed>", b"\n</feed>"])
def test_a_document_that_ends_too_early(cut: bytes) -> None:
    """Else a feed that was cut in transit would be lost as a whole, or look complete."""
    records, bad = read(FEED[: FEED.rindex(cut)])
    assert ids(records) == ["1", "2", None, "4"]
    assert len(bad) == 1


def test_a_document_cut_within_an_entry() -> None:
    """Else the entries before the cut would be lost."""
    records, bad = read(FEED[: FEED.index(b"4</id>")])
    assert ids(records) == ["1", "2", None]
    assert [each.line for each in bad] == [7, 7]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no xml",
        FEED.replace(b"</updated>", b"</upd>"),
        b"<a><entry>\xff</entry></a>",
        b"<a><no:b><entry/>",
        b'<?xml version="1.0" encoding="nope"?><a/>',
        b"<a>" * 80 + b"</a>" * 80,
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>',
    ],
)
def test_types_that_are_not_inferred(data: bytes) -> None:
    """Else entries would be read in a context that nobody knows, or files be read."""
    records, bad = read(data)
    assert records == []
    assert len(bad) == 1


def test_a_value_not_of_its_type_is_the_fault_of_its_entry() -> None:
    """Else one wrong value would cost the document."""
    options = ReadOptions(entries="entry", types={"feed.entry.id": "bool"}, absent=frozenset({"1"}))
    records, bad = read(FEED, options)
    assert [each.number for each in records] == [1, 3]
    assert bad[0].reason.startswith("entry 2: attribute 'feed.entry.id'")


def test_limits() -> None:
    """Else a hostile document would take all memory or time."""
    context = b"<f>" + b"<x>1</x>" * 1001 + b"<entry/>" * 3 + b"</f>"
    records, (bad,) = read(context)
    assert records == []
    assert "context_values_max" in bad.reason
