"""`Compiler`: filters as programs, a few integers per constraint, and back.

A constraint of one value or one interval of one domain is in the program itself; any other set is
interned by attribute and form, and the program refers to it. A constraint that integers cannot
represent (an operator of the model alone, a number that no double equals) is widened, and the
filter is marked for evaluation on the values themselves.

Numbers become the bits of their double, as an integer in the order of doubles.
"""

import struct
from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from contrada.errors import LimitError
from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels import schema
from contrada.matching.kernels.scratch import finished, hash_of_text
from contrada.matching.kernels.text_store import count_uses, find_text
from contrada.model import Filter, ValueSet
from contrada.model.algebra.value_set import of_cuts
from contrada.model.domains import line, values
from contrada.model.domains.line import Cuts
from contrada.model.languages.atoms import implied_atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces

EXACT_MAX: Final = 2**53
TEXT_BYTES_MAX: Final = 2**24 - 1
"""Bytes of a text constant in an index. Beyond it: LimitError."""

ATOM_KINDS: Final = {
    "suffix": schema.ATOM_SUFFIX,
    "contains": schema.ATOM_CONTAINS,
    "= nocase": schema.ATOM_EQUAL_NOCASE,
    "prefix nocase": schema.ATOM_PREFIX_NOCASE,
    "suffix nocase": schema.ATOM_SUFFIX_NOCASE,
    "contains nocase": schema.ATOM_CONTAINS_NOCASE,
}

_LAST: Final = {1: 0, values.BOOL: 1, 3: 0, values.TIME: values.TIME_MAX_US}
_FIRST: Final = {1: 0, values.BOOL: 0, 3: 0, values.TIME: values.TIME_MIN_US}


class CompiledConstraint(NamedTuple):
    """One constraint of a program."""

    attr: int
    op: int
    domain: int
    operands: tuple[int, ...]


class Program(NamedTuple):
    """A filter's constraints in the form of the arrays, with further properties.

    `opaque` are the sets that need the model; the words may refer to sets and to texts.
    """

    words: list[int]
    opaque: list[int]
    is_inexact: bool
    has_sets: bool


def constraints_of(words: list[int]) -> list[CompiledConstraint]:
    """Decodes the constraints of a program in the arrays."""
    found: list[CompiledConstraint] = []
    at = 0
    while at < len(words):
        head = words[at]
        op = head >> schema.OP_SHIFT & schema.OP_MASK
        end = at + (3 if op in (schema.OP_RANGE, schema.OP_TEXT_RANGE) else 2)
        operands = tuple(words[at + 1 : end])
        found.append(
            CompiledConstraint(head & schema.ATTR_MASK, op, head >> schema.DOMAIN_SHIFT, operands)
        )
        at = end
    return found


def _sets_of(constraints: Iterable[CompiledConstraint]) -> list[int]:
    return [each.operands[0] for each in constraints if each.op == schema.OP_SET]


def pop_entries(held: dict[Any, Any] | list[Any], units: int) -> bool:
    """Removes up to `units` entries from a table; returns whether more are left."""
    take = held.popitem if isinstance(held, dict) else held.pop
    for _ in range(min(units, len(held))):
        take()
    return bool(held)


class Compiler:
    """Attributes, texts and sets by number; they are shared by all filters of an index."""

    def __init__(self, arrays: Arrays, before: "Compiler | None" = None) -> None:
        """With a former compiler, attributes get the same rows, as they are needed."""
        self._arrays = arrays
        self._before = before
        self._free_rows: list[int] = []
        self.attrs: dict[str, int] = {}
        self.system_names = 0
        self._sets: dict[tuple[int, Hashable], int] = {}
        self._wide_sets: set[int] = set()
        self._set_sizes: list[int] = []  # words, those of their texts included
        self._set_uses: dict[int, int] = {}
        self._unused_sets: set[int] = set()
        self.bytes_unused = 0
        self.set_values: list[ValueSet] = []
        self.opaque_sets: dict[int, ValueSet] = {}
        self.names: list[str] = []
        if before is not None:
            self._take_rows(len(before.names))

    def programs(self, members: Iterable[Filter]) -> list[Program]:
        """Returns the programs of filters. After a LimitError the stored parts count as unused."""
        used = self._arrays.used
        texts, sets = used["texts"], used["sets"]
        try:
            return [self.program(member) for member in members]
        except LimitError:
            self.bytes_unused += used["texts"] - texts + 8 * (used["sets"] - sets)
            raise

    def program(self, of: Filter) -> Program:
        """Returns the filter's program. Cost: linear; known sets are reused."""
        words: list[int] = []
        opaque: list[int] = []
        inexact = sets = False
        for name, value_set in of.sides.items():
            attr = self.attrs.get(name, -1)
            if attr < 0:
                attr = self.attr(name)
            wide = None
            if value_set.text is None:
                cuts = value_set.line
                if cuts and cuts[0][0] == values.TEXT and len(cuts) <= 2:
                    wide = self._put_text_interval(attr, cuts, words)
                else:
                    wide = _put_interval(attr, cuts, words)
            if wide is None:
                sets = True
                number, wide = self._set_number(attr, value_set)
                words += (attr | schema.OP_SET << schema.OP_SHIFT, number)
                if number in self.opaque_sets:
                    opaque.append(number)
            inexact = inexact or wide
        return Program(words, opaque, inexact, sets)

    def state(self, packed: Callable[[Any], bytes]) -> dict[str, Any]:
        """Returns the state outside the arrays, for `index_file`."""
        return {
            "names": self.names,
            "sets": [packed(value_set) for value_set in self.set_values],
            "opaque": sorted(self.opaque_sets),
            "wide": sorted(self._wide_sets),
            "set_sizes": self._set_sizes,
            "set_uses": list(self._set_uses.items()),
            "unused_sets": sorted(self._unused_sets),
            "bytes_unused": self.bytes_unused,
        }

    def restore(self, state: dict[str, Any], unpacked: Callable[[bytes], Any]) -> None:
        """Restores a saved state; the arrays are restored already."""
        self.names = list(state["names"])
        self.attrs = {name: row for row, name in enumerate(self.names) if name}
        self.system_names = sum(map(values.is_system_name, self.attrs))
        self.forget_before()
        self.set_values = [unpacked(each) for each in state["sets"]]
        attrs = self._arrays.sets_by_row.attr[: len(self.set_values)].tolist()
        self._sets = {
            (attr, each.form()): number
            for number, (attr, each) in enumerate(zip(attrs, self.set_values, strict=True))
        }
        self.opaque_sets = {number: self.set_values[number] for number in state["opaque"]}
        self._wide_sets = set(state["wide"])
        self._set_sizes = list(state["set_sizes"])
        self._set_uses = dict(state["set_uses"])
        self._unused_sets = set(state["unused_sets"])
        self.bytes_unused = state["bytes_unused"]

    def filter_of(self, words: list[int]) -> Filter:
        """Returns the filter of a program; not for one with widened numbers."""
        return Filter.of_sets(
            {
                self.names[attr]: self._value_set(op, domain, operands)
                for attr, op, domain, operands in constraints_of(words)
            }
        )

    def _value_set(self, op: int, tag: int, operands: tuple[int, ...]) -> ValueSet:
        if op == schema.OP_SET:
            return self.set_values[operands[0]]
        if op == schema.OP_TEXT:
            return of_cuts(line.point((values.TEXT, self.text_at(operands[0]))))
        if op == schema.OP_TEXT_RANGE:
            start = line.cut_before((values.TEXT, self.text_at(operands[0])))
            before = operands[1]
            end = None if before < 0 else line.cut_before((values.TEXT, self.text_at(before)))
            return of_cuts(line.interval(start, end))
        low, high = _key_at(tag, operands[0]), _key_at(tag, operands[-1])
        return of_cuts(line.interval(line.cut_before(low), line.cut_after(high)))

    def text_at(self, ref: int) -> bytes:
        """Returns the text of a reference."""
        at = ref >> schema.TEXT_SHIFT
        return self._arrays.texts[at : at + (ref & TEXT_BYTES_MAX)].tobytes()  # type: ignore[no-any-return]

    def attr(self, name: str) -> int:
        """Returns the row of an attribute, made if it is missing."""
        row = self.attrs.get(name)
        if row is None:
            row = self._row_for(name)
            arrays = self._arrays
            ref, sketch = self.text(name.encode()), arrays.new_sketch()
            attrs = arrays.attrs
            attrs.name[row], attrs.sketch[row] = ref, sketch
            attrs.tree[row] = attrs.presence[row] = attrs.cuts[row] = -1
            self.attrs[name] = row
            self.names[row] = name
            self.system_names += values.is_system_name(name)
            if self._before is not None and name in self._before.attrs:
                seen = self._before._arrays.attrs.seen[row]
                self._arrays.attrs.seen[row] = seen
            self._arrays.enter_name(row, len(self.attrs))
        return row

    def forget_before(self) -> None:
        """Forgets the former compiler, and frees the rows that it alone needed."""
        self._before = None
        self._free_rows = [row for row, name in enumerate(self.names) if not name]

    def _row_for(self, name: str) -> int:
        row = -1 if self._before is None else self._before.attrs.get(name, -1)
        if row < 0:
            row = self._free_rows.pop() if self._free_rows else len(self.names)
        if row >= len(self.names):
            self._take_rows(row + 1 - len(self.names))
        return row

    def _take_rows(self, count: int) -> None:
        if len(self.names) + count > schema.ATTRS_MAX:
            raise LimitError("ATTRS_MAX", schema.ATTRS_MAX)
        self._arrays.take("attrs", count)
        self.names += [""] * count

    def use(self, number: int, constraints: Sequence[CompiledConstraint]) -> None:
        """Counts one more filter with its names, texts and sets."""
        self.bytes_unused += count_uses(number, 1, self._arrays.memory)
        for each in _sets_of(constraints) if constraints else ():
            self._set_uses[each] = self._set_uses.get(each, 0) + 1
            if each in self._unused_sets:
                self._unused_sets.remove(each)
                self.bytes_unused -= 8 * self._set_sizes[each]

    def disuse(self, number: int) -> None:
        """Counts one filter less; names, texts and sets of none are unused."""
        self.bytes_unused += count_uses(number, -1, self._arrays.memory)
        if not self._set_uses:  # To decode a program takes longer than the rest.
            return
        for each in _sets_of(constraints_of(self._arrays.words_of(number))):
            self._set_uses[each] -= 1
            if not self._set_uses[each]:
                del self._set_uses[each]
                self._unused_sets.add(each)
                self.bytes_unused += 8 * self._set_sizes[each]

    def dissolve(self, units: int) -> bool:
        """Frees up to `units` entries; returns whether more are left. No other call may follow."""
        held: tuple[dict[Any, Any], ...] = (
            self._sets, self._set_uses, self.opaque_sets, self.attrs
        )  # fmt: skip
        return any(pop_entries(each, units) for each in held) or pop_entries(self.set_values, units)

    def text(self, text: bytes) -> int:
        """Returns the reference to a text, stored once."""
        if len(text) > TEXT_BYTES_MAX:
            raise LimitError("TEXT_BYTES_MAX", TEXT_BYTES_MAX, len(text))
        known = self.known_text(text)
        return known if known >= 0 else self._arrays.put_text(text)

    def known_text(self, text: bytes) -> int:
        """Returns the reference to a text that some filter names, or -1."""
        return int(find_text(text, self._arrays.memory))

    def _put_text_interval(self, attr: int, cuts: Cuts, words: list[int]) -> bool:
        """Appends the constraint of one interval of texts; returns that it is exact."""
        first = _text_of(cuts[0])
        end = cuts[1] if len(cuts) == 2 else None
        text = self.text(first)
        if end is not None and _text_of(end) == first + b"\0":
            words += (
                attr | schema.OP_TEXT << schema.OP_SHIFT | values.TEXT << schema.DOMAIN_SHIFT,
                text,
            )
        else:
            before = -1 if end is None else self.text(_text_of(end))
            words += (
                attr | schema.OP_TEXT_RANGE << schema.OP_SHIFT | values.TEXT << schema.DOMAIN_SHIFT,
                text,
                before,
            )
        return False

    def _set_number(self, attr: int, value_set: ValueSet) -> tuple[int, bool]:
        """Returns the row of a set on an attribute, and whether its intervals are wider."""
        form = (attr, value_set.form())
        number = self._sets.get(form)
        if number is not None:
            return number, number in self._wide_sets
        texts = self._arrays.used["texts"]
        words, inexact, opaque = self._set_words(value_set)
        texts = (self._arrays.used["texts"] - texts) // 8
        number = self._arrays.take("sets_by_row")
        at = self._arrays.take("sets", len(words))
        self._arrays.sets[at : at + len(words)] = array("q", words)
        guard = _set_guard(self._arrays.seed[0], attr, number, value_set)
        self._arrays.of["sets_by_row"].part(number, number + 1)[:] = array("q", (at, attr, *guard))
        self._sets[form] = number
        self._set_sizes.append(len(words) + texts)
        self.set_values.append(value_set)
        if opaque:
            self.opaque_sets[number] = value_set
        if inexact:
            self._wide_sets.add(number)
        return number, inexact

    def _set_words(self, value_set: ValueSet) -> tuple[list[int], bool, bool]:
        cuts, text = value_set.parts()
        flags = schema.SET_ABSENT if value_set.line and value_set.holds(values.ABSENT_KEY) else 0
        intervals, inexact = _intervals(cuts)
        expression: list[int] = []
        opaque = False
        if text != Pieces(line.EMPTY):
            opaque = self._expression(text, expression)
            depth = len(expression)
            self._arrays.reserve("stack", depth + 1)
        if isinstance(text, Pieces) and None not in map(line.single, line.pieces(text.cuts)):
            flags |= schema.SET_TEXTS
        words = [flags, len(intervals), *(w for each in intervals for w in each)]
        return [*words, len(expression), *expression], inexact, opaque

    def _expression(self, of: Language, words: list[int]) -> bool:
        """Appends a text expression in postfix form; returns whether an atom needs the model."""
        if isinstance(of, Pieces):
            pieces = list(line.pieces(of.cuts))
            words += (schema.X_PIECES, len(pieces))
            for start, end in pieces:
                before = -1 if end is None else self.text(_text_of(end))
                words += (self.text(_text_of(start)), before)
            return False
        if isinstance(of, Literal):
            kind = ATOM_KINDS.get(of.atom.operator)
            if kind is None:
                words.append(schema.X_MAYBE)
            else:
                # Constants are held folded, but an encoding may have others.
                constant = of.atom.constant
                is_folded = of.atom.operator.endswith(" nocase")
                words += (schema.X_ATOM, kind, self.text(fold(constant) if is_folded else constant))
            if not of.positive:
                words.append(schema.X_NOT)
            return kind is None
        opaque = [self._expression(part, words) for part in of.parts]
        words += (schema.X_EVERY if isinstance(of, Every) else schema.X_SOME, len(of.parts))
        return any(opaque)

    def marks_nocase(self, of: Filter) -> list[int]:
        """Returns the attributes that the filter compares without case."""
        return [
            self.attrs[name]
            for name, value_set in of.sets.items()
            if value_set.text is not None and _has_nocase(value_set.text)
        ]


_INT_END: Final = 2**63
_UNSIGNED: Final = 0x7FFFFFFFFFFFFFFF
_DOUBLE: Final = memoryview(bytearray(8)).cast("d")
_BITS: Final = memoryview(_DOUBLE.obj).cast("q")
"""The same eight bytes as a double and as an integer: faster than packing and unpacking."""


def number_key(number: int | float) -> tuple[int, bool]:
    """Returns a number's key, and whether its neighbours are doubles.

    Between 2^53 and 2^63 there are integers between the doubles.
    """
    _DOUBLE[0] = number
    bits = _BITS[0]
    if bits >= 0:
        return bits, number < EXACT_MAX or number > _INT_END
    return -(bits & _UNSIGNED), number > -EXACT_MAX or number < -_INT_END


def _put_interval(attr: int, cuts: Cuts, words: list[int]) -> bool | None:
    """Appends the constraint of one interval of one domain except text; None for other sets.

    Returns whether the constraint is wider than the set.
    """
    if len(cuts) != 2:
        return None
    start, end = cuts
    tag = start[0]
    if tag == values.ABSENT or (end[0] != tag and end != (tag + 1,)):
        return None
    first: Any = start[-1]
    after: Any = end[-1]
    is_exact = tag == values.NUMBER and len(start) == len(end) == 2
    if is_exact and first > -EXACT_MAX and after < EXACT_MAX:
        _DOUBLE[0] = first  # As `low_key` and `high_key`, but faster: nearly all are these.
        low = _BITS[0]
        low = low if low >= 0 else -(low & _UNSIGNED)
        _DOUBLE[0] = after
        high = _BITS[0]
        high = (high if high >= 0 else -(high & _UNSIGNED)) - 1
    else:
        low, low_exact = low_key(start)
        high, high_exact = high_key(tag, end)
        is_exact = low_exact and high_exact
    if low == high:
        words += (attr | schema.OP_POINT << schema.OP_SHIFT | tag << schema.DOMAIN_SHIFT, low)
    else:
        words += (attr | schema.OP_RANGE << schema.OP_SHIFT | tag << schema.DOMAIN_SHIFT, low, high)
    return not is_exact


def _key_at(tag: int, comparable: int) -> values.Key:
    if tag == values.BOOL:
        return (tag, bool(comparable))
    if tag != values.NUMBER:
        return (tag, comparable)
    bits = comparable if comparable >= 0 else -comparable | -(2**63)
    return (tag, values.plain_number(struct.unpack("<d", struct.pack("<q", bits))[0]))


def low_key(cut: line.Cut) -> tuple[int, bool]:
    """Returns the key of the first value after a cut; one lower if no double equals it."""
    domain, comparable = line.first_key(cut)
    if domain != values.NUMBER:
        return (_FIRST.get(domain, 0) if len(cut) == 1 else int(comparable)), True
    assert isinstance(comparable, int | float)
    key, exact = number_key(comparable)
    return (key, True) if exact else (key - 1, False)


def high_key(tag: int, end: line.Cut) -> tuple[int, bool]:
    """Returns the key of the last value before a cut of a domain; one higher if it is no double."""
    if len(end) == 1:
        return (number_key(float("inf"))[0], True) if tag == values.NUMBER else (_LAST[tag], True)
    comparable = end[1]
    if tag != values.NUMBER:
        return int(comparable) - 1, True
    assert isinstance(comparable, int | float)
    key, exact = number_key(comparable)
    return (key - 1, True) if exact else (key + 1, False)


def _intervals(cuts: Cuts) -> tuple[list[tuple[int, int, int]], bool]:
    """Returns the intervals outside text, by domain; and whether some are wider."""
    found: list[tuple[int, int, int]] = []
    inexact = False
    for start, end in line.pieces(cuts):
        last = values.TEXT if end is None else end[0]
        for tag in range(max(start[0], 1), min(last, values.TIME) + 1):
            inside = line.intersection((start,) if end is None else (start, end), _domain(tag))
            if inside:
                low, low_exact = low_key(inside[0])
                high, high_exact = high_key(tag, inside[1])
                inexact = inexact or not (low_exact and high_exact)
                found.append((tag, low, high))
    return found, inexact


def excluded_value(value_set: ValueSet) -> tuple[int, int | bytes] | None:
    """Returns (domain, key or text) of the only value that a domain lacks, NaN apart; or None."""
    cuts = value_set.line
    if value_set.text is not None or len(cuts) not in (3, 4) or len(cuts[1]) == 1:
        return None
    tag = cuts[1][0]
    starts = ((values.NAN,), (values.NUMBER,)) if tag == values.NUMBER else ((tag,),)
    ends = () if tag == values.TEXT else ((tag + 1,),)
    value = line.first_key(cuts[1])
    if cuts[0] not in starts or cuts[2] != line.cut_after(value) or cuts[3:] != ends:
        return None
    if tag == values.TEXT:
        return tag, value[1]  # type: ignore[return-value]
    (low, low_exact), (high, high_exact) = low_key(cuts[1]), high_key(tag, cuts[2])
    return (tag, low) if low_exact and high_exact and low == high else None


def _set_guard(seed: int, attr: int, number: int, value_set: ValueSet) -> tuple[int, int, int]:
    """Returns a set as a guard: of `!=` the excluded value, else the set by its number."""
    excluded = excluded_value(value_set)
    if excluded is None:
        return schema.GUARD_SET << schema.GUARD_KIND_SHIFT, number, 0
    domain, value = excluded
    if isinstance(value, bytes):
        kind, low = schema.GUARD_OTHER_TEXT, int(finished(hash_of_text(seed, value)))
    else:
        kind, low = schema.GUARD_OTHER, value >> 32
    asked = attr | domain << schema.GUARD_DOMAIN_SHIFT | kind << schema.GUARD_KIND_SHIFT
    return asked, low, low


def _domain(tag: int) -> Cuts:
    return ((tag,), (tag + 1,))


def _text_of(cut: line.Cut) -> bytes:
    return cut[1] if len(cut) == 2 else b""  # type: ignore[return-value]


def _has_nocase(of: Language) -> bool:
    """Whether folded text is looked up or compared, also by an implied operator."""
    if isinstance(of, Literal):
        atom = of.atom if of.atom.operator in ATOM_KINDS else implied_atom(of.atom)
        return atom is not None and atom.operator.endswith(" nocase")
    return not isinstance(of, Pieces) and any(map(_has_nocase, of.parts))
