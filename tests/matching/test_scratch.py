"""Kernels that read: msgpack and columns into the scratch, hashes, folding, names."""

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.index_arrays import _SEED
from contrada.matching.kernels.schema import HASH_SEED_BITS, KINDS, OK, UNREADABLE
from contrada.matching.kernels.scratch import integer_at
from contrada.model.domains.values import EPOCH, TIME_MAX_US, TIME_MIN_US
from contrada.model.languages import casefold
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    COMPILED_INNER,
    NEEDS_ROOM,
    generation_of,
    inner,
    loaded,
    module,
    needs_native,
    table,
)

encode = msgspec.msgpack.Encoder().encode
HEADER_BYTES_MAX = 15
PADDING = bytes(HEADER_BYTES_MAX)
INT, TEXT, ARRAY, MAP, TIME, LARGE, OTHER = 2, 4, 5, 6, 7, 8, 9
SPAN = {"a": [1, "text" * 10, None, 2**60], "b": "xyz", "c": {"d": [True, 2.5]}, "e": "x" * 300}
ASKED = ct.Filter("a any and b = 'xyz' and x = nocase 'K'")


def microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def bits_in_order(number: float) -> int:
    """A double's bits as an integer in the order of doubles."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits if bits >= 0 else -(bits & 2**63 - 1))


# --- hashes -------------------------------------------------------------------------------------

words = st.integers(0, 2**32 - 1)
keys = st.integers(-(2**63), 2**63 - 1)
seeds = st.integers(0, 2**HASH_SEED_BITS - 1)


@needs_native
@given(seed=seeds, h=words, x=keys, attr=st.integers(0, 2**22), text=st.binary(max_size=20))
def test_hashes_are_the_same_in_both_kinds(seed: Any, h: Any, x: Any, attr: Any, text: Any) -> None:
    """An index saved by one process would lose its filters in another; or a hash leave its bits."""
    checked, compiled = (module("kernels.scratch", each) for each in (False, True))
    asked = {
        "mixed": ((seed, h, x), 32),
        "finished": ((h,), 31),
        "place_hash": ((seed, attr, 5, h), 31),
        "point_hash": ((seed, attr, 4, x), 31),
        "gram_bit": ((attr, h, 2**19), 19),
        "hash_of_text": ((seed, text), 32),
        "hash_of_part": ((seed, text), 32),
    }
    for name, (arguments, bits) in asked.items():
        found = getattr(checked, name)(*arguments)
        assert found == getattr(compiled, name)(*arguments), name
        assert 0 <= found < 2**bits, name


@pytest.mark.slow
def test_texts_of_one_hash_are_not_for_another_seed() -> None:
    """Texts could be made with equal hashes in any process.

    With products alone, the lowest byte of the seed decides which texts have one hash.
    """
    hash_of_text = module("kernels.scratch").hash_of_text
    seed = 0x2B6D5A7F_9D1C6E53
    seen: dict[int, bytes] = {}
    pairs = []
    for number in range(300_000):
        text = b"%x" % (number * 2_654_435_761)
        h = hash_of_text(seed, text)
        if h in seen:
            pairs.append((seen[h], text))
        seen[h] = text
    assert pairs, "no two texts have one hash"
    for other in (seed ^ (1 << 20), seed ^ (1 << 40)):
        assert not all(hash_of_text(other, a) == hash_of_text(other, b) for a, b in pairs)


# --- headers ------------------------------------------------------------------------------------


def header(msg: bytes, compiled: bool) -> tuple[int, ...]:
    found = module("kernels.scratch", compiled).header(msg + PADDING, 0)
    return tuple(int(each) for each in found)


WIDTHS = [
    *(b"\xcc\xff", b"\xcd\xff\xfe", b"\xce\xff\xfe\xfd\xfc", b"\xcf\x7f" + b"\xff" * 7),
    *(b"\xd0\x80", b"\xd1\x80\x01", b"\xd2\x80\x00\x00\x01", b"\xd3\x80" + b"\x01" * 7),
    *(b"\x00", b"\x7f", b"\xe0", b"\xff", b"\xd0\x7f", b"\xd3" + bytes(8)),
]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("msg", WIDTHS, ids=bytes.hex)
def test_an_integer_of_any_width_is_read(msg: Any, compiled: Any) -> None:
    """A number would lose its sign, or the bytes after the first."""
    assert header(msg, compiled) == (INT, msgspec.msgpack.decode(msg), len(msg))


SIZES = [
    *((encode("x" * n), TEXT, n) for n in (0, 31, 32, 255, 256, 65_536)),
    *((encode(b"x" * n), TEXT, n) for n in (0, 256, 65_536)),
    *((encode([1] * n), ARRAY, n) for n in (0, 15, 16, 65_536)),
    *((encode({str(k): 0 for k in range(n)}), MAP, n) for n in (0, 15, 16, 65_536)),
    *((encode(each), 1, int(each)) for each in (False, True)),
    (encode(None), 0, 0),
    (b"\xcf" + b"\xff" * 8, LARGE, -1),
    (b"\xc1", OTHER, 0),
    (b"\xca" + bytes(4), OTHER, 0),
    (b"\xd6\x05" + bytes(4), OTHER, 0),
    (b"\xc7\x0c\x05" + bytes(12), OTHER, 0),
]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(("msg", "kind", "number"), SIZES, ids=range(len(SIZES)))
def test_every_other_header_is_read(msg: Any, kind: Any, number: Any, compiled: Any) -> None:
    """A length of one width would be read as another, or an odd byte be taken for a value."""
    assert header(msg, compiled)[:2] == (kind, number)


WHOLE = [*(each for each in WIDTHS if len(each) > 1), b"\xcb" + bytes(8)]
WHOLE += [b"\xd6\xff" + bytes(4), b"\xd7\xff" + bytes(8), b"\xc7\x0c\xff" + bytes(12)]
WHOLE += [bytes([lead]) + bytes(size) for lead, size in ((0xC4, 1), (0xC5, 2), (0xC6, 4))]
WHOLE += [bytes([lead]) + bytes(size) for lead, size in ((0xD9, 1), (0xDA, 2), (0xDB, 4))]
WHOLE += [
    bytes([lead]) + bytes(size) for lead, size in ((0xDC, 2), (0xDD, 4), (0xDE, 2), (0xDF, 4))
]


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("msg", WHOLE, ids=bytes.hex)
def test_a_header_is_read_up_to_the_end_of_the_bytes(msg: Any, compiled: Any) -> None:
    """A truncated header would be completed by the memory behind it, or a whole one be refused."""
    read = module("kernels.scratch", compiled).header
    assert read(msg, 0) == read(msg + PADDING, 0)
    assert read(msg, 0)[2] == len(msg)
    for cut in range(1, len(msg)):
        assert read(msg[:cut], 0) == (OTHER, 0, 0), cut


@pytest.mark.parametrize("compiled", COMPILED)
@given(time=st.datetimes(timezones=st.just(UTC)))
def test_times_of_all_three_widths_are_read(time: Any, compiled: Any) -> None:
    """A time before 1970, after 2106 or with fractions of a second would be another one."""
    msg = encode(time)
    assert header(msg, compiled) == (TIME, microseconds(time), len(msg))


@pytest.mark.parametrize("compiled", COMPILED)
@given(
    seconds=st.integers(0, 2**34 - 1), nanoseconds=st.integers(0, 10**9 - 1), is_long=st.booleans()
)
@example(seconds=1, nanoseconds=999_999_500, is_long=False)
@example(seconds=1, nanoseconds=1_499, is_long=True)
def test_a_time_between_two_microseconds_is_the_nearer_one(
    seconds: int, nanoseconds: int, is_long: bool, compiled: Any
) -> None:
    """Other languages have nanoseconds: a filter would look at another time than its subscriber."""
    if is_long:
        msg = b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)
    else:
        msg = b"\xd7\xff" + struct.pack(">Q", nanoseconds << 34 | seconds)
    read = microseconds(msgspec.msgpack.decode(msg))
    assert header(msg, compiled) == (TIME, read, len(msg))


@pytest.mark.parametrize("compiled", COMPILED)
@given(value=st.recursive(strategies.values(), lambda inner: st.lists(inner, max_size=3)))
def test_unused_attributes_are_skipped_whole(value: Any, compiled: Any) -> None:
    """The part behind an unused attribute would be read from its middle."""
    msg = encode({"k": value})
    skipped = module("kernels.scratch", compiled).skipped
    assert skipped(msg + b"\x01", 0) == len(msg)


# --- whole notifications ------------------------------------------------------------------------


def scratch(segment: Any) -> dict[int, list[tuple[int, int, int, bytes]]]:
    """The contents of the scratch: by attribute its values."""
    arrays = segment.arrays
    state, values, text = arrays.state, arrays.values, table(arrays, "text")
    found = {}
    for attr in table(arrays, "present")[: arrays.counters.present[0]].tolist():
        assert state.epoch[attr] == arrays.counters.epoch[0]
        first = state.first[attr]
        rows = range(first, first + state.count[attr])
        assert all(values.attr[row] == attr for row in rows)
        found[attr] = [
            (
                values.domain[row],
                values.low[row],
                values.high[row],
                text[values.start[row] :][: values.length[row]].tobytes()
                if values.domain[row] == 6
                else b"",
            )
            for row in rows
        ]
    return found


def in_scratch(value: Any) -> tuple[int, int, int, bytes]:
    """A value's form in the scratch."""
    if value is None:
        return 1, 0, 0, b""
    if isinstance(value, bool):
        return 2, int(value), int(value), b""
    if isinstance(value, datetime):
        return 5, microseconds(value), microseconds(value), b""
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        h = module("kernels.scratch").hash_of_text(_SEED, raw)
        return 6, h, h, raw
    if value != value:
        return 3, 0, 0, b""
    key = bits_in_order(value)
    wide = int(isinstance(value, int) and abs(value) > 2**53)
    return 4, key - wide, key + wide, b""


def check_scratch(attributes: Any, compiled: bool) -> None:
    """Asserts that values are in the scratch, with the right state of each attribute."""
    segment = generation_of([ct.Filter("a = 1 and b = 2 and é = 3")], compiled)
    assert loaded(segment, encode(attributes), compiled) == OK
    listed = {n: v if isinstance(v, list) else [v] for n, v in attributes.items()}
    expected = {
        segment.compiler.attrs[name]: list(map(in_scratch, several))
        for name, several in listed.items()
        if name != "unasked" and several
    }
    assert scratch(segment) == expected
    arrays = segment.arrays
    hulls, has, counters = arrays.hulls, arrays.state, arrays.counters
    assert counters.inexact[0] == any(
        low != high for rows in expected.values() for _, low, high, _ in rows
    )
    for attr, rows in expected.items():
        plain = [each for each in rows if each[0] != 6]
        assert hulls.lowest[2 * attr] == min([low >> 32 for _, low, _, _ in plain] or [2**31 - 1])
        assert hulls.highest[2 * attr] == max([high >> 32 for _, _, high, _ in plain] or [-(2**31)])
        assert has.only_domain[attr] == (rows[0][0] if len(rows) == 1 else 0)


@pytest.mark.parametrize("compiled", COMPILED)
@given(
    attributes=st.dictionaries(
        st.sampled_from(["a", "b", "é", "unasked"]),
        strategies.values() | st.lists(strategies.values(), max_size=12),
    )
)
def test_every_value_is_loaded(attributes: Any, compiled: Any) -> None:
    """A value would be another one to the kernels, or be forgotten when the scratch grows."""
    check_scratch(attributes, compiled)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("pool", [strategies.NUMBERS, strategies.TIMES, strategies.TEXTS], ids=len)
def test_odd_values_are_loaded(pool: Any, compiled: Any) -> None:
    """A number where integers and doubles part, or text that is no UTF-8, would be another one."""
    for value in pool:
        check_scratch({"a": value, "b": [value, *pool[:2]]}, compiled)


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(texts=st.lists(strategies.texts, min_size=1, max_size=3))
def test_texts_are_folded_where_a_filter_compares_without_case(texts: Any, compiled: Any) -> None:
    """A filter without case would compare with another text's folded form, or with none."""
    segment = generation_of([ASKED], compiled)
    attr = segment.compiler.attrs["x"]
    assert loaded(segment, encode({"x": texts}), compiled) == OK
    arrays = segment.arrays
    first, values, text = arrays.state.first[attr], arrays.values, table(arrays, "text")
    for row, given_ in enumerate(texts, first):
        raw = given_.encode() if isinstance(given_, str) else given_
        at = values.folded[row]
        assert text[at : at + values.folded_length[row]].tobytes() == casefold.fold(raw)


class Watched:
    """Bytes that fail when they are read behind their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, at: int) -> int:
        assert 0 <= at < len(self._data)
        return self._data[at]


@given(cut=st.integers(0, len(encode(SPAN)) - 1), more=st.binary(max_size=20))
def test_bytes_behind_the_end_are_never_read(cut: Any, more: Any) -> None:
    """Memory that belongs to others would be taken for a notification's."""
    segment, span = generation_of([ASKED], False), encode(SPAN)
    segment.arrays.reserve("text", 1_000)
    load = module("kernels.scratch").load
    assert load(Watched(span[:cut]), segment.arrays) == UNREADABLE
    for odd in (more, span[:cut] + more):
        assert load(Watched(odd), segment.arrays) in (OK, UNREADABLE)


@pytest.mark.parametrize("compiled", COMPILED_INNER)
def test_a_span_that_is_cut_off_anywhere_is_unreadable(compiled: Any) -> None:
    """Half a notification would be matched as if it were whole."""
    segment, span = generation_of([ASKED], compiled), encode(SPAN)
    assert loaded(segment, span, compiled) == OK
    for cut in range(len(span)):
        assert loaded(segment, span[:cut], compiled) == UNREADABLE, cut


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@pytest.mark.parametrize(
    "span",
    [
        *(b"", b"\x01", b"\x91\x01", b"\xa1a"),
        b"\x81\xc4\x01a\x01",  # a name that is bytes
        b"\x81\x01\x01",
        b"\x82\xa1a\x01\xa1a\x02",  # one name twice
        b"\x81\xa1a\x81\xa1b\x01",  # a map for a value
        b"\x81\xa1a\xcf" + b"\xff" * 8,
        b"\x81\xa1a\x91\xc1",
        b"\x81\xa1a\x92\x01",
        b"\x81\xa1z\xc1",
    ],
    ids=bytes.hex,
)
def test_other_bytes_are_unreadable(span: Any, compiled: Any) -> None:
    """Bytes that the model refuses would be matched."""
    segment = generation_of([ASKED], compiled)
    assert loaded(segment, span if compiled else Watched(span), compiled) == UNREADABLE  # type: ignore[arg-type]


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(names=st.lists(strategies.odd_names | strategies.names, unique=True, max_size=40))
def test_names_are_found_again(names: Any, compiled: Any) -> None:
    """An attribute would be mistaken for another with the same hash or beginning."""
    known, others = names[::2], names[1::2]
    segment = generation_of([ct.Filter({name: 1}) for name in known], compiled)
    attr_of = inner(compiled).attr_of
    found = {name: attr_of(name.encode(), segment.arrays.memory) for name in names}
    assert found == segment.compiler.attrs | dict.fromkeys(others, -1)


# --- folding ------------------------------------------------------------------------------------


@given(st.text() | st.binary())
def test_the_kernels_fold_as_the_model_does(text: Any) -> None:
    """Text without case would be compared by another table than the model's."""
    check_folded(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)


def check_folded(raw: bytes) -> None:
    room: Any = bytearray(raw + bytes(4 * len(raw) + 8))
    size = module("kernels.scratch").folded_text(room, 0, len(raw), len(raw))
    assert bytes(room[len(raw) : len(raw) + size]) == casefold.fold(raw)


def test_each_character_and_each_end_of_utf8_is_folded_as_by_the_model() -> None:
    """A character at an end of the table would be compared as it is, or bytes that are no UTF-8 as
    a character.
    """
    check_folded("".join(map(chr, range(1, 0x250))).encode())
    check_folded("".join(chr(code + n) for code in casefold.TABLE for n in (-1, 0, 1)).encode())
    ends = (*(0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0), 0xE1)
    leads = (*(0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF), *range(0xF0, 0xF6), 0xFF)
    for lead in leads:
        for second in ends:
            for rest in (b"", b"\x80", b"\xbf\x80", b"\x80\xbfA", b"A", b"\xbfA\x80", b"\x80\xc0"):
                check_folded(bytes((lead, second)) + rest)


# --- columns ------------------------------------------------------------------------------------


def bounded(bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low = -(2 ** (bits - 1)) if signed else 0
    high = 2 ** (bits - signed) - 1
    return st.integers(low, high) | st.sampled_from([low, high, 0])


OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    **{f"int{bits}": bounded(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": bounded(bits, signed=False) for bits in (8, 16, 32)},
    "float": st.floats(width=32),
    "double": st.floats(),
    "time": st.datetimes(timezones=st.just(UTC)),
    "string": st.text(max_size=5),
    "large_string": st.text(max_size=5),
    "binary": st.binary(max_size=5),
    "large_binary": st.binary(max_size=5),
}


def loaded_row(segment: Any, described: Any, row: int) -> int:
    """Loads a row of columns into the scratch; returns the answer with enough room."""
    cells = np.zeros(len(described) + 1, dtype=np.int64)
    memory = segment.arrays.memory
    while (status := inner(False).load_cells(described, row, cells, memory)) in NEEDS_ROOM:
        segment.arrays.grow_for(status)
    return int(status)


@pytest.mark.quick_every(4)
@needs_native
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_column_is_read_as_its_values_in_msgpack(kind: str, data: Any) -> None:
    """A column of some type would be matched otherwise than a notification."""
    pa = pytest.importorskip("pyarrow")
    values = data.draw(st.lists(st.none() | OF_KIND[kind], min_size=1, max_size=12))
    begin = data.draw(st.integers(0, len(values) - 1))
    arrow = {"time": pa.timestamp("us", "UTC"), "bool": pa.bool_(), "double": pa.float64()}
    made = arrow.get(kind) or (pa.float32() if kind == "float" else getattr(pa, kind)())
    column = pa.array(values, made).slice(begin)
    by_column, by_msgpack = (generation_of([ct.Filter("x = 1")], False) for _ in range(2))
    described = module("record_batches").Columns(len(column), [(0, KINDS[kind], column)]).described
    for row, value in enumerate(values[begin:]):
        assert loaded_row(by_column, described, row) == OK
        assert loaded(by_msgpack, encode({} if value is None else {"x": value}), False) == OK
        assert scratch(by_column) == scratch(by_msgpack)


@needs_native
@pytest.mark.parametrize("beyond", [TIME_MIN_US - 1, TIME_MAX_US + 1, 2**62])
def test_a_time_that_none_can_have_is_left_to_the_model(beyond: int) -> None:
    """A column's time past the year 9999 would be matched instead of refused."""
    pa = pytest.importorskip("pyarrow")
    column = pa.array([0, beyond], pa.int64()).cast(pa.timestamp("us", "UTC"))
    segment = generation_of([ct.Filter("t any")], False)
    described = module("record_batches").Columns(2, [(0, KINDS["time"], column)]).described
    assert [loaded_row(segment, described, row) for row in (0, 1)] == [OK, UNREADABLE]


@pytest.mark.parametrize("kind", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)])
def test_integers_of_columns_are_read_by_their_width_and_sign(kind: str) -> None:
    """Half a number would be read, two as one, or a negative one as a large one."""
    values = np.array([np.iinfo(kind).min, 1, np.iinfo(kind).max], dtype=kind)
    found = [integer_at(KINDS[kind], values.ctypes.data, row) for row in range(3)]
    assert found == values.tolist()
