"""Documents read by Spark's own XML reader, against our parser."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.errors import ContradaError
from contrada.spark.reading import document_trees
from contrada.spark.trees import spark_root, tree_of
from contrada.xml import parse_document

ODD = {
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
}

LEFT_TO_OURS = {
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
}

FOUND_BY_THE_JOIN = {
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


def write(folder: Path, documents: dict[str, str]) -> list[Path]:
    for name, text in documents.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in documents]


def trees(spark: SparkSession, paths: Iterable[Path]) -> dict[str, tuple[str, str | None]]:
    by_root: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        root = spark_root(path)
        if root is not None:
            by_root[root].append(str(path))
    frames = [document_trees(spark, root, found) for root, found in by_root.items()]
    rows = reduce(DataFrame.unionAll, frames).collect()
    return {row["file"]: (row["root"], row["tree"]) for row in rows}


def test_both_readers_give_the_same_tree(spark: SparkSession, tmp_path: Path) -> None:
    """Else the same document would match other subscriptions with Spark than without."""
    paths = write(tmp_path, ODD | FOUND_BY_THE_JOIN)
    found = trees(spark, paths)
    assert set(found) == {str(path) for path in paths}
    for path in paths[: len(ODD)]:
        assert tree_of(*found[str(path)]) == parse_document(path.read_bytes()), path.name
    for path in paths[len(ODD) :]:
        assert tree_of(*found[str(path)]) is None, path.name


def test_what_is_not_trusted_to_spark(tmp_path: Path) -> None:
    """Else Spark would read these in another way: each was seen to differ."""
    for path in write(tmp_path, LEFT_TO_OURS):
        assert spark_root(path) is None, path.name
    assert spark_root(tmp_path / "missing.xml") is None


@pytest.mark.shared_data
def test_real_documents(spark: SparkSession, shared_data: Callable[..., Path]) -> None:
    """Else a real feed would lose or change something on its way through Spark."""
    folder = shared_data("xml_feeds")
    paths = [path for path in folder.rglob("*") if path.suffix in (".xml", ".atom", ".cap", ".gpx")]
    same = 0
    for file, (root, text) in trees(spark, paths).items():
        tree = tree_of(root, text)
        try:
            ours = parse_document(Path(file).read_bytes())
        except ContradaError:
            assert tree is None, file
        else:
            assert tree in (None, ours), file
            same += tree is not None
    assert same >= 45
