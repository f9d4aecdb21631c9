"""The demo: an airline's operations desk, a trading desk and a stock market, on real data.

    make demo                        # or: python -m examples.demo --out DIRECTORY
    python -m examples.demo --serve  # ends in the console of the running network

    sources (CSV, XML, JSON) -> stream on Spark -> broker -> subscribers over TCP

Without Java the pipeline is a batch run in a process of its own, with the same matches.

The steps are in `demo` below, one after another. Everything is real: the data (flights, weather and
quotes of two packages), three brokers and the pipeline (the commands `contrada serve` and `contrada
pipeline run`), the subscribers (a TCP connection each). At the end all deliveries are compared with
direct evaluation of every filter by plain readers.

With `--serve` the brokers and desks stay, and quotes are published on and on, until Ctrl-C.

Exit status: 0 when all deliveries are right, 1 after a wrong delivery or a failure, 130 by Ctrl-C.
"""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import cycle
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
from contrada.errors import ContradaError, MissingRequirementError
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.spark_session import check_requirements
from contrada.routing.router import Strategy
from examples.airport_news.run import follow
from examples.demo import processes
from examples.demo.check import evaluate, faults
from examples.demo.desks import INTERESTS, check_covered, listening, settled
from examples.demo.network import LINKS, DemoNetwork, network
from examples.demo.report import (
    Latency,
    Results,
    Searched,
    Worked,
    results_of,
    tables,
    write_report,
)
from examples.demo.sources import write_sources
from examples.demo.tour import read_quotes, steady_rate, tour
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
    *("sources", "subscribers", "stream", "direct evaluation", "deliveries"),
    *("stock trade", "sites", "file search", "airport news", "partners", "network"),
)

SERVED_PER_S: Final = 50
"""Quotes per second with `--serve`."""

COLUMNS: Final = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeElapsedColumn(),
)

EXIT_FAULT: Final = 1
EXIT_INTERRUPTED: Final = 130


async def demo(out: Path, progress: Progress, brokers: DemoNetwork) -> Results:
    """Runs everything over a network and returns the results. Raises the error of a failed part."""
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
    description = describe_pipeline(out)
    pipeline = read_pipeline(description, {"out": str(out)})
    for interest in INTERESTS:
        check_covered(interest, pipeline.subscriptions)

    async with AsyncExitStack() as running:
        # 3. The subscribers of the desks at a broker, each with a connection of its own.
        progress.start_task(starting)
        address = brokers.address("oslo")
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
            piped = group.create_task(processes.pipeline(description, out, address))
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
        rate_per_s = await steady_rate(address)

    # 6. Markets, sites, peers, a feed and a network work over the same brokers, or their own.
    worked = await work(brokers, sources.quotes, progress, *working)

    # 7. Is everything there, and nothing else? (All have ended: nothing more can come.)
    wrong = [*faults(expected, summary, inboxes), *worked.faults]
    return results_of(
        pipeline,
        summary,
        expected,
        inboxes,
        wrong,
        latency=latency,
        rate_per_s=rate_per_s,
        worked=worked,
        seconds=monotonic() - began,
    )


def describe_pipeline(out: Path) -> Path:
    """Returns the file of the pipeline: a stream, or without Java a copy as a batch."""
    try:
        check_requirements()
    except MissingRequirementError:
        text = DESCRIPTION.read_text("utf-8").replace('mode = "stream"', 'mode = "batch"')
        copy = out / DESCRIPTION.name
        copy.write_text(text.replace('"../', f'"{DESCRIPTION.parents[1]}/'), "utf-8")
        return copy
    return DESCRIPTION


async def work(
    brokers: DemoNetwork,
    quotes: Path,
    progress: Progress,
    trading: TaskID,
    selecting: TaskID,
    searching: TaskID,
    following: TaskID,
    sharing: TaskID,
    touring: TaskID,
) -> Worked:
    """Runs the worked examples, each compared with a loop over all of its data."""
    wrong: list[str] = []
    address = brokers.address("oslo")
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

    # All kinds of subscriptions between brokers, a question, and a broker that is killed.
    progress.start_task(touring)
    steps = await tour(brokers, read_quotes(quotes))
    due, got = (sum(getattr(it, name) for it in steps) for name in ("expected", "received"))
    progress.update(touring, total=due, completed=got)
    wrong += [f"{step.name}: {step}" for step in steps if not step.is_right]
    searched = Searched.of(chosen, flooded, len(shares))
    return Worked(trades, sites, searched, bulletins, received, steps, wrong)


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


async def keep_alive(brokers: DemoNetwork, quotes: Path) -> None:
    """Publishes quotes for the desks, at all brokers, until it is cancelled."""
    async with AsyncExitStack() as running:
        publisher = await running.enter_async_context(connect(brokers.address("riga")))
        for interest in INTERESTS:
            service = await running.enter_async_context(connect(brokers.address("bern")))
            events = await running.enter_async_context(service.subscribe(interest.subject))
            reading = asyncio.create_task(read_all(events))
            running.callback(reading.cancel)
        for quote in cycle(read_quotes(quotes)):
            await publisher.publish(quote)
            await asyncio.sleep(1 / SERVED_PER_S)


async def read_all(events: AsyncIterator[object]) -> None:
    """Reads and forgets."""
    async for _ in events:
        pass


async def run(out: Path, console: Console, *, serves: bool) -> bool:
    """Runs the demo, and shows it; returns whether all is right.

    The first Ctrl-C (or SIGTERM) ends it in order, others do nothing. Raises CancelledError then.
    """
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with network() as brokers:
        with Progress(*COLUMNS, console=console) as progress:
            results = await demo(out, progress, brokers)
        show(results, out / "report.html", console)
        if serves:
            console.print(f"console: {brokers.console}", highlight=False, soft_wrap=True)
            console.print("brokers: " + " ".join(map(brokers.address, LINKS)), highlight=False)
            console.print("quotes are published until Ctrl-C")
            await keep_alive(brokers, out / "sources" / "quotes.jsonl")
    return not results.faults


def show(results: Results, report: Path, console: Console) -> None:
    """Prints the results, and writes their page."""
    for table in tables(results):
        console.print(table)
    write_report(results, report)
    for fault in results.faults:
        console.print(fault, style="red", markup=False, highlight=False)
    console.print(results.verdict, style="bold red" if results.faults else "bold green")
    console.print(f"report: {report}", highlight=False, soft_wrap=True)


@click.command()
@click.option("--out", default=OUT, type=click.Path(path_type=Path), help="Folder for the files.")
@click.option("--serve", is_flag=True, help="Keep the network, and print its console's address.")
def main(out: Path, serve: bool) -> None:
    """Run the demo and write its report."""
    console = Console()
    try:
        is_right = asyncio.run(run(out.absolute(), console, serves=serve))
    except* ContradaError as failed:
        for error in failed.exceptions:
            console.print(f"demo: error: {error}", style="red", markup=False, soft_wrap=True)
        raise SystemExit(EXIT_FAULT) from None
    except* asyncio.CancelledError:
        console.print("demo: interrupted; the brokers, Spark and the subscribers have ended")
        raise SystemExit(EXIT_INTERRUPTED) from None
    raise SystemExit(0 if is_right else EXIT_FAULT)
