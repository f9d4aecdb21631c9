"""Lifting: a predicate of three comparisons becomes filters, each time anew.

The code of a predicate is analysed the first time only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.harness import Measurement, figure, time_per_call
from contrada.typed.predicates import lift
from contrada.typed.shapes import shape_of

PER_SAMPLE = 100
SAMPLES = 30


@dataclass
class Quoted:
    """An obvent to filter."""

    company: str
    price: float
    amount: int


def measured(predicate: Callable[[Any], object]) -> Measurement:
    """Seconds to lift a predicate."""
    shape = shape_of(Quoted)
    lifted = lift(shape, predicate)
    assert lifted.is_exact, lifted.explain()
    return Measurement(
        time_per_call(lambda: lift(shape, predicate), inner=PER_SAMPLE, repeats=SAMPLES)
    )


@figure(
    name="typed/lifting-and",
    unit="us",
    at_most=150,
    workload='lift `lambda q: 80 < q.price < 100 and "Telco" in q.company`, an exact filter',
)
def lifting_and() -> Measurement:
    return measured(lambda q: 80 < q.price < 100 and "Telco" in q.company)


@figure(
    name="typed/lifting-or",
    unit="us",
    at_most=150,
    workload='lift `lambda q: q.price < 1 or q.amount == 3 or q.company == "a"`, three filters',
)
def lifting_or() -> Measurement:
    return measured(lambda q: q.price < 1 or q.amount == 3 or q.company == "a")


@figure(
    name="typed/lifting-arithmetic",
    unit="us",
    workload="lift `lambda q: (q.price * 1.1 - 3) / 2 >= 10`, a bound found by halving",
)
def lifting_arithmetic() -> Measurement:
    return measured(lambda q: (q.price * 1.1 - 3) / 2 >= 10)
