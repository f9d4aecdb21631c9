"""The pieces of the demo on a day of its data, without Spark and without a broker."""

from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest

import contrada as ct
from contrada.integrations.files import Record, read_file
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, read_pipeline
from contrada.model import Notification
from examples.demo.check import Expected, evaluate, faults, files_of
from examples.demo.desks import INTERESTS, Inbox, Interest, check_covered, listening, settled
from examples.demo.processes import PipelineSummary, SourceSummary
from examples.demo.report import (
    Latency,
    Results,
    Searched,
    Worked,
    results_of,
    tables,
    write_report,
)
from examples.demo.run import DESCRIPTION
from examples.demo.sources import write_sources
from examples.demo.tour import Step
from tests.asynchronous import on_loop

STORM = date(2013, 2, 8)
QUOTES = 400
NOBODY_WAITS_S = 0.05
STEP = Step("a filter", "price < 1", 3, 3, is_right=True)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The demo's pipeline over one day of flights and weather and a few hundred quotes."""
    out = tmp_path_factory.mktemp("out")
    sources = write_sources(out / "sources", STORM, STORM)
    lines = sources.quotes.read_text().splitlines(keepends=True)
    sources.quotes.write_text("".join(lines[:QUOTES]))
    return read_pipeline(DESCRIPTION, {"out": str(out)})


def wanted(pipeline: Pipeline) -> dict[str, list[Notification]]:
    """The publications of the pipeline, by source, from its description."""
    return {
        source.name: [
            record.notification
            for path in files_of(source)
            for record in read_file(path, source.format, source.reading)
            if isinstance(record, Record)
            and any(each.matches(record.notification) for each in pipeline.subscriptions.values())
        ]
        for source in pipeline.sources
    }


def summary(expected: Expected, published: dict[str, list[Notification]]) -> PipelineSummary:
    """The summary of a pipeline with these publications."""
    rows = [
        SourceSummary(name, expected.read[name], expected.bad[name], len(each), 0.5)
        for name, each in published.items()
    ]
    return PipelineSummary(rows, publish_seconds=0.2, seconds=1.5, wall_s=2.0)


async def delivered(pipeline: Pipeline, *, lose: int) -> tuple[Expected, list[Inbox], Results]:
    """Publishes to subscribers in this process all but the last few, and checks the deliveries."""
    expected = await evaluate(pipeline, INTERESTS)
    published = wanted(pipeline)
    every = [notification for each in published.values() for notification in each]
    async with ct.connect() as service, AsyncExitStack() as running:
        inboxes = [await running.enter_async_context(listening(w, service)) for w in INTERESTS]
        await service.publish_batch(every[: len(every) - lose])
        await settled(inboxes, expected.totals, quiet_s=NOBODY_WAITS_S, wait_s=2 * NOBODY_WAITS_S)
    said = summary(expected, published)
    wrong = faults(expected, said, inboxes)
    latency = Latency.of([0.001, 0.002, 0.003])
    results = results_of(
        pipeline,
        said,
        expected,
        inboxes,
        wrong,
        latency=latency,
        rate_per_s=90_000.0,
        worked=Worked(23, 74, Searched(57, 6, 69, 336), 58, 317, [STEP], []),
        seconds=3.0,
    )
    return expected, inboxes, results


@pytest.mark.slow
def test_the_pieces_work_together(pipeline: Pipeline, tmp_path: Path) -> None:
    """The demo would fail for a reason that has nothing to do with Spark or the network."""

    @on_loop
    async def run() -> None:
        expected, inboxes, results = await delivered(pipeline, lose=0)
        assert results.faults == []
        assert expected.read["flights"] > 900
        assert expected.deliveries["typed StockQuote"].total() == QUOTES
        assert all(inbox.deliveries for inbox in inboxes[:2])  # It was the day of the storm.
        assert len(tables(results)) == 4
        write_report(results, tmp_path / "report.html")

    run()
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "no more and no less" in page
    for picture in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    for elsewhere in ("<script", "<link", " src=", "@import", "url(http"):
        assert elsewhere not in page


@pytest.mark.slow
def test_lost_deliveries_are_reported(pipeline: Pipeline, tmp_path: Path) -> None:
    """The page would report success although deliveries were lost."""

    @on_loop
    async def run() -> None:
        _, _, results = await delivered(pipeline, lose=3)
        assert "typed StockQuote: 3 missing" in results.faults
        write_report(results, tmp_path / "report.html")

    run()
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "typed StockQuote: 3 missing" in page
    assert "Deliveries are wrong" in page


def test_an_unpublished_interest_is_refused(pipeline: Pipeline) -> None:
    """A subscriber would wait for unpublished notifications, which the demo calls missing."""
    weaker = Interest("operations", "all delays", "kind = 'flight' and dep_delay > 15")
    with pytest.raises(ct.errors.InputError, match="not covered by the pipeline"):
        check_covered(weaker, pipeline.subscriptions)
    check_covered(replace(weaker, subject="change < -9 and symbol = 'IBM'"), pipeline.subscriptions)
