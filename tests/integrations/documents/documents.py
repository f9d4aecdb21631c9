"""Documents that tests make: trees of XML as text, and objects of JSON."""

from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from hypothesis import strategies as st
from lxml import etree

STORIES: Final = b"""<?xml version="1.0"?>
<backslash xmlns:b="urn:b"><story b:n="1"><title>Game</title><time>2001</time></story>
<story><title>Two</title>said <b>here</b> again</story><e a.b="1.0"> x </e></backslash>"""

NAMES: Final = ("a", "b", "a.b", "p:a", "q:a", "é", "x-1")

TEXTS: Final = (
    "1", "1.0", " 7 ", "true", "x", "a & <b>", "]]>", "\t", "\n  ", "é\u2028", "-0", "1e3", "\r",
    "007", "x\ny", '"', "2001-01-01T00:00:00Z", "NA", "9" * 20, "0.10",
)  # fmt: skip

SPACES: Final = ("", ' xmlns:p="urn:1"', ' xmlns="urn:3"', ' xmlns=""', ' xmlns:q="urn:1"')

_texts: Final = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: escape(text, {"\r": "&#13;"})),
    st.sampled_from(("<![CDATA[<c> &]]>", "<![CDATA[ ]]>", "<!-- no -->", "<?pi some?>", "<?pi?>")),
    st.sampled_from(("&amp;", "&#65;", "&#x20;", "&lt;")),
)

_attributes: Final = st.dictionaries(
    st.sampled_from(("a", "b", "p:a", "q:b", "xml:lang", "c.d")), st.sampled_from(TEXTS), max_size=3
).filter(lambda found: not {"p:a", "q:a"} <= found.keys())


def _element(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def written(name: str, spaces: str, attributes: dict[str, str], content: list[str]) -> str:
        marks = {"\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
        shown = "".join(f" {key}={quoteattr(value, marks)}" for key, value in attributes.items())
        return f"<{name}{spaces}{shown}>{''.join(content)}</{name}>"

    content = st.lists(children | _texts, max_size=5)
    return st.builds(written, st.sampled_from(NAMES), st.sampled_from(SPACES), _attributes, content)


def documents() -> st.SearchStrategy[bytes]:
    """Documents with namespaces, mixed content, CDATA, instructions and entities."""
    inside = st.recursive(_texts, _element, max_leaves=12)
    beside = st.sampled_from(("", "<?before it?>", "<!-- c -->\n"))

    def whole(before: str, spaces: str, content: list[str], behind: str) -> bytes:
        declared = f'xmlns:p="urn:1" xmlns:q="urn:2"{spaces}'
        text = f"{before}<root {declared}>{''.join(content)}</root>{behind}"
        return text.encode()

    default = st.sampled_from(("", ' xmlns="urn:4"'))
    return st.builds(whole, beside, default, st.lists(inside, max_size=4), beside)


_scalars: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from((*TEXTS, "")),
    st.just({"$time": "2026-11-20T09:30:00+01:00"}),
    st.just({"$bytes": "0aff"}),
)


def objects() -> st.SearchStrategy[dict[str, Any]]:
    """Objects of JSON, with arrays in arrays and odd keys."""
    keys = st.sampled_from(("a", "b", "a.b", "0", "1x", "a~2", "%", "é", ""))
    inside = st.recursive(
        _scalars,
        lambda each: st.lists(each, max_size=4) | st.dictionaries(keys, each, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(keys, inside, max_size=4)


def canonical(data: bytes) -> bytes:
    """The canonical form, without comments."""
    parser = etree.XMLParser(resolve_entities=False, attribute_defaults=False)
    return etree.tostring(etree.fromstring(data, parser), method="c14n", with_comments=False)


def canonical_with_beside(data: bytes) -> bytes:
    """The canonical form of a whole document, including the siblings of its root."""
    parser = etree.XMLParser(resolve_entities=False, attribute_defaults=False)
    tree = etree.fromstring(data, parser).getroottree()
    return etree.tostring(tree, method="c14n", with_comments=False)
