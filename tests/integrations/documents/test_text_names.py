"""Names of texts, and the paper's examples."""

from typing import Any

from contrada.integrations.files import ReadOptions, Record, read_document


def texts(data: bytes, entries: str | None = None) -> list[dict[str, Any]]:
    found = read_document(data, "f", ReadOptions(entries=entries))
    return [dict(each.notification.attributes) for each in found if isinstance(each, Record)]


def test_simple_hierarchical_and_repeated() -> None:
    """Erenkrantz 2001 §5.1: else names would not be those of SIENA-XML."""
    assert texts(b"<XElement xattribute='1'/>") == [{"XElement.xattribute": 1}]
    hierarchy = b"<Root><XElement xattribute='1'/><ZElement zattribute='2'/></Root>"
    assert texts(hierarchy) == [{"Root.XElement.xattribute": 1, "Root.ZElement.zattribute": 2}]
    # The paper sends one of the two (§6.1); here none is lost.
    repeated = b"<Root><XElement xattribute='1'/><XElement xattribute='2'/></Root>"
    assert texts(repeated) == [{"Root.XElement.xattribute": (1, 2)}]


def test_one_event_per_story() -> None:
    """Erenkrantz 2001 §8: else a news page would be one event."""
    page = b"""<backslash>
      <story><title>Game Boy Advance Arrives</title><time>2001-03-21 02:50:59</time></story>
      <story><title>Forced Into Spamming By Your Employer?</title>
             <time>2001-03-20 23:37:58</time><section>ask slashdot</section></story>
    </backslash>"""
    first, second = texts(page, "story")
    assert first == {
        "backslash.story.title": "Game Boy Advance Arrives",
        "backslash.story.time": "2001-03-21 02:50:59",
    }
    assert second["backslash.story.section"] == "ask slashdot"


def test_an_entry_includes_its_surroundings() -> None:
    """An observation would lack its airport."""
    track = b"""<gpx creator="x"><name>n</name><trk no="1"><author><name>deep</name></author>
      <seg><pt lat="1"/><pt lat="2"/></seg><seg><pt lat="3"/></seg></trk><trk><seg/></trk></gpx>"""
    found = texts(track, "pt")
    assert [each["gpx.trk.seg.pt.lat"] for each in found] == [1, 2, 3]
    for each in found:
        assert each["gpx.creator"] == "x"
        assert each["gpx.name"] == "n"
        assert each["gpx.trk.no"] == 1
        assert "gpx.trk.author.name" not in each


def test_entries_within_entries_belong_to_the_outer_one() -> None:
    """The inner entries would appear twice."""
    assert texts(b"<e n='1'><e n='2'/></e>", "e") == [{"e.n": 1, "e.e.n": 2}]
    assert texts(b"<a><b/></a>", "e") == []
