"""Sets of positions."""

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from contrada.delivery.store import Positions

intervals = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(added=st.lists(intervals, max_size=12), before=st.integers(0, 42))
def test_it_is_the_set_of_added_positions(added: list[tuple[int, int]], before: int) -> None:
    """A record would count as acknowledged wrongly, or be delivered again."""
    of = Positions()
    expected: set[int] = set()
    for first, end in added:
        assert of.add(first, end) == len(set(range(first, end)) - expected)
        expected |= set(range(first, end))
        found = list(of)
        assert all(a < b for a, b in found)
        assert all(b < c for (_, b), (c, _) in pairwise(found)), "they touch"
        assert len(of) == len(found)
        assert {at for a, b in found for at in range(a, b)} == expected
    for position in range(42):
        assert (position in of) == (position in expected)
        free = next(each for each in range(position, 99) if each not in expected)
        assert of.first_without(position) == free
        assert of.count_from(position) == sum(each >= position for each in expected)
    of.forget(before)
    assert {at for a, b in of for at in range(a, b)} == {at for at in expected if at >= before}
    assert all(a < b for a, b in of)
    for position in (0, before, before + 1):
        assert of.count_from(position) == sum(each >= max(position, before) for each in expected)
