"""Operators that nobody registered here: carried unchanged, never evaluated, safe in between."""

import pytest

import contrada as ct
from contrada.errors import ParseError, UnknownOperatorError
from contrada.model import codec
from contrada.model.algebra.operators import operator
from contrada.model.codec import Encodable
from contrada.model.domains.line import EMPTY
from contrada.model.languages import decision
from contrada.model.languages.atoms import Atom, Operator, registry
from contrada.model.languages.language import Literal


class Elsewhere(Operator):
    """Registered at the sender only."""

    name = "elsewhere"

    def apply(self, value: bytes, constant: bytes) -> bool:
        return value == constant


def far(constant: bytes, *, positive: bool = True) -> ct.ValueSet:
    """A set as the sender builds it."""
    return ct.ValueSet(EMPTY, Literal(Atom("elsewhere", constant), positive))


FAR = ct.Filter.of_sets({"x": far(b"a\xff"), "y": ct.ops.lt(5)})


@pytest.mark.parametrize(
    "thing",
    [
        FAR,
        ct.FilterSet([FAR, ct.Filter("z = 1")]),
        far(b"a") | ct.ops.lt(3) | far(b"b", positive=False) & ct.ops.suffix("c"),
        ct.Advertisement.of_sets({"x": far(b"a")}),
        ct.Query.of_sets({"x": far(b"a")}),
        ct.Pattern([FAR, FAR]),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_it_is_forwarded_unchanged(thing: Encodable) -> None:
    """A broker without the extension would change or drop a forwarded filter."""
    encoded = codec.to_msgpack(thing)
    assert b"elsewhere" in encoded
    arrived = codec.from_msgpack(encoded)
    assert codec.to_msgpack(arrived) == encoded
    registry.register(Elsewhere())
    assert codec.to_msgpack(codec.from_msgpack(encoded)) == encoded


def test_it_meets_everything_and_covers_nothing() -> None:
    """A notification would be lost between two brokers that know the operator."""
    assert ct.meets(FAR, ct.Filter("x = 5"))
    assert ct.meets(FAR, ct.Filter("x suffix 'b'"))
    assert not ct.meets(FAR, ct.Filter("y > 5"))  # another attribute still decides
    assert not FAR.covers(ct.Filter({"x": "a", "y": 1}))
    assert not ct.Filter("x any").covers(FAR)
    assert ct.Filter({}).covers(FAR)
    assert not FAR.is_empty
    assert ct.Filter.of_sets(dict(FAR.sets)) == FAR
    assert hash(FAR) == hash(ct.Filter.of_sets(dict(FAR.sets)))
    assert decision.safe_answers["meets: unknown operator"] >= 2
    assert decision.safe_answers["covers: unknown operator"] >= 2


def test_a_local_use_is_an_error() -> None:
    """A subscriber would wait forever."""
    assert FAR.unknown() == ("elsewhere",)
    with pytest.raises(UnknownOperatorError) as caught:
        FAR.matches(ct.Notification({"x": "a", "y": 1}))
    assert caught.value.operator == "elsewhere"
    with pytest.raises(ParseError, match="unknown operator 'elsewhere'"):
        ct.Filter("x elsewhere 'a'")
    with pytest.raises(UnknownOperatorError):
        ct.Constraint("x", "elsewhere", "a")
    with pytest.raises(UnknownOperatorError):
        operator("elsewhere")


def test_it_is_known_once_its_extension_is_loaded() -> None:
    """Filters received before the extension would stay unknown."""
    arrived = codec.from_msgpack(codec.to_msgpack(FAR))
    assert isinstance(arrived, ct.Filter)
    assert ct.meets(arrived, ct.Filter("x = 'b'"))
    registry.register(Elsewhere())
    assert arrived.unknown() == ()
    assert arrived.matches(ct.Notification({"x": b"a\xff", "y": 1}))
    assert not ct.meets(arrived, ct.Filter("x = 'b'"))


def test_an_explanation_names_it() -> None:
    """The reason for a missing notification would be an error instead."""
    found = ct.explain(FAR, {"x": "a", "y": 1})
    failing, holding = found.constraints
    assert not found
    assert holding.holds
    assert failing.cause.endswith("\"a\" cannot be decided: operator 'elsewhere' is not registered")
