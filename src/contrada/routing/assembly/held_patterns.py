"""`HeldPatterns`: the patterns of one server, and their progress with notifications and time.

With unknown sources, as in subscription forwarding, the clients' patterns are assembled here: all
in one `PatternEngine`, with one buffer. With known sources, each pattern is split by itself
(`SplitPattern`), since it waits for its own delegates.

Pieces may wait for the time to advance, here or, as reported, at a delegate. Then the server sends
its learned time to the delegate, which answers with its watermark; one question at a time. So a
quiet delegate delays nothing, and no message is sent while nothing waits. The time in a report is
learned, too. All servers of a network have the same slack.

Invariant: a filter is subscribed while some place needs it.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from contrada.model import Filter, Notification, Pattern
from contrada.model.algebra.product import product_meets
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns import Match
from contrada.patterns.pattern_engine import LATE, PatternEngine, SharedFilters
from contrada.patterns.reorder_buffer import ReorderBuffer, check_slack
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits, RunBudget
from contrada.routing.assembly import split_pattern
from contrada.routing.assembly.split_pattern import Action, DelegatedSegments, SplitPattern
from contrada.routing.delegation import DelegationPhase, HandBack, ReportMatches
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import (
    Client,
    DeliverMatch,
    Neighbour,
    Offer,
    Origin,
    PatternEnded,
    Role,
    Send,
)
from contrada.routing.tables.poset import Node

CLOCK_AHEAD_MAX_US: Final = 86_400_000_000
"""The default for timestamps ahead of a server's clock: a day, to allow for other zones. Everything
after such a timestamp would be late. Beyond it: the notification is delivered and takes part in no
pattern, counted."""

BEHIND: Final = "patterns behind"
"""The reason for notifications that are too many for patterns with work left."""

WORK_SHARE: Final = 0.1
"""Steps of work for each microsecond that a requester of patterns may use for long."""

AHEAD: Final = "ahead of the clock"
"""The reason for notifications and times that patterns ignore."""


class SourceMap:
    """The neighbours that may send notifications for parts, by links and advertisements.

    A requester covers its own side itself. In a hierarchy advertisements travel upward only, and a
    parent sees everything. So the parent is a source of every part, even of one that is fully
    advertised below: a pattern moves up to the root whole, and from there down along the children's
    advertisements; a child's pattern may also match notifications from that child. With other
    strategies sources are unknown (`offered` is None): nothing is delegated.

    Source: PODC 2000 §4 (sequences are assembled according to the advertised paths).
    """

    def __init__(self, topology: Topology, offered: Iterable[Node[Offer]] | None) -> None:
        self._topology = topology
        self._offered = offered

    @property
    def is_known(self) -> bool:
        """Whether advertisements show the sources; else nothing is delegated."""
        return self._offered is not None

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """Returns the sources of a part; None means clients. Cost: all advertisements."""
        if self._offered is None:
            return frozenset()
        topology = self._topology
        parent = topology.parent
        if parent is not None and requester != parent:
            return frozenset() if topology.refusal(parent) else frozenset([parent])
        found: set[Neighbour | None] = set()
        for node in self._offered:
            if not product_meets(node.product, part):
                continue
            for party in node.subscribers:
                if isinstance(party, Client):
                    found.add(None)
                elif topology.is_active(party) and self.counts(party.neighbour, requester):
                    found.add(party.neighbour)
        return frozenset(found)

    def counts(self, origin: Origin, requester: Origin) -> bool:
        """Whether notifications from an origin count for patterns of a requester."""
        if isinstance(requester, Client) or origin != requester:
            return True
        return self._topology.role(requester) is Role.CHILD


@dataclass(frozen=True, slots=True)
class AssemblerStatistics:
    """Counters of an assembler.

    `delegated` segments of `patterns` are assembled elsewhere, `runs` and `waiting` chains are held
    here, `filters` are subscribed. `reported` matches were sent to neighbours, `matched` to
    clients; `stale` counts answers for withdrawn patterns, `dropped` losses, by reason.
    """

    patterns: int
    delegated: int
    filters: int
    runs: int
    waiting: int
    learned_us: int
    reported: int
    matched: int
    forced: int
    stale: int
    dropped: Mapping[str, int]


class WholePattern(NamedTuple):
    """A pattern in the engine, under a number, and the client that requested it."""

    number: int
    requester: Client
    identity: str
    pattern: Pattern


class HeldPatterns:
    """The patterns of one server. `slack_us` is the tolerated delay of notifications.

    `clock_us` is the server's clock, set by its owner: timestamps much later are not credible. The
    times of notifications may be long before it. The limits are those of the pattern matcher; a
    delegate that reaches one refuses the newest start and hands the sub-pattern back.
    """

    def __init__(
        self,
        source_map: SourceMap,
        *,
        slack_us: int = 0,
        ahead_max_us: int = CLOCK_AHEAD_MAX_US,
        limits: PatternLimits = DEFAULT_LIMITS,
    ) -> None:
        self.learned_us = TIME_MIN_US
        self.clock_us = 0
        self.ahead_max_us = ahead_max_us
        self._work_left = limits.turn_work_max
        self._is_split_behind = False
        self._charged: dict[Origin, tuple[int, int]] = {}
        """The work of each requester for which others waited, and when it was charged last."""
        self._source_map = source_map
        self._slack_us = check_slack(slack_us)
        self._budget = RunBudget(limits)
        self._filters = SharedFilters()
        self._engine = PatternEngine(self._filters, self._budget)
        self._whole: dict[int, WholePattern] = {}
        self._split: dict[int, SplitPattern] = {}
        self.by_origin: dict[Origin, dict[str, SplitPattern | WholePattern]] = {}
        self._places: dict[int, dict[tuple[int, int], SplitPattern]] = {}
        self._segments = DelegatedSegments()
        self._numbers = itertools.count()
        self._due: list[tuple[int, int]] = []
        self._reported = self._matched = self._stale = self._forced = 0

    def __len__(self) -> int:
        return len(self._whole) + len(self._split)

    def __contains__(self, origin: object) -> bool:
        return origin in self.by_origin

    def knows(self, origin: Origin, identity: str) -> bool:
        """Whether an origin has requested a pattern under an identity."""
        return identity in self.by_origin.get(origin, ())

    def pattern(self, origin: Origin, identity: str) -> Pattern | None:
        """Returns the pattern of an origin's identity, or None."""
        known = self.by_origin.get(origin, {}).get(identity)
        return None if known is None else known.pattern

    def hand_back(self, neighbour: Neighbour, identity: str) -> list[Action]:
        """Asks a neighbour to recall a pattern; it is assembled here until then."""
        split = self._split_of(neighbour, identity)
        if split is None or split.phase is not DelegationPhase.DELEGATED:
            return []
        split.enter(DelegationPhase.HANDED_BACK)
        return [Send(neighbour, HandBack(identity))]

    def _split_of(self, neighbour: Neighbour, identity: str) -> SplitPattern | None:
        known = self.by_origin.get(neighbour, {}).get(identity)
        return known if isinstance(known, SplitPattern) else None

    # --- notifications and time ---------------------------------------------------------------

    def push(
        self, notification: Notification, origin: Origin, numbers: Iterable[int] = ()
    ) -> list[Action]:
        """Takes a notification from an origin that matches the subscribed filters of these numbers.

        Cost: O(log waiting) for the engine and each place that takes the notification, and the
        completed matches.
        """
        time_us = notification.envelope.at_us
        actions: list[Action] = []
        if not self._is_credible(time_us):
            self._budget.dropped[AHEAD] += 1
            return actions
        if not self._budget.admits(notification):
            return self.learn(time_us)
        filters = self._filters.of(numbers)
        if self._whole and filters and not self._engine.is_late(time_us):
            is_full = len(self._engine.waiting) >= self._budget.limits.pending_max
            if self._engine.is_behind and is_full:
                self._budget.dropped[BEHIND] += 1
            else:
                self._engine.hold(notification, filters)
        for shared in filters:
            for (_, place), split in self._places.get(shared.number, {}).items():
                # The requester adds the notifications from its own side itself.
                if not self._source_map.counts(origin, split.requester):
                    continue
                if not split.accepts(place, origin):
                    continue
                if time_us < split.watermark_at(self._own_us):
                    self._budget.dropped[LATE] += 1
                    continue
                split.hold(place, (notification,))
                self._schedule(split)
                # The asker learns once that pieces wait here for a later time.
                is_told = split.gathers or split.reported_waits_us is not None
                if not is_told and isinstance(split.requester, Neighbour):
                    actions += self._report(split, split.requester, [])
        return [*actions, *self.learn(time_us)]

    def learn(self, time_us: int) -> list[Action]:
        """Learns a timestamp. Patterns that waited for it continue."""
        if time_us > self.learned_us:
            if not self._is_credible(time_us):
                self._budget.dropped[AHEAD] += 1
                return []
            self.learned_us = time_us
        actions = self._advance_engine() if self._whole else []
        if self._due:
            actions += self._advance_due()
        else:
            self._is_split_behind = False
        return actions

    def pass_time(self, time_us: int) -> list[Action]:
        """As `learn`, by the server's clock: this continues patterns that are behind, too."""
        self._work_left = self._budget.limits.turn_work_max
        return self.learn(time_us)

    def learn_all(self, times_us: Sequence[int]) -> list[Action]:
        """As `learn`, for several notifications without a match: mostly the latest is enough."""
        latest_us = max(times_us)
        if len(times_us) == 1 or self._is_credible(latest_us):
            return self.learn(latest_us)
        return [action for time_us in times_us for action in self.learn(time_us)]

    def _is_credible(self, time_us: int) -> bool:
        return time_us <= self.clock_us + self.ahead_max_us

    @property
    def due_us(self) -> int | None:
        """The earliest time of the waiting pieces; None without any, the past for work left."""
        if self._engine.is_behind or self._is_split_behind:
            return TIME_MIN_US
        due_us = self._due[0][0] if self._due else None
        times = [each for each in (self._engine.waiting.head_us, due_us) if each is not None]
        return min(times, default=None)

    @property
    def _own_us(self) -> int:
        """The watermark of notifications that arrive singly."""
        return self.learned_us - self._slack_us

    def begin_turn(self, clock_us: int) -> None:
        """Begins an event of the server, at the time of its clock, with the work of one turn."""
        self.clock_us = clock_us
        # Patterns that are behind have turns of their own, so that they slow no publisher.
        is_behind = self._engine.is_behind or self._is_split_behind
        self._work_left = 0 if is_behind else self._budget.limits.turn_work_max

    def _advance_engine(self) -> list[Action]:
        """Advances the patterns in the engine, as far as the work of this turn allows."""
        engine = self._engine
        if engine.is_behind and self._work_left <= 0:
            return []
        actions: list[Action] = []
        charges = Counter[tuple[Client, str]]()
        before = engine.work
        for match in engine.advance(self._own_us, self._work_left):
            whole = self._whole[match.key]
            found = Match(whole.identity, match.by, match.notifications)
            actions.append(DeliverMatch(whole.requester, found))
        self._work_left -= engine.work - before
        self._matched += len(actions)
        for number, work in engine.charges.items():
            charges[self._whole[number].requester, self._whole[number].identity] += work
        engine.charges.clear()
        return [*actions, *self._charge(charges)]

    def _advance_due(self) -> list[Action]:
        """Advances split patterns that need not wait, as far as the work of this turn allows."""
        was_behind, self._is_split_behind = self._is_split_behind, False
        actions: list[Action] = []
        charges = Counter[tuple[Client, str]]()
        while self._due and self._due[0][0] < self._own_us:
            if self._work_left <= 0:
                self._is_split_behind = True
                break
            _, number = heapq.heappop(self._due)
            split = self._split.get(number)
            if split is None:
                continue
            split.scheduled_us, before = None, split.runs.work
            actions += self._advance(split)
            work = split.runs.work - before
            self._work_left -= work
            if was_behind and isinstance(split.requester, Client):
                charges[split.requester, split.identity] += work
        return [*actions, *self._charge(charges)]

    def _charge(self, charges: Counter[tuple[Client, str]]) -> Iterator[PatternEnded]:
        """Charges requesters for work that others waited for; ends the costliest of too much."""
        limit, now_us = self._budget.limits.client_work_max, self.clock_us
        worst: dict[Client, str] = {}
        for (client, identity), work in charges.items():
            charged, at_us = self._charged.get(client, (0, now_us))
            charged = max(0, charged - int(max(0, now_us - at_us) * WORK_SHARE)) + work
            self._charged[client] = charged, now_us
            if work > charges[client, worst.get(client, "")]:
                worst[client] = identity
        for client, identity in worst.items():
            if self._charged[client][0] > limit:
                del self._charged[client]
                yield PatternEnded(client, identity)

    def _schedule(self, split: SplitPattern) -> None:
        """Schedules a pattern for the time when it need not wait for this server."""
        waits_us = split.waits_us
        if waits_us is None or waits_us < self._own_us:
            return  # Nothing waits, or only delegates: their reports wake it.
        if split.scheduled_us is None or waits_us < split.scheduled_us:
            split.scheduled_us = waits_us
            heapq.heappush(self._due, (waits_us, split.number))

    def _advance(self, split: SplitPattern) -> list[Action]:
        """Advances a pattern. Returns its matches, reports and questions to delegates."""
        if split.gathers:
            return []
        matches = split.take_matches(self._own_us)
        actions: list[Action] = []
        if isinstance(split.requester, Client):
            self._matched += len(matches)
            actions += (DeliverMatch(split.requester, match) for match in matches)
        else:
            actions += self._report(split, split.requester, matches)
        self._schedule(split)
        return actions + self._ask_delegates(split)

    def _report(
        self, split: SplitPattern, asker: Neighbour, matches: list[Match[str]]
    ) -> list[Action]:
        """Reports matches, a requested watermark, or that pieces wait."""
        is_answer = TIME_MIN_US < split.asked_us <= split.watermark_us
        if is_answer:
            split.asked_us = TIME_MIN_US
        actions: list[Action] = []
        waits_us = split.waits_us
        if matches or is_answer or (waits_us is not None and split.reported_waits_us is None):
            split.reported_waits_us = waits_us
            self._reported += len(matches)
            report = ReportMatches(split.identity, tuple(matches), split.watermark_us, waits_us)
            actions.append(Send(asker, report))
        if split.runs.full:
            actions += self.hand_back(asker, split.identity)
        return actions

    def _ask_delegates(self, split: SplitPattern) -> list[Action]:
        """Asks the delegates that hold up waiting pieces for their watermarks, once each."""
        own_us, waits_us = self._own_us, split.waits_us
        is_waiting = waits_us is not None and waits_us < own_us
        if not is_waiting and split.asked_us <= split.watermark_us:
            return []
        ask, learned_us = self._segments.ask_watermark, self.learned_us
        segments = split.segments.values()
        return [action for each in segments for action in ask(each, own_us, learned_us)]

    # --- filters ------------------------------------------------------------------------------

    def _subscribe_segments(self, split: SplitPattern) -> list[Action]:
        actions: list[Action] = []
        for place in split.needed_places():
            if place not in split.subscribed:
                shared = split.subscribed[place] = self._filters.use(split.pattern.filters[place])
                self._places.setdefault(shared.number, {})[split.number, place] = split
                if shared.uses == 1:
                    actions.append(split_pattern.SubscribeSegment(shared.number, shared.filter))
        return actions

    def _unsubscribe_segments(self, split: SplitPattern, places: Iterable[int]) -> list[Action]:
        actions: list[Action] = []
        for place in places:
            shared = split.subscribed.pop(place)
            of_filter = self._places[shared.number]
            del of_filter[split.number, place]
            if not of_filter:
                del self._places[shared.number]
            if self._filters.leave(shared):
                actions.append(split_pattern.UnsubscribeSegment(shared.number))
        return actions

    # --- inspection ---------------------------------------------------------------------------

    def statistics(self) -> AssemblerStatistics:
        """Returns a frozen view of the counters. Cost: the number of patterns."""
        waiting: list[ReorderBuffer[Any]] = [each.waiting for each in self._split.values()]
        waiting.append(self._engine.waiting)
        return AssemblerStatistics(
            patterns=len(self),
            delegated=len(self._segments),
            filters=len(self._filters),
            runs=self._budget.held,
            waiting=sum(len(each) for each in waiting),
            learned_us=self.learned_us,
            reported=self._reported,
            matched=self._matched,
            forced=self._forced + sum(each.forced for each in waiting),
            stale=self._stale,
            dropped=MappingProxyType({k: n for k, n in self._budget.dropped.items() if n}),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all patterns."""
        self._filters.validate()
        runs = self._engine.validate() + sum(each.validate() for each in self._split.values())
        assert runs == self._budget.held, "the count of runs is wrong"
        linked = {id(each) for each in self._segments}
        held = {id(each) for split in self._split.values() for each in split.segments.values()}
        assert linked == held, "a segment is not filed"
        held_by = [id(each) for of in self.by_origin.values() for each in of.values()]
        patterns = [*map(id, self._whole.values()), *map(id, self._split.values())]
        assert sorted(held_by) == sorted(patterns), "a pattern is lost"
        wanted = {
            (shared.number, split.number, place)
            for split in self._split.values()
            for place, shared in split.subscribed.items()
        }
        found = {(number, *place) for number, of in self._places.items() for place in of}
        assert wanted == found, "a filter is wanted that is not needed, or the other way round"
        parts = sum(len(whole.pattern.filters) for whole in self._whole.values())
        uses = sum(shared.uses for shared in self._filters)
        assert uses == parts + len(wanted), "a filter is kept that nobody needs"
