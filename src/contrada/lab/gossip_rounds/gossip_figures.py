"""`GossipFigure`: the thesis' figures 6.7 to 6.13, by simulation and by analysis.

A figure has curves of points; a point is run several times, each run with its own seed, and
calculated as printed and refined. The simulation is that of `gossip_runs`, on any machine.

Source: EPFL 2503 §6.5.3, §6.5.4.
"""

import csv
import math
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import pittel
from contrada.lab.analysis import printed_equations as printed
from contrada.lab.analysis import refined_equations as refined
from contrada.lab.gossip_rounds.gossip_runs import GossipOutcome, GossipPlan, GossipProtocol, key_of

CONFIDENCE: Final = 0.95
"""The chance that an interval contains the mean, if runs are many or normal."""

NEARLY_ALL: Final = 0.99
"""The share of the interested for the Δ-reliability of `FigureRow.nearly_all`."""

TUNED: Final = 12
"""The default D of figure 6.13."""

_LONG: Final = 1_000
"""Rounds after which a run of figure 6.9 ends: almost always enough to infect all."""

_SHARES: Final = (0.01, 0.025, *(each / 20 for each in range(1, 21)))
_SIZES: Final = (5, 10, 15, 20, 30, 40)
_SMALL_SHARES: Final = (0.001, 0.002, 0.003, 0.005, 0.0075, *(each / 100 for each in range(1, 11)))


class GossipPoint(msgspec.Struct, frozen=True):
    """A point of a curve: the varied value, and the plan."""

    curve: str
    x: float
    parameters: Parameters
    interest: float
    protocol: GossipProtocol = GossipProtocol.HPMCAST

    def plans(self, runs: int, seed: int) -> list[GossipPlan]:
        """Returns its runs. Each point has its own seed: a common one would shift a whole curve."""
        what = msgspec.json.encode((self.parameters, self.interest, self.protocol))
        own = key_of(seed, zlib.crc32(what))
        known = self.parameters, self.interest, own
        return [GossipPlan(*known, run, self.protocol) for run in range(runs)]

    @property
    def until_all(self) -> bool:
        """Whether it measures the rounds that infect all, not the reached share."""
        return self.protocol is GossipProtocol.PMCAST

    @property
    def group(self) -> str:
        """Its parameters in the thesis' letters, without those that are 0."""
        known = self.parameters
        sizes = known.branching, known.levels, known.redundancy, known.fanout
        rounds = 0 if self.until_all else known.rounds or 0
        values = *sizes, known.loss, known.crashes, known.audience, rounds
        pairs = zip("alRFετDT", values, strict=True)
        return ", ".join(f"{letter} = {value:g}" for letter, value in pairs if value)

    def measure(self, outcome: GossipOutcome) -> float:
        """Returns the measure of a run: the rounds until its last infection, or its reliability."""
        return float(outcome.last) if self.until_all else outcome.reliability


@dataclass(frozen=True, slots=True)
class GossipFigure:
    """A figure: its name, the varied parameter, and its points."""

    name: str
    title: str
    varied: str
    points: Sequence[GossipPoint]

    @property
    def group(self) -> str:
        """The parameters that all its points share."""
        first, *others = (point.group.split(", ") for point in self.points)
        return ", ".join(each for each in first if all(each in other for other in others))

    @property
    def measure(self) -> str:
        """The name of its measure."""
        return "rounds" if self.points[0].until_all else "reliability"


class FigureRow(msgspec.Struct, frozen=True):
    """A point of a figure: the simulated mean with its interval, and both analyses.

    `nearly_all` is the share of runs that reach at least `NEARLY_ALL` of the interested: their
    Δ-reliability (§6.1.1). `messages` are the mean of a run. `group` are a point's parameters, in
    the thesis' letters.
    """

    figure: str
    curve: str
    x: float
    runs: int
    simulated: float
    low: float
    high: float
    nearly_all: float
    messages: float
    refined: float
    printed: float
    group: str


def figures(
    given: Mapping[str, object] | None = None, interest: float = 0.2
) -> dict[str, GossipFigure]:
    """Returns figures 6.7 to 6.13 by number; `given` replaces parameters that they do not vary.

    `interest` is p₁ of figures 6.10 and 6.12.
    """
    base = replace(Parameters(branching=22, levels=3, redundancy=3, fanout=2), **(given or {}))  # type: ignore[arg-type]
    flat = replace(base, branching=100, levels=1, redundancy=1, rounds=_LONG)
    # It varies a.
    own = {"redundancy": 4, "fanout": 3, **(given or {}), "branching": base.branching}
    least = int(own["redundancy"])  # type: ignore[call-overload]
    sizes = [size for size in _SIZES if size >= least] or [least]
    scaled = replace(base, **{**own, "branching": max(sizes)})  # type: ignore[arg-type]
    wide = replace(base, **{"fanout": 5, **(given or {})})  # type: ignore[arg-type]
    tuned = replace(base, audience=base.audience or TUNED)
    plain = replace(base, audience=0)
    redundancies, fixed = range(1, min(8, wide.branching) + 1), f"p₁ = {interest:g}"
    by_fanout = _vary_parameter(base, "fanout", range(1, 9), interest)
    by_redundancy = _vary_parameter(wide, "redundancy", redundancies, interest)
    of_shares = [(plain, "untuned"), (tuned, f"D = {tuned.audience}")]
    chosen = [
        GossipFigure("6.7", "Reliability", "p₁", _vary(base, _SHARES)),
        GossipFigure("6.8", "Reliability for small p₁", "p₁", _vary(base, _SMALL_SHARES)),
        GossipFigure(
            "6.9",
            "Rounds until all of n = 100 are infected",
            "p₁",
            [
                GossipPoint("", each / 50, flat, each / 50, GossipProtocol.PMCAST)
                for each in (0.5, *range(1, 51))
            ],
        ),
        GossipFigure("6.10", f"Reliability by fanout, {fixed}", "F", by_fanout),
        GossipFigure(
            "6.11",
            "Scalability",
            "a",
            [
                GossipPoint(f"p₁ = {share}", size, replace(scaled, branching=size), share)
                for share in (0.2, 0.5, 1.0)
                for size in sizes
            ],
        ),
        GossipFigure("6.12", f"Reliability by redundancy, {fixed}", "R", by_redundancy),
        GossipFigure(
            "6.13",
            "Reliability, tuned",
            "p₁",
            [point for each, name in of_shares for point in _vary(each, _SHARES, name)],
        ),
    ]
    return {figure.name: figure for figure in chosen}


def _vary(parameters: Parameters, shares: Iterable[float], curve: str = "") -> list[GossipPoint]:
    return [GossipPoint(curve, share, parameters, share) for share in shares]


def _vary_parameter(
    group: Parameters, name: str, values: Iterable[int], interest: float
) -> list[GossipPoint]:
    return [GossipPoint("", it, replace(group, **{name: it}), interest) for it in values]  # type: ignore[arg-type]


def plans_of(chosen: Iterable[GossipFigure], runs: int, seed: int) -> list[GossipPlan]:
    """Returns all runs of some figures, common ones once."""
    points = (point for figure in chosen for point in figure.points)
    return list(dict.fromkeys(plan for point in points for plan in point.plans(runs, seed)))


class AnalysedPoint(msgspec.Struct, frozen=True):
    """Both analyses of a point."""

    point: GossipPoint
    refined: float
    printed: float


def analyse(point: GossipPoint) -> AnalysedPoint:
    """Calculates a point: a pure function. Cost: up to some seconds."""
    group, interest = point.parameters, point.interest
    if not point.until_all:
        both = (each.reliability(group, interest) for each in (refined, printed))
        return AnalysedPoint(point, *both)
    # Figure 6.9: Pittel's asymptote, and the chain that it approximates.
    size, fanout = group.participants * interest, group.fanout * interest
    asymptote = pittel(size, fanout, loss=group.loss, crashes=group.crashes)
    return AnalysedPoint(point, refined.settling_rounds(group, interest), float(asymptote))


def rows_of(
    figure: GossipFigure,
    runs: int,
    seed: int,
    outcomes: Mapping[GossipPlan, GossipOutcome],
    analysed: Mapping[GossipPoint, AnalysedPoint],
) -> list[FigureRow]:
    """Returns the rows of a figure, point by point."""
    return [
        row_of(figure, analysed[point], [outcomes[plan] for plan in point.plans(runs, seed)])
        for point in figure.points
    ]


def row_of(
    figure: GossipFigure, analysed: AnalysedPoint, ran: Sequence[GossipOutcome]
) -> FigureRow:
    """Returns the row of a point of a figure, from its runs."""
    point = analysed.point
    mean, low, high = interval([point.measure(each) for each in ran])
    low = max(0.0, low)
    if not point.until_all:
        high = min(1.0, high)
    return FigureRow(
        figure.name,
        point.curve,
        point.x,
        len(ran),
        simulated=mean,
        low=low,
        high=high,
        nearly_all=statistics.fmean(each.reliability >= NEARLY_ALL for each in ran),
        messages=statistics.fmean(each.messages for each in ran),
        refined=analysed.refined,
        printed=analysed.printed,
        group=point.group,
    )


def interval(found: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean of runs, and its interval by Student's distribution, unbounded for one."""
    mean = statistics.fmean(found)
    free = len(found) - 1
    if free < 1:
        return mean, -math.inf, math.inf
    half = _student(free) * statistics.stdev(found) / math.sqrt(len(found))
    return mean, mean - half, mean + half


def _student(free: int) -> float:
    """The quantile of Student's distribution, from that of the normal one; to 0.004."""
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    if free <= 2:
        tail = (1 + CONFIDENCE) / 2
        if free == 1:
            return math.tan(math.pi * (tail - 0.5))
        return (2 * tail - 1) * math.sqrt(2 / (4 * tail * (1 - tail)))
    # The expansion of Cornish and Fisher; for one and two degrees of freedom there are formulas.
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / free ** (place + 1) for place, term in enumerate(terms))


def write_csv(rows: Sequence[FigureRow], file: Path) -> None:
    """Writes a figure as a table, a row for each point."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(FigureRow.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(row) for row in rows)


def draw_figure(figure: GossipFigure, rows: Sequence[FigureRow], file: Path) -> None:
    """Draws a figure into a file, as `png` or `svg`: points are simulated, lines calculated."""
    # The library is large, and asked for only here.
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "contrada"
    drawn = Figure(figsize=(8, 5), layout="constrained")
    axes = drawn.subplots()
    curves: dict[str, list[FigureRow]] = {}
    for row in rows:
        curves.setdefault(row.curve, []).append(row)
    for place, (name, points) in enumerate(curves.items()):
        colour, label = f"C{place}", f", {name}" if name else ""
        x = [row.x for row in points]
        # Rounded means lie a hair outside of intervals that are points.
        below = [max(0.0, row.simulated - row.low) for row in points]
        above = [max(0.0, row.high - row.simulated) for row in points]
        mean = [row.simulated for row in points]
        known = [each < float("inf") for each in (*below, *above)]
        errors = [below, above] if all(known) else None
        label_simulated = f"simulated, {CONFIDENCE:.0%} intervals{label}"
        axes.errorbar(
            x, mean, errors, fmt="o", color=colour, markersize=3, capsize=2, label=label_simulated
        )
        axes.plot(x, [row.refined for row in points], color=colour, label=f"refined{label}")
        printed = [row.printed for row in points]
        axes.plot(x, printed, color=colour, linestyle=":", label=f"as printed{label}")
    axes.set(xlabel=figure.varied, ylabel=figure.measure)
    title = f"Figure {figure.name}: {figure.title} ({rows[0].runs} runs a point)"
    axes.set_title(f"{title}\n{figure.group}")
    axes.legend(fontsize="small")
    drawn.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
