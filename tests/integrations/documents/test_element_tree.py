"""Documents as trees."""

import pytest

from contrada.errors import LimitError, ParseError
from contrada.integrations.documents.document_slots import ElementPath, Walk
from contrada.integrations.documents.element_tree import (
    DOCUMENT_DEPTH_MAX,
    ENTITY_CHARS_MAX,
    attributes_of,
    element_name,
    parsed,
)


def values_in(data: bytes) -> list[tuple[str, str]]:
    root = parsed(data)
    path = ElementPath.to_root(element_name(root), escape=False)
    return [(slot.plain, slot.value) for slot in Walk(escape=False).slots(root, path)]


def test_texts_attributes_and_children() -> None:
    """Else a part of the document would not be in its notification."""
    found = values_in(b"<a z='1' b=' 2 ' e=''>x <c/>y<b>1</b> <!-- no --><?no?> <b>2</b></a>")
    assert found == [("a.z", "1"), ("a.b", "2"), ("a", "x"), ("a", "y"), ("a.b", "1"), ("a.b", "2")]


def test_prefixes_are_kept_as_written() -> None:
    """Else a filter would have to name a namespace by its address."""
    root = parsed(
        b'<feed xmlns="urn:f" xmlns:cap="urn:c" xml:lang="en"><cap:event cap:n="1" m="2"/></feed>'
    )
    assert (element_name(root), attributes_of(root)) == ("feed", {"xml:lang": "en"})
    assert element_name(root[0]) == "cap:event"
    assert attributes_of(root[0]) == {"cap:n": "1", "m": "2"}


def test_text_is_text() -> None:
    """Escapes, CDATA or another encoding would change the content."""
    assert parsed(b"<a>x &amp;<![CDATA[<q>]]>&#233;</a>").text == "x &<q>é"
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?><a>caf\xe9</a>'.encode("latin-1")
    assert parsed(latin).text == "café"
    assert parsed("<a>é</a>".encode("utf-16")).text == "é"


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [(b"<a>\n<b></c></a>", 2, 8), (b"<a>", 1, 4), (b"<a/>x", 1, 5), (b"<p:a/>", 1, 5)],
)
def test_errors_name_their_place(data: bytes, line: int, column: int) -> None:
    """Else the user would search the document for the fault."""
    with pytest.raises(ParseError) as caught:
        parsed(data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_depth_is_bounded() -> None:
    """Else a hostile document would exhaust the stack."""
    parsed(b"<a>" * DOCUMENT_DEPTH_MAX + b"</a>" * DOCUMENT_DEPTH_MAX)
    with pytest.raises(LimitError):
        parsed(b"<a>" * (DOCUMENT_DEPTH_MAX + 1) + b"</a>" * (DOCUMENT_DEPTH_MAX + 1))
    with pytest.raises(ParseError):
        parsed(b"<a>" * 100_000)


def test_entities_bring_nothing_in() -> None:
    """Else a document could read our files or grow to gigabytes."""
    outside = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">%s]>%s'
    for declared, use in (
        (b"", b'<a b="&x;"/>'),
        (b"", b"<a>&x;</a>"),
        (b'<!ENTITY y "&x;">', b"<a>&y;</a>"),
        (b"<!ENTITY % z '<!ENTITY y \"1\">'> %z;", b"<a>&y;</a>"),
        (b"<!ENTITY % z SYSTEM 'file:///etc/hostname'> %z;<!ENTITY y '1'>", b"<a>&y;</a>"),
    ):
        with pytest.raises(ParseError, match=r"one that the document declares|entity &y;"):
            values_in(outside % (declared, use))
    parts = outside % (b"<!ENTITY % z SYSTEM 'file:///etc/hostname'> %z; %z;", b"<a>1</a>")
    assert parsed(parts).text == "1"
    for unknown in (b'<a b="&x;"/>', b"<a>&x;</a>"):
        with pytest.raises(ParseError, match="'x' not defined"):
            parsed(b'<!DOCTYPE a SYSTEM "no.dtd">' + unknown)
    assert parsed(b'<!DOCTYPE a SYSTEM "no.dtd"><a>1</a>').text == "1"


def test_an_entity_becomes_its_text() -> None:
    """Else a document with a name of its own for a text would be refused."""
    declared = b"<!DOCTYPE a [<!ENTITY x 'A&#38;amp;B'><!ENTITY y '<b>&x;</b>c'>]>"
    found = parsed(declared + b"<a n='&x;'>1 &x;&y;</a>")
    assert (found.get("n"), found.text) == ("A&B", "1 A&B")
    assert (found[0].tag, found[0].text, found[0].tail) == ("b", "A&B", "c")
    longest = b"<!DOCTYPE a [<!ENTITY x '%s'><!ENTITY y '&x;%s'>]><a>&y;</a>"
    half = ENTITY_CHARS_MAX // 2
    text = parsed(longest % (b"x" * half, b"y" * (half - 3))).text or ""
    assert len(text) == ENTITY_CHARS_MAX - 3
    with pytest.raises(LimitError, match="ENTITY_CHARS_MAX"):
        parsed(longest % (b"x" * half, b"y" * (half - 2)))
    chain = b"".join(b"<!ENTITY a%d '&a%d;'>" % (n, n + 1) for n in range(5_000))
    with pytest.raises(LimitError, match="ENTITY_CHARS_MAX"):
        parsed(b"<!DOCTYPE a [" + chain + b"]><a/>")


@pytest.mark.slow
def test_attributes_are_counted_before_they_are_read() -> None:
    """A file of half a megabyte would take a quarter of a minute."""
    at_most = " ".join(f'a{n}="1"' for n in range(4_096))
    assert len(attributes_of(parsed(f"<r {at_most}/>".encode()))) == 4_096
    with pytest.raises(LimitError, match="ATTRIBUTES_MAX"):
        attributes_of(parsed(f'<r {at_most} more="1"/>'.encode()))
