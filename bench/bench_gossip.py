"""The speed of simulations and calculations of gossip groups.

A dissemination is `hpmcast` to a half of the participants, F = 2, R = 3, l = 3, with Numba. Ten
million are run in a process of their own, whose memory counts.
"""

import itertools
from time import process_time
from typing import Final

from bench.harness import Measurement, figure, time_per_call
from bench.programs import measured
from contrada.gossip.parameters import Parameters
from contrada.lab.analysis import refined_equations
from contrada.lab.analysis.markov_chain import reach, spread
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, disseminate
from contrada.lab.simulation.process_pool import in_processes

TEN_THOUSAND: Final = Parameters(branching=22)
MILLION: Final = Parameters(branching=100)
TEN_MILLION: Final = Parameters(branching=216)

ALONE: Final = """
import json, resource, time
from contrada.gossip.parameters import Parameters
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, disseminate
disseminate(GossipPlan(Parameters(branching=5), 0.5, 0))
begun = time.process_time()
outcome = disseminate(GossipPlan(Parameters(branching=216), 0.5, 1))
spent = time.process_time() - begun
assert outcome.reliability > 0.99
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"run_s": spent, "peak_bytes": peak}))
"""


def dissemination(parameters: Parameters, repeats: int) -> Measurement:
    """Seconds of one run, of other seeds."""
    numbers = itertools.count()
    return Measurement(
        time_per_call(
            lambda: disseminate(GossipPlan(parameters, 0.5, 0, next(numbers))),
            inner=1,
            repeats=repeats,
        )
    )


@figure(name="gossip/10k", unit="ms", workload="one dissemination at n = 10,648", at_most=50)
def ten_thousand() -> Measurement:
    return dissemination(TEN_THOUSAND, 100)


@figure(name="gossip/1m", unit="s", workload="one dissemination at n = 1,000,000", at_most=5)
def million() -> Measurement:
    return dissemination(MILLION, 5)


@figure(name="gossip/10m", unit="s", workload="one dissemination at n = 10,077,696", at_most=60)
def ten_million() -> Measurement:
    return measured("run_s", "-c", ALONE, runs=3)


@figure(
    name="gossip/10m-memory",
    unit="GB",
    workload="memory: one dissemination at n = 10,077,696, with all that is imported",
    at_most=8,
)
def ten_million_memory() -> Measurement:
    return measured("peak_bytes", "-c", ALONE, runs=1, unit=1e9)


@figure(
    name="gossip/sweep",
    unit="s",
    workload="1,000 runs at n = 10,648, p₁ from 0.1 to 1, on two processes that begin",
    at_most=60,
)
def sweep() -> Measurement:
    plans = [GossipPlan(TEN_THOUSAND, (1 + run % 10) / 10, 0, run) for run in range(1_000)]
    begun = process_time()
    outcomes = list(in_processes(disseminate, plans, 2))
    spent = process_time() - begun
    assert len(outcomes) == len(plans)
    return Measurement([spent])


@figure(
    name="gossip/refined",
    unit="s",
    workload="refined analysis at n = 10,648, p₁ = 0.2, nothing kept from before",
)
def analysis() -> Measurement:
    def calculate() -> float:
        refined_equations._spread.cache_clear()
        refined_equations._first.cache_clear()
        return refined_equations.reliability(TEN_THOUSAND, 0.2)

    return Measurement(time_per_call(calculate, inner=1, repeats=5))


@figure(
    name="gossip/chain", unit="s", workload="the chain of 10,000 in one group, 15 rounds, F = 2"
)
def chain() -> Measurement:
    p = reach(10_000, 2)
    return Measurement(time_per_call(lambda: spread(10_000, p, 15), inner=1, repeats=3))
