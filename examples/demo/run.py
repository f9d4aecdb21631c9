"""The demo: an airline's operations desk, a trading desk and a stock market, on real data.

    make demo            # or: python -m examples.demo --out DIRECTORY

    sources (CSV, XML, JSON) -> stream on Spark -> broker -> subscribers over TCP

The steps are in `demo` below, one after another. Everything is real: the data (flights, weather and
quotes of two packages), the broker and the pipeline (the commands `contrada serve` and `contrada
pipeline run`), the subscribers (a TCP connection each). At the end all deliveries are compared with
direct evaluation of every filter by plain readers.

Exit status: 0 when all deliveries are right, 1 after a wrong delivery or a failure, 130 by Ctrl-C.
"""

import asyncio
import shutil
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter
from typing import Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from contrada.connections import connect
from contrada.errors import ContradaError
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.routing.router import Strategy
from examples.airport_news.run import follow
from examples.demo import processes
from examples.demo.check import evaluate, faults
from examples.demo.desks import INTERESTS, check_covered, listening, settled
from examples.demo.report import Latency, Results, Searched, results_of, tables, write_report
from examples.demo.sources import write_sources
from examples.file_search.peers import shared
from examples.file_search.run import expected as expected_files
from examples.file_search.run import search
from examples.partners.run import share
from examples.site_select.run import select
from examples.stock_trade.run import trade

DESCRIPTION: Final = Path(__file__).parents[1] / "pipelines" / "operations.toml"
OUT: Final = Path(__file__).parents[2] / "out"

QUIET_S: Final = 0.5
"""Seconds of silence, after the last expected delivery, for extra deliveries."""

DELIVERY_WAIT_S: Final = 5.0
"""Seconds of silence after which missing deliveries count as lost."""

PROBES: Final = 300
"""Notifications that are sent one at a time to measure the latency."""

STEPS: Final = (
    *("sources", "broker, subscribers", "stream", "direct evaluation", "deliveries"),
    *("stock trade", "sites", "file search", "airport news", "partners"),
)

EXIT_FAULT: Final = 1
EXIT_INTERRUPTED: Final = 130


async def demo(out: Path, progress: Progress) -> Results:
    """Runs everything and returns the results. Raises the error of a failed part."""
    began = monotonic()
    writing, starting, piping, evaluating, delivering, *working = (
        progress.add_task(step, total=None, start=False) for step in STEPS
    )

    # 1. Files, written from the data that the packages bring; nothing is left of a demo before.
    progress.start_task(writing)
    shutil.rmtree(out / "pipeline", ignore_errors=True)
    sources = write_sources(out / "sources")
    records = sources.flight_rows + sources.observations + sources.quote_lines
    progress.update(writing, total=records, completed=records)

    # 2. The pipeline publishes what its own subscriptions match: does that cover the desks?
    pipeline = read_pipeline(DESCRIPTION, {"out": str(out)})
    for interest in INTERESTS:
        check_covered(interest, pipeline.subscriptions)

    async with AsyncExitStack() as running:
        # 3. A broker, and the subscribers of the desks, each with a connection of its own.
        progress.start_task(starting)
        address = await running.enter_async_context(processes.broker())
        inboxes = []
        for interest in INTERESTS:
            service = await running.enter_async_context(connect(address))
            listener = listening(interest, service, show=lambda: progress.advance(delivering))
            inboxes.append(await running.enter_async_context(listener))
        progress.update(starting, total=len(inboxes), completed=len(inboxes))

        # 4. The pipeline publishes to the broker; meanwhile every filter is evaluated directly.
        progress.start_task(piping)
        progress.start_task(evaluating)
        progress.update(evaluating, total=records)
        progress.start_task(delivering)
        async with asyncio.TaskGroup() as group:
            piped = group.create_task(processes.pipeline(DESCRIPTION, out, address))
            expected = await evaluate(
                pipeline, INTERESTS, show=lambda done: progress.update(evaluating, completed=done)
            )
            progress.update(evaluating, completed=records)
            progress.update(delivering, total=sum(expected.totals.values()))
        summary = piped.result()
        progress.update(piping, total=records, completed=records)

        # 5. The broker has all that was published: wait until it has delivered it.
        await settled(inboxes, expected.totals, quiet_s=QUIET_S, wait_s=DELIVERY_WAIT_S)
        latency = Latency.of(await probe(address))

        # 6. Markets, sites, peers and a feed work over the same broker, or brokers of their own.
        worked = await work(address, progress, *working)

    # 7. Is everything there, and nothing else? (All have ended: nothing more can come.)
    wrong = [*faults(expected, summary, inboxes), *worked.faults]
    return results_of(
        pipeline,
        summary,
        expected,
        inboxes,
        wrong,
        latency=latency,
        trades=worked.trades,
        sites=worked.sites,
        searched=worked.searched,
        bulletins=worked.bulletins,
        shared=worked.shared,
        seconds=monotonic() - began,
    )


@dataclass(frozen=True, slots=True)
class Worked:
    """The results of the worked examples, and their faults."""

    trades: int
    sites: int
    searched: Searched
    bulletins: int
    shared: int
    faults: list[str]


async def work(
    address: str,
    progress: Progress,
    trading: TaskID,
    selecting: TaskID,
    searching: TaskID,
    following: TaskID,
    sharing: TaskID,
) -> Worked:
    """Runs the worked examples, each compared with a loop over all of its data."""
    wrong: list[str] = []
    # A market, a broker and a bank trade, by types of events.
    progress.start_task(trading)
    async with connect(address) as service:
        traded, due = await trade(service)
    trades = traded.bought.total()
    progress.update(trading, total=due.bought.total(), completed=trades)
    if traded != due:
        wrong.append(f"stock trade: {traded}, expected {due}")

    # Commands and questions go to airports that bit sets select, each a source there.
    progress.start_task(selecting)
    async with connect(address) as service:
        selected, sought = await select(service, [service])
    sites = sum(map(len, selected.asked.values()))
    progress.update(selecting, total=sites, completed=sites)
    if selected != sought:
        wrong.append(f"sites: {selected}, expected {sought}")

    # Peers search files of one another, with descriptions and with flooding.
    progress.start_task(searching)
    shares = shared()
    chosen = await search(Strategy.SUBSCRIPTIONS, shares)
    flooded = await search(Strategy.FLOODING, shares)
    progress.update(searching, total=2 * len(chosen), completed=2 * len(chosen))
    files = expected_files(shares)
    wrong += [f"file search: {it}" for it in (*chosen, *flooded) if it.found != files[it.text]]

    # A feed is polled twice; its news reach the desks of their airports, under any name.
    progress.start_task(following)
    async with connect(address) as service:
        followed, expected = await follow(service)
    bulletins = followed.received.total()
    progress.update(following, total=expected.received.total(), completed=bulletins)
    if followed != expected:
        wrong.append(f"airport news: {followed}, expected {expected}")

    # Carriers are users of a broker, and read their own flights, which come over HTTP.
    progress.start_task(sharing)
    had, mine = await share()
    received = had.received.total()
    progress.update(sharing, total=mine.received.total(), completed=received)
    if had != mine:
        wrong.append(f"partners: {had}, expected {mine}")
    searched = Searched.of(chosen, flooded, len(shares))
    return Worked(trades, sites, searched, bulletins, received, wrong)


async def probe(address: str) -> list[float]:
    """Returns the seconds from publishing to delivery, for single notifications."""
    seconds = []
    async with (
        connect(address) as sender,
        connect(address) as receiver,
        receiver.subscribe("probe exists") as events,
    ):

        async def arrival() -> float:
            await anext(events)
            return perf_counter()

        for number in range(PROBES):
            arriving = asyncio.create_task(arrival())
            await asyncio.sleep(0)  # It waits before anything is sent.
            sent = perf_counter()
            await sender.publish({"probe": number})
            seconds.append(await arriving - sent)
    return seconds


async def run_interruptibly(out: Path, progress: Progress) -> Results:
    """Runs the demo; the first Ctrl-C (or SIGTERM) ends it in order, others do nothing."""
    task = asyncio.ensure_future(demo(out, progress))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


@click.command()
@click.option("--out", default=OUT, type=click.Path(path_type=Path), help="Folder for the files.")
def main(out: Path) -> None:
    """Run the demo and write its report."""
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    out = out.absolute()
    try:
        with Progress(*columns, console=console) as progress:
            results = asyncio.run(run_interruptibly(out, progress))
    except* ContradaError as failed:
        for error in failed.exceptions:
            console.print(f"demo: error: {error}", style="red", markup=False, soft_wrap=True)
        raise SystemExit(EXIT_FAULT) from None
    except* asyncio.CancelledError:
        console.print("demo: interrupted; the broker, Spark and the subscribers have ended")
        raise SystemExit(EXIT_INTERRUPTED) from None
    for table in tables(results):
        console.print(table)
    report = out / "report.html"
    write_report(results, report)
    for fault in results.faults:
        console.print(fault, style="red", markup=False, highlight=False)
    console.print(results.verdict, style="bold red" if results.faults else "bold green")
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    raise SystemExit(EXIT_FAULT if results.faults else 0)
