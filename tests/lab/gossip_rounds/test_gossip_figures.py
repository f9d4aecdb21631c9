"""Tests of the recomputed figures of the thesis."""

import csv
import dataclasses
import math
import statistics
from pathlib import Path

import msgspec
import pytest
from scipy.stats import t

from contrada.errors import InvalidValueError
from contrada.lab.gossip_rounds.gossip_figures import (
    FigureRow,
    GossipFigure,
    analyse,
    draw_figure,
    figures,
    interval,
    plans_of,
    rows_of,
    write_csv,
)
from contrada.lab.gossip_rounds.gossip_runs import GossipProtocol, disseminate
from contrada.lab.simulation.process_pool import in_processes


def rows(figure: GossipFigure, runs: int) -> list[FigureRow]:
    """Returns the rows of a figure, run here."""
    outcomes = {plan: disseminate(plan) for plan in plans_of([figure], runs, 0)}
    return rows_of(figure, runs, 0, outcomes, {each: analyse(each) for each in figure.points})


def thinned(name: str, step: int) -> GossipFigure:
    """Some points of a figure."""
    figure = figures()[name]
    return dataclasses.replace(figure, points=figure.points[::step])


@pytest.mark.slow
def test_figures_are_those_of_the_thesis() -> None:
    """A figure would be of another group than its caption says."""
    every = figures()
    assert list(every) == ["6.7", "6.8", "6.9", "6.10", "6.11", "6.12", "6.13"]
    for name in ("6.7", "6.8", "6.10", "6.12", "6.13"):
        groups = [point.parameters for point in every[name].points]
        assert {each.participants for each in groups} == {10_648}
    assert {point.interest for point in every["6.12"].points} == {0.2}
    assert {point.parameters.fanout for point in every["6.12"].points} == {5}
    scaled = [point.parameters for point in every["6.11"].points]
    assert {(each.levels, each.redundancy, each.fanout) for each in scaled} == {(3, 4, 3)}
    assert len({each.branching for each in scaled}) > 4
    flat = every["6.9"].points[0]
    assert (flat.parameters.participants, flat.protocol) == (100, GossipProtocol.PMCAST)
    assert every["6.9"].measure == "rounds"
    assert {point.parameters.audience for point in every["6.13"].points} == {0, 12}
    shares = [point.x for point in every["6.7"].points]
    assert 0 < shares[0] < 0.05
    assert shares[-1] == 1
    assert len(plans_of([every["6.7"], every["6.13"]], 2, 0)) == 4 * len(shares)


@pytest.mark.slow
def test_parameters_are_replaced_where_a_figure_does_not_vary_them() -> None:
    """No other group could be examined."""
    every = figures({"branching": 6, "fanout": 4, "loss": 0.1, "audience": 5})
    assert {point.parameters.branching for point in every["6.11"].points} == {5, 10, 15, 20, 30, 40}
    assert [point.parameters.fanout for point in every["6.10"].points] == list(range(1, 9))
    assert {point.parameters.fanout for point in every["6.12"].points} == {4}
    assert {point.parameters.loss for each in every.values() for point in each.points} == {0.1}
    assert {point.parameters.audience for point in every["6.13"].points} == {0, 5}
    assert every["6.9"].points[0].parameters.participants == 100
    assert {point.parameters.redundancy for point in figures({"branching": 3})["6.11"].points} == {
        4
    }
    with pytest.raises(InvalidValueError):
        figures({"redundancy": 23})
    # More delegates than figure 6.11 has subsystems are no fault of the others.
    wide = figures({"branching": 60, "redundancy": 50})["6.11"]
    assert {point.parameters.branching for point in wide.points} == {50}


@pytest.mark.slow
def test_points_have_chance_of_their_own() -> None:
    """A whole curve would be shifted out of its intervals by one draw."""
    first, second = figures()["6.9"].points[10:12]
    pairs = zip(first.plans(200, 0), second.plans(200, 0), strict=True)
    found = [(disseminate(one).last, disseminate(other).last) for one, other in pairs]
    assert abs(statistics.correlation(*zip(*found, strict=True))) < 0.25
    assert first.plans(2, 0) == first.plans(3, 0)[:2] != first.plans(2, 1)
    # The same point of two figures is run once.
    assert first.plans(1, 0) == msgspec.structs.replace(first, curve="again").plans(1, 0)


@pytest.mark.slow
def test_a_figure_tells_its_group() -> None:
    """A chart with loss would look like one without."""
    every = figures({"loss": 0.05})
    assert every["6.7"].group == "a = 22, l = 3, R = 3, F = 2, ε = 0.05"
    assert every["6.12"].group == "a = 22, l = 3, F = 5, ε = 0.05"
    row = rows(thinned("6.13", 43), 2)[-1]
    assert (row.curve, row.group) == ("D = 12", "a = 22, l = 3, R = 3, F = 2, D = 12")


@pytest.mark.slow
def test_simulation_and_analysis_agree_in_a_figure() -> None:
    """A chart would show two curves, one of them wrong."""
    for row in rows(thinned("6.7", 4), 15):
        assert row.low <= row.simulated <= row.high
        assert 0 <= row.nearly_all <= 1
        if row.x >= 0.1:
            assert row.refined == pytest.approx(row.simulated, rel=0.02)
            assert row.printed < row.simulated


@pytest.mark.slow
def test_rounds_of_figure_6_9() -> None:
    """Pittel's asymptote would not be compared with the simulation."""
    found = rows(thinned("6.9", 10), 40)
    assert found[0].x == 0.01
    assert found[0].printed == 0
    for row in found[1:]:
        assert row.refined == pytest.approx(row.simulated, abs=2 * (row.high - row.low))
        assert row.printed < row.refined < row.printed * 1.4


@pytest.mark.slow
def test_intervals_are_students() -> None:
    """Few runs would look as sure as many."""
    for count in (2, 3, 4, 10, 30):
        found = [float(each % 3) for each in range(count)]
        mean, low, high = interval(found)
        variance = sum((each - mean) ** 2 for each in found) / (count - 1)
        half = t.ppf(0.975, count - 1) * math.sqrt(variance / count)
        assert mean - low == pytest.approx(half, abs=0.004)
        assert high - mean == pytest.approx(mean - low)
    assert interval([0.5]) == (0.5, -math.inf, math.inf)


@pytest.mark.slow
def test_figures_are_written(tmp_path: Path) -> None:
    """A figure would have no table, or no chart."""
    figure = thinned("6.13", 11)
    found = rows(figure, 2)
    for form in ("png", "svg"):
        file = tmp_path / f"figure.{form}"
        draw_figure(figure, found, file)
        assert file.stat().st_size > 5_000
    write_csv(found, tmp_path / "figure.csv")
    with (tmp_path / "figure.csv").open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [float(each["simulated"]) for each in table] == [row.simulated for row in found]
    assert {each["curve"] for each in table} == {"untuned", "D = 12"}
    single = rows(figure, 1)
    draw_figure(figure, single, tmp_path / "single.png")
    assert [(row.low, row.high) for row in single] == [(0, 1)] * len(single)


@pytest.mark.slow
def test_analysis_in_processes_is_the_same() -> None:
    """A table would depend on how many processes there are."""
    figure = thinned("6.12", 3)
    together = sorted(in_processes(analyse, figure.points, 2), key=lambda each: each.point.x)
    assert together == [analyse(each) for each in figure.points]
