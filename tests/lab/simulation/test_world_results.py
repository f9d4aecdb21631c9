"""`WorldResults`: shards are disjoint, and a killed run resumes without a lost or doubled world."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.errors import InputError
from contrada.lab.simulation import simulated_network
from contrada.lab.simulation.script_steps import Kind
from contrada.lab.simulation.world_results import (
    RunConditions,
    SeedShard,
    WorldResults,
    code_digest,
    read_results,
    read_runs,
)
from contrada.lab.simulation.worlds import WorldPlan, kinds, run_world
from tests.cli.test_simulate import Doubling

PLAIN = "central, subscription forwarding, plain"
WAIT_S = 60


def worlds(*options: str) -> Result:
    """Run worlds of one kind in this process."""
    command = ["simulate", "worlds", "--only", PLAIN, "--jobs", "1", *options]
    return CliRunner().invoke(main, command)


def worlds_in(path: Path) -> list[tuple[str, int]]:
    """The kind and the seed of each world in a file."""
    return [(ran.kind.name, ran.seed) for _, ran in read_results(path)]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("first", [0, 1, 5, -3])
def test_shards_are_disjoint_and_whole(parts: int, first: int) -> None:
    """Machines would run a seed twice, or none would run it; or a part would change with FIRST."""
    seeds = [SeedShard(part, parts).seeds(first, 20) for part in range(1, parts + 1)]
    assert sorted(each for some in seeds for each in some) == list(range(first, first + 20))
    for part, some in enumerate(seeds, 1):
        assert {each % parts for each in some} <= {part - 1}


def test_a_resumed_run_skips_the_worlds_of_the_file(tmp_path: Path) -> None:
    """A resumed run would run worlds again, or leave them out of its table."""
    file = tmp_path / "new" / "worlds.jsonl"
    options = ("--count", "4", "--results", str(file), "--json")
    given = [worlds("--shard", part, *options) for part in ("1/2", "2/2", "1/1")]
    assert [each.exit_code for each in given] == [0, 0, 0]
    assert worlds_in(file) == [(PLAIN, seed) for seed in (0, 2, 1, 3)]
    assert [json.loads(each.stdout)["worlds"] for each in given] == [2, 2, 4]
    assert [(str(run.shard), run.code) for run in read_runs(file)] == [
        (part, code_digest()) for part in ("1/2", "2/2", "1/1")
    ]


def test_no_world_begins_after_the_time(tmp_path: Path) -> None:
    """A run would exceed the time that it has."""
    file = tmp_path / "worlds.jsonl"
    given = worlds("--count", "1000", "--seconds", "0.001", "--results", str(file))
    assert given.exit_code == 0, given.stderr
    assert len(worlds_in(file)) <= 1


@pytest.mark.slow
def test_a_killed_run_resumes(tmp_path: Path) -> None:
    """A kill would lose worlds before the last, or leave a file from which nothing resumes."""
    file = tmp_path / "worlds.jsonl"
    arguments = ("simulate", "worlds", "--only", PLAIN, "--count", "16", "--results", str(file))
    code = "from contrada_command import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--jobs", "2"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as run:
        end_s = time.monotonic() + WAIT_S
        while not (file.exists() and len(worlds_in(file)) >= 3):
            assert run.poll() is None
            assert time.monotonic() < end_s
        os.killpg(run.pid, signal.SIGKILL)
    before = worlds_in(file)
    assert 3 <= len(before) < 16
    with file.open("ab") as torn:
        torn.write(b'{"world":{"kind":{"sh')
    assert worlds_in(file) == before
    resumed = worlds("--count", "16", "--results", str(file))
    assert resumed.exit_code == 0, resumed.stderr
    assert worlds_in(file)[: len(before)] == before
    assert Counter(worlds_in(file)) == Counter((PLAIN, seed) for seed in range(16))
    outcomes = {ran.seed: ran.outcome for _, ran in read_results(file)}
    kind = kinds(PLAIN)[0]
    assert outcomes == {seed: run_world(WorldPlan(kind, seed)).outcome for seed in range(16)}


def test_a_violation_of_a_former_run_fails_the_resumed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night with a violation before a kill would end as if all worlds held."""
    file = tmp_path / "worlds.jsonl"
    monkeypatch.setattr(simulated_network, "Router", Doubling)
    given = worlds("--count", "1", "--results", str(file))
    assert (given.exit_code, given.stderr.count("shortest script")) == (1, 1)
    monkeypatch.undo()
    given = worlds("--count", "1", "--results", str(file))
    assert given.exit_code == 1
    assert f"{PLAIN}, seed 0: twice: " in given.stderr
    assert "shortest script" not in given.stderr
    elsewhere = worlds("--count", "1", "--seed", "1", "--results", str(file))
    assert elsewhere.exit_code == 0, elsewhere.stderr


@pytest.mark.parametrize("text", ["own notes", "own notes\n", '{"world":{}}\n', "{}\n", '{"a":'])
def test_another_file_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    """A slip of the pen would append to a file of the user, or cut it."""
    file = tmp_path / "notes"
    file.write_text(text)
    given = worlds("--count", "1", "--results", str(file))
    assert given.exit_code != 0
    assert f"{file}:1: no line of results" in given.stderr.replace("\n", "")
    assert file.read_text() == text


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    """Two runs would write the same worlds, or tear each other's lines."""
    file = tmp_path / "worlds.jsonl"
    conditions = RunConditions.here(0, 1, SeedShard())
    with WorldResults(file, conditions), pytest.raises(InputError, match="another run is writing"):
        WorldResults(file, conditions)
    with WorldResults(file, conditions) as results:
        assert results.earlier == []


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/", "-1/2", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    """A slip of the pen would leave out seeds."""
    given = worlds("--shard", text)
    assert given.exit_code == 2
    assert "expected a part of all seeds such as 1/4" in given.stderr


def test_wanted_worlds_are_those_of_the_shard() -> None:
    """A report would call a shard incomplete that has all of its worlds."""
    conditions = RunConditions.here(1, 5, SeedShard(1, 2), PLAIN)
    wanted = {kind.name: list(seeds) for kind, seeds in conditions.wanted.items()}
    assert wanted == {PLAIN: [2, 4]}
    assert all(isinstance(kind, Kind) for kind in conditions.wanted)
