"""`contrada simulate gossip`: figures of the thesis, as tables, charts and lines of JSON."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.cli.simulate_gossip import COLUMNS

needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="needs matplotlib, which draws the figures"
)
SMALL = ("--runs", "2", "--branching", "6", "--engine", "embedded", "--jobs", "1")


@needs_matplotlib
def test_figures_are_drawn(tmp_path: Path) -> None:
    """The figures could not be reproduced."""
    chosen = ("--figure", "6.7", "--figure", "6.12", "--out", str(tmp_path))
    result = CliRunner().invoke(main, ["simulate", "gossip", *SMALL, *chosen])
    assert result.exit_code == 0, result.stderr
    for name in ("6.7", "6.12"):
        assert f"Figure {name}" in result.stdout
        assert (tmp_path / f"figure-{name}.csv").is_file()
        assert (tmp_path / f"figure-{name}.png").is_file()
    assert "56/56" in result.stderr  # 22 points and 6, each run twice
    for column in COLUMNS:
        assert column.split()[0] in result.stdout


@pytest.mark.slow
def test_points_are_lines_of_json() -> None:
    """Other programs could not read the results."""
    options = ("--figure", "6.10", "--json", "--loss", "0.1", "--crashes", "0.05")
    runs = [
        CliRunner().invoke(main, ["simulate", "gossip", *SMALL, *options, *seed])
        for seed in ((), (), ("--seed", "1"))
    ]
    assert runs[0].stdout == runs[1].stdout != runs[2].stdout
    records = [json.loads(line) for line in runs[0].stdout.splitlines()]
    assert [each["x"] for each in records] == list(range(1, 9))
    assert all(0 < each["simulated"] <= 1 and each["runs"] == 2 for each in records)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--redundancy", "7"), "7: redundancy R is more than branching a = 6"),
        (("--fanout", "0"), "0 is not in the range"),
        (("--levels", "0"), "0 is not in the range"),
        (("--loss", "1"), "1.0: loss"),
        (("--crashes", "-0.1"), "-0.1: crashes"),
        (("--figure", "6.14"), "'6.14' is not one of"),
    ],
)
def test_what_cannot_be_is_refused(options: tuple[str, str], told: str) -> None:
    """A slip of the pen would be drawn."""
    result = CliRunner().invoke(main, ["simulate", "gossip", *SMALL, *options])
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.slow
@needs_matplotlib
def test_a_folder_that_cannot_be_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    """Minutes of runs would be lost to a slip in the name of a folder."""
    taken = tmp_path / "taken"
    taken.touch()
    options = ("--figure", "6.12", "--out", str(taken / "figures"))
    result = CliRunner().invoke(main, ["simulate", "gossip", *SMALL, *options])
    assert result.exit_code != 0
    assert str(taken) in result.stderr
    assert result.stdout == ""
    options = ("--figure", "6.12", "--out", str(tmp_path / "new" / "figures"))
    result = CliRunner().invoke(main, ["simulate", "gossip", *SMALL, *options])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "new" / "figures" / "figure-6.12.csv").is_file()
