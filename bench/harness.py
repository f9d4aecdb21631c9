"""`figure`, `Measurement` and the timers of all measurements.

A module `bench_*.py` holds functions marked with `figure`; each runs its workload and returns a
`Measurement`: the samples, and a peer's samples from the same run, if there is a peer. The runner
(`bench.run`) finds them, and turns each into one JSON line and one row of a table.

Invariants: a figure of time gives its samples in seconds, in any unit of display. A peer has as
many samples as the subject, taken alternately, so that a slow spell of the machine hits both.
"""

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

SECONDS_PER_UNIT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class Measurement:
    """Samples of one run; `peer` is the name of the peer of `peer_samples`.

    Times are in seconds, everything else in the figure's own unit.
    """

    samples: Sequence[float]
    peer: str | None = None
    peer_samples: Sequence[float] = ()

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
    """A named number that can be measured again, with its limit."""

    name: str
    unit: str
    workload: str
    measure: Callable[[], Measurement]
    at_most: float | None = None
    at_least: float | None = None


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

    @property
    def holds(self) -> bool:
        """Whether the value keeps the figure's limits; without limits it does."""
        at_most, at_least = self.figure.at_most, self.figure.at_least
        return (at_most is None or self.value <= at_most) and (
            at_least is None or self.value >= at_least
        )

    def as_record(self) -> dict[str, object]:
        """The fields of the JSON line; limit and peer only if present."""
        record: dict[str, object] = {
            "name": self.figure.name,
            "value": self.value,
            "unit": self.figure.unit,
            "samples": self.samples,
            "spread": list(self.spread),
            "workload": self.figure.workload,
        }
        limits = {"at_most": self.figure.at_most, "at_least": self.figure.at_least}
        given = {word: limit for word, limit in limits.items() if limit is not None}
        if given:
            record |= given | {"holds": self.holds}
        if self.peer is not None:
            record |= {"peer": self.peer, "peer_value": self.peer_value, "ratio": self.ratio}
        return record


def figure(
    *,
    name: str,
    unit: str,
    workload: str,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Callable[[Callable[[], Measurement]], Figure]:
    """Makes a figure of the decorated function, which runs `workload` and returns a `Measurement`.

    `at_most` and `at_least` are limits in `unit`; the runner fails at a missed one.
    """

    def mark(measure: Callable[[], Measurement]) -> Figure:
        return Figure(name, unit, workload, measure, at_most, at_least)

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
    )


def time_per_call(call: Callable[[], object], *, inner: int, repeats: int) -> list[float]:
    """Seconds per call, one sample per repeat of `inner` calls, after one repeat to warm up."""
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
    """Seconds per call of a subject and of its peer, taken alternately, both warmed up."""
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
    start = perf_counter()
    for _ in calls:
        call()
    return (perf_counter() - start) / inner


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
