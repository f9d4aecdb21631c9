"""`evaluate` and `difference`: the expected deliveries, and their difference from the actual ones.

The evaluation shares as little as possible with the deliveries: no Spark, no index, no broker.
Plain readers read the same files, and each filter is applied to each notification.
"""

import asyncio
import glob
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contrada.integrations.files import BadRecord, Record, read_file
from contrada.integrations.spark.pipeline.pipeline_description import Pipeline, Source
from contrada.model import Notification
from examples.demo.desks import Inbox, Interest
from examples.demo.processes import PipelineSummary

RECORDS_PER_TURN = 200
"""Records between two turns of the event loop, so that the evaluation can be interrupted."""

EXAMPLES_MAX = 3
"""Missing or extra deliveries that are printed."""


@dataclass(slots=True)
class Expected:
    """The result of direct evaluation.

    `read` and `bad` count the records of each source, `published` those that match a subscription
    of the pipeline; `deliveries` has the expected deliveries of each subscriber.
    """

    read: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    published: Counter[str] = field(default_factory=Counter)
    deliveries: dict[str, Counter[Hashable]] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """Returns the number of expected deliveries of each subscriber."""
        return {name: counter.total() for name, counter in self.deliveries.items()}


async def evaluate(
    pipeline: Pipeline,
    interests: Sequence[Interest],
    show: Callable[[int], None] = lambda records: None,
) -> Expected:
    """Applies every filter to every notification; `show` gets the number done."""
    expected = Expected(deliveries={interest.name: Counter() for interest in interests})
    asked = [(interest, interest.filters) for interest in interests]
    for number, (source, record) in enumerate(_records(pipeline.sources)):
        if number % RECORDS_PER_TURN == 0:
            show(number)
            await asyncio.sleep(0)
        if isinstance(record, BadRecord):
            expected.bad[source.name] += 1
            continue
        expected.read[source.name] += 1
        notification = record.notification
        if any(filters.matches(notification) for filters in pipeline.subscriptions.values()):
            expected.published[source.name] += 1
        for interest, filters in asked:
            if filters.matches(notification):
                expected.deliveries[interest.name][identity(interest.handed(notification))] += 1
    return expected


def files_of(source: Source) -> list[Path]:
    """Returns the present files of a source: those that a stream reads at its start."""
    return sorted(Path(file) for path in source.paths for file in glob.glob(path))


def _records(sources: Iterable[Source]) -> Iterator[tuple[Source, Record | BadRecord]]:
    for source in sources:
        for path in files_of(source):
            for record in read_file(path, source.format, source.reading):
                yield source, record


def identity(item: Hashable) -> Hashable:
    """Returns the part of a delivery that publishing does not change.

    The id, publisher and sequence of an envelope are new with each publication. The time is that of
    the event and has to arrive unchanged.
    """
    if isinstance(item, Notification):
        return item, item.envelope.time_us  # Equality of notifications ignores the envelope.
    return item


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between actual and expected deliveries of a subscriber; empty when right."""

    subscriber: str
    missing: Counter[Hashable]
    extra: Counter[Hashable]

    def lines(self) -> Iterator[str]:
        """Describes missing and extra deliveries."""
        for label, found in (("missing", self.missing), ("extra", self.extra)):
            if found:
                yield f"{self.subscriber}: {found.total()} {label}"
                shown = list(found)[:EXAMPLES_MAX]
                yield from (f"    {label}: {found[item]} x {item!r}" for item in shown)


def difference(name: str, expected: Counter[Hashable], delivered: Iterable[Hashable]) -> Difference:
    """Compares as multisets: an extra delivery is found like a missing one."""
    received = Counter(identity(item) for item in delivered)
    return Difference(name, expected - received, received - expected)


def faults(expected: Expected, summary: PipelineSummary, inboxes: Iterable[Inbox]) -> list[str]:
    """Returns all faults: counts of the pipeline, deliveries, losses. Empty when all is right."""
    found: list[str] = []
    reported = {each.source: (each.read, each.bad, each.published) for each in summary.sources}
    for name in sorted({*expected.read, *expected.bad, *reported}):
        wanted = (expected.read[name], expected.bad[name], expected.published[name])
        if reported.get(name) != wanted:
            counts = "the pipeline's counts of read, bad and published"
            found.append(f"{name}: {counts} are {reported.get(name)}, expected {wanted}")
    for inbox in inboxes:
        name = inbox.interest.name
        found.extend(difference(name, expected.deliveries[name], inbox.items).lines())
        found.extend(f"{name}: {count} dropped ({why})" for why, count in inbox.dropped.items())
    return found
