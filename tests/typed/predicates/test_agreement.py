"""A lifted predicate with its residue agrees with plain Python on every object."""

import warnings
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contrada.typed.predicates import lift
from contrada.typed.shapes import shape_of
from tests.strategies import more
from tests.typed.predicates.predicates import OPTIONAL, Trade, carried, compiled, sources, trades

SHAPE = shape_of(Trade)


def holds(predicate: Any, trade: object) -> bool:
    """The answer of plain Python; False if it raises."""
    try:
        return bool(predicate(trade))
    except Exception:  # noqa: BLE001
        return False


@more(5)
@given(
    sources(),
    st.lists(trades(), min_size=1, max_size=12),
    st.lists(st.sampled_from(OPTIONAL), max_size=6).map(frozenset),
    st.sampled_from(({}, {}, {"named": "called"}, {"named": "known"})),
)
def test_filters_residue_and_python_agree(
    source: str, several: list[Trade], absent: frozenset[str], names: dict[str, str]
) -> None:
    """A subscriber would miss accepted obvents, or get refused ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns about odd comparisons of literals.
        predicate = compiled(source)
        lifted = lift(SHAPE, predicate)
        for trade in several:
            made, notification = carried(trade, absent, names)
            wanted = holds(predicate, made)
            passed = lifted.filters.matches(notification)
            if lifted.is_exact:
                assert passed == wanted, (lifted.explain(), made)
            else:
                assert passed or not wanted, (lifted.explain(), made)
            assert holds(lifted.predicate, made) == wanted
        assert lifted.is_exact or any(line.reason for line in lifted.plan), lifted.explain()
