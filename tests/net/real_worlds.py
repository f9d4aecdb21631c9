"""Many real worlds, one after the other.

Of each seed a mesh and a hierarchy of nine brokers on loopback, and a mesh of five in namespaces,
where these may be made.

    make networks SEEDS=20 SECONDS=600 FIRST=100
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from contrada.lab.simulation.oracle import Outcome
from tests.net.namespaces import describe_os_error, namespaces
from tests.net.real_plan import Plan, planned
from tests.net.real_world import HIERARCHY, MESH, NINE, PARTED, SERVE, Loopback, outcome_of

FIVE: Final = 5
"""Brokers that have a namespace each."""

BURSTS: Final = 3
STEPS: Final = 250
"""Bursts of a world, and steps of each."""


def on_loopback(plan: Plan) -> Outcome:
    """Returns the outcome of a plan on loopback."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(outcome_of(plan, Path(folder), Loopback(plan), SERVE))


def in_namespaces(plan: Plan) -> Outcome:
    """Returns the outcome of a plan with links that can be cut."""
    with tempfile.TemporaryDirectory() as folder, namespaces(plan.brokers, plan.links) as machines:
        return asyncio.run(outcome_of(plan, Path(folder), machines, PARTED))


def main(first: int, seeds: int, seconds: float) -> int:
    """So many seeds, or as many as begin within so many seconds; 1 where one does not hold."""
    reason, status, until_s = describe_os_error(), 0, time.monotonic() + seconds
    if reason is not None:
        print(f"none in namespaces: {reason}")  # noqa: T201 - a command
    for seed in range(first, first + seeds):
        plans = [planned(seed, kind, NINE, BURSTS, each=STEPS) for kind in (MESH, HIERARCHY)]
        if reason is None:
            plans.append(planned(seed, MESH, FIVE, BURSTS, each=STEPS, cuts=True))
        for plan in plans:
            if time.monotonic() > until_s:
                return status
            found = (in_namespaces if plan.brokers == FIVE else on_loopback)(plan)
            told = f"must {found.must}, delivered {found.delivered}, published {found.published}"
            print(f"seed {seed}, {plan.brokers} brokers, {plan.kind.name}: {told}")  # noqa: T201
            if found.violations:
                status = 1
                print(plan.shown(), *found.violations, sep="\n")  # noqa: T201
            sys.stdout.flush()
    return status


if __name__ == "__main__":
    asked = dict(each.split("=") for each in sys.argv[1:])
    sys.exit(main(int(asked["FIRST"]), int(asked["SEEDS"]), float(asked["SECONDS"])))
