"""`contrada simulate`: networks of routers in virtual time."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import click
import msgspec
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.simulate_gossip import gossip
from contrada.cli.simulate_overlay import overlay
from contrada.cli.table_output import print_records, progress_bar, table
from contrada.lab.simulation.script_steps import from_text
from contrada.lab.simulation.world import run
from contrada.lab.simulation.worlds import WORLDS_DEFAULT, WorldResult, kinds, run_worlds, shortest

EXIT_VIOLATED: Final = 1
_COUNTED: Final = ("published", "must", "delivered", "matches_must", "matches")
SHORTENED_MAX: Final = 3
"""Worlds for which the shortest script is searched. Beyond it: only seeds are reported."""


@click.group()
def simulate() -> None:
    """Simulate networks of brokers in virtual time, with faults."""


simulate.add_command(overlay)
simulate.add_command(gossip)


@simulate.command()
@click.option("--count", default=WORLDS_DEFAULT, type=options.COUNT)
@click.option("--seed", default=0, help="First seed.")
@click.option("--jobs", default=os.cpu_count() or 1, type=options.COUNT)
@options.text("--only", None, "Only kinds with this text in their name.", default="")
@options.flag("--json as_json", "One line of JSON per kind.")
def worlds(count: int, seed: int, jobs: int, only: str, as_json: bool) -> None:
    """Run seeded worlds of every kind of network. Each kind has COUNT seeds.

    A world with a violation is reported with its seed and the shortest script of steps found;
    `contrada simulate replay` runs such a script again. The exit status is then 1.

    \b
    contrada simulate worlds --only "acyclic, advertisement" --count 10
    """  # noqa: D301 - click reads the escape
    chosen = kinds(only)
    if not chosen:
        raise click.BadParameter(f"no kind has {only!r} in its name", param_hint="--only")
    worlds_of: dict[str, list[WorldResult]] = {kind.name: [] for kind in chosen}
    with progress_bar() as progress:
        task = progress.add_task("worlds", total=len(chosen) * count)
        for ran in run_worlds(chosen, range(seed, seed + count), jobs):
            worlds_of[ran.kind.name].append(ran)
            progress.update(task, advance=1)
    summaries = [_Summary.of(name, ran) for name, ran in worlds_of.items()]
    print_records(summaries, _table(summaries), as_json=as_json)
    failed = [ran for every in worlds_of.values() for ran in every if ran.outcome.violations]
    if failed:
        _report(failed)


class _Summary(msgspec.Struct, frozen=True):
    """The results of the worlds of a kind. `must` and `delivered` count pairs."""

    kind: str
    worlds: int
    overlapping: int
    brokers_max: int
    published: int
    must: int
    delivered: int
    seconds: float
    failed: list[int]
    matches_must: int = 0
    matches: int = 0

    @classmethod
    def of(cls, kind: str, worlds: Sequence[WorldResult]) -> "_Summary":
        outcomes = [ran.outcome for ran in worlds]
        return cls(
            kind,
            worlds=len(worlds),
            overlapping=sum(each.overlapping > 0 for each in outcomes),
            brokers_max=max((ran.brokers for ran in worlds), default=0),
            seconds=round(sum(ran.seconds for ran in worlds), 3),
            failed=[ran.seed for ran in worlds if ran.outcome.violations],
            **{name: sum(getattr(each, name) for each in outcomes) for name in _COUNTED},
        )


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


def _report(failed: list[WorldResult]) -> NoReturn:
    for ran in failed:
        click.echo(f"{ran.kind.name}, seed {ran.seed}: {ran.outcome.violations[0]}", err=True)
    # Each try runs a world again, and the worlds of large networks take long.
    for ran in sorted(failed, key=lambda ran: (ran.brokers, ran.seed))[:SHORTENED_MAX]:
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
