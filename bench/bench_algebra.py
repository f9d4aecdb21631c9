"""The algebra: covering, parsing, building, simplifying, and the memory of a filter.

Filters have five constraints on five of eight attributes. Decisions about text are never asked
twice: each pair of constants in the substring figure is new, while the automata of the constants
have been built before.
"""

import gc
import random
import string
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import cycle
from time import process_time
from typing import Final, TypeVar

from bench.harness import Measurement, figure
from contrada.model import Filter, ValueSet
from contrada.model.algebra import relations, sets
from contrada.model.algebra.simplification import simplify
from contrada.model.languages import decision

_T = TypeVar("_T")

NAMES: Final = tuple(f"attribute{number}" for number in range(8))
CONSTRAINTS: Final = 5
SUBSTRING_BYTES_MAX: Final = 12
SUBSTRINGS: Final = 1_000
PER_SAMPLE: Final = 200
SAMPLES: Final = 100
MIXED: Final = 10_000


def interval_set(chance: random.Random) -> ValueSet:
    """One constraint: a bound, a range, an equality or a prefix."""
    number = chance.randrange(1_000)
    word = "".join(chance.choices(string.ascii_lowercase, k=4))
    return chance.choice(
        (
            lambda: sets.lt(number),
            lambda: sets.ge(number / 7),
            lambda: sets.between(number, number + 100),
            lambda: sets.eq(number),
            lambda: sets.prefix(word[: chance.randint(1, 4)]),
        )
    )()


def nested_sets(chance: random.Random) -> tuple[ValueSet, ValueSet]:
    """A set and one inside it."""
    number = chance.randrange(1_000)
    word = "".join(chance.choices(string.ascii_lowercase, k=4))
    return chance.choice(
        (
            lambda: (sets.lt(number + 5), sets.lt(number)),
            lambda: (sets.ge(number / 7), sets.eq(number)),
            lambda: (sets.between(number, number + 100), sets.between(number + 10, number + 90)),
            lambda: (sets.prefix(word[:2]), sets.prefix(word)),
            lambda: (sets.ne(number), sets.gt(number)),
        )
    )()


def pairs(number: int) -> list[tuple[Filter, Filter]]:
    """Pairs of filters of five constraints on the same attributes; the first covers every second.

    Of the others it fails to cover one attribute, the last, so that all five are looked at.
    """
    chance = random.Random(1)
    made = []
    for place in range(number):
        names = sorted(chance.sample(NAMES, CONSTRAINTS))
        sides = [nested_sets(chance) for _ in names]
        if place % 2:
            sides[-1] = (sets.lt(0), sets.gt(0))
        f, g = zip(*sides, strict=True)
        made.append(
            (Filter(dict(zip(names, f, strict=True))), Filter(dict(zip(names, g, strict=True))))
        )
    return made


def timed(call: Callable[[_T], object], inputs: Sequence[_T]) -> Measurement:
    """Seconds per call, each input once, `PER_SAMPLE` calls to a sample; warmed up by some."""
    warm, measured = inputs[:PER_SAMPLE], inputs[PER_SAMPLE:]
    for each in warm:
        call(each)
    gc.collect()
    gc.disable()
    samples = []
    try:
        for start in range(0, len(measured), PER_SAMPLE):
            batch = measured[start : start + PER_SAMPLE]
            begun = process_time()
            for each in batch:
                call(each)
            samples.append((process_time() - begun) / len(batch))
    finally:
        gc.enable()
    return Measurement(samples)


@figure(
    name="algebra_covers_intervals",
    unit="us",
    workload="covers of two filters of five interval constraints, half of them covered",
    at_most=5.0,
)
def covers_intervals() -> Measurement:
    """All five attributes are looked at."""
    return timed(lambda pair: relations.covers(*pair), pairs(PER_SAMPLE * SAMPLES))


def substring(chance: random.Random) -> str:
    """Up to twelve letters of four."""
    return "".join(chance.choices("aest", k=chance.randint(2, SUBSTRING_BYTES_MAX)))


def substring_pairs(number: int) -> list[tuple[Filter, Filter]]:
    """As `pairs`, where one attribute of each has a substring; no two pairs ask the same."""
    chance = random.Random(2)
    constants = sorted({substring(chance) for _ in range(SUBSTRINGS)})
    asked: set[tuple[str, str]] = set()
    made = []
    for f, g in pairs(number):
        inner, outer = _new_pair(chance, constants, asked)
        made.append((_with_text(f, outer), _with_text(g, inner)))
    return made


def _new_pair(
    chance: random.Random, constants: Sequence[str], asked: set[tuple[str, str]]
) -> tuple[str, str]:
    """A constant and, in every second pair, a part of it, that were not asked together before."""
    while True:
        inner = chance.choice(constants)
        outer = chance.choice(constants)
        if chance.random() < 0.5:
            start = chance.randrange(len(inner))
            outer = inner[start : chance.randint(start + 1, len(inner))]
        if (inner, outer) not in asked:
            asked.add((inner, outer))
            return inner, outer


def _with_text(of: Filter, constant: str) -> Filter:
    """The text is the first attribute by name, so every pair decides it."""
    return Filter({**dict(list(of.sets.items())[1:]), "a": sets.contains(constant)})


@figure(
    name="algebra_covers_substrings",
    unit="us",
    workload="the same with one substring of up to 12 letters each; constants seen, pairs new",
    at_most=100.0,
)
def covers_substrings() -> Measurement:
    """Automata are built beforehand; decisions are not."""
    asked = substring_pairs(PER_SAMPLE * 20)
    for value_set in [f.sets["a"] for pair in asked for f in pair]:
        value_set.meets(sets.suffix("zz"))
    decision.find.cache_clear()
    return timed(lambda pair: relations.covers(*pair), asked)


def filter_text(chance: random.Random) -> str:
    """A five-constraint filter as a person writes it."""
    first, *names = chance.sample(NAMES, CONSTRAINTS)
    number, word = chance.randrange(1_000), substring(chance)
    phrases = (
        f"= '{word}'",
        f">= {number}",
        f"between {number} and {number + 10}",
        f"prefix '{word[:3]}'",
        f"!= {number / 8}",
    )
    chosen = chance.sample(phrases, CONSTRAINTS)
    return " and ".join(f"{n} {p}" for n, p in zip((first, *names), chosen, strict=True))


@figure(
    name="algebra_parse",
    unit="us",
    workload="parse a filter of five constraints, each text new",
    at_most=250.0,
)
def parse_filters() -> Measurement:
    """From text."""
    chance = random.Random(3)
    return timed(Filter, [filter_text(chance) for _ in range(PER_SAMPLE * 20)])


@figure(
    name="algebra_build",
    unit="us",
    workload="build a filter of five constraints from Python values",
    at_most=20.0,
)
def build_filters() -> Measurement:
    """The constraints are built within the time as well."""
    constants = cycle([(n, f"word{n}") for n in range(1_000)])

    def build(names: list[str]) -> Filter:
        number, word = next(constants)
        a, b, c, d, e = names
        return Filter(
            {
                a: sets.lt(number),
                b: word,
                c: sets.between(number, number + 10),
                d: sets.prefix(word),
                e: number / 8,
            }
        )

    chance = random.Random(4)
    given = [chance.sample(NAMES, CONSTRAINTS) for _ in range(PER_SAMPLE * SAMPLES)]
    return timed(build, given)


def mixed_filters(number: int) -> list[Filter]:
    """One to five constraints, intervals and, in every tenth, a substring; some cover others."""
    chance = random.Random(5)
    made = []
    for place in range(number):
        names = chance.sample(NAMES, chance.randint(1, CONSTRAINTS))
        given = {name: interval_set(chance) for name in names}
        if place % 10 == 0:
            given["text"] = sets.contains(substring(chance))
        made.append(Filter(given))
    return made


@figure(
    name="algebra_simplify",
    unit="s",
    workload=f"simplify {MIXED:,} mixed filters of one to five constraints",
    at_most=10.0,
)
def simplify_mixed() -> Measurement:
    """New filters each time; nothing cached of the text decisions."""
    samples = []
    for _ in range(2):
        filters = mixed_filters(MIXED)
        decision.find.cache_clear()
        begun = process_time()
        simplify(filters)
        samples.append(process_time() - begun)
    return Measurement(samples)


@figure(
    name="algebra_filter_bytes",
    unit="bytes",
    workload=f"memory of a filter of five constraints, over {MIXED:,} parsed ones",
    at_most=2048.0,
)
def filter_bytes() -> Measurement:
    """As tracemalloc counts it; the texts are not kept."""
    chance = random.Random(6)
    texts = [filter_text(chance) for _ in range(MIXED)]
    Filter(texts[0])
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        filters = [Filter(text) for text in texts]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return Measurement([(after - before) / len(filters)])
