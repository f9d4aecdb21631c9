"""Odd documents on Spark give the results of `contrada match`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contrada.errors import InputError
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from tests.integrations.spark.test_pipeline import expected, written

DOCUMENTS = {
    "sp ace+#é%2f.xml": "<a><b>1</b></a>",
    "comment.xml": "<a><b>x</b><!-- <c> --><b>y</b></a>",
    "cdata.xml": "<a>x<![CDATA[ <q> ]]>y</a>",
    "escapes.xml": '<a b="&quot;&#10;x&amp;">&#x20;&#160;q&lt;</a>',
    "namespaces.xml": '<p:a xmlns:p="u" xmlns="d"><b p:c="1" c="2"/></p:a>',
    "names.xml": '<a _VALUE="1" _x="2" xml:lang="en"><_VALUE>3</_VALUE><B>4</B><b>5</b></a>',
    "texts.xml": "<a><b>null</b><c>NaN</c><d>007</d><e>true</e><f>1.50</f><g>2013-01-01</g></a>",
    "mixed.xml": "<a>1<b>2</b>3<b/>4<b x='1'>5</b></a>",
    "lines.xml": "<a>\r\nx\r\ny\n</a>",
    "astral.xml": "<a>\U0001f600\x85\u2028</a>",
    "redeclared.xml": '<a><b xmlns="u"><c xmlns="">1</c></b></a>',
    "long.xml": "<a>" + "x" * 300_000 + "</a>",
    "text_comment.xml": "<a>x<!-- c -->y</a>",
    "instruction.xml": "<a>x<?p i?>y</a>",
    "trailing.xml": "<a>1</a>junk",
    "two_roots.xml": "<a>1</a><a>2</a>",
    "nested.xml": "<a><a>1</a></a>",
    "declared.xml": "<!DOCTYPE a><a>1</a>",
    "version.xml": "<?xml version='1.1'?><a>1</a>",
    "encoding.xml": "<?xml version='1.0' encoding='utf-16'?><a>1</a>",
    "no_end.xml": "<a>1",
    "empty.xml": "",
    "unbound.xml": "<a><p:b>1</p:b></a>",
    "two_prefixes.xml": '<a xmlns:p="u" xmlns:q="u" p:x="1"><q:b>1</q:b></a>',
    "colons.xml": '<a><b:c:d xmlns:b="u">1</b:c:d></a>',
    "control.xml": "<a>\x01</a>",
    "no_character.xml": "<a>\uffff</a>",
    "ampersand.xml": "<a>a & b</a>",
    "mismatch.xml": "<a><b></c></a>",
    "same_attributes.xml": "<a><b x='1' x='2'/></a>",
    "deep.xml": "<a>" + "<b>" * 70 + "</b>" * 70 + "</a>",
}


def check(spark: SparkSession, folder: Path, patterns: list[str]) -> int:
    """Checks that documents give the same with and without Spark; returns the number of good
    ones.
    """
    (folder / "subs").write_text("all: kind exists")
    paths = ", ".join(f'"{each}"' for each in patterns)
    (folder / "p.toml").write_text(
        'subscriptions = "subs"\noutput = "out"\n[[source]]\nname = "documents"\n'
        f'format = "xml"\npaths = [{paths}]\nadd = {{ kind = "document" }}\n'
    )
    pipeline = read_pipeline(folder / "p.toml")
    (source,) = run_pipeline(spark, pipeline).sources
    matches, bad, read = expected(pipeline)
    assert written(pipeline) == (matches, bad)
    assert (source.read, source.bad) == (read["documents"], bad.total())
    return source.read


def test_odd_documents(spark: SparkSession, tmp_path: Path) -> None:
    """A document would match other subscriptions with Spark."""
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert check(spark, tmp_path, ["*.xml"]) == 18


@pytest.mark.shared_data
def test_real_documents(
    spark: SparkSession, tmp_path: Path, shared_data: Callable[..., Path]
) -> None:
    """A real feed would lose or change data on Spark."""
    folder = shared_data("xml_feeds")
    kinds = (".xml", ".atom", ".cap", ".gpx")
    found = sorted(str(path) for path in folder.rglob("*") if path.suffix in kinds)
    assert check(spark, tmp_path, found) >= 45


def test_patterns_of_names(spark: SparkSession, tmp_path: Path) -> None:
    """A pipeline would use other names than `contrada match`."""
    for number, titles in enumerate(("xy", "yy", "zyx", "x")):
        stories = "".join(f"<s><t>{each}</t></s>" for each in titles)
        (tmp_path / f"{number}.xml").write_text(f"<b>{stories}</b>")
    (tmp_path / "subs").write_text("x: `b.s.*.t` = 'x'\nsecond: `b.s.<1-1>.t` = 'y'\nno: `c.*` = 1")
    (tmp_path / "p.toml").write_text(
        'subscriptions = "subs"\noutput = "out"\n[[source]]\nname = "documents"\n'
        'format = "xml"\npaths = ["*.xml"]\nstrategy = "pattern"\n'
    )
    pipeline = read_pipeline(tmp_path / "p.toml")
    assert run_pipeline(spark, pipeline).matches == {"x": 2, "second": 3, "no": 0}
    assert written(pipeline)[0] == expected(pipeline)[0]
    (tmp_path / "subs").write_text("x: `b.s.*.t` absent")
    with pytest.raises(InputError, match=r"x: .*pattern of names"):
        read_pipeline(tmp_path / "p.toml")


def test_strategy_stylesheet_and_schema_of_a_source(spark: SparkSession, tmp_path: Path) -> None:
    """A pipeline would read other documents than `contrada match`."""
    (tmp_path / "0.xml").write_text("<b><s>1</s><s>2</s></b>")
    (tmp_path / "1.xml").write_text("<b><t/></b>")
    (tmp_path / "s.dtd").write_text("<!ELEMENT b (s+)><!ELEMENT s (#PCDATA)>")
    (tmp_path / "s.xsl").write_text(
        '<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform">'
        '<x:template match="/"><o n="{count(//s)}"/></x:template></x:stylesheet>'
    )
    (tmp_path / "subs").write_text("two: `o.n` = 2")
    (tmp_path / "p.toml").write_text(
        'subscriptions = "subs"\noutput = "out"\n[[source]]\nname = "documents"\nformat = "xml"\n'
        'paths = ["*.xml"]\nstrategy = "xslt"\nstylesheet = "s.xsl"\nschema = "s.dtd"\n'
    )
    pipeline = read_pipeline(tmp_path / "p.toml")
    result = run_pipeline(spark, pipeline)
    assert result.matches == {"two": 1}
    assert [(each.read, each.bad) for each in result.sources] == [(1, 1)]
    assert written(pipeline) == expected(pipeline)[:2]
