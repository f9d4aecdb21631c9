"""`run_world`: the result of a world; `shrink`: the shortest script with a fault."""

from dataclasses import dataclass
from time import monotonic
from typing import Final, get_args

import msgspec

from contrada.lab.simulation.oracle import Outcome
from contrada.lab.simulation.script_maker import make_script, weave
from contrada.lab.simulation.script_steps import Kind, NetworkShape, Script, Step, to_text
from contrada.lab.simulation.world import run
from contrada.routing.router import Strategy

WORLDS_DEFAULT: Final = 60
"""Worlds of each kind by default."""

SHRINK_RUNS_MAX: Final = 3_000
"""Runs in search of a shorter script. Beyond it: the shortest so far is returned."""

SHAPES: Final[tuple[NetworkShape, ...]] = get_args(NetworkShape)

SAVINGS: Final = ((False, False), (True, False), (True, True))
"""Whether servers cover, and whether they merge forwarded filters, which needs covering."""


def kinds(only: str = "") -> list[Kind]:
    """Returns all kinds of networks, or those with a text in their name."""
    every = [
        Kind(shape, strategy, covering, merging)
        for shape in SHAPES
        for strategy in Strategy
        for covering, merging in SAVINGS
    ]
    # One combination of savings each: for shared trees the others make no difference.
    every += [
        Kind(shape, strategy, merging=trees > 1, trees=trees)
        for shape in ("general", "hybrid")
        for strategy in Strategy
        for trees in (1, 2)
    ]
    # Shipments follow link states, so the routing strategy makes no difference.
    every += [Kind(shape, Strategy.SUBSCRIPTIONS, reliable=True) for shape in SHAPES]
    every += [Kind("central", Strategy.SUBSCRIPTIONS, reliable=True, standby=True)]
    return [kind for kind in every if only in kind.name]


class WorldPlan(msgspec.Struct, frozen=True):
    """A world: a seed of a kind."""

    kind: Kind
    seed: int


@dataclass(frozen=True, slots=True)
class WorldResult:
    """The result of a world."""

    kind: Kind
    seed: int
    brokers: int
    outcome: Outcome
    seconds: float


def run_world(plan: WorldPlan) -> WorldResult:
    """Makes the world of a plan, and runs it."""
    begun = monotonic()
    script = weave(make_script(plan.seed, plan.kind))
    outcome = run(script)
    return WorldResult(plan.kind, plan.seed, script.brokers, outcome, monotonic() - begun)


def shortest(ran: WorldResult) -> str:
    """Returns the shortest failing script of a world, as JSON."""
    return to_text(shrink(weave(make_script(ran.seed, ran.kind))))


def shrink(script: Script) -> Script:
    """Returns the shortest script found with the same kind of first violation.

    Delta debugging leaves out halves, then quarters, down to single steps, until no single step can
    be left out. The method is that of Zeller and Hildebrandt, 2002.
    """
    violations = run(script).violations
    assert violations, "only a failing script can be shrunk"
    what, left = violations[0].what, SHRINK_RUNS_MAX

    def fails(steps: list[Step]) -> bool:
        nonlocal left
        left -= 1
        found = run(script.with_steps(steps)).violations
        return any(each.what == what for each in found)

    steps = list(script.steps)
    parts = 2
    while steps and left > 0:
        size = -(-len(steps) // parts)
        for start in range(0, len(steps), size):
            shorter = steps[:start] + steps[start + size :]
            if left > 0 and fails(shorter):
                steps, parts = shorter, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(steps), 2 * parts)
    return script.with_steps(steps)
