"""`contrada simulate`: networks of routers in virtual time."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from time import monotonic
from typing import Final, NoReturn

import click
import msgspec
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.simulate_gossip import gossip
from contrada.cli.simulate_overlay import overlay
from contrada.cli.sweep_runner import sweep_each
from contrada.cli.table_output import print_records, progress_bar, table
from contrada.lab.simulation.script_steps import from_text
from contrada.lab.simulation.world import run
from contrada.lab.simulation.world_results import RunConditions, SeedShard, WorldResults
from contrada.lab.simulation.worlds import (
    WORLDS_DEFAULT,
    WorldPlan,
    WorldResult,
    run_world,
    shortest,
)

EXIT_VIOLATED: Final = 1
_COUNTED: Final = ("published", "must", "delivered", "matches_must", "matches")
SHORTENED_MAX: Final = 3
"""Worlds for which the shortest script is searched. Beyond it: only seeds are reported."""


@click.group()
def simulate() -> None:
    """Simulate networks of brokers in virtual time, with faults."""


simulate.add_command(overlay)
simulate.add_command(gossip)


def _shard(_: click.Context, __: click.Parameter, value: str) -> SeedShard:
    """Returns a part of all seeds, as in 2/4. Raises BadParameter."""
    part, _slash, parts = value.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise click.BadParameter(f"{value!r}, expected a part of all seeds such as 1/4")
    return SeedShard(int(part), int(parts))


@simulate.command()
@click.option("--count", default=WORLDS_DEFAULT, type=options.COUNT)
@click.option("--seed", default=0, help="First seed.")
@click.option("--jobs", default=os.cpu_count() or 1, type=options.COUNT)
@options.text("--only", None, "Only kinds with this text in their name.", default="")
@click.option(
    "--shard",
    metavar="I/N",
    callback=_shard,
    default=str(SeedShard()),
    help="Only part I of N of the seeds; the N parts are disjoint.",
)
@options.typed(
    "--results", options.NEW_FILE, None, "Append each world to this file; skip those that it has."
)
@click.option(
    "--seconds", type=options.SECONDS, metavar="S", help="Begin no world after S seconds."
)
@options.text("--master", "URL", "Run on Spark at this master, such as spark://host:7077.")
@options.flag("--json as_json", "One line of JSON per kind.")
def worlds(
    count: int,
    seed: int,
    jobs: int,
    only: str,
    shard: SeedShard,
    results: Path | None,
    seconds: float | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Run seeded worlds of every kind of network. Each kind has COUNT seeds.

    A world with a violation is reported with its seed and the shortest script of steps found;
    `contrada simulate replay` runs such a script again. The exit status is then 1.

    With --results, an interrupted or killed run resumes by the same command, and the table and the
    exit status include the worlds of former runs. JOBS are processes; a master has its own cores.

    \b
    contrada simulate worlds --only "acyclic, advertisement" --count 10
    contrada simulate worlds --count 16000 --shard 1/4 --results worlds-1.jsonl
    """  # noqa: D301 - click reads the escape
    conditions = RunConditions.here(seed, count, shard, only)
    wanted = conditions.wanted
    if not wanted:
        raise click.BadParameter(f"no kind has {only!r} in its name", param_hint="--only")
    end_s = float("inf") if seconds is None else monotonic() + seconds
    totals = _WorldTotals(kind.name for kind in wanted)
    with ExitStack() as stack:
        file = None if results is None else WorldResults(results, conditions)
        done = {}
        if file is not None:
            stack.enter_context(file)
            done = file.done
            for ran in file.earlier:
                if ran.seed in wanted.get(ran.kind, ()):
                    totals.add(ran)
        every = (WorldPlan(kind, each) for each in shard.seeds(seed, count) for kind in wanted)
        plans = [plan for plan in every if plan.seed not in done.get(plan.kind, ())]
        progress = stack.enter_context(progress_bar())
        task = progress.add_task("worlds", total=len(plans))

        def take(ran: WorldResult) -> None:
            if file is not None:
                file.append(ran)
            totals.add(ran, is_new=True)
            progress.update(task, advance=1)

        in_time = takewhile(lambda _: monotonic() < end_s, plans)
        engine = "spark" if master else "embedded"
        sweep_each(run_world, in_time, engine, jobs, take, master)
    summaries = totals.summaries.values()
    print_records(summaries, _table(summaries), as_json=as_json)
    if totals.failed:
        _report(totals)


class _Summary(msgspec.Struct):
    """The results of the worlds of a kind. `must` and `delivered` count pairs."""

    kind: str
    worlds: int = 0
    overlapping: int = 0
    brokers_max: int = 0
    published: int = 0
    must: int = 0
    delivered: int = 0
    seconds: float = 0.0
    failed: list[int] = msgspec.field(default_factory=list)
    matches_must: int = 0
    matches: int = 0

    def add(self, ran: WorldResult) -> None:
        self.worlds += 1
        self.overlapping += ran.outcome.overlapping > 0
        self.brokers_max = max(self.brokers_max, ran.brokers)
        self.seconds = round(self.seconds + ran.seconds, 3)
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(ran.outcome, name))
        if ran.outcome.violations:
            self.failed.append(ran.seed)


class _WorldTotals:
    """The summaries of all kinds, and the failed worlds: of all runs, and of this one."""

    def __init__(self, names: Iterable[str]) -> None:
        self.summaries = {name: _Summary(name) for name in names}
        self.failed: list[WorldResult] = []
        self.failed_now: list[WorldResult] = []

    def add(self, ran: WorldResult, *, is_new: bool = False) -> None:
        self.summaries[ran.kind.name].add(ran)
        if ran.outcome.violations:
            self.failed.append(ran)
            if is_new:
                self.failed_now.append(ran)


def _table(summaries: Iterable[_Summary]) -> Table:
    counted = ("worlds", "overlapping", "brokers", "published", "must", "given")
    figures_of = (*counted, "matches must", "given", "s", "failed")
    made = table("kind", right=figures_of, title="Worlds")
    for each in summaries:
        figures = (each.worlds, each.overlapping, each.brokers_max, each.published, each.must)
        matches = each.matches_must, each.matches
        made.add_row(
            each.kind,
            *(f"{figure:,}" for figure in (*figures, each.delivered, *matches)),
            f"{round(each.seconds):,}",
            str(len(each.failed)),
            style="bold red" if each.failed else None,
        )
    return made


def _report(totals: _WorldTotals) -> NoReturn:
    for ran in totals.failed:
        click.echo(f"{ran.kind.name}, seed {ran.seed}: {ran.outcome.violations[0]}", err=True)
    # Each try runs a world again, and the worlds of large networks take long.
    for ran in sorted(totals.failed_now, key=lambda ran: (ran.brokers, ran.seed))[:SHORTENED_MAX]:
        click.echo(f"{ran.kind.name}, seed {ran.seed}: the shortest script found", err=True)
        click.echo(shortest(ran), err=True)
    raise click.exceptions.Exit(EXIT_VIOLATED)


@simulate.command()
@click.argument("script", type=options.FILE)
def replay(script: Path) -> None:
    """Run the SCRIPT of a world again. It is a JSON file; its violations are printed."""
    outcome = run(from_text(script.read_text(encoding="utf-8"), str(script)))
    for violation in outcome.violations:
        click.echo(str(violation))
    if outcome.violations:
        raise click.exceptions.Exit(EXIT_VIOLATED)
    click.echo(f"{outcome.published} published, {outcome.delivered} delivered: all holds")
