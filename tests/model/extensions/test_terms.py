"""Terms: their text form, unification against the textbook, one-way matching."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import LimitError, ParseError
from contrada.model.extensions.terms import (
    TERM_BYTES_MAX,
    TERM_DEPTH_MAX,
    Function,
    Number,
    String,
    Term,
    Variable,
    decode,
    encode,
    match,
    on_side,
    parse_term,
    unify,
)

leaves: Final[st.SearchStrategy[Term]] = st.one_of(
    st.sampled_from([Variable("X"), Variable("Y"), Variable("Z")]),
    st.sampled_from([Number("5"), Number("-12"), String("h"), String('a"\\b\n'), String("")]),
    st.sampled_from([Function("h"), Function("New York"), Function("+x"), Function("é")]),
)
terms: Final[st.SearchStrategy[Term]] = st.recursive(
    leaves,
    lambda inner: st.builds(
        Function, st.sampled_from(["f", "g"]), st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=8,
)
substitutions = st.dictionaries(st.sampled_from([Variable(name) for name in "XYZ"]), terms)


def substituted(term: Term, by: dict[Variable, Term]) -> Term:
    """The term with its variables replaced, once."""
    if isinstance(term, Variable):
        return by.get(term, term)
    if isinstance(term, Function):
        return Function(term.name, tuple(substituted(each, by) for each in term.arguments))
    return term


def resolved(term: Term, by: dict[Variable, Term]) -> Term:
    """The term with its variables replaced until none has a value."""
    while (following := substituted(term, by)) != term:
        term = following
    return term


def occurs(variable: Variable, term: Term) -> bool:
    if isinstance(term, Function):
        return any(occurs(variable, each) for each in term.arguments)
    return term == variable


def robinson(a: Term, b: Term, by: dict[Variable, Term]) -> dict[Variable, Term] | None:
    """Unification as textbooks have it: exponential, but plain."""
    a, b = resolved(a, by), resolved(b, by)
    if a == b:
        return by
    if isinstance(b, Variable) and not isinstance(a, Variable):
        a, b = b, a
    if isinstance(a, Variable):
        return None if occurs(a, b) else {**by, a: b}
    if not (isinstance(a, Function) and isinstance(b, Function)):
        return None
    if a.name != b.name or len(a.arguments) != len(b.arguments):
        return None
    for first, second in zip(a.arguments, b.arguments, strict=True):
        found = robinson(first, second, by)
        if found is None:
            return None
        by = found
    return by


@given(terms)
def test_text_and_bytes_round_trip(term: Term) -> None:
    """A term would change on its way through a filter or a notification."""
    assert parse_term(str(term)) == term
    assert decode(encode(term)) == term
    assert hash(parse_term(str(term))) == hash(term)


@given(terms, terms)
def test_unification_is_that_of_the_textbook(a: Term, b: Term) -> None:
    """Two terms would unify that cannot be made equal, or not although they can."""
    found = unify(a, b)
    assert (found is None) == (robinson(a, on_side(b, 1), {}) is None)
    if found is not None:
        assert resolved(a, found) == resolved(on_side(b, 1), found)


@given(terms, terms)
def test_unification_is_symmetric(a: Term, b: Term) -> None:
    """The answer would depend on which of the two was in the notification."""
    assert (unify(a, b) is None) == (unify(b, a) is None)


@given(terms, substitutions)
def test_a_term_is_as_general_as_its_instances(a: Term, by: dict[Variable, Term]) -> None:
    """Matching would miss an instance, or give a substitution that does not lead to it."""
    b = substituted(a, by)
    found = match(a, b)
    assert found is not None
    assert substituted(a, found) == b


@given(terms, terms)
def test_matching_finds_nothing_else(a: Term, b: Term) -> None:
    """Matching would bind variables of the second term, or one variable to two terms."""
    found = match(a, b)
    if found is not None:
        assert substituted(a, found) == b


@given(terms, substitutions, substitutions)
def test_matching_is_transitive(
    a: Term, first: dict[Variable, Term], second: dict[Variable, Term]
) -> None:
    """A chain of coverings would break (946 figure 7)."""
    b = substituted(a, first)
    c = substituted(b, second)
    assert match(a, b) is not None
    assert match(b, c) is not None
    assert match(a, c) is not None


@given(terms, substitutions, substitutions, terms)
def test_the_general_unifies_with_values_of_the_special(
    a: Term, first: dict[Variable, Term], second: dict[Variable, Term], any_value: Term
) -> None:
    """A notification that matches the covered filter would be lost."""
    b = substituted(a, first)
    for value in (substituted(b, second), any_value):
        if unify(b, value) is not None:
            assert unify(a, value) is not None


@given(terms, terms)
def test_the_less_general_misses_a_value(a: Term, b: Term) -> None:
    """One-way matching would be narrower than covering."""
    names = {Variable(name): Function(f"{name} of b") for name in "XYZ"}
    value = substituted(b, dict(names))
    assert unify(b, value) is not None
    assert (match(a, b) is not None) == (unify(a, value) is not None)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("a(_X,_X)", "a(_Y,f(_Y))"),
        ("f(_X,_Y,_X)", "f(g(_Z),_Z,_Z)"),
        ("f(_X,_Y)", "f(_Z,g(_Z))"),
        ("f(_X,_Y,_X)", "f(_Y,g(_X),h)"),
    ],
)
def test_the_occurs_check_looks_through_variables(a: str, b: str) -> None:
    """A variable would equal a term that contains it, through others."""
    first, second = parse_term(a), parse_term(b)
    expected = robinson(first, on_side(second, 1), {})
    assert (unify(first, second) is None) == (expected is None)


def test_the_occurs_check_refuses_infinite_terms() -> None:
    """Infinite terms would be equal."""
    assert unify(parse_term("a(_X,_X)"), parse_term("a(_Y,f(_Y))")) is None
    assert unify(parse_term("f(_X,_Y,_X)"), parse_term("f(g(_Z),_Z,_Z)")) is None


def test_terms_that_double_with_each_variable_are_unified_quickly() -> None:
    """A value of a few hundred bytes would keep a broker busy for years."""
    doubled = ",".join(f"g(_{v}{i},_{v}{i})" for v in "XY" for i in range(60))
    named = ",".join(f"_{v}{i + 1}" for v in "XY" for i in range(60))
    a, b = parse_term(f"h({named},_X60)"), parse_term(f"h({doubled},_Y60)")
    assert unify(a, b) is not None
    same = parse_term(f"h({named},{doubled},_X60)")
    other = parse_term(f"h({doubled},{named},_Y60)")
    assert unify(same, other) is not None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("5", "+5", True),
        ("5", "005", True),
        ("0", "-0", True),
        ("-5", "-05", True),
        ("5", "-5", False),
        ("9" * 5000, "+" + "9" * 5000, True),
        ("5", '"5"', False),
        ("h", '"h"', False),
        ("h", "H", False),
        ('"é"', '"e\u0301"', False),
        (" f ( a , _X ) ", "f(a,_X)", True),
        ("New York", "NewYork", False),
    ],
)
def test_constants_compare_by_value(one: str, other: str, equal: bool) -> None:
    """Spellings of one constant would differ, or constants of two kinds be equal."""
    assert (parse_term(one) == parse_term(other)) is equal
    assert (unify(parse_term(one), parse_term(other)) is not None) is equal


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("f(a", 1, 3),
        ("f(a,)", 1, 5),
        ("f()", 1, 3),
        ("f a)", 1, 4),
        ("5.0", 1, 1),
        ("5x", 1, 1),
        ("-5(a)", 1, 3),
        ("__X", 1, 1),
        ("_", 1, 1),
        ("_5", 1, 1),
        ('f("a', 1, 3),
        ('f("\\n")', 1, 3),
        ("f(\n!)", 2, 1),
        ("f(\ud800)", 1, 3),
    ],
)
def test_invalid_terms_are_refused_with_their_place(text: str, line: int, column: int) -> None:
    """A malformed constant would be accepted, or its author not learn the position of the fault."""
    with pytest.raises(ParseError) as caught:
        parse_term(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_bytes_that_are_no_text_are_no_term() -> None:
    """A value of bytes would end in another error than the one that is caught."""
    with pytest.raises(ParseError, match="UTF-8"):
        decode(b"f(\xff)")


def test_depth_is_bounded() -> None:
    """A deep term would overflow the stack of a recursive function."""
    parse_term("f(" * (TERM_DEPTH_MAX - 1) + "a" + ")" * (TERM_DEPTH_MAX - 1))
    for depth in (TERM_DEPTH_MAX, 5_000):
        with pytest.raises(LimitError) as caught:
            parse_term("f(" * depth + "a" + ")" * depth)
        assert caught.value.limit == "TERM_DEPTH_MAX"


def test_size_is_bounded() -> None:
    """A huge value would be read before it is refused."""
    parse_term("é" * (TERM_BYTES_MAX // 2))
    with pytest.raises(LimitError) as caught:
        parse_term("é" * (TERM_BYTES_MAX // 2 + 1))
    assert (caught.value.limit, caught.value.size) == ("TERM_BYTES_MAX", TERM_BYTES_MAX + 2)
