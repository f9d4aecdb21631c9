"""Bit sets against their plain definition, and against all other operators on text."""

from collections.abc import Callable
from itertools import product, zip_longest
from typing import Final

import pytest

import contrada as ct
from contrada.errors import LimitError
from contrada.model.algebra import sets
from contrada.model.extensions.bit_sets import SetGreaterEqual, SetIntersect, SetLessEqual, SetType
from contrada.model.languages import decision
from contrada.model.languages.atoms import registry
from contrada.model.languages.automaton import CUTS_MAX, STATES_MAX, minimise

OPERATORS: Final = (SetLessEqual(), SetGreaterEqual(), SetIntersect())
CONSTANTS: Final = tuple(
    map(bytes.fromhex, ("", "00", "01", "80", "ff", "0100", "0001", "a55a", "00ff", "ffff"))
)
SMALL: Final = tuple(bytes(t) for n in range(3) for t in product(range(4), repeat=n))
UNIVERSE: Final = tuple(bytes(t) for n in range(5) for t in product(range(5), repeat=n))

Holds = Callable[[bytes, bytes], bool]


def every_byte(passes: Callable[[int, int], bool]) -> Holds:
    return lambda s, t: all(passes(a, b) for a, b in zip_longest(s, t, fillvalue=0))


PLAIN: Final[dict[str, Holds]] = {
    "set<=": every_byte(lambda a, b: a & b == a),
    "set>=": every_byte(lambda a, b: a & b == b),
    "set~": lambda s, t: not every_byte(lambda a, b: a & b == 0)(s, t),
    "=": lambda s, t: s == t,
    "!=": lambda s, t: s != t,
    "<": lambda s, t: s < t,
    ">=": lambda s, t: s >= t,
    "prefix": lambda s, t: s.startswith(t),
    "suffix": lambda s, t: s.endswith(t),
    "contains": lambda s, t: t in s,
}


@pytest.mark.quick_every(6)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@pytest.mark.parametrize("constant", CONSTANTS, ids=bytes.hex)
def test_two_byte_strings_exhaustively(
    operator: SetLessEqual | SetGreaterEqual | SetIntersect, constant: bytes
) -> None:
    """`apply` or the automaton would differ from the definition with its zero extension."""
    plain = PLAIN[operator.name]
    pairs = [[plain(bytes((a,)), constant[i : i + 1]) for a in range(256)] for i in range(2)]
    join = any if operator.name == "set~" else all
    beyond = plain(b"", constant[2:])
    automaton = operator.automaton(constant)
    for a, b in product(range(256), repeat=2):
        expected = join((pairs[0][a], pairs[1][b], beyond))
        text = bytes((a, b))
        assert operator.apply(text, constant) is expected
        assert automaton.accepts(text) is expected


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_strings_of_any_length(operator: SetLessEqual | SetGreaterEqual | SetIntersect) -> None:
    """A string shorter or longer than the constant would be read wrongly."""
    plain = PLAIN[operator.name]
    for constant in SMALL:
        automaton = operator.automaton(constant)
        for text in UNIVERSE:
            assert operator.apply(text, constant) is plain(text, constant)
            assert automaton.accepts(text) is plain(text, constant)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
@pytest.mark.parametrize("constant", [*CONSTANTS, *SMALL], ids=bytes.hex)
def test_automata_are_minimal(
    operator: SetLessEqual | SetGreaterEqual | SetIntersect, constant: bytes
) -> None:
    """The invariant of automata would break, on which fates of states rest."""
    automaton = operator.automaton(constant)
    least = minimise(automaton.rows, automaton.accepting)
    assert len(least.rows) == len(automaton.rows)
    assert len(automaton.rows) <= len(constant) + 2


def constraints() -> list[tuple[str, bytes, int]]:
    """Every operator with every small constant, and its members in the universe as bits."""
    found = []
    for name, plain in PLAIN.items():
        constants = SMALL if name.startswith("set") else SMALL[:6] + SMALL[-3:]
        for constant in constants:
            members = sum(plain(text, constant) << i for i, text in enumerate(UNIVERSE))
            found.append((name, constant, members))
    return found


@pytest.mark.slow
def test_pairs_with_all_operators_are_decided_exactly() -> None:
    """`covers` or `meets` would be wrong for a pair, or only a safe guess."""
    every = [(sets.of_operator(o, (c,)), plain, o, c) for o, c, plain in constraints()]
    for p, p_members, p_name, p_constant in every:
        if not p_name.startswith("set"):
            continue
        for q, q_members, q_name, q_constant in every:
            assert p.meets(q) is (p_members & q_members != 0)
            for one, other, ones, others, name, constant in (
                (p, q, p_members, q_members, p_name, p_constant),
                (q, p, q_members, p_members, q_name, q_constant),
            ):
                if one.issuperset(other):
                    assert others & ~ones == 0
                elif others & ~ones == 0:
                    witness = (other - one).some_key()
                    assert witness is not None
                    assert not PLAIN[name](witness[1], constant)  # type: ignore[arg-type]
    assert not decision.safe_answers


def test_the_three_together() -> None:
    """Conjunctions of the operators would be decided pair by pair only."""
    three = ct.Filter('x set~ x"07" and x set<= x"03" and x != x"01"')
    assert three.covers(ct.Filter('x = x"02"'))
    assert three.covers(ct.Filter('x set<= x"03" and x set>= x"03"'))
    assert not three.covers(ct.Filter('x set<= x"03" and x set~ x"03"'))
    assert ct.Filter('x set<= x"03" and x set>= x"04"').is_empty
    assert ct.FilterSet('x set<= x"03" or x not set<= x"03"').covers(ct.Filter('x prefix ""'))
    assert not decision.safe_answers


def test_trailing_zeros_give_equal_filters() -> None:
    """Two spellings of one set of bits would be two filters."""
    short, long = ct.Filter('x set>= x"03"'), ct.Filter('x set>= x"030000"')
    assert short == long
    assert hash(short) == hash(long)
    assert short != ct.Filter('x set>= x"0300000001"')


def test_other_domains_never_match() -> None:
    """A number would be read as a set of bits."""
    f = ct.Filter('x set>= x""')
    assert f.matches(ct.Notification({"x": ""}))
    for value in (3, 1.5, True, None):
        assert not f.matches(ct.Notification({"x": value}))
    with pytest.raises(ct.errors.InvalidFilterError):
        ct.Filter("x set<= 3")


def test_a_constant_beyond_the_limit_of_states_is_answered_safely() -> None:
    """A long constant would take the service down, or be answered as if it were decided."""
    constant = b"\xff" * STATES_MAX
    with pytest.raises(LimitError):
        SetLessEqual().automaton(constant)
    huge = sets.extension("set<=", constant)
    assert huge.contains(b"\x01")
    assert not huge.issuperset(sets.extension("set<=", b"\x01"))
    others = sets.extension("set>=", b"\x01") - sets.in_(constant, b"\x01")
    assert huge.meets(others)
    assert decision.safe_answers == {"covers": 1, "meets": 1}


def test_a_set_of_very_many_intervals_stays_an_expression() -> None:
    """Hashing a short filter would enumerate millions of intervals."""
    few, many = sets.extension("set>=", b"\0\x80"), sets.extension("set>=", b"\0\0\0\xff")
    assert few.canonical().text is None
    assert len(few.canonical().line) <= CUTS_MAX
    for text in (b"\x07", b"\x07\x7f", b"\x07\x80", b"\xff\xffz", b"\x80"):
        assert few.canonical().contains(text) is few.contains(text)
    assert many.canonical().text is not None
    assert hash(~many) == hash(~sets.extension("set>=", b"\0\0\0\xff\0"))


def test_the_type_names_its_operators() -> None:
    """The type object would not be the paper's."""
    assert SetType().name == "Set"
    assert [each.name for each in SetType().operators()] == ["set<=", "set>=", "set~"]
    assert all(registry.find(each.name) is not None for each in SetType().operators())
