"""`contrada simulate gossip`: the thesis' figures of gossip, reproduced."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.sweep_runner import engine_options, explain_columns, sweep_results
from contrada.cli.table_output import print_records, progress_bar
from contrada.lab.gossip_rounds import gossip_figures
from contrada.lab.gossip_rounds.gossip_runs import disseminate
from contrada.lab.simulation.process_pool import in_processes

POINT_RUNS_MAX: Final = 100_000
"""Runs of each point of a figure. Beyond it: the command is refused."""

COLUMNS: Final = {
    "curve": "the other parameter that differs",
    "simulated": "the mean over all runs",
    "from, to": "where the mean of any number of runs is, with 95 of 100",
    "refined": "the refined analysis",
    "as printed": "the thesis' equations as printed",
    "nearly all": f"runs that reach {gossip_figures.NEARLY_ALL:.0%} of the interested or more",
    "messages": "of a run, on average",
}
"""The columns of a figure; the first one is the parameter that the figure varies."""


@click.command(epilog=explain_columns("The columns", COLUMNS, 12))
@click.option(
    *("--figure", "names"),
    multiple=True,
    type=click.Choice(tuple(gossip_figures.figures())),
    help="Figure to draw; repeatable. [default: all]",
)
@options.typed("--runs", click.IntRange(1, POINT_RUNS_MAX), None, "Runs of each point.", 30)
@click.option("--seed", default=0, help="Seed of the random numbers.")
@engine_options
@options.typed(
    "--out", options.FOLDER, None, "Folder for tables and charts; existing ones are overwritten."
)
@click.option("--form", type=click.Choice(("png", "svg")), default="png")
@options.flag("--json as_json", "One line of JSON per point.")
@click.option("--branching", type=options.COUNT, help="a, instead of a figure's own.")
@click.option("--levels", type=options.COUNT, help="l, likewise.")
@click.option("--redundancy", type=options.COUNT, help="R, likewise.")
@click.option("--fanout", type=options.COUNT, help="F, likewise.")
@click.option("--loss", type=float, help="ε, share of lost messages.")
@click.option("--crashes", type=float, help="τ, share of participants that crash.")
@options.typed("--audience", click.IntRange(0), None, "D; in figure 6.13 that of the tuned curve.")
@options.typed("--rounds", click.IntRange(1), None, "T, rounds at each level, not as expected.")
@options.typed("--interest", float, "P1", "p₁ of figures 6.10 and 6.12.", 0.2)
def gossip(
    names: tuple[str, ...],
    runs: int,
    seed: int,
    engine: str,
    jobs: int,
    out: Path | None,
    form: str,
    as_json: bool,
    interest: float,
    **given: float | None,
) -> None:
    """Reproduce the gossip figures of the thesis. They are 6.7 to 6.13, simulated and calculated.

    Each point is run RUNS times, each run with its own seed, and calculated both as the thesis
    prints it and refined. The runs are distributed over Spark, one per row, if it is installed,
    else over processes; the numbers are the same. A folder --out gets a table (CSV) and a chart of
    each figure, with simulation and analysis in one plot.

    Parameters of the group replace those of the figures, except the parameter that a figure varies.

    \b
    contrada simulate gossip --out out/gossip
    contrada simulate gossip --figure 6.7 --runs 100 --loss 0.05
    """  # noqa: D301 - click reads the escape
    group = {name: value for name, value in given.items() if value is not None}
    every = gossip_figures.figures(group, interest)
    chosen = [figure for name, figure in every.items() if not names or name in names]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    plans = gossip_figures.plans_of(chosen, runs, seed)
    points = dict.fromkeys(point for figure in chosen for point in figure.points)
    analysed: dict[gossip_figures.GossipPoint, gossip_figures.AnalysedPoint] = {}
    with progress_bar() as progress:
        task = progress.add_task("runs", total=len(plans))
        ran = sweep_results(disseminate, plans, engine, jobs, lambda: progress.advance(task))
        outcomes = {outcome.plan: outcome for outcome in ran}
        task = progress.add_task("analysis", total=len(points))
        for each in in_processes(gossip_figures.analyse, points, jobs):
            analysed[each.point] = each
            progress.advance(task)
    for figure in chosen:
        rows = gossip_figures.rows_of(figure, runs, seed, outcomes, analysed)
        print_records(rows, _table(figure, rows), as_json=as_json)
        if out is not None:
            table, chart = (out / f"figure-{figure.name}.{each}" for each in ("csv", form))
            gossip_figures.write_csv(rows, table)
            gossip_figures.draw_figure(figure, rows, chart)
            click.echo(f"{table}\n{chart}", err=True)


def _table(figure: gossip_figures.GossipFigure, rows: Sequence[gossip_figures.FigureRow]) -> Table:
    title = f"Figure {figure.name}: {figure.title}, {rows[0].runs} runs a point"
    table = Table(title=f"{title}\n{figure.group}")
    for heading in (figure.varied, *COLUMNS):
        table.add_column(heading, justify="left" if heading == "curve" else "right")
    for row in rows:
        table.add_row(
            f"{row.x:g}",
            row.curve,
            f"{row.simulated:.4f}",
            f"{row.low:.4f}, {row.high:.4f}",
            f"{row.refined:.4f}",
            f"{row.printed:.4f}",
            f"{row.nearly_all:.0%}",
            f"{row.messages:,.0f}",
        )
    return table
