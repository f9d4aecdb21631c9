"""Truths of three values, against their tables."""

from itertools import product

import pytest

import contrada as ct
from contrada.integrations.dialects import kleene
from contrada.integrations.dialects.kleene import Bound, Truth
from contrada.model.algebra.filter import filter_set

VALUES = (True, False, None)
TRUTHS = [
    Truth(
        kleene.member(name, ct.ops.eq(1)),
        kleene.member(name, ct.ops.eq(0)),
        kleene.member(name, ct.ops.lt(2)),
    )
    for name in ("a", "b")
]
"""Of an attribute: true where it is 1, false where it is 0."""


def held(bound: Bound, values: tuple[bool | None, ...]) -> bool:
    given = {name: int(v) for name, v in zip("ab", values, strict=True) if v is not None}
    return filter_set(bound.condition).matches(ct.Notification(given))


def value(truth: Truth, values: tuple[bool | None, ...]) -> bool | None:
    if held(truth.true, values):
        assert not held(truth.false, values)
        return True
    return False if held(truth.false, values) else None


@pytest.mark.parametrize("values", [*product(VALUES, repeat=2)], ids=str)
def test_connectives_are_those_of_kleene(values: tuple[bool | None, bool | None]) -> None:
    """If it failed, conditions of SQL would hold where they are unknown."""
    least = False if False in values else None if None in values else True
    most = True if True in values else None if None in values else False
    assert value(kleene.conjunction(TRUTHS), values) is least
    assert value(kleene.disjunction(TRUTHS), values) is most
    assert held(kleene.conjunction(TRUTHS).defined, values) is (least is not None)
    first = None if values[0] is None else not values[0]
    assert value(TRUTHS[0].inverse(), values) is first
    assert value(kleene.certain(TRUTHS[0].true), values) is (values[0] is True)


def test_a_loose_bound_stays_loose() -> None:
    """If it failed, a residue would be left out that decides."""
    loose = TRUTHS[0]._replace(true=TRUTHS[0].true.loose())
    assert not kleene.conjunction([loose, TRUTHS[1]]).true.exact
    assert not kleene.disjunction([loose, TRUTHS[1]]).true.exact
    assert kleene.conjunction([loose, TRUTHS[1]]).false.exact
    assert kleene.NEVER.loose().exact
