"""Documents as trees."""

import pytest

from contrada.errors import LimitError, ParseError
from contrada.integrations.documents import DOCUMENT_DEPTH_MAX, Element, parse_document
from contrada.integrations.documents.element_tree import ENTITY_CHARS_MAX


def test_texts_attributes_and_children() -> None:
    """Else a part of the document would not be in its notification."""
    found = parse_document(b"<a z='1' b=' 2 ' e=''>x <c/>y<b>1</b> <!-- no --><?no?> <b>2</b></a>")
    assert found == Element(
        "a",
        (("b", "2"), ("z", "1")),
        ("x", "y"),
        (Element("b", texts=("1",)), Element("b", texts=("2",)), Element("c")),
    )


def test_prefixes_are_kept_as_written() -> None:
    """Else a filter would have to name a namespace by its address."""
    found = parse_document(
        b'<feed xmlns="urn:f" xmlns:cap="urn:c" xml:lang="en"><cap:event cap:n="1" m="2"/></feed>'
    )
    assert found.attributes == (("xml:lang", "en"),)
    assert found.children == (Element("cap:event", (("cap:n", "1"), ("m", "2"))),)


def test_text_is_text() -> None:
    """Escapes, CDATA or another encoding would change the content."""
    assert parse_document(b"<a>x &amp;<![CDATA[<q>]]>&#233;</a>").texts == ("x &<q>é",)
    latin = '<?xml version="1.0" encoding="ISO-8859-1"?><a>caf\xe9</a>'.encode("latin-1")
    assert parse_document(latin).texts == ("café",)
    assert parse_document("<a>é</a>".encode("utf-16")).texts == ("é",)


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [(b"<a>\n<b></c></a>", 2, 8), (b"<a>", 1, 4), (b"<a/>x", 1, 5), (b"<p:a/>", 1, 5)],
)
def test_errors_name_their_place(data: bytes, line: int, column: int) -> None:
    """Else the user would search the document for the fault."""
    with pytest.raises(ParseError) as caught:
        parse_document(data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_depth_is_bounded() -> None:
    """Else a hostile document would exhaust the stack."""
    parse_document(b"<a>" * DOCUMENT_DEPTH_MAX + b"</a>" * DOCUMENT_DEPTH_MAX)
    with pytest.raises(LimitError):
        parse_document(b"<a>" * (DOCUMENT_DEPTH_MAX + 1) + b"</a>" * (DOCUMENT_DEPTH_MAX + 1))
    with pytest.raises(ParseError):
        parse_document(b"<a>" * 100_000)


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
            parse_document(outside % (declared, use))
    parts = outside % (b"<!ENTITY % z SYSTEM 'file:///etc/hostname'> %z; %z;", b"<a>1</a>")
    assert parse_document(parts) == Element("a", texts=("1",))
    for unknown in (b'<a b="&x;"/>', b"<a>&x;</a>"):
        with pytest.raises(ParseError, match="'x' not defined"):
            parse_document(b'<!DOCTYPE a SYSTEM "no.dtd">' + unknown)
    assert parse_document(b'<!DOCTYPE a SYSTEM "no.dtd"><a>1</a>') == Element("a", texts=("1",))


def test_an_entity_becomes_its_text() -> None:
    """Else a document with a name of its own for a text would be refused."""
    declared = b"<!DOCTYPE a [<!ENTITY x 'A&#38;amp;B'><!ENTITY y '<b>&x;</b>c'>]>"
    found = parse_document(declared + b"<a n='&x;'>1 &x;&y;</a>")
    inner = Element("b", texts=("A&B",))
    assert found == Element("a", (("n", "A&B"),), ("1 A&B", "c"), (inner,))
    longest = b"<!DOCTYPE a [<!ENTITY x '%s'><!ENTITY y '&x;%s'>]><a>&y;</a>"
    half = ENTITY_CHARS_MAX // 2
    (text,) = parse_document(longest % (b"x" * half, b"y" * (half - 3))).texts
    assert len(text) == ENTITY_CHARS_MAX - 3
    with pytest.raises(LimitError, match="ENTITY_CHARS_MAX"):
        parse_document(longest % (b"x" * half, b"y" * (half - 2)))
    chain = b"".join(b"<!ENTITY a%d '&a%d;'>" % (n, n + 1) for n in range(5_000))
    with pytest.raises(LimitError, match="ENTITY_CHARS_MAX"):
        parse_document(b"<!DOCTYPE a [" + chain + b"]><a/>")


@pytest.mark.slow
def test_attributes_are_counted_before_they_are_read() -> None:
    """A file of half a megabyte would take a quarter of a minute."""
    at_most = " ".join(f'a{n}="1"' for n in range(4_096))
    assert len(parse_document(f"<r {at_most}/>".encode()).attributes) == 4_096
    with pytest.raises(LimitError, match="ATTRIBUTES_MAX"):
        parse_document(f'<r {at_most} more="1"/>'.encode())
