"""The index of subscriptions: how long a match takes, an update, and how much memory a filter.

Time is CPU time of the one thread that works, from a Python dict to a Python list of keys, so that
what else runs on the machine matters little. Keys are integers. Each figure's peer gets the same
notifications in the same run, and its answers are compared with the index's own.

The rule sets and events of the last figures are not part of the project; where they are absent,
those figures are left out. So are peers that are not installed.
"""

import gc
import itertools
import os
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from time import thread_time
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from bench import matching_peers as peers
from bench import matching_workloads as workloads
from bench.harness import Measurement, figure
from bench.matching_workloads import Attributes, Workload
from contrada.matching.index import Index
from tests.matching import rules_sigma

REPOSITORY: Final = Path(__file__).resolve().parents[1]
SAMPLES: Final = 15
FIRST_SAMPLES: Final = 3
PEER_SECONDS_MAX: Final = 0.1
"""A sample of a peer ends after this time."""
WARM_UP: Final = 1_000
DRIFTED: Final = 400_000
MILLION: Final = 1_000_000

Match = Callable[[Attributes], Any]


# --- how ------------------------------------------------------------------------------------------


def index_of(workload: Workload) -> Index[int]:
    """The workload's filters under their numbers."""
    index: Index[int] = Index()
    for number, each in enumerate(workload.filters()):
        index.add(number, each)
    return index


def seconds_each(match: Match, notifications: Sequence[Attributes]) -> float:
    """Mean seconds per notification."""
    begun = thread_time()
    for notification in notifications:
        match(notification)
    return (thread_time() - begun) / len(notifications)


def seconds_of_some(match: Match, notifications: Sequence[Attributes]) -> float:
    """The same over as many as `PEER_SECONDS_MAX` allows, one at least."""
    begun = thread_time()
    done = 0
    for notification in notifications:
        match(notification)
        done += 1
        if thread_time() - begun > PEER_SECONDS_MAX:
            break
    return (thread_time() - begun) / done


def against(
    index: Index[int], workload: Workload, peer: Any = None, *, matches: float
) -> Measurement:
    """Seconds per match beside a peer's; checks how many filters match.

    A sample is all notifications but those to warm up with; of a peer a part of them.
    """
    warm, measured = workload.notifications[:WARM_UP], workload.notifications[WARM_UP:]
    found = [len(index.match(each)) for each in warm]
    assert 0.8 * matches <= mean(found) <= 1.2 * matches, f"{mean(found)} matches a notification"
    if peer is not None:
        for notification in warm[:3]:
            assert sorted(peer.match(notification)) == sorted(index.match(notification))
    own, other = [], []
    gc.collect()
    gc.disable()
    try:
        for sample in range(SAMPLES):
            own.append(seconds_each(index.match, measured))
            if peer is not None:
                some = measured[sample * len(measured) // SAMPLES :]
                other.append(seconds_of_some(peer.match, some))
    finally:
        gc.enable()
    return Measurement(own, None if peer is None else peer.name, other)


def beside_sqlite(workload: Workload, *, matches: float, by_equality: bool = True) -> Measurement:
    """The workload's figure, with SQLite as its peer."""
    peer = peers.Sqlite(workload.conjunctions(), by_equality=by_equality)
    return against(index_of(workload), workload, peer, matches=matches)


# --- a million ------------------------------------------------------------------------------------


class Million(NamedTuple):
    """An index of a million filters; the seconds of each tenth of it, and of its longest add."""

    matcher: Index[int]
    workload: Workload
    tenths: tuple[float, ...]
    longest: float


@cache
def million() -> Million:
    """Built once and shared by the figures."""
    workload = workloads.three_constraints(MILLION)
    index: Index[int] = Index()
    index.match({})
    tenths: list[float] = [0.0] * 10
    longest = 0.0
    number = itertools.count()
    for i, chunk in enumerate(workloads.chunks(workload.filters(), 10_000)):
        begun = before = thread_time()
        for each in chunk:
            index.add(next(number), each)
            now = thread_time()
            longest, before = max(longest, now - before), now
        tenths[i * 10 * 10_000 // MILLION] += before - begun
    return Million(index, workload, tuple(tenths), longest)


@figure(
    name="matching/build-million",
    unit="s",
    workload="add 1,000,000 filters of three constraints, made beforehand",
    at_most=60.0,
)
def build_million() -> Measurement:
    return Measurement([sum(million().tenths)])


@figure(
    name="matching/build-is-linear",
    unit="times",
    workload="the last 100,000 of them against the first 100,000",
    at_most=2.0,
)
def build_is_linear() -> Measurement:
    tenths = million().tenths
    return Measurement([tenths[-1] / tenths[0]])


@figure(
    name="matching/build-longest-add",
    unit="ms",
    workload="the longest single add of them: hash tables grow in slices, small arrays are copied",
    at_most=20.0,
)
def build_longest_add() -> Measurement:
    return Measurement([million().longest])


@figure(
    name="matching/million",
    unit="us",
    workload="1,000,000 filters (1 equality, 2 ranges, zipf over 100 attributes); 10 attributes, "
    "~7 matches",
    at_most=12.0,
)
def of_million() -> Measurement:
    index, workload, *_ = million()
    return against(index, workload, peers.Sqlite(workload.conjunctions()), matches=7.0)


@figure(
    name="matching/million-batch",
    unit="us",
    workload="the same, a batch of 1,000 from an Arrow table",
    at_most=3.0,
)
def of_million_in_batches() -> Measurement:
    index, workload, *_ = million()
    batch = list(workload.notifications[:1_000])
    table = pa.Table.from_pylist(batch, pa.schema([(f"name{n:03}", "int64") for n in range(100)]))
    index.match_batch(table)
    return Measurement(
        [seconds_each(lambda _: index.match_batch(table), [{}]) / 1_000 for _ in range(5)]
    )


# --- from the first notification ------------------------------------------------------------------


def first_calls(kind: Callable[[int], Workload], size: int, at_once: int) -> list[float]:
    """Seconds per match of a new index, for its first notifications, so many of them together."""
    workload = kind(size)
    index, given = index_of(workload), workload.notifications
    gc.collect()
    gc.disable()
    try:
        parts = [given[i : i + at_once] for i in range(0, len(given), at_once)]
        return [seconds_each(index.match, part) for part in parts]
    finally:
        gc.enable()


def _first(name: str, kind: Callable[[int], Workload], size: int, at_most: float) -> None:
    """Defines the figures of a workload; each sample is of a new index."""
    indices = 1 if size == MILLION else FIRST_SAMPLES
    workload = f"{kind.__name__.replace('_', ' ')}, {size:,} filters, the first notifications"

    @figure(name=f"matching/first/{name}", unit="us", workload=workload, at_most=at_most)
    def first() -> Measurement:
        return Measurement([mean(first_calls(kind, size, 100)) for _ in range(indices)])

    @figure(
        name=f"matching/longest/{name}",
        unit="ms",
        workload=f"{workload}: the longest match",
        at_most=2.0,
    )
    def longest() -> Measurement:
        return Measurement([max(first_calls(kind, size, 1))])

    globals()[f"first_{name}"], globals()[f"longest_{name}"] = first, longest


def unequal_10(size: int) -> Workload:
    """`=` of 100 and `!=` of 1,000."""
    return workloads.compared(size, "!=")


for _name, _kind, _size, _at_most in (
    ("equalities-10,000", workloads.equalities, 10_000, 2.5),
    ("equalities-100,000", workloads.equalities, 100_000, 2.5),
    ("three-constraints-10,000", workloads.three_constraints, 10_000, 6.0),
    ("rare-ranges-10,000", workloads.rare_ranges, 10_000, 2.0),
    ("unequal-10,000", unequal_10, 10_000, 4.0),
    ("mixed-10,000", workloads.mixed, 10_000, 5.0),
    ("wide-ranges-10,000", workloads.wide_ranges, 10_000, 8.0),
    ("million", workloads.three_constraints, MILLION, 6.0),
):
    _first(_name, _kind, _size, _at_most)


# --- spans of msgpack -----------------------------------------------------------------------------


@figure(
    name="matching/spans",
    unit="us",
    workload="10,000 filters of two equalities on four attributes, lists of 100 spans",
)
def of_spans() -> Measurement:
    workload = workloads.equalities(10_000)
    index = index_of(workload)
    batches = [workload.notifications[i : i + 100] for i in range(0, 4_000, 100)]
    encode = msgspec.msgpack.Encoder().encode
    spans: Any = [list(map(encode, batch)) for batch in batches]
    columns: Any = [pa.Table.from_pylist(list(batch)) for batch in batches]
    for batch, table in zip(spans, columns, strict=True):
        assert len(index.match_spans(batch)[1]) == len(index.match_batch(table)[1])
    own, other = [], []
    for _ in range(SAMPLES):
        own.append(seconds_each(index.match_spans, spans) / 100)
        other.append(seconds_each(index.match_batch, columns) / 100)
    return Measurement(own, "columns", other)


# --- growth ---------------------------------------------------------------------------------------


@figure(
    name="matching/growth",
    unit="times",
    workload="1,000,000 filters of three constraints against 10,000, ~7 matches each",
    at_most=3.0,
)
def growth() -> Measurement:
    index, workload, *_ = million()
    small = workloads.three_constraints(10_000)
    few = index_of(small)
    own = against(index, workload, matches=7.0)
    other = against(few, small, matches=7.0)
    return Measurement([a / b for a, b in zip(own.samples, other.samples, strict=True)])


# --- kinds of filters -----------------------------------------------------------------------------


@figure(
    name="matching/equalities",
    unit="us",
    workload="100,000 filters of two equalities; 4 attributes, 1 match",
    at_most=4.0,
)
def equalities() -> Measurement:
    return beside_sqlite(workloads.equalities(100_000), matches=1.0)


@figure(
    name="matching/uneven-equalities-10,000",
    unit="us",
    workload="10,000 filters of two equalities, of 4 values and of 2,500; 1 match",
    at_most=2.5,
)
def uneven_equalities() -> Measurement:
    return beside_sqlite(workloads.uneven_equalities(10_000), matches=1.0)


@figure(
    name="matching/uneven-equalities-100,000",
    unit="us",
    workload="100,000 filters of two equalities, of 4 values and of 25,000; 1 match",
    at_most=2.5,
)
def more_uneven_equalities() -> Measurement:
    return beside_sqlite(workloads.uneven_equalities(100_000), matches=1.0)


@figure(
    name="matching/million-kinds",
    unit="us",
    workload="1,000,000 filters of an equality of 20 values, a range of half the values and a "
    "prefix of 3 or 4 letters; 4 attributes, ~0.74 matches",
    at_most=9.0,
)
def million_kinds() -> Measurement:
    workload = workloads.three_kinds(MILLION)
    return against(index_of(workload), workload, matches=0.74)


@figure(
    name="matching/renewed-ranges",
    unit="times",
    workload="10,000 filters of ten ranges of half the values on ten attributes: after a renewal "
    "against before",
    at_most=1.2,
)
def renewed_ranges() -> Measurement:
    workload = workloads.ranges(10_000, 10)
    index, renewed = index_of(workload), index_of(workload)
    for each in workload.notifications[:WARM_UP]:
        renewed.match(each)
    renewed.renew()
    measured = workload.notifications[WARM_UP:]
    return Measurement(
        [
            seconds_each(renewed.match, measured) / seconds_each(index.match, measured)
            for _ in range(SAMPLES)
        ]
    )


@figure(
    name="matching/drift",
    unit="times",
    workload="10,000 filters of two ranges, one on an attribute that 1 of 50 has; 1 of 100 without "
    f"that range: after {DRIFTED:,} notifications against before",
    at_most=0.8,
)
def drift() -> Measurement:
    workload = workloads.rare_ranges(10_000, alone=0.01)
    index, drifted = index_of(workload), index_of(workload)
    for each in itertools.islice(itertools.cycle(workload.notifications), DRIFTED):
        drifted.match(each)
    measured = workload.notifications[WARM_UP:]
    return Measurement(
        [
            seconds_each(drifted.match, measured) / seconds_each(index.match, measured)
            for _ in range(SAMPLES)
        ]
    )


@figure(
    name="matching/prefixes",
    unit="us",
    workload="100,000 filters `=` and prefix of 2 to 4 letters; 4 attributes, 1 match",
    at_most=5.0,
)
def prefixes() -> Measurement:
    return beside_sqlite(workloads.prefixes(100_000), matches=1.0)


@figure(
    name="matching/substrings-10,000",
    unit="us",
    workload="10,000 filters `=` and substring of 3 to 5 letters of 40; 4 attributes, 1 match",
    at_most=5.0,
)
def substrings() -> Measurement:
    return beside_sqlite(workloads.substrings(10_000), matches=1.0)


@figure(
    name="matching/substrings-100,000",
    unit="us",
    workload="100,000 of them; 4 attributes, 1 match",
    at_most=8.0,
)
def more_substrings() -> Measurement:
    return beside_sqlite(workloads.substrings(100_000), matches=1.0)


@figure(
    name="matching/thresholds",
    unit="us",
    workload="100,000 filters `=` of 100 and `>` of 1,000 thresholds; 10 attributes, ~500 matches: "
    "10 us and 20 ns a match",
    at_most=20.0,
)
def thresholds() -> Measurement:
    return beside_sqlite(workloads.compared(100_000, ">"), matches=500.0)


@figure(
    name="matching/unequal",
    unit="us",
    workload="100,000 filters `=` of 100 and `!=` of 1,000; 10 attributes, ~1,000 matches: "
    "10 us and 10 ns a match",
    at_most=20.0,
)
def unequal() -> Measurement:
    return beside_sqlite(workloads.compared(100_000, "!="), matches=1_000.0)


@figure(
    name="matching/mixed-10,000",
    unit="us",
    workload="10,000 filters of 1 to 9 constraints of all kinds, zipf; 1 to 19 attributes, "
    "~46 matches",
    at_most=20.0,
)
def mixed() -> Measurement:
    return beside_sqlite(workloads.mixed(10_000), matches=46.0, by_equality=False)


@figure(
    name="matching/mixed-100,000",
    unit="us",
    workload="100,000 of them; 1 to 19 attributes, ~510 matches",
    at_most=100.0,
)
def more_mixed() -> Measurement:
    return beside_sqlite(workloads.mixed(100_000), matches=510.0, by_equality=False)


@figure(
    name="matching/wide-ranges-10,000",
    unit="us",
    workload="10,000 filters of ten ranges of half the values; 20 attributes, ~10 matches",
    at_most=25.0,
)
def wide_ranges() -> Measurement:
    return beside_sqlite(workloads.wide_ranges(10_000), matches=9.8, by_equality=False)


@figure(
    name="matching/wide-ranges-100,000",
    unit="us",
    workload="100,000 of them; 20 attributes, ~98 matches",
    at_most=100.0,
)
def more_wide_ranges() -> Measurement:
    return beside_sqlite(workloads.wide_ranges(100_000), matches=98.0, by_equality=False)


# --- other engines --------------------------------------------------------------------------------


def batches_beside_duckdb(workload: Workload, *, by_equality: bool) -> Measurement:
    """Batches of 1,000 dicts, as DuckDB likes them."""
    index = index_of(workload)
    peer = peers.Duckdb(workload.conjunctions(), by_equality=by_equality)
    batches = [workload.notifications[i : i + 1_000] for i in range(0, 4_000, 1_000)]
    offsets, keys = index.match_batch(batches[0])
    assert len(peer.match_batch(batches[0])) == len(keys) == offsets[-1]
    own, other = [], []
    for batch in batches:
        own.append(seconds_each(index.match_batch, [batch]) / 1_000)  # type: ignore[list-item]
        other.append(seconds_each(peer.match_batch, [batch]) / 1_000)  # type: ignore[arg-type,list-item]
    return Measurement(own, peer.name, other)


if peers.is_there("duckdb"):

    @figure(
        name="matching/beside-duckdb-equalities",
        unit="us",
        workload="batches of 1,000: 100,000 filters of two equalities; 4 attributes, 1 match",
    )
    def beside_duckdb_equalities() -> Measurement:
        return batches_beside_duckdb(workloads.equalities(100_000), by_equality=True)

    @figure(
        name="matching/beside-duckdb-three",
        unit="us",
        workload="batches of 1,000: 100,000 filters of an equality and two ranges; ~7 matches",
    )
    def beside_duckdb_three() -> Measurement:
        return batches_beside_duckdb(workloads.three_constraints(100_000), by_equality=True)

    @figure(
        name="matching/beside-duckdb-unequal",
        unit="us",
        workload="batches of 1,000: 100,000 filters `=` and `!=`; 10 attributes, ~1,000 matches",
    )
    def beside_duckdb_unequal() -> Measurement:
        return batches_beside_duckdb(workloads.compared(100_000, "!="), by_equality=True)


# --- updates --------------------------------------------------------------------------------------

UPDATED: Final = 100_000
STEPS: Final = 20_000
UNITS: Final = 16


class Updated(NamedTuple):
    """Seconds of every call; those of updates only while no renewal is under way."""

    calls: dict[str, list[float]]
    longest_update: float


@cache
def updated() -> Updated:
    """Filters that are replaced by others, one by one.

    A step adds a filter, removes the oldest, maintains `UNITS`, and matches. In the second half
    of the steps the index is renewed meanwhile, and takes over what was renewed.
    """
    workload = workloads.three_constraints(UPDATED + STEPS)
    made = workload.filters()
    index: Index[int] = Index()
    for number, each in enumerate(itertools.islice(made, UPDATED)):
        index.add(number, each)
    for notification in workload.notifications:
        index.match(notification)
    filters = list(made)
    calls: dict[str, list[float]] = {call: [] for call in ("add", "remove", "match")}
    longest = 0.0
    for step, each in enumerate(filters):
        if step == STEPS // 2:
            index.begin_renewal()
        times = [thread_time()]
        index.add(UPDATED + step, each)
        times.append(thread_time())
        index.remove(step)
        times.append(thread_time())
        index.maintain(UNITS)
        times.append(thread_time())
        index.match(workload.notifications[step % len(workload.notifications)])
        times.append(thread_time())
        add, remove, maintain, match = (b - a for a, b in itertools.pairwise(times))
        if step < STEPS // 2:
            calls["add"].append(add)
            calls["remove"].append(remove)
        calls["match"].append(match)
        longest = max(longest, add, remove, maintain)
    assert not index.statistics().renewing, "the renewal must have ended"
    return Updated(calls, longest)


def rates(call: str) -> Measurement:
    """Calls per second, by hundreds."""
    seconds = updated().calls[call]
    hundreds = (seconds[i : i + 100] for i in range(0, len(seconds), 100))
    return Measurement([len(each) / sum(each) for each in hundreds])


@figure(
    name="matching/add-rate",
    unit="/s",
    workload="add a filter of three constraints to 100,000 while matching",
    at_least=50_000.0,
)
def add_rate() -> Measurement:
    return rates("add")


@figure(
    name="matching/remove-rate",
    unit="/s",
    workload="remove one of 100,000 while matching",
    at_least=50_000.0,
)
def remove_rate() -> Measurement:
    return rates("remove")


@figure(
    name="matching/updates-p99.9",
    unit="ms",
    workload="99.9 of 100 matches against 100,000 filters while they are replaced and renewed",
    at_most=5.0,
)
def match_under_updates() -> Measurement:
    seconds = sorted(updated().calls["match"])
    return Measurement([seconds[len(seconds) * 999 // 1_000]])


@figure(
    name="matching/updates-longest",
    unit="ms",
    workload="the longest match under these updates",
    at_most=20.0,
)
def longest_match_under_updates() -> Measurement:
    return Measurement([max(updated().calls["match"])])


@figure(
    name="matching/updates-longest-update",
    unit="ms",
    workload="the longest add, remove or maintain of 16 units then, for which a match has to wait",
    at_most=20.0,
)
def longest_update() -> Measurement:
    return Measurement([updated().longest_update])


# --- rules of the world ---------------------------------------------------------------------------

DATA: Final = Path(os.environ.get("CONTRADA_SHARED_DATA") or REPOSITORY.parent / "shared" / "data")


def sigma(*, renewed: bool) -> Measurement:
    """Seconds per event, a sample per file of events and round."""
    index: Index[str] = Index()
    for rule in rules_sigma.rules(DATA / "sigma" / "sigma_filters.jsonl.gz"):
        index.add(rule.id, rule.matches)
    files = rules_sigma.event_files(DATA / "windows_events")
    events = [event for path in files for event in rules_sigma.events(path)]
    random.Random(5).shuffle(events)
    for event in events[: len(events) // 4]:
        index.match(event)
    if renewed:
        index.renew()
    size = len(events) // SAMPLES
    return Measurement(
        [seconds_each(index.match, events[i : i + size]) for i in range(0, size * SAMPLES, size)]
    )


if DATA.exists():

    @figure(
        name="matching/sigma",
        unit="us",
        workload="2,822 Sigma rules, 31,273 conjunctions, on 90,700 Windows events; "
        "29 attributes, 0.01 matches",
        at_most=60.0,
    )
    def sigma_rules() -> Measurement:
        return sigma(renewed=False)

    @figure(
        name="matching/sigma-renewed",
        unit="us",
        workload="the same after the index was renewed by what it saw",
        at_most=60.0,
    )
    def sigma_rules_renewed() -> Measurement:
        return sigma(renewed=True)
