"""`contrada simulate overlay`: comparison of the costs of topologies and strategies."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.table import Column, Table

from contrada.cli import shared_options as options
from contrada.cli.sweep_runner import engine_options, explain_columns, sweep_results
from contrada.cli.table_output import print_records, progress_bar, table
from contrada.integrations.files.subscription_files import load_subscriptions
from contrada.lab.simulation.overlay_cost import (
    OBJECTS_MAX,
    PARTIES_MAX,
    Cost,
    Saved,
    draw,
    filter_of,
    measure,
    plans,
    saved,
)
from contrada.lab.simulation.script_steps import BROKERS_MAX
from contrada.lab.simulation.sites import sites_of
from contrada.lab.simulation.worlds import SAVINGS

EXIT_DIFFERENT: Final = 1

COLUMNS: Final = {
    "kind": "shape, strategy and savings (plain: none)",
    "parties": "interested parties, each with one subscription",
    "delivered": "notifications delivered to parties, in all",
    "a path": "length of the path to a receiver, on average",
    "a notification": "cost of one notification, to all its receivers, on average",
    "a subscription": "cost of one and of its withdrawal, on average",
    "of plain": "that cost in percent of the same kind's without covering or merging",
    "an advertisement": "cost of one and of its withdrawal, on average",
    "total": "cost of all that was sent, but for link states",
    "table": "distinct filters of a server when all ask, on average",
    "largest": "those of the server with the most at that moment",
}
"""The columns of the costs."""

COLUMNS_OF_SAVINGS: Final = {
    "subscriptions of": "made: drawn as for the parties; or a file of --filters",
    "all": "subscriptions",
    "refused": "filters that match nothing or are beyond a limit",
    "plain": "filters at the neighbour (messages to it), nothing saved",
    "covering": "the same, where covered filters are not sent",
    "merging": "the same, where filters are joined as well",
}
"""The columns of the savings."""

_EXPLAINED: Final = "\n\n".join(
    explain_columns(title, columns, 16)
    for title, columns in (("The costs", COLUMNS), ("The savings", COLUMNS_OF_SAVINGS))
)


def _numbers(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[int, ...]:
    """Returns integers, separated by commas, in order. Raises BadParameter."""
    value = ",".join(values)
    try:
        numbers = tuple(sorted({int(each) for each in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r}, expected numbers such as 10,100") from None
    if numbers[0] < 1 or numbers[-1] > PARTIES_MAX:
        raise click.BadParameter(f"{value!r}, expected 1 to PARTIES_MAX = {PARTIES_MAX}")
    return numbers


@click.command(epilog=_EXPLAINED)
@click.option("--network", default="random", help="random, transit-stub, or a key of topohub.")
@click.option("--sites", default=16, type=click.IntRange(1, BROKERS_MAX))
@click.option(
    "--parties", default=["1,10,100,300"], multiple=True, metavar="NUMBERS", callback=_numbers
)
@click.option("--objects", default=20, type=click.IntRange(1, OBJECTS_MAX))
@click.option("--notifications", default=5, type=click.IntRange(1, 1000))
@options.text("--only", None, "Only kinds with this text in their name.", default="")
@click.option("--seed", default=0)
@engine_options
@click.option("--plots", type=options.FOLDER, help="Folder for the results.")
@click.option("--form", type=click.Choice(("svg", "png")), default="svg")
@click.option(
    "--filters", multiple=True, type=options.FILE, help="File of subscriptions, as for `match`."
)
@options.flag("--json as_json", "One line of JSON per run.")
def overlay(
    network: str,
    sites: int,
    parties: tuple[int, ...],
    objects: int,
    notifications: int,
    only: str,
    seed: int,
    engine: str,
    jobs: int,
    plots: Path | None,
    form: str,
    filters: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Compare the costs of kinds of networks. The numbers of interested parties grow.

    NETWORK is generated (random, transit-stub; with --sites), or a real one by its key in the
    package topohub, such as sndlib/germany50. Each kind of network gets the same objects of
    interest and interested parties at the same sites, and must deliver the same. A cost is the
    number of messages times the length of their links.

    The runs are distributed over Spark, one per row, if it is installed, else over processes.

    A second table shows the savings of covering and merging at one server: for the random filters
    of the parties, and for those of each file of --filters, one subscription per line as in `name:
    filter`, such as the output of `contrada translate`.

    \b
    contrada simulate overlay
    contrada simulate overlay --network sndlib/germany50 --only acyclic --plots out/overlay
    contrada simulate overlay --filters windows.filters --filters alerts.filters
    """  # noqa: D301 - click reads the escape
    count = sites_of(network, sites, seed).count
    every = plans(network, count, parties, objects=objects, notifications=notifications, seed=seed)
    chosen = [plan for plan in every if only in plan.kind.name]
    if not chosen:
        raise click.BadParameter(f"no kind has {only!r} in its name", param_hint="--only")
    sets = {str(each): list(load_subscriptions(each).values()) for each in filters}
    chance = random.Random(seed)
    sets = {"made": [filter_of(chance) for _ in range(parties[-1])], **sets}
    with progress_bar() as progress:
        task = progress.add_task("runs", total=len(chosen))
        costs = sweep_results(measure, chosen, engine, jobs, lambda: progress.advance(task))
        task = progress.add_task("savings", total=len(SAVINGS) * sum(map(len, sets.values())))
        savings = [saved(name, each, lambda: progress.advance(task)) for name, each in sets.items()]
    costs.sort(key=lambda cost: chosen.index(cost.plan))
    print_records(costs, _table(costs), as_json=as_json)
    print_records(savings, _table_of_savings(savings), as_json=as_json)
    if plots is not None:
        for file in draw(costs, plots, form):
            click.echo(str(file), err=True)
    _check(costs)


def _check(costs: Sequence[Cost]) -> None:
    delivered: dict[int, set[int]] = {}
    for cost in costs:
        delivered.setdefault(cost.plan.parties, set()).add(cost.delivered)
    for parties, counts in delivered.items():
        if len(counts) > 1:
            click.echo(f"with {parties} parties were delivered: {sorted(counts)}", err=True)
            raise click.exceptions.Exit(EXIT_DIFFERENT)


def _table(costs: Sequence[Cost]) -> Table:
    plan = costs[0].plan
    title = f"{plan.network}, {plan.sites} sites, {plan.objects} objects, seed {plan.seed}"
    kind, *figures = COLUMNS
    made = table(Column(kind, no_wrap=True), right=figures, title=title)
    plain = {
        (cost.plan.kind.name.rpartition(", ")[0], cost.plan.parties): cost.per_subscription
        for cost in costs
        if not cost.plan.kind.covering
    }
    for cost in costs:
        family = cost.plan.kind.name.rpartition(", ")[0]
        compared = plain.get((family, cost.plan.parties))
        made.add_row(
            cost.plan.kind.name,
            f"{cost.plan.parties:,}",
            f"{cost.delivered:,}",
            f"{cost.path:.3g}",
            f"{cost.per_notification:.3g}",
            f"{cost.per_subscription:.3g}",
            f"{cost.per_subscription / compared:.0%}" if compared else "",
            f"{cost.per_advertisement:.3g}",
            f"{cost.total:,.0f}",
            f"{cost.table_mean:.1f}",
            f"{cost.table_max:,}",
        )
    return made


def _table_of_savings(savings: Sequence[Saved]) -> Table:
    title = "Savings of covering and merging: filters held by a neighbour (messages)"
    name, *figures = COLUMNS_OF_SAVINGS
    made = table(Column(name, overflow="fold"), right=figures, title=title)
    for each in savings:
        held = (f"{a:,} ({b:,})" for a, b in zip(each.filters, each.messages, strict=True))
        made.add_row(each.name, f"{each.subscriptions:,}", f"{each.refused:,}", *held)
    return made
