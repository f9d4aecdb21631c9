"""`figure`, `Measurement` and the timers of all measurements.

A module `bench_*.py` holds functions marked with `figure`; each runs its workload and returns a
`Measurement`: the samples, and a peer's samples from the same run, if there is a peer. The runner
(`bench.run`) finds them, and turns each into one JSON line and one row of a table.

Invariants: a figure of time gives its samples in seconds, in any unit of display. A peer has as
many samples as the subject, taken alternately, so that a slow spell of the machine hits both. Time
is of the processor, unless the figure counts the clock.
"""

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Final, Literal, TypeAlias

SECONDS_PER_UNIT: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
SIZES: Final = ("bytes", "KB", "MB", "GB")

Counts: TypeAlias = Literal["processor", "clock", "memory", "number"]
"""Resource that a figure counts."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples of one run; `peer` is the name of the peer of `peer_samples`.

    `others` has the samples of further peers by name, none of them better than `peer`. Times are in
    seconds, everything else in the figure's own unit.
    """

    samples: Sequence[float]
    peer: str | None = None
    peer_samples: Sequence[float] = ()
    others: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError("a measurement needs at least one sample, found none")
        expected = len(self.samples) if self.peer is not None else 0
        if len(self.peer_samples) != expected:
            raise ValueError(
                f"peer {self.peer!r} has {len(self.peer_samples)} samples, expected {expected}"
            )


@dataclass(frozen=True, slots=True)
class Figure:
    """A named number that can be measured again, with limits of its value and of its ratio."""

    name: str
    unit: str
    workload: str
    measure: Callable[[], Measurement]
    at_most: float | None = None
    at_least: float | None = None
    ratio_at_most: float | None = None
    ratio_at_least: float | None = None
    counted: Counts | None = None

    @property
    def counts(self) -> Counts:
        """The counted resource; by default as the unit implies, for times the processor."""
        if self.counted is not None:
            return self.counted
        if self.unit in SIZES:
            return "memory"
        is_time = self.unit in SECONDS_PER_UNIT or self.unit.endswith("/s")
        return "processor" if is_time or self.unit == "times" else "number"

    @property
    def is_more_better(self) -> bool:
        """Whether the larger of two values is the better one: of rates, and above lower limits."""
        lower = (self.at_least, self.ratio_at_least)
        return self.unit.endswith("/s") or any(limit is not None for limit in lower)

    def beside(self, samples: Sequence[float], peers: Mapping[str, Sequence[float]]) -> Measurement:
        """Returns the samples beside those of the peer with the best median, and of the others."""
        if not peers:
            return Measurement(samples)
        best, *others = sorted(
            peers, key=lambda name: statistics.median(peers[name]), reverse=self.is_more_better
        )
        return Measurement(samples, best, peers[best], {name: peers[name] for name in others})


@dataclass(frozen=True, slots=True)
class Result:
    """A measured figure in the figure's unit. `ratio` is the median of subject / peer per pair."""

    figure: Figure
    value: float
    samples: int
    spread: tuple[float, float]
    peer: str | None
    peer_value: float | None
    ratio: float | None
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether value and ratio keep the figure's limits; without limits or a peer they do."""
        limits = self.figure
        return _is_between(self.value, limits.at_least, limits.at_most) and (
            self.ratio is None
            or _is_between(self.ratio, limits.ratio_at_least, limits.ratio_at_most)
        )

    def as_record(self) -> dict[str, object]:
        """The fields of the JSON line; limit and peer only if present."""
        record: dict[str, object] = {
            "name": self.figure.name,
            "value": self.value,
            "unit": self.figure.unit,
            "samples": self.samples,
            "spread": list(self.spread),
            "counts": self.figure.counts,
            "more_is_better": self.figure.is_more_better,
            "workload": self.figure.workload,
        }
        limits = {name: getattr(self.figure, name) for name in LIMITS}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if given:
            record |= given | {"holds": self.holds}
        if self.peer is not None:
            record |= {"peer": self.peer, "peer_value": self.peer_value, "ratio": self.ratio}
        if self.others:
            record["others"] = dict(self.others)
        return record


LIMITS: Final = ("at_most", "at_least", "ratio_at_most", "ratio_at_least")


def _is_between(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def figure(
    *,
    name: str,
    unit: str,
    workload: str,
    at_most: float | None = None,
    at_least: float | None = None,
    ratio_at_most: float | None = None,
    ratio_at_least: float | None = None,
    counts: Counts | None = None,
) -> Callable[[Callable[[], Measurement]], Figure]:
    """Makes a figure of the decorated function, which runs `workload` and returns a `Measurement`.

    `at_most` and `at_least` are limits in `unit`, the other two of the ratio to the peer; the
    runner fails at a missed one. A figure that reads the clock must declare that it `counts` it.
    """

    def mark(measure: Callable[[], Measurement]) -> Figure:
        limits = (at_most, at_least, ratio_at_most, ratio_at_least)
        return Figure(name, unit, workload, measure, *limits, counts)

    return mark


def run_figure(subject: Figure) -> Result:
    """Measures once: the median of the samples, and the quartiles as their spread."""
    measurement = subject.measure()
    per_unit = SECONDS_PER_UNIT.get(subject.unit, 1.0)
    samples = [sample / per_unit for sample in measurement.samples]
    peer_value = ratio = None
    if measurement.peer is not None:
        peer_value = statistics.median(measurement.peer_samples) / per_unit
        pairs = zip(measurement.samples, measurement.peer_samples, strict=True)
        ratio = statistics.median(own / other for own, other in pairs)
    return Result(
        figure=subject,
        value=statistics.median(samples),
        samples=len(samples),
        spread=_quartiles(samples),
        peer=measurement.peer,
        peer_value=peer_value,
        ratio=ratio,
        others={
            name: statistics.median(of_other) / per_unit
            for name, of_other in measurement.others.items()
        },
    )


def time_per_call(call: Callable[[], object], *, inner: int, repeats: int) -> list[float]:
    """Processor seconds per call, a sample per repeat of `inner` calls, after one to warm up."""
    _seconds_per_call(call, inner)
    with _collector_paused():
        return [_seconds_per_call(call, inner) for _ in range(repeats)]


def time_pairs(
    subject: Callable[[], object],
    peer: Callable[[], object],
    *,
    peer_name: str,
    inner: int,
    repeats: int,
) -> Measurement:
    """Processor seconds per call of a subject and its peer, taken alternately, both warmed up."""
    own: list[float] = []
    other: list[float] = []
    for call in (subject, peer):
        _seconds_per_call(call, inner)
    with _collector_paused():
        for _ in range(repeats):
            own.append(_seconds_per_call(subject, inner))
            other.append(_seconds_per_call(peer, inner))
    return Measurement(own, peer_name, other)


def _seconds_per_call(call: Callable[[], object], inner: int) -> float:
    calls = range(inner)
    start = process_time()
    for _ in calls:
        call()
    return (process_time() - start) / inner


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pauses the garbage collector, which would hit some samples and not others."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) == 1:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high
