"""One notification of one document, whichever way it is read; and all real documents."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import feedparser
import pytest
from lxml import etree

from contrada.integrations.documents import STRATEGIES, document_of
from contrada.integrations.files import BadRecord, Matcher, ReadOptions, Record, Renderer, read_file
from contrada.model import Notification, parse
from tests.integrations.documents.documents import STORIES

CONTENT = {"t": 1, "story": [{"title": "a", "n": [1, 2]}, {"title": "b"}]}
PLAIN = [each for each in STRATEGIES if each != "xslt"]
EVERY = parse("backslash.e any or t any or title any")


def canonized(data: bytes) -> str:
    """The canonical form (2.0) by another parser; libxml2's own (1.0) errs on a GPX file."""
    return ElementTree.canonicalize(from_file=io.BytesIO(data))


def matched(path: Path, form: str, options: ReadOptions) -> list[Notification]:
    found = Matcher([EVERY], options, 0).file(path, form, "f")  # type: ignore[list-item]
    return [
        each.record.notification
        for some in found
        for each in some.records
        if not isinstance(each, BadRecord)
    ]


@pytest.mark.parametrize("strategy", PLAIN)
def test_match_renders_as_the_renderer(strategy: str, tmp_path: Path) -> None:
    """A subscription to a file would match other documents than one to a service."""
    path, lines = tmp_path / "f.xml", tmp_path / "f.jsonl"
    path.write_bytes(STORIES)
    data = json.dumps(CONTENT).encode()
    lines.write_bytes(data + b"\n\n" + data + b"\n")
    for entries in (None, "story"):
        options = ReadOptions(strategy=strategy, entries=entries)
        expected = [each for each in Renderer(options).render(STORIES) if isinstance(each, Record)]
        assert matched(path, "xml", options) == [each.notification for each in expected]
        assert list(read_file(path, "xml", options, "document")) == expected
    options = ReadOptions(strategy=strategy)
    one = [
        each.notification
        for each in Renderer(options, "json").render(data)
        if isinstance(each, Record)
    ]
    assert one
    assert matched(lines, "jsonl", options) == one * 2
    read = [each for each in read_file(lines, "jsonl", options) if isinstance(each, Record)]
    assert [each.notification for each in read] == one * 2
    assert {each.number for each in read} == {1, 3}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", PLAIN)
def test_every_real_document_renders(shared_data: Callable[..., Path], strategy: str) -> None:
    """Else a document of a real source would be refused, or changed on the way."""
    folder = shared_data("xml_feeds")
    documents = {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".xml", ".cap", ".atom", ".rss", ".gpx")
    }
    with tarfile.open(folder / "feedparser_wellformed.tar.xz") as packed:
        for member in packed:
            stream = packed.extractfile(member)
            if stream is not None:
                documents[member.name] = stream.read()
    refused = {}
    for name, data in documents.items():
        # These have more values than a notification has attributes.
        entries = "entry" if len(data) > 300_000 else None
        for found in Renderer(ReadOptions(strategy=strategy, entries=entries)).render(data):
            if isinstance(found, BadRecord):
                refused[name] = found.reason
            elif strategy in ("index", "daemon", "pattern") and entries is None:
                assert canonized(document_of(found.notification)) == canonized(data), name
    assert len(documents) > 500
    # One would bring files of others in by its entities, and one is a text beside the documents.
    assert {name.rpartition("/")[2] for name in refused} == {"xee.cap", "LICENSE"}


def test_values_are_those_of_other_parsers(shared_data: Callable[..., Path]) -> None:
    """All strategies could agree on a wrong result."""
    path = shared_data("xml_feeds", "nws_cap_atom_2015-06-29T1735.xml")
    root = etree.parse(path).getroot()
    spaces = {"a": "http://www.w3.org/2005/Atom", "c": "urn:oasis:names:tc:emergency:cap:1.1"}
    events: Any = root.xpath("a:entry/c:event/text()", namespaces=spaces)
    found: list[Record] = []
    for strategy in ("split", "last", "index", "daemon"):
        options = ReadOptions(strategy=strategy, entries="entry")
        found = [each for each in read_file(path, "xml", options) if isinstance(each, Record)]
        values = [each.notification["feed.entry.cap:event"] for each in found]
        assert values == events
    entries = feedparser.parse(path.read_bytes()).entries
    assert [each.notification["feed.entry.id"] for each in found] == [each.id for each in entries]
    renderer = Renderer(ReadOptions(strategy="last"))
    (one,) = renderer.render(path)
    assert isinstance(one, Record)
    count = root.xpath("count(a:entry/c:geocode/a:value[text()])", namespaces=spaces)
    assert renderer.lost["feed.entry.cap:geocode.value"] + 1 == count
    assert renderer.repeated["feed.entry"] == len(events) == 377
    (whole,) = Renderer(ReadOptions(strategy="index")).render(path)
    assert isinstance(whole, BadRecord)  # Its values are more than a notification has attributes.
