"""`NightReport`: the results of all shards of a night, on one page.

    make night-report DIR=out/night

It reads `night-*.jsonl` and `worlds-*.jsonl` of a folder, to which the files of several machines
were copied, and writes `report.md` beside them. Its status is 1 where anything failed.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from contrada.lab.simulation.script_steps import Kind
from contrada.lab.simulation.world_results import RunConditions, read_results, read_runs
from contrada.lab.simulation.worlds import WorldResult
from tests.night import BAD, PROGRAMS, ProgramRun, read_night

SHOWN_MAX: Final = 1000
"""Violations in the report. Beyond it: they are counted."""


class KindTotals:
    """The worlds of a kind: the seeds that ran and that are wanted, and sums."""

    def __init__(self) -> None:
        self.seeds: set[int] = set()
        self.wanted: set[int] = set()
        self.seconds = self.longest_s = 0.0
        self.longest_seed = self.must = self.repeated = 0
        self.violated: list[tuple[WorldResult, RunConditions]] = []

    def add(self, ran: WorldResult, conditions: RunConditions) -> None:
        """Adds a world; one that ran twice, in two files, only by its violations and time."""
        self.repeated += ran.seed in self.seeds
        self.seconds += ran.seconds
        if ran.seconds > self.longest_s:
            self.longest_s, self.longest_seed = ran.seconds, ran.seed
        if ran.seed not in self.seeds:
            self.must += ran.outcome.must
        self.seeds.add(ran.seed)
        if ran.outcome.violations:
            self.violated.append((ran, conditions))


class NightReport:
    """The results in a folder, and their page. Raises InputError for another file."""

    def __init__(self, folder: Path) -> None:
        self._kinds: dict[Kind, KindTotals] = defaultdict(KindTotals)
        self._began: list[RunConditions] = []
        self._codes: dict[str, int] = defaultdict(int)
        self.runs: list[ProgramRun] = []
        for path in sorted(folder.glob("worlds-*.jsonl")):
            runs = read_runs(path)
            self._began += runs
            for kind, seeds in runs[-1].wanted.items() if runs else ():
                self._kinds[kind].wanted.update(seeds)
            for conditions, ran in read_results(path):
                self._kinds[ran.kind].add(ran, conditions)
                self._codes[conditions.code] += 1
        for path in sorted(folder.glob("night-*.jsonl")):
            self.runs += read_night(path)

    @property
    def violated(self) -> list[tuple[WorldResult, RunConditions]]:
        """The worlds with a violation, each with the conditions of its run."""
        return [each for totals in self._kinds.values() for each in totals.violated]

    @property
    def failed(self) -> list[ProgramRun]:
        """The failed runs of programs, but those that only report violations of worlds."""
        bad = [run for run in self.runs if run.status in BAD]
        is_listed = bool(self.violated)
        return [run for run in bad if not (is_listed and is_of_violations(run))]

    def page(self) -> str:
        """Returns the report as Markdown."""
        sections = (self._facts(), self._violations(), self._failures())
        tables = (self._world_table(), self._program_table())
        parts = ("\n".join(lines) for lines in (*sections, *tables))
        return (
            "\n\n".join(("# Report of a night of tests", *(each for each in parts if each))) + "\n"
        )

    def _facts(self) -> Iterator[str]:
        machines = {run.machine for run in self._began} | {run.machine for run in self.runs}
        revisions: dict[str, set[str]] = {run.code: set() for run in self._began}
        for run in self.runs:
            revisions.setdefault(run.code, set()).add(run.revision)
        times = [run.began for run in self._began] + [run.began for run in self.runs]
        worlds = sum(len(each.seeds) for each in self._kinds.values())
        wanted = sum(len(each.wanted) for each in self._kinds.values())
        bad = len(self.violated) + len(self.failed)
        yield f"- result: {f'**{bad} failed**' if bad else 'nothing failed'}"
        yield f"- worlds: {worlds:,} of {wanted:,}, {hours(self._world_seconds)} of processors"
        yield f"- programs: {len(self.runs)} runs, {hours(sum(run.seconds for run in self.runs))}"
        if missing := {each.name for each in PROGRAMS} - {each.program for each in self.runs}:
            yield f"- not run: {', '.join(sorted(missing))}"
        if times:
            first, last = (f"{each:%Y-%m-%d %H:%M}" for each in (min(times), max(times)))
            yield f"- runs began from {first} to {last} UTC"
        yield from (f"- machine: {each}" for each in sorted(machines))
        for code, names in revisions.items():
            known = ", ".join(sorted(names)) or "unknown"
            yield f"- revision: {known} (sources {code}), {self._codes[code]:,} worlds"
        if len(revisions) > 1:
            yield f"\n**Mixed: the results are of {len(revisions)} states of the sources.**"
        if repeated := sum(each.repeated for each in self._kinds.values()):
            yield f"\n{repeated:,} worlds are in more than one file."

    @property
    def _world_seconds(self) -> float:
        return sum(each.seconds for each in self._kinds.values())

    def _violations(self) -> Iterator[str]:
        violated = self.violated
        if not violated:
            return
        yield "## Violations of worlds\n"
        for ran, conditions in violated[:SHOWN_MAX]:
            first = str(ran.outcome.violations[0]).replace("\n", " ")
            yield f"- {ran.kind.name}, seed {ran.seed} (sources {conditions.code}): {first}\n"
            only = f'--only "{ran.kind.name}" --seed {ran.seed} --count 1'
            yield f"      contrada simulate worlds {only}\n"
        if len(violated) > SHOWN_MAX:
            yield f"- and {len(violated) - SHOWN_MAX:,} more"

    def _failures(self) -> Iterator[str]:
        if not self.failed:
            return
        yield "## Failed runs\n"
        for run in self.failed:
            how = "ended at its bound" if run.status == "hangs" else f"status {run.exit_code}"
            yield f"- {run.program}, seed {run.seed}: {how}, {run.seconds:.0f} s, {run.log}\n"
            yield f"      {run.command}\n"

    def _world_table(self) -> Iterator[str]:
        if not self._kinds:
            return
        yield "## Worlds\n"
        yield "| kind | worlds | wanted | an hour | longest, s | its seed | must | failed |"
        yield "|---|--:|--:|--:|--:|--:|--:|--:|"
        for kind, each in self._kinds.items():
            rate = 3600 * (len(each.seeds) + each.repeated) / each.seconds if each.seconds else 0.0
            longest = f"{each.longest_s:.1f} | {each.longest_seed}" if each.seeds else " | "
            counts = f"{len(each.seeds):,} | {len(each.wanted):,} | {rate:,.0f} | {longest}"
            yield f"| {kind.name} | {counts} | {each.must:,} | {len(each.violated)} |"

    def _program_table(self) -> Iterator[str]:
        if not self.runs:
            return
        yield "## Programs\n"
        yield "| program | runs | hours | longest, s | seeds | failed | hanging | interrupted |"
        yield "|---|--:|--:|--:|---|--:|--:|--:|"
        known = [program.name for program in PROGRAMS]
        for name in dict.fromkeys((*known, *(run.program for run in self.runs))):
            runs = [run for run in self.runs if run.program == name]
            counts = [sum(run.status == each for run in runs) for each in (*BAD, "interrupted")]
            longest = f"{max((run.seconds for run in runs), default=0.0):.0f}"
            used = f"{sum(run.seconds for run in runs) / 3600:.2f}"
            cells = (name, len(runs), used, longest, seeds_of(runs), *counts)
            yield f"| {' | '.join(map(str, cells))} |"


def is_of_violations(run: ProgramRun) -> bool:
    """Whether a run of worlds failed by a status that its violations explain."""
    return run.program == "worlds" and run.status == "failed" and run.exit_code == 1


def seeds_of(runs: Sequence[ProgramRun]) -> str:
    """Returns the first and the last seed of some runs."""
    if not runs:
        return "none"
    return f"{min(run.seed for run in runs)} to {max(run.seed + run.seeds - 1 for run in runs)}"


def hours(seconds: float) -> str:
    """Returns a time in hours."""
    return f"{seconds / 3600:,.2f} h"


def main(folder: Path) -> int:
    """Writes the report of a folder; returns 1 if anything failed, 2 if there are no results."""
    report = NightReport(folder)
    if not any(folder.glob("*.jsonl")):
        sys.stderr.write(f"{folder}: found no night-*.jsonl or worlds-*.jsonl\n")
        return 2
    path = folder / "report.md"
    path.write_text(report.page(), encoding="utf-8")
    sys.stdout.write(f"{path}\n")
    return int(bool(report.violated or report.failed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
