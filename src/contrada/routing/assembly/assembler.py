"""`Assembler`: all patterns of one server, and what it says about them to its neighbours.

A pure state machine beside the router, which tells it

- what clients and neighbours ask for (`subscribe`, `unsubscribe`, `forget`, `receive`);
- each notification with the numbers of the filters that it matches (`push`), of those that the
  assembler wants (`Want`), and larger timestamps of which it learns otherwise (`learn`);
- when advertisements or links have changed (`renew`, `link_down`);

and which answers from where a part of a pattern can come (`Outlook`). What is to be done comes back
as actions, in order. With subscription forwarding nothing is known of sources, so that the access
point assembles everything itself.

A server tells a delegate what time it has learned of when something waits for that, here or (as the
delegate has said) there, and the delegate answers by its watermark; one question at a time. So a
quiet delegate holds nothing up, and where nothing waits nothing is said. What a report says of time
is learned too. All servers of a network have the same slack.

Invariants: a filter is wanted while some place needs it; each segment away has one delegate.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from contrada.errors import InvalidFilterError, InvalidValueError, LimitError, UnknownOperatorError
from contrada.model import Filter, Notification, Pattern, Product
from contrada.model.algebra.product import product_meets
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns import Match
from contrada.patterns.matcher import DEFAULT_LIMITS, LATE, PATTERNS_MAX
from contrada.patterns.runs import PatternLimits, RunBudget
from contrada.routing.assembly.assembly import Assembly, Segment, Span, State, spans_of
from contrada.routing.assembly.delegation import (
    AcceptPattern,
    Answer,
    AskWatermark,
    Demand,
    HandBack,
    HandOver,
    PatternMessage,
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


class Outlook(Protocol):
    """What the router knows of where notifications come from."""

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """From where a part can come, of a pattern that this requester asked for.

        None stands for clients of this server, or for what is not known.
        """

    def counts(self, origin: Origin, requester: Origin) -> bool:
        """Whether notifications from an origin count for patterns of a requester."""


@dataclass(frozen=True, slots=True)
class Want:
    """Subscribe this server to a filter, under a number."""

    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unwant:
    """Withdraw that."""

    number: int


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message about a pattern to a neighbour."""

    to: Neighbour
    message: PatternMessage


@dataclass(frozen=True, slots=True)
class Matched:
    """Hand a match to a client; its key is the identity of the subscription."""

    client: Client
    match: Match[str]


Action: TypeAlias = Want | Unwant | Say | Matched


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


@dataclass(slots=True)
class _Wanted:
    """A filter of some patterns: the places that need it now, by number of the assembly."""

    filter: Filter
    number: int
    places: dict[tuple[int, int], Assembly]


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
        if type(slack_us) is not int or slack_us < 0:
            raise InvalidValueError(slack_us, "slack_us: expected microseconds as an int from 0")
        self.learned_us = TIME_MIN_US
        self.clock_us = 0
        self._outlook = outlook
        self._slack_us = slack_us
        self._budget = RunBudget(limits)
        self._assemblies: dict[int, Assembly] = {}
        self._by_identity: dict[Origin, dict[str, Assembly]] = {}
        self._segments: dict[Neighbour, dict[str, tuple[Assembly, Segment]]] = {}
        self._wanted: dict[Filter, _Wanted] = {}
        self._by_number: dict[int, _Wanted] = {}
        self._numbers = itertools.count()
        self._due: list[tuple[int, int]] = []
        self._sent: Counter[str] = Counter()
        self._reported = self._matched = self._stale = self._forced = 0

    def __len__(self) -> int:
        return len(self._assemblies)

    def __contains__(self, origin: object) -> bool:
        """Whether an origin has asked for a pattern."""
        return origin in self._by_identity

    # --- what is asked for --------------------------------------------------------------------

    def knows(self, origin: Origin, identity: str) -> bool:
        """Whether an origin has asked for a pattern under an identity."""
        return identity in self._by_identity.get(origin, ())

    def pattern(self, origin: Origin, identity: str) -> Pattern | None:
        """The pattern that an origin asked for."""
        assembly = self._by_identity.get(origin, {}).get(identity)
        return None if assembly is None else assembly.pattern

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
        for operator in itertools.chain.from_iterable(part.unknown() for part in pattern.filters):
            raise UnknownOperatorError(operator)
        if len(self._assemblies) >= PATTERNS_MAX:
            raise LimitError("PATTERNS_MAX", PATTERNS_MAX)
        number = next(self._numbers)
        assembly = Assembly(number, origin, identity, pattern, self._budget, hops=hops)
        self._assemblies[number] = assembly
        self._by_identity.setdefault(origin, {})[identity] = assembly
        actions = self._want(assembly, range(len(pattern.filters)))
        if isinstance(origin, Neighbour):
            return [*actions, *self._say(origin, AcceptPattern(identity))]
        return [*actions, *self._renew(assembly), *self._advance(assembly)]

    def unsubscribe(self, origin: Origin, identity: str) -> list[Action]:
        """A client or a neighbour withdraws a pattern, which it has asked for."""
        return self._remove(self._by_identity[origin][identity])

    def hand_back(self, neighbour: Neighbour, identity: str) -> list[Action]:
        """Asks a neighbour, once, to recall a pattern: this server has too much to do.

        It is assembled here until the neighbour does so.
        """
        assembly = self._by_identity[neighbour][identity]
        if assembly.handed_back:
            return []
        assembly.handed_back = True
        return self._say(neighbour, HandBack(identity))

    def forget(self, origin: Origin) -> list[Action]:
        """Withdraws all patterns of an origin."""
        assemblies = list(self._by_identity.get(origin, {}).values())
        return [action for each in assemblies for action in self._remove(each)]

    def _remove(self, assembly: Assembly) -> list[Action]:
        """Forgets a pattern, here and at its delegates."""
        actions: list[Action] = []
        for segment in list(assembly.segments.values()):
            self._unlink(segment)
            message = UnsubscribePattern(segment.identity)
            if segment.state is not State.RETURNING:
                actions += self._say(segment.span.neighbour, message)
        actions += self._unwant(assembly, range(len(assembly.pattern.filters)))
        self._forced += assembly.forced
        assembly.clear()
        del self._assemblies[assembly.number]
        identities = self._by_identity[assembly.requester]
        del identities[assembly.identity]
        if not identities:
            del self._by_identity[assembly.requester]
        return actions

    # --- notifications and time ---------------------------------------------------------------

    def push(
        self, notification: Notification, origin: Origin, numbers: Iterable[int] = ()
    ) -> list[Action]:
        """A notification has come from an origin, and matches the wanted filters of these numbers.

        Cost: O(log waiting) for each place that takes it, and what it lets go on.
        """
        time_us = notification.envelope.at_us
        actions: list[Action] = []
        if not self._is_credible(time_us):
            self._budget.dropped[AHEAD] += 1
            return actions
        for number in numbers:
            wanted = self._by_number.get(number)
            for (_, place), assembly in wanted.places.items() if wanted is not None else ():
                if not self._outlook.counts(origin, assembly.requester):
                    continue
                if not assembly.accepts(place, origin):
                    continue
                if time_us < assembly.watermark_at(self._own_us):
                    self._budget.dropped[LATE] += 1
                    continue
                assembly.hold(place, (notification,))
                self._schedule(assembly)
                actions += self._say_that_it_waits(assembly)
        return [*actions, *self.learn(time_us)]

    def learn(self, time_us: int) -> list[Action]:
        """The server has learned of a timestamp. What has waited for it goes on."""
        if time_us > self.learned_us:
            if not self._is_credible(time_us):
                self._budget.dropped[AHEAD] += 1
                return []
            self.learned_us = time_us
        actions: list[Action] = []
        while self._due and self._due[0][0] < self._own_us:
            _, number = heapq.heappop(self._due)
            assembly = self._assemblies.get(number)
            if assembly is not None:
                assembly.scheduled_us = None
                actions += self._advance(assembly)
        return actions

    def _is_credible(self, time_us: int) -> bool:
        return time_us <= self.clock_us + CLOCK_AHEAD_MAX_US

    @property
    def due_us(self) -> int | None:
        """The earliest time of what waits here for a later one; None where nothing does."""
        return self._due[0][0] if self._due else None

    @property
    def _own_us(self) -> int:
        """The watermark of what comes to this server singly."""
        return self.learned_us - self._slack_us

    def _schedule(self, assembly: Assembly) -> None:
        """Notes to look at an assembly when what waits need not wait for this server."""
        waits_us = assembly.waits_us
        if waits_us is None or waits_us < self._own_us:
            return  # It waits for nothing, or for delegates: their reports wake it.
        if assembly.scheduled_us is None or waits_us < assembly.scheduled_us:
            assembly.scheduled_us = waits_us
            heapq.heappush(self._due, (waits_us, assembly.number))

    def _advance(self, assembly: Assembly) -> list[Action]:
        """Has an assembly go on; what comes of it, and whom it waits for now."""
        if assembly.frozen or assembly.recalled:
            return []
        matches = assembly.advance(self._own_us)
        actions: list[Action] = []
        if isinstance(assembly.requester, Client):
            self._matched += len(matches)
            actions += (Matched(assembly.requester, match) for match in matches)
        else:
            actions += self._report(assembly, assembly.requester, matches)
        self._schedule(assembly)
        return actions + self._ask(assembly)

    def _report(
        self, assembly: Assembly, asker: Neighbour, matches: list[Match[str]]
    ) -> list[Action]:
        """Reports matches, or only the watermark that was asked for, or that something waits."""
        is_answer = TIME_MIN_US < assembly.asked_us <= assembly.watermark_us
        if is_answer:
            assembly.asked_us = TIME_MIN_US
        actions: list[Action] = []
        waits_us = assembly.waits_us
        if matches or is_answer or (waits_us is not None and not assembly.has_said_that_it_waits):
            assembly.has_said_that_it_waits = waits_us is not None
            self._reported += len(matches)
            report = ReportMatches(
                assembly.identity, tuple(matches), assembly.watermark_us, waits_us
            )
            actions += self._say(asker, report)
        if assembly.is_full:
            actions += self.hand_back(asker, assembly.identity)
        return actions

    def _say_that_it_waits(self, assembly: Assembly) -> list[Action]:
        """Tells who asked that something is held here until a later time is learned, once."""
        silent = assembly.frozen or assembly.recalled or assembly.has_said_that_it_waits
        if silent or isinstance(assembly.requester, Client):
            return []
        return self._report(assembly, assembly.requester, [])

    def _ask(self, assembly: Assembly) -> list[Action]:
        """Asks the delegates for whose watermark something waits, each once at a time."""
        own_us, waits_us = self._own_us, assembly.waits_us
        is_waiting = waits_us is not None and waits_us < own_us
        if not is_waiting and assembly.asked_us <= assembly.watermark_us:
            return []
        actions: list[Action] = []
        for segment in assembly.segments.values():
            if segment.state is not State.DELEGATED or segment.asked_us > segment.watermark_us:
                continue
            if segment.watermark_us < own_us:
                segment.asked_us, segment.waits_us = own_us, None
                message = AskWatermark(segment.identity, self.learned_us)
                actions += self._say(segment.span.neighbour, message)
        return actions

    # --- what neighbours say ------------------------------------------------------------------

    def receive(self, neighbour: Neighbour, message: Demand | Answer) -> list[Action] | None:
        """A neighbour speaks of a pattern that it or this server asked for.

        None where that is unknown, or does not fit what was said before: nothing has changed then.
        Answers for what was withdrawn meanwhile are counted, and change nothing.
        """
        match message:
            case SubscribePattern(identity, pattern, hops):
                if self.knows(neighbour, identity) or pattern.is_empty:
                    return None
                if hops > DELEGATIONS_MAX:
                    return self._say(neighbour, HandBack(identity))
                try:
                    return self.subscribe(neighbour, identity, pattern, hops)
                except (LimitError, UnknownOperatorError):
                    return self._say(neighbour, HandBack(identity))
            case UnsubscribePattern(identity):
                if not self.knows(neighbour, identity):
                    return None
                return self.unsubscribe(neighbour, identity)
            case HandOver() | AskWatermark() | RecallPattern():
                assembly = self._by_identity.get(neighbour, {}).get(message.identity)
                return None if assembly is None else self._demanded(assembly, message)
        known = self._segments.get(neighbour, {}).get(message.identity)
        if known is None:
            self._stale += 1
            return []
        return self._answered(*known, message)

    def _demanded(
        self, assembly: Assembly, message: HandOver | AskWatermark | RecallPattern
    ) -> list[Action] | None:
        match message:
            case HandOver(_, watermark_us, pieces):
                places = range(len(assembly.pattern.filters))
                if not assembly.frozen or any(each.place not in places for each in pieces):
                    return None
                assembly.begin(watermark_us, pieces)
                actions = self._learn_promise(watermark_us)
                return [*actions, *self._renew(assembly), *self._advance(assembly)]
            case AskWatermark(_, time_us):
                if assembly.frozen:
                    return None
                assembly.asked_us = max(assembly.asked_us, time_us - self._slack_us)
                actions = self.learn(time_us)
                return [*actions, *self._advance(assembly)]
            case RecallPattern():
                if assembly.frozen or assembly.recalled:
                    return None
                assembly.recalled = True
                actions = []
                for segment in list(assembly.segments.values()):
                    actions += self._end(assembly, segment)
                return [*actions, *self._return(assembly)]

    def _answered(
        self, assembly: Assembly, segment: Segment, message: Answer
    ) -> list[Action] | None:
        match message:
            case AcceptPattern():
                if segment.state is not State.OFFERED:
                    return None
                return self._hand_over(assembly, segment)
            case ReportMatches(_, matches, watermark_us, waits_us):
                size = segment.span.end - segment.span.first
                fits = all(len(match.notifications) == size for match in matches)
                if not segment.is_away or not fits:
                    return None
                self._budget.dropped[LATE] += assembly.hold_matches(segment, matches)
                segment.watermark_us = max(segment.watermark_us, watermark_us)
                segment.waits_us = waits_us
                return [*self._learn_promise(watermark_us), *self._advance(assembly)]
            case HandBack():
                assembly.refused_by.add(segment.span.neighbour)
                if segment.state is State.RETURNING or assembly.recalled:
                    return []
                return self._end(assembly, segment, is_known=False)
            case ReturnPattern(_, watermark_us, pieces):
                places = range(segment.span.end - segment.span.first)
                fits = all(each.place in places for each in pieces)
                if segment.state is not State.RETURNING or not fits:
                    return None
                self._unlink(segment)
                assembly.end(segment)
                assembly.hold_pieces(segment.span.first, pieces)
                actions = self._learn_promise(watermark_us)
                if assembly.recalled:
                    return [*actions, *self._return(assembly)]
                return [*actions, *self._renew(assembly), *self._advance(assembly)]

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
        if changed is None:
            return [act for each in list(self._assemblies.values()) for act in self._renew(each)]
        touched: dict[int, Assembly] = {}
        for assembly in self._assemblies.values():
            if any(product_meets(changed, part) for part in assembly.pattern.filters):
                touched[assembly.number] = assembly
        return [action for each in touched.values() for action in self._renew(each)]

    def _renew(self, assembly: Assembly) -> list[Action]:
        """Takes back what is to be split otherwise, and delegates what can be now."""
        if assembly.frozen or assembly.recalled:
            return []
        plan = self._plan(assembly)
        actions: list[Action] = []
        for segment in list(assembly.segments.values()):
            if segment.span not in plan:
                actions += self._end(assembly, segment)
        for span in plan:
            if assembly.is_free(span):
                actions += self._offer(assembly, span)
        return actions

    def _plan(self, assembly: Assembly) -> list[Span]:
        sources = self._outlook.sources
        known = {each: sources(each, assembly.requester) for each in set(assembly.pattern.filters)}
        spans = spans_of(known[part] for part in assembly.pattern.filters)
        return [span for span in spans if span.neighbour not in assembly.refused_by]

    def _offer(self, assembly: Assembly, span: Span) -> list[Action]:
        segment = Segment(str(next(self._numbers)), span)
        assembly.segments[segment.identity] = segment
        self._segments.setdefault(span.neighbour, {})[segment.identity] = assembly, segment
        message = SubscribePattern(segment.identity, assembly.part(span), assembly.hops + 1)
        return self._say(span.neighbour, message)

    def _hand_over(self, assembly: Assembly, segment: Segment) -> list[Action]:
        """Gives what was gathered to the delegate, which is subscribed by itself from now on."""
        segment.state = State.DELEGATED
        segment.watermark_us = assembly.watermark_us
        pieces = assembly.hand_over(segment)
        message = HandOver(segment.identity, assembly.watermark_us, pieces)
        places = range(segment.span.first, segment.span.end)
        return [
            *self._say(segment.span.neighbour, message),
            *self._unwant(assembly, places),
            *self._advance(assembly),
        ]

    def _end(self, assembly: Assembly, segment: Segment, *, is_known: bool = True) -> list[Action]:
        """Takes a segment back: what was not handed over is here still, else it is recalled.

        Not `is_known`: the delegate has refused the segment where it was only offered, and may not
        know it; else it is told.
        """
        if segment.state is State.RETURNING:
            return []
        span = segment.span
        if segment.state is State.OFFERED:
            self._unlink(segment)
            assembly.end(segment)
            message = UnsubscribePattern(segment.identity)
            return self._say(span.neighbour, message) if is_known else []
        segment.state, segment.waits_us = State.RETURNING, None
        wants = self._want(assembly, range(span.first, span.end))
        return [*wants, *self._say(span.neighbour, RecallPattern(segment.identity))]

    def _return(self, assembly: Assembly) -> list[Action]:
        """Gives all back to who recalled it, once all of it is here."""
        if assembly.segments:
            return []
        neighbour = assembly.requester
        assert isinstance(neighbour, Neighbour)
        watermark_us, pieces = assembly.watermark_us, assembly.all_pieces()
        message = ReturnPattern(assembly.identity, watermark_us, pieces)
        return [*self._say(neighbour, message), *self._remove(assembly)]

    def _unlink(self, segment: Segment) -> None:
        of_neighbour = self._segments[segment.span.neighbour]
        del of_neighbour[segment.identity]
        if not of_neighbour:
            del self._segments[segment.span.neighbour]

    def link_down(self, neighbour: Neighbour) -> list[Action]:
        """A link is gone: what its neighbour asked for, and what it held, are forgotten."""
        actions = self.forget(neighbour)
        for assembly, segment in list(self._segments.get(neighbour, {}).values()):
            self._budget.dropped[LOST] += segment.is_away
            if segment.state is State.DELEGATED:
                actions += self._want(assembly, range(segment.span.first, segment.span.end))
            self._unlink(segment)
            assembly.end(segment)
            if assembly.recalled:
                actions += self._return(assembly)
            else:
                actions += self._advance(assembly)
        for assembly in self._assemblies.values():
            assembly.refused_by.discard(neighbour)
        return actions

    # --- filters ------------------------------------------------------------------------------

    def _want(self, assembly: Assembly, places: Collection[int]) -> list[Action]:
        """Subscribes to the filters of places, those that are new."""
        actions: list[Action] = []
        for place in places:
            part = assembly.pattern.filters[place]
            wanted = self._wanted.get(part)
            if wanted is None:
                wanted = _Wanted(part, next(self._numbers), {})
                self._wanted[part] = self._by_number[wanted.number] = wanted
                actions.append(Want(wanted.number, part))
            wanted.places[assembly.number, place] = assembly
        return actions

    def _unwant(self, assembly: Assembly, places: Collection[int]) -> list[Action]:
        actions: list[Action] = []
        for place in places:
            part = assembly.pattern.filters[place]
            wanted = self._wanted.get(part)
            if wanted is None or wanted.places.pop((assembly.number, place), None) is None:
                continue
            if not wanted.places:
                del self._wanted[part], self._by_number[wanted.number]
                actions.append(Unwant(wanted.number))
        return actions

    def _say(self, to: Neighbour, message: PatternMessage) -> list[Action]:
        self._sent[type(message).__name__] += 1
        return [Say(to, message)]

    # --- what others may see ------------------------------------------------------------------

    def delegates(self) -> list[tuple[Neighbour, str]]:
        """The patterns that this server assembles for neighbours: of whom, and by which name."""
        return [
            (each.requester, each.identity)
            for each in self._assemblies.values()
            if isinstance(each.requester, Neighbour)
        ]

    def delegated(self, origin: Origin, identity: str) -> list[Span]:
        """Which places of a pattern are assembled by whom."""
        segments = self._by_identity[origin][identity].segments.values()
        return sorted(each.span for each in segments if each.state is State.DELEGATED)

    def is_settled(self) -> bool:
        """Whether no segment changes hands."""
        segments = [each for _, each in itertools.chain(*map(dict.values, self._segments.values()))]
        frozen = any(each.frozen or each.recalled for each in self._assemblies.values())
        return not frozen and all(each.state is State.DELEGATED for each in segments)

    def statistics(self) -> AssemblerStatistics:
        """A frozen view of what is held and was done. Cost: the number of patterns."""
        assemblies = self._assemblies.values()
        return AssemblerStatistics(
            patterns=len(assemblies),
            delegated=sum(map(len, self._segments.values())),
            filters=len(self._wanted),
            runs=self._budget.held,
            waiting=sum(map(len, assemblies)),
            learned_us=self.learned_us,
            reported=self._reported,
            matched=self._matched,
            forced=self._forced + sum(each.forced for each in assemblies),
            stale=self._stale,
            sent=MappingProxyType(dict(self._sent)),
            dropped=MappingProxyType({k: n for k, n in self._budget.dropped.items() if n}),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        assert sum(each.validate() for each in self._assemblies.values()) == self._budget.held
        linked = {id(each) for of in self._segments.values() for _, each in of.values()}
        held = {id(each) for a in self._assemblies.values() for each in a.segments.values()}
        assert linked == held, "a segment is unknown where its answers come"
        needed: dict[Filter, set[tuple[int, int]]] = {}
        for number, assembly in self._assemblies.items():
            assert self._by_identity[assembly.requester][assembly.identity] is assembly
            for place, part in enumerate(assembly.pattern.filters):
                segment = assembly.segment_at(place)
                if segment is None or segment.state is not State.DELEGATED:
                    needed.setdefault(part, set()).add((number, place))
        wanted = {part: set(each.places) for part, each in self._wanted.items()}
        assert wanted == needed, "a filter is wanted that is not needed, or the other way round"
