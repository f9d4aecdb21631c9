"""Lines read in batches and lines read one by one have the same outcomes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode as json_encode

from contrada.integrations.files import (
    BadRecord,
    FileLimits,
    Matcher,
    Outcomes,
    ReadOptions,
    csv_batch,
    json_scan,
    lines,
    plain_attributes,
    read_file,
    record_matcher,
)
from contrada.integrations.files.json_batch import JsonBatchReader
from contrada.integrations.files.read_options import AllowedNames
from contrada.integrations.files.value_columns import MISSING
from contrada.model import Filter, FilterSet, parse, to_msgpack

pytest.importorskip("pyarrow")

WANTED: tuple[Filter | FilterSet, ...] = tuple(
    parse(text)  # type: ignore[misc]
    for text in (
        "a = 1 or b = 1",
        "@version = 1 or @version = 'x'",
        "a != 1",
        "a > 9007199254740992",
        "a < 0.5",
        "a = 'x' or b prefix 'x'",
        "b absent",
        "b = true",
        "a = null or b = null",
        "a none of (0)",
        "t > @2013-01-01T00:00:00Z",
        "@time >= @2013-01-01T00:00:00Z and @publisher = ''",
        "@is.Row = true and kind = 'row' and `o.p` exists",
        "@is.Row absent and `o.p` = 1",
        "n > 5",
        "t < @2013-03-01T00:00:00Z and @time >= @2013-01-01T00:00:00Z",
        "c contains ',' or c contains '\"'",
    )
)
"""Filters on the names below, and on values that all records share."""

OPTIONS = (
    ReadOptions(),
    ReadOptions(absent=frozenset({"NA", "x"}), add={"kind": "row"}, marks=("Row",)),
    ReadOptions(types={"t": "time", "n": "number", "b": "text"}, absent=frozenset({"NA"})),
    ReadOptions(types={"t": "time"}, time="t"),
    ReadOptions(types={"a": "bool"}, add={"a": 1, "kind": 2}),
    ReadOptions(time="a"),
    ReadOptions(rename={"a": "b", "@id": "a"}, drop=frozenset({"o", "c", ""})),
    ReadOptions(types={"a": "epoch", "t": "time"}, zone="Europe/Rome", rename={"o.p": "t"}),
    ReadOptions(types={"a": "epoch"}, time="a"),
    ReadOptions(add={"t": datetime(1969, 7, 20, tzinfo=UTC)}, time="t"),
)

RENAMING = (
    ReadOptions(rename={"a": "n", "b": "n"}, types={"n": "number"}),
    ReadOptions(rename={"a": "t", "c": "t"}, types={"t": "time"}, time="t"),
    ReadOptions(rename={"a": "b", "b": "a"}, absent=frozenset({"NA", "x"})),
    ReadOptions(rename={"a": "b", "n": "c", "o.p": "c"}, drop=frozenset({"a", "o"})),
    ReadOptions(rename={"𝄞": "a", "a": "ü", "": "b", "o": "a"}, add={"kind": "row", "b": 1}),
    ReadOptions(rename={"@id": "n", "@version": "b"}, types={"n": "epoch"}, marks=("Row",)),
    ReadOptions(drop=frozenset({"", "a", "b", "c", "n", "t", "o", "@id", "@version", "ü", "𝄞"})),
)
"""Options by which names meet: of one another, of dropped ones, and of those that are there."""

NAMES = ("a", "b", "c", "n", "t", "o.p", "", "@id", "@version", "ü", "\x1f")
HOSTILE_CELLS = [
    *("", "0", "1", "-1", "-0", "-0.0", "1.0", "1.5", "1e3", "1E+2", "1e999", "007", "+1"),
    *("9007199254740992", "9007199254740993", "9007199254740993.0", "1.", ".5", "-", "1_0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 40),
    *("true", "false", "True", "null", "NA", "NaN", "Infinity", "nan", "inf", "0x1", " 1"),
    *("x", "x ", "xy", "2013-01-01", "2013-02-30", "2013-06-01T00:00:00Z", "\x00", "\x0b"),
    *('"x"', '""', '"x,y"', '"x""y"', '"x"y', 'x"y', '"', ' "x"', '"x', '"\n"', "é", "\u2003"),
    *("\ufeff", "\u0661", "x\r", "\r\nx", "\x85", "\u2028", "\udcff", "\udce2\udc82"),
]
CELLS = st.one_of(
    st.sampled_from(HOSTILE_CELLS),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.text(st.sampled_from('ab",\r\n \t\x00é0'), max_size=6),
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", "\n\n", "\n \n", ""])


@st.composite
def csv_texts(draw: st.DrawFn) -> str:
    """Files of rows: most have a cell for each column, few are well-formed throughout."""
    columns = draw(st.lists(st.sampled_from(NAMES[:6]), min_size=1, max_size=4, unique=True))
    rows = st.lists(CELLS, min_size=len(columns), max_size=len(columns)) | st.lists(
        CELLS, max_size=5
    )
    mark = draw(st.sampled_from(["", "\ufeff"]))
    head = draw(st.sampled_from([",".join(columns)] * 9 + ['"a",b', "a,a", "", "a"]))
    body = draw(st.lists(st.tuples(rows, ENDS), max_size=12))
    return f"{mark}{head}\n" + "".join(",".join(row) + end for row, end in body)


HOSTILE_LITERALS = [
    *("0", "1", "-0", "-0.0", "1e3", "1E400", "01", "1.", "+1", "NaN", "-Infinity", "null"),
    *("true", "True", '""', '"x"', '"NA"', '"NaN"', '"5.5"', '"2013-06-01T00:00:00Z"', "[]"),
    *("[1,null]", '["x","NA"]', "[[1]]", '[{"a":1}]', "{}", '{"p":1}', '{"p":{"q":[1]}}'),
    *('{"p":1,"p":2}', '"\\ud800"', '"\\u00e9"', '"\\""', '"\\\\"', '"\\\\\\""', '"\t"'),
    *('"\x7f"', '"\\x"', "9007199254740993", "9223372036854775808", "9" * 50, "9" * 5000),
    *('{"$time":"2013-06-01T00:00:00Z"}', '{"$time":1}', '{"$number":"NaN"}', '{"$bytes":"78"}'),
    *("0.1e-400", "123456789012345678901234.5", '"\udcff"', "\u20031", "\x0b1", "1 2"),
]
LITERALS = st.one_of(
    st.sampled_from(HOSTILE_LITERALS),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*NAMES, "p", "q"]), inner, max_size=3)
        ),
        max_leaves=6,
    ).map(json.dumps),
)


@st.composite
def json_texts(draw: st.DrawFn, further: tuple[str, ...] = ()) -> str:
    """Files of JSON lines, some of which are none."""
    usual = ('"a"', '"b"', '"n"', '"t"', '"o"', '"o.p"', '"\\u0061"', '""', '"@id"', '"@version"')
    names = st.sampled_from(usual + further)
    members = st.lists(st.tuples(names, LITERALS), max_size=5)
    objects = members.map(lambda held: "{" + ",".join(f"{k}:{v}" for k, v in held) + "}")
    line = (
        objects
        | objects
        | objects
        | LITERALS
        | st.text(st.sampled_from('{}[]":,1a \\'), max_size=9)
    )
    body = draw(st.lists(st.tuples(line, ENDS), max_size=12))
    return "".join(line + end for line, end in body)


DIGITS = st.text("0123456789", min_size=1, max_size=20)
KINDS = (
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["0", "1", "-0", "9007199254740993", "9" * 18]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["0.5", "-0.0", "1.0", "1e22", "1e23", "1e-22", "3E-23", "9007199254740993.0"]),
    st.tuples(DIGITS, DIGITS).map(lambda held: f"{int(held[0])}.{held[1]}"),
    st.booleans().map(json.dumps),
    st.text(st.sampled_from("abx1 :,{}é\x7f\u2028"), max_size=20).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    ),
    st.dates().map(lambda day: f'"{day}"'),
)
"""Typical values of one attribute."""


@st.composite
def like_texts(draw: st.DrawFn) -> str:
    """Files of JSON lines that are alike, but for a few characters."""
    names = draw(
        st.lists(st.sampled_from(["a", "b", "n", "t", "c", "é" * 9]), min_size=1, unique=True)
    )
    kinds = [
        draw(st.sampled_from([*KINDS, st.sampled_from(KINDS).flatmap(lambda k: k)])) for _ in names
    ]
    comma, colon = draw(
        st.sampled_from([(",", ":"), (", ", ": "), ("\t , ", " :  "), (",", ":" + " " * 60)])
    )
    lines = []
    for _ in range(draw(st.integers(1, 12))):
        members = [f'"{name}"{colon}{draw(kind)}' for name, kind in zip(names, kinds, strict=True)]
        if draw(st.integers(0, 3)) == 0:
            members = draw(st.permutations(members))[draw(st.integers(0, 1)) :]
        lines.append("{" + comma.join(members) + "}")
    for _ in range(draw(st.integers(0, 2))):
        line = draw(st.integers(0, len(lines) - 1))
        text = lines[line]
        at = draw(st.integers(0, len(text)))
        put = draw(
            st.sampled_from(
                ["", " ", ",", '"', "\\", "}", "0", "-", ".", "e", "\x00", "\udcff", "\ufeff"]
            )
        )
        lines[line] = text[:at] + put + text[at + draw(st.integers(0, 2)) :]
    return "\n".join([*lines, ""])


@st.composite
def quoted_texts(draw: st.DrawFn) -> tuple[str, ReadOptions]:
    """Files of rows with line breaks, delimiters and quotes in cells, some of them broken."""
    delimiter = draw(st.sampled_from(",;\t |"))
    quote = draw(st.sampled_from(['"', '"', "'", ""]))
    inside = st.text(st.sampled_from(f"ab1{quote}{delimiter}\n\r \xe9"), max_size=5)
    cell = st.one_of(
        st.sampled_from(["1", "x", "", "NA"]),
        inside.map(
            lambda text: quote + (text.replace(quote, quote * 2) if quote else text) + quote
        ),
        inside,
    )
    rows = draw(st.lists(st.lists(cell, min_size=2, max_size=2), max_size=8))
    odd_heads = [[f"{quote}a\nb{quote}", "b"], [f"{quote}a", "b"]]
    head = draw(st.sampled_from([["a", "b"]] * 5 + odd_heads))
    text = "".join(delimiter.join(row) + draw(ENDS) for row in [head, *rows])
    return text, ReadOptions(delimiter=delimiter, quote=quote, absent=frozenset({"NA"}))


Found = tuple[int, int | None, list[Any]]


def outcomes(path: Path, kind: str, options: ReadOptions, *, bulk: bool) -> Found:
    """The number of records read, the largest time, and all matched and bad records, in order."""
    subject = Matcher(WANTED, options, 0 if bulk else 2**62)
    found: list[Outcomes] = list(subject.file(path, kind, "f"))
    told = [told for each in found for told in each.records]
    return sum(each.read for each in found), subject.latest_us, told


def expected(path: Path, kind: str, options: ReadOptions) -> Found:
    """The same by the plain readers and by the filters themselves."""
    times: list[int] = []
    told: list[Any] = []
    for record in read_file(path, kind, options, "f"):
        if isinstance(record, BadRecord):
            told.append(record)
            continue
        times.append(record.notification.envelope.at_us)
        positions = [n for n, each in enumerate(WANTED) if each.matches(record.notification)]
        if positions:
            told.append(record_matcher.MatchedRecord(record, positions))
    return len(times), max(times, default=None), told


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "file"


def in_columns(path: Path, kind: str, options: ReadOptions) -> Found:
    """The same from a matcher that packs matched records, one record after another."""
    subject = Matcher(WANTED, options, 0)
    subject.packs = True
    read, told = 0, []
    for each in subject.file(path, kind, "f"):
        read += each.read
        told += [in_order(one) for one in each.records]
        if each.packed is not None:
            numbers, positions, rows = each.packed
            times = [None] * len(numbers) if rows.times_us is None else rows.times_us.tolist()
            shown, packed = rows.attributes.to_pylist(), rows.notifications.to_pylist()
            told += zip(numbers, positions, times, shown, packed, strict=True)
    return read, subject.latest_us, sorted(told, key=repr)


def in_order(told: Any) -> Any:
    """A record that matched as columns have it."""
    if isinstance(told, BadRecord):
        return told
    notification = told.record.notification
    shown = json_encode(plain_attributes(notification)).decode()
    time_us = notification.envelope.time_us
    return told.record.number, told.positions, time_us, shown, to_msgpack(notification)


def check(path: Path, text: str, kind: str, options: ReadOptions) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    *read, told = expected(path, kind, options)
    shown = sorted(map(in_order, told), key=repr)
    for share, keys_at_once in ((0.1, 2**19), (1.0, 3)):
        limits = replace(options.limits, fallback_share_max=share, keys_at_once=keys_at_once)
        options = replace(options, limits=limits)
        assert outcomes(path, kind, options, bulk=False) == (*read, told)
        assert outcomes(path, kind, options, bulk=True) == (*read, told)
        assert in_columns(path, kind, options) == (*read, shown)


@given(quoted_texts())
def test_rows_of_several_lines_at_once_are_those_one_by_one(
    file: Path, case: tuple[str, ReadOptions]
) -> None:
    """Else a cell with a line break would be another in a large file."""
    check(file, case[0], "csv", case[1])


PAIRS = [f"{one},2013-01-01\n2,{one}\nx,{one}\n" for one in HOSTILE_CELLS]


CELLS_OF_COLUMNS = (
    st.integers(-999, 999).map(str),
    st.integers(-999, 999).map(str) | st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["true", "false"]),
    st.sampled_from(["2013-01-01", "2013-06-01T05:00:00Z", "2013-06-01 05:00:00.25Z", "2013-01"]),
    st.text(st.sampled_from("xy1 é,;\t"), max_size=12),
)
"""Typical cells of one column."""


@st.composite
def like_rows(draw: st.DrawFn) -> tuple[str, ReadOptions]:
    """Files of rows that are alike, but for a few cells; with columns that nobody asks for."""
    delimiter, quote = draw(st.sampled_from(",;\t |1")), draw(st.sampled_from(['"', "'", ""]))
    names = draw(st.lists(st.sampled_from(["a", "b", "t", "y", "z"]), min_size=1, unique=True))
    kinds = [draw(st.sampled_from(CELLS_OF_COLUMNS)) for _ in names]
    odd = st.sampled_from(["", "NA", "-999", "n/a", "NaN", "+5", "05", *HOSTILE_CELLS])
    lines = [names]
    for _ in range(draw(st.integers(1, 12))):
        cells = [draw(odd) if draw(st.integers(0, 9)) == 0 else draw(kind) for kind in kinds]
        lines.append([f"{quote}{c}{quote}" if draw(st.integers(0, 3)) == 0 else c for c in cells])
    if draw(st.integers(0, 2)) == 0:
        lines[-1] = draw(st.sampled_from([[], *lines, lines[-1][:-1], [*lines[-1], "x"]]))
    time = draw(st.sampled_from([None, None, "t"]))
    options = ReadOptions(
        delimiter=delimiter,
        quote=quote,
        types=draw(st.sampled_from([{}, {"z": "number", "t": "time", "a": "number", "b": "text"}])),
        absent=draw(st.sampled_from([frozenset(), frozenset({"NA", "-999", "n/a"})])),
        rename=draw(st.sampled_from([{}, {"y": "c"}])),
        drop=draw(st.sampled_from([frozenset(), frozenset({"y"})])),
        zone=draw(st.sampled_from([None, "Europe/Rome"])),
        time=time,
    )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(map(delimiter.join, lines)) + draw(st.sampled_from([end, ""])), options


@given(like_rows())
def test_rows_that_are_alike_are_those_one_by_one(
    file: Path, case: tuple[str, ReadOptions]
) -> None:
    """Else a cell would end elsewhere, or be another value, where a kernel parts it."""
    check(file, case[0], "csv", case[1])


def test_cells_that_nobody_asks_for_are_looked_at(file: Path) -> None:
    """Else a row with a number that is none would be good."""
    for names, kinds in (("z", "number"), ("z", "bool"), ("t", "time"), ("z", "epoch")):
        options = ReadOptions(types={names: kinds}, absent=frozenset({"NA", "-999"}))
        check(file, f"y,{names},a\n" + "".join(f"1,{c},1\n" for c in HOSTILE_CELLS), "csv", options)


def test_a_block_of_many_columns_and_short_lines_takes_little(file: Path) -> None:
    """A file of a wide header and empty lines would take gigabytes."""
    head = ",".join(["a", *(f"x{n}" for n in range(2_000))])
    check(file, f"{head}\n" + "\n" * 2_000 + "1" + "," * 2_000 + "\n", "csv", ReadOptions())


def test_texts_that_mean_no_value_may_be_many(file: Path) -> None:
    """Each cell would be compared with thousands of texts, or with some of them alone."""
    for count in (csv_batch.ABSENT_SCANNED_MAX, csv_batch.ABSENT_SCANNED_MAX + 1):
        options = ReadOptions(absent=frozenset(f"{n}" for n in range(count)))
        check(file, f"a,b\n1,{count - 1}\n{count},x\n", "csv", options)


@pytest.mark.quick_first
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("block_bytes", [FileLimits().block_bytes, 50])
def test_hostile_cells_beside_others(file: Path, options: ReadOptions, block_bytes: int) -> None:
    """A cell would be read differently among others."""
    options = replace(options, limits=FileLimits(block_bytes=block_bytes))
    for head in ("a,b", "a,t", "n,a", "c,o.p"):
        check(file, f"{head}\n" + "".join(PAIRS), "csv", options)
    for name in ("a", "t"):
        check(file, f"{name}\n" + "\n".join(HOSTILE_CELLS), "csv", options)


@pytest.mark.slow
def test_hostile_cells_alone(file: Path) -> None:
    """The first row, or a block of fallback rows only, would be read differently."""
    for pair in PAIRS:
        check(file, f"n,a\n{pair}", "csv", OPTIONS[2])


def hostile_objects() -> Iterator[str]:
    for name in ("a", "b", "n", "t", "o", "o.p"):
        for one in HOSTILE_LITERALS:
            yield f'{{"{name}":{one},"t":"2013-06-01"}}\n'
            yield f'{{"a":"x","{name}":{one},"c":"\\"","\\u0061":1}}\n'
            yield f'{{"\udcff":1,"\xe9{name}":{one}}}\n'
            yield f'{{"o":{{"p":2}},"{name}":{one}}}\n'


@pytest.mark.quick_first
@pytest.mark.parametrize("options", OPTIONS)
def test_hostile_literals_beside_others(file: Path, options: ReadOptions) -> None:
    """A member of an object would be read differently among others."""
    check(file, "".join(hostile_objects()), "json", options)
    clean = [each for each in hostile_objects() if "\udcff" not in each]
    check(file, "".join(clean), "json", options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        '{"a":"x\n{","b":1}',
        '{"a":1\n{"b":1}',
        '{"a":\n{"b":1}}',
        '{"a":1},\n{"b":1}',
        '{"a":1,"a":2}',
        '{"a":"\\\\","a":"\\""}',
        '{"a":"{"}',
        '{"@id":1}',
        '{"@version":1}',
        '{"a":1}\n',
        '{"a":[1]}',
        '{"a":"\udcff"}',
        '{"a":"NA","b":null,"n":"5"}',
    ],
)
def test_one_hostile_line_among_plain_objects(file: Path, line: str) -> None:
    """Else a block that is decoded as one array would take two lines for one, or one for two."""
    plain = '{"a":"x","b":true}\n{"n":7,"c":"\\""}\n'
    for options in OPTIONS:
        for text in (f"{plain}{line}\n{plain}", f"{line}\n{plain}", f"{plain}{line}", line):
            check(file, text, "json", options)


@pytest.mark.slow
def test_hostile_literals_alone(file: Path) -> None:
    """A block of fallback rows only would be read differently."""
    for one in HOSTILE_LITERALS:
        check(file, f'{{"n":{one}}}\n', "json", OPTIONS[2])


@given(text=csv_texts(), options=st.sampled_from(OPTIONS))
def test_rows_at_once_are_the_rows_one_by_one(file: Path, text: str, options: ReadOptions) -> None:
    """Else a value, a fault or its place would depend on how much there is to read."""
    check(file, text, "csv", options)


@given(text=json_texts(), options=st.sampled_from(OPTIONS))
def test_objects_at_once_are_the_objects_one_by_one(
    file: Path, text: str, options: ReadOptions
) -> None:
    """Else the same line would be a record in a large file and a bad record in a small one."""
    check(file, text, "json", options)


@given(text=like_texts(), options=st.sampled_from(OPTIONS))
def test_objects_that_are_alike_are_those_one_by_one(
    file: Path, text: str, options: ReadOptions
) -> None:
    """Else a line would be read as the one before it, or a number be the one next to it."""
    check(file, text, "json", options)


@given(
    text=json_texts(('"c"', '"ü"', '"𝄞"', '"\\ud834\\udd1e"', '"\uffff"', '"\udcff"'))
    | like_texts(),
    options=st.sampled_from(RENAMING),
)
def test_objects_with_renamed_names_are_those_one_by_one(
    file: Path, text: str, options: ReadOptions
) -> None:
    """Else a value would be lost, or be that of another name, where two names become one."""
    check(file, text, "json", options)


@pytest.mark.parametrize("options", RENAMING)
def test_names_that_become_one_in_lines_that_are_alike(file: Path, options: ReadOptions) -> None:
    """A line with both names would have one of the values, or the values of the line before it."""
    both = ['{"a":1,"b":2,"t":"2013-01-01"}', '{"n":1,"o.p":2,"a":3}', '{"b":1,"𝄞":2,"a":"x"}']
    one = ['{"a":1}', '{"b":2}', '{"n":3}', '{"a":"x","c":1}', '{"c":"2013-01-01"}', '{"o":true}']
    alike = [f'{{"{name}":{n},"@id":{n}}}' for n in range(9) for name in ("a", "b", "o.p", "ü")]
    check(file, "\n".join([*alike, *one * 3, *both, *alike, ""]), "json", options)


def test_renamed_objects_are_scanned(file: Path) -> None:
    """Lines with a name to rename or to leave out would take 25 times as long."""
    options = ReadOptions(rename={"b": "a", "x": "y"}, drop=frozenset({"o", "@id"}))
    block = lines.Block.of(1, b'{"a":1,"@id":"u","x":2}\n{"b":2,"o.p":1}\n{"a":1,"b":2}\n')
    scanned = json_scan.JsonScanner(AllowedNames(options), options).scan(block, None)
    assert scanned is None  # A third of the lines are fallback rows.
    limits = FileLimits(fallback_share_max=0.5)
    unmet = {"y", "a", "o"}
    read = JsonBatchReader(("a", "y"), replace(options, limits=limits), unmet).read(block)
    assert read.is_fallback.tolist() == [False, False, True]
    columns = {name: [column.value(row) for row in (0, 1)] for name, column in read.columns.items()}
    assert columns == {"a": [1, 2], "y": [2, MISSING]}
    assert unmet == {"o"}


NUMBERS = [
    "1",
    "1.0",
    "1.5",
    "0.3",
    "-0.0",
    "-0",
    "1e5",
    "0.30000000000000004",
    "123456789012345.6e7",
]


@pytest.mark.parametrize(
    "numbers", [NUMBERS, [*NUMBERS, "9007199254740993"], ["0.0", "-0.0", "1.5"]]
)
def test_numbers_keep_their_form(file: Path, numbers: list[str]) -> None:
    """An integer would be written as a double, or -0.0 as 0.0, beside others in its column."""
    check(file, "".join(f'{{"a":2,"n":{each}}}\n' for each in numbers), "json", ReadOptions())
    check(file, "".join(f'{{"a":{each}}}\n' for each in numbers), "json", ReadOptions())


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(
    ("limits", "sizes"),
    [(FileLimits(packed_records_max=4), [4, 4, 2]), (FileLimits(packed_bytes_max=1), [1] * 10)],
)
def test_matched_lines_are_packed_in_pieces(
    file: Path, kind: str, limits: FileLimits, sizes: list[int]
) -> None:
    """All matched lines of a block would be held and packed together, however long they are."""
    lines = {"csv": ["a"] + ["1"] * 10, "json": ['{"a":1}'] * 10}[kind]
    file.write_text("\n".join([*lines, ""]))
    subject = Matcher(WANTED, ReadOptions(limits=limits), 0)
    subject.packs = True
    found = [each.packed for each in subject.file(file, kind, "f") if each.packed]
    assert [len(each.numbers) for each in found] == sizes
    assert in_columns(file, kind, ReadOptions()) == (
        10,
        0,
        sorted(map(in_order, expected(file, kind, ReadOptions())[-1]), key=repr),
    )


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize(("is_packed", "bulk_after_bytes"), [(True, 0), (False, 0), (False, 2**62)])
def test_no_outcomes_have_many_matches(
    file: Path, kind: str, is_packed: bool, bulk_after_bytes: int
) -> None:
    """A value in most lines that many filters ask for would fill the memory with its matches."""
    rows, filters, at_once = 300, 40, 200
    values = [0 if row % 10 == 5 else 1 for row in range(rows)]
    lines = [f"{each}" if kind == "csv" else f'{{"a":{each}}}' for each in values]
    file.write_text("\n".join([*(["a"] if kind == "csv" else []), *lines, ""]))
    options = ReadOptions(limits=FileLimits(keys_at_once=at_once))
    subject = Matcher([WANTED[0]] * filters, options, bulk_after_bytes)
    subject.packs = is_packed
    found = list(subject.file(file, kind, "f"))
    told = ((one for one in each.records if not isinstance(one, BadRecord)) for each in found)
    sizes = [sum(len(one.positions) for one in some) for some in told]
    sizes += [sum(map(len, each.packed.positions)) for each in found if each.packed]
    assert sum(sizes) == values.count(1) * filters
    assert max(sizes) <= (2 * at_once if is_packed else at_once)  # A portion joins waiting lines.
    assert sum(each.read for each in found) == rows


def test_objects_that_are_too_long_are_bad(file: Path) -> None:
    """A line that is refused alone would be a record among others."""
    options = ReadOptions(limits=FileLimits(line_chars_max=30))
    short = '{"a":1}\n' * 20
    check(file, f'{short}{{"a":1,"b":"{"x" * 30}"}}\n{short}', "json", options)


def test_rows_that_are_too_long_are_bad(file: Path) -> None:
    """A row of too many characters would be a record among others, also one of several lines."""
    options = ReadOptions(limits=FileLimits(line_chars_max=30))
    text = "a,b\n"
    for size in (28, 29):
        quoted = f'"{"x" * (size - 4)}"""', '"x{}x"'.format("\n" * (size - 4))
        for cell in ("x" * size, "é" * size, *quoted):
            text += f"1,{cell}\n1,x\n"
    check(file, text, "csv", options)


def test_a_time_that_means_none_is_missing(file: Path) -> None:
    """A record would have a time that means "no value", or no time at all."""
    for time in (None, "t"):
        for absent in ((), ("2013-01-01",), ("NA", "2013-01-01T00:00Z")):
            options = ReadOptions(types={"t": "time"}, absent=frozenset(absent), time=time)
            times = ["2013-01-01", "2013-01-01T00:00Z", "2013-06-01 05:00Z"] * 3
            check(file, "a,t\n" + "".join(f"1,{t}\n" for t in [*times, ""]), "csv", options)
            lines = [f'{{"a":1,"t":"{each}"}}\n' for each in times]
            check(file, "".join([*lines, '{"a":1}\n']), "json", options)


def test_objects_without_a_time_are_bad(file: Path) -> None:
    """Lines would be records where none of them has the time that each needs."""
    check(file, '{"a":1}\n' * 20, "json", ReadOptions(types={"t": "time"}, time="t"))
    for kind in ("text", "number", "bool"):  # A stamp that can be no time.
        check(file, "a,t\n" + "1,1\n" * 20, "csv", ReadOptions(types={"t": kind}, time="t"))


def test_only_names_that_are_there_take_room() -> None:
    """A block would take gigabytes where filters ask for thousands of attributes."""
    block = lines.Block.of(1, b'{"a":1,"b":2}\n{"c":3}\n')
    asked = {"a", "c", *map(str, range(10_000))}
    options = ReadOptions(rename={"b": "d", "c": "e"}, drop=frozenset("d"))
    scanned = json_scan.JsonScanner(AllowedNames(options), options).scan(block, {*asked, "e", "d"})
    assert scanned is not None
    assert scanned.names == ["a", "d", "e"]
    nested = lines.Block.of(1, b'{"a":1,"b":{"c":2}}\n{"c":3}\n')
    decoder = JsonBatchReader(asked, ReadOptions(), set())
    assert decoder.read(nested).columns.keys() == {"a", "c"}


TEXTS_OF_ENTRIES = [each for each in HOSTILE_CELLS if each.isprintable() and '"' not in each]


@pytest.mark.slow
@pytest.mark.parametrize("entries", ["e", None])
def test_entries_that_nothing_matches_are_the_records_that_they_are(
    file: Path, entries: str | None
) -> None:
    """Else an entry that is bad would pass for one that nothing matches, or one would be missed."""
    members = [
        f"<e><a>{one}</a><t>{one}</t><n>{two}</n><b/><c>5</c><a>{two}</a></e>"
        for one in TEXTS_OF_ENTRIES
        for two in ("1", "NA", "2013-06-01", one)
    ]
    wide = "<e>" + "".join(f"<x{n}/><y{n}>1</y{n}>" for n in range(4_100)) + "</e>"
    many = "<e>" + "<a>1</a>" * 4_100 + "".join(f"<a>{n}</a>" for n in range(4_100)) + "</e>"
    types = {f"{path}.{name}": kind for path in ("d.e", "d") for name, kind in (("n", "number"),)}
    for text in (f"<d>{''.join(members)}</d>", f"<d>{wide}{many}</d>", "<d><e><a>1</e></d>"):
        for wish in ("d.e.a = 1", "d.e.c > 7", "d.e.b absent", "d.e.n > 1", "@is.Row absent"):
            for options in (
                ReadOptions(entries=entries),
                ReadOptions(entries=entries, types=types, absent=frozenset({"NA"})),
                ReadOptions(entries=entries, types={"d.e.t": "time"}, time="d.e.t"),
                ReadOptions(entries=entries, add={"d.e.c": 9}, marks=("Row",)),
            ):
                file.write_text(text)
                wanted = [parse(wish)]
                subject = Matcher(wanted, options)  # type: ignore[arg-type]
                found = list(subject.file(file, "xml", "f"))
                records = list(read_file(file, "xml", options, "f"))
                good = [each for each in records if not isinstance(each, BadRecord)]
                assert sum(each.read for each in found) == len(good)
                times = [each.notification.envelope.at_us for each in good]
                assert subject.latest_us == max(times, default=None)
                told = [each for outcomes in found for each in outcomes.records]
                assert [each for each in told if isinstance(each, BadRecord)] == [
                    each for each in records if isinstance(each, BadRecord)
                ]
                assert [each.record for each in told if not isinstance(each, BadRecord)] == [
                    each
                    for each in good
                    if wanted[0].matches(each.notification)  # type: ignore[union-attr]
                ]


def test_names_of_options_that_a_document_has(tmp_path: Path) -> None:
    """Else `contrada match` would call a name misspelled whose texts mean no value."""
    path = tmp_path / "a.xml"
    path.write_text("<r><e n='5'><a>NA</a></e><e><a>NA</a></e></r>")
    options = ReadOptions(
        types={"r.e.a": "number", "r.e.n": "text", "r.e.b": "text"},
        rename={"r.e.n": "m"},
        absent=frozenset({"NA"}),
    )
    for strategy in ("multi", "last", "index"):
        for entries in (None, "e"):
            matcher = Matcher([], replace(options, strategy=strategy, entries=entries))
            assert not any(each.records for each in matcher.file(path, "xml", "f"))
            is_numbered = strategy == "index" and entries is None  # Its names have numbers.
            assert matcher.unmet == ({"r.e.b", "m"} if is_numbered else {"r.e.b"})


def test_matchers_with_the_same_options_read_in_turns(tmp_path: Path) -> None:
    """The second would make the first call the names of its files misspelled."""
    options = ReadOptions(drop=frozenset({"a"}))
    (tmp_path / "first").write_text('{"a":1,"b":"","c":1}\n')
    (tmp_path / "second").write_text('{"c":1}\n')
    first, second = (Matcher([Filter("c = 1")], options) for _ in range(2))
    files = (
        first.file(tmp_path / "first", "jsonl", "f"),
        second.file(tmp_path / "second", "json", "f"),
    )
    assert all(next(each).records for each in files)
    assert [list(each) for each in files] == [[], []]
    assert (first.unmet, second.unmet) == (set(), {"a"})


@pytest.mark.parametrize("bulk_after_bytes", [0, 2**62])
@pytest.mark.parametrize(
    ("kind", "text", "strategy"),
    [
        ("csv", "n,a.b,c\n7,8,9\n", "multi"),
        ("journald", '{"n":"7","a":"8","a.b":"","c":"9"}\n', "multi"),
        ("json", '{"n":7,"a":{"b":8},"c":9}\n', "multi"),
        ("json", '{"n":7,"a":[{"b":8}],"c":9}\n', "multi"),
        ("json", '{"n":7,"a":{"b":8},"c":9}\n', "index"),
        ("json", '{"n":[7],"a":[{"b":8}],"c":[9]}\n', "index"),
        ("xml", "<r><n>7</n><a><b>8</b></a><c>9</c></r>", "multi"),
        ("xml", "<r><n>7</n><a><b>8</b></a><c>9</c></r>", "index"),
    ],
)
def test_names_to_drop_that_no_record_has(
    tmp_path: Path, kind: str, text: str, strategy: str, bulk_after_bytes: int
) -> None:
    """A misspelled name would leave a password in the matches; or one that is dropped, or whose
    attribute has a number in its name, would be called misspelled.
    """
    path = tmp_path / "file"
    below = "r." if kind == "xml" else ""
    options = ReadOptions(
        types={f"{below}n": "epoch"},
        drop=frozenset({"@id", *(f"{below}{name}" for name in ("a", "a.b", "c", "d"))}),
        strategy=strategy,
    )
    matcher = Matcher([], options, bulk_after_bytes)
    for content, lost in ((text, "d"), (text.replace("c", "e"), "cd")):  # Two sources share it.
        path.write_text(content)
        matcher.unmet = options.names_expected()
        assert sum(each.read for each in matcher.file(path, kind, "f")) == 1
        assert matcher.unmet == {f"{below}{name}" for name in lost}


@pytest.mark.parametrize("bulk_after_bytes", [0, 2**62])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("csv", "n,m\n7,8\n"),
        ("json", '{"n":7,"m":"8"}\n'),
        ("json", '{"n":7,"m":"8","o":[{}]}\n'),
        ("xml", "<r><n>7</n><m>8</m></r>"),
    ],
)
def test_types_by_former_names(tmp_path: Path, kind: str, text: str, bulk_after_bytes: int) -> None:
    """The same option would declare a type in XML, and be called misspelled in CSV and JSON."""
    path = tmp_path / "file"
    path.write_text(text)
    below = "r." if kind == "xml" else ""
    types = {f"{below}n": "epoch", f"{below}m": "text"}
    options = ReadOptions(types=types, rename={f"{below}n": "at", f"{below}m": "b"}, time="at")
    matcher = Matcher([parse("b = '8'")], options, bulk_after_bytes)  # type: ignore[list-item]
    found = [each for outcome in matcher.file(path, kind, "f") for each in outcome.records]
    assert [dict(each.record.notification.attributes) for each in found] == [  # type: ignore[union-attr]
        {"at": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC), "b": "8"}
    ]
    assert not matcher.unmet


def test_entries_do_not_concern_json_lines(tmp_path: Path) -> None:
    """A line of several objects would be one record to the matcher, and two to the plain reader."""
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a":[{"n":6},{"n":1}]}\n{"a":[{"n":2},{"n":7}]}\n')
    options = ReadOptions(entries="a", strategy="split")
    outcomes = list(Matcher([parse("n > 5")], options).file(path, "jsonl", ""))  # type: ignore[list-item]
    matched = [each.record for outcome in outcomes for each in outcome.records]  # type: ignore[union-attr]
    read = list(read_file(path, "jsonl", options, ""))
    assert (len(read), sum(outcome.read for outcome in outcomes)) == (4, 4)
    assert matched == [read[0], read[3]]
