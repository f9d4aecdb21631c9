"""`NativeFuzz`: random and mutated inputs for every entry of `contrada._native` that reads bytes.

A round is one kind of input: spans for an index, columns of Arrow, encodings for the codec, lines
of JSON, rows of CSV, or columns for the writer. It depends on the seed and its number alone, so a
failure is repeated by both. Invariants:

- no call raises anything but an error of contrada;
- an index finds what `Filter.matches` finds, one by one and in batches (on a sample);
- an accepted encoding is one that `model.codec` accepts, with the same parts (on a sample);
- a line that is no fallback row is valid JSON; a written row is a valid notification.

Memory errors are found by the sanitizers, in `tests.matching.sanitizers`.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

import contrada as ct
from contrada.errors import ContradaError
from contrada.integrations.files.csv_batch import CsvBatchReader
from contrada.integrations.files.json_scan import JsonScanner
from contrada.integrations.files.lines import Block, FileLimits
from contrada.integrations.files.read_options import AllowedNames, ReadOptions
from contrada.integrations.files.value_columns import MISSING
from contrada.matching.arrow_pack import blobs_of, pack_rows, pieces_of
from contrada.matching.packed import Bundle, decode_span, to_whole_notification
from contrada.model import Envelope, Filter, Notification, from_msgpack, to_msgpack
from contrada.model.algebra.attributes import good_names, good_names_and_marks
from contrada.model.codec import notification_from_msgpack, pack_plain, plain_entries
from contrada.model.domains.values import INT_MAX, INT_MIN
from contrada.model.syntax import parse_filter
from contrada.net.wire.frames import Request, encode, read_few
from contrada.net.wire.message_codec import encode_publish

SAMPLE: Final = 40
"""One of so many inputs is compared with the model."""

SPANS: Final = 2_000
FILTERS: Final = 500
BUNDLES: Final = 250
LINES: Final = 2_000
ROWS: Final = 500
"""Inputs of a round."""

LINES_AT_ONCE: Final = 250

PROGRESS_S: Final = 30.0
"""Seconds between two lines of progress."""

_NOW_US: Final = 1_795_000_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.msgpack.Encoder().encode

NAMES: Final = ("price", "symbol", "größe", "a", "b", "a.b", "c.d", "is_open", "at", "n" * 33)

NUMBERS: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 31, 32, 127, 128, -32, -33, 255, 256, 65_535, 65_536, 2**31, 2**32, 2**53 + 1),
    *(INT_MAX, INT_MIN, 0.0, -0.0, 0.5, 1.5, 99.99, -2.5, 1e300, 5e-324, math.inf, -math.inf),
)
TEXTS: Final = (
    *("", "a", "ab", "abc", "DIS", "dis", "größe", "\u20ac" * 20, "\U0001f600", "x" * 31),
    *("x" * 32, "x" * 255, "y" * 256, "ab" * 40, "b" * 70, "a\x00b", "STRASSE", "straße", "K"),
)
OTHERS: Final[tuple[Any, ...]] = (
    *(None, True, False, b"", b"\xff\x00", b"z" * 256, math.nan),
    *(_EPOCH, datetime(2026, 11, 20, 5, tzinfo=UTC), _EPOCH - timedelta(microseconds=1)),
)
ODD: Final[tuple[Any, ...]] = (
    *([], [1, 2], {"b": 1}, {}, 2**63, 2**64, -(2**63) - 1, "\ud800", "y" * 70_000, b"z" * 65_536),
    *((1, 2), object(), 1j, bytearray(b"a"), ["a", 1.5, None], "x" * 65_490),
)

PATTERNS: Final = (
    *("{n} = {v}", "{n} != {v}", "{n} < {d}", "{n} <= {d}", "{n} > {d}", "{n} >= {d}"),
    *("{n} between {d} and {e}", "{n} in ({v}, {d}, {t})", "{n} prefix {t}", "{n} suffix {t}"),
    *("{n} contains {t}", "{n} not contains {t}", '{n} wildcard "*{w}*b?"', "{n} matches /a.*b/"),
    *("{n} = nocase {t}", "{n} prefix nocase {t}", "{n} any", "{n} absent", "{n} none of ({v})"),
    *("{n} any but ({v})", "{n} matches /[a-c]+x{{2,9}}/", '@id prefix "p.1"', '@publisher = "p"'),
    *("@time > @2026-11-20T00:00:00Z", "{n} in (null, true, {d})", "{n} > @2000-01-01T00:00:00Z"),
)

ROUGH: Final = (
    *(b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\x7f\xff\xff\xff", b"\xde"),
    *(b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc6\x80\x00\x00\x00", b"\xd9\xff"),
    *(b"\xda\xff\xff", b"\xcb\x7f\xf8", b"\xd7\xff\xff\xff\xff\xff", b"\xd6\xff", b"\xc7\x0c\xff"),
    *(b"\xcf" + b"\xff" * 8, b"\xd3\x80" + bytes(7), b"\x91" * 600, b"\x81\xa1a" * 90, b"\xdc\x10"),
)
"""Invalid msgpack, or of excessive declared length or depth."""

SIGNS: Final = [
    *"{}[]:,\"\\\n\r\t 0123456789+-.eEtruefalsn;'\x00\x1f\x7f@éß",
    *("null", "true", "1e5", "1E400", '""', "2026-11-20T05:00:00Z", "\u2028", "\n\n", '"a":1,'),
]
"""Pieces that are inserted into lines."""


def constant(value: Any) -> str:
    """Returns a value in the syntax of filters."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f'x"{value.hex()}"'
    if isinstance(value, datetime):
        return f"@{value.isoformat().replace('+00:00', 'Z')}"
    return {None: "null", True: "true", False: "false"}.get(value, repr(value))


def chosen(chance: random.Random) -> Any:
    """Returns a single value."""
    kind = chance.random()
    if kind < 0.3:
        return chance.randrange(-5, 110)
    if kind < 0.4:
        return chance.uniform(-10, 110)
    return chance.choice(NUMBERS if kind < 0.6 else TEXTS if kind < 0.9 else OTHERS)


def attributes(chance: random.Random, *, odd: float = 0.0) -> dict[str, Any]:
    """Returns attributes; each value is an odd one with this probability."""
    count = chance.choice((0, 1, 2, 3, 4, 6, 9)) if chance.random() < 0.98 else 40
    names = [f"m{n}" for n in range(count)] if count > 9 else chance.sample(NAMES, count)
    return {n: chance.choice(ODD) if chance.random() < odd else chosen(chance) for n in names}


def mutated(chance: random.Random, good: bytes, others: list[bytes]) -> bytes:
    """Returns bytes that are nearly good."""
    kind, at = chance.random(), chance.randrange(len(good) + 1)
    if kind < 0.4 and good:
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return bytes(data)
    if kind < 0.55:
        return good[:at]
    if kind < 0.7:
        other = chance.choice(others)
        return good[:at] + other[chance.randrange(len(other) + 1) :]
    if kind < 0.85:
        return good[:at] + chance.choice(ROUGH) + good[at:]
    if kind < 0.95:
        return good[:at] + chance.randbytes(chance.randrange(1, 9)) + good[at + 1 :]
    return chance.randbytes(chance.randrange(40))


class NativeFuzz:
    """Rounds of inputs of one seed."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        """`trace` gets each input as text, before the call that reads it."""
        self._seed, self._trace = seed, trace
        chance = random.Random(seed)
        self._filters = [each for _ in range(500) for each in self._filter(chance)]
        self._spans = [_encode(attributes(chance)) for _ in range(1_000)]
        self._encodings = list(self._good_encodings(chance))
        self._packed_filters = [to_msgpack(each) for each in self._filters]
        self._kinds: list[Callable[[random.Random], int]] = [
            self._match_spans,
            self._check_encodings,
            self._match_spans,
            self._add_filters,
            self._scan_json,
            self._match_columns,
            self._scan_csv,
            self._encode_items,
            self._write_columns,
        ]
        self.inputs: dict[str, int] = {}
        """How many inputs of each kind were read."""

    def run_round(self, number: int) -> int:
        """Runs a round; returns the number of its inputs."""
        kind = self._kinds[number % len(self._kinds)]
        count = kind(random.Random(f"{self._seed}/{number}"))
        name = kind.__name__.strip("_")
        self.inputs[name] = self.inputs.get(name, 0) + count
        return count

    def _note(self, what: str, given: Any) -> None:
        if self._trace is not None:
            self._trace(f"{what}: {given!r}")

    # --- good inputs ------------------------------------------------------------------------------

    def _filter(self, chance: random.Random) -> Iterator[Any]:
        terms = []
        for _ in range(chance.choice((1, 1, 2, 2, 3, 5))):
            values = {each: chance.choice(NUMBERS[:24]) for each in "de"}
            text = chance.choice(TEXTS[1:])
            terms.append(
                chance.choice(PATTERNS).format(
                    n=chance.choice(NAMES),
                    v=constant(chosen(chance)),
                    t=constant(text),
                    w=chance.choice("abcx"),
                    **{each: constant(value) for each, value in values.items()},
                )
            )
        with suppress(ContradaError):  # Bounds in the wrong order, or a number that is none.
            yield parse_filter(" and ".join(terms))

    def _good_encodings(self, chance: random.Random) -> Iterator[bytes]:
        for number in range(1_000):
            at_us = _NOW_US + chance.choice((0, 1, -(2**40)))
            envelope = Envelope(f"p.{number}", chance.choice(("p", "q", "größe")), number, at_us)
            yield to_msgpack(Notification(attributes(chance), envelope=envelope))

    def _index(self, chance: random.Random) -> tuple[ct.Index[int], dict[int, Any]]:
        """Returns an index that has changed, and its filters."""
        index: ct.Index[int] = ct.Index()
        held: dict[int, Any] = {}
        size = chance.choice((1, 5, 30, 120, 400))
        for key in range(size):
            held[key] = chance.choice(self._filters)
            index.add(key, held[key])
        for key in chance.sample(range(size), size // 3):
            if chance.random() < 0.5:
                index.remove(key)
                del held[key]
            else:
                held[key] = chance.choice(self._filters)
                index.add(key, held[key])
            if chance.random() < 0.1:
                index.maintain()
        if chance.random() < 0.2:
            index.renew()
        return index, held

    # --- an index ---------------------------------------------------------------------------------

    def _match_spans(self, chance: random.Random) -> int:
        index, held = self._index(chance)
        envelope = Envelope("p.1", "p", 1, _NOW_US)
        taken: list[bytes] = []
        found: list[list[int]] = []
        rough: list[bytes] = []
        for number in range(SPANS):
            span = chance.choice(self._spans)
            if chance.random() < 0.75:
                span = mutated(chance, span, self._spans)
            self._note("match_span", span)
            try:
                keys = index.match_span(span, envelope)
            except ContradaError:
                rough.append(span)
                continue
            taken.append(span)
            found.append(sorted(keys))
            if number % SAMPLE == 0:
                self._compare(held, span, envelope, found[-1])
        self._note("match_spans", taken)
        offsets, keys = index.match_spans(taken, lambda _: envelope)
        for row, single in enumerate(found):
            together = sorted(keys[offsets[row] : offsets[row + 1]].tolist())
            assert together == single, f"{taken[row]!r}: {together} in a batch, else {single}"
        for at in range(0, len(rough), 4):
            self._note("match_spans", rough[at : at + 4])
            with suppress(ContradaError):
                index.match_spans(rough[at : at + 4])
        given = [attributes(chance, odd=0.01) for _ in range(SPANS // 4)]
        self._match_mappings(index, held, given)
        return SPANS + len(given)

    def _compare(
        self, held: dict[int, Any], span: bytes, envelope: Envelope, found: list[int]
    ) -> None:
        """Compares the keys with those of the filters, if the span is a valid one."""
        try:
            decode_span(span)
        except ContradaError:
            return
        notification = to_whole_notification(span, envelope)
        expected = sorted(key for key, each in held.items() if each.matches(notification))
        assert found == expected, f"{span!r}: found {found}, expected {expected}"

    def _match_mappings(
        self, index: ct.Index[int], held: dict[int, Any], given: list[dict[str, Any]]
    ) -> None:
        single: list[list[int]] = []
        taken = []
        for each in given:
            self._note("match", each)
            with suppress(ContradaError):
                single.append(sorted(index.match(each)))
                taken.append(each)
        self._note("match_batch", taken)
        offsets, keys = index.match_batch(taken)
        for row, expected in enumerate(single):
            assert sorted(keys[offsets[row] : offsets[row + 1]].tolist()) == expected, taken[row]
            if row % SAMPLE == 0:
                with suppress(ContradaError):  # The index may not ask for a wrong value.
                    whole = Notification(taken[row])
                    model = sorted(key for key, each in held.items() if each.matches(whole))
                    assert model == expected, taken[row]

    def _match_columns(self, chance: random.Random) -> int:
        """Matches tables of Arrow, whose columns may be parts of others."""
        index, held = self._index(chance)
        rows = chance.choice((1, 7, 64, ROWS, ROWS, ROWS))
        columns = {
            name: _column(chance, rows) for name in chance.sample(NAMES, chance.randrange(1, 6))
        }
        table = pa.table(columns)
        self._note("match_batch", table.to_pydict())
        try:
            offsets, keys = index.match_batch(table)
        except ContradaError:
            return rows
        for row in range(0, rows, SAMPLE):
            values = {name: column[row].as_py() for name, column in columns.items()}
            given = Notification({name: each for name, each in values.items() if each is not None})
            found = sorted(keys[offsets[row] : offsets[row + 1]].tolist())
            expected = sorted(key for key, each in held.items() if each.matches(given))
            assert found == expected, f"{values}: found {found}, expected {expected}"
        return rows

    # --- the codec --------------------------------------------------------------------------------

    def _add_filters(self, chance: random.Random) -> int:
        index, held = self._index(chance)
        for first in range(1_000, 1_000 + FILTERS, 50):
            encodings = [
                each if chance.random() < 0.5 else mutated(chance, each, self._packed_filters)
                for each in chance.choices(self._packed_filters, k=50)
            ]
            added: list[bytes] = []
            for each in encodings:
                with suppress(ContradaError):
                    found = from_msgpack(each)
                    if isinstance(found, Filter) and Filter(str(found)) == found:
                        held[first + len(added)] = found
                        added.append(each)
            self._note("add_encoded", encodings)
            with suppress(ContradaError):
                index.add_encoded(range(first + 500_000, first + 500_050), encodings)
            index.add_encoded(range(first, first + len(added)), added)
        for key in range(501_000, 501_000 + FILTERS):
            index.remove(key)
        index.validate()
        for _ in range(SAMPLE):
            span, envelope = chance.choice(self._spans), Envelope("p.1", "p", 1, _NOW_US)
            self._compare(held, span, envelope, sorted(index.match_span(span, envelope)))
        return 2 * FILTERS

    def _check_encodings(self, chance: random.Random) -> int:
        index, _ = self._index(chance)
        for number in range(BUNDLES):
            some = chance.sample(self._encodings, 8)
            mutants = [mutated(chance, each, self._encodings) for each in some]
            for each in mutants:
                self._check_entry(each, is_compared=number % SAMPLE == 0)
            if chance.random() < 0.7:  # Else it is refused, mostly at its first one.
                some[chance.randrange(8)] = mutants[0]
            else:
                some = mutants
            message = bytes(encode_publish(some))
            request = encode(Request(number, encode_publish(some), wait_ms=number))
            self._note("few_requested", request)
            assert read_few is not None
            if (few := read_few(request, 0)) is not None and number % SAMPLE == 0:
                assert few[:2] == (number, number), request
                assert [each.packed for each in few[2]] == some, request
            self._note("Bundle.of", some)
            for bundle in (Bundle.of(some), Bundle.of_message(message)):
                if bundle is not None:
                    self._check_bundle(bundle, index)
        return 16 * BUNDLES

    def _check_entry(self, data: bytes, *, is_compared: bool) -> None:
        assert plain_entries is not None
        self._note("plain_entries", data)
        entries = plain_entries([data], 0, good_names_and_marks, Notification, 512)
        if entries and is_compared:
            expected = notification_from_msgpack(data)
            assert entries[0][0].span == expected.span, data
            assert entries[0][0].envelope == expected.envelope, data
            assert repr(dict(entries[0][0])) == repr(dict(expected)), data

    def _check_bundle(self, bundle: Bundle, index: ct.Index[int]) -> None:
        expected = [notification_from_msgpack(each) for each in bundle.encodings]
        identities = [(each.envelope.publisher, each.envelope.id) for each in expected]
        assert list(bundle.identities()) == identities, bundle.encodings
        offsets, keys = index.match_batch(bundle)
        for row, each in enumerate(expected):
            found = sorted(keys[offsets[row] : offsets[row + 1]].tolist())
            assert found == sorted(index.match(each)), bundle.encodings[row]
        for part in (bundle[1:], bundle[3:5]):
            assert isinstance(part, Bundle)
            assert len(index.match_batch(part)[0]) == len(part) + 1

    def _encode_items(self, chance: random.Random) -> int:
        assert pack_plain is not None
        for number in range(ROWS):
            item: dict[Any, Any] = attributes(chance, odd=0.05)
            if chance.random() < 0.1:
                item[chance.choice(("", "@id", "\ud800", 5, "n" * 256, "é"))] = 1
            if chance.random() < 0.02:  # Near the end of the writer's room.
                item["a"] = "x" * chance.randrange(65_200, 65_540)
            self._note("pack_plain", item)
            made = pack_plain([item], 0, 1, "p.", "p", number, _NOW_US, good_names)
            if made and number % 4 == 0:
                envelope = Envelope(f"p.{number}", "p", number, _NOW_US)
                assert made == [to_msgpack(Notification(item, envelope=envelope))], item
        return ROWS

    # --- lines ------------------------------------------------------------------------------------

    def _scan_json(self, chance: random.Random) -> int:
        limits = FileLimits(fallback_share_max=1.0)
        options = ReadOptions(rename={"m": "at"}, drop=frozenset("b"), limits=limits)
        scanner = JsonScanner(AllowedNames(options), options)
        for _ in range(LINES // LINES_AT_ONCE):
            lines = [_json_line(chance) for _ in range(LINES_AT_ONCE)]
            block = _block(chance, lines)
            self._note("scan", block.data)
            asked = None if chance.random() < 0.7 else {"price", "at", "m"}
            scanned = scanner.scan(block, asked)
            if scanned is None:
                continue
            for place in range(len(scanned.names)):
                flag = chance.random() < 0.5
                scanned.plain_column(place, has_texts=flag, has_mixed=flag)
                scanned.time_column(place, has_zone=flag)
                scanned.column(place, lambda text: text or MISSING)
            if scanned.names:
                scanned.in_order()
            for row in np.flatnonzero(~scanned.is_fallback).tolist():
                line = block.numbered(row)[1]
                assert isinstance(json.loads(line), dict), line
        return LINES

    def _scan_csv(self, chance: random.Random) -> int:
        names = ("price", None, "symbol", "at", "größe", "is_open")[: chance.randrange(1, 7)]
        delimiter, quote = chance.choice((",", ";", "\t", "a")), chance.choice(('"', "'", ""))
        absent = chance.sample(("", "NA", "-", "nan", "x" * 40, "\ud800"), 3)
        types = {"price": "number", "symbol": "text", "at": "time", "größe": "number"}
        held = {name: kind for name, kind in types.items() if chance.random() < 0.6}
        options = ReadOptions(
            types=held, absent=frozenset(absent), delimiter=delimiter, quote=quote
        )
        wanted = [each for each in names if each and chance.random() < 0.7]
        reader = CsvBatchReader(names, wanted, options)
        for _ in range(LINES // LINES_AT_ONCE):
            lines = [_csv_line(chance, len(names), delimiter, quote) for _ in range(LINES_AT_ONCE)]
            block = _block(chance, lines)
            if chance.random() < 0.3:  # Rows of several lines, also where no quote is open.
                ends = [chance.random() < 0.7 for _ in range(len(block) - 1)]
                block = block.of_rows(np.array([*ends, True]))
            self._note("read", (names, options, block.data, block.ends.tolist()))
            reader.read(block)
            rows = reader.written(block)
            if rows is not None:
                sound = np.flatnonzero(~rows.is_odd).tolist()
                for row in sound[::SAMPLE]:
                    notification_from_msgpack(rows.notifications[row].as_py())
        return LINES

    # --- the writer -------------------------------------------------------------------------------

    def _write_columns(self, chance: random.Random) -> int:
        rows = chance.choice((0, 1, 7, ROWS, ROWS, ROWS))
        names = [f"m{n}" for n in range(chance.choice((0, 1, 4, 15, 16, 20)))]
        columns = [_column(chance, rows) for _ in names]
        self._note("pack_rows", (names, columns))
        pieces = pieces_of(names, columns, plain=chance.random() < 0.5)
        if pieces is not None:
            times = np.array([_NOW_US + row for row in range(rows)], dtype=np.int64)
            packed = pack_rows(rows, pieces, times if chance.random() < 0.5 else None)
            for row in range(0, rows, SAMPLE):
                notification_from_msgpack(packed.at(row))
        strings = [chance.choice((b"", b"a", b"ab" * 20, chance.randbytes(3))) for _ in range(rows)]
        blobs = blobs_of(strings)
        self._note("blobs", strings)
        numbers, firsts = blobs.codes()
        assert [strings[firsts[number]] for number in numbers.tolist()] == strings
        picked = [chance.randrange(rows) for _ in range(rows)]
        selected = blobs.select(np.array(picked, dtype=np.int64))
        assert list(selected.each()) == [strings[row] for row in picked]
        if rows:
            assert max(blobs.parts(7).tolist()) < 7
        return 2 * rows


def _column(chance: random.Random, rows: int) -> Any:
    """Returns a column of Arrow, often with NULL, often a part of a longer one."""
    before, after = chance.randrange(5), chance.randrange(3)
    size, kind = before + rows + after, chance.randrange(9)
    values: list[Any]
    if kind == 0:
        of, values = pa.string(), [chance.choice(TEXTS) for _ in range(size)]
    elif kind == 1:
        of, values = pa.large_string(), [chance.choice(TEXTS) for _ in range(size)]
    elif kind == 2:
        of, values = pa.float64(), [float(chance.choice(NUMBERS)) for _ in range(size)]
    elif kind == 3:
        of, values = pa.float32(), [chance.uniform(-9, 99) for _ in range(size)]
    elif kind == 4:
        of, values = pa.bool_(), [chance.random() < 0.5 for _ in range(size)]
    elif kind == 5:
        moments = [_NOW_US, 0, -1, 2**40, _NOW_US // 10**6 * 10**6]
        of, values = pa.timestamp("us", tz="UTC"), [chance.choice(moments) for _ in range(size)]
    elif kind == 6:
        of, values = pa.int64(), [chance.choice((INT_MIN, INT_MAX, 0, 7)) for _ in range(size)]
    else:
        of = chance.choice((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()))
        values = [chance.randrange(120) for _ in range(size)]
    if chance.random() < 0.6:
        values = [None if chance.random() < 0.2 else each for each in values]
    return pa.array(values, of).slice(before, rows)


def _block(chance: random.Random, lines: list[str]) -> Block:
    data = "\n".join(lines).encode(errors="surrogatepass" if chance.random() < 0.01 else "replace")
    return Block.of(1, data + b"\n")


def _json_line(chance: random.Random) -> str:
    """Returns a line that is mostly JSON."""
    held = {name: chosen(chance) for name in chance.sample(NAMES, chance.randrange(5))}
    if chance.random() < 0.3:  # More names than a scanner has leads for yet.
        held[f"k{chance.randrange(60)}"] = chance.randrange(10)
    if chance.random() < 0.5:
        held["at"] = chance.choice(("2026-11-20", "2026-02-29T25:00:00Z", "2026-11-20T05:00:00.5Z"))
    plain = {n: each if isinstance(each, str | int | float) else None for n, each in held.items()}
    return _changed_text(chance, json.dumps(plain, ensure_ascii=chance.random() < 0.3))


def _csv_line(chance: random.Random, cells: int, delimiter: str, quote: str) -> str:
    """Returns a row that mostly has so many cells."""
    found = []
    for _ in range(cells):
        value = chosen(chance)
        text = "2026-11-20T05:00:00Z" if isinstance(value, datetime) else str(value)
        is_quoted = bool(quote) and chance.random() < 0.3
        if is_quoted and chance.random() < 0.5:
            text = text[:3] + quote * chance.choice((1, 2, 2, 4)) + text[3:]
        found.append(f"{quote}{text}{quote}" if is_quoted else text.replace(delimiter, ""))
    return _changed_text(chance, delimiter.join(found))


def _changed_text(chance: random.Random, text: str) -> str:
    if chance.random() < 0.5:
        return text
    at = chance.randrange(len(text) + 1)
    if chance.random() < 0.3:
        return text[:at]
    more = "".join(chance.choice(SIGNS) for _ in range(chance.choice((1, 1, 2, 12))))
    return text[:at] + more + text[at + chance.randrange(3) :]


def progress(fuzz: NativeFuzz, round_number: int, used_s: float) -> str:
    """Returns a line for a person."""
    total = sum(fuzz.inputs.values())
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(fuzz.inputs.items()))
    return f"{total} inputs in {round_number} rounds, {total / used_s:.0f} per second: {kinds}"


def run(
    seed: int,
    inputs: int,
    say: Callable[[str], None],
    first: int = 0,
    before: Callable[[int], Any] = lambda _: None,
) -> None:
    """Runs rounds until so many inputs were read; `before` gets the number of each round."""
    fuzz, number, total = NativeFuzz(seed), first, 0
    began_s = said_s = time.monotonic()
    while total < inputs:
        before(number)
        total += fuzz.run_round(number)
        number += 1
        now_s = time.monotonic()
        if now_s - said_s > PROGRESS_S or total >= inputs:
            said_s = now_s
            say(progress(fuzz, number - first, now_s - began_s))
