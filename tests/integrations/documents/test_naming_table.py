"""Tables of generated names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidNotificationError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.naming_table import NamingOutcome, NamingRecord, NamingTable
from contrada.model import Envelope, Notification

ONE = NamingRecord("feed", "story.title~2", "story.title", "story[2].title", "desk", 5)

RECORDS = st.builds(
    NamingRecord,
    st.sampled_from(["feed", "{urn:x}rss"]),
    st.sampled_from(["a~2", "a~3"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["a[2]", "b[1]"]),
    st.sampled_from(["north", "south"]),
    st.integers(0, 2),
)


@given(st.lists(RECORDS, max_size=12), st.data())
def test_any_order_and_any_repeats_give_one_table(
    records: list[NamingRecord], data: st.DataObject
) -> None:
    """Two daemons would answer differently for ever."""
    twice = records + (data.draw(st.lists(st.sampled_from(records))) if records else [])
    other = data.draw(st.permutations(twice))
    assert NamingTable(records) == NamingTable(other)
    assert set(NamingTable(other)) <= set(records)
    parts = NamingTable(NamingTable(records[:5])), NamingTable(NamingTable(records[5:]))
    assert NamingTable(each for part in parts for each in part) == NamingTable(records)


@given(st.lists(RECORDS, min_size=1))
def test_the_earliest_record_wins(records: list[NamingRecord]) -> None:
    """The last author could take a name from its users."""
    table = NamingTable(records)
    for record in records:
        standing = table.get(record.kind, record.generated)
        assert standing is not None
        assert standing.rank <= record.rank


def test_adding_a_record_returns_its_outcome() -> None:
    """A conflict between two authors of one name would go unnoticed."""
    table = NamingTable()
    later = ONE._replace(time_us=6)
    other = ONE._replace(original="story.link", time_us=4)
    assert table.take(ONE) is NamingOutcome.NEW
    assert table.take(ONE) is table.take(later) is NamingOutcome.KNOWN
    assert table.take(other) is NamingOutcome.CONFLICT
    assert table.get("feed", "story.title~2") == other
    assert table.take(ONE) is NamingOutcome.CONFLICT
    assert table.get("feed", "story.title~2") == other


def test_both_ways() -> None:
    """One of two names would not lead to the other."""
    records = [ONE._replace(generated=f"story.title~{number}") for number in (10, 2, 3)]
    table = NamingTable(records)
    found = [each.generated for each in table.of_original("feed", "story.title")]
    assert found == ["story.title~2", "story.title~3", "story.title~10"]
    assert table.of_original("rss", "story.title") == []
    assert len(table) == 3


def test_it_is_bounded() -> None:
    """Invented names would fill the memory of all daemons."""
    table = NamingTable([ONE], DocumentLimits(kinds_max=1, kind_names_max=1))
    assert table.take(ONE._replace(generated="x~2")) is NamingOutcome.REFUSED
    assert table.take(ONE._replace(kind="rss")) is NamingOutcome.REFUSED
    assert list(table) == [ONE]


def test_a_record_travels() -> None:
    """A daemon would hear of other names, or give another one the word."""
    assert NamingRecord.from_notification(ONE.to_notification()) == ONE
    own = ONE._replace(who="").to_notification()
    told = own.with_envelope(Envelope(id="1", publisher="desk", sequence=1, time_us=5))
    assert NamingRecord.from_notification(told) == ONE


@pytest.mark.parametrize(
    "change",
    [
        {"original": 5},
        {"original": ["a", "b"]},
        {"kind": ""},
        {"position": "x" * 2_000},
        {"time": 5},
        {"who": 7},
    ],
)
def test_other_notifications_are_refused(change: dict[str, object]) -> None:
    """A foreign notification would end the daemon, or enter its table."""
    told = Notification({**ONE.to_notification().attributes, **change})
    with pytest.raises(InvalidNotificationError):
        NamingRecord.from_notification(told)
