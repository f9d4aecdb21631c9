"""Holds files as sources: their answers equal those of filtering all rows."""

import gzip
import json
import lzma
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import dataset

from contrada.errors import InputError, ServiceError
from contrada.integrations.sources import file_source
from contrada.integrations.sources.file_source import FileSource
from contrada.integrations.sources.source_rows import items_of
from contrada.model import Advertisement, Filter, Notification
from contrada.model.algebra import sets
from contrada.model.algebra.relations import meets
from contrada.model.domains.values import TIME, TIME_MAX_US, TIME_MIN_US
from contrada.service.query.source_query import SourceQuery
from tests.integrations.sources.rows import (
    BOUNDS,
    DOUBLES,
    INTEGERS,
    ODD_NAMES,
    TEXTS,
    TIMES,
    counted,
    directed,
    is_described,
    questions,
)
from tests.strategies import more

COLUMNS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "b": (pa.bool_(), (True, False)),
    "i": (pa.int64(), INTEGERS),
    "j": (pa.int8(), (0, 1, -1, 127, -128)),
    "u": (pa.uint32(), (0, 1, 2**32 - 1)),
    "d": (pa.float64(), (*DOUBLES, math.nan)),
    "r": (pa.float32(), (0.5, 0.25, math.nan, math.inf)),
    "t": (pa.string(), TEXTS),
    "g": (pa.dictionary(pa.int8(), pa.string()), ("a", "b")),
    "w": (pa.timestamp("us", "UTC"), TIMES),
    "m": (pa.timestamp("ms", "Europe/Rome"), TIMES[::2]),
    "y": (pa.date32(), (date(2020, 1, 1), date(1999, 12, 31))),
    "n": (pa.decimal128(30, 5), (Decimal("0.1"), Decimal("1" * 20), Decimal("5"))),
    "s": (pa.struct({"x": pa.int64(), "y": pa.string()}), ({"x": 1, "y": "a"}, {"x": 2})),
    "l": (pa.list_(pa.int64()), ([1, 2], [], [None, 3])),
    "x": (pa.binary(), (b"a", b"\xff", b"")),
}
NAMES: Final = (*COLUMNS, "s.x", "other")

rows: Final = st.lists(
    st.tuples(*(st.sampled_from((None, *each)) for _, each in COLUMNS.values())), max_size=6
)


def written(path: Path, rows: list[tuple[Any, ...]], group_rows: int = 2) -> Path:
    """A file of Parquet with these rows, in small row groups."""
    arrays = [
        pa.array([row[at] for row in rows], kind) for at, (kind, _) in enumerate(COLUMNS.values())
    ]
    table = pa.Table.from_arrays(arrays, names=list(COLUMNS))
    pq.write_table(table, path, row_group_size=group_rows)
    return path


@more(0.3)
@given(data=st.data())
def test_parquet_answers_as_all_rows_filtered(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A row would be left out by a condition that is narrower than the question."""
    path = tmp_path_factory.getbasetemp() / "answers.parquet"
    source = FileSource(written(path, data.draw(rows)))
    every = list(source.answer(SourceQuery(Filter({}))))
    offer = source.describe(0)
    assert is_described(offer, every)
    for _ in range(4):
        asked = data.draw(questions(NAMES))
        expected = [item for item in every if asked.answers(item)]
        assert counted(source.answer(asked)) == counted(expected)
        if expected:
            assert meets(offer, asked.filters)


@cache
def all_values() -> list[tuple[Any, ...]]:
    """Rows with each value of each column once."""
    most = max(len(each) for _, each in COLUMNS.values())
    return [
        tuple(each[n] if n < len(each) else None for _, each in COLUMNS.values())
        for n in range(most)
    ]


@pytest.mark.slow
@more(0.6)
@given(asked=questions(NAMES))
def test_parquet_answers_of_all_values(
    asked: SourceQuery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Some value would be compared by Arrow otherwise than in the model."""
    path = tmp_path_factory.getbasetemp() / "all.parquet"
    if not path.exists():
        written(path, all_values())
    source = FileSource(path)
    every = list(source.answer(SourceQuery(Filter({}))))
    expected = [item for item in every if asked.answers(item)]
    assert counted(source.answer(asked)) == counted(expected)


@pytest.mark.slow
def test_arrow_compares_as_the_model(tmp_path: Path) -> None:
    """Some value in some column would be compared otherwise, and its row be left out."""
    path = written(tmp_path / "f.parquet", all_values())
    every = list(FileSource(path).answer(SourceQuery(Filter({}))))
    table = pq.read_table(path).append_column("row", pa.array(range(len(every))))
    types = {name: table.schema.field(name).type for name in COLUMNS}
    held = dataset.dataset(table)
    for name, constants in (
        ("i", BOUNDS),
        ("j", BOUNDS),
        ("d", BOUNDS),
        ("b", BOUNDS),
        ("t", TEXTS),
        ("w", BOUNDS),
        ("m", BOUNDS),
        ("r", BOUNDS),
        ("y", TEXTS),
        ("g", TEXTS),
    ):
        for values in directed(constants):
            for side in (values, values | sets.absent()):
                asked = SourceQuery(Filter.of_sets({name: side}))
                kept = file_source.pushed(asked, types)
                found = held.to_table(columns=["row"], filter=kept)["row"].to_pylist()
                expected = [at for at, item in enumerate(every) if asked.answers(item)]
                assert set(expected) <= set(found), str(asked)
                if name in "ijbtwm":
                    assert expected == found, str(asked)  # Nothing more is read, either.


def test_values_of_parquet(tmp_path: Path) -> None:
    """An attribute would have another value than elsewhere."""
    path = written(tmp_path / "f.parquet", all_values()[:1])
    (found,) = FileSource(path).answer(SourceQuery("i = 0"))
    assert found["y"] == "2020-01-01"
    assert found["n"] == 0.1
    assert (found["s.x"], found["s.y"]) == (1, "a")
    assert found["l"] == (1, 2)
    assert found["w"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_row_groups_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a file would be read for a question about few rows."""
    path = tmp_path / "f.parquet"
    table = pa.table({"n": range(10_000), "t": [f"t{n:05}" for n in range(10_000)]})
    pq.write_table(table, path, row_group_size=100)
    taken = 0

    def counting(place: str, names: Any, rows: Any, zone: Any) -> Any:
        nonlocal taken
        listed = list(rows)
        taken += len(listed)
        return items_of(place, names, listed, zone)

    monkeypatch.setattr(file_source, "items_of", counting)
    for text in ("n >= 5000 and n < 5003", "t prefix 't0500' and n != 7", "n in (1, 9999)"):
        taken = 0
        found = list(FileSource(path).answer(SourceQuery(text)))
        assert taken == len(found) > 0


def test_parquet_is_described_without_its_data(tmp_path: Path) -> None:
    """Offering a folder would read all of it, or describe nothing."""
    path = tmp_path / "f.parquet"
    table = pa.table(
        {
            "n": [1, 5, None],
            "d": [0.5, math.nan, 1.5],
            "t": ["a", "b", None],
            "none": pa.array([None] * 3, pa.int64()),
            "w": pa.array([TIMES[0], TIMES[1], None], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, path)
    offer = FileSource(path).describe(0)
    assert offer == Advertisement(
        {
            "n": Filter("n between 1 and 5").sets["n"],
            "d": Filter("d between 0.5 and 1.5").sets["d"] | Filter("d = nan").sets["d"],
            "t": Filter("t between 'a' and 'b'").sets["t"],
            "w": Filter(f"w between @{TIMES[0].isoformat()} and @{TIMES[1].isoformat()}").sets["w"],
        }
    )
    pq.write_table(table, path, write_statistics=False)
    unknown = FileSource(path).describe(0)
    assert meets(unknown, Filter("n = 77"))
    assert not meets(unknown, Filter("other any"))


def test_zones(tmp_path: Path) -> None:
    """A time without a zone would be taken for one of UTC, in silence."""
    path = tmp_path / "f.parquet"
    times = [datetime.fromisoformat(f"2020-0{month}-01T12:00:00") for month in (7, 1)]
    pq.write_table(pa.table({"a": times, "b": pa.array(times, pa.timestamp("s", "UTC"))}), path)
    with pytest.raises(InputError, match="zone"):
        list(FileSource(path).answer(SourceQuery("b any")))
    source = FileSource(path, zone="Europe/Rome")
    found = list(source.answer(SourceQuery("a = @2020-07-01T10:00:00Z")))
    assert [item["b"] for item in found] == [datetime(2020, 7, 1, 12, tzinfo=UTC)]
    assert is_described(source.describe(0), list(source.answer(SourceQuery("a any"))))
    gap = tmp_path / "gap.parquet"
    pq.write_table(pa.table({"a": [datetime.fromisoformat("2020-03-29T02:30:00")]}), gap)
    with pytest.raises(InputError, match="no such time"):
        list(FileSource(gap, zone="Europe/Rome").answer(SourceQuery("a any")))


@pytest.mark.parametrize("zone", ["Europe/Rome", "-08:00", "Elsewhere/Unknown"])
def test_the_zone_of_a_column_does_not_matter(zone: str, tmp_path: Path) -> None:
    """The first and the last hours could not be read, nor times of a zone unknown here."""
    path, ends = tmp_path / "f.parquet", [TIME_MIN_US, 0, TIME_MAX_US]
    pq.write_table(pa.table({"a": pa.array(ends, pa.timestamp("us", zone))}), path)
    found = list(FileSource(path).answer(SourceQuery("a any")))
    assert [item.keys_of("a") for item in found] == [((TIME, each),) for each in ends]


CSV: Final = """symbol,price,day,ok,at
DIS,26.5,2020-01-01,true,2020-01-01 10:00:00
IBM,,2020-01-02,false,2020-01-01 11:00:00
"""


@given(asked=questions(("symbol", "price", "day", "ok", "at")))
def test_csv_answers(asked: SourceQuery, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cell would be left out, or an empty one be a text."""
    path = tmp_path_factory.getbasetemp() / "f.csv"
    path.write_text(CSV)
    times = ["2020-01-01 10:00:00", "2020-01-01 11:00:00"]
    every = [
        {"symbol": "DIS", "price": 26.5, "day": "2020-01-01", "ok": True, "at": times[0]},
        {"symbol": "IBM", "day": "2020-01-02", "ok": False, "at": times[1]},
    ]
    source = FileSource(path)
    expected = [item for item in map(Notification, every) if asked.answers(item)]
    assert counted(source.answer(asked)) == counted(expected)
    assert is_described(source.describe(0), [*map(Notification, every)])
    assert not meets(source.describe(0), Filter("symbol = 'XYZ'"))


def test_json_answers(tmp_path: Path) -> None:
    """Lines of JSON would be read otherwise than their notifications."""
    objects: list[dict[str, Any]] = [
        {"a": 1, "b": {"c": "x"}, "big": 2**53 + 1},
        {"a": 1.5, "l": [1, 2], "n": None},
        {"a": "x", "later": True},
    ]
    text = "\n\n".join(map(json.dumps, objects))
    (tmp_path / "f.jsonl").write_text(text)
    with gzip.open(tmp_path / "f.jsonl.gz", "wt") as file:
        file.write(text)
    with lzma.open(tmp_path / "f.jsonl.xz", "wt") as file:
        file.write(text)
    (tmp_path / "marked.jsonl").write_bytes(("\ufeff" + text.replace("\n", "\r")).encode())
    for path in sorted(tmp_path.iterdir()):
        source = FileSource(path)
        for question in ("a = 1", "b.c = 'x'", "l = 2", "n = null", "later = true", "big > 0"):
            asked = SourceQuery(question)
            expected = [item for item in map(Notification, objects) if asked.answers(item)]
            assert list(source.answer(asked)) == expected
            assert expected
        assert is_described(source.describe(0), [*map(Notification, objects)])
    only = FileSource(tmp_path / "f.jsonl", columns=["a"])
    assert [dict(item) for item in only.answer(SourceQuery(Filter({})))] == [
        {"a": each["a"]} for each in objects
    ]


def test_files_are_found_anew(tmp_path: Path) -> None:
    """A later file would be ignored, or one with more columns lose them."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    source = FileSource(str(tmp_path / "*.parquet"))
    assert [dict(item) for item in source.answer(SourceQuery("a any"))] == [{"a": 1}]
    pq.write_table(pa.table({"a": [2], "b": ["x"]}), tmp_path / "2.parquet")
    assert [dict(item) for item in source.answer(SourceQuery("b = 'x'"))] == [{"a": 2, "b": "x"}]
    assert len(list(FileSource(tmp_path).answer(SourceQuery("a any")))) == 2
    (tmp_path / "_ignored").write_text("")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "1.csv").write_text("a\n1\n")
    (tmp_path / "c" / "2.csv").write_text("b,a\nx,2\n")
    found = FileSource(tmp_path / "c").answer(SourceQuery("a any"))
    assert [dict(item) for item in found] == [{"a": 1}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(name: str, tmp_path: Path) -> None:
    """A column's name would be read as a path, or an expression."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({name: [1, 2]}), path)
    asked = SourceQuery(Filter({name: 2}))
    assert [dict(item) for item in FileSource(path).answer(asked)] == [{name: 2}]


def test_many_intervals_are_decided_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow would be given an expression that is too deep for it."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": range(5_000)}), path)
    asked = SourceQuery(Filter({"a": list(range(0, 5_000, 2))}))
    assert len(list(FileSource(path).answer(asked))) == 2_500
    monkeypatch.setattr(file_source, "INTERVALS_PUSHED_MAX", 10_000)
    few = SourceQuery(Filter({"a": list(range(0, 1_000, 2))}))
    assert len(list(FileSource(path).answer(few))) == 500


def test_faults_are_reported(tmp_path: Path) -> None:
    """The owner of the files would not learn of a fault."""
    asked = SourceQuery("a any")
    wrong = {
        "none.parquet": None,
        "f.txt": b"a",
        "f.parquet": b"no parquet",
        "f.csv": b"a,b\n1,2\n3\n",
        "f.json": b'{"a": 1}\n[1]\n',
        "g.json": b'{"a": 1}\n{"a": \n',
        "twice.json": b'{"a": 1, "a": 2}\n',
        "bytes.json": b'{"a": 1, "b": "\xff"}\n',
        "g.jsonl.gz": b"no gzip",
    }
    for name, data in wrong.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError):
            list(FileSource(tmp_path / name).answer(asked))
        with pytest.raises(InputError):
            FileSource(tmp_path / name).describe(0)
    with pytest.raises(InputError, match="found byte 0xff, expected UTF-8"):
        list(FileSource(tmp_path / "bytes.json", columns=["a"]).answer(asked))
    with pytest.raises(InputError, match=r"f\.json:2"):
        list(FileSource(tmp_path / "f.json").answer(asked))
    later = tmp_path / "later.csv"
    later.write_text("a\n" + "1\n" * 1_000_000 + "x\n")
    with pytest.raises(InputError, match="'x'"):
        list(FileSource(later).answer(asked))
    with pytest.raises(InputError, match="no column 'b'"):
        list(FileSource(later, columns=["b"]).answer(asked))
    with pytest.raises(ServiceError):
        FileSource(later, "xml")  # type: ignore[arg-type]
