"""`Night`: its runs are bounded and recorded, it ends and resumes in order; the report is whole."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contrada.lab.simulation.world_results import SeedShard, read_results
from contrada.lab.simulation.worlds import kinds
from tests.night import PROGRAMS, Night, Program, main, read_night
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


def once(name: str, code: str, grace_s: float = WAIT_S) -> Program:
    """Return a program that runs once."""
    return Program(name, 0.1, python(code), 0.0, grace_s, is_once=True)


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
        once("good", "print('fine')"),
        once("bad", "raise SystemExit(3)"),
        once("hanging", "import signal; signal.pause()", grace_s=0.1),
    )
    assert Night(tmp_path, SeedShard(), 60, 1, 1, programs).run() == 1
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
    again = Night(tmp_path, SeedShard(), 60, 1, 1, programs[:1])
    assert again.run() == 0
    assert len(again.runs) == 3


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
    Night(tmp_path, SeedShard(), 60, 1, 1, [once("parent", code)]).run()
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


def test_a_program_without_seeds_runs_in_one_shard(tmp_path: Path) -> None:
    """Each machine would spend its time on the same cases, or none would run them."""
    for index, program in enumerate(PROGRAMS):
        if program.is_once:
            able = []
            for part in range(1, 4):
                night = Night(tmp_path / f"{index}", SeedShard(part, 3), 10**6, 1)
                able.append(night._is_able(program))
            assert sum(able) == 1


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
    resumed = Night(tmp_path, SeedShard(), 60, 1, 1, [once("good", "pass")])
    assert resumed.run() == 0
    assert [run.status for run in read_night(file)] == [*kept, "holds"]


@pytest.mark.slow
def test_a_planted_violation_is_in_the_report(tmp_path: Path) -> None:
    """A night would find a fault, and nobody could see it, or repeat it."""
    command = PROGRAMS[0].command.replace("{python} -m contrada", python(PLANTED))
    planted = f"{command} --only {shlex.quote(PLAIN)}"
    for part, words in ((1, planted), (2, f"{PROGRAMS[0].command} --only {shlex.quote(PLAIN)}")):
        program = Program("worlds", 1.0, words, 0.0, WAIT_S * 10, is_once=True)
        others = [once("other", "pass")] * (part - 1)
        status = Night(tmp_path, SeedShard(part, 2), 600, 1, 4 * len(kinds()), [*others, program])
        assert status.run() == (part == 1)
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
    Night(tmp_path, SeedShard(), 60, 1, 1, [once("good", "pass")]).run()
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
