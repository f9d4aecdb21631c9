"""Hostile documents, stylesheets and schemas: refused, soon and in little memory."""

import io
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from contrada.errors import ContradaError, InputError
from contrada.integrations.documents.document_limits import DocumentLimits
from contrada.integrations.documents.stylesheet import compiled
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer

SECONDS_MAX = 10.0
GROWTH_KIB_MAX = 600 * 2**10

LAUGHS = (
    b"<!DOCTYPE r [<!ENTITY a0 'ha'>"
    + b"".join(b"<!ENTITY a%d '%s'>" % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12))
    + b"]>"
)

DOCUMENTS: dict[str, Callable[[Path], bytes]] = {
    "billion laughs": lambda _: LAUGHS + b"<r><e>&a11;</e></r>",
    "laughs in an attribute": lambda _: LAUGHS + b"<r><e n='&a11;'/></r>",
    "quadratic blow-up": lambda _: (
        b"<!DOCTYPE r [<!ENTITY a '" + b"x" * 50_000 + b"'>]><r><e>" + b"&a;" * 50_000 + b"</e></r>"
    ),
    "quadratic in attributes": lambda _: (
        b"<!DOCTYPE r [<!ENTITY a '"
        + b"x" * 50_000
        + b"'>]><r>"
        + b"<e n='"
        + b"&a;" * 50_000
        + b"'/></r>"
    ),
    "a file": lambda path: (
        b"<!DOCTYPE r [<!ENTITY x SYSTEM '%s'>]><r><e>&x;</e></r>" % path.as_uri().encode()
    ),
    "a file in an attribute": lambda path: (
        b"<!DOCTYPE r [<!ENTITY x SYSTEM '%s'>]><r><e n='&x;'/></r>" % path.as_uri().encode()
    ),
    "a parameter entity": lambda path: (
        b"<!DOCTYPE r [<!ENTITY %% x SYSTEM '%s'> %%x;]><r><e>&y;</e></r>" % path.as_uri().encode()
    ),
    "deep": lambda _: b"<r><e>" + b"<a>" * 200_000 + b"</a>" * 200_000 + b"</e></r>",
    "deep before": lambda _: b"<r>" * 1_000 + b"<e/>" + b"</r>" * 1_000,
    "attributes": lambda _: b"<r><e %s/></r>" % b" ".join(b"a%d='1'" % n for n in range(100_000)),
    "a long text": lambda _: b"<r><e>" + b"x" * (20 * 2**20) + b"</e></r>",
    "a long name": lambda _: b"<r><e><" + b"n" * 10**6 + b"/></e></r>",
    "many names": lambda _: (
        b"<r><e>" + b"".join(b"<n%d>1</n%d>" % (n, n) for n in range(50_000)) + b"</e></r>"
    ),
    "many values": lambda _: b"<r><e>" + b"<n>1</n><n>2</n>" * 50_000 + b"</e></r>",
    "much around": lambda _: b"<r>" + b"<n>1</n>" * 50_000 + b"<e/><e/></r>",
    "between entries": lambda _: b"<r>" + b"<e/><n a='1'/>" * 220 + b"</r>",
    "nul": lambda _: b"<r><e>\x00</e></r>",
}
"""Each is refused, or an entry of it."""


@pytest.mark.quick_first
@pytest.mark.parametrize("strategy", ["multi", "index"])
def test_a_small_document_does_not_become_much(strategy: str) -> None:
    """Each of many small entries would get all values around them, a thousand times its bytes."""
    limits = DocumentLimits(context_added_max=50_000)
    head, entries = b"<r>" + b"<n>1</n>" * 900, b"<e/>" * 500
    data = head + entries + b"</r>"
    options = ReadOptions(strategy=strategy, entries="e", document_limits=limits)
    renderer = Renderer(options)
    whole = list(renderer.render(data))
    pieces = list(renderer.render(io.BytesIO(data)))
    for found in (whole, pieces):
        *good, bad = found
        assert isinstance(bad, BadRecord)
        assert "context_added_max" in bad.reason
        assert len(good) == (50_000 + len(data)) // 900
    limits = DocumentLimits(context_added_max=500 * 900 - len(data))
    renderer = Renderer(replace(options, document_limits=limits))
    for what in (data, io.BytesIO(data)):
        assert all(isinstance(each, Record) for each in renderer.render(what))


@pytest.mark.quick_first
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("strategy", ["multi", "index", "daemon"])
def test_hostile_documents(name: str, strategy: str, tmp_path: Path) -> None:
    """The sender of a document could take the reader's time, memory or files."""
    # Each value between entries is added to each entry, so fewer of them suffice.
    most = 200 if name == "between entries" else DocumentLimits().context_values_max
    limits = DocumentLimits(context_values_max=most)
    secret = tmp_path / "secret"
    secret.write_text("S3CRET")
    data = DOCUMENTS[name](secret)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = process_time()
    renderer = Renderer(ReadOptions(strategy=strategy, entries="e", document_limits=limits))
    whole = list(renderer.render(data))
    pieces = list(renderer.render(io.BytesIO(data)))
    spent = process_time() - begin
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for found in (whole, pieces):
        assert "S3CRET" not in repr(found)
        assert [each for each in found if isinstance(each, BadRecord)], name
    assert spent < SECONDS_MAX
    assert grown < GROWTH_KIB_MAX


@pytest.mark.slow
def test_content_between_entries_is_released() -> None:
    """Else a stream of other elements would be held, and looked through for each entry."""
    data = b"<r>" + b"<e>1</e><n/><m><k>1</k></m>" * 30_000 + b"</r>"
    begin = process_time()
    found = list(Renderer(ReadOptions(entries="e")).render(io.BytesIO(data)))
    assert len(found) == 30_000
    assert all(isinstance(each, Record) for each in found)
    assert process_time() - begin < SECONDS_MAX


SHEET = (
    b'<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"'
    b' xmlns:exsl="http://exslt.org/common" extension-element-prefixes="exsl">%s</xsl:stylesheet>'
)


def sheet(template: bytes, before: bytes = b"") -> bytes:
    return SHEET % (before + b'<xsl:template match="/"><o>' + template + b"</o></xsl:template>")


def test_a_stylesheet_is_applied_first() -> None:
    """Erenkrantz 2001 §6.3: else repetition could not be taken out in one's own way."""
    template = sheet(b'<t><xsl:value-of select="count(//e)"/></t>')
    for strategy in ("xslt", "multi", "index"):
        options = ReadOptions(strategy=strategy, stylesheet=template)
        (found,) = Renderer(options).render(b"<r><e/><e/></r>")
        assert isinstance(found, Record)
        assert dict(found.notification) == {"o.t": 2}
    (bad,) = Renderer(
        ReadOptions(stylesheet=SHEET % b'<xsl:template match="/">x</xsl:template>')
    ).render(b"<r/>")
    assert isinstance(bad, BadRecord)


def test_a_stylesheet_opens_nothing(tmp_path: Path) -> None:
    """Else it would bring files into events, or write them."""
    secret = tmp_path / "secret.xml"
    secret.write_text("<s>S3CRET</s>")
    address = secret.as_uri().encode()
    written = (tmp_path / "written.xml").as_uri().encode()
    for text in (
        sheet(b"<xsl:value-of select=\"document('%s')\"/>" % address),
        sheet(b"", b'<xsl:include href="%s"/>' % address),
        SHEET % (b'<xsl:import href="%s"/>' % address),
        sheet(b'<exsl:document href="%s"><a/></exsl:document>' % written),
    ):
        try:
            found = list(Renderer(ReadOptions(stylesheet=text)).render(b"<r/>"))
        except InputError:
            continue
        assert "S3CRET" not in repr(found)
    assert not (tmp_path / "written.xml").exists()


def test_a_stylesheet_is_bounded_and_checked() -> None:
    """Else one that calls itself would end the process."""
    recursive = SHEET % (
        b'<xsl:template match="/"><xsl:call-template name="n"/></xsl:template>'
        b'<xsl:template name="n"><a><xsl:call-template name="n"/></a></xsl:template>'
    )
    (bad,) = Renderer(ReadOptions(stylesheet=recursive)).render(b"<r/>")
    assert isinstance(bad, BadRecord)
    for text in (b"", b"<a/>", b"<a>", SHEET % b"<xsl:nothing/>" + b"x"):
        with pytest.raises(InputError, match="stylesheet"):
            compiled(text)


XSD = b"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:element name="r"><xs:complexType><xs:sequence>
 <xs:element name="n" type="xs:decimal" maxOccurs="9"/><xs:element name="s" type="xs:string"/>
 <xs:element name="b" type="xs:boolean"/><xs:element name="t" type="xs:dateTime"/>
</xs:sequence><xs:attribute name="id" type="xs:ID"/></xs:complexType></xs:element></xs:schema>"""

RELAX = b"""<element name="r" xmlns="http://relaxng.org/ns/structure/1.0">
<zeroOrMore><element name="n"><text/></element></zeroOrMore></element>"""

DTD = b"<!ELEMENT r (n+)><!ELEMENT n (#PCDATA)>"


def test_a_schema_declares_types_and_validates() -> None:
    """Erenkrantz 2001 §3.3: else a text would be a number by its looks, or nonsense pass."""
    data = b"<r id='a1'><n>+1.50</n><n>02</n><s>007</s><b>1</b><t>2013-01-01T00:00:00Z</t></r>"
    (found,) = Renderer(ReadOptions(schema=XSD)).render(data)
    assert isinstance(found, Record)
    shown = {name: str(value) for name, value in found.notification.items()}
    assert shown == {
        "r.id": "a1",
        "r.n": "(1.5, 2)",
        "r.s": "007",
        "r.b": "True",
        "r.t": "2013-01-01 00:00:00+00:00",
    }
    (found,) = Renderer(ReadOptions(schema=XSD, strategy="index", types={"r.s": "number"})).render(
        data.replace(b"007", b"7")
    )
    assert isinstance(found, Record)
    assert (found.notification["r.n.1"], found.notification["r.s"]) == (2, 7)
    for schema, good, wrong in (
        (XSD, data, data.replace(b"+1.50", b"x")),
        (RELAX, b"<r><n>1</n></r>", b"<r>\n<m>1</m></r>"),
        (DTD, b"<r><n>1</n></r>", b"<r>\n</r>"),
    ):
        (read,) = Renderer(ReadOptions(schema=schema)).render(good)
        assert isinstance(read, Record), schema
        (bad,) = Renderer(ReadOptions(schema=schema)).render(wrong)
        assert isinstance(bad, BadRecord), schema
        assert bad.line is not None
        assert "schema" in bad.reason


TYPED_RELAX = b"""<grammar xmlns="http://relaxng.org/ns/structure/1.0"
 datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
<start><element name="r">
 <optional><attribute name="id"><data type="NMTOKEN"/></attribute></optional>
 <oneOrMore><choice><element name="n"><ref name="number"/></element>
 <element name="s"><data type="string"/></element><element name="b"><data type="boolean"/></element>
 <element><name>t</name><data type="dateTime"/></element><ref name="both"/></choice></oneOrMore>
</element></start>
<define name="number"><choice><data type="decimal"/><ref name="whole"/></choice></define>
<define name="whole"><data type="int"/></define>
<define name="both"><element name="x"><attribute name="y"><data type="string"/></attribute>
 <element name="y"><data type="decimal"/></element><element name="u"><text/></element></element>
</define></grammar>"""


def test_relax_ng_declares_types() -> None:
    """A text would be a number by its form, against its grammar."""
    data = (
        b"<r id='07'><n>+1.50</n><s>007</s><b>1</b><t>2013-01-01T00:00:00Z</t>"
        b"<x y='1'><y>02</y><u>3</u></x></r>"
    )
    schema = TYPED_RELAX
    (found,) = Renderer(ReadOptions(schema=schema)).render(data)
    assert isinstance(found, Record), found
    assert {name: str(value) for name, value in found.notification.items()} == {
        "r.id": "07",
        "r.n": "1.5",
        "r.s": "007",
        "r.b": "True",
        "r.t": "2013-01-01 00:00:00+00:00",
        "r.x.y": "(1, '02')",
        "r.x.u": "3",
    }
    recursive = schema.replace(b'<data type="int"/>', b'<choice><data type="int"/><text/></choice>')
    (found,) = Renderer(ReadOptions(schema=recursive)).render(data.replace(b"+1.50", b"+1"))
    assert isinstance(found, Record)
    assert found.notification["r.n"] == "+1"
    any_name = schema.replace(b"<name>t</name>", b"<anyName/>")
    (found,) = Renderer(ReadOptions(schema=any_name)).render(data)
    assert isinstance(found, Record)
    assert found.notification["r.b"] is not True
    other = schema.replace(b'<data type="string"/>', b'<data type="string" datatypeLibrary=""/>', 1)
    (found,) = Renderer(ReadOptions(schema=other)).render(b"<r id='07'><s>7</s></r>")
    assert isinstance(found, Record)
    assert found.notification["r.s"] == 7


def test_a_schema_opens_nothing(tmp_path: Path) -> None:
    """Else it would read files, or ask the network."""
    path = tmp_path / "more"
    path.write_text("<!ELEMENT r ANY>")
    address = path.as_uri().encode()
    for schema in (
        b"",
        b"<a/>",
        b"no schema",
        XSD.replace(b'<xs:element name="r">', b'<xs:include schemaLocation="%s"/>' % address, 1),
        XSD.replace(b">", b'><xs:include schemaLocation="%s"/>' % address, 1),
        RELAX.replace(b"<text/>", b'<externalRef href="%s"/>' % address),
        b"<!ELEMENT r ANY><!ENTITY % x SYSTEM '" + address + b"'> %x;",
        b"<!ELEMENT r (",
    ):
        with pytest.raises(ContradaError):
            Renderer(ReadOptions(schema=schema))
