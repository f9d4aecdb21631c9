"""The harness of the measurements and their one runner."""

import gc
import io
import json
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import run
from bench.harness import Figure, Measurement, figure, run_figure, time_pairs, time_per_call


class Limits(TypedDict, total=False):
    """The limits a figure may have."""

    at_most: float
    at_least: float


def constant(name: str = "matching/one", **limits: Unpack[Limits]) -> Figure:
    """A figure whose samples are known."""

    @figure(name=name, unit="us", workload="known samples", **limits)
    def known() -> Measurement:
        return Measurement([1e-6, 3e-6, 2e-6], "peer", [2e-6, 2e-6, 2e-6])

    return known


def failing() -> Measurement:
    """A workload that breaks."""
    raise ZeroDivisionError("broken workload")


def runner_with(monkeypatch: pytest.MonkeyPatch, *figures: Figure) -> CliRunner:
    """The runner over these figures, as if they were the module `bench_matching`."""
    monkeypatch.setattr(run, "figures_by_module", lambda: {"matching": list(figures)})
    return CliRunner()


def test_a_result_is_median_and_quartiles_in_the_unit() -> None:
    """Figures would be shown in the wrong unit or as another statistic."""
    result = run_figure(constant())
    assert result.value == pytest.approx(2.0)
    assert result.spread == pytest.approx((1.5, 2.5))
    assert (result.samples, result.peer) == (3, "peer")
    assert (result.peer_value, result.ratio) == pytest.approx((2.0, 1.0))


@pytest.mark.parametrize(
    ("unit", "limits", "counts", "is_more_better"),
    [
        ("us", {"at_most": 1.0}, "processor", False),
        ("notifications/s", {}, "processor", True),
        ("KB", {}, "memory", False),
        ("messages", {}, "number", False),
        ("times", {"at_least": 1.0}, "processor", True),
    ],
)
def test_the_unit_implies_what_counts(
    unit: str, limits: Limits, counts: str, is_more_better: bool
) -> None:
    """The page would call memory a time, or the slower of two systems the better one."""
    found = Figure("n", unit, "", lambda: Measurement([1.0]), **limits)
    assert (found.counts, found.is_more_better) == (counts, is_more_better)
    beside = found.beside([3.0], {"one": [1.0], "two": [2.0]})
    best, other = ("two", "one") if is_more_better else ("one", "two")
    assert (beside.peer, [*beside.others]) == (best, [other])
    assert found.beside([3.0], {}).peer is None


def test_units_that_are_no_time_stay_as_they_are() -> None:
    """A count per second would be scaled like a time."""
    assert run_figure(Figure("n", "1/s", "", lambda: Measurement([5.0]))).spread == (5.0, 5.0)


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        ({}, True),
        ({"at_most": 2.1}, True),
        ({"at_most": 1.9}, False),
        ({"at_least": 2.1}, False),
        ({"at_least": 1.9}, True),
    ],
)
def test_limits_are_in_the_unit(limits: Limits, holds: bool) -> None:
    """A missed limit would be reported as kept."""
    record = run_figure(constant(**limits)).as_record()
    assert record.get("holds", True) is holds
    assert limits.items() <= record.items()


def test_a_measurement_has_samples_for_both() -> None:
    """A median of nothing, or of pairs that are none, would be taken."""
    with pytest.raises(ValueError, match="at least one sample"):
        Measurement([])
    with pytest.raises(ValueError, match="has 1 samples, expected 2"):
        Measurement([1.0, 2.0], "peer", [1.0])
    with pytest.raises(ValueError, match="expected 0"):
        Measurement([1.0], peer_samples=[1.0])


def test_time_is_taken_after_warming_up() -> None:
    """First calls, which compile and fill caches, would count; or the collector would run."""
    collecting: list[bool] = []
    samples = time_per_call(lambda: collecting.append(gc.isenabled()), inner=2, repeats=3)
    assert collecting == [True] * 2 + [False] * 6
    assert len(samples) == 3
    assert min(samples) > 0
    assert gc.isenabled()


def test_pairs_are_taken_alternately() -> None:
    """A slow spell of the machine would hit one side only."""
    calls: list[str] = []
    measurement = time_pairs(
        lambda: calls.append("own"),
        lambda: calls.append("other"),
        peer_name="other",
        inner=1,
        repeats=3,
    )
    assert calls == ["own", "other"] * 4
    assert len(measurement.samples) == len(measurement.peer_samples) == 3


def test_the_runner_prints_json_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads the figures would meet a table or progress."""
    result = runner_with(monkeypatch, constant(), constant("matching/two")).invoke(run.main, [])
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [record["name"] for record in records] == ["matching/one", "matching/two"]
    assert records[0].keys() == {
        *("name", "value", "unit", "samples", "spread", "workload"),
        *("counts", "more_is_better", "peer", "peer_value", "ratio"),
    }


@pytest.mark.parametrize("only", ["matching", "bench_matching", "matching/o", "match"])
def test_the_runner_picks_by_prefix(monkeypatch: pytest.MonkeyPatch, only: str) -> None:
    """One figure could not be run alone."""
    runner = runner_with(monkeypatch, constant())
    assert "matching/one" in runner.invoke(run.main, ["--only", only]).stdout


def test_the_runner_names_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped name would run nothing and look like success."""
    result = runner_with(monkeypatch, constant()).invoke(run.main, ["--only", "nothing"])
    assert result.exit_code == 2
    assert "matching, matching/one" in result.stderr


def test_a_failing_figure_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broken workload would cost the figures after it, or end with success."""
    broken = Figure("matching/broken", "us", "", failing)
    result = runner_with(monkeypatch, broken, constant()).invoke(run.main, [])
    assert result.exit_code == 1
    assert "broken workload" in result.stderr
    assert "matching/one" in result.stdout


def test_a_missed_limit_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit could be missed without anybody seeing it."""
    result = runner_with(monkeypatch, constant(at_most=1.0)).invoke(run.main, [])
    assert result.exit_code == 1
    assert "MISSED" in result.stderr


def test_the_table_has_a_row_per_figure() -> None:
    """A figure would be measured and not shown to people."""
    out = Console(file=io.StringIO(), width=200)
    out.print(run.table_of([run_figure(constant()), run_figure(constant("matching/two"))]))
    assert isinstance(out.file, io.StringIO)
    assert "matching/one" in out.file.getvalue()
    assert "matching/two" in out.file.getvalue()


def test_no_figure_of_the_table_is_cut() -> None:
    """A person would read 1.2e+… or a unit without its end."""
    result = replace(run_figure(constant()), value=12_345.6, spread=(0.00012, 1_234_567.0))
    out = Console(file=io.StringIO(), width=60)
    out.print(run.table_of([result]))
    assert isinstance(out.file, io.StringIO)
    assert "…" not in out.file.getvalue()
    wide = Console(file=io.StringIO(), width=200)
    wide.print(run.table_of([result]))
    assert isinstance(wide.file, io.StringIO)
    assert " 12,346 " in wide.file.getvalue()
    assert " 0.00012 to 1,234,567 " in wide.file.getvalue()


def test_the_modules_of_this_project_are_found() -> None:
    """A figure could not be imported, or two would bear one name."""
    modules = run.figures_by_module()
    names = [each.name for figures in modules.values() for each in figures]
    assert len(names) == len(set(names))
