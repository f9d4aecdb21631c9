"""Sweeps: every kind of network delivers the same, at different costs."""

from pathlib import Path

import pytest

from contrada.lab.simulation.overlay_cost import MEASURES, Cost, Plan, draw, measure, plans
from contrada.lab.simulation.script_steps import Kind
from contrada.routing.router import Strategy


@pytest.fixture(scope="module")
def costs() -> list[Cost]:
    """A small sweep over all kinds."""
    chosen = plans("random", 8, (5, 60), objects=10, notifications=3, seed=1)
    return list(map(measure, chosen))


@pytest.mark.slow
def test_all_kinds_deliver_the_same(costs: list[Cost]) -> None:
    """One kind would look cheap because it loses notifications."""
    assert len({cost.plan.kind for cost in costs}) >= 20
    for parties in (5, 60):
        same = [cost for cost in costs if cost.plan.parties == parties]
        assert {cost.published for cost in same} == {30}
        assert len({cost.delivered for cost in same}) == 1
        assert same[0].delivered > 0


@pytest.mark.slow
def test_costs_have_the_order_of_the_paper(costs: list[Cost]) -> None:
    """The report would praise the wrong strategy.

    Flooding spends on notifications and nothing on subscriptions; advertisements save subscriptions
    towards servers without publishers; covering saves covered filters, and all else stays the same.
    Advertisements cost only where they are forwarded, also to a central server.
    """
    for cost in costs:
        assert (cost.per_advertisement > 0) == (cost.plan.kind.strategy is Strategy.ADVERTISEMENTS)
    by_kind = {cost.plan.kind: cost for cost in costs if cost.plan.parties == 60}
    for shape in ("acyclic", "general"):
        plain = by_kind[Kind(shape, Strategy.SUBSCRIPTIONS, covering=False)]
        covering = by_kind[Kind(shape, Strategy.SUBSCRIPTIONS)]
        advertised = by_kind[Kind(shape, Strategy.ADVERTISEMENTS, covering=False)]
        flooding = by_kind[Kind(shape, Strategy.FLOODING, covering=False)]
        assert covering.per_subscription <= plain.per_subscription
        assert covering.per_notification == plain.per_notification
        assert covering.table_mean <= plain.table_mean
        assert advertised.per_subscription < plain.per_subscription
        assert advertised.per_advertisement > 0 == plain.per_advertisement
        assert flooding.per_subscription == 0
        assert flooding.per_notification > plain.per_notification
    acyclic = by_kind[Kind("acyclic", Strategy.SUBSCRIPTIONS)]
    assert acyclic.table_mean < by_kind[Kind("acyclic", Strategy.SUBSCRIPTIONS, False)].table_mean


def test_a_run_is_a_function_of_its_plan() -> None:
    """Spark would give other numbers than this process."""
    plan = Plan(Kind("general", Strategy.ADVERTISEMENTS), "transit-stub", 9, 20, 5, 2, seed=4)
    assert measure(plan) == measure(plan)


def test_a_single_party_has_a_countable_cost() -> None:
    """The unit of cost would be unclear: a message over one link costs the link's length."""
    kind = Kind("acyclic", Strategy.SUBSCRIPTIONS, covering=False)
    cost = measure(Plan(kind, "random", 2, 1, 1, 1, seed=2))
    central = measure(Plan(Kind("central", Strategy.SUBSCRIPTIONS, False), "random", 2, 1, 1, 1, 2))
    assert cost.table_mean == 1.0
    assert cost.per_subscription > 0
    assert cost.per_subscription / 2 == pytest.approx(_length())
    assert central.per_subscription in (0.0, pytest.approx(2 * _length()))


def _length() -> float:
    from contrada.lab.simulation.sites import sites_of

    return sites_of("random", 2, seed=2).lengths[0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["svg", "png"])
def test_charts_are_drawn(costs: list[Cost], form: str, tmp_path: Path) -> None:
    """A person would have numbers only."""
    files = draw(costs, tmp_path, form)
    assert len(files) == len(MEASURES)
    again = [file.read_bytes() for file in files]
    assert all(len(each) > 10_000 for each in again)
    draw(costs, tmp_path, form)
    assert [file.read_bytes() for file in files] == again
