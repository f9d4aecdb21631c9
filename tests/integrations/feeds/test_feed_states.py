"""The known entries of feeds, from one poll or run to the next."""

import json
import os
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.integrations.feeds.feed_document import FeedDocument
from contrada.integrations.feeds.feed_formats import read_feed
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.feed_states import NO_VALIDATORS, FeedStates, SeenFeed, Validators


def feed(*entries: tuple[str, str], identity: str = "urn:f") -> FeedDocument:
    """A feed with these ids and titles."""
    items = "".join(
        f"<item><guid>{guid}</guid><title>{title}</title></item>" for guid, title in entries
    )
    data = f"<rss><channel><link>{identity}</link>{items}</channel></rss>"
    return read_feed(data.encode(), "f")


def judged(known: SeenFeed, document: FeedDocument, former_max: int = 100) -> list[str]:
    """The states of the entries, which are known afterwards."""
    found = [str(each) for each in known.judge(document)]
    known.take(document, former_max)
    return found


def test_new_changed_and_unchanged() -> None:
    """An entry would appear twice, or its change not at all."""
    known = SeenFeed()
    assert judged(known, feed(("1", "a"), ("2", "b"))) == ["new", "new"]
    assert judged(known, feed(("3", "c"), ("1", "a"), ("2", "B"))) == [
        "new",
        "unchanged",
        "changed",
    ]
    assert judged(known, feed(("2", "b"))) == ["changed"]
    assert judged(known, feed(("1", "a"), ("3", "c"))) == ["unchanged", "unchanged"]


def test_repeated_entries_of_a_feed() -> None:
    """Two entries of one id would be changes of one another forever."""
    known = SeenFeed()
    twice = feed(("1", "a"), ("1", "b"), ("1", "a"))
    assert judged(known, twice) == ["new", "changed", "unchanged"]
    assert judged(known, twice) == ["unchanged"] * 3


def test_former_entries_are_forgotten_last() -> None:
    """A feed that flaps would repeat all entries, or memory grow without end."""
    known = SeenFeed()
    for number in range(5):
        judged(known, feed((str(number), "t"), ("always", "t")), former_max=2)
    assert len(known.entries) == 4
    assert judged(known, feed(*((str(number), "t") for number in range(5)))) == [
        "new",
        "new",
        "unchanged",
        "unchanged",
        "unchanged",
    ]


def test_a_file_outlives_its_run(tmp_path: Path) -> None:
    """Each run would yield all entries again."""
    path = tmp_path / "feeds.state"
    states = FeedStates(path)
    states.take("http://x/", feed(("1", "a")), Validators("e1", "monday"))
    states.take("f.xml", feed(("2", "b"), ("3", "c"), identity="urn:g"), NO_VALIDATORS)
    again = FeedStates(path)
    assert again.seen("urn:f ").judge(feed(("1", "a"))) == ["unchanged"]
    assert again.seen("urn:g ").judge(feed(("1", "a"))) == ["new"]
    assert again.last("http://x/").validators == Validators("e1", "monday")
    assert again.last("http://y/").validators == NO_VALIDATORS
    assert (again.last("f.xml").entries, again.last("other").entries) == (2, 0)
    assert [each.name for each in tmp_path.iterdir()] == ["feeds.state"]


def test_feeds_are_bounded(tmp_path: Path) -> None:
    """A file would grow with every address that was ever polled."""
    states = FeedStates(tmp_path / "s", limits=FeedLimits(feeds_known_max=2))
    for number in (1, 2, 1, 3):
        states.take(f"f{number}", feed(("1", "a"), identity=f"urn:{number}"), NO_VALIDATORS)
    held = json.loads((tmp_path / "s").read_bytes())
    assert list(held["feeds"]) == ["urn:1 ", "urn:3 "]
    assert list(held["addresses"]) == ["f1", "f3"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "no file of states of feeds"),
        (b"[]", "no file of states of feeds"),
        (b'{"version": 1, "feeds": {"x": 5}}', r"\$\.feeds"),
        (b'{"version": 9}', "states of version 9, expected 1"),
    ],
)
def test_other_files_are_refused_and_left(tmp_path: Path, data: bytes, message: str) -> None:
    """Somebody's file would be written over."""
    path = tmp_path / "s"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        FeedStates(path)
    assert path.read_bytes() == data
    with pytest.raises(InputError, match="cannot be read"):
        FeedStates(tmp_path)


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends during a write would lose its state."""
    path = tmp_path / "s"
    FeedStates(path).take("f", feed(("1", "a")), NO_VALIDATORS)
    before = path.read_bytes()
    states = FeedStates(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("contrada.file_replacement.os.fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        states.take("f", feed(("2", "b")), NO_VALIDATORS)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="state_bytes_max"):
        FeedStates(path, limits=FeedLimits(state_bytes_max=5))


def test_two_runs_with_one_file_do_it_no_harm(tmp_path: Path) -> None:
    """The known entries of one run would be forgotten, or the file become unreadable."""
    path = tmp_path / "s"
    one, other = FeedStates(path), FeedStates(path)
    one.take("f", feed(("1", "a")), NO_VALIDATORS)
    one.take("f", feed(("1", "b")), NO_VALIDATORS)
    before = path.read_bytes()
    with pytest.raises(InputError, match="another run has written it"):
        other.take("g", feed(("2", "a")), NO_VALIDATORS)
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(InputError, match="another run has written it"):
        one.take("f", feed(("1", "c")), NO_VALIDATORS)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_that_write_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would write into one file and make it unreadable."""
    path = tmp_path / "s"
    one, other = FeedStates(path), FeedStates(path)
    sync = os.fsync

    def meanwhile(number: int) -> None:
        monkeypatch.setattr(os, "fsync", sync)
        other.take("g", feed(("2", "b")), NO_VALIDATORS)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(InputError, match="another run has written it"):
        one.take("f", feed(("1", "a")), NO_VALIDATORS)
    assert list(tmp_path.iterdir()) == [path]
    assert FeedStates(path).last("g").entries == 1
