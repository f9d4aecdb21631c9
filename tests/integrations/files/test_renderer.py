"""Documents in pieces, and real ones."""

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.element_tree import DOCUMENT_DEPTH_MAX
from contrada.integrations.files import (
    BadRecord,
    FileLimits,
    ReadOptions,
    Record,
    Renderer,
    flat_entries,
    read_file,
)
from contrada.integrations.files.flat_entries import FlatEntries
from tests.integrations.documents.documents import documents

FEED = b"""<?xml version="1.0"?>
<feed xmlns="urn:f" xmlns:cap="urn:c" lang="en">
  <link href="1"/><link href="2"/><author><name>deep</name></author>
  <entry><id>1</id><cap:event>Wind</cap:event></entry>
  <entry><id>2</id><n>1</n><n>x</n></entry>
  <entry n="3"> said <b>so</b> </entry>
  <entry><entry><id>4</id></entry></entry>
</feed>
"""


def taken(found: Iterator[Record | BadRecord]) -> list[Any]:
    return [
        each
        if isinstance(each, BadRecord)
        else (each.number, dict(each.notification), each.notification.body)
        for each in found
    ]


class Trickle(io.RawIOBase):
    """A stream that gives some bytes at once."""

    def __init__(self, data: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(data), size

    def read(self, size: int = -1, /) -> bytes:
        return self._stream.read(min(size, self._size))


def streamed(data: bytes, size: int = 2**16, **options: Any) -> list[Any]:
    renderer = Renderer(ReadOptions(**options))
    return taken(renderer.render(Trickle(data, size), "f"))  # type: ignore[arg-type]


def plain(data: bytes, **options: Any) -> list[Any]:
    """Reads a document without the fast way, which reports the same repeated names."""
    fast, slow = Renderer(ReadOptions(**options)), Renderer(ReadOptions(**options))
    for _ in fast.render(data, "f"):
        pass
    with patch.object(FlatEntries, "notification", lambda self, entry: None):
        found = taken(slow.render(data, "f"))
    assert fast.repeated == slow.repeated
    return found


@pytest.mark.parametrize("strategy", ["multi", "last", "split", "index", "daemon"])
@pytest.mark.parametrize("size", [1, 7, 64, 2**16])
def test_pieces_equal_the_whole(strategy: str, size: int) -> None:
    """An event would depend on the size of the pieces."""
    options = {"strategy": strategy, "entries": "entry"}
    whole = taken(Renderer(ReadOptions(**options)).render(FEED, "f"))  # type: ignore[arg-type]
    assert len(whole) == 4
    assert streamed(FEED, size, **options) == whole


@given(st.lists(documents(), max_size=4), st.sampled_from(("multi", "last", "split", "index")))
def test_any_entries_in_pieces(found: list[bytes], strategy: str) -> None:
    """Else the fast way and the plain one would mean different things."""
    entries = [each[each.index(b"<root") : each.rindex(b"</root>") + 7] for each in found]
    data = b"<all a='1'>x<t>y</t>" + b"<u/>".join(entries) + b"</all>"
    options = {"strategy": strategy, "entries": "root"}
    whole = taken(Renderer(ReadOptions(**options)).render(data, "f"))  # type: ignore[arg-type]
    assert streamed(data, 50, **options) == whole == plain(data, **options)
    one = taken(Renderer(ReadOptions(strategy=strategy)).render(data, "f"))
    assert one == plain(data, strategy=strategy)


def test_places_of_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else documents with ever new names would fill the memory, each place a hundred bytes."""
    monkeypatch.setattr(flat_entries, "NAMES_KEPT_MAX", 20)
    held: list[str] = []
    place = FlatEntries.place

    def counted(self: FlatEntries, path: str, depth: int) -> Any:
        held.append(path)
        return place(self, path, depth)

    monkeypatch.setattr(FlatEntries, "place", counted)
    renderer = Renderer(ReadOptions())
    for number in range(100):
        names = "".join(f"<n{number}_{each}>1</n{number}_{each}>" for each in range(9))
        (record,) = renderer.render(f"<r{number}>{names}</r{number}>".encode())
        assert isinstance(record, Record)
        assert len(dict(record.notification)) == 9
    many = b"".join(b"<n%d/>" % each for each in range(10_000))
    held.clear()
    assert taken(renderer.render(b"<r>" + many + b"</r>")) == [(1, {}, b"")]
    assert len(held) <= 21


def test_options_hold_for_pieces_too() -> None:
    """Else the fast way would forget one of them."""
    for options in (
        {"types": {"feed.entry.id": "text"}, "absent": frozenset({"Wind"})},
        {"rename": {"feed.entry.n": "feed.entry.id"}, "drop": frozenset({"feed.link"})},
        {"add": {"feed.entry.id": 7, "x": True}, "marks": ("Alert",)},
        {"add": {"feed.link.href": 7}},
        {"types": {"feed.entry.id": "bool"}},
        {"types": {"feed.entry.id": "epoch"}, "time": "feed.entry.id"},
        {"rename": {"feed.entry.id": "@x"}},
        {"drop": frozenset({"feed.entry"})},
    ):
        whole = taken(Renderer(ReadOptions(entries="entry", **options)).render(FEED, "f"))
        pieces = streamed(FEED, 64, entries="entry", **options)
        reasons = [each.reason if isinstance(each, BadRecord) else each for each in whole]
        for found in (pieces, plain(FEED, entries="entry", **options)):
            assert [e.reason if isinstance(e, BadRecord) else e for e in found] == reasons


def test_content_behind_entries_is_reported() -> None:
    """Entries would silently lack values that the whole document adds to them."""
    data = FEED.replace(b"</feed>", b"<title>late</title></feed>")
    *records, bad = streamed(data, 64, entries="entry")
    assert records == streamed(FEED, entries="entry")
    assert "feed.title" in bad.reason
    same = b"<r><t>1</t><t>2</t><e/><t>1</t></r>"
    for strategy in ("last", "index", "daemon"):
        *records, bad = streamed(same, 1, entries="e", strategy=strategy)
        assert "belong to them: r.t;" in bad.reason
    late = b"<r><p><e/><e/><t>1</t></p><p><e/><t>2</t></p></r>"
    *records, bad = streamed(late, 1, entries="e")
    assert len(records) == 3
    assert "r.p.t" in bad.reason


def test_a_fault_keeps_the_entries_before_it() -> None:
    """Else a feed that was cut in transit would be lost as a whole."""
    for cut in (b"<n>x</n>", b"</feed>"):
        data = FEED[: FEED.index(cut)]
        for size in (1, 2**16):
            *records, bad = streamed(data, size, entries="entry")
            assert len(records) == (1 if cut == b"<n>x</n>" else 4)
            assert isinstance(bad, BadRecord)
            assert bad.line == (5 if len(records) == 1 else 8)
    *records, bad = streamed(FEED.replace(b"<id>2</id>", b"<id>2</di>"), entries="entry")
    assert (len(records), bad.line, bad.column) == (1, 5, 20)
    *records, bad = streamed(FEED.replace(b"<id>2</id>", b"<id>&x;</id>"), entries="entry")
    assert isinstance(bad, BadRecord)


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    """Else a document larger than memory could not be read."""
    plain, packed = tmp_path / "f.xml", tmp_path / "f.xml.gz"
    plain.write_bytes(FEED)
    packed.write_bytes(gzip.compress(FEED))
    whole = taken(read_file(plain, "xml", ReadOptions(entries="entry"), "f"))
    assert taken(read_file(packed, "xml", ReadOptions(entries="entry"), "f")) == whole
    limits = FileLimits(document_bytes_max=100)
    for path in (plain, packed):
        options = ReadOptions(entries="entry", limits=limits)
        assert taken(read_file(path, "xml", options, "f")) == whole
        (bad,) = read_file(path, "xml", ReadOptions(limits=limits), "f")
        assert isinstance(bad, BadRecord)
        assert "document_bytes_max" in bad.reason


def test_an_entry_in_pieces_is_bounded() -> None:
    """Else one entry without an end would fill the memory."""
    limits = DocumentLimits(entry_bytes_max=500)
    data = b"<r>" + b"<e><a/></e>" * 100 + b"<x>" + b"<y/>" * 300 + b"</x><e/></r>"
    *records, bad = streamed(data, 64, entries="e", add={"n": 1}, document_limits=limits)
    assert len(records) == 100
    assert "entry_bytes_max" in bad.reason


ENTRIES = {
    "nws_cap_atom_2015-06-29T1735.xml": "entry",
    "nws_cap_atom_2015-06-29T1736.xml": "entry",
    "nws_cap_atom_2018-08-15.xml": "entry",
    "usgs_earthquakes_atom_2018-12-07.xml": "entry",
    "nasa_breaking_news_rss_2018-09.xml": "item",
    "nasa_news_releases_rss_2023-12.xml": "item",
    "gpx/Mojstrovka.gpx": "trkpt",
    "gpx/gpx1.1_with_all_fields.gpx": "trkpt",
    "cap_messages/ny_index.rss": "item",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_real_feeds_in_pieces(shared_data: Callable[..., Path], name: str) -> None:
    """Else a real feed would be read otherwise because it is large."""
    data = shared_data("xml_feeds", *name.split("/")).read_bytes()
    for strategy in ("multi", "last", "index", "daemon"):
        options = {"strategy": strategy, "entries": ENTRIES[name]}
        whole = taken(Renderer(ReadOptions(**options)).render(data, "f"))  # type: ignore[arg-type]
        assert streamed(data, 1_000, **options) == whole


def test_repetition_is_reported_for_pieces_too() -> None:
    """Erenkrantz 2001 §6.2: else a large source could not be changed."""
    expected = {"feed.link": 2, "feed.entry": 4, "feed.entry.n": 2}
    for strategy in ("multi", "index"):
        renderer = Renderer(ReadOptions(strategy=strategy, entries="entry"))
        list(renderer.render(Trickle(FEED, 64)))  # type: ignore[arg-type]
        assert renderer.repeated == expected, strategy


OUTSIDE = (
    b"<r><p><u>1</u></p><p/><o/><o/><l>1</l><l>2</l>"
    b"<g><e><a>1</a><a>2</a></e></g><g><e/><e/></g></r>"
)


@pytest.mark.parametrize("strategy", ["multi", "last", "split", "index", "daemon"])
def test_repetition_outside_of_entries_is_not_reported(strategy: str) -> None:
    """Else names that no notification has would be reported, but of a large document not."""
    for content in (OUTSIDE, Trickle(OUTSIDE, 7)):
        renderer = Renderer(ReadOptions(strategy=strategy, entries="e"))
        list(renderer.render(content))  # type: ignore[arg-type]
        assert renderer.repeated == {"r.l": 2, "r.g.e.a": 2, "r.g.e": 2}


def test_elements_around_one_entry_are_not_those_of_others() -> None:
    """Else an entry behind one with an odd name around it would have the attributes of that one."""
    odd = b"o." * DOCUMENT_DEPTH_MAX + b"o"
    data = b"<r k='1'><e>1</e><b %s='2' %s='3'><e>2</e></b><e>3</e></r>" % (odd, b"n" * 2_000)
    for around in (data, data.replace(b"n" * 2_000, b"n")):
        renderer = Renderer(ReadOptions(entries="e"))
        first, second, third = taken(renderer.render(around, "f"))
        assert (first[1], third[1]) == ({"r.k": 1, "r.e": 1}, {"r.k": 1, "r.e": 3})
        assert isinstance(second, BadRecord) == (around is data)
        assert renderer.repeated == {"r.e": 2}
        assert plain(around, entries="e")[0::2] == [first, third]
        for size in (1, 2**16):
            assert streamed(around, size, entries="e") == [first, second, third]


OWN_ENTITIES = b"""<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE r [ <!-- it's "own" -->
<!ENTITY c "ACME \xe9"> <?of it's?> ]>
<r a="&c;"><t>&c;</t><e>x &c;</e><e>
  <f></f></e><e n="&c;">\xe9</e></r>"""


@pytest.mark.parametrize("strategy", ["multi", "last", "index", "daemon"])
def test_declared_entities_become_texts_everywhere(strategy: str) -> None:
    """An event would depend on the size of the pieces, or on a fault in another entry."""
    options = {"strategy": strategy, "entries": "e"}
    render = Renderer(ReadOptions(**options)).render  # type: ignore[arg-type]
    whole = taken(render(OWN_ENTITIES, "f"))
    assert [each[1].get("r.e") for each in whole] == ["x ACME \xe9", None, "\xe9"]
    assert {each[1]["r.t"] for each in whole} == {"ACME \xe9"}
    assert whole[2][1]["r.e.n"] == "ACME \xe9"
    for size in (1, 2**16):
        assert streamed(OWN_ENTITIES, size, **options) == whole
    bad, first, last = taken(render(OWN_ENTITIES.replace(b"</f>", b"</x>"), "f"))
    assert (bad.line, bad.column) == (5, 10)
    assert [first[1:], last[1:]] == [whole[0][1:], whole[2][1:]]


def test_a_long_entity_is_refused_everywhere() -> None:
    """Else a document in pieces could become more than one that is whole."""
    long = b"<!DOCTYPE r [<!ENTITY c '%s'>]><r><e>&c;</e></r>" % (b"x" * 4_097)
    for found in (
        taken(Renderer(ReadOptions(entries="e")).render(long)),
        streamed(long, entries="e"),
    ):
        (bad,) = found
        assert "ENTITY_CHARS_MAX" in bad.reason


def test_parts_of_a_document_type_are_passed_over_everywhere() -> None:
    """Else a document that is read whole could not be read in pieces, or with a fault in it."""
    parts = b"<!DOCTYPE r [<!ENTITY % p SYSTEM 'no.dtd'> %p;]><r><e>1</e>\n<e>2</e><e/></r>"
    whole = taken(Renderer(ReadOptions(entries="e")).render(parts, "f"))
    assert [dict(each[1]) for each in whole[:2]] == [{"r.e": 1}, {"r.e": 2}]
    for size in (1, 2**16):
        assert streamed(parts, size, entries="e") == whole
    bad, *rest = taken(
        Renderer(ReadOptions(entries="e")).render(parts.replace(b"<e/>", b"<e></x></e>"))
    )
    assert (bad.line, [each[1] for each in rest]) == (2, [each[1] for each in whole[:2]])
    for used in (parts.replace(b"<e>2", b"<e>&p;"), parts.replace(b"<e>2", b"<e a='&x;'>2")):
        bad, first, _ = taken(Renderer(ReadOptions(entries="e")).render(used))
        assert (first, bad.line) == (whole[0], 2)
        assert isinstance(streamed(used, entries="e")[-1], BadRecord)
    own = b"<!DOCTYPE r [<!ENTITY c 'C'><!ENTITY % p SYSTEM 'no.dtd'> %p;]><r>&c;<b>&c;<e/></b></r>"
    for before in (own, own.replace(b"<r>&c;", b"<r><a/>")):
        for size in (1, 2**16):
            (bad,) = streamed(before, size, entries="e")
            assert "the entity &c;" in bad.reason
    for odd in (b"<e a='&x;'/>", b"<e xmlns='relative'/>" * 100 + b"<e a='&x;'/>"):
        for strategy in ("multi", "last", "index", "daemon"):
            used = parts.replace(b"<e/>", odd)
            (bad,) = taken(Renderer(ReadOptions(strategy=strategy)).render(used))
            assert "'x' not defined" in bad.reason or "100 warnings" in bad.reason
    for use in (b"<e>&p;2</e>", b"<e n='&p;'/>"):
        unknown = b"<!DOCTYPE r SYSTEM 'no.dtd'><r><e>1</e>" + use + b"<e/></r>"
        assert isinstance(taken(Renderer(ReadOptions(entries="e")).render(unknown))[0], BadRecord)
        (bad,) = streamed(unknown, entries="e")
        assert "Entity 'p' not defined" in bad.reason


@pytest.mark.slow
def test_one_fault_among_many_entries_is_soon_found() -> None:
    """Else the time would be the square of a document's size, or that of all its namespaces."""
    begin = process_time()
    entries = b"<e>\n</e><e></e>" * 20_000 + b"<e></x></e>"
    *records, bad = taken(Renderer(ReadOptions(entries="e")).render(b"<r>%s</r>" % entries, "f"))[
        ::-1
    ]
    assert (len(records), bad.line, bad.column) == (40_000, 20_001, 19)
    spaces = b" ".join(b"xmlns:p%d='u'" % n for n in range(5_000))
    (bad,) = Renderer(ReadOptions(entries="e")).render(b"<r %s>%s</r>" % (spaces, entries))
    assert isinstance(bad, BadRecord)
    assert process_time() - begin < 10
