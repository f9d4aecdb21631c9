"""Subscriptions with patterns of names, over files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError
from contrada.integrations.documents.name_patterns import WildFilters
from contrada.integrations.files import Matcher, ReadOptions, Record, Renderer
from contrada.model import FilterSet

STORIES = b"""<b><story><title>x</title><n>1</n></story><story><title>y</title></story>
<story><title>x</title><n>3</n></story></b>"""


def matched(path: Path, wanted: list[str], **options: str) -> list[tuple[int, list[int]]]:
    """The matches by record of a file."""
    matcher = Matcher([FilterSet(each) for each in wanted], ReadOptions(**options))  # type: ignore[arg-type]
    return [
        (each.record.number, each.positions)
        for outcomes in matcher.file(path, path.suffix[1:], path.name)
        for each in outcomes.records
        if not hasattr(each, "reason")
    ]


WANTED = [
    "`b.story.*.title` = 'x'",
    "`b.story.*.title` = 'y' and `b.story.<2-9>.n` = 3",
    "`b.story.<3-9>.title` any",
    "`b.*.title` any",
    "b.story.0.n = 1 or `z.*` = 1",
    "`*.story.*.*` = 3 and @time any",
]


def test_patterns_match_the_names_of_documents(tmp_path: Path) -> None:
    """Which names a file has, nobody knows before; so some documents would be missed."""
    path = tmp_path / "s.xml"
    path.write_bytes(STORIES)
    assert matched(path, WANTED, strategy="pattern") == [(1, [0, 1, 4, 5])]
    assert matched(path, WANTED, strategy="index") == [(1, [4])]
    (record,) = Renderer(ReadOptions(strategy="index")).render(STORIES)
    assert isinstance(record, Record)
    of = record.notification
    by_names = [
        position for position, text in enumerate(WANTED) if WildFilters(text).expand(of).matches(of)
    ]
    assert by_names == [0, 1, 4, 5]


TITLES = st.lists(st.sampled_from("xyz"), max_size=4)


@given(st.lists(TITLES, min_size=1, max_size=5))
def test_each_document_is_matched_by_its_own_names(documents: list[list[str]]) -> None:
    """The first document with a new name would be missed."""
    for stories in documents:
        data = "".join(f"<s><t>{title}</t></s>" for title in stories)
        records = Renderer(ReadOptions(strategy="pattern")).render(f"<b a='1'>{data}</b>".encode())
        (record,) = records
        assert isinstance(record, Record)
        matcher = Matcher(
            [FilterSet("`b.s.<0-9>.t` = 'x'"), FilterSet("`b.s*.t` = 'x'")],
            ReadOptions(strategy="pattern"),
        )
        several = len(stories) > 1 and "x" in stories
        alone = stories == ["x"]
        assert matcher.match(record.notification) == [0] * several + [1] * alone


def test_lines_of_json_have_patterns_too(tmp_path: Path) -> None:
    """Only XML could be asked so."""
    path = tmp_path / "s.json"
    path.write_text('{"s": [{"t": "x"}, {"t": "y"}]}\n{"s": [{"t": "y"}, {"t": "z"}]}\n')
    assert matched(path, ["`s.*.t` = 'x'"], strategy="pattern") == [(1, [0])]


def test_wrong_patterns_are_refused() -> None:
    """They would match nothing, in silence."""
    with pytest.raises(InvalidFilterError, match="pattern of names"):
        Matcher([FilterSet("`a.*` absent")], ReadOptions(strategy="pattern"))
