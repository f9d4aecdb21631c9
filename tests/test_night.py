"""`Night`: its runs are bounded and recorded, it ends and resumes in order; the report is whole."""

import os
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import settings

from contrada.lab.simulation.world_results import SeedShard, read_results
from contrada.lab.simulation.worlds import kinds
from tests.net import test_machines
from tests.night import LEAST_S, PROGRAMS, Night, Program, ProgramRun, main, read_night
from tests.night_report import main as report

WAIT_S = 60
PLAIN = "central, subscription forwarding, plain"

PLANTED = """
from contrada.lab.simulation import simulated_network
from tests.cli.test_simulate import Doubling
simulated_network.Router = Doubling
from contrada_command import main
main()
"""
"""The command with a router that delivers twice."""


def python(code: str) -> str:
    """Return the command of a program that runs some code."""
    return f"{{python}} -c {shlex.quote(code).replace('{', '{{').replace('}', '}}')}"


def at_once(name: str, code: str, grace_s: float = WAIT_S) -> Program:
    """Return a program that takes no time."""
    return Program(name, 0.1, python(code), 0.0, grace_s)


def run_each(folder: Path, *programs: Program) -> Night:
    """Run each program once; return the night."""
    night = Night(folder, SeedShard(), 60, 1, 1, programs)
    for program in programs:
        night._run(program)
    return night


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end_s


def is_gone(process: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_runs_are_recorded_with_their_status(tmp_path: Path) -> None:
    """A failed or hanging program would end the night, hold it up, or look as if it had held."""
    programs = (
        at_once("good", "print('fine')"),
        at_once("bad", "raise SystemExit(3)"),
        at_once("hanging", "import signal; signal.pause()", grace_s=0.1),
    )
    assert run_each(tmp_path, *programs).has_failed
    runs = {run.program: run for run in read_night(tmp_path / "night-1-of-1.jsonl")}
    assert {name: run.status for name, run in runs.items()} == {
        "good": "holds",
        "bad": "failed",
        "hanging": "hangs",
    }
    assert runs["bad"].exit_code == 3
    assert (tmp_path / runs["good"].log).read_text() == "fine\n"
    assert report(tmp_path) == 1
    page = (tmp_path / "report.md").read_text()
    assert "- result: **2 failed**" in page
    assert "- bad, seed 1: status 3, " in page
    assert "- hanging, seed 1: ended at its bound, " in page
    assert runs["hanging"].command in page
    assert runs["bad"].log in page
    assert "- not run: churn, costly, exact, " in page
    again = run_each(tmp_path, programs[0])
    assert not again.has_failed
    assert len(again.runs) == 4


def test_a_broken_program_is_left_out(tmp_path: Path) -> None:
    """A program that fails at once would run for the whole night, a thousand times."""
    broken = Program("broken", 1.0, python("raise SystemExit(1)"), 0.0)
    night = Night(tmp_path, SeedShard(), 3600, 1, 1, [broken])
    assert night.run() == 1
    assert [run.seed for run in night.runs] == [1, 2, 3]


def test_the_rest_of_a_hanging_program_is_killed(tmp_path: Path) -> None:
    """Brokers of an ended program would run on beside the next."""
    child = "import signal, sys; print('child', flush=True); signal.pause()"
    code = (
        "import os, signal, subprocess, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\n"
    )
    run_each(tmp_path, at_once("parent", code))
    (log,) = (tmp_path / "logs").iterdir()
    assert is_gone(int(log.read_text().splitlines()[0]))


def test_seeds_of_shards_are_disjoint(tmp_path: Path) -> None:
    """Two machines would run the same seeds, or a resumed night its former ones."""
    program = Program("seeds", 1.0, python("import sys") + " {seed}", 0.0, seeds=100)
    seeds = []
    for part in (1, 2, 3, 1, 2, 3):
        night = Night(tmp_path, SeedShard(part, 3), 60, 1, 1, [program])
        night._run(program)
        seeds.append(night.runs[-1].seed)
    assert seeds == [1, 101, 201, 301, 401, 501]


@pytest.mark.parametrize("hours", [0.5, 8])
def test_each_program_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """A short night would run only some programs, and a report of no failures mislead."""
    night, now_s, planned = Night(tmp_path, SeedShard(), hours * 3600, 1), 0.0, Counter[str]()
    began_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began_s + now_s)
    while (program := night._next()) is not None:
        seconds = night._planned_s(program)
        night.runs.append(run_of(program, seconds))
        planned[program.name] += round(seconds)
        now_s += seconds
    assert planned.keys() == {program.name for program in PROGRAMS}
    assert now_s == pytest.approx(hours * 3600, abs=LEAST_S)
    if hours == 8:
        for program in PROGRAMS:
            excess_s = planned[program.name] - program.share * now_s
            assert abs(excess_s) <= max(program.run_s, program.least_s)


def run_of(program: Program, seconds: float) -> ProgramRun:
    """Return the result of a run that took so long."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    name = program.name
    return ProgramRun(name, 1, 1, name, began, seconds, "holds", 0, "log", "r", "c", "m")


def test_a_shorter_run_does_less(tmp_path: Path) -> None:
    """A program that counts would take its whole time of a short night, beyond its share."""
    code = "import sys; print(*sys.argv[1:])"
    program = Program("part", 0.5, python(code) + " {count} {seconds}", 100.0, count=1000)
    night = Night(tmp_path, SeedShard(), 60, 1, 1, [program])
    night._run(program)
    assert (tmp_path / night.runs[0].log).read_text() == "300 30\n"
    assert night._planned_s(replace(program, least_s=45.0)) == 45.0
    assert Night(tmp_path, SeedShard(), 3600, 1)._planned_s(program) == 100.0


def test_machines_use_the_seed() -> None:
    """Each run of a night would repeat the steps of the one before."""
    profile = settings.get_current_profile_name()
    settings.load_profile("seeded")
    try:
        machine = runpy.run_path(test_machines.__file__)["TestMachine"]
    finally:
        settings.load_profile(profile)
    assert not machine.settings.derandomize


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worlds", "costly", "patterns", "fuzz", "machines", "thorough"])
def test_a_program_runs(tmp_path: Path, name: str) -> None:
    """A command would name a changed program, or not take its numbers, and fail all night."""
    night = Night(tmp_path, SeedShard(2, 3), 1, 1, 3 * len(kinds()))
    night._run(next(each for each in PROGRAMS if each.name == name))
    assert not night.has_failed, (tmp_path / night.runs[0].log).read_text()


def test_shares_are_the_whole_time() -> None:
    """The time of a night would be shared in another way than the table of programs says."""
    assert sum(program.share for program in PROGRAMS) == pytest.approx(1.0)
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)


NIGHT = """
import sys
from tests.night import Program, main
code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
command = "{python} -c '" + code + "'"
sys.exit(main(sys.argv[1:], [Program("waiting", 1.0, command, 0.0)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_night_ends_at_a_signal_and_resumes(tmp_path: Path, number: signal.Signals) -> None:
    """A stopped night would lose its results or leave a program behind; a resumed one, fail."""
    command = [sys.executable, "-c", NIGHT, "--folder", str(tmp_path), "--hours", "1"]
    log, file = tmp_path / "logs" / "waiting-1-of-1-1.log", tmp_path / "night-1-of-1.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as night:
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        child = int(log.read_text())
        night.send_signal(number)
        assert night.wait(WAIT_S) == (-number if number == signal.SIGKILL else 0)
    until(lambda: is_gone(child))
    kept = [run.status for run in read_night(file)]
    assert kept == ([] if number == signal.SIGKILL else ["interrupted"])
    with file.open("ab") as torn:
        torn.write(b'{"program":"wai')
    run_each(tmp_path, at_once("good", "pass"))
    assert [run.status for run in read_night(file)] == [*kept, "holds"]


@pytest.mark.slow
def test_a_planted_violation_is_in_the_report(tmp_path: Path) -> None:
    """A night would find a fault, and nobody could see it, or repeat it."""
    command = PROGRAMS[0].command.replace("{python} -m contrada", python(PLANTED))
    planted = f"{command} --only {shlex.quote(PLAIN)}"
    for part, words in ((1, planted), (2, f"{PROGRAMS[0].command} --only {shlex.quote(PLAIN)}")):
        program = Program("worlds", 1.0, words, 600.0)
        night = Night(tmp_path, SeedShard(part, 2), 600, 1, 4 * len(kinds()), [program])
        night._run(program)
        assert night.has_failed is (part == 1)
    assert report(tmp_path) == 1
    page = (tmp_path / "report.md").read_text()
    again = f'contrada simulate worlds --only "{PLAIN}" --seed 0 --count 1'
    assert f"{PLAIN}, seed 0 (sources " in page
    assert "twice: " in page
    assert again in page
    assert "- result: **2 failed**" in page
    assert "## Failed runs" not in page
    assert f"| {PLAIN} | 4 | 4 | " in page
    seeds = [sorted(r.seed for _, r in read_results(p)) for p in sorted(tmp_path.glob("worlds-*"))]
    assert seeds == [[0, 2], [1, 3]]


def test_mixed_sources_are_said(tmp_path: Path) -> None:
    """The results of a mended program would count beside those of the faulty one."""
    run_each(tmp_path, at_once("good", "pass"))
    assert report(tmp_path) == 0
    assert "Mixed" not in (tmp_path / "report.md").read_text()
    (run,) = read_night(tmp_path / "night-1-of-1.jsonl")
    line = (tmp_path / "night-1-of-1.jsonl").read_text()
    (tmp_path / "night-2-of-2.jsonl").write_text(line.replace(run.code, "0123456789ab"))
    assert report(tmp_path) == 0
    assert (
        "**Mixed: the results are of 2 states of the sources.**"
        in (tmp_path / "report.md").read_text()
    )


def test_arguments_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen would run all seeds on each machine, or report an empty folder."""
    for shard in ("5/4", "0/4", "x"):
        with pytest.raises(SystemExit):
            main(["--shard", shard])
        assert f"'{shard}', expected a shard such as 1/4" in capsys.readouterr().err
    assert report(tmp_path) == 2
    assert "found no night-*.jsonl" in capsys.readouterr().err
