"""The possible gain of evaluating the common part of many rules once: their log source.

An index per log source holds the rest of its rules; another index finds the log sources of an
event. Their times together, less the repeated reading of the event, are a lower bound for an index
that evaluates each log source once.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from time import thread_time
from typing import Any, Final, NamedTuple

from bench.bench_matching import DATA
from bench.harness import Measurement, figure
from contrada.matching.array_engine import ArrayEngine
from contrada.matching.index import Index
from contrada.matching.kernels import match as checking
from contrada.model import Filter
from contrada.model.algebra.notification import UNSTAMPED
from tests.matching import rules_sigma

LOG_SOURCE: Final = frozenset({"Channel", "EventID", "Provider_Name", "SourceName"})
EVENTS: Final = 20_000
ROUNDS: Final = 5


class Call(NamedTuple):
    """A match by kernels alone: the function, and the event as bytes."""

    match: Callable[[bytes, Any], int]
    message: bytes
    memory: Any


def call(index: Index[int], event: Any) -> Call:
    """The call that `Index.match` makes."""
    engine = index._engine
    assert isinstance(engine, ArrayEngine)
    return Call(checking.match, engine._message(event, UNSTAMPED), engine._segment.arrays.memory)


def seconds(calls: Iterable[Call]) -> float:
    """Of all the calls."""
    each = list(calls)
    begun = thread_time()
    for match, message, memory in each:
        assert match(message, memory) >= 0
    return thread_time() - begun


class Parted:
    """The same filters in one index, and in one index for each log source."""

    def __init__(self) -> None:
        self.whole: Index[int] = Index()
        self.sources: Index[int] = Index()
        self.parts: dict[int, Index[int]] = defaultdict(lambda: Index())
        self._numbers: dict[str, int] = {}

    def add(self, key: int, of: Filter) -> None:
        """Adds a filter to all."""
        source = Filter({name: of.sets[name] for name in LOG_SOURCE & of.sets.keys()})
        number = self._numbers.setdefault(str(source), len(self._numbers))
        rest = Filter({name: of.sets[name] for name in of.sets.keys() - LOG_SOURCE})
        self.whole.add(key, of)
        self.sources.add(number, source)
        self.parts[number].add(key, rest)

    def check(self, events: list[Any]) -> None:
        """Both give the same keys. Afterwards all arrays have the room that the events need."""
        for event in events:
            parts = [self.parts[number] for number in self.sources.match(event)]
            parted = [key for part in parts for key in part.match(event)]
            assert sorted(parted) == sorted(self.whole.match(event))

    def renew(self) -> None:
        """Chooses places by the events seen."""
        for index in (self.whole, self.sources, *self.parts.values()):
            index.renew()


if DATA.exists():

    @figure(
        name="matching/sigma-shared",
        unit="times",
        workload="31,265 Sigma conjunctions: a match against one that would evaluate each of the "
        "256 log sources once, at best",
    )
    def shared_log_sources() -> Measurement:
        parted = Parted()
        rules = rules_sigma.rules(DATA / "sigma" / "sigma_filters.jsonl.gz")
        for key, each in enumerate(each for rule in rules for each in rule.matches.filters):
            parted.add(key, each)
        files = rules_sigma.event_files(DATA / "windows_events")
        events = [event for path in files for event in rules_sigma.events(path)]
        random.Random(5).shuffle(events)
        parted.check(events[:EVENTS])
        parted.renew()
        measured = events[EVENTS : 2 * EVENTS]
        parted.check(measured)
        reading: Index[int] = Index()
        reading.add(0, Filter({"an attribute of no event": 1}))
        reading.match({})
        whole = [call(parted.whole, event) for event in measured]
        again = [
            (call(parted.parts[number], event), call(reading, event))
            for event in measured
            for number in parted.sources.match(event)
        ]
        sources = [call(parted.sources, event) for event in measured]
        samples = []
        for _ in range(ROUNDS):
            begun = thread_time()
            for event in measured:
                parted.whole.match(event)
            matching = thread_time() - begun
            best = seconds(sources) + seconds(part for part, _ in again)
            best -= seconds(read for _, read in again)
            samples.append(matching / (matching - seconds(whole) + best))
        return Measurement(samples)
