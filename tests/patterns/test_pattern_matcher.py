"""The pattern matcher: equal to the plain reading of the definition, bounded, and at its limits.

With `--hypothesis-profile=thorough` it is compared on 10^5 streams, in some minutes.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pytest
from hypothesis import settings

from contrada.errors import InvalidFilterError, InvalidValueError, LimitError, UnknownOperatorError
from contrada.model import Envelope, Filter, Notification, Pattern, Value
from contrada.model.algebra.sets import extension
from contrada.model.domains.values import NUMBER
from contrada.patterns import Match, pattern_engine, runs
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import PatternLimits
from tests.patterns.pattern_definition import (
    Add,
    Advance,
    Flush,
    Push,
    Remove,
    Reported,
    Script,
    Step,
    envelopes_of,
    expected,
)

FILTERS: Final = tuple(
    map(
        Filter,
        ("kind = 'a'", "kind = 'b'", "kind = 'c'", "kind in ('a', 'b')", "level > 1", "level < 3"),
    )
)
HOSTS: Final[tuple[object, ...]] = (None, 1, 1.0, 2, "x", b"x", [1, 2], ["x", 1.0], [])
ZONES: Final = ("e", "w", ["e", "w"])
BY: Final = ((), ("host",), ("host",), ("host", "zone"), ("@publisher",))
WITHIN_US: Final = (None, 0, 1, 3, 8)
SLACKS_US: Final = (0, 0, 1, 3, 100, None)


class World:
    """Random scripts; the same seed gives the same script."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.slack_us = self.random.choice(SLACKS_US)
        self.now_us = 0
        self.script: list[Step] = []

    def pattern(self) -> Pattern:
        """A pattern of few different filters, so that they are shared and overlap."""
        chance = self.random
        parts = chance.choices(FILTERS, k=chance.choice((2, 2, 3, 3, 4)))
        return Pattern(
            parts,
            by=chance.choice(BY),
            within_us=chance.choice(WITHIN_US),
            every=chance.random() < 0.4,
        )

    def notification(self) -> Notification:
        """A notification around now: often equal timestamps, sometimes at the slack's border."""
        chance = self.random
        self.now_us += chance.choice((0, 0, 0, 1, 1, 2, 5))
        slack_us = self.slack_us or 0
        back_us = chance.choice((0, 0, 0, 0, 1, slack_us, slack_us + 1))
        attributes: dict[str, object] = {"kind": chance.choice("abc"), "level": chance.randrange(4)}
        host = chance.choice(HOSTS)
        if host is not None or chance.random() < 0.1:
            attributes["host"] = host
        if chance.random() < 0.9:
            attributes["zone"] = chance.choice(ZONES)
        return notification_of(
            attributes,
            self.now_us - back_us,
            chance.choice("pq"),
            chance.choice((0, chance.randrange(10_000))),
        )

    def steps(self, length: int) -> Script:
        """A script: patterns are added and removed, notifications are repeated, time advances."""
        chance = self.random
        self.script += [Add(str(n), self.pattern()) for n in range(chance.randint(1, 4))]
        for _ in range(length):
            draw = chance.random()
            if draw < 0.04:
                self.script.append(Add(str(chance.randrange(5)), self.pattern()))
            elif draw < 0.08:
                self.script.append(Remove(str(chance.randrange(5))))
            elif draw < 0.14:
                self.again()
            elif draw < (0.3 if self.slack_us is None else 0.18):
                self.script.append(Advance(self.now_us - chance.randrange(-1, 4)))
            elif draw < 0.19:
                self.script.append(Flush())
            else:
                self.script.append(Push(self.notification()))
        return [*self.script, Flush()]

    def again(self) -> None:
        """A notification is repeated."""
        pushes = [step for step in self.script[-6:] if isinstance(step, Push)]
        if pushes:
            self.script.append(self.random.choice(pushes))


def notification_of(
    attributes: Mapping[str, object], time_us: int, publisher: str = "p", sequence: int = 0
) -> Notification:
    """A stamped notification."""
    envelope = Envelope(publisher=publisher, sequence=sequence, time_us=time_us)
    return Notification(attributes, envelope=envelope)


def reported(
    script: Script, matcher: PatternMatcher[str], after: Callable[[], object] = lambda: None
) -> Reported:
    """The reports of a matcher, with their steps; `after` is called after each step."""
    found: Reported = []
    for number, step in enumerate(script):
        matches: list[Match[str]] = []
        match step:
            case Add(key, pattern):
                matcher.add(key, pattern)
            case Remove(key):
                matcher.remove(key)
            case Push(notification):
                matches = matcher.push(notification)
            case Advance(watermark_us):
                matches = matcher.advance(watermark_us)
            case Flush():
                matches = matcher.flush()
        found += [(number, match, envelopes_of(match)) for match in matches]
        after()
    return found


def stream(text: str, host: Value = 1) -> list[Notification]:
    """Notifications from a text such as `a0 b3 c3`: kind and timestamp, numbered in order."""
    return [
        notification_of({"kind": word[0], "host": host}, int(word[1:]), sequence=number)
        for number, word in enumerate(text.split())
    ]


def found(pattern: str, notifications: Iterable[Notification], **limits: int) -> list[str]:
    """The matches of one pattern in a whole stream, each as a text such as `a0 b3`."""
    matcher: PatternMatcher[int] = PatternMatcher(limits=PatternLimits(**limits))
    matcher.add(0, Pattern(pattern))
    matches = [match for each in notifications for match in matcher.push(each)]
    matcher.validate()
    return [text_of(match) for match in matches + matcher.flush()]


def text_of(match: Match[int]) -> str:
    """A match as a text such as `a0 b3`."""
    return " ".join(f"{each['kind']}{each.envelope.time_us}" for each in match.notifications)


AB = "kind = 'a' -> kind = 'b'"
ABC = AB + " -> kind = 'c'"


STREAMS_MAX: Final = 100_000


def streams(per_example: int, seed: str | None) -> range:
    """Seeds: 10^5 where the profile is thorough, else as many times as it has examples."""
    first = STREAMS_MAX * int(seed or 0)
    return range(first, first + min(per_example * settings().max_examples, STREAMS_MAX))


@pytest.fixture
def hypothesis_seed(pytestconfig: pytest.Config) -> str | None:
    """The option by which a night gets other examples in each run."""
    seed: str | None = pytestconfig.getoption("--hypothesis-seed")
    return seed


def test_each_hypothesis_seed_has_streams_of_its_own() -> None:
    """A night would compare the same streams in each of its runs."""
    ranges = [streams(10**6, seed) for seed in (None, "1", "2")]
    assert [each.start for each in ranges] == [0, ranges[0].stop, ranges[1].stop]


@pytest.mark.timeout(3_600)
def test_it_is_the_definition(hypothesis_seed: str | None) -> None:
    """A match would be missed, invented, or reported at another time or in another order."""
    matches = 0
    seeds = streams(30, hypothesis_seed)
    for seed in seeds:
        world = World(seed)
        script = world.steps(world.random.randint(4, 24))
        matcher: PatternMatcher[str] = PatternMatcher(slack_us=world.slack_us)
        should = expected(script, world.slack_us)
        assert reported(script, matcher) == should, f"seed {seed}, slack {world.slack_us}: {script}"
        matches += len(should)
    assert matches > len(seeds) / 2, "the streams must hold matches"


def test_it_is_the_definition_on_long_streams() -> None:
    """State that accumulates over a long stream would change the matches."""
    for seed in range(max(1, len(streams(1, None)) // 10)):
        world = World(-1 - seed)
        script = world.steps(300)
        matcher: PatternMatcher[str] = PatternMatcher(slack_us=world.slack_us)
        assert reported(script, matcher, matcher.validate) == expected(script, world.slack_us), seed


def test_limits_hold_and_are_never_silent() -> None:
    """A limit would be passed, or a match lost or changed by one without a count."""
    cut = 0
    for seed in streams(4, None):
        world = World(seed)
        script = world.steps(40)
        limits = PatternLimits(*(world.random.randint(1, 4) for _ in range(5)))
        matcher: PatternMatcher[str] = PatternMatcher(slack_us=world.slack_us, limits=limits)
        got = reported(script, matcher, matcher.validate)
        statistics = matcher.statistics()
        if got != expected(script, world.slack_us):
            cut += 1
            lost = statistics.dropped.keys() - {pattern_engine.DUPLICATE, pattern_engine.LATE}
            assert lost or statistics.forced, f"seed {seed}: {limits}, {script}"
    assert cut, "the limits must be reached"


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (AB, "a0 b1 a2 b3", ["a0 b1", "a2 b3"]),
        (AB, "a0 a1 b2 b3", ["a0 b2"]),
        (AB, "b0 a1", []),
        (f"every {AB}", "a0 a1 b2 b3", ["a0 b2", "a1 b2"]),
        ("kind = 'a' -> kind = 'a'", "a0 a1 a2 a3", ["a0 a1", "a2 a3"]),
        ("every kind = 'a' -> kind = 'a'", "a0 a1 a2", ["a0 a1", "a1 a2"]),
        (f"{AB} within 2 us", "a0 b2", ["a0 b2"]),
        (f"{AB} within 2 us", "a0 b3", []),
        (f"{AB} within 0 us", "a0 b0 a1 b2", ["a0 b0"]),
        (f"{ABC} within 4 us", "a0 b1 a2 b3 c5 c6", ["a2 b3 c5"]),
        (f"{ABC} within 4 us", "a0 a2 b3 c5", ["a2 b3 c5"]),
        (f"{ABC} within 4 us", "a0 a1 a2 b3 c5 c6", ["a1 b3 c5"]),
        (f"every {ABC} within 4 us", "a0 a1 a2 b3 c5 c6", ["a1 b3 c5", "a2 b3 c5"]),
        ("kind = 'a' -> kind = 'a' -> kind = 'b' within 3 us", "a0 a2 a3 b5", ["a2 a3 b5"]),
    ],
)
def test_meanings(pattern: str, text: str, matches: list[str]) -> None:
    """One of the sentences of the definition would be read otherwise."""
    assert found(pattern, stream(text)) == matches


def test_a_match_has_its_pattern_group_and_time() -> None:
    """The receiver of a match would not know its pattern, its group and its time."""
    matcher: PatternMatcher[str] = PatternMatcher()
    matcher.add("alarm", Pattern(f"{AB} by host"))
    events = [*stream("a0", 1.0), *stream("a1", "x"), *stream("b2", 1)]
    [match] = [match for each in events for match in matcher.push(each)] + matcher.flush()
    assert match == Match("alarm", (1,), (events[0], events[2]))
    assert match.envelope == events[2].envelope


def test_a_match_in_several_groups_is_reported_for_each() -> None:
    """Several values of `by` would be taken for one, or only the first would count."""
    matcher: PatternMatcher[int] = PatternMatcher()
    matcher.add(0, Pattern(f"{AB} by host, zone"))
    for number, kind in enumerate("ab"):
        both = {"kind": kind, "host": [1, 2], "zone": ["e", "w"]}
        assert matcher.push(notification_of(both, number)) == []
    groups = [match.by for match in matcher.flush()]
    assert groups == [(1, "e"), (1, "w"), (2, "e"), (2, "w")]


def test_the_slack_ends_below_the_watermark() -> None:
    """A notification that is just in time would be lost, or a late one matched."""
    matcher: PatternMatcher[int] = PatternMatcher(slack_us=5)
    matcher.add(0, Pattern(AB))
    a4, a5, b10 = stream("a4 a5 b10")
    assert [matcher.push(each) for each in (b10, a4, a5)] == [[], [], []]
    assert [text_of(match) for match in matcher.flush()] == ["a5 b10"]
    assert matcher.statistics().dropped == {pattern_engine.LATE: 1}


def test_only_advance_moves_time_without_slack() -> None:
    """A router that waits for several links would continue with the first."""
    matcher: PatternMatcher[int] = PatternMatcher(slack_us=None)
    matcher.add(0, Pattern(AB))
    assert [matcher.push(each) for each in stream("b90 a80 b85")] == [[], [], []]
    assert matcher.advance(85) == [], "what lies at the watermark may have a brother before it"
    assert [text_of(match) for match in matcher.advance(86)] == ["a80 b85"]
    assert matcher.advance(20) == []
    assert matcher.statistics().watermark_us == 86, "the watermark never falls"


def test_time_frees_outlived_runs() -> None:
    """Groups that are never touched again would fill the memory."""
    matcher: PatternMatcher[int] = PatternMatcher()
    matcher.add(0, Pattern(f"every {AB} by host within 10 us"))
    matcher.add(1, Pattern(f"{AB} by host within 20 us"))
    for host in range(100):
        matcher.push(notification_of({"kind": "a", "host": host}, host))
    held = []
    for watermark_us in (100, 110, 111, 120):
        matcher.advance(watermark_us)
        matcher.validate()
        statistics = matcher.statistics()
        held.append((statistics.groups, statistics.runs, statistics.pending))
    assert held == [(30, 30, 0), (10, 10, 0), (9, 9, 0), (0, 0, 0)]


def test_an_idle_key_leaves_nothing() -> None:
    """Short-lived patterns would leave filters, runs or deadlines behind."""
    matcher: PatternMatcher[int] = PatternMatcher()
    for number in range(500):
        matcher.add(number % 7, Pattern(f"{AB} within 365 d"))
        matcher.push(notification_of({"kind": "a"}, number))
        matcher.validate()
    for key in range(7):
        assert key in matcher
        matcher.remove(key)
    matcher.remove(99)
    matcher.flush()
    matcher.validate()
    statistics = matcher.statistics()
    assert (len(matcher), statistics.filters, statistics.groups, statistics.runs) == (0, 0, 0, 0)
    assert len(matcher._engine._deadlines) <= 64, "one pattern without end for each that ever was"


def test_equal_filters_are_indexed_once() -> None:
    """Thousands of patterns that share filters would cost as if they did not."""
    matcher: PatternMatcher[int] = PatternMatcher()
    for number in range(50):
        matcher.add(number, Pattern(f"kind = 'a' -> kind = 'b' -> n = {number}"))
    assert matcher.statistics().filters == 52
    matcher.validate()


def test_unneeded_notifications_touch_no_pattern() -> None:
    """A notification would cost all patterns that have its filter in a later place."""
    matcher: PatternMatcher[int] = PatternMatcher()
    for number in range(50):
        matcher.add(number, Pattern(f"n = {number} -> kind = 'b' by host"))
    for number in range(50):
        matcher.push(notification_of({"n": number, "host": number}, number))
    matcher.push(notification_of({"kind": "b", "host": 3}, 50))
    [shared] = [each for each in matcher._filters if each.filter == FILTERS[1]]
    touched = matcher._engine._touched(notification_of({"host": 3}, 50), [shared], 0, 100)
    assert [(runs.number, group, places) for runs, group, places in touched] == [
        (3, ((NUMBER, 3),), [1])
    ]
    assert [match.key for match in matcher.flush()] == [3]
    assert len(shared.waiting["host",]) == 49


def test_a_pattern_matches_later_notifications() -> None:
    """A new pattern would match earlier publications, within the slack."""
    matcher: PatternMatcher[int] = PatternMatcher(slack_us=100)
    a0, b1, a2, b3 = stream("a0 b1 a2 b3")
    matcher.add(0, Pattern(AB))
    matcher.push(a0)
    matcher.push(b1)
    matcher.add(1, Pattern(AB))
    matcher.push(a2)
    matcher.add(0, Pattern(AB))
    matcher.push(b3)
    assert [(match.key, text_of(match)) for match in matcher.flush()] == [(1, "a2 b3")]


def test_the_oldest_run_of_a_full_group_is_dropped() -> None:
    """A pattern with `every` that nothing completes would fill the memory."""
    limits = PatternLimits(runs_per_group_max=2)
    matcher: PatternMatcher[int] = PatternMatcher(limits=limits)
    matcher.add(0, Pattern(f"every {AB}"))
    for each in stream("a0 a1 a2 b3"):
        matcher.push(each)
    assert [text_of(match) for match in matcher.flush()] == ["a1 b3", "a2 b3"]
    assert matcher.statistics().dropped == {runs.GROUP_FULL: 1}
    assert found(f"{AB} within 9 us", stream("a0 a1 a2 b3"), runs_per_group_max=2) == ["a1 b3"]
    assert found(AB, stream("a0 a1 a2 b3"), runs_per_group_max=1) == ["a0 b3"]


def test_the_group_that_opened_longest_ago_is_dropped() -> None:
    """Groups that nothing completes would fill the memory, or keep new ones out."""
    limits = PatternLimits(groups_per_pattern_max=2)
    matcher: PatternMatcher[int] = PatternMatcher(limits=limits)
    matcher.add(0, Pattern(f"every {AB} by host"))
    for number, host in enumerate((1, 2, 1, 3)):
        matcher.push(notification_of({"kind": "a", "host": host}, number))
    matcher.push(notification_of({"kind": "b", "host": [1, 2, 3]}, 4))
    assert [match.by for match in matcher.flush()] == [(1,), (1,), (3,)]
    assert matcher.statistics().dropped == {runs.PATTERN_FULL: 1}


def test_outlived_runs_cost_nobody_a_place() -> None:
    """A group would be dropped for others that are only not yet freed, and be counted as lost."""
    matcher: PatternMatcher[int] = PatternMatcher(
        slack_us=100, limits=PatternLimits(groups_per_pattern_max=1, runs_max=1)
    )
    for key in range(3):
        matcher.add(key, Pattern(f"kind = 'a' and n = {key} -> kind = 'b' by host within 2 us"))
    for number in range(7):
        start = {"kind": "a", "host": number, "n": number % 3}
        matcher.push(notification_of(start, 3 * number))
    matcher.push(notification_of({"kind": "b", "host": 6}, 20))
    assert [match.by for match in matcher.flush()] == [(6,)]
    assert matcher.statistics().dropped == {}


def test_the_table_of_all_runs_is_bounded() -> None:
    """Many patterns within their limits would together fill the memory."""
    matcher: PatternMatcher[int] = PatternMatcher(limits=PatternLimits(runs_max=2))
    for key in range(2):
        matcher.add(key, Pattern(f"every kind = 'a' and n = {key} -> kind = 'b' by host"))
    for number, (key, host) in enumerate(((0, 1), (0, 2), (1, 1), (0, 3))):
        matcher.push(notification_of({"kind": "a", "n": key, "host": host}, number))
    matcher.push(notification_of({"kind": "b", "host": [1, 2, 3]}, 4))
    assert [(match.key, match.by) for match in matcher.flush()] == [(0, (2,)), (0, (3,))]
    assert matcher.statistics().dropped == {runs.TABLE_FULL: 2}


def test_a_full_buffer_forces_the_watermark() -> None:
    """Waiting notifications would fill the memory, or be lost."""
    limits = PatternLimits(pending_max=2)
    matcher: PatternMatcher[int] = PatternMatcher(slack_us=1_000, limits=limits)
    matcher.add(0, Pattern(AB))
    a1, b5, b2, a6, a0 = stream("a1 b5 b2 a6 a0")
    texts = [[text_of(match) for match in matcher.push(each)] for each in (b5, a1, b2, a6, a0)]
    assert texts == [[], [], [], ["a1 b2"], []]
    statistics = matcher.statistics()
    assert (statistics.forced, statistics.pending, statistics.watermark_us) == (2, 2, 3)
    assert statistics.dropped == {pattern_engine.LATE: 1}


def test_combinations_are_bounded() -> None:
    """One notification with many values of `by` would stop the matcher."""
    matcher: PatternMatcher[int] = PatternMatcher(limits=PatternLimits(combinations_max=3))
    for key in range(2):
        matcher.add(key, Pattern(f"{AB} by host, zone"))
    both = {"kind": "a", "host": [1, 2], "zone": ["e", "w"]}
    matcher.push(notification_of(both, 0))
    matcher.push(notification_of({**both, "kind": "b"}, 1))
    assert [match.by for match in matcher.flush()] == 2 * [(1, "e"), (1, "w"), (2, "e")]
    assert matcher.statistics().dropped == {runs.COMBINATIONS: 2}, "once for a notification"


def test_the_same_notification_twice_is_one() -> None:
    """A duplicate would fill two places of a match."""
    matcher: PatternMatcher[int] = PatternMatcher()
    matcher.add(0, Pattern("kind = 'a' -> kind = 'a'"))
    [a0] = stream("a0")
    matcher.push(a0)
    matcher.push(a0)
    assert matcher.flush() == []
    assert matcher.statistics().dropped == {pattern_engine.DUPLICATE: 1}


@pytest.mark.parametrize("turn", [1, -1])
def test_different_notifications_are_two(turn: int) -> None:
    """A notification of an unknown source would be lost because of other patterns."""
    matcher: PatternMatcher[str] = PatternMatcher()
    matcher.add("ab", Pattern("kind = 'a' -> kind = 'b'"))
    matcher.add("cc", Pattern("kind = 'c' -> kind = 'c'"))
    sent = [notification_of({"kind": kind}, 5, publisher="") for kind in "abc"][::turn]
    for notification in sent:
        matcher.push(notification)
    assert [match.key for match in matcher.flush()] == ["ab"]
    assert matcher.statistics().dropped == {}


def test_unmatchable_patterns_are_refused() -> None:
    """A wrong call would be accepted, or change the matcher before it fails."""
    matcher: PatternMatcher[int] = PatternMatcher()
    matcher.add(0, Pattern(AB))
    with pytest.raises(InvalidFilterError):
        matcher.add(0, Filter("kind = 'a'"))  # type: ignore[arg-type]
    with pytest.raises(UnknownOperatorError):
        matcher.add(0, Pattern([Filter({"a": extension("unheard-of", "x")}), FILTERS[0]]))
    with pytest.raises(InvalidValueError):
        PatternMatcher(slack_us=-1)
    with pytest.raises(InvalidValueError):
        PatternLimits(runs_max=0)
    assert len(matcher) == 1
    matcher.validate()


def test_a_failing_index_leaves_the_matcher_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that is refused half way would leave filters behind, or lose the earlier one."""
    matcher: PatternMatcher[int] = PatternMatcher()
    matcher.add(0, Pattern(AB))
    add = matcher._index.add

    def failing(key: int, subscription: Filter) -> None:
        if subscription == FILTERS[4]:
            raise LimitError("FILTERS_MAX", 1)
        add(key, subscription)

    monkeypatch.setattr(matcher._index, "add", failing)
    with pytest.raises(LimitError):
        matcher.add(0, Pattern([FILTERS[0], FILTERS[2], FILTERS[4]]))
    assert matcher.statistics().filters == 2
    matcher.validate()
