"""`add_deadlines`: adds times to live, priorities and pauses of reading to a script.

They have a random generator of their own, so the rest of a script does not change with them.
"""

import random
from typing import Final

from msgspec.structs import replace

from contrada.lab.simulation.script_steps import Pause, PublishStep, Resume, Script, Step

TTLS_US: Final = (2_000, 20_000, 200_000, 2_000_000, 20_000_000)
"""From less than the delay of a link to more than a rest of a made world."""


def add_deadlines(script: Script) -> Script:
    """Returns a script with deadlines; half of all scripts stay without."""
    chance = random.Random(f"haste {script.seed} {script.kind.name}")
    if chance.random() < 0.5:
        return script
    clients = sorted({step.client for step in script.steps if isinstance(step, PublishStep)})
    steps: list[Step] = []
    for each in script.steps:
        step = each
        if isinstance(step, PublishStep):
            ttl_us = chance.choice((None, *TTLS_US))
            step = replace(step, ttl_us=ttl_us, priority=chance.choice((0, 4, 4, 7, 9)))
        steps.append(step)
        if clients and chance.random() < 0.3:
            turn = chance.choice((Pause, Pause, Pause, Pause, Resume))
            steps.append(turn(step.at_us, chance.choice(clients)))
    return script.with_steps(steps)
