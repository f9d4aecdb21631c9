"""`shrink`: the shortest script that still shows a fault, by leaving out steps.

Delta debugging: halves are left out first, then quarters, down to single steps, until no single
step can be left out. So the result is minimal in that sense, within a bound on runs. The method is
that of Zeller and Hildebrandt, 2002.
"""

from typing import Final

from contrada.lab.simulation.script_steps import Script, Step
from contrada.lab.simulation.world import run

SHRINK_RUNS_MAX: Final = 3_000
"""Runs in search of a shorter script. Beyond it: the shortest so far is returned."""


def shrink(script: Script) -> Script:
    """Returns the shortest script found with the same kind of first violation."""
    violations = run(script).violations
    assert violations, "only what fails can be shrunk"
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
