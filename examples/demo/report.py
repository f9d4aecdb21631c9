"""The results of the demo, as tables on the terminal and as a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.table import Table
from rich.text import Text

from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
from examples.demo.chart import DAY, MONTH, Series, chart
from examples.demo.check import Expected, files_of
from examples.demo.desks import Inbox
from examples.demo.processes import PipelineSummary
from examples.demo.sources import FIRST_DAY, LAST_DAY
from examples.demo.tour import MEASURED_S, WARM_S, Step
from examples.file_search.run import Search

TEMPLATE = Path(__file__).with_name("report.html.jinja")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The results of one source in the pipeline; `seconds` is reading and matching."""

    name: str
    format: str
    files: int
    read: int
    bad: int
    published: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SubscriberRow:
    """Expected and actual deliveries of a subscriber; `seconds` is from first to last."""

    desk: str
    name: str
    filters: str
    matched: int
    delivered: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency from publishing to delivery through the idle broker, one notification at a time."""

    probes: int
    median_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        """Returns the figures of some measured times."""
        return cls(len(seconds), 1e3 * median(seconds), 1e3 * quantiles(seconds, n=100)[98])


@dataclass(frozen=True, slots=True)
class Searched:
    """The messages of searches among peers, and those with flooding."""

    peers: int
    searches: int
    passed_on: int
    flooded: int

    @classmethod
    def of(cls, chosen: Sequence[Search], flooded: Sequence[Search], peers: int) -> "Searched":
        """Returns the figures of the same searches in both ways."""
        counts = (sum(each.passed_on for each in several) for several in (chosen, flooded))
        return cls(peers, len(chosen), *counts)


@dataclass(frozen=True, slots=True)
class Worked:
    """The results of the worked examples, and their faults."""

    trades: int
    sites: int
    searched: Searched
    bulletins: int
    shared: int
    steps: Sequence[Step]
    faults: Sequence[str]


@dataclass(frozen=True, slots=True)
class Results:
    """All results of the demo. `faults` is empty when every delivery was right."""

    sources: Sequence[SourceRow]
    subscribers: Sequence[SubscriberRow]
    inboxes: Sequence[Inbox]
    faults: Sequence[str]
    latency: Latency
    rate_per_s: float
    worked: Worked
    publish_seconds: float
    start_seconds: float
    seconds: float

    @property
    def read(self) -> int:
        """Records of all sources."""
        return sum(source.read for source in self.sources)

    @property
    def published(self) -> int:
        """Notifications that the pipeline published."""
        return sum(source.published for source in self.sources)

    @property
    def delivered(self) -> int:
        """Deliveries to all subscribers."""
        return sum(row.delivered for row in self.subscribers)

    @property
    def verdict(self) -> str:
        """The outcome of the check, in one sentence."""
        if self.faults:
            return "Deliveries are wrong: they differ from direct evaluation."
        worked = self.worked
        return (
            f"All {self.delivered:,} deliveries are right: they equal the matches of every filter "
            f"with each of the {self.read:,} notifications, no more and no less. All "
            f"{worked.trades:,} trades of the stock market follow from its quotes. The answers of "
            f"{worked.sites:,} sites agree with all flights, and {worked.searched.searches} "
            f"searches among {worked.searched.peers} peers found all files. "
            f"{worked.bulletins} bulletins of a feed that was polled twice reached their desks. "
            f"Partners read {worked.shared} flights of their own, posted over HTTP, and no others. "
            "In a network of three brokers filters, functions, patterns, rules and questions got "
            "what they asked for, and a killed broker lost no certified notification."
        )

    @property
    def speeds(self) -> list[tuple[str, str]]:
        """Returns the speeds, each with its meaning; rates only of what runs for long enough."""
        worked = self.worked
        match_seconds = sum(source.seconds for source in self.sources)
        return [
            ("pipeline, start and end", f"{self.start_seconds:.1f} s"),
            (
                "pipeline, reading and matching, its code still cold",
                f"{match_seconds:.1f} s for {self.read:,} records",
            ),
            (
                "publishing that over TCP, deliveries included",
                f"{self.publish_seconds:.1f} s: {self.published:,} published, "
                f"{self.delivered:,} delivered",
            ),
            (
                f"publisher to subscriber over TCP, {MEASURED_S:g} s after {WARM_S:g} s",
                f"{self.rate_per_s:,.0f} notifications/s, in batches",
            ),
            (
                f"publish to delivery, broker idle, {self.latency.probes} one at a time",
                f"median {self.latency.median_ms:.2f} ms, 99 % within {self.latency.p99_ms:.2f} ms",
            ),
            (
                f"{worked.searched.searches} searches among {worked.searched.peers} peers",
                f"passed on {worked.searched.passed_on} times, "
                f"{worked.searched.flooded} times with flooding",
            ),
            ("the whole demo", f"{self.seconds:.1f} s"),
        ]


def results_of(
    pipeline: Pipeline,
    summary: PipelineSummary,
    expected: Expected,
    inboxes: Sequence[Inbox],
    wrong: Sequence[str],
    *,
    latency: Latency,
    rate_per_s: float,
    worked: Worked,
    seconds: float,
) -> Results:
    """Combines the results of the demo's parts."""
    formats = {source.name: source for source in pipeline.sources}
    return Results(
        sources=[
            SourceRow(
                each.source,
                formats[each.source].format,
                len(files_of(formats[each.source])),
                each.read,
                each.bad,
                each.published,
                each.seconds,
            )
            for each in summary.sources
        ],
        subscribers=[
            SubscriberRow(
                inbox.interest.desk,
                inbox.interest.name,
                inbox.interest.shown,
                expected.totals[inbox.interest.name],
                len(inbox.deliveries),
                inbox.span_s,
            )
            for inbox in inboxes
        ],
        inboxes=inboxes,
        faults=wrong,
        latency=latency,
        rate_per_s=rate_per_s,
        worked=worked,
        publish_seconds=summary.publish_seconds,
        start_seconds=summary.wall_s - summary.seconds,
        seconds=seconds,
    )


def tables(results: Results) -> list[Table]:
    """Returns the tables for the terminal."""
    sources = Table("source", "format", title="read by the pipeline", title_justify="left")
    for heading in ("files", "read", "bad", "published", "in s"):
        sources.add_column(heading, justify="right")
    for row in results.sources:
        figures = (f"{count:,}" for count in (row.files, row.read, row.bad, row.published))
        sources.add_row(row.name, row.format, *figures, f"{row.seconds:.1f}")
    subscribers = Table("desk and subscriber", title="delivered over TCP", title_justify="left")
    for heading in ("matched", "delivered", "in s"):
        subscribers.add_column(heading, justify="right", no_wrap=True)
    for each in results.subscribers:
        counts = (f"{each.matched:,}", f"{each.delivered:,}", f"{each.seconds:.2f}")
        subscriber = Text(f"{each.desk}: {each.name}\n").append(f"  {each.filters}", "dim")
        subscribers.add_row(subscriber, *counts)
    asked = Table("three brokers, on quotes", title="a network", title_justify="left")
    for heading in ("due", "received"):
        asked.add_column(heading, justify="right")
    for step in results.worked.steps:
        shown = Text(f"{step.name}\n").append(f"  {step.asked}", "dim")
        asked.add_row(shown, f"{step.expected:,}", f"{step.received:,}")
    speeds = Table("how fast", "", title_justify="left")
    for name, figure in results.speeds:
        speeds.add_row(name, figure)
    return [sources, subscribers, asked, speeds]


def write_report(results: Results, path: Path) -> None:
    """Writes the page, which is one file without references."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = {
        "operations": chart(_series(results, "operations"), DAY, "operations"),
        "trading": chart(_series(results, "trading"), MONTH, "trading"),
    }
    page = environment.get_template(TEMPLATE.name).render(
        results=results,
        charts=charts,
        first=f"{FIRST_DAY.day} {FIRST_DAY:%B}",
        last=f"{LAST_DAY.day} {LAST_DAY:%B %Y}",
    )
    path.write_text(page, encoding="utf-8")


def _series(results: Results, desk: str) -> list[Series]:
    return [
        Series(inbox.interest.name, [delivery.happened for delivery in inbox.deliveries])
        for inbox in results.inboxes
        if inbox.interest.desk == desk
    ]
