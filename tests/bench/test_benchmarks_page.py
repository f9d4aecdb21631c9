"""docs/benchmarks.md: the writer, and the committed page."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner

from bench import benchmarks_page, machine, run
from bench.benchmarks_page import Conditions, Run, draw_runs, keep_results, read_results, write_page
from bench.harness import Figure, Measurement, Result, run_figure

CONDITIONS = Conditions(
    date="2026-01-02",
    minutes=3.4,
    machine={"processor": "a processor, 2 cores"},
    peers={"zenoh": "eclipse-zenoh 1.0", "nats": "nats-server 2.0"},
    unmeasured={"net/broken": "failed with ZeroDivisionError"},
)


def result(name: str, unit: str, measurement: Measurement, **limits: Any) -> Result:
    """A figure as it is measured and limited."""
    return run_figure(Figure(name, unit, "a | b", lambda: measurement, **limits))


@pytest.fixture
def results() -> list[Result]:
    """A met limit beside a slower and a faster peer, and a missed one beside a baseline."""
    cost = Measurement(
        [4e-6, 4e-6, 4e-6], "zenoh", [2e-6, 2e-6, 2e-6], {"nats": [3e-6] * 3, "redis": [5e-6] * 3}
    )
    rate = Measurement([900.0, 1_000.0, 1_100.0], "without users", [2_000.0, 2_000.0, 2_000.0])
    return [
        result("peers/sum", "us", cost, at_most=12.0),
        result("security/rate", "notifications/s", rate, at_least=1_500.0),
    ]


def names_of(results: list[Result]) -> list[str]:
    """The names of the figures of results."""
    return [each.figure.name for each in results]


def written(results: list[Result], file: Path) -> dict[str, str]:
    """The sections of the page of these results, by their titles."""
    keep_results(results, CONDITIONS, names_of(results), file)
    sections = write_page(read_results(file)).split("\n## ")
    return dict(each.split("\n\n", 1) for each in sections[1:])


def rows(section: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    lines = [line.replace(r"\|", "¦") for line in section.splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_peer_that_is_better_wins(results: list[Result], tmp_path: Path) -> None:
    """A peer ahead of Contrada would be hidden, or a baseline or a slower peer be called ahead."""
    found = rows(written(results, tmp_path / "results")["Where a peer wins"])
    assert found == [["peers/sum", "zenoh 2, nats 1.33"]]


@pytest.mark.parametrize(("own", "wins"), [(1_000.0, True), (3_000.0, False)])
def test_of_rates_the_higher_is_better(own: float, wins: bool, tmp_path: Path) -> None:
    """A faster peer would be called slower."""
    measured = Measurement([own], "nats", [2_000.0])
    rate = result("peers/loop", "notifications/s", measured, counted="clock")
    sections = written([rate], tmp_path / "results")
    assert sections["Where a peer wins"].startswith("None." if not wins else "| figure")
    assert f"| {own:,.0f} notifications/s, clock (" in sections["Figures: peers"]


def test_a_missed_limit_is_listed(results: list[Result], tmp_path: Path) -> None:
    """A missed limit would be hidden, or a met one be shown as missed."""
    sections = written(results, tmp_path / "results")
    assert sections["Limits not met"] == "Bold below: security/rate.\n"
    assert rows(sections["Figures: security"])[0][3] == "**≥ 1,500**"
    assert rows(sections["Figures: peers"])[0] == [
        *("peers/sum", "a ¦ b", "4 µs (4–4)", "≤ 12", "zenoh 2 (2), nats 3, redis 5", "1")
    ]


def test_a_limit_of_the_ratio_is_held(tmp_path: Path) -> None:
    """A figure could be slower than its peer although its limit forbids that."""
    delay = result("peers/delay", "us", Measurement([3e-6], "nats", [2e-6]), ratio_at_most=1.0)
    assert not delay.holds
    assert result("p", "us", Measurement([3e-6], "nats", [3e-6]), ratio_at_most=1.0).holds
    assert result("p", "us", Measurement([3e-6]), ratio_at_most=1.0).holds
    figures = written([delay], tmp_path / "results")["Figures: peers"]
    assert rows(figures)[0][3:5] == ["**ratio ≤ 1**", "nats 2 (1.5)"]


def test_the_page_names_its_gaps(results: list[Result], tmp_path: Path) -> None:
    """A figure that failed or has no peer here would look measured."""
    found = dict(rows(written(results, tmp_path / "results")["Not measured"]))
    assert found["net/broken"] == "failed with ZeroDivisionError"
    assert found["beside sqlite"] == "in no run"
    assert "beside zenoh" not in found


def test_the_page_names_machine_and_versions(results: list[Result], tmp_path: Path) -> None:
    """Nobody could judge the figures, or a path of the machine would be published."""
    found = dict(rows(written(results, tmp_path / "results")["Runs"]))
    assert found["processor"] == "a processor, 2 cores"
    assert found["peers"] == "eclipse-zenoh 1.0; nats-server 2.0"
    conditions = machine.conditions()
    assert {"processor", "Python", "Contrada"} < conditions.keys()
    assert float(conditions["loop of Python before"].split()[0]) > 0
    assert benchmarks_page.versions_of_peers(results).keys() == {"zenoh", "nats", "redis"}


def test_one_command_measures_and_writes(
    monkeypatch: pytest.MonkeyPatch, results: list[Result], tmp_path: Path
) -> None:
    """The page would be of another run, hold figures that it leaves out, or hide a failure."""
    missed = Figure("net/one", "us", "", lambda: Measurement([2e-6]), at_most=1.0)
    broken = Figure("net/two", "us", "", lambda: Measurement([]))
    spark = Figure("spark/three", "us", "", lambda: Measurement([2e-6]))
    monkeypatch.setattr(benchmarks_page, "has_java", lambda: False)
    monkeypatch.setattr(benchmarks_page, "IMAGES", tmp_path)
    monkeypatch.setattr(run, "figures_by_module", lambda: {"net": [missed, spark]})
    monkeypatch.setattr(benchmarks_page, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(benchmarks_page, "PAGE", tmp_path / "page.md")
    assert CliRunner().invoke(run.main, ["--page"]).exit_code == 0
    assert "net/one" in benchmarks_page.PAGE.read_text("utf-8")
    found = benchmarks_page.PAGE.read_text("utf-8")
    assert found.count("spark/three") == 1
    assert "| spark/three | needs Java: `make java` |" in found
    done = CliRunner().invoke(run.main, [])  # Without the page, too.
    assert "spark/three" not in done.stdout
    assert "left out: spark/three (needs Java: `make java`)" in done.stderr
    monkeypatch.setattr(run, "figures_by_module", lambda: {"net": [missed, broken]})
    assert CliRunner().invoke(run.main, ["--page"]).exit_code == 1
    assert "| net/two | failed with ValueError |" in benchmarks_page.PAGE.read_text("utf-8")
    other = Figure("net/four", "us", "", lambda: Measurement([2e-6]))
    monkeypatch.setattr(run, "figures_by_module", lambda: {"net": [missed, broken, other]})
    assert CliRunner().invoke(run.main, ["--page", "--only", "net/f"]).exit_code == 0
    found = benchmarks_page.PAGE.read_text("utf-8")
    assert [found.count(f"| {name} |") for name in ("net/one", "net/four")] == [1, 1]
    assert "| net/two | not chosen for the run |" in found
    assert CliRunner().invoke(run.main, ["--page", "--before", "HEAD"]).exit_code == 2


def test_an_interrupt_keeps_the_results_so_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An hour of measurements would be lost, or the page would not say what it lacks."""

    def interrupt() -> Measurement:
        raise KeyboardInterrupt

    measured = Figure("net/one", "us", "", lambda: Measurement([2e-6]))
    stopped = Figure("net/two", "us", "", interrupt)
    later = Figure("net/three", "us", "", lambda: Measurement([2e-6]))
    monkeypatch.setattr(benchmarks_page, "IMAGES", tmp_path)
    monkeypatch.setattr(run, "figures_by_module", lambda: {"net": [measured, stopped, later]})
    monkeypatch.setattr(benchmarks_page, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(benchmarks_page, "PAGE", tmp_path / "page.md")
    assert CliRunner().invoke(run.main, ["--page"]).exit_code == 1
    found = benchmarks_page.PAGE.read_text("utf-8")
    assert "| net/one |" in found
    assert "| net/two | the run was interrupted |" in found
    assert "| net/three | the run was interrupted |" in found


def test_a_run_replaces_what_it_measured(results: list[Result], tmp_path: Path) -> None:
    """A run of some figures would lose the others, a figure be there twice, or an old one stay."""
    file = tmp_path / "results"
    other = result("wire/rate", "us", Measurement([7e-6], "redis", [5e-6]))
    keep_results([*results, other], CONDITIONS, ["peers/sum", "security/rate", "wire/rate"], file)
    again = result("peers/sum", "us", Measurement([1e-6], "zenoh", [2e-6]))
    later = msgspec.structs.replace(
        CONDITIONS,
        date="2026-01-03",
        peers={"redis": "redis 9"},
        unmeasured=dict.fromkeys(("security/rate", "net/new"), run.NOT_CHOSEN),
    )
    keep_results([again], later, ["peers/sum", "security/rate", "net/new"], file)
    page = write_page(read_results(file))
    sections = dict(each.split("\n\n", 1) for each in page.split("\n## ")[1:])
    assert rows(sections["Runs"])[0] == ["date", "2026-01-02", "2026-01-03"]
    assert [row[2:3] + row[5:] for row in rows(sections["Figures: peers"])] == [["1 µs (1–1)", "2"]]
    assert [row[5] for row in rows(sections["Figures: security"])] == ["1"]
    assert "wire/rate" not in page
    assert rows(sections["Not measured"])[0] == ["net/new", "not chosen for the run"]
    assert "| security/rate | not" not in page
    assert sections["Where a peer wins"].startswith("None.")
    keep_results([*results], later, names_of(results), file)
    assert [each.conditions.date for each in read_results(file)] == ["2026-01-03"]


def test_plots_show_all_systems(tmp_path: Path) -> None:
    """A plot would leave a peer out, or hold Contrada's value under another name."""
    own, peer = Measurement([4e-6], "zenoh", [2e-6]), Measurement([2e-6], "sqlite", [9e-6])
    records = [
        result("peers/sum", "us", own),
        *(result(f"matching/size-{size}", "us", peer) for size in ("100", "1,000")),
    ]
    keep_results(records, CONDITIONS, names_of(records), tmp_path / "results")
    runs = read_results(tmp_path / "results")
    drawn = draw_runs(runs)
    assert drawn == draw_runs([*runs, Run(CONDITIONS, [])])
    assert drawn.keys() == benchmarks_page.CAPTIONS.keys()
    bars, lines = (ElementTree.fromstring(text) for text in drawn.values())
    texts = [each.text for each in bars.iter("{http://www.w3.org/2000/svg}text")]
    # From the bottom: the most expensive system first.
    assert [each for each in texts if each in ("contrada", "zenoh")] == ["contrada", "zenoh"]
    assert [each for each in texts if each in ("2", "4")] == ["4", "2"]
    names = {each.text for each in lines.iter("{http://www.w3.org/2000/svg}text")}
    assert {"contrada", "sqlite"} <= names
    page = write_page(runs)
    assert all(f"](images/{name})" in page for name in drawn)


def test_a_plot_without_its_figures_is_left_out(results: list[Result], tmp_path: Path) -> None:
    """The page would link to an absent picture, or a run of some figures would end in an error."""
    page = written([results[1]], tmp_path / "results")
    assert page["In pictures"] == "None: their figures were not measured.\n"


def test_the_committed_page_is_of_its_results() -> None:
    """The page or a plot would have been edited by hand, or the writer changed without it."""
    runs = read_results(benchmarks_page.RESULTS)
    advice = "run: python -m bench.benchmarks_page"
    assert benchmarks_page.PAGE.read_text("utf-8") == write_page(runs), advice
    for name, text in draw_runs(runs).items():
        assert (benchmarks_page.IMAGES / name).read_text("utf-8") == text, advice
