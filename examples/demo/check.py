"""What should have been delivered, found out another way, and how what was delivered differs.

The way taken here shares as little as possible with the way of the deliveries: no Spark, no
index, no broker. Plain readers read the same files, and each filter is asked about each
notification.
"""

import asyncio
import glob
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contrada.integrations.files import BadRecord, Record, read_file
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.model import Envelope, Notification
from examples.demo.desks import Inbox, Wish
from examples.demo.processes import PipelineSummary

RECORDS_PER_TURN = 200
"""After so many records others get their turn, so that the evaluation can be interrupted."""

EXAMPLES_MAX = 3
"""So many missing or extra deliveries are shown."""


@dataclass(slots=True)
class Expected:
    """What direct evaluation found.

    `read` and `bad` count the records of each source, `published` those that some subscription
    of the pipeline asks for; `deliveries` holds what each subscriber must be handed.
    """

    read: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    published: Counter[str] = field(default_factory=Counter)
    deliveries: dict[str, Counter[Hashable]] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """How many deliveries each subscriber must get."""
        return {name: counter.total() for name, counter in self.deliveries.items()}


async def evaluate(
    pipeline: Pipeline, wishes: Sequence[Wish], told: Callable[[int], None] = lambda records: None
) -> Expected:
    """Ask every filter about every notification of all sources; `told` hears how many it did."""
    expected = Expected(deliveries={wish.name: Counter() for wish in wishes})
    asked = [(wish, wish.filters) for wish in wishes]
    for number, (source, record) in enumerate(_records(pipeline.sources)):
        if number % RECORDS_PER_TURN == 0:
            told(number)
            await asyncio.sleep(0)
        if isinstance(record, BadRecord):
            expected.bad[source.name] += 1
            continue
        expected.read[source.name] += 1
        notification = record.notification
        if any(filters.matches(notification) for filters in pipeline.subscriptions.values()):
            expected.published[source.name] += 1
        for wish, filters in asked:
            if filters.matches(notification):
                expected.deliveries[wish.name][identity(wish.handed(notification))] += 1
    return expected


def files_of(source: Source) -> list[Path]:
    """The files that are there for a source: those that a stream reads when it begins."""
    return sorted(Path(file) for path in source.paths for file in glob.glob(path))


def _records(sources: Iterable[Source]) -> Iterator[tuple[Source, Record | BadRecord]]:
    for source in sources:
        for path in files_of(source):
            for record in read_file(path, source.format, source.reading):
                yield source, record


def identity(item: Hashable) -> Hashable:
    """What makes two deliveries the same: all of it but what publishing stamps on.

    The id, publisher and sequence of an envelope are new with each publication. The time is
    that of the event and has to arrive as it was read.
    """
    if isinstance(item, Notification):
        return item.with_envelope(Envelope(time_us=item.envelope.time_us))
    return item


@dataclass(frozen=True, slots=True)
class Difference:
    """How the deliveries of a subscriber differ from what was expected; empty when right."""

    subscriber: str
    missing: Counter[Hashable]
    extra: Counter[Hashable]

    def lines(self) -> Iterator[str]:
        """What is missing or extra, in words."""
        for what, found in (("missing", self.missing), ("extra", self.extra)):
            if found:
                yield f"{self.subscriber}: {found.total()} {what}"
                shown = list(found)[:EXAMPLES_MAX]
                yield from (f"    {what}: {found[item]} x {item!r}" for item in shown)


def difference(name: str, expected: Counter[Hashable], delivered: Iterable[Hashable]) -> Difference:
    """Compare as multisets: a delivery too many is found like one too few."""
    came = Counter(identity(item) for item in delivered)
    return Difference(name, expected - came, came - expected)


def faults(expected: Expected, summary: PipelineSummary, inboxes: Iterable[Inbox]) -> list[str]:
    """What is wrong, in words: counts of the pipeline, deliveries, losses. Nothing when right."""
    found: list[str] = []
    said = {each.source: (each.read, each.bad, each.published) for each in summary.sources}
    for name in sorted({*expected.read, *expected.bad, *said}):
        wanted = (expected.read[name], expected.bad[name], expected.published[name])
        if said.get(name) != wanted:
            counts = "the pipeline's counts of read, bad and published"
            found.append(f"{name}: {counts} are {said.get(name)}, expected {wanted}")
    for inbox in inboxes:
        name = inbox.wish.name
        found.extend(difference(name, expected.deliveries[name], inbox.items).lines())
        found.extend(f"{name}: {count} dropped ({why})" for why, count in inbox.dropped.items())
    return found
