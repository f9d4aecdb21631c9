"""Regular expressions against Python's own, on expressions that mean the same in both."""

import re
import string
import sys
import time
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import ContradaError, InvalidFilterError
from contrada.model import ValueSet
from contrada.model.algebra import sets
from contrada.model.languages import casefold, characters, language, regex_operator, regex_syntax
from contrada.model.languages.regex_machine import Machine, utf8_spans
from contrada.model.languages.regex_operator import Matches

SECONDS_MAX = 20.0
"""Far more than any of these needs on a busy machine, far less than an explosion."""

LETTERS = "abkK\n_ é\u212a1"
pieces = st.sampled_from(
    [
        *(
            "a",
            "b",
            "k",
            "é",
            "1",
            ".",
            "[ab]",
            "[^a]",
            r"\n",
            "^",
            "$",
            r"\A",
            r"\z",
            r"\b",
            r"\B",
        ),
        *(r"\w", r"\W", r"\d", r"\s", r"\S", "[é-ü]", "[a-c_]", "(?i:k)", "(?i:[^k])", "(?m:^)"),
        *("(?m:$)", "(?s:.)", r"\x61", r"[\x{61}-\x{63}]", "[[:alpha:]]", "[]a]", "[^]a-]", "()"),
    ]
)
expressions = st.recursive(
    pieces,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{0,2}?", "{2,}"])
        ).map(lambda two: f"(?:{two[0]}){two[1]}"),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=8,
)
texts = st.text(LETTERS, max_size=7)


def in_python(expression: str) -> str:
    """The expression in Python's syntax, with our ASCII classes written out."""
    written = expression.replace("$", r"\Z").replace(r"(?m:\Z)", "(?m:$)").replace(r"\z", r"\Z")
    written = written.replace("[[:alpha:]]", "[a-zA-Z]").replace(r"[\x{61}-\x{63}]", "[a-c]")
    for ours, theirs in (
        (r"\b", r"(?:(?<![0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?![0-9A-Za-z_]))"),
        (r"\B", r"(?:(?<![0-9A-Za-z_])(?![0-9A-Za-z_])|(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_]))"),
        (r"\w", "[0-9A-Za-z_]"),
        (r"\W", "[^0-9A-Za-z_]"),
        (r"\d", "[0-9]"),
        (r"\s", r"[\t\n\f\r ]"),
        (r"\S", r"[^\t\n\f\r ]"),
    ):
        written = written.replace(ours, theirs)
    return written


@given(expressions, st.lists(texts, min_size=1, max_size=8))
@example(r"\B", ["aéa"])
@example("(?:^|b)*$", ["ab\n"])
def test_finds_what_python_finds(expression: str, values: list[str]) -> None:
    """A regular expression would match too much, or too little."""
    theirs = re.compile(in_python(expression))
    machine = Machine(regex_syntax.read(expression))
    automaton = machine.automaton()
    held = sets.matches(expression)
    for value in values:
        expected = theirs.search(value) is not None
        assert machine.finds(value.encode()) is expected
        assert automaton.accepts(value.encode()) is expected
        assert held.contains(value) is expected


@given(expressions, st.binary(max_size=6))
def test_bytes_that_are_no_text_are_one_thing_everywhere(expression: str, value: bytes) -> None:
    """The machine, its automaton and the plain form would differ on bytes that are no UTF-8."""
    machine = Machine(regex_syntax.read(expression))
    expected = machine.finds(value)
    assert machine.automaton().accepts(value) is expected
    assert sets.matches(expression).contains(value) is expected


@pytest.mark.parametrize(("expression", "found"), [("a{}", False), ("a{}+", False), ("a{}*", True)])
def test_a_class_of_nothing_is_not_the_empty_text(expression: str, found: bool) -> None:
    """A class without characters would be passed over as if it were not there."""
    held = sets.matches(expression.format(r"[^\x00-\x{10ffff}]"))
    assert held.contains("a") is found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"\xff", False),
        (b"\xc3", False),
        (b"\xed\xa0\x80", False),
        (b"\xc3\xa9", True),
        (b"", False),
    ],
)
def test_invalid_bytes_are_in_no_class(value: bytes, found: bool) -> None:
    """`.` or a negated class would take a byte that is not part of UTF-8, or a surrogate's."""
    for expression in ("(?s)^.$", "^[^a]$", r"^\W$", r"^[\x{80}-\x{10ffff}]$"):
        assert sets.matches(expression).contains(value) is found


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0x10FFFF), (0x7F, 0x80), (0x7FF, 0x10000), (0xE9, 0xFC)]
)
def test_spans_of_bytes_are_the_characters(first: int, last: int) -> None:
    """A class would have wrong characters at the edges of UTF-8's lengths."""
    spans = list(utf8_spans(first, last))
    edges = {0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF}
    near = {e + d for e in {*edges, first, last} for d in (-1, 0, 1)}
    for code in near & {*range(0xD800), *range(0xE000, 0x110000)}:
        encoded = chr(code).encode()
        held = any(
            len(encoded) == len(each)
            and all(a <= b <= c for (a, c), b in zip(each, encoded, strict=True))
            for each in spans
        )
        assert held is (first <= code <= last)


GRAPH = string.ascii_letters + string.digits + string.punctuation
CLASSES = {
    "[:alnum:]": string.ascii_letters + string.digits,
    "[:alpha:]": string.ascii_letters,
    "[:ascii:]": "".join(map(chr, range(128))),
    "[:blank:]": " \t",
    "[:cntrl:]": "".join(map(chr, [*range(32), 127])),
    "[:digit:]": string.digits,
    "[:graph:]": GRAPH,
    "[:lower:]": string.ascii_lowercase,
    "[:print:]": GRAPH + " ",
    "[:punct:]": string.punctuation,
    "[:space:]": string.whitespace,
    "[:upper:]": string.ascii_uppercase,
    "[:word:]": string.ascii_letters + string.digits + "_",
    "[:xdigit:]": string.hexdigits,
    r"\d": string.digits,
    r"\s": " \t\n\r\f",
    r"\w": string.ascii_letters + string.digits + "_",
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_named_class_has_its_characters(name: str) -> None:
    """A character beside the class would match, or the last one of the class would not."""
    one = sets.matches(f"^[{name}]$")
    assert {code for code in range(256) if one.contains(chr(code))} == set(map(ord, CLASSES[name]))


@pytest.mark.parametrize("place", [r"\b", r"\B"])
def test_places_between_characters_are_edges_of_words_or_not(place: str) -> None:
    """A control character would count as the continuation of a character of several bytes."""
    one = sets.matches(f"(?s)^.{place}.$")
    expected = re.compile(rf"(?s)\A.{place}.\Z", re.ASCII)
    for text in map("".join, product(map(chr, range(128)), "\0a!")):
        assert one.contains(text) is bool(expected.match(text))
        assert one.contains(text[::-1]) is bool(expected.match(text[::-1]))


@given(st.characters(codec="utf-8"), st.characters(codec="utf-8"))
@example("k", "\u212a")
@example("ß", "ẞ")
@example("i", "İ")
def test_without_case_is_as_the_folding_says(a: str, b: str) -> None:
    """The flag `i` would fold otherwise than `nocase`."""
    expected = casefold.fold(a.encode()) == casefold.fold(b.encode())
    for expression in (
        f"(?i)^[{re.escape(a)}]$",
        f"(?i)^\\x{{{ord(a):x}}}$",
        f"(?i)^[{re.escape(a)}]b?$",
    ):
        assert sets.matches(expression).contains(b) is expected


@pytest.mark.parametrize("letter", ["s", "S", "ſ", "k", "\u212a"])
def test_a_negated_class_without_case_is_the_negated_one(letter: str) -> None:
    """A letter would be in a class and in its negation, or in neither."""
    for inside, outside in ((r"\w", r"\W"), (r"[\w]", r"[\W]"), ("[[:word:]]", "[[:^word:]]")):
        assert sets.matches(inside, "i").contains(letter)
        assert not sets.matches(outside, "i").contains(letter)
    assert not sets.matches("[^sk]", "i").contains(letter)


@pytest.mark.parametrize(
    ("expression", "plain"),
    [
        ("abc", "contains 'abc'"),
        (".*abc.*", "contains 'abc'"),
        ("^abc", "prefix 'abc'"),
        (r"\.exe$", "suffix '.exe'"),
        ("^(a|b|c)$", "in ('a', 'b', 'c')"),
        ("^colou?r$", "in ('color', 'colour')"),
        ("(?i)abc$", "suffix nocase 'abc'"),
        ("(?i)^[ab]1$", "in nocase ('a1', 'b1')"),
        ("[Aa]b", "contains 'Ab' | contains 'ab'"),
        ("^a|b$", "prefix 'a' | suffix 'b'"),
        ("a*", ">= ''"),
        ("|a", ">= ''"),
        ("^$", "= ''"),
        (r"\Qa.b\E", "contains 'a.b'"),
    ],
)
def test_plain_expressions_get_plain_forms(expression: str, plain: str) -> None:
    """An index could not find a filter by an equality that was written as an expression."""
    held, expected = sets.matches(expression), ValueSet.parse(plain)
    assert (held.line, held.text) == (expected.line, expected.text)


def test_long_repetitions_are_expanded_no_further_than_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A filter of twenty letters would cost a second, at a broker, too."""
    made = []
    products = regex_operator._products

    def counted(parts: list[Any]) -> list[Any]:
        made.append(products(parts))
        return made[-1]

    monkeypatch.setattr(regex_operator, "_products", counted)
    assert regex_operator.plain_forms(regex_operator.tree_of(b"luc{1,999}ky")) is None
    items = sum(len(each) for found in made for each in found)
    assert items <= 2 * regex_operator.EXPANDED_MAX


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (r"(a)\1", "back-references are refused"),
        (r"(?P<x>a)(?P=x)", "back-references are refused"),
        (r"\k<x>", "back-references are refused"),
        ("(?=a)", "look-around is refused"),
        ("(?!a)", "look-around is refused"),
        ("(?<=a)", "look-around is refused"),
        ("(?<!a)", "look-around is refused"),
        ("(?>a)", "atomic groups are refused"),
        ("a*+", "possessive repetition is refused"),
        ("(?R)", "recursion is refused"),
        ("(?(1)a|b)", "conditions are refused"),
        (r"\pL", "Unicode properties are refused"),
        (r"[\p{Greek}]", "Unicode properties are refused"),
        (r"\C", r"\C is refused"),
        (r"\Z", r"\Z is refused"),
        ("(a", "a group that is not closed"),
        ("a)", "a closing parenthesis without an opening one"),
        ("[a", "a class that is not closed"),
        ("[b-a]", "a range with ends in the wrong order"),
        ("[[:nosuch:]]", "an unknown class"),
        ("*", "nothing to repeat"),
        ("a**", "a repetition of a repetition needs a group"),
        ("a{3,2}", "in the wrong order"),
        ("a{1001}", "REPEATED_MAX"),
        ("(a{100}){100}", "REPEATED_MAX"),
        ("(" * 51 + ")" * 51, "GROUPS_NESTED_MAX"),
        ("(?s:.{1000}){1}.{1000}", "MACHINE_STATES_MAX"),
        ("a" * 20_001, "PATTERN_CHARACTERS_MAX"),
        (r"\y", r"the escape \y is unknown"),
        ("a\\", "the expression ends too early"),
        (r"\x{110000}", "a character's code"),
        (r"\x{d800}", "a character's code"),
        ("(?z)", "an unknown kind of group or flag"),
    ],
)
def test_nonlinear_or_invalid_expressions_are_refused(expression: str, reason: str) -> None:
    """An expression would be read as something that it does not mean."""
    with pytest.raises(InvalidFilterError) as error:
        sets.matches(expression)
    assert reason in error.value.reason


@given(st.text(st.sampled_from("ab()[]{}|*+?^$\\.,-:<=!PQEixk1/\n"), max_size=25))
def test_any_text_is_read_or_refused(expression: str) -> None:
    """Reading an expression would raise something that nobody catches, or print another one."""
    try:
        held = sets.matches(expression)
    except ContradaError:
        return
    assert ValueSet.parse(str(held)) == held


@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.parametrize(
    "expression",
    [
        "(a*)*b",
        "(a|a)*b",
        "(a|b|ab)*c",
        "(.*)*(.*)*(.*)*x",
        "a?" * 50 + "a" * 50 + "b",
        "(?:a|b)*a(?:a|b){200}c",
        "((a{0,30}){0,30})*c",
        "[^x]{1000}x",
    ],
)
def test_no_expression_explodes(expression: str) -> None:
    """An expression that backtracks for ever elsewhere would do so here."""
    start = time.process_time()
    held = sets.matches(expression)
    assert not held.contains("a" * 20_000)
    held.issuperset(sets.contains("b"))
    assert time.process_time() - start < SECONDS_MAX


@pytest.mark.parametrize(
    ("expression", "implied"),
    [
        ("a+bcd.e", ("contains", b"bcd")),
        ("(?i)a+BCD", ("contains nocase", b"bcd")),
        ("a(?i)b.*", ("contains nocase", b"ab")),
        (r"ab\bc", ("contains", b"abc")),
        ("(ab|cd)e*", None),
        ("[ab]", None),
        ("", None),
    ],
)
def test_implied_texts_of_expressions(expression: str, implied: tuple[str, bytes] | None) -> None:
    """An index would look for something that need not be there, or for less than it could."""
    assert Matches().implied(expression.encode()) == implied


@given(expressions, texts)
def test_matches_contain_the_implied_text(expression: str, value: str) -> None:
    """An index would miss a text in which the expression finds something."""
    implied = Matches().implied(expression.encode())
    if implied is not None and Matches().apply(value.encode(), expression.encode()):
        assert language.applies(implied, value.encode())


def test_rows_are_forgotten_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine would keep all that it has seen for ever, or answer otherwise after forgetting."""
    monkeypatch.setattr("contrada.model.languages.regex_machine.ROWS_ENTRIES_MAX", 200)
    machine = Machine(regex_syntax.read("(?:a|b)*a(?:a|b){8}c"))
    text = bytes(b"ab"[n * n % 7 % 2] for n in range(3_000))
    assert not machine.finds(text)
    assert machine.finds(text + b"aaaaaaaaac")
    assert sum(map(len, machine._rows.values())) < 2_000


@pytest.mark.usefixtures("without_old_objects")
def test_an_expression_is_linear_to_apply() -> None:
    """A text ten times as long would take far more than ten times as long."""
    operator, constant = Matches(), b"(?i)(a|b)*a(a|b){6}c|x[^y]*z"
    operator.apply(b"warm", constant)

    def seconds(length: int) -> float:
        start = time.process_time()
        operator.apply(b"abbab" * (length // 5), constant)
        return time.process_time() - start

    short = min(seconds(20_000) for _ in range(5))
    assert min(seconds(200_000) for _ in range(5)) < 100 * short


def test_reading_needs_no_deep_stack() -> None:
    """An expression at the limit of nesting would end in a RecursionError far down in a program."""
    expression = "(" * 49 + "a" + ")*" * 49

    def deep(levels: int) -> bool:
        return deep(levels - 1) if levels else sets.matches(expression + "b$").contains("b")

    assert deep(sys.getrecursionlimit() // 4)


@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "(?i)" + "[^a]" * 4_990,
        "(?i)(?:" + "[^a]" * 4_990 + "){0}",
        "(?i)" + "".join(f"[!-{chr(0x11000 + n)}]" for n in range(3_900)),
    ],
)
def test_wide_classes_without_case_are_read_soon(expression: str) -> None:
    """If it failed, a short expression could keep a reader of rules busy for a minute."""
    start = time.process_time()
    regex_syntax.read(expression)
    assert time.process_time() - start < SECONDS_MAX


@given(st.lists(st.tuples(st.integers(0, 0x2200), st.integers(0, 300)), max_size=4), st.booleans())
def test_a_class_without_case_has_all_that_fold_alike(
    spans: list[tuple[int, int]], others: bool
) -> None:
    """If it failed, an expression without case would take a character too many, or too few."""
    ranges = characters.join_ranges((first, first + size) for first, size in spans)
    ranges = characters.complement(ranges) if others else ranges
    own = {code for first, last in ranges for code in range(first, min(last, 0x2C00) + 1)}
    found = characters.fold_ranges(ranges)
    for code in casefold.TABLE:
        alike = {ord(each.decode()) for each in casefold.spellings(chr(code))}
        if max(alike) <= 0x2C00:
            assert any(a <= code <= b for a, b in found) is bool(alike & own)


def places(text: bytes) -> list[int]:
    """Where characters begin and end; bytes that are none as Python's decoder takes them."""
    found, at = [0], 0
    while at < len(text):
        rest = text[at:]
        try:
            good = rest.decode()
        except UnicodeDecodeError as error:
            good = rest[: error.start].decode()
            at += 0 if good else error.end
        at += len(good[:1].encode())
        found.append(at)
    return found


PARTS = [
    b"a",
    b"\n",
    b"\xc3",
    b"\xa9",
    b"\x84",
    b"\xe2",
    b"\xed\xa0",
    b"\xf0\x90",
    b"\xf4",
    b"\xff",
]


@pytest.mark.parametrize("size", range(5))
def test_no_edge_of_a_word_is_between_characters(size: int) -> None:
    """Bytes that are no UTF-8 would hide a place, or the inside of a character would be one."""
    held, edges = sets.matches(r"\B"), sets.matches(r"\b")
    words = re.compile(rb"[0-9A-Za-z_]")
    for chosen in product(PARTS, repeat=size):
        text = b"".join(chosen)
        sides = [
            (bool(at and words.match(text[at - 1 : at])), bool(words.match(text[at : at + 1])))
            for at in places(text)
        ]
        assert held.contains(text) is any(a == b for a, b in sides), text
        assert edges.contains(text) is any(a != b for a, b in sides), text


@pytest.mark.parametrize(
    ("escape", "texts"),
    [
        (r"\0", ["\0"]),
        (r"\07", ["\7"]),
        (r"\012", ["\n"]),
        (r"\0123", ["\n3"]),
        (r"\08", ["\x008"]),
        (r"\x41", ["A"]),
        (r"\x{1f600}", ["😀"]),
        (r"\.\-\_", [".-_"]),
    ],
)
def test_escapes_are_those_of_re2(escape: str, texts: list[str]) -> None:
    """An expression would find another character than in the program that it was copied from."""
    held = sets.matches(f"^{escape}$")
    assert [text for text in (*texts, "0", "7", "012", "x41") if held.contains(text)] == texts


@pytest.mark.parametrize("escape", [r"\x{110000}", r"\x{d800}", r"\xg", r"\x4", r"\q", "(*FAIL)"])
def test_escapes_of_no_character_are_refused(escape: str) -> None:
    """They would be read as other characters."""
    with pytest.raises(InvalidFilterError):
        sets.matches(escape)
