"""The operator `unifies` in filters."""

import pytest

import contrada as ct
from contrada.errors import InvalidFilterError
from contrada.model.extensions.terms import TERM_BYTES_MAX, TERM_DEPTH_MAX, Unifies, UnifyType
from contrada.model.languages import decision
from contrada.model.languages.atoms import Atom, failures

DEEP = "f(" * TERM_DEPTH_MAX + "a" + ")" * TERM_DEPTH_MAX


def unifies(term: str) -> ct.Filter:
    return ct.Filter({"x": ct.Constraint("x", "unifies", term).value_set})


@pytest.mark.parametrize("constant", ["", "f(", "5.0", DEEP, "a" * (TERM_BYTES_MAX + 1)])
def test_a_constant_that_is_no_term_is_refused(constant: str) -> None:
    """A filter would be accepted that can never be evaluated."""
    with pytest.raises(InvalidFilterError) as caught:
        unifies(constant)
    assert caught.value.operator == "unifies"
    assert caught.value.constants == (constant.encode(),)


@pytest.mark.parametrize(
    "value", ["", "f(", "5.0", DEEP, "a" * (TERM_BYTES_MAX + 1), b"\xff", 5, None, True]
)
def test_a_value_that_is_no_term_does_not_match(value: ct.Value) -> None:
    """A malformed notification would match, or end matching with an error."""
    assert not unifies("_X").matches(ct.Notification({"x": value}))
    assert not failures


def test_values_may_have_variables() -> None:
    """Only ground values would match; variables of both sides would be mixed up."""
    assert unifies("f(_X,1)").matches(ct.Notification({"x": "f(2,_X)"}))
    assert not unifies("f(_X,_X)").matches(ct.Notification({"x": "f(1,2)"}))
    assert unifies("f(_X)").matches(ct.Notification({"x": ["g", "f(_X)"]}))


def test_filters_are_compared_by_matching() -> None:
    """Covering would be unification, or compare the text of the terms."""
    assert unifies("f(_X,_Y)").covers(unifies("f(a,_Z)"))
    assert not unifies("f(a,_Z)").covers(unifies("f(_X,_Y)"))
    assert not unifies("f(_X,_X)").covers(unifies("f(_Y,_Z)"))
    assert unifies("f(_X,_Y)") == unifies("f( _Y , _X )")
    assert hash(unifies("f(_X,_Y)")) == hash(unifies("f( _Y , _X )"))
    assert unifies("f(_X)") != unifies("g(_X)")


def test_single_texts_are_decided_by_apply() -> None:
    """`=` and `!=` beside `unifies` would get a guess."""
    assert unifies("f(_X)").covers(ct.Filter({"x": "f(3)"}))
    assert not unifies("f(_X)").covers(ct.Filter({"x": "g"}))
    assert not ct.meets(unifies("f(_X)"), ct.Filter({"x": ["g", "h"]}))
    assert ct.meets(unifies("f(_X)"), ct.Filter({"x": ["g", "f(1)"]}))
    assert not decision.safe_answers


def test_any_two_intersect() -> None:
    """A query would not reach a source that has a variable for an answer."""
    assert Unifies().intersects(b"f(a)", Atom("unifies", b"g(b)")) is True
    assert ct.meets(unifies("f(a)"), unifies("g(b)"))
    both = ct.Notification({"x": "_Any"})
    assert unifies("f(a)").matches(both)
    assert unifies("g(b)").matches(both)


def test_undecided_questions_get_safe_answers() -> None:
    """An operator that is not regular would be decided beside one that is."""
    assert Unifies().covers(b"f(a)", Atom("suffix", b"a)")) is None
    assert Unifies().intersects(b"f(a)", Atom("suffix", b"a)")) is None
    suffix = ct.Filter({"x": ct.ops.suffix("a")})
    assert not unifies("_X").covers(suffix)
    assert ct.meets(unifies("f(_X)"), suffix)
    assert decision.safe_answers == {"covers": 1, "meets": 1}


def test_the_text_of_a_filter_round_trips() -> None:
    """A filter would not survive being printed."""
    f = ct.Filter('x unifies "a(_X,b(c(\\"h\\")))" and y not unifies "_Z"')
    assert ct.parse(str(f)) == f
    assert f.matches(ct.Notification({"x": 'a(1,b(c("h")))', "y": "no term("}))


def test_the_type_names_its_operators() -> None:
    """The type object would not be the paper's."""
    assert UnifyType().name == "Unify"
    assert [each.name for each in UnifyType().operators()] == ["unifies"]
