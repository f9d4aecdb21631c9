"""Rows and filters for the tests of sources: nasty values, few columns, so that they meet."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from hypothesis import strategies as st

from contrada.errors import ContradaError
from contrada.model import Filter, FilterSet, Notification, ValueSet
from contrada.model.algebra import sets
from contrada.routing.router_messages import alternative
from contrada.service.query.source_query import SourceQuery
from tests.strategies import constraints, value_sets

NUMBERS: Final = (0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0.5, -0.0, 1e300)
DOUBLES: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0**53, 2.0**63, 5e-324, math.inf, -math.inf, 1e300)
INTEGERS: Final = tuple(each for each in NUMBERS if isinstance(each, int))
TEXTS: Final = (
    *("", "a", "A", "b", "ab", "aB", "é", "É", "\U0001f600", "a b", "5", " 5 ", "1e3", "0x10"),
    *("2020-01-01", "'", '"', "a%", "a_", "?", "nan", "NULL", "\ud7ff", "a\\"),
)
TIMES: Final = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 12, 0, 0, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 12, tzinfo=UTC),
)
ODD_NAMES: Final = ('a"b', "a'b", "a?b", "a%b", "a%sb", "a;b", "select", "a b", "a--b", "é", "a.b")
"""Names of columns that would be anything but a name where they are not quoted."""


def questions(names: tuple[str, ...]) -> st.SearchStrategy[SourceQuery]:
    """Questions about these attributes, with variables and without, that something may answer."""
    held: st.SearchStrategy[ValueSet] = st.one_of(constraints, value_sets(3))
    some = st.dictionaries(st.sampled_from(names), held, max_size=3)
    same: st.SearchStrategy[list[list[str]]] = st.one_of(
        st.just([]), st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=2), max_size=1)
    )
    one = st.builds(alternative, some, same)
    return (
        st.lists(one, min_size=1, max_size=3)
        .filter(lambda each: any(not one.query.is_empty for one in each))
        .map(SourceQuery.of)
    )


def counted(items: Any) -> dict[Any, int]:
    """Items without their order."""
    found: dict[Any, int] = {}
    for each in items:
        key = frozenset((name, each.keys_of(name)) for name in each)
        found[key] = found.get(key, 0) + 1
    return found


def is_described(offer: Any, items: list[Notification]) -> bool:
    """Whether all items lie in a description, and each question that they answer meets it."""
    from contrada.model import Advertisement
    from contrada.model.algebra.product import product_covers

    if isinstance(offer, Advertisement):
        return all(product_covers(offer, item) for item in items)
    return all(FilterSet([offer]).matches(item) for item in items)


def directed(values: Iterable[Any]) -> list[ValueSet]:
    """Sets with ends at these values, and those without one of them."""
    found: list[ValueSet] = [ValueSet.parse("any")]
    for value in values:
        for make in (sets.eq, sets.any_but, sets.lt, sets.ge):
            try:
                found.append(make(value))
            except ContradaError:
                continue  # Of this value there is no less, for example.
    return [each for each in found if not each.is_empty]


BOUNDS: Final = (*NUMBERS, *DOUBLES, 2.0**53 + 2, 0.1, -0.5, math.nan, True, False, *TIMES)
"""Values to compare with, for all columns."""


def misanswered(source: Any, names: Iterable[str], bounds: Iterable[Any]) -> list[str]:
    """The questions about one column that a source answers not as filtering all rows does."""
    every = list(source.answer(SourceQuery(Filter({}))))
    wrong = []
    for name in names:
        for values in directed(bounds):
            for side in (values, values | sets.absent()):
                asked = SourceQuery(Filter.of_sets({name: side}))
                expected = [item for item in every if asked.answers(item)]
                if counted(source.answer(asked)) != counted(expected):
                    wrong.append(str(asked))
    return wrong
