"""Real feeds, read to the last entry."""

from collections.abc import Callable
from pathlib import Path

import pytest

from contrada.integrations.files import BadRecord, ReadOptions, Record, read_file
from contrada.model import Filter

FEEDS = [
    ("nws_cap_atom_2015-06-29T1735.xml", "entry", 377),
    ("nws_cap_atom_2015-06-29T1736.xml", "entry", 383),
    ("nws_cap_atom_2018-08-15.xml", "entry", 163),
    ("usgs_earthquakes_atom_2018-12-07.xml", "entry", 505),
    ("nasa_breaking_news_rss_2018-09.xml", "item", 10),
    ("nasa_news_releases_rss_2023-12.xml", "item", 10),
    ("gpx/Mojstrovka.gpx", "trkpt", 184),
]


@pytest.mark.parametrize(("name", "entries", "count"), FEEDS)
def test_every_entry_is_read(
    shared_data: Callable[..., Path], name: str, entries: str, count: int
) -> None:
    """Else alerts would be lost."""
    path = shared_data("xml_feeds", *name.split("/"))
    found = list(read_file(path, "xml", ReadOptions(entries=entries)))
    assert len(found) == count
    assert all(isinstance(each, Record) for each in found)


def test_alerts_can_be_filtered(shared_data: Callable[..., Path]) -> None:
    """The names and values of an alert would surprise its reader."""
    path = shared_data("xml_feeds", "nws_cap_atom_2018-08-15.xml")
    options = ReadOptions(
        entries="entry", types={"feed.entry.cap:effective": "time"}, time="feed.entry.cap:effective"
    )
    wanted = Filter(
        'feed.entry.cap:event = "High Wind Warning" and feed.entry.cap:geocode.value = "AKZ204"'
    )
    records = [each for each in read_file(path, "xml", options) if isinstance(each, Record)]
    found = [each for each in records if wanted.matches(each.notification)]
    assert [each.number for each in found] == [1]
    assert found[0].notification.envelope.time_us == 1_534_373_520_000_000


def test_single_documents(shared_data: Callable[..., Path]) -> None:
    """Else a well-formed message would be refused, or an entity be expanded."""
    folder = shared_data("xml_feeds")
    paths = [*(folder / "cap_messages").iterdir(), *(folder / "newsml_g2_dpa").iterdir()]
    for path in paths:
        (found,) = read_file(path, "xml", ReadOptions())
        assert isinstance(found, BadRecord) == (path.name == "xee.cap"), path.name
