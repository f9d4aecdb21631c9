"""The engine of patterns with thousands of patterns at once.

Notifications have ten attributes. Each pattern is three filters on a feed of its own, one
equality and one range each, with `by` and `within`; a thousand hosts, ten thousand feeds of which
the popular ones are asked for most. Time is from `push` to the list of matches, the index included;
a peer shows what the index alone takes, so that the difference is the patterns' own.
"""

import itertools
import random
from time import process_time
from typing import Final

from bench.harness import Measurement, figure
from contrada.matching.index import Index
from contrada.model import Envelope, Filter, Notification, Pattern, Value
from contrada.patterns.pattern_engine import PatternMatcher

PATTERNS: Final = 10_000
FEEDS: Final = 10_000
HOSTS: Final = 1_000
NOTIFICATIONS: Final = 20_000
WARM_UP: Final = 20_000
PER_SAMPLE: Final = 500
STEP_US: Final = 1_000
WITHIN_US: Final = 20_000_000


def patterns(shape: str, count: int) -> list[Pattern]:
    """Patterns of three filters, in order of stages 0, 1, 2 of a feed."""
    chance = random.Random(1)
    made = []
    for number in range(count):
        levels = [chance.randrange(50) for _ in range(3)]
        parts = [
            Filter(f"feed = {number % FEEDS} and stage = {stage} and level > {level}")
            for stage, level in enumerate(levels)
        ]
        if shape == "shared end":
            parts[-1] = Filter("stage = 3 and level > 90")
        made.append(Pattern(parts, by=("host",), within_us=WITHIN_US, every=shape == "every"))
    return made


def notifications(count: int) -> list[Notification]:
    """A stream; a host stays with its few feeds, so that patterns are completed."""
    chance = random.Random(2)
    feeds = [chance.choices(range(FEEDS), k=3) for _ in range(HOSTS)]
    made = []
    for sequence in range(count):
        host = chance.randrange(HOSTS)
        attributes: dict[str, Value] = {
            "feed": chance.choice(feeds[host]),
            "host": f"host-{host}",
            "stage": chance.choices(range(4), (40, 30, 25, 5))[0],
            "level": chance.randrange(100),
            "site": chance.choice(("north", "south")),
            "rack": chance.randrange(40),
            "user": f"user-{chance.randrange(500)}",
            "code": chance.randrange(1_000),
            "load": chance.random(),
            "ok": True,
        }
        envelope = Envelope(publisher="p", sequence=sequence, time_us=sequence * STEP_US)
        made.append(Notification(attributes, envelope=envelope))
    return made


def measured(shape: str, count: int = PATTERNS) -> Measurement:
    """Seconds per notification with a warm state, beside the index with the same filters."""
    matcher: PatternMatcher[int] = PatternMatcher(slack_us=5 * STEP_US)
    index: Index[Filter] = Index()
    for number, pattern in enumerate(patterns(shape, count)):
        matcher.add(number, pattern)
        for part in pattern.filters:
            if part not in index:
                index.add(part, part)
    stream = iter(notifications(WARM_UP + NOTIFICATIONS))
    for notification in itertools.islice(stream, WARM_UP):
        matcher.push(notification)
    own, alone = [], []
    for _ in range(NOTIFICATIONS // PER_SAMPLE):
        some = list(itertools.islice(stream, PER_SAMPLE))
        begun = process_time()
        for notification in some:
            matcher.push(notification)
        between = process_time()
        for notification in some:
            index.match(notification)
        own.append((between - begun) / PER_SAMPLE)
        alone.append((process_time() - between) / PER_SAMPLE)
    statistics = matcher.statistics()
    assert statistics.matched, "the workload must complete patterns"
    assert not statistics.dropped, "the workload must stay within the limits"
    return Measurement(own, "index alone", alone)


@figure(
    name="patterns/10,000",
    unit="us",
    workload="10,000 patterns of 3 filters, by host within 20 s; 10 attributes",
)
def ten_thousand() -> Measurement:
    return measured("own")


@figure(name="patterns/100", unit="us", workload="the same stream with 100 of the patterns")
def one_hundred() -> Measurement:
    return measured("own", 100)


@figure(name="patterns/every", unit="us", workload="the 10,000 patterns with `every`")
def every() -> Measurement:
    return measured("every")


@figure(
    name="patterns/shared-end", unit="us", workload="10,000 patterns whose last filter is the same"
)
def shared_end() -> Measurement:
    return measured("shared end")
