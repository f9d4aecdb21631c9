"""`Night`: all long programs of the tests, in turns, for some hours, on one of several machines.

    make night HOURS=8 SHARD=1/4 DIR=out/night

The program that has used the least of its share of the time runs next, with a seed that no other
shard has. In a short night runs are shorter, so that each program has its turn. Each run ends at a
bound, has a log, and becomes one line in `night-1-of-4.jsonl`; worlds are in
`worlds-1-of-4.jsonl`. The same command resumes. SIGINT and SIGTERM end the night in order.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec

from bench.machine import revision
from contrada.errors import InputError
from contrada.lab.simulation.world_results import (
    RunConditions,
    SeedShard,
    code_digest,
    cut_torn_line,
    describe_machine,
    read_results,
)
from contrada.lab.simulation.worlds import kinds

ROOT: Final = Path(__file__).parents[1]
WORLDS: Final = 1_000_000
"""Worlds of all shards."""

LEAST_S: Final = 10.0
"""Seconds of the shortest run of most programs."""

END_WAIT_S: Final = 30.0
"""Seconds in which an interrupted program ends. Beyond it: it is killed, with all its processes."""

FAILURES_MAX: Final = 3
"""Failures in a row of a program, each within `LEAST_S`. Beyond it: it is left out."""

# A program gets SIGINT when the night is killed. Else it would run on beside the next one.
LAUNCHER: Final = ("setpriv", "--pdeathsig", "INT") if shutil.which("setpriv") else ()

Status = Literal["holds", "failed", "hangs", "interrupted"]
BAD: Final = ("failed", "hangs")


@dataclass(frozen=True, slots=True)
class Program:
    """A long program. A run takes about `run_s`, in a short night down to `least_s`.

    `{seconds}` of its command is that time, and `{count}` the part of `count` that fits into it. A
    run has `seeds` consecutive seeds from `{seed}` on, and ends `grace_s` after its time at the
    latest.
    """

    name: str
    share: float
    command: str
    run_s: float
    grace_s: float = 600.0
    seeds: int = 1
    count: int = 1
    least_s: float = LEAST_S


PYTEST: Final = "{python} -m pytest -q -n0 -p no:cacheprovider -o timeout=0"
SEEDED: Final = f"{PYTEST} --hypothesis-profile=seeded --hypothesis-seed={{seed}}"
LAWS: Final = (
    "tests/model/test_laws.py tests/patterns/test_pattern_matcher.py tests/matching/test_index.py"
    ' -k "sound or matches_when or (is_the_definition and not long) or as_every_filter_says"'
)

PROGRAMS: Final = (
    Program(
        "worlds",
        0.5,
        "{python} -m contrada simulate worlds --count {worlds} --shard {shard} --jobs {jobs}"
        " --seconds {seconds} --results {folder}/worlds-{part}-of-{parts}.jsonl",
        900,
        1800,  # The shortest script of a violation is searched.
    ),
    Program(
        "networks",
        0.1,
        "{python} -m tests.net.real_worlds FIRST={seed} SEEDS=1000 SECONDS={seconds}",
        600,
        seeds=1000,
    ),
    Program("standby", 0.1, "{python} -m tests.net.standby_faults {seconds} {seed}", 600),
    Program(
        "patterns",
        0.04,
        "{python} -m tests.routing.assembly_worlds {count} {seed}",
        60,
        seeds=1000,
        count=1000,
    ),
    Program("fuzz", 0.06, "{python} -m tests.net.fuzz {count} {seed}", 120, count=200_000),
    Program(
        "sanitize",
        0.04,
        "{python} -m tests.matching.sanitizers {count} {seed}",
        300,
        3000,
        count=500_000,
    ),
    Program(
        "machines",
        0.03,
        f"env CONTRADA_MACHINES={{count}} {SEEDED} tests/net/test_machines.py",
        120,
        1200,
        count=50,
    ),
    Program(
        "thorough", 0.03, f"env CONTRADA_EXAMPLES={{count}} {SEEDED} {LAWS}", 200, 3000, count=3_000
    ),
    Program("churn", 0.04, "{python} -m tests.net.churn {seconds}", 1200, least_s=150),
    Program("costly", 0.01, "{python} -m tests.net.costly {seconds} {seed}", 240),
    # Shorter ones would measure the start of the attackers.
    Program("honest", 0.01, "{python} -m tests.net.honest {count}", 180, count=10, least_s=90),
    Program(
        "exact",
        0.02,
        "{python} -m tests.model.exactness {count} {seed}",
        180,
        3000,
        seeds=10,
        count=10,
    ),
    Program("kills", 0.02, "{python} -m tests.long_tests {seed}", 120, 3600, least_s=120),
)


class ProgramRun(msgspec.Struct, frozen=True):
    """The result of a run of a program: a line of the file of a night."""

    program: str
    seed: int
    seeds: int
    command: str
    began: datetime
    seconds: float
    status: Status
    exit_code: int
    log: str
    revision: str
    code: str
    machine: str


def read_night(path: Path) -> list[ProgramRun]:
    """Returns the runs of a file, without a torn last line. Raises InputError for another file."""
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        return [
            msgspec.json.decode(each, type=ProgramRun) for each in lines if each.endswith(b"\n")
        ]
    except msgspec.DecodeError as error:
        raise InputError(str(path), f"no file of a night: {error}") from None


class NightInterrupt(BaseException):
    """A signal ends the night."""


@dataclass
class Night:
    """The runs of one shard: those of its file, and those until the end."""

    folder: Path
    shard: SeedShard
    seconds: float
    jobs: int
    worlds: int = WORLDS
    programs: Sequence[Program] = PROGRAMS
    runs: list[ProgramRun] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "logs").mkdir(exist_ok=True)
        self._file = self.folder / f"night-{self._place}.jsonl"
        self._file.touch()
        self.runs = read_night(self._file)
        self._former = len(self.runs)
        cut_torn_line(self._file)
        self._count = -(-self.worlds // len(kinds()))
        self._end_s = time.monotonic() + self.seconds
        self._failures: Counter[str] = Counter()

    def run(self) -> int:
        """Runs programs until the end; returns 1 if a run of this night has failed."""
        with suppress(NightInterrupt):
            while (program := self._next()) is not None:
                self._run(program)
        return int(self.has_failed)

    @property
    def has_failed(self) -> bool:
        """Whether a run since this start has failed."""
        return any(each.status in BAD for each in self.runs[self._former :])

    @property
    def _place(self) -> str:
        return f"{self.shard.part}-of-{self.shard.parts}"

    @property
    def _remaining_s(self) -> float:
        return self._end_s - time.monotonic()

    def _next(self) -> Program | None:
        able = [each for each in self.programs if self._is_able(each)]
        used_s: Counter[str] = Counter()
        for run in self.runs:
            used_s[run.program] += max(1, round(run.seconds))
        # At first the short ones: a night that ends early has begun most programs.
        return min(
            able,
            key=lambda each: (used_s[each.name] / each.share, self._planned_s(each)),
            default=None,
        )

    def _is_able(self, program: Program) -> bool:
        if self._failures[program.name] >= FAILURES_MAX:
            return False
        if program.name == "worlds" and self._has_all_worlds():
            return False
        return self._remaining_s >= min(program.least_s, program.run_s)

    def _planned_s(self, program: Program) -> float:
        """Returns the seconds of its next run."""
        share_s = max(program.least_s, program.share * self.seconds)
        return min(program.run_s, share_s, max(1.0, self._remaining_s))

    def _has_all_worlds(self) -> bool:
        path = self.folder / f"worlds-{self._place}.jsonl"
        wanted = RunConditions.here(0, self._count, self.shard).wanted
        done = sum(1 for _ in read_results(path)) if path.exists() else 0
        return done >= sum(map(len, wanted.values()))

    def _run(self, program: Program) -> None:
        number = sum(run.program == program.name for run in self.runs)
        seed = 1 + (number * self.shard.parts + self.shard.part - 1) * program.seeds
        seconds = self._planned_s(program)
        part_done = seconds / program.run_s if program.run_s else 1.0
        command = program.command.format(
            python=shlex.quote(sys.executable),
            seed=seed,
            seconds=round(seconds),
            count=max(1, round(program.count * part_done)),
            worlds=self._count,
            shard=self.shard,
            part=self.shard.part,
            parts=self.shard.parts,
            jobs=self.jobs,
            folder=shlex.quote(str(self.folder)),
        )
        log = self.folder / "logs" / f"{program.name}-{self._place}-{number + 1}.log"
        show(f"{program.name}, seed {seed} …")
        began, began_s = datetime.now(UTC).replace(microsecond=0), time.monotonic()
        status, code = run_bounded(command, log, seconds + program.grace_s)
        used_s = round(time.monotonic() - began_s, 1)
        run = ProgramRun(
            program.name,
            seed,
            program.seeds,
            command,
            began,
            used_s,
            status,
            code,
            str(log.relative_to(self.folder)),
            revision(),
            code_digest(),
            describe_machine(),
        )
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(run) + b"\n")
        self.runs.append(run)
        show(f"{program.name}, seed {seed}: {status}, {used_s:.0f} s, log {log}")
        if status == "interrupted":
            raise NightInterrupt
        is_broken = status == "failed" and used_s < LEAST_S
        self._failures[program.name] = self._failures[program.name] + 1 if is_broken else 0


def run_bounded(command: str, log: Path, bound_s: float) -> tuple[Status, int]:
    """Runs a command, with its output in a log; ends it, and all that it started, at the bound."""
    status: Status | None = None
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*LAUNCHER, *shlex.split(command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(bound_s)
        except subprocess.TimeoutExpired:
            status = "hangs"
        except NightInterrupt:
            status = "interrupted"
        if status is not None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_WAIT_S)
        with suppress(ProcessLookupError):  # Its processes, if it has left any behind.
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return status or ("failed" if code else "holds"), code


def show(text: str) -> None:
    """Prints a line of progress."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)  # noqa: T201 - a command


def interrupt(number: int, frame: object) -> NoReturn:
    """Ends the night at a signal; a second signal has no effect."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise NightInterrupt


def shard_of(text: str) -> SeedShard:
    """Returns the shard of a text such as 1/4. Raises ArgumentTypeError."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a shard such as 1/4")
    return SeedShard(int(part), int(parts))


def main(arguments: Sequence[str], programs: Sequence[Program] = PROGRAMS) -> int:
    """Runs the command; returns its status."""
    parser = argparse.ArgumentParser("tests.night", description="Run all long programs in turns.")
    parser.add_argument("--hours", type=float, default=8.0, help="time of this call")
    parser.add_argument("--shard", type=shard_of, default=SeedShard(), help="as in 1/4")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "night")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of worlds")
    parser.add_argument("--worlds", type=int, default=WORLDS, help="worlds of all shards")
    given = parser.parse_args(arguments)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)
    try:
        folder, seconds = given.folder.resolve(), given.hours * 3600
        return Night(folder, given.shard, seconds, given.jobs, given.worlds, programs).run()
    except NightInterrupt:  # Between two programs.
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
