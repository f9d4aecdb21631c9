"""Links of feeds that are relative."""

from typing import Any

import feedparser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from contrada.integrations.feeds.feed_formats import only, read_feed, resolve_links
from contrada.integrations.feeds.feed_poller import FeedPoller
from contrada.integrations.files import Record
from tests.asynchronous import on_loop
from tests.integrations.feeds.web import answering, website

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://example.org/a/">
<id>urn:f</id><icon>../icon.png</icon><link href="/all" rel="alternate"/>
<entry xml:base="b/"><id>urn:1</id><author><name>A</name><uri>me</uri></author>
<link href="c?d#e"/><link rel="enclosure" href="//cdn.example/x.mp3"/>
<content src="../text.html" type="text/html"/></entry>
<entry><id>urn:2</id><link href="http://other.example/x/../y"/><link rel="via" href="urn:x"/>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml" xml:base="deep/"><a href="z">z</a>
<img src="i.png"/></div></content></entry></feed>"""
RSS = """<rss><channel><link>/</link><item><guid>1</guid><link> p/1 </link><comments>c</comments>
<enclosure url="a.mp3"/><title>a/b</title></item></channel></rss>"""

# RFC 3986 §5.4, and the link that each reference is.
BASE = "http://a/b/c/d;p?q"
RESOLVED = {
    "g:h": "g:h",
    "g": "http://a/b/c/g",
    "./g": "http://a/b/c/g",
    "g/": "http://a/b/c/g/",
    "/g": "http://a/g",
    "//g": "http://g",
    "?y": "http://a/b/c/d;p?y",
    "g?y": "http://a/b/c/g?y",
    "#s": "http://a/b/c/d;p?q#s",
    "g#s": "http://a/b/c/g#s",
    ";x": "http://a/b/c/;x",
    "..": "http://a/b/",
    "../..": "http://a/",
    "../../g": "http://a/g",
    "../../../g": "http://a/g",
    "g;x=1/../y": "http://a/b/c/y",
    "//[": "//[",
}


def resolved(text: str, address: str = "") -> Any:
    """The document with all entries, and its links resolved."""
    feed = read_feed(text.encode(), "f")
    return etree.fromstring(only(feed, feed.entries, address))


@pytest.mark.parametrize(("link", "expected"), RESOLVED.items())
def test_links_are_resolved_as_defined(link: str, expected: str) -> None:
    """A reader of an entry would be sent to another place."""
    root = etree.fromstring(f'<feed xml:base="{BASE}"><link href="{link}"/></feed>')
    resolve_links(root, "http://unused/")
    assert root[0].get("href") == expected


def test_bases_are_those_of_the_elements_around() -> None:
    """A link would be resolved by another part of its feed."""
    links = resolved(ATOM).xpath("//@href | //@src | //*[local-name()='uri']/text()")
    assert [str(each) for each in links] == [
        "http://example.org/all",
        "http://example.org/a/b/me",
        "http://example.org/a/b/c?d#e",
        "http://cdn.example/x.mp3",
        "http://example.org/a/text.html",
        "http://other.example/x/../y",
        "urn:x",
        "http://example.org/a/deep/z",
        "http://example.org/a/deep/i.png",
    ]


def test_links_are_those_of_feedparser() -> None:
    """Both readers of a feed would show different links."""
    other = feedparser.parse(ATOM, sanitize_html=False)
    ours = resolved(ATOM)
    entries = ours.findall("{*}entry")
    assert [[each["href"] for each in entry.links] for entry in other.entries] == [
        [each.get("href") for each in entry.iterfind("{*}link")] for entry in entries
    ]
    assert other.feed.icon == ours.findtext("{*}icon") == "http://example.org/icon.png"
    assert other.entries[0].author_detail.href == entries[0].findtext("{*}author/{*}uri")


def test_only_addresses_change() -> None:
    """A title or an identity would become an address, or a file would get one."""
    item = resolved(RSS, "http://example.org/x/feed.rss")[0][1]
    assert {each.tag: each.text or dict(each.attrib) for each in item} == {
        "guid": "1",
        "link": "http://example.org/x/p/1",
        "comments": "http://example.org/x/c",
        "enclosure": {"url": "http://example.org/x/a.mp3"},
        "title": "a/b",
    }
    assert etree.tostring(resolved(RSS)) == RSS.encode()
    message = "<alert><identifier>1</identifier><web>x</web><uri>y</uri></alert>"
    assert etree.tostring(resolved(message, "http://example.org/")) == message.encode()


def test_a_feed_that_moves_is_the_same() -> None:
    """All entries of a feed at a new address would be changed."""
    one, other = (read_feed(text.encode(), "f") for text in (ATOM, ATOM.replace("b/", "c/")))
    assert [each.identity for each in one.entries] == [each.identity for each in other.entries]
    again = read_feed(RSS.encode(), "f")
    only(again, again.entries, "http://example.org/")
    assert again.entries[0].version == read_feed(RSS.encode(), "f").entries[0].version


@on_loop
async def test_a_server_is_the_base_of_its_feed() -> None:
    """Links without a base would lead nowhere, or show the password of the feed's address."""
    pages = {
        "/old": lambda request: answering(request, b"", 302, Location="/new/feed"),
        "/new/feed": lambda request: answering(request, RSS.encode()),
    }
    with website(pages) as address:
        with_password = address.replace("//", "//user:secret@")  # pragma: allowlist secret
        (poll,) = [each async for each in FeedPoller([f"{with_password}/old"]).polls()]
    (record,) = poll.records
    assert isinstance(record, Record)
    assert record.notification["rss.channel.item.link"] == f"{address}/new/p/1"


@given(base=st.text(max_size=12), link=st.text(max_size=12))
def test_any_text_may_be_a_link(base: str, link: str) -> None:
    """A text that is no address would end the polls of all feeds."""
    root = etree.fromstring('<feed><entry><link href="x"/></entry></feed>')
    try:
        root.set("{http://www.w3.org/XML/1998/namespace}base", base)
        root[0][0].set("href", link)
    except ValueError:  # No XML.
        return
    resolve_links(root, "http://example.org/")
    assert root[0][0].get("href") is not None
