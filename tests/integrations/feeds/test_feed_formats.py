"""Feeds as documents: formats, entries, and identities."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import feedparser
import pytest
from lxml import etree

from contrada.errors import InputError, LimitError, ParseError
from contrada.integrations.feeds.feed_document import remembered
from contrada.integrations.feeds.feed_formats import BEFORE_BYTES_MAX, only, read_feed

RSS = b"""<rss version="2.0"><channel><title>T</title><link>http://x/</link>
<item><guid>1</guid><link>l1</link><title>one</title></item>
<item><link>l2</link><title>two</title></item>
<item><title>three</title></item>
</channel></rss>"""
RDF = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns="http://purl.org/rss/1.0/"><channel rdf:about="http://x/rdf"><title>T</title></channel>
<item rdf:about="http://x/1"><title>one</title></item>
<item><link>http://x/2</link></item></rdf:RDF>"""
ATOM = b"""<a:feed xmlns:a="http://www.w3.org/2005/Atom"><a:id>urn:f</a:id>
<a:entry><a:id>urn:1</a:id><a:updated>2020-01-01T00:00:00Z</a:updated><a:title>x</a:title></a:entry>
<a:entry><a:link href="http://x/2" rel="alternate"/><a:source><a:entry/></a:source></a:entry>
</a:feed>"""
CAP = b"""<alert xmlns="urn:oasis:names:tc:emergency:cap:1.2"><identifier>i1</identifier>
<sender>s</sender><sent>2003-04-02T14:39:01-05:00</sent></alert>"""


def changed(
    data: bytes, old: bytes, new: bytes, *, edits: bool = False
) -> tuple[list[bool], list[bool]]:
    """Of which entries the identity is another one after a change, and of which the version."""
    assert old in data
    before = read_feed(data, "f", edits=edits).entries
    after = read_feed(data.replace(old, new), "f", edits=edits).entries
    pairs = list(zip(before, after, strict=True))
    return (
        [one.identity != other.identity for one, other in pairs],
        [one.version != other.version for one, other in pairs],
    )


def test_each_format_has_its_entries() -> None:
    """A feed would be refused, or entries be taken that are none."""
    found = [read_feed(data, "f") for data in (RSS, RDF, ATOM, CAP)]
    assert [(each.entries_name, len(each.entries)) for each in found] == [
        ("item", 3),
        ("item", 2),
        ("a:entry", 2),
        (None, 1),
    ]
    assert [each.identity for each in found] == ["http://x/ T", "http://x/rdf", "urn:f", "s"]
    assert read_feed(b"<rss><channel/></rss>", "f.xml").identity == "f.xml"
    named = RSS.replace(
        b"<title>T",
        b'<a:link xmlns:a="http://www.w3.org/2005/Atom" rel="self" href="http://x/rss"/><title>T',
    )
    assert read_feed(named, "f").identity == "http://x/rss"


@pytest.mark.parametrize(
    ("data", "old", "new", "identity", "version"),
    [
        (RSS, b">one<", b">ONE<", [], [0]),
        (RSS, b"<guid>1", b"<guid>2", [0], [0]),
        (RSS, b"l1", b"l9", [], [0]),
        (RSS, b"l2", b"l9", [1], [1]),
        (RSS, b">three<", b">four<", [2], [2]),
        (RSS, b"<title>one</title>", b"<!-- c -->  <title>\none </title>", [], []),
        (RSS, b"<title>T<", b"<title>U<", [], []),
        (RDF, b"http://x/1", b"http://x/9", [0], [0]),
        (RDF, b">one<", b">ONE<", [], [0]),
        (RDF, b"<link>http://x/2", b"<link>http://x/9", [1], [1]),
        (ATOM, b"<a:title>x", b"<a:title>y", [], []),
        (ATOM, b"2020", b"2021", [], [0]),
        (ATOM, b"urn:1", b"urn:2", [0], []),
        (ATOM, b"http://x/2", b"http://x/9", [1], [1]),
        (ATOM, b'rel="alternate"', b'rel="self"', [1], [1]),
        (CAP, b"i1", b"i2", [0], [0]),
        (CAP, b"2003", b"2004", [0], [0]),
        (CAP, b"</alert>", b"<info/></alert>", [], [0]),
    ],
)
def test_the_identity_of_an_entry(
    data: bytes, old: bytes, new: bytes, identity: list[int], version: list[int]
) -> None:
    """A changed entry would be new, a new one be lost, or blanks repeat one."""
    identities, versions = changed(data, old, new)
    assert [place for place, is_other in enumerate(identities) if is_other] == identity
    assert [place for place, is_other in enumerate(versions) if is_other] == version


def test_edits_without_a_new_date() -> None:
    """Corrections of a word could not be received."""
    assert changed(ATOM, b"<a:title>x", b"<a:title>y", edits=True)[1] == [True, False]


def test_prefixes_and_the_order_of_attributes_are_ignored() -> None:
    """A feed from another program would be new as a whole."""
    one = b'<rss xmlns:p="urn:x"><item p:a="1" b="2"><p:t/></item></rss>'
    other = b'<rss xmlns:q="urn:x"><item b="2" q:a="1"><q:t></q:t></item></rss>'
    found = [read_feed(data, "f").entries[0][:2] for data in (one, other)]
    assert found[0] == found[1]
    third = read_feed(one.replace(b"urn:x", b"urn:y"), "f").entries[0][:2]
    assert third != found[0]


def test_any_xml_with_its_entries_named() -> None:
    """Only news could be followed."""
    data = b"<g><p:t xmlns:p='u' id='7'><h><n>a</n></h></p:t><p:t xmlns:p='u'/><t/></g>"
    with pytest.raises(InputError, match="found the root 'g'"):
        read_feed(data, "f")
    assert len(read_feed(data, "f", "p:t").entries) == 2
    for path in ("id", "h.n"):
        one, two = read_feed(data, "f", "p:t", path).entries
        assert one.identity != one.version
        assert two.identity == two.version  # It has none of these, so its content is the identity.
    assert len(read_feed(RSS, "f", "title").entries) == 4


def test_only_some_entries() -> None:
    """Omitted entries would appear, or their surroundings be lost."""
    feed = read_feed(RSS.replace(b"</item>\n<item><link>", b"</item>tail<item><link>"), "f")
    left = etree.fromstring(only(feed, feed.entries[1:2]))
    assert [each.findtext("title") for each in left.iter("item")] == ["two"]
    assert left.findtext("channel/link") == "http://x/"
    assert "tail" in "".join(map(str, left.itertext()))
    feed = read_feed(CAP, "f")
    assert read_feed(only(feed, feed.entries), "f").entries[0][:2] == feed.entries[0][:2]


def test_broken_entries() -> None:
    """One broken entry would cost all others, or go unreported."""
    broken = RSS.replace(b"<title>two</title>", b"<title>two</titel>")
    feed = read_feed(broken, "f")
    assert len(feed.entries) == 2
    ((fault, piece),) = feed.faults
    assert fault.line == 3
    assert b"two" in piece
    with pytest.raises(ParseError):
        read_feed(b"<rss><channel>", "f")
    with pytest.raises(ParseError):
        read_feed(b"no feed", "f")


@pytest.mark.parametrize(
    "before", [b"\n", b"<br />\n<b>Warning</b>: <?php\n\n", b"<!-- <?xml -->\n\n"]
)
def test_the_output_of_a_server_before_a_feed_is_left_out(before: bytes) -> None:
    """A feed would be lost by a warning of its server, or its faults have other places."""
    data = b'<?xml version="1.0"?>\n' + RSS.replace(b"<title>two</title>", b"<title>two</titel>")
    (right,), (fault,) = (
        [each for each, _ in read_feed(each, "f").faults] for each in (data, before + data)
    )
    assert fault.line == right.line + before.count(b"\n")
    assert (fault.column, fault.found) == (right.column, right.found)
    with pytest.raises(ParseError) as refused:
        read_feed(before + b'<?xml version="1.0"?>\n<rss>', "f")
    assert refused.value.line == 2 + before.count(b"\n")
    # An element that only looks like a beginning is a part of its feed.
    quoted = RSS.replace(b"<title>two", b'<title><![CDATA[<?xml version="1.0"?><rss/>]]>two')
    assert len(read_feed(quoted, "f").entries) == len(read_feed(RSS, "f").entries)
    with pytest.raises(ParseError):
        read_feed(b" " * BEFORE_BYTES_MAX + data, "f")


def test_it_is_bounded() -> None:
    """A hostile feed would take all memory, or all time."""
    many = b" ".join(b'a%d="1"' % number for number in range(5_000))
    with pytest.raises(LimitError, match="ATTRIBUTES_MAX"):
        read_feed(b"<rss><item " + many + b"/></rss>", "f")
    bomb = b'<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    used = b"<rss><item><title>&b;</title></item></rss>"
    (entry,) = read_feed(bomb + used, "f").entries
    assert entry.node.findtext("title") == "a" * 80
    with pytest.raises(LimitError, match="ENTITY_CHARS_MAX"):
        read_feed(bomb.replace(b"aaaaaaaaaa", b"a" * 600) + used, "f")
    with pytest.raises(LimitError, match="feed_entries_max"):
        read_feed(RSS, "f", entries_max=2)


@pytest.mark.slow
def test_entries_are_those_that_feedparser_finds(
    shared_data: Callable[..., Path], tmp_path: Path
) -> None:
    """A real feed would lack entries."""
    paths = [
        *shared_data("xml_feeds").glob("*.xml"),
        *(
            path
            for path in shared_data("xml_feeds", "cap_messages").iterdir()
            if path.suffix in (".atom", ".rss")
        ),
    ]
    with tarfile.open(shared_data("xml_feeds", "feedparser_wellformed.tar.xz")) as packed:
        packed.extractall(tmp_path, filter="data")
    paths += (path for path in tmp_path.rglob("*.xml") if b"CDF" not in path.read_bytes())
    assert len(paths) > 500
    differing = {}
    for path in paths:
        data = path.read_bytes()
        expected = feedparser.parse(data).entries
        try:
            found = len(read_feed(data, path.name).entries)
        except InputError as error:
            found = -1 if "no feed" in str(error) else -2
        if found != len(expected):
            differing[str(path.relative_to(path.parents[1]))] = (found, len(expected))
    assert differing == {}


def test_the_document_is_not_remembered() -> None:
    """The document of a poll would stay in memory beside its records."""
    found = read_feed(b"<feed><entry><id>1</id></entry></feed>", "s")
    kept = remembered(found)
    assert [each[:2] for each in kept.entries] == [each[:2] for each in found.entries]
    assert (kept.identity, kept.format_name) == (found.identity, found.format_name)
    assert kept.root is None
    assert [each.node for each in kept.entries] == [None]


def test_a_message_of_another_sender_is_another_one() -> None:
    """Of two offices that number alike, one's warning would be taken for the other's."""
    text = "<alert><sender>{}</sender><identifier>1</identifier><sent>2015</sent></alert>"
    one, other = (read_feed(text.format(who).encode(), "s").entries[0] for who in "ab")
    assert one.identity != other.identity


def test_a_channel_is_the_same_by_its_link_to_itself_alone() -> None:
    """All feeds that one hub serves would be one feed."""
    links = '<a:link rel="hub" href="http://hub"/><a:link rel="self" href="http://me"/>'
    data = f'<rss xmlns:a="http://www.w3.org/2005/Atom"><channel>{links}</channel></rss>'
    assert read_feed(data.encode(), "s").identity == "http://me"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("begin", [b"<![CDATA[", b"<!--"])
def test_sections_without_an_end_cost_no_more_than_others(begin: bytes) -> None:
    """A hostile server would hold the poller for minutes: each would be searched to the end."""
    with pytest.raises(ParseError):
        read_feed(b"<rss>" + begin * 100_000 + b"</rss>", "f")
