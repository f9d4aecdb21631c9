"""Links of different costs in worlds: required deliveries, and the detection of a wrong cost."""

import pytest
from msgspec.structs import replace

from contrada.lab.simulation.script_maker import make_script, weave
from contrada.lab.simulation.script_steps import (
    AddFilter,
    Connect,
    CutLine,
    Kind,
    Move,
    PublishStep,
    Script,
    Step,
)
from contrada.lab.simulation.simulated_line import SILENCE_US, Faults
from contrada.lab.simulation.world import run
from contrada.routing.links.link_states import LinkStates
from contrada.routing.links.shortest_paths import downstream_neighbours, weights_of
from contrada.routing.links.topology import Topology
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Neighbour, NextHop, Role

KIND = Kind("general", Strategy.SUBSCRIPTIONS)
SETTLED_US = 10_000_000


@pytest.mark.parametrize(
    ("cost", "cut", "must"), [(1, (0, 1), 0), (3, (0, 1), 1), (1, (1, 2), 1), (3, (1, 2), 0)]
)
def test_required_deliveries_follow_the_costs_of_links(
    cost: int, cut: tuple[int, int], must: int
) -> None:
    """A fault on the path would be blamed on a server, or one off the path would excuse it.

    From 0 to 1 there are a direct link and two by way of 2, each of cost 1. While the notification
    travels, one or the other is closed.
    """
    steps: list[Step] = [
        Connect(0, 0, 1, False, SILENCE_US, cost),
        Connect(0, 0, 2, False, SILENCE_US),
        Connect(0, 1, 2, False, SILENCE_US),
        Move(0, "p", 0),
        Move(0, "s", 1),
        AddFilter(0, "s", "wish", "a any"),
        CutLine(SETTLED_US, *cut),
        PublishStep(SETTLED_US + SILENCE_US - 1, "p", "n", {"a": 1}),
        Move(SETTLED_US + 10 * SILENCE_US, "s", 1),
    ]
    outcome = run(Script(0, KIND, 3, Faults(), tuple(steps)))
    assert not outcome.violations
    assert outcome.must - 1 == must  # One is published again at the end.


@pytest.mark.slow
def test_a_server_for_which_all_links_cost_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Worlds would pass though servers disagree on shortest paths."""
    choose = Topology._choose_links

    def choose_by_number(self: Topology, states: LinkStates) -> None:
        choose(self, states)
        if self.name == "0":
            used = (edge for edge in states.graph.used if edge.role is Role.PEER)
            self._mesh = weights_of(replace(edge, cost=1) for edge in used)
            self._trees = {
                owner: frozenset(NextHop(Neighbour(name), owner) for name in below)
                for owner, below in downstream_neighbours(self._mesh, self.name).items()
            }

    monkeypatch.setattr(Topology, "_choose_links", choose_by_number)
    scripts = (weave(make_script(seed, KIND, 10)) for seed in range(20))
    script = next(script for script in scripts if _loses(script))
    alike = [replace(each, cost=1) if isinstance(each, Connect) else each for each in script.steps]
    assert not run(script.with_steps(alike)).violations
    monkeypatch.undo()
    assert not run(script).violations


def _loses(script: Script) -> bool:
    return any(violation.what == "lost" for violation in run(script).violations)
