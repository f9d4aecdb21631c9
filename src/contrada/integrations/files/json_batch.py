"""`JsonBatchReader`: reads many JSON lines at once, and converts only the attributes of filters.

`contrada.integrations.files.json_objects` defines the meaning of a line. This reader takes only
lines that msgspec decodes alike: objects of scalars, of lists of scalars and of such objects, with
integers of 64 bits. All others are fallback rows for the plain reader: also lines with an object
that is a value (see `model/algebra/nested_objects.py`), with a duplicate or invalid name, or with a
text that is not of its declared type.

A block of flat objects is decoded as one array, any other line by line. msgspec does not report
duplicate names, but then a line has more quotes than its decoded names and texts need.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from contrada.integrations.files.json_scan import NAMES_SCANNED_MAX, JsonScanner, ScannedLines
from contrada.integrations.files.lines import Block
from contrada.integrations.files.packed_records import WrittenRows, can_write, written_rows
from contrada.integrations.files.read_options import AllowedNames, ReadOptions
from contrada.integrations.files.value_columns import (
    MISSING,
    REFUSED,
    TEXTS_KEPT_MAX,
    Column,
    ColumnBatch,
    Missing,
    converter,
)
from contrada.model.algebra.attributes import ATTRIBUTES_MAX, VALUES_MAX
from contrada.model.algebra.nested_objects import is_typed
from contrada.model.domains.values import INT_MAX, INT_MIN

LEVELS_MAX: Final = 8
"""Levels of nested objects in a line of a batch. Beyond it: the plain reader reads the line."""

_BRACE: Final = ord("{")
_Scalar = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)] | float | bool | str | None
_decode_scalar: Final = msgspec.json.Decoder(_Scalar).decode


class JsonBatchReader:
    """Reads the attributes that filters name, and those that can make a line bad."""

    def __init__(self, asked: Iterable[str], options: ReadOptions, unmet: set[str]) -> None:
        """The reader removes each name that it finds from `unmet`."""
        self._unmet = unmet
        content: Any = dict[str, _Scalar | list[_Scalar]]
        for _ in range(LEVELS_MAX - 1):
            content = dict[str, _Scalar | list[_Scalar] | content]
        self._decode = msgspec.json.Decoder(content).decode
        self._decode_all = msgspec.json.Decoder(list[dict[str, _Scalar]]).decode
        self._options = options
        self._names = AllowedNames(options)
        self._filter_names = frozenset(asked)
        self._wanted = {*self._filter_names, *options.names_checked()}
        self._stamp = options.stamp
        self._texts: dict[str, Callable[[str], Any]] = {}
        self._tokens: dict[str, Callable[[str], Any]] = {}
        self._scanner: JsonScanner | None = None
        if len(options.add) < ATTRIBUTES_MAX - NAMES_SCANNED_MAX:
            self._scanner = JsonScanner(self._names, options)

    def read(self, block: Block) -> ColumnBatch:
        """Returns the records of a block."""
        scanned = self._scanner.scan(block, self._wanted) if self._scanner else None
        if scanned is not None and self._scanner is not None:
            self._unmet.difference_update(self._scanner.attributes)
            held = {
                name: self._scanned_column(scanned, place, is_asked=True)
                for place, name in enumerate(scanned.names)
            }
            fallback = scanned.is_fallback
            if self._stamp is not None and self._stamp not in held:
                fallback[:] = True
            return self._batch(fallback, np.arange(len(block)), held)
        lines, found = self._decode_block(block)
        if self._unmet:
            self._unmet.difference_update(*found)
        is_fallback = np.ones(len(block), dtype=bool)
        is_fallback[lines] = False
        columns = {}
        for name in self._wanted.intersection(chain((self._stamp,), *found)):
            values = [each.get(name, MISSING) for each in found]
            if self._text_value(name) or name == self._stamp:
                values = self._convert_values(name, values)
                if Missing in map(type, values):
                    is_fallback[lines[[value is REFUSED for value in values]]] = True
            columns[name] = Column(values)
        return self._batch(is_fallback, lines, columns)

    def _batch(self, is_fallback: Any, lines: Any, columns: dict[str, Column]) -> ColumnBatch:
        asked = {name: column for name, column in columns.items() if name in self._filter_names}
        stamps = columns.get(self._stamp or "")
        return ColumnBatch(is_fallback, ~is_fallback, lines, asked, stamps)

    def _scanned_column(self, scanned: ScannedLines, place: int, *, is_asked: bool) -> Column:
        """Returns the column of an attribute, to match or to write, as the options require."""
        name, options = scanned.names[place], self._options
        is_stamp, found = name == self._stamp, None
        if options.types.get(name) == "time" and not options.absent:
            has_zone, is_needed = options.zone is not None, is_asked and is_stamp
            found = scanned.time_column(place, has_zone=has_zone, is_needed=is_needed)
        elif not is_stamp and not options.takes_numbers(name):
            has_texts = not options.absent and options.types.get(name, "text") == "text"
            found = scanned.plain_column(place, has_texts=has_texts, has_mixed=is_asked)
        if found is None:
            return scanned.column(place, self._token_value(name), is_needed=is_asked and is_stamp)
        return found

    def attributes(
        self, block: Block, *, is_added_apart: bool = False
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields all attributes of each decodable line, with the line's position. `is_added_apart`
        excludes lines with an attribute that the options add.
        """
        lines, found = self._decode_block(block)
        names = set().union(*found)
        refused: set[int] = set()
        if is_added_apart and (added := names & self._options.add.keys()):
            refused = {row for row, each in enumerate(found) if not added.isdisjoint(each)}
        for name in names if self._options.absent else names & self._options.types.keys():
            values = [each.get(name, MISSING) for each in found]
            for row, value in enumerate(self._convert_values(name, values)):
                if value is REFUSED:
                    refused.add(row)
                elif value is not MISSING:
                    found[row][name] = value
                elif name in found[row]:
                    del found[row][name]
        for row, line in enumerate(lines.tolist()):
            if row not in refused:
                held = found[row]
                if MISSING in held.values():
                    held = {name: value for name, value in held.items() if value is not MISSING}
                yield line, held

    def written(self, block: Block) -> WrittenRows | None:
        """Returns the records of a block as notifications; None if they must be read one by one."""
        scanned = self._scanner.scan(block, None) if self._scanner else None
        if scanned is not None:
            if not can_write(scanned.names, self._options):
                return None
            found = {}
            for place in scanned.in_order():
                name = scanned.names[place]
                if name in self._options.add:  # The added value takes its place.
                    scanned.is_fallback |= scanned.has(place)
                found[name] = self._scanned_column(scanned, place, is_asked=False)
            rows = written_rows(found, len(block), self._options)
            rows.is_odd[:] |= scanned.is_fallback
            return rows
        held = dict(self.attributes(block, is_added_apart=True))
        names = dict.fromkeys(chain.from_iterable(held.values()))
        if not held or not can_write(names, self._options):
            return None
        lines = [held.get(line, {}) for line in range(len(block))]
        columns = {name: Column([each.get(name, MISSING) for each in lines]) for name in names}
        rows = written_rows(columns, len(block), self._options)
        # Attributes stay in the order of their line: columns have one order for all.
        orders = set(map(tuple, held.values()))
        good = {each for each in orders if each == tuple(name for name in names if name in each)}
        rows.is_odd[:] |= [not each or tuple(each) not in good for each in lines]
        return rows

    def _decode_block(self, block: Block) -> tuple[Any, list[dict[str, Any]]]:
        """Returns the positions of the decodable lines, and their objects."""
        lines: Any = np.arange(len(block))
        found = self._decode_flat(block)
        if found is None:
            alone = list(map(self._decode_line, block.data.split(b"\n")[:-1]))
            lines = lines[[each is not None for each in alone]]
            found = [each for each in alone if each is not None]
        return lines, found

    def _decode_flat(self, block: Block) -> list[dict[str, Any]] | None:
        """Returns the attributes of each line; None unless all lines are flat and valid. Each line
        begins with the only brace that it opens. So if the array has an object for each line, no
        object is part of another, or of a text, and each ends before the next line.
        """
        data = block.data
        begins = np.frombuffer(data, np.uint8)[np.append(0, block.ends[:-1] + 1)]
        is_flat = data.count(b"{") == len(block) and (begins == _BRACE).all()
        if not is_flat or len(data) > self._options.limits.line_chars_max:
            return None
        try:
            found = self._decode_all(b"[" + data[:-1].replace(b"\n", b",") + b"]")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        texts = _texts(chain.from_iterable(map(dict.values, found))) + sum(map(len, found))
        is_whole = len(found) == len(block) and _quotes(data) == 2 * texts
        names = set().union(*found)
        if self._options.is_renaming and is_whole:
            renamed = [each for each in map(self._rename, found) if each is not None]
            is_whole = len(renamed) == len(found)
            found, names = renamed, set().union(*renamed)
        return found if is_whole and self._names.allow(names, max(map(len, found))) else None

    def _rename(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the attributes by their new names; None if two have the same name."""
        names = [(self._options.attribute(name), value) for name, value in found.items()]
        kept = {name: value for name, value in names if name is not None}
        dropped = sum(name is None for name, _ in names)
        return kept if len(kept) + dropped == len(found) else None

    def _decode_line(self, line: bytes) -> dict[str, Any] | None:
        """Returns the attributes of a line by their dotted names; None for a fallback row."""
        try:
            found = content = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if line.count(b"{") == 1 and b"[" not in line:
            texts = len(content) + _texts(content.values())
        else:
            found = {}
            texts = _flatten(content, "", found)
        is_whole = _quotes(line) == 2 * texts and len(line) <= self._options.limits.line_chars_max
        if self._options.is_renaming:
            renamed = self._rename(found)
            if renamed is None:
                return None
            found = renamed
        return found if is_whole and self._names.allow(found, len(found)) else None

    def _text_value(self, name: str) -> Callable[[str], Any] | None:
        """Returns the converter of an attribute's texts; None if texts stay texts."""
        options = self._options
        if not options.absent and name not in options.types:
            return None
        if name not in self._texts:
            is_stamp = name == self._stamp
            is_absent = options.absent.__contains__
            self._texts[name] = converter(options.typed(name), is_absent, is_stamp=is_stamp)
        return self._texts[name]

    def _token_value(self, name: str) -> Callable[[str], Any]:
        """Returns the converter of a JSON scalar to a value, REFUSED or MISSING."""
        if name not in self._tokens:
            is_plain = self._text_value(name) is None and name != self._stamp

            @lru_cache(TEXTS_KEPT_MAX)
            def value(token: str) -> Any:
                try:
                    found = _decode_scalar(token)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    return REFUSED
                return found if is_plain else self._convert_values(name, [found])[0]

            self._tokens[name] = value
        return self._tokens[name]

    def _convert_values(self, name: str, values: list[Any]) -> list[Any]:
        text_value = self._text_value(name)
        if text_value is not None and self._options.takes_numbers(name):
            # Numbers become times here, too; lists are left to the plain reader.
            kept = (Missing, bool, type(None))
            values = [
                each if type(each) in kept else REFUSED if type(each) is list else text_value(each)
                for each in values
            ]
        elif text_value is not None and not {str, list}.isdisjoint(map(type, values)):
            values = [
                text_value(each) if type(each) is str else REFUSED if type(each) is list else each
                for each in values
            ]
        if name == self._stamp:
            values = [each if isinstance(each, datetime) else REFUSED for each in values]
        return values


def _quotes(data: bytes) -> int:
    """Returns the number of quotes around names and texts."""
    if b"\\" not in data:
        return data.count(b'"')
    return data.count(b'"') - data.replace(b"\\\\", b"").count(b'\\"')


def _texts(values: Iterable[Any]) -> int:
    return list(map(type, values)).count(str)


def _flatten(content: dict[str, Any], prefix: str, found: dict[str, Any]) -> int:
    """Adds the values of an object under their dotted names; returns the number of names and texts.
    A negative number means a duplicate name, a list too long for an attribute, or an object that is
    a value.
    """
    texts = len(content)
    for key, member in content.items():
        name = prefix + key
        if type(member) is dict:
            if is_typed(member):
                return -sys.maxsize
            texts += _flatten(member, f"{name}.", found)
            continue
        if name in found or (type(member) is list and len(member) > VALUES_MAX):
            return -sys.maxsize
        if type(member) is list:
            texts += _texts(member)
        elif type(member) is str:
            texts += 1
        found[name] = MISSING if member == [] else member
    return texts
