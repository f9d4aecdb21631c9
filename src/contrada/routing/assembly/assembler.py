"""`Assembler`: all patterns of one server, and what it says about them to its neighbours.

A pure state machine beside the router, which tells it

- what clients and neighbours ask for (`subscribe`, `unsubscribe`, `forget`, `receive`);
- each notification with the numbers of the filters that it matches (`push`), of those that the
  assembler wants (`Want`), and larger timestamps of which it learns otherwise (`learn`);
- when advertisements or links have changed (`renew`, `link_down`);

and which answers from where a part of a pattern can come (`Outlook`). What is to be done comes back
as actions, in order.

Where nothing is known of sources, as with subscription forwarding, what clients ask for is
assembled here: all of it in one `PatternEngine`, fed from one buffer. Where sources are known,
each pattern is split by itself (`SplitPattern`), since it waits for delegates of its own.

A server tells a delegate what time it has learned of when something waits for that, here or (as the
delegate has said) there, and the delegate answers by its watermark; one question at a time. So a
quiet delegate holds nothing up, and where nothing waits nothing is said. What a report says of time
is learned too. All servers of a network have the same slack.

Invariants: a filter is wanted while some place needs it; each segment away has one delegate.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from contrada.errors import InvalidFilterError, LimitError, UnknownOperatorError
from contrada.model import Notification, Pattern, Product
from contrada.model.algebra.product import product_meets
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns import Match
from contrada.patterns.engine import (
    LATE,
    PATTERNS_MAX,
    Found,
    PatternEngine,
    SharedFilters,
    check_pattern,
)
from contrada.patterns.reordering import check_slack
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits, RunBudget
from contrada.routing.assembly.actions import Action, Matched, Outlook, Unwant, Want
from contrada.routing.assembly.phases import AT_ASKER, AT_DELEGATE, Phase
from contrada.routing.assembly.segments import Segments
from contrada.routing.assembly.split import Segment, Span, SplitPattern, spans_of
from contrada.routing.delegation import (
    AcceptPattern,
    Answer,
    AskWatermark,
    Demand,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.messages import Client, Neighbour, Origin

DELEGATIONS_MAX: Final = 255
"""How often a pattern, or a part of it, is delegated on. Beyond it: it is handed back to be
assembled upstream."""

CLOCK_AHEAD_MAX_US: Final = 86_400_000_000
"""How far a timestamp may be ahead of a server's clock: a day, to allow for other zones.
Everything after it would be late. Beyond it: it is not believed; the notification is delivered and
takes part in no pattern, counted."""

AHEAD: Final = "ahead of the clock"
"""Why a notification takes part in no pattern, and why a time is not learned."""

LOST: Final = "delegates lost"
"""Why what was gathered is lost: the link to the delegate is gone. Counts segments."""


@dataclass(frozen=True, slots=True)
class AssemblerStatistics:
    """What an assembler holds, and what it did.

    `delegated` segments of `patterns` are assembled elsewhere, `runs` and `waiting` chains are held
    here, `filters` are wanted. `reported` matches went to neighbours, `matched` to clients; `sent`
    counts messages by kind, `stale` answers for what was withdrawn, `dropped` what was lost.
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
    sent: Mapping[str, int]
    dropped: Mapping[str, int]


class _Whole(NamedTuple):
    """A pattern in the engine, under a number, and the client that asked for it."""

    number: int
    requester: Client
    identity: str
    pattern: Pattern


class Assembler:
    """The patterns of one server. `slack_us` is how late a notification may come.

    `clock_us` is the server's clock, which its owner tells: no notification is believed to be of
    much later. What the notifications say of the time may be long before it.
    The limits are those of the pattern matcher; a delegate that reaches one refuses the newest
    start and hands the sub-pattern back.
    """

    def __init__(
        self, outlook: Outlook, *, slack_us: int = 0, limits: PatternLimits = DEFAULT_LIMITS
    ) -> None:
        self.learned_us = TIME_MIN_US
        self.clock_us = 0
        self._outlook = outlook
        self._slack_us = check_slack(slack_us)
        self._budget = RunBudget(limits)
        self._filters = SharedFilters()
        self._engine = PatternEngine(self._filters, self._budget, None)
        self._whole: dict[int, _Whole] = {}
        self._split: dict[int, SplitPattern] = {}
        self._by_identity: dict[Origin, dict[str, SplitPattern | _Whole]] = {}
        self._places: dict[int, dict[tuple[int, int], SplitPattern]] = {}
        self._segments = Segments()
        self._numbers = itertools.count()
        self._due: list[tuple[int, int]] = []
        self._reported = self._matched = self._stale = self._forced = 0

    def __len__(self) -> int:
        return len(self._whole) + len(self._split)

    def __contains__(self, origin: object) -> bool:
        """Whether an origin has asked for a pattern."""
        return origin in self._by_identity

    # --- what is asked for --------------------------------------------------------------------

    def knows(self, origin: Origin, identity: str) -> bool:
        """Whether an origin has asked for a pattern under an identity."""
        return identity in self._by_identity.get(origin, ())

    def pattern(self, origin: Origin, identity: str) -> Pattern | None:
        """The pattern that an origin asked for."""
        known = self._by_identity.get(origin, {}).get(identity)
        return None if known is None else known.pattern

    def subscribe(
        self, origin: Origin, identity: str, pattern: Pattern, hops: int = 0
    ) -> list[Action]:
        """A client or a neighbour asks for a pattern, under a new identity.

        A neighbour's is gathered from now on, and assembled once it has handed over what it has.
        Raises LimitError (PATTERNS_MAX), UnknownOperatorError, InvalidFilterError where it is
        empty; then nothing has changed.
        """
        assert not self.knows(origin, identity), f"{origin} {identity} is known already"
        if pattern.is_empty:
            raise InvalidFilterError("->", (pattern,), "no sequence can match")
        check_pattern(pattern)
        if len(self) >= PATTERNS_MAX:
            raise LimitError("PATTERNS_MAX", PATTERNS_MAX)
        identities = self._by_identity.setdefault(origin, {})
        if isinstance(origin, Client) and not self._outlook.is_known:
            matched = self._advance_engine()  # To where it would be, had it not been empty.
            engine_number, new = self._engine.add(pattern)
            whole = _Whole(engine_number, origin, identity, pattern)
            identities[identity] = self._whole[engine_number] = whole
            return [*matched, *(Want(each.number, each.filter) for each in new)]
        number = next(self._numbers)
        split = SplitPattern(number, origin, identity, pattern, self._budget, hops=hops)
        identities[identity] = self._split[number] = split
        actions = self._want(split)
        if isinstance(origin, Neighbour):
            return [*actions, *self._segments.say(origin, AcceptPattern(identity))]
        return [*actions, *self._renew(split), *self._advance(split)]

    def unsubscribe(self, origin: Origin, identity: str) -> list[Action]:
        """A client or a neighbour withdraws a pattern, which it has asked for."""
        return self._remove(self._by_identity[origin][identity])

    def forget(self, origin: Origin) -> list[Action]:
        """Withdraws all patterns of an origin."""
        known = list(self._by_identity.get(origin, {}).values())
        return [action for each in known for action in self._remove(each)]

    def _remove(self, known: SplitPattern | _Whole) -> list[Action]:
        """Forgets a pattern, here and at its delegates."""
        identities = self._by_identity[known.requester]
        del identities[known.identity]
        if not identities:
            del self._by_identity[known.requester]
        if isinstance(known, _Whole):
            del self._whole[known.number]
            return [Unwant(number) for number in self._engine.remove(known.number)]
        actions = self._segments.leave(known)
        actions += self._unwant(known, list(known.wanted))
        self._forced += known.forced
        known.clear()
        del self._split[known.number]
        return actions

    def hand_back(self, neighbour: Neighbour, identity: str) -> list[Action]:
        """Asks a neighbour, once, to recall a pattern: this server has too much to do.

        It is assembled here until the neighbour does so.
        """
        split = self._split_of(neighbour, identity)
        if split is None or split.phase is not Phase.DELEGATED:
            return []
        split.enter(Phase.HANDED_BACK)
        return self._segments.say(neighbour, HandBack(identity))

    def _split_of(self, neighbour: Neighbour, identity: str) -> SplitPattern | None:
        known = self._by_identity.get(neighbour, {}).get(identity)
        return known if isinstance(known, SplitPattern) else None

    # --- notifications and time ---------------------------------------------------------------

    def push(
        self, notification: Notification, origin: Origin, numbers: Iterable[int] = ()
    ) -> list[Action]:
        """A notification has come from an origin, and matches the wanted filters of these numbers.

        Cost: O(log waiting) for the engine and each place that takes it, and what it lets go on.
        """
        time_us = notification.envelope.at_us
        actions: list[Action] = []
        if not self._is_credible(time_us):
            self._budget.dropped[AHEAD] += 1
            return actions
        filters = self._filters.of(numbers)
        if self._whole and filters and not self._engine.is_late(time_us):
            self._engine.hold(notification, filters)
        for shared in filters:
            for (_, place), split in self._places.get(shared.number, {}).items():
                if not self._outlook.counts(origin, split.requester):
                    continue
                if not split.accepts(place, origin):
                    continue
                if time_us < split.watermark_at(self._own_us):
                    self._budget.dropped[LATE] += 1
                    continue
                split.hold(place, (notification,))
                self._schedule(split)
                actions += self._say_that_it_waits(split)
        return [*actions, *self.learn(time_us)]

    def learn(self, time_us: int) -> list[Action]:
        """The server has learned of a timestamp. What has waited for it goes on."""
        if time_us > self.learned_us:
            if not self._is_credible(time_us):
                self._budget.dropped[AHEAD] += 1
                return []
            self.learned_us = time_us
        actions = self._advance_engine() if self._whole else []
        while self._due and self._due[0][0] < self._own_us:
            _, number = heapq.heappop(self._due)
            split = self._split.get(number)
            if split is not None:
                split.scheduled_us = None
                actions += self._advance(split)
        return actions

    def _is_credible(self, time_us: int) -> bool:
        return time_us <= self.clock_us + CLOCK_AHEAD_MAX_US

    @property
    def due_us(self) -> int | None:
        """The earliest time of what waits here for a later one; None where nothing does."""
        due_us = self._due[0][0] if self._due else None
        times = [each for each in (self._engine.head_us, due_us) if each is not None]
        return min(times, default=None)

    @property
    def _own_us(self) -> int:
        """The watermark of what comes to this server singly."""
        return self.learned_us - self._slack_us

    def _advance_engine(self) -> list[Action]:
        return list(map(self._matched_whole, self._engine.advance(self._own_us)))

    def _matched_whole(self, found: Found) -> Action:
        whole = self._whole[found.number]
        self._matched += 1
        return Matched(whole.requester, Match(whole.identity, found.by, found.run))

    def _schedule(self, split: SplitPattern) -> None:
        """Notes to look at a pattern when what waits need not wait for this server."""
        waits_us = split.waits_us
        if waits_us is None or waits_us < self._own_us:
            return  # It waits for nothing, or for delegates: their reports wake it.
        if split.scheduled_us is None or waits_us < split.scheduled_us:
            split.scheduled_us = waits_us
            heapq.heappush(self._due, (waits_us, split.number))

    def _advance(self, split: SplitPattern) -> list[Action]:
        """Has a pattern go on; what comes of it, and whom it waits for now."""
        if split.gathers:
            return []
        matches = split.go_on(self._own_us)
        actions: list[Action] = []
        if isinstance(split.requester, Client):
            self._matched += len(matches)
            actions += (Matched(split.requester, match) for match in matches)
        else:
            actions += self._report(split, split.requester, matches)
        self._schedule(split)
        return actions + self._ask(split)

    def _report(
        self, split: SplitPattern, asker: Neighbour, matches: list[Match[str]]
    ) -> list[Action]:
        """Reports matches, or only the watermark that was asked for, or that something waits."""
        is_answer = TIME_MIN_US < split.asked_us <= split.watermark_us
        if is_answer:
            split.asked_us = TIME_MIN_US
        actions: list[Action] = []
        waits_us = split.waits_us
        if matches or is_answer or (waits_us is not None and split.told_us is None):
            split.told_us = waits_us
            self._reported += len(matches)
            report = ReportMatches(split.identity, tuple(matches), split.watermark_us, waits_us)
            actions += self._segments.say(asker, report)
        if split.is_full:
            actions += self.hand_back(asker, split.identity)
        return actions

    def _say_that_it_waits(self, split: SplitPattern) -> list[Action]:
        """Tells who asked that something is held here until a later time is learned, once."""
        if split.gathers or split.told_us is not None or isinstance(split.requester, Client):
            return []
        return self._report(split, split.requester, [])

    def _ask(self, split: SplitPattern) -> list[Action]:
        """Asks the delegates for whose watermark something waits, each once at a time."""
        own_us, waits_us = self._own_us, split.waits_us
        is_waiting = waits_us is not None and waits_us < own_us
        if not is_waiting and split.asked_us <= split.watermark_us:
            return []
        segments = split.segments.values()
        asked = (self._segments.ask(each, own_us, self.learned_us) for each in segments)
        return list(itertools.chain.from_iterable(asked))

    # --- what neighbours say ------------------------------------------------------------------

    def receive(self, neighbour: Neighbour, message: Demand | Answer) -> list[Action] | None:
        """A neighbour speaks of a pattern that it or this server asked for.

        None where that is unknown, or does not fit what was said before: nothing has changed then.
        Answers for what was withdrawn meanwhile are counted, and change nothing.
        """
        match message:
            case SubscribePattern():
                return self._asked(neighbour, message)
            case UnsubscribePattern(identity):
                is_known = self.knows(neighbour, identity)
                return self.unsubscribe(neighbour, identity) if is_known else None
            case HandOver() | AskWatermark() | RecallPattern():
                split = self._split_of(neighbour, message.identity)
                if split is None:
                    return None
                phase = AT_DELEGATE.get((split.phase, type(message)))
                return None if phase is None else self._demanded(split, phase, message)
        known = self._segments.get(neighbour, message.identity)
        if known is None:
            self._stale += 1
            return []
        phase = AT_ASKER.get((known[1].phase, type(message)))
        return None if phase is None else self._answered(*known, phase, message)

    def _asked(self, neighbour: Neighbour, message: SubscribePattern) -> list[Action] | None:
        """A neighbour asks for a pattern; what cannot be taken is handed back at once."""
        identity, pattern = message.identity, message.pattern
        if self.knows(neighbour, identity) or pattern.is_empty:
            return None
        if message.hops <= DELEGATIONS_MAX:
            try:
                return self.subscribe(neighbour, identity, pattern, message.hops)
            except (LimitError, UnknownOperatorError):
                pass  # It is handed back, and assembled by who asked.
        return self._segments.say(neighbour, HandBack(identity))

    def _demanded(
        self, split: SplitPattern, phase: Phase, message: HandOver | AskWatermark | RecallPattern
    ) -> list[Action] | None:
        """Does what a neighbour demands of a pattern that it has asked for."""
        match message:
            case HandOver(_, watermark_us, pieces):
                places = range(len(split.pattern.filters))
                if any(each.place not in places for each in pieces):
                    return None
                split.begin(watermark_us, pieces)
                split.enter(phase)
                actions = self._learn_promise(watermark_us)
                return [*actions, *self._renew(split), *self._advance(split)]
            case AskWatermark(_, time_us):
                split.asked_us = max(split.asked_us, time_us - self._slack_us)
                return [*self.learn(time_us), *self._advance(split)]
            case RecallPattern():
                split.enter(phase)
                actions = []
                for segment in list(split.segments.values()):
                    actions += self._take_back(split, segment)
                return [*actions, *self._return(split)]

    def _answered(
        self, split: SplitPattern, segment: Segment, phase: Phase, message: Answer
    ) -> list[Action] | None:
        """Takes the answer of a delegate."""
        places = range(len(segment.span.places()))
        match message:
            case AcceptPattern():
                segment.phase = phase
                actions = self._segments.hand_over(split, segment)
                actions += self._unwant(split, segment.span.places())
                return [*actions, *self._advance(split)]
            case ReportMatches(_, matches, watermark_us, waits_us):
                if any(len(match.notifications) != len(places) for match in matches):
                    return None
                self._budget.dropped[LATE] += split.hold_matches(segment, matches)
                segment.watermark_us = max(segment.watermark_us, watermark_us)
                segment.waits_us = waits_us
                return [*self._learn_promise(watermark_us), *self._advance(split)]
            case HandBack():
                split.refused_by.add(segment.span.neighbour)
                if phase is not Phase.OVER:
                    return self._take_back(split, segment)
                self._segments.end(split, segment)  # The delegate does not know of it.
                return []
            case ReturnPattern(_, watermark_us, pieces):
                if any(each.place not in places for each in pieces):
                    return None
                self._segments.end(split, segment)
                split.hold_pieces(segment.span.first, pieces)
                return [*self._learn_promise(watermark_us), *self._ended(split)]

    def _ended(self, split: SplitPattern) -> list[Action]:
        """A segment has ended: the pattern goes on here, or is given back."""
        if split.phase is Phase.RETURNING:
            return self._return(split)
        return [*self._renew(split), *self._advance(split)]

    def _learn_promise(self, watermark_us: int) -> list[Action]:
        """A neighbour's watermark tells of a timestamp that it has learned."""
        if watermark_us <= TIME_MIN_US:
            return []
        return self.learn(watermark_us + self._slack_us)

    # --- splitting ----------------------------------------------------------------------------

    def renew(self, changed: Product | None = None) -> list[Action]:
        """Splits patterns anew: those with a part that what has changed may match, or all.

        Cost: of the distinct parts of all patterns, and for those that it meets their sources.
        """
        touched = [
            each
            for each in self._split.values()
            if changed is None or any(product_meets(changed, part) for part in each.pattern.filters)
        ]
        return [action for each in touched for action in self._renew(each)]

    def _renew(self, split: SplitPattern) -> list[Action]:
        """Takes back what is to be split otherwise, and delegates what can be now."""
        if split.gathers:
            return []
        plan = self._plan(split)
        actions: list[Action] = []
        for segment in list(split.segments.values()):
            if segment.span not in plan:
                actions += self._take_back(split, segment)
        for span in plan:
            if split.is_free(span):
                actions += self._segments.offer(split, span)
        return actions

    def _plan(self, split: SplitPattern) -> list[Span]:
        sources, filters = self._outlook.sources, split.pattern.filters
        known = {part: sources(part, split.requester) for part in set(filters)}
        spans = spans_of(known[part] for part in filters)
        return [span for span in spans if span.neighbour not in split.refused_by]

    def _take_back(self, split: SplitPattern, segment: Segment) -> list[Action]:
        """Takes a segment back: what was not handed over is here still, else it is recalled."""
        if segment.phase is Phase.RETURNING:
            return []
        if segment.phase is Phase.OFFERED:
            return self._segments.withdraw(split, segment)
        segment.phase = Phase.RETURNING
        return [*self._want(split), *self._segments.recall(segment)]

    def _return(self, split: SplitPattern) -> list[Action]:
        """Gives all back to who recalled it, once all of it is here."""
        if split.segments:
            return []
        neighbour = split.requester
        assert isinstance(neighbour, Neighbour)
        watermark_us, pieces = split.watermark_us, split.all_pieces()
        message = ReturnPattern(split.identity, watermark_us, pieces)
        return [*self._segments.say(neighbour, message), *self._remove(split)]

    def link_down(self, neighbour: Neighbour) -> list[Action]:
        """A link is gone: what its neighbour asked for, and what it held, are forgotten."""
        actions = self.forget(neighbour)
        for split, segment in self._segments.at(neighbour):
            self._budget.dropped[LOST] += segment.is_away
            self._segments.end(split, segment)
            actions += self._want(split)
            returns = split.phase is Phase.RETURNING
            actions += self._return(split) if returns else self._advance(split)
        for split in self._split.values():
            split.refused_by.discard(neighbour)
        return actions

    # --- filters ------------------------------------------------------------------------------

    def _want(self, split: SplitPattern) -> list[Action]:
        """Subscribes to the filters that a pattern needs and does not have yet."""
        actions: list[Action] = []
        for place in split.needed():
            if place not in split.wanted:
                shared = split.wanted[place] = self._filters.use(split.pattern.filters[place])
                self._places.setdefault(shared.number, {})[split.number, place] = split
                if shared.uses == 1:
                    actions.append(Want(shared.number, shared.filter))
        return actions

    def _unwant(self, split: SplitPattern, places: Iterable[int]) -> list[Action]:
        actions: list[Action] = []
        for place in places:
            shared = split.wanted.pop(place)
            of_filter = self._places[shared.number]
            del of_filter[split.number, place]
            if not of_filter:
                del self._places[shared.number]
            if self._filters.leave(shared):
                actions.append(Unwant(shared.number))
        return actions

    # --- what others may see ------------------------------------------------------------------

    def delegates(self) -> list[tuple[Neighbour, str]]:
        """The patterns that this server assembles for neighbours: of whom, and by which name."""
        return [
            (each.requester, each.identity)
            for each in self._split.values()
            if isinstance(each.requester, Neighbour)
        ]

    def delegated(self, origin: Origin, identity: str) -> list[Span]:
        """Which places of a pattern are assembled by whom."""
        known = self._by_identity[origin][identity]
        if isinstance(known, _Whole):
            return []
        segments = known.segments.values()
        return sorted(each.span for each in segments if each.phase is Phase.DELEGATED)

    def is_settled(self) -> bool:
        """Whether no segment changes hands."""
        return not any(each.gathers for each in self._split.values()) and all(
            each.phase is Phase.DELEGATED for each in self._segments
        )

    def statistics(self) -> AssemblerStatistics:
        """A frozen view of what is held and was done. Cost: the number of patterns."""
        split = self._split.values()
        return AssemblerStatistics(
            patterns=len(self),
            delegated=len(self._segments),
            filters=len(self._filters),
            runs=self._budget.held,
            waiting=sum(map(len, split)) + self._engine.pending,
            learned_us=self.learned_us,
            reported=self._reported,
            matched=self._matched,
            forced=self._forced + self._engine.forced + sum(each.forced for each in split),
            stale=self._stale,
            sent=MappingProxyType(dict(self._segments.sent)),
            dropped=MappingProxyType({k: n for k, n in self._budget.dropped.items() if n}),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._filters.validate()
        runs = self._engine.validate() + sum(each.validate() for each in self._split.values())
        assert runs == self._budget.held, "the count of runs is wrong"
        linked = {id(each) for each in self._segments}
        held = {id(each) for split in self._split.values() for each in split.segments.values()}
        assert linked == held, "a segment is unknown where its answers come"
        held_by = [id(each) for of in self._by_identity.values() for each in of.values()]
        patterns = [*map(id, self._whole.values()), *map(id, self._split.values())]
        assert sorted(held_by) == sorted(patterns), "a pattern is lost"
        wanted = {
            (shared.number, split.number, place)
            for split in self._split.values()
            for place, shared in split.wanted.items()
        }
        found = {(number, *place) for number, of in self._places.items() for place in of}
        assert wanted == found, "a filter is wanted that is not needed, or the other way round"
        parts = sum(len(whole.pattern.filters) for whole in self._whole.values())
        uses = sum(shared.uses for shared in self._filters)
        assert uses == parts + len(wanted), "a filter is kept that nobody needs"
