"""Rows of CSV that take several lines."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.files import FileLimits, ReadOptions, Record, lines, parts_of
from contrada.integrations.files.csv_rows import RowJoiner, has_open_quote, read_rows
from contrada.integrations.files.lines import Block
from tests.integrations.files.blocks import blocks_of

LIMITS = FileLimits()


def read(*given_lines: str, limits: FileLimits = LIMITS) -> list[tuple[int | None, object]]:
    """The number and content of each record, or the reason why it is bad."""
    found = read_rows(blocks_of(given_lines), "f.csv", ReadOptions(limits=limits))
    return [
        (each.number, dict(each.notification))
        if isinstance(each, Record)
        else (each.line, each.reason.partition(",")[0])
        for each in found
    ]


def test_a_cell_with_line_breaks_is_one_cell() -> None:
    """Else files of descriptions or addresses would be bad records, each row several of them."""
    assert read("a,b", '1,"x', 'y""', '"', "2,z") == [
        (2, {"a": 1, "b": 'x\ny"\n'}),
        (5, {"a": 2, "b": "z"}),
    ]


def test_a_forgotten_quote_costs_one_line() -> None:
    """Else it would swallow the rows up to the next quote, or the rest of the file."""
    assert read("a,b", '1,"x', "2,y", '3,"z"', '4,"', "5,u") == [
        (2, "found unexpected end of data"),
        (3, {"a": 2, "b": "y"}),
        (4, {"a": 3, "b": "z"}),
        (5, "found unexpected end of data"),
        (6, {"a": 5, "b": "u"}),
    ]


def test_a_row_has_a_cell_for_each_column() -> None:
    """Else two forgotten quotes would make one row of two, with too many cells."""
    (first, second) = read("a,b", '1,"x', '2",y,z')
    assert first == (2, "found unexpected end of data")
    assert second[0] == 3


def test_a_header_may_have_line_breaks() -> None:
    """Else spreadsheets with titles of two lines could not be read."""
    options = ReadOptions(rename={"b\nc": "b"})
    (found,) = read_rows(blocks_of(['a,"b', 'c"', "1,2"]), "f.csv", options)
    assert isinstance(found, Record)
    assert (found.number, dict(found.notification)) == (3, {"a": 1, "b": 2})


def test_a_row_of_too_many_lines_is_none() -> None:
    """Else one quote would hold back any number of lines."""
    limits = FileLimits(row_lines_max=3)
    assert read("a", '"x', "y", 'z"', limits=limits)[0] == (2, {"a": "x\ny\nz"})
    assert [number for number, _ in read("a", '"x', "y", "y", 'z"', limits=limits)] == [2, 3, 4, 5]


def joined_lines(lines: list[str], row_lines_max: int) -> list[tuple[int, str]]:
    """The rows below a header of two columns, by a loop over single lines."""
    found: list[tuple[int, str]] = []
    held: list[str] = []
    for number, line in enumerate(lines, start=2):
        is_odd = line.count('"') % 2 == 1
        if not held and not is_odd:
            found.append((number, line))
            continue
        held.append(line)
        first = number - len(held) + 1
        if is_odd and len(held) > 1:
            if is_row("\n".join(held)):
                found.append((first, "\n".join(held)))
                held = []
            else:
                found += enumerate(held[:-1], start=first)
                held = [line]
        elif len(held) == row_lines_max:
            found += enumerate(held, start=first)
            held = []
    return found + list(enumerate(held, start=len(lines) + 2 - len(held)))


def is_row(text: str) -> bool:
    try:
        return len(next(csv.reader((text,), strict=True))) == 2
    except csv.Error:
        return False


@given(
    st.lists(st.text('ab,"', max_size=5), min_size=1, max_size=12),
    st.sets(st.integers(1, 11)),
    st.integers(1, 4),
)
def test_blocks_are_joined_as_lines_are(rows: list[str], cuts: set[int], most: int) -> None:
    """A row would depend on the place where its file is cut into blocks."""
    rows = ["x,y", *rows]
    ends = sorted({*(cut for cut in cuts if cut < len(rows)), len(rows)} - {0})
    begins = [0, *ends[:-1]]
    blocks = [
        Block.of(begin + 1, "".join(f"{row}\n" for row in rows[begin:end]).encode())
        for begin, end in zip(begins, ends, strict=True)
    ]
    joiner = RowJoiner(ReadOptions(limits=FileLimits(row_lines_max=most)))
    joined = filter(None, map(joiner.join, [*blocks, None]))
    found = [block.numbered(at) for block in joined for at in range(len(block))]
    assert found == joined_lines(rows[1:], most)


def test_a_file_with_such_rows_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task would begin within a cell."""
    monkeypatch.setattr(lines, "PART_BYTES", 8)
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"x"\n2,y\n3,z\n4,u')
    assert len(parts_of(path, lambda data: has_open_quote(data, '"'))) > 1
    path.write_text('a,b\n1,x\n2,"y\n3,z"\n4,u')
    assert parts_of(path, lambda data: has_open_quote(data, '"')) == (lines.WHOLE,)
    assert has_open_quote(b'1,"x\r2"', '"')
    assert not has_open_quote(b'1,"x\r2"', "")


def test_columns_are_known_without_rows() -> None:
    """An option that names a column of an empty file would be taken for a typing error."""
    for header in ("a,b\n", '"a",b\n', '"a\n",b\n'):
        joiner = RowJoiner(ReadOptions(rename={"a\n": "a"}))
        assert not joiner.join(Block.of(1, header.encode()))
        assert joiner.rows is not None
        assert len(joiner.rows.columns) == 2
