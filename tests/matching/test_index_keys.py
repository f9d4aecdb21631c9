"""Index keys: every value of a set has one, so that its filters are found."""

import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.index_keys import KINDS, IndexKey, prefix_of, traits_of
from contrada.model.domains import line
from contrada.model.domains.values import TEXT, Key, key_of
from contrada.model.languages.casefold import fold
from tests import strategies


def has(key: Key, index_key: IndexKey) -> bool:
    """Whether a value has a trait."""
    if index_key.kind == "is":
        return bool(key == index_key.of)
    if key[0] != TEXT:
        return False
    assert isinstance(key[1], bytes)
    text = fold(key[1]) if index_key.nocase else key[1]
    found = {
        "=": text == index_key.of,
        "prefix": text.startswith(index_key.of),
        "suffix": text.endswith(index_key.of),
        "contains": index_key.of in text,
    }
    return bool(found[index_key.kind])


@given(
    of=strategies.value_sets(3),
    values=st.lists(strategies.pooled_values, min_size=1, max_size=8),
    most=st.integers(0, 8),
)
def test_every_value_of_a_set_has_one_of_its_traits(of: Any, values: Any, most: int) -> None:
    """A filter would be at a place that some matching value does not reach."""
    index_keys = traits_of(of, most)
    if index_keys is not None:
        assert len(index_keys) <= most
        assert {each.kind for each in index_keys} <= {"is", *KINDS}
        for key in map(key_of, values):
            assert not of.holds(key) or any(has(key, each) for each in index_keys)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a = 1", ["is"]),
        ("a in (1, 'x', null)", ["is", "is", "is"]),
        ("a in (1, 2, 3, 4)", None),
        ("a prefix 'x'", ["prefix"]),
        ("a = nocase 'x'", ["="]),
        ("a (suffix 'x' | contains 'y' | = 5)", ["is", "contains", "suffix"]),
        ("a (suffix 'x' & contains 'abcd')", ["contains"]),
        ("a wildcard 'ab*'", ["prefix"]),
        ("a > 1", None),
        ("a any", None),
        ("a != 'x'", None),
        ("a (suffix 'x' | > 'y')", None),
    ],
)
def test_the_traits_of_a_set(text: str, kinds: Any) -> None:
    """A filter would be filed by presence although its values have something in common."""
    index_keys = traits_of(ct.Filter(text).sets["a"], 3)
    assert (index_keys if index_keys is None else sorted(each.kind for each in index_keys)) == (
        kinds if kinds is None else sorted(kinds)
    )


@given(st.binary(min_size=1, max_size=3))
def test_a_prefix_is_known_by_its_interval(prefix: Any) -> None:
    """An interval that is no prefix would be filed as one, or a prefix as an interval."""
    start, *end = line.starting_with(prefix)
    assert prefix_of(start, end[0] if end else None) == prefix
    assert prefix_of(start, (TEXT, prefix + b"\xff\xff\xff\xff")) is None
    assert prefix_of((TEXT,), None) is None


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (ct.ops.ge(math.inf), math.inf),
        (ct.ops.lt(-sys.float_info.max), -math.inf),
        (ct.ops.gt(sys.float_info.max), math.inf),
    ],
)
def test_a_bound_that_leaves_one_number_is_that_number(of: ct.ValueSet, value: float) -> None:
    """A filter of one value would be checked at every notification with its attribute."""
    assert traits_of(of, 1) == (IndexKey("is", False, key_of(value)),)


@pytest.mark.parametrize(
    "of", [ct.ops.ge(0), ct.ops.lt(2**62), ct.ops.gt(-1e300), ct.ops.between(0, 1)]
)
def test_many_numbers_have_no_traits(of: ct.ValueSet) -> None:
    """A filter would be filed under some of its values, and be missed at the others."""
    assert traits_of(of, 16) is None
