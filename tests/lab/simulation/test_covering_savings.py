"""The savings of covering and merging, on a set of subscriptions."""

from contrada.lab.simulation.overlay_cost import saved
from contrada.model import Filter, FilterSet


def test_messages_and_filters_are_counted() -> None:
    """The report would promise savings that no network has."""
    narrow = [Filter(f"x = 1 and y = {y}") for y in range(3)]
    told: list[None] = []
    found = saved("s", [*narrow, Filter("x = 1"), Filter("z = 1")], lambda: told.append(None))
    # Covering sends the wide one and withdraws three; merging joins the three one after another.
    assert found.filters == (5, 2, 2)
    assert found.messages == (5, 8, 8)
    assert (found.subscriptions, found.refused, len(told)) == (5, 0, 15)
    assert saved("s", [Filter("x = 1"), *narrow]).messages == (4, 1, 1)


def test_unsatisfiable_filters_count_as_refused() -> None:
    """A rule that can never match would look as if covering had saved it."""
    found = saved("s", [FilterSet(()), Filter("x = 1 and x = 2"), Filter("x = 3")])
    assert (found.refused, found.filters) == (2, (1, 1, 1))
