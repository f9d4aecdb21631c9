"""Filters as programs and back; texts, sets and attributes by number, and their removal."""

import math
from array import array
from collections import ChainMap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import LimitError
from contrada.matching.filter_compiler import (
    Compiler,
    Program,
    constraints_of,
    excluded_value,
    high_key,
    low_key,
    number_key,
    pop_entries,
)
from contrada.matching.index_arrays import Arrays
from contrada.matching.kernels.schema import (
    LENGTH_MASK,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_TEXT,
    OP_TEXT_RANGE,
    USES_BYTES,
)
from contrada.matching.kernels.update import put_program
from contrada.model.codec import from_msgpack, to_msgpack
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER
from tests import strategies
from tests.matching.engines import COMPILED, module, naive, new_index

NUMBERS_ORDERED = sorted(strategies.NUMBERS[:-1])


def new_compiler() -> Compiler:
    return Compiler(Arrays())


# --- programs -----------------------------------------------------------------------------------


@given(st.lists(strategies.filters(strategies.value_sets(3)), max_size=6))
def test_a_program_says_which_filter_it_is(filters: Any) -> None:
    """`subscription` would give another filter than was added; or two filters have one program."""
    compiler = new_compiler()
    programs = compiler.programs(filters)
    by_words: dict[tuple[int, ...], ct.Filter] = {}
    for each, program in zip(filters, programs, strict=True):
        if not program.is_inexact:
            assert compiler.filter_of(program.words) == each
            known = by_words.setdefault(tuple(program.words), each)
            assert known == each
        assert compiler.program(each) == program, "what was seen before is found again"
        assert program.has_sets == any(c.op == OP_SET for c in constraints_of(program.words))


@pytest.mark.parametrize(
    ("text", "op", "is_inexact"),
    [
        ("a = 1", OP_POINT, False),
        ("a = null", OP_POINT, False),
        ("a = @2026-01-01T00:00:00Z", OP_POINT, False),
        ("a = nan", OP_POINT, False),
        ("a > 1", OP_RANGE, False),
        ("a in (true, false)", OP_RANGE, False),
        ("a >= 1 and a < 2", OP_RANGE, False),
        ("a = 'x'", OP_TEXT, False),
        ("a prefix 'x'", OP_TEXT_RANGE, False),
        ("a >= 'x'", OP_TEXT_RANGE, False),
        ("a in (1, 2)", OP_SET, False),
        ("a != 5", OP_SET, False),
        ("a absent", OP_SET, False),
        ("a contains 'x'", OP_SET, False),
        ("a = 9007199254740993", OP_RANGE, True),
        ("a > 9007199254740993", OP_RANGE, True),
        ("a < -9007199254740993", OP_RANGE, True),
        ("a in (1, 9007199254740993)", OP_SET, True),
        ("a = 9223372036854777856.0", OP_POINT, False),
    ],
)
def test_a_constraint_is_as_simple_as_it_can_be(text: str, op: int, is_inexact: bool) -> None:
    """A comparison would be kept as a set, or a wider one be taken for exact."""
    program = new_compiler().program(ct.Filter(text))
    assert [each.op for each in constraints_of(program.words)] == [op]
    assert program.is_inexact is is_inexact


def test_numbers_are_in_order_as_their_keys() -> None:
    """A range would leave out numbers inside it."""
    keys = [number_key(number)[0] for number in NUMBERS_ORDERED]
    assert keys == sorted(keys)
    assert number_key(0.0) == number_key(-0.0) == (0, True)
    exact = {n: number_key(n)[1] for n in (2**53 - 1, 2**53, -(2**53), 2.0**63, 2.0**64, math.inf)}
    assert list(exact.values()) == [True, False, False, False, True, True]


@given(strategies.ordered_numbers, strategies.ordered_numbers)
def test_the_keys_of_an_interval_hold_all_of_it(a: Any, b: Any) -> None:
    """A number at the end of a range would be outside its keys."""
    low, high = sorted((a, b))
    cuts = ct.ops.between(low, high).line
    first, _ = low_key(cuts[0])
    last, _ = high_key(NUMBER, cuts[1])
    for number in NUMBERS_ORDERED:
        if low <= number <= high:
            assert first <= number_key(number)[0] <= last


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a != 5", (4, number_key(5)[0])),
        ("a != 'x'", (6, b"x")),
        ("a != true", None),  # which is false: one value
        ("a != @1970-01-01T00:00:00Z", (5, 0)),
        ("a != 9007199254740993", None),
        ("a = 5", None),
        ("a not in (5, 6)", None),
        ("a (< 5 | > 6)", None),
        ("a none of (5)", None),
        ("a (!= 'x' & != 'y')", None),
    ],
)
def test_a_set_without_one_value_is_recognized(text: str, expected: Any) -> None:
    """A guard would turn away more than the one value that `!=` excludes."""
    assert excluded_value(ct.Filter(text).sets["a"]) == expected


# --- shared texts and sets ----------------------------------------------------------------------


def test_texts_and_sets_are_kept_once() -> None:
    """Constants that many filters share would fill the memory."""
    compiler = new_compiler()
    used = compiler._arrays.used
    text = "x" * 100
    filters = [
        ct.Filter({"a": text, "b": ct.ops.contains(text), "c": ct.ops.lt(text)}) for _ in range(5)
    ]
    compiler.programs(filters)
    assert used["texts"] == 3 + 100 + 5 * USES_BYTES
    assert used["text_slots"] == 5, "three names, two texts"
    assert used["sets_by_row"] == 1
    compiler.program(ct.Filter({"c": ct.ops.contains(text)}))
    assert used["sets_by_row"] == 2, "a set is of one attribute"
    assert compiler.text_at(compiler.text(b"")) == b""
    assert compiler.known_text(text.encode()) == compiler.text(text.encode())
    assert compiler.known_text(b"nobody's") == -1


def entered(compiler: Compiler, program: Program) -> int:
    """The number of a filter with this program."""
    arrays, words = compiler._arrays, array("q", program.words)
    number, begin = arrays.take("filters"), arrays.take("program", 1 + 2 * len(words))
    arrays.program[begin] = put_program(words, begin, arrays.memory)
    arrays.filters.begin[number] = begin
    return number


@given(st.lists(strategies.filters(strategies.value_sets(2)), max_size=8), st.data())
def test_parts_without_a_filter_are_unused(filters: Any, data: Any) -> None:
    """Memory would never be tidied up, or a renewal begin while all of it is used."""
    compiler = new_compiler()
    programs = compiler.programs(filters)
    numbers = [entered(compiler, each) for each in programs]
    of = [constraints_of(program.words) for program in programs]
    names = compiler._arrays.attrs.name

    def parts(constraints: Any) -> dict[tuple[str, int], int]:
        """The bytes of the sets, texts and names of a filter, each once."""
        sets = [each.operands[0] for each in constraints if each.op == OP_SET]
        texts = [names[each.attr] for each in constraints]
        for each in constraints:
            if each.op in (OP_TEXT, OP_TEXT_RANGE):
                texts += [ref for ref in each.operands if ref >= 0]
        found = {("set", number): 8 * compiler._set_sizes[number] for number in sets}
        return found | {("text", ref): USES_BYTES + (ref & LENGTH_MASK) for ref in texts}

    sizes = [*map(parts, of)]
    for number, each in zip(numbers, of, strict=True):
        compiler.use(number, each)
    assert compiler.bytes_unused == 0
    order, left = data.draw(st.permutations(range(len(of)))), dict(ChainMap(*sizes))
    everything = sum(left.values())
    for place, n in enumerate(order):
        compiler.disuse(numbers[n])
        left = dict(ChainMap(*(sizes[m] for m in order[place + 1 :])))
        assert compiler.bytes_unused == everything - sum(left.values())
    for number, each in zip(numbers, of, strict=True):
        compiler.use(number, each)
    assert compiler.bytes_unused == 0


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("text", ['a = nocase "xyz"', 'a suffix nocase "xyz"'])
def test_an_encoded_constant_is_folded(compiled: Any, text: str) -> None:
    """An index would miss a filter of another program, whose constant is not held folded."""
    encoding = to_msgpack(ct.Filter('a = nocase "xyz"')).replace(b"xyz", b"xYz")
    if "suffix" in text:
        encoding = encoding.replace(b"\xa8= nocase", b"\xadsuffix nocase")
    index, found = new_index(compiled), from_msgpack(encoding)
    assert isinstance(found, ct.Filter)
    assert found.matches(ct.Notification({"a": "XYZ"}))
    index.add(1, found)
    assert index.match({"a": "XyZ"}) == [1]


def test_large_constants_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """References would be cut, and lead to other texts or attributes."""
    compiling = module("filter_compiler", True)
    monkeypatch.setattr(compiling, "TEXT_BYTES_MAX", 10)
    monkeypatch.setattr(compiling.schema, "ATTRS_MAX", 3)
    compiler = new_compiler()
    compiler.program(ct.Filter({"a": "x" * 10, "b": ct.ops.suffix("y" * 10)}))
    assert compiler.bytes_unused == 0
    with pytest.raises(LimitError, match="TEXT_BYTES_MAX"):
        compiler.programs([ct.Filter({"a": "z" * 9}), ct.Filter({"a": ct.ops.suffix("y" * 11)})])
    assert compiler.bytes_unused == 9 + USES_BYTES
    compiler.program(ct.Filter({"c": 1}))
    with pytest.raises(LimitError, match="ATTRS_MAX"):
        compiler.program(ct.Filter({"d": 1}))


def test_attributes_go_on_with_their_rows() -> None:
    """The statistics of an attribute would be another's after a renewal."""
    before = new_compiler()
    before.programs([ct.Filter({name: 1}) for name in ("a", "b", "@id", "c")])
    before._arrays.attrs.seen[before.attrs["c"]] = 77
    after = Compiler(Arrays(), before)
    after.programs([ct.Filter({name: 1}) for name in ("c", "new", "b")])
    assert after.attrs == {"c": 3, "new": 4, "b": 1}
    assert after._arrays.attrs.seen[3] == 77
    assert (before.system_names, after.system_names) == (1, 0)
    after.forget_before()
    after.program(ct.Filter({"d": 1, "e": 1, "f": 1}))
    assert sorted(after.attrs.values()) == list(range(6)), "rows of names that are gone"


@given(st.lists(strategies.filters(strategies.value_sets(2)), max_size=6))
def test_a_compiler_is_the_same_after_saving(filters: Any) -> None:
    """A loaded index would keep a constant twice, or lose an operator that is unknown here."""
    compiler = new_compiler()
    programs = compiler.programs(filters)
    numbers = [entered(compiler, program) for program in programs]
    for number, program in zip(numbers, programs, strict=True):
        compiler.use(number, constraints_of(program.words))
    if programs:
        compiler.disuse(numbers[0])
    loaded = Compiler(compiler._arrays)
    loaded.restore(compiler.state(to_msgpack), from_msgpack)
    for name in ("attrs", "names", "_sets", "_wide_sets", "_set_uses", "_unused_sets"):
        assert getattr(loaded, name) == getattr(compiler, name), name
    assert loaded.bytes_unused == compiler.bytes_unused
    assert loaded.opaque_sets.keys() == compiler.opaque_sets.keys()
    assert loaded.programs(filters) == programs


def test_a_compiler_is_freed_in_pieces() -> None:
    """All sets of a large index would be freed between two updates."""
    compiler = new_compiler()
    compiler.programs(
        [ct.Filter({"a": f"text{n}", "b": ct.ops.contains(f"{n}")}) for n in range(50)]
    )
    steps = 0
    while compiler.dissolve(10):
        steps += 1
    assert steps >= 50 // 10
    table = dict.fromkeys(range(5))
    assert [
        pop_entries(table, 2),
        pop_entries(table, 2),
        pop_entries(table, 2),
        pop_entries([], 1),
    ] == [*(True, True, False, False)]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("a contains nocase 'x'", True),
        ("a contains 'x'", False),
        ("a (contains 'x' & suffix nocase 'y')", True),
        ("a matches /(?i)abc+/", True),
        ("a matches /abc+/", False),
        ("a wildcard nocase 'a*bc'", True),
        ("a = 1", False),
    ],
)
def test_attributes_that_are_compared_without_case_are_marked(text: str, marked: bool) -> None:
    """Texts would be folded for nothing, or not where a filter needs it."""
    compiler, of = new_compiler(), ct.Filter(text)
    compiler.program(of)
    assert compiler.marks_nocase(of) == ([0] if marked else [])


def test_a_cut_at_the_end_of_a_domain_has_a_key() -> None:
    """`x any number` would have no keys at its ends."""
    first, last = line.interval((NUMBER,), line.domain_end(NUMBER))
    assert low_key(first) == (number_key(-math.inf)[0], True)
    assert high_key(NUMBER, last) == (number_key(math.inf)[0], True)


# --- in an index --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "constant", [lambda n: f"{n}" * 20_000, lambda n: [n + i / 8 for i in range(2_000)]]
)
def test_constants_of_removed_filters_are_cleared(constant: Any) -> None:
    """Long texts, and sets, of one subscription that changes would fill the memory."""
    index: ct.Index[str] = ct.Index()
    sizes = []
    for number in range(300):
        index.add("k", ct.Filter({"a": constant(number)}))
        index.maintain(8)
        sizes.append(index.statistics().bytes)
    index.validate()
    assert max(sizes[150:]) <= 1.5 * max(sizes[:150])
    assert max(sizes) < 8_000_000


@pytest.mark.parametrize("compiled", COMPILED)
def test_an_exact_filter_is_not_taken_for_a_wider_one(compiled: Any) -> None:
    """A filter would count as equal to one with wider integers, in a reused place."""
    index: ct.Index[int] = new_index(compiled)
    index.add(1, ct.Filter({"a": ct.ops.ge(2**53 - 1)}))
    index.remove(1)
    index.add(2, ct.Filter({"a": ct.ops.ge(2**53)}))
    index.add(1, ct.Filter({"a": ct.ops.ge(2**53 - 1)}))
    index.validate()
    assert index.match({"a": 2**53 - 1}) == [1]
    assert sorted(index.match({"a": 2**53})) == [1, 2]


@pytest.mark.parametrize("compiled", COMPILED)
def test_numbers_between_doubles_are_different_filters(compiled: Any) -> None:
    """Identifiers of 64 bits that share a double would be one filter."""
    index: ct.Index[int] = new_index(compiled)
    base = 2**60
    by_key = {key: ct.Filter({"a": base + key}) for key in range(5)}
    by_key |= {10 + key: ct.Filter({"a": ct.ops.lt(2**53 + key - 2)}) for key in range(5)}
    by_key |= {20: ct.Filter({"a": ct.ops.ge(2**53)}), 21: ct.Filter({"a": ct.ops.ge(2**53 - 1)})}
    for key, each in by_key.items():
        index.add(key, each)
    index.renew()
    index.validate()
    for value in (*range(base - 1, base + 6), *range(2**53 - 3, 2**53 + 4)):
        notification = ct.Notification({"a": value})
        assert sorted(index.match(notification)) == naive(by_key, notification)
    index.remove(1)
    assert sorted(index.match({"a": base + 2})) == [2, 20, 21]
