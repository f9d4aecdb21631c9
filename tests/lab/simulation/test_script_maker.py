"""`weave`: costs of links, and patterns, in made scripts."""

import pytest

from contrada.lab.simulation.script_maker import WOVEN_COST_MAX, make_script, weave
from contrada.lab.simulation.script_steps import (
    AddPattern,
    AdvanceTime,
    Connect,
    DropPattern,
    Kind,
    from_text,
    to_text,
)
from contrada.model import Pattern
from contrada.routing.router import Strategy

WORLDS = range(30)


@pytest.mark.slow
def test_half_of_the_worlds_with_a_mesh_have_links_of_different_costs() -> None:
    """Shortest paths would always be those of the fewest links, or never."""
    costs = [_costs(shape, seed) for shape in ("general", "hybrid") for seed in WORLDS]
    plain = sum(each == {1} for each in costs)
    assert len(costs) / 4 < plain < len(costs) * 3 / 4
    assert set.union(*costs) == set(range(1, WOVEN_COST_MAX + 1))
    assert all(_costs("acyclic", seed) == {1} for seed in WORLDS)


def _costs(shape: str, seed: int) -> set[int]:
    script = weave(make_script(seed, Kind(shape, Strategy.SUBSCRIPTIONS)))  # type: ignore[arg-type]
    return {step.cost for step in script.steps if isinstance(step, Connect)}


def test_patterns_change_and_the_time_is_announced() -> None:
    """Worlds would ignore patterns, or test only them."""
    kind = Kind("acyclic", Strategy.ADVERTISEMENTS)
    scripts = [weave(make_script(seed, kind)) for seed in WORLDS]
    wishes = [[step for step in each.steps if isinstance(step, AddPattern)] for each in scripts]
    assert len(scripts) / 4 < sum(map(bool, wishes)) < len(scripts)
    patterns = [Pattern(wish.pattern) for each in wishes for wish in each]
    for has in (lambda each: bool(each.by), lambda each: each.every, lambda each: each.within_us):
        assert 0 < sum(bool(has(each)) for each in patterns) < len(patterns)
    steps = [step for each in scripts for step in each.steps]
    assert any(isinstance(step, DropPattern) for step in steps)
    assert any(isinstance(step, AdvanceTime) for step in steps)


def test_weaving_is_a_function_of_the_script() -> None:
    """A failed world could not be run again."""
    for seed in WORLDS:
        script = make_script(seed, Kind("hybrid", Strategy.FLOODING))
        assert weave(script) == weave(script) == from_text(to_text(weave(script)), "text")


def test_a_script_without_costs_is_read() -> None:
    """Stored scripts could not be run any more."""
    script = make_script(3, Kind("general", Strategy.SUBSCRIPTIONS))
    text = to_text(script)
    assert from_text(text.replace(',"cost":1', ""), "text") == script
    assert text.count(',"cost":1')
