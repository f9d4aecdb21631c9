"""Are the decisions exact? Compares the model with plain Python over enumerated universes.

Every `no` of covers and every `yes` of meets must name a witness, which the definitions below
confirm. Every `yes` of covers and every `no` of meets is tried against a universe: all strings
over three letters up to a length, every constant with its neighbours, a point in every gap. The
three letters are a, b and A: for operators that look at case they are three letters, for `nocase`
two are one. `meaning` defines the operators with nothing but Python's comparisons and methods of
bytes and str, and shares no code with the model.

`python -m tests.model.exactness [COUNT] [FIRST]` runs everything, or some pieces of it, on two
processes and prints counts; the tests run a sample of it.
"""

import ipaddress
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, reduce
from itertools import pairwise, product, zip_longest
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import contrada.model.extensions  # noqa: F401  registers the operators on bit sets
from contrada.model import Filter, FilterSet, Notification, ValueSet
from contrada.model.algebra import relations, sets
from contrada.model.domains.values import key_of, value_of
from contrada.model.languages import decision

LETTERS: Final = "abA"
STRING_LENGTH_MAX: Final = 7
CONSTANT_LENGTH_MAX: Final = 3
SINGLE_PAIRS_SHOWN: Final = 20
PIECES: Final = 100
"""Pieces that have all pairs of single constraints between them."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Absent:
    """The attribute is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


# --- the meaning of the operators, in plain Python ----------------------------------------------


def kind(value: object) -> str:
    """The domain of a value; every int and float, NaN too, is a number."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str | bytes):
        return "text"
    return type(value).__name__


def raw(value: object) -> Any:
    """The form that Python compares: text as bytes."""
    return value.encode() if isinstance(value, str) else value


def same(value: object, constant: object) -> bool:
    """Equal and of one domain; NaN is itself."""
    if kind(value) != kind(constant):
        return False
    a, b = raw(value), raw(constant)
    return bool(a == b) or (a != a and b != b)


def folded(value: object) -> str:
    """Characters folded one by one, as Unicode's statuses C and S do; other bytes stay."""
    text = value if isinstance(value, str) else raw(value).decode("utf-8", "surrogateescape")

    def fold(character: str) -> str:
        if len(character.casefold()) == 1:
            return character.casefold()
        return character.lower() if len(character.lower()) == 1 else character

    return "".join(map(fold, text))


def meaning(operator: str, constants: Sequence[object], value: object) -> bool:
    """Whether a value, or `ABSENT`, satisfies an operator with its constants."""
    if operator == "any":
        return value is not ABSENT
    if operator == "absent":
        return value is ABSENT
    if operator == "any but":
        return value is not ABSENT and not any(same(value, each) for each in constants)
    if operator == "none of":
        return not any(same(value, each) for each in constants)
    if operator in ("!=", "not in"):
        if {kind(each) for each in constants} == {"NoneType"}:
            return value is not ABSENT and value is not None
        return kind(value) in map(kind, constants) and not any(same(value, c) for c in constants)
    if operator in ("=", "in"):
        return any(same(value, each) for each in constants)
    if operator.startswith("not "):
        return kind(value) == "text" and not meaning(operator[4:], constants, value)
    if kind(value) != kind(constants[0]):
        return False
    if operator in TEXTUAL:
        return TEXTUAL[operator](value, constants[0])
    if operator == "between":
        return bool(raw(constants[0]) <= raw(value) <= raw(constants[1]))
    return bool(ORDERED[operator](raw(value), raw(constants[0])))


ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda value, constant: value < constant,
    "<=": lambda value, constant: value <= constant,
    ">": lambda value, constant: value > constant,
    ">=": lambda value, constant: value >= constant,
}


def bit_pairs(value: object, constant: object) -> Iterator[tuple[int, int]]:
    """Byte by byte, the shorter text extended with zeros."""
    return zip_longest(raw(value), raw(constant), fillvalue=0)


CHARACTER: Final = r"[^\udc80-\udcff]"
"""A character in Python's expressions, with surrogates for bytes that are not UTF-8."""

EXPRESSIONS: Final = {
    "a.*b$": rf"a(?:(?!\n){CHARACTER})*b\Z",
    "^(?:ab|ba)+": r"^(?:ab|ba)+",
    "(?i)^[^a]+$": r"^[^aA\udc80-\udcff]+\Z",
    r"\ba{1,2}\b": r"(?<![0-9A-Za-z_])a{1,2}(?![0-9A-Za-z_])",
    "(?s)^.?k": f"^{CHARACTER}?k",
    "A|b.$": rf"A|b(?:(?!\n){CHARACTER})\Z",
}
"""Regular expressions of ours, and the same in Python."""


def finds(value: object, expression: str) -> bool:
    """Whether a regular expression finds something in a value."""
    text = raw(value).decode("utf-8", "surrogateescape")
    return re.search(EXPRESSIONS[expression], text) is not None


def has_shape(value: str, shape: str) -> bool:
    """Whether a text has the shape of a wildcard; bytes that are no UTF-8 are surrogates."""
    parts = {"*": "(?s:.*)", "?": CHARACTER}
    expression = "".join(parts.get(each, re.escape(each)) for each in shape)
    return re.fullmatch(expression, value) is not None


def is_address(value: object, network: str) -> bool:
    """Whether a text is an address of a network, mapped IPv4 being IPv4."""
    try:
        address = ipaddress.ip_address(raw(value).decode("ascii"))
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address) in ipaddress.ip_network(network)


TEXTUAL: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "prefix": lambda value, constant: raw(value).startswith(raw(constant)),
    "suffix": lambda value, constant: raw(value).endswith(raw(constant)),
    "contains": lambda value, constant: raw(constant) in raw(value),
    "= nocase": lambda value, constant: folded(value) == folded(constant),
    "prefix nocase": lambda value, constant: folded(value).startswith(folded(constant)),
    "suffix nocase": lambda value, constant: folded(value).endswith(folded(constant)),
    "contains nocase": lambda value, constant: folded(constant) in folded(value),
    "matches": finds,
    "wildcard": lambda value, constant: has_shape(
        raw(value).decode("utf-8", "surrogateescape"), constant
    ),
    "wildcard nocase": lambda value, constant: has_shape(folded(value), folded(constant)),
    "cidr": is_address,
    "set<=": lambda value, constant: all(v & ~c == 0 for v, c in bit_pairs(value, constant)),
    "set>=": lambda value, constant: all(c & ~v == 0 for v, c in bit_pairs(value, constant)),
    "set~": lambda value, constant: any(v & c for v, c in bit_pairs(value, constant)),
}


# --- constants and universe ---------------------------------------------------------------------

NUMBERS: Final[tuple[int | float, ...]] = (
    *(0, 1, -1, 0.5, 5e-324, -5e-324, sys.float_info.min, 1.0000000000000002),
    *(2**53 - 1, 2**53, 2**53 + 1, float(2**53 + 2), -(2**53), -(2**53) - 1),
    *(2**63 - 1, 2**63 - 2, float(2**63), -(2**63), -(2**63) + 1, -(2.0**63) * 1.5),
    *(sys.float_info.max, -sys.float_info.max, math.inf, -math.inf),
)
ODD_TEXTS: Final[tuple[str | bytes, ...]] = (
    *("k", "K", "\u212a", "s", "ſ", "ß", "ẞ", "i", "İ", "ı", "σ", "ς", "Σ", "\U0010ffff"),
    *(b"\xff", b"\xff\xff", b"a\xff", b"\xfe", b"\xc5", b"\xe2\x84", "a\0", "b\0"),
    *("\0", "\1", "\3", "\0\1", "\1\0\2", "`"),
)
SHAPES: Final = ("a*b", "?", "*a?b*", "?*A", "*a*b*", "k?*", "**", "a*")
NETWORKS: Final = ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "2001:db8::/32", "::/95")
ADDRESSES: Final = (
    *("10.1.2.3", "10.200.0.1", "010.1.2.3", "10.1.2.3 ", "::ffff:10.1.2.3", "::FFFF:a01:203"),
    *("::1", "2001:db8::", "2001:0DB8:0:0::10.1.2.3", "2001:db9::", "fe80::1", "::a01:203"),
)
TIMES: Final = (
    EPOCH,
    EPOCH + timedelta(microseconds=1),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)


def strings(length_max: int) -> Iterator[str]:
    """All strings over the three letters, the shortest first."""
    for length in range(length_max + 1):
        yield from map("".join, product(LETTERS, repeat=length))


CONSTANT_TEXTS: Final = tuple(strings(CONSTANT_LENGTH_MAX))


def near_number(number: int | float) -> Iterator[int | float]:
    """A number with its neighbours in int64 and double."""
    yield number
    for towards in (-math.inf, math.inf):
        yield math.nextafter(float(number), towards)
    if abs(number) <= 2**63:
        yield from (n for n in (int(number) - 1, int(number) + 1) if -(2**63) <= n < 2**63)


def gaps(numbers: Iterable[int | float]) -> Iterator[int | float]:
    """A point between every two neighbours that leave room."""
    for low, high in pairwise(sorted(numbers)):
        middle = low / 2 + high / 2 if math.isfinite(low) and math.isfinite(high) else 0.0
        if low < middle < high:
            yield middle


def near_text(text: str | bytes) -> Iterator[bytes]:
    """A text with its neighbours in the order, and extensions of its beginning."""
    at = raw(text)
    yield from (at, at + b"\0", at + b"\xff", at[:-1])
    if at and at[-1] < 255:
        yield at[:-1] + bytes((at[-1] + 1,))
    if at and at[-1] > 0:
        yield from (at[:-1] + bytes((at[-1] - 1,)), at[:-1] + bytes((at[-1] - 1,)) + b"\xff")


def universe() -> list[object]:
    """The values that every answer is tried against, absent among them."""
    numbers = [near for number in NUMBERS for near in near_number(number)]
    texts = dict.fromkeys(raw(text) for text in (*strings(STRING_LENGTH_MAX), *ADDRESSES))
    for constant in (*CONSTANT_TEXTS, *ODD_TEXTS):
        texts |= dict.fromkeys(near_text(constant))
    for first, second in product(ODD_TEXTS, ("a", b"\xff", "k", "")):
        texts |= dict.fromkeys((raw(first) + raw(second), raw(second) + raw(first)))
    times = {time for at in TIMES for time in (at, *_beside(at))}
    return [ABSENT, None, False, True, math.nan, *numbers, *gaps(numbers), *times, *texts]


def _beside(at: datetime) -> Iterator[datetime]:
    for step in (-1, 1):
        try:
            yield at + timedelta(microseconds=step)
        except OverflowError:
            continue


UNIVERSE: Final = universe()


# --- constraints, with their values of the universe ---------------------------------------------


@dataclass(eq=False)
class Term:
    """One constraint: in the model, and by its definition on the universe."""

    operator: str
    constants: tuple[Any, ...]
    value_set: ValueSet

    @cached_property
    def bits(self) -> int:
        """One bit for each value of the universe."""
        held = (1 << place for place, value in enumerate(UNIVERSE) if self.holds(value))
        return reduce(int.__or__, held, 0)

    def holds(self, value: object) -> bool:
        """By definition."""
        return meaning(self.operator, self.constants, value)

    def __repr__(self) -> str:
        return f"{self.operator} {', '.join(map(repr, self.constants))}"


def built(operator: str, constants: Sequence[Any]) -> ValueSet:
    """The model's set of an operator."""
    if operator.startswith("not ") and operator != "not in":
        return sets.text_not(built(operator[4:], constants))
    if operator.endswith(" nocase"):
        return sets.OPERATORS[operator.removesuffix(" nocase")](*constants, nocase=True)
    return sets.of_operator(operator, constants)


def term(operator: str, *constants: Any) -> Term:
    """A constraint, built both ways."""
    return Term(operator, constants, built(operator, constants))


def text_terms(constants: Iterable[str | bytes]) -> Iterator[Term]:
    """Every operator that takes text, with every constant."""
    for constant in constants:
        for operator in ("=", "!=", *ORDERED, "prefix", "suffix", "contains"):
            yield term(operator, constant)
        for operator in ("set<=", "set>=", "set~"):
            yield term(operator, constant)
        for operator in ("prefix", "suffix", "contains", "set<=", "set>=", "set~"):
            yield term(f"not {operator}", constant)
        if isinstance(constant, str):
            for operator in ("= nocase", "prefix nocase", "suffix nocase", "contains nocase"):
                yield term(operator, constant)
                yield term(f"not {operator}", constant)


def shape_terms() -> Iterator[Term]:
    """Regular expressions, wildcards and networks, and single addresses beside these."""
    for operator, constants in (
        ("matches", EXPRESSIONS),
        ("wildcard", SHAPES),
        ("wildcard nocase", SHAPES),
        ("cidr", NETWORKS),
    ):
        for constant in constants:
            yield term(operator, constant)
            yield term(f"not {operator}", constant)
    yield from (term("=", address) for address in ADDRESSES)


def other_terms() -> Iterator[Term]:
    """The operators over numbers and over the small domains."""
    for constant in (*NUMBERS, *TIMES, False, True):
        for operator in ("=", "!=", *ORDERED):
            yield term(operator, constant)
    for odd in (None, math.nan):
        yield term("=", odd)
        yield term("!=", odd)
    for low, high in (
        (0, 1),
        (2**53, 2**53 + 1),
        (-math.inf, 0),
        (1, 0),
        ("a", "ab"),
        ("", b"\xff"),
    ):
        yield term("between", low, high)
    for some in ((None, 0, "a"), (True, math.nan), ("a", "b", ""), (0, 5e-324, 1)):
        for operator in ("in", "not in", "any but", "none of"):
            yield term(operator, *some)
    yield term("any")
    yield term("absent")


@cache
def all_terms() -> list[Term]:
    """The single constraints, all pairs of which are compared."""
    texts = (*text_terms(CONSTANT_TEXTS), *text_terms(ODD_TEXTS[:4]))
    return [*other_terms(), *shape_terms(), *texts]


@cache
def mixed_terms() -> list[Term]:
    """The constraints from which combinations are drawn: with odd texts, fewer of the plain."""
    short = [text for text in CONSTANT_TEXTS if len(text) <= 2]
    return [*other_terms(), *shape_terms(), *text_terms(short), *text_terms(ODD_TEXTS)]


# --- comparing ----------------------------------------------------------------------------------


class Combination(NamedTuple):
    """A Boolean combination of constraints, built twice."""

    value_set: ValueSet
    bits: int
    holds: Callable[[object], bool]
    text: str

    def inside(self, other: "Combination") -> bool:
        """Whether the universe has no value of this one outside the other."""
        return self.bits & ~other.bits == 0


ALL_BITS: Final = (1 << len(UNIVERSE)) - 1


def alone(of: Term) -> Combination:
    """A constraint as a combination."""
    return Combination(of.value_set, of.bits, of.holds, repr(of))


def every(parts: Sequence[Combination]) -> Combination:
    """All of them."""
    return Combination(
        reduce(ValueSet.__and__, (part.value_set for part in parts)),
        reduce(int.__and__, (part.bits for part in parts)),
        lambda value: all(part.holds(value) for part in parts),
        " & ".join(f"({part.text})" for part in parts),
    )


def some(parts: Sequence[Combination]) -> Combination:
    """One of them."""
    return Combination(
        reduce(ValueSet.__or__, (part.value_set for part in parts)),
        reduce(int.__or__, (part.bits for part in parts)),
        lambda value: any(part.holds(value) for part in parts),
        " | ".join(f"({part.text})" for part in parts),
    )


def inverse(part: Combination) -> Combination:
    """The complement."""
    return Combination(
        ~part.value_set,
        ALL_BITS & ~part.bits,
        lambda value: not part.holds(value),
        f"~({part.text})",
    )


@dataclass
class Findings:
    """Counts of answers, and where model and definition differ."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def expect(self, holds: bool, what: str, *about: object) -> None:
        """Notes a difference where it does not hold."""
        if not holds:
            self.counts["differences"] += 1
            if len(self.differences) < SINGLE_PAIRS_SHOWN:
                self.differences.append(f"{what}: " + "  WITH  ".join(map(str, about)))

    def join(self, other: "Findings") -> None:
        """Adds another process's findings."""
        self.counts += other.counts
        self.differences = [*self.differences, *other.differences][:SINGLE_PAIRS_SHOWN]


def witness_value(of: ValueSet) -> object:
    """The value that the model names for a set: `ABSENT`, a value, or LookupError for none."""
    key = of.some_key()
    if key is None:
        raise LookupError("no witness")
    return ABSENT if key[0] == 0 else value_of(key)


def compare(p: Combination, q: Combination, found: Findings) -> None:
    """Covering both ways, meeting, emptiness and equality of two sets on one attribute."""
    forth, back = _compare_covers(p, q, found), _compare_covers(q, p, found)
    found.expect((p.value_set == q.value_set) == (forth and back), "equality", p.text, q.text)
    both = p.value_set & q.value_set
    meets = p.value_set.meets(q.value_set)
    found.counts[f"meets {meets}"] += 1
    found.expect(both.is_empty is not meets, "meets and emptiness differ", p.text, q.text)
    if not meets:
        found.expect(p.bits & q.bits == 0, "meets says no", p.text, q.text)
        return
    try:
        value = witness_value(both)
        found.expect(
            p.holds(value) and q.holds(value), f"witness of meets {value!r}", p.text, q.text
        )
    except LookupError:
        found.expect(False, "meets without witness", p.text, q.text)


def _compare_covers(p: Combination, q: Combination, found: Findings) -> bool:
    covers = p.value_set.issuperset(q.value_set)
    found.counts[f"covers {covers}"] += 1
    if covers:
        found.expect(q.inside(p), "covers says yes", p.text, q.text)
        return True
    try:
        value = witness_value(q.value_set - p.value_set)
        right = q.holds(value) and not p.holds(value)
        found.expect(right, f"witness against covers {value!r}", p.text, q.text)
    except LookupError:
        found.expect(False, "covers no without witness", p.text, q.text)
    return False


def compare_membership(terms: Iterable[Term], found: Findings) -> None:
    """Every constraint with every value of the universe."""
    keys = [(0, 0) if value is ABSENT else key_of(value) for value in UNIVERSE]  # type: ignore[arg-type]
    for each in terms:
        bits = sum(1 << place for place, key in enumerate(keys) if each.value_set.holds(key))
        found.counts["memberships"] += len(keys)
        found.expect(bits == each.bits, "membership", each)


def compare_filters(f: dict[str, Combination], g: dict[str, Combination], found: Findings) -> None:
    """Covering and meeting of two filters over two attributes, with their witnesses."""
    p, q = (Filter({name: part.value_set for name, part in of.items()}) for of in (f, g))
    names = sorted({*f, *g})
    f_bits, g_bits = ([of[n].bits if n in of else ALL_BITS for n in names] for of in (f, g))
    shown = f"{_shown(f)}", f"{_shown(g)}"
    covers, meets = relations.covers(p, q), relations.meets(p, q)
    found.counts[f"filter covers {covers}"] += 1
    found.counts[f"filter meets {meets}"] += 1
    if covers:
        inside = all(b & ~a == 0 for a, b in zip(f_bits, g_bits, strict=True))
        found.expect(inside or not all(g_bits), "filter covers says yes", *shown)
    else:
        n = relations.witness(q, but_not=p)
        right = n is not None and _matches(g, n) and not _matches(f, n)
        found.expect(right, f"witness against filter covers {n!r}", *shown)
    if meets:
        n = relations.witness(p, q)
        right = n is not None and _matches(f, n) and _matches(g, n)
        found.expect(right, f"witness of filter meets {n!r}", *shown)
    else:
        apart = any(a & b == 0 for a, b in zip(f_bits, g_bits, strict=True))
        found.expect(apart, "filter meets says no", *shown)


def compare_union(
    members: Sequence[dict[str, Combination]], g: dict[str, Combination], found: Findings
) -> None:
    """Whether a union of filters covers a filter that perhaps none of them covers."""
    whole = FilterSet(Filter({n: part.value_set for n, part in of.items()}) for of in members)
    q = Filter({name: part.value_set for name, part in g.items()})
    covers = relations.covers(whole, q)
    found.counts[f"union covers {covers}"] += 1
    shown = " or ".join(map(_shown, members)), _shown(g)
    if covers:
        found.expect(_inside_union(members, g), "union covers says yes", *shown)
        return
    n = relations.witness(q, but_not=whole)
    right = n is not None and _matches(g, n) and not any(_matches(f, n) for f in members)
    found.expect(right, f"witness against union covers {n!r}", *shown)


def _inside_union(members: Sequence[dict[str, Combination]], g: dict[str, Combination]) -> bool:
    """Over all points of the universe squared: attributes a and b, grouped by the sets with a."""
    a_bits = [of["a"].bits if "a" in of else ALL_BITS for of in members]
    b_bits = [of["b"].bits if "b" in of else ALL_BITS for of in members]
    g_a, g_b = (g[name].bits if name in g else ALL_BITS for name in ("a", "b"))
    for holding in product((True, False), repeat=len(members)):
        at, left = g_a, g_b
        for holds, a, b in zip(holding, a_bits, b_bits, strict=True):
            at &= a if holds else ~a
            left &= ~b if holds else ALL_BITS
        if at and left:
            return False
    return True


def _matches(of: dict[str, Combination], n: Notification) -> bool:
    held: dict[str, object] = dict(n.attributes)
    return all(part.holds(held.get(name, ABSENT)) for name, part in of.items())


def _shown(of: dict[str, Combination]) -> str:
    return " and ".join(f"{name} {part.text}" for name, part in of.items()) or "everything"


# --- drawing and running ------------------------------------------------------------------------


def drawn(terms: Sequence[Term], chance: random.Random, constraints_max: int = 3) -> Combination:
    """Up to three constraints; mostly their intersection, sometimes other combinations."""
    parts = [alone(chance.choice(terms)) for _ in range(chance.randint(1, constraints_max))]
    if chance.random() < 0.2:
        parts = [inverse(part) if chance.random() < 0.5 else part for part in parts]
    joined = every(parts) if chance.random() < 0.75 else some(parts)
    return inverse(joined) if chance.random() < 0.1 else joined


def drawn_filter(terms: Sequence[Term], chance: random.Random) -> dict[str, Combination]:
    """Constraints on a, on b, or on both."""
    names = chance.choice((("a",), ("b",), ("a", "b"), ("a", "b")))
    return {name: drawn(terms, chance, 2) for name in names}


def by_kind(terms: Sequence[Term]) -> list[list[Term]]:
    """Groups in which constraints are likely to meet: by the domain of their constants."""
    groups: dict[str, list[Term]] = {}
    for each in terms:
        groups.setdefault(kind(each.constants[0]) if each.constants else "any", []).append(each)
    anywhere = groups.pop("any", [])
    return [[*group, *anywhere] for group in groups.values()]


def run_singles(terms: Sequence[Term], pairs: Iterable[tuple[int, int]], found: Findings) -> None:
    """Pairs of single constraints."""
    combinations = [alone(each) for each in terms]
    for i, j in pairs:
        compare(combinations[i], combinations[j], found)


def run_sets(terms: Sequence[Term], count: int, chance: random.Random, found: Findings) -> None:
    """Sampled pairs of up to three constraints, on one attribute; most of one domain."""
    groups = by_kind(terms)
    weights = [len(group) for group in groups]
    for _ in range(count):
        among = chance.choices(groups, weights)[0] if chance.random() < 0.8 else terms
        compare(drawn(among, chance), drawn(among, chance), found)


def run_filters(terms: Sequence[Term], count: int, chance: random.Random, found: Findings) -> None:
    """Sampled pairs of filters over two attributes, and unions of filters."""
    groups = by_kind(terms)
    for number in range(count):
        among = chance.choice(groups) if chance.random() < 0.8 else terms
        g = drawn_filter(among, chance)
        compare_filters(drawn_filter(among, chance), g, found)
        if number % 4 == 0:
            members = [drawn_filter(among, chance) for _ in range(chance.randint(2, 3))]
            compare_union(members, g, found)


def run_share(share: tuple[int, int, int, int, int]) -> Findings:
    """One of several equal pieces of the work, with a seed of its own."""
    piece, pieces, singles, sets_count, filters_count = share
    decision.safe_answers.clear()
    found = Findings()
    chance = random.Random(piece)
    terms = all_terms()
    at = piece % pieces
    compare_membership(terms[at::pieces], found)
    if singles:
        picked = [(i, j) for i in range(at, len(terms), pieces) for j in range(i + 1)]
        run_singles(terms, picked, found)
    mixed = mixed_terms()
    run_sets(mixed, sets_count, chance, found)
    run_filters(mixed, filters_count, chance, found)
    for question, count in decision.safe_answers.items():
        found.counts[f"safe answer: {question}"] += count
        found.expect(False, f"a safe answer to {question!r}", count)
    return found


def main(count: int = PIECES, first: int = 0) -> int:
    """All pairs of single constraints, 10^6 pairs of sets, 10^5 pairs of filters in `PIECES`.

    Further pieces have the same single constraints, and sets and filters of other seeds.
    """
    start = time.perf_counter()
    shares = [(piece, PIECES, 1, 10_000, 1_000) for piece in range(first, first + count)]
    total = Findings()
    with get_context("spawn").Pool(2) as pool:
        for done, found in enumerate(pool.imap_unordered(run_share, shares), start=1):
            total.join(found)
            seconds = time.perf_counter() - start
            line = f"\r{done}/{count}  {seconds:.0f} s  {total.counts['differences']} differences"
            sys.stderr.write(line)
            sys.stderr.flush()
    sys.stderr.write("\n")
    for what, times in sorted(total.counts.items()):
        sys.stdout.write(f"{times:>12,}  {what}\n")
    for difference in total.differences:
        sys.stdout.write(f"DIFFERENCE {difference}\n")
    return 1 if total.differences else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
