"""`contrada simulate`: worlds, violations with their scripts, and replayed scripts."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.cli.simulate_overlay import COLUMNS, COLUMNS_OF_SAVINGS
from contrada.lab.simulation import simulated_network
from contrada.lab.simulation.script_maker import make_script
from contrada.lab.simulation.script_steps import to_text
from contrada.lab.simulation.worlds import kinds
from contrada.routing.router import Router
from contrada.routing.router_messages import Deliver, Effect, Event


class Doubling(Router):
    """A router that delivers twice."""

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """As the router, with every delivery doubled."""
        effects = super().handle(event, now_us)
        return [*effects, *(each for each in effects if isinstance(each, Deliver))]


def test_worlds_are_counted_by_kind() -> None:
    """Nobody could see the number of worlds."""
    options = ("--count", "2", "--only", "central, subscription", "--jobs", "2", "--json")
    result = CliRunner().invoke(main, ["simulate", "worlds", *options])
    assert result.exit_code == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["kind"] for each in records] == [each.name for each in kinds(options[3])]
    assert all(each["worlds"] == 2 and each["must"] and not each["failed"] for each in records)
    assert any(0 < each["matches_must"] <= each["matches"] for each in records)


def test_worlds_with_promises_are_counted_and_their_scripts_run_again(tmp_path: Path) -> None:
    """Nobody could see whether anything was guaranteed, or examine a broken guarantee."""
    kind = "central, subscription forwarding, covering, promises"
    options = ("--count", "2", "--only", kind, "--jobs", "1", "--json")
    result = CliRunner().invoke(main, ["simulate", "worlds", *options])
    record = json.loads(result.stdout)
    assert (record["kind"], record["failed"]) == (kind, [])
    assert record["delivered"] >= record["must"] > 50
    file = tmp_path / "world.json"
    file.write_text(to_text(make_script(0, kinds(kind)[0])))
    result = CliRunner().invoke(main, ["simulate", "replay", str(file)])
    assert (result.exit_code, result.stdout.endswith("all holds\n")) == (0, True)


def test_a_kind_that_is_not_there_is_refused() -> None:
    """A slip of the pen would look as if all worlds held."""
    result = CliRunner().invoke(main, ["simulate", "worlds", "--only", "torus"])
    assert result.exit_code == 2
    assert "no kind has 'torus' in its name" in result.stderr


def test_a_world_that_does_not_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault would be found, and nobody could examine it."""
    monkeypatch.setattr(simulated_network, "Router", Doubling)
    options = ("--count", "1", "--only", "central, subscription forwarding, plain", "--jobs", "1")
    result = CliRunner().invoke(main, ["simulate", "worlds", *options])
    assert result.exit_code == 1
    assert re.search(r"plain, seed 0: twice: ", result.stderr)
    assert result.stderr.count('"step"') <= 3


@pytest.mark.slow
def test_the_smallest_networks_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of runs of large worlds would delay the report of a fault."""
    monkeypatch.setattr(simulated_network, "Router", Doubling)
    monkeypatch.setattr("contrada.cli.simulate.shortest", lambda ran: "")
    kind = "acyclic, flooding, plain"
    options = ("--count", "4", "--only", kind, "--jobs", "1")
    result = CliRunner().invoke(main, ["simulate", "worlds", *options])
    failed = {int(each) for each in re.findall(r"seed (\d): twice", result.stderr)}
    assert len(failed) == 4
    by_size = sorted(failed, key=lambda seed: make_script(seed, kinds(kind)[0]).brokers)
    told = re.findall(r"seed (\d): the shortest", result.stderr)
    assert [int(each) for each in told] == by_size[:3] != [0, 1, 2]


def test_a_script_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reported fault could not be examined again."""
    file = tmp_path / "world.json"
    file.write_text(to_text(make_script(0, kinds("central, subscription")[0])))
    result = CliRunner().invoke(main, ["simulate", "replay", str(file)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("all holds\n")
    monkeypatch.setattr(simulated_network, "Router", Doubling)
    result = CliRunner().invoke(main, ["simulate", "replay", str(file)])
    assert result.exit_code == 1
    assert result.stdout.startswith("twice: ")
    file.write_text("{}")
    result = CliRunner().invoke(main, ["simulate", "replay", str(file)])
    assert result.exit_code == 2
    assert "world.json" in result.stderr


SMALL = ("--sites=4", "--parties=2", "--parties=6", "--objects=3", "--notifications=1")
HERE = ("--engine", "embedded", "--jobs", "1")


@pytest.mark.slow
def test_overlay_compares_kinds(tmp_path: Path) -> None:
    """A person could not see the costs of topologies and strategies."""
    options = (*SMALL, *HERE, "--plots", str(tmp_path), "--form", "png")
    result = CliRunner().invoke(main, ["simulate", "overlay", *options])
    assert result.exit_code == 0, result.stderr
    assert "acyclic, advertisement forwarding, covering" in result.stdout
    assert len(list(tmp_path.glob("overlay-*.png"))) == 4


def test_overlay_gives_records() -> None:
    """Other programs could not read the measurements."""
    options = (*SMALL, *HERE, "--only", "acyclic", "--json")
    result = CliRunner().invoke(main, ["simulate", "overlay", *options])
    assert result.exit_code == 0, result.stderr
    *records, savings = [json.loads(line) for line in result.stdout.splitlines()]
    assert {each["plan"]["parties"] for each in records} == {2, 6}
    assert all(each["plan"]["kind"]["shape"] == "acyclic" for each in records)
    assert (savings["name"], savings["subscriptions"]) == ("made", 6)


def test_overlay_says_what_is_saved_on_filters_of_ones_own(tmp_path: Path) -> None:
    """A person could not see whether covering and merging help for their own rules."""
    file = tmp_path / "own.filters"
    file.write_text("a: x = 1\nb: x = 1 and y = 2\nc: x = 3\n")
    options = (*SMALL, *HERE, "--only", "central", "--filters", str(file))
    result = CliRunner().invoke(main, ["simulate", "overlay", *options, "--json"])
    assert result.exit_code == 0, result.stderr
    savings = json.loads(result.stdout.splitlines()[-1])
    assert (savings["name"], savings["subscriptions"], savings["refused"]) == (str(file), 3, 0)
    assert savings["filters"] == [3, 2, 1]
    table = CliRunner().invoke(main, ["simulate", "overlay", *options])
    assert "own.filters" in table.stdout.replace("\n", "")
    file.write_text("a: x ==\n")
    result = CliRunner().invoke(main, ["simulate", "overlay", *options])
    assert result.exit_code == 2
    assert "own.filters:1" in result.stderr.replace("\n", "")


def test_overlay_explains_its_columns() -> None:
    """The columns of a table would have no explanation, or two different ones."""
    columns = COLUMNS | COLUMNS_OF_SAVINGS
    said = CliRunner().invoke(main, ["simulate", "overlay", "--help"]).stdout
    assert [each for each in columns.items() if "{:16}  {}\n".format(*each) not in said] == []
    page = (Path(__file__).resolve().parents[2] / "docs" / "simulation.md").read_text("utf-8")
    costs = page[page.index("## Costs") :]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", costs, re.MULTILINE)
    assert [row for row in rows if row[0] != "column"] == [*columns.items()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "torus"), "no kind has 'torus'"),
        (("--network", "sndlib/nowhere"), "no such network"),
        (("--parties", "ten"), "expected numbers such as 10,100"),
        (("--parties", "0"), "expected 1 to PARTIES_MAX"),
    ],
)
def test_overlay_refuses_what_is_not_there(options: tuple[str, ...], said: str) -> None:
    """A slip of the pen would end in an exception, or in an empty table."""
    pytest.importorskip("topohub")
    result = CliRunner().invoke(main, ["simulate", "overlay", *HERE, *options])
    assert result.exit_code == 2
    assert said in result.stderr
