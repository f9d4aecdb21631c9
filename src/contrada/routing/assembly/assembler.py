"""`Assembler`: all patterns of one server, and its messages about them to neighbours.

A pure state machine beside the router, which calls

- `subscribe`, `unsubscribe`, `forget`, `receive` for requests of clients and neighbours;
- `push` for each notification, with the numbers of the matching filters of `SubscribeSegment`, and
  `learn` for larger timestamps from elsewhere;
- `replan`, `link_down` after changes of advertisements or links;

and it asks the `SourceMap` for the neighbours that may send notifications for a part. Its results
are actions for the router, in order. `HeldPatterns` handles the time; this class handles requesters
and delegations (`DelegationPhase`). Invariant: each delegated segment has one delegate.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

from collections.abc import Iterable
from typing import Final

from contrada.errors import (
    InvalidFilterError,
    LimitError,
    UnknownOperatorError,
    UnsatisfiableFilterError,
)
from contrada.model import Pattern, Product
from contrada.model.algebra.product import product_meets
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns.pattern_assembly import Piece
from contrada.patterns.pattern_engine import LATE, check_pattern
from contrada.routing import delegation
from contrada.routing.assembly.held_patterns import HeldPatterns, WholePattern
from contrada.routing.assembly.split_pattern import (
    Action,
    Segment,
    Span,
    SplitPattern,
    SubscribeSegment,
    UnsubscribeSegment,
    spans_of,
)
from contrada.routing.delegation import AT_ASKER, AT_DELEGATE, DelegationPhase
from contrada.routing.router_messages import Client, Neighbour, Origin, Reason, RefusedError, Send

DELEGATIONS_MAX: Final = 255
"""Delegations of a pattern or its part in a row. Beyond it: it is assembled upstream."""

LOST: Final = "delegates lost"
"""The reason of lost pieces: the link to the delegate is down. Counts segments."""


class Assembler(HeldPatterns):
    """The patterns of one server, with their requesters and delegated segments."""

    # --- requests -----------------------------------------------------------------------------

    def subscribe(
        self, origin: Origin, identity: str, pattern: Pattern, hops: int = 0
    ) -> list[Action]:
        """Adds a pattern of a client or a neighbour, under a new identity.

        A neighbour's pattern is collected from now on, and assembled once the neighbour has handed
        over its pieces. Raises LimitError (patterns_max), UnknownOperatorError, InvalidFilterError
        for an empty pattern; then nothing has changed.
        """
        assert not self.knows(origin, identity), f"{origin} {identity} is known already"
        if pattern.is_empty:
            raise InvalidFilterError("->", (pattern,), "no sequence can match")
        check_pattern(pattern)
        patterns_max = self._budget.limits.patterns_max
        if len(self) >= patterns_max:
            raise LimitError("patterns_max", patterns_max)
        identities = self.by_origin.setdefault(origin, {})
        if isinstance(origin, Client) and not self._source_map.is_known:
            matched = self._advance_engine()  # An empty engine has an old clock.
            engine_number, new = self._engine.add(pattern)
            whole = WholePattern(engine_number, origin, identity, pattern)
            identities[identity] = self._whole[engine_number] = whole
            return [*matched, *(SubscribeSegment(each.number, each.filter) for each in new)]
        number = next(self._numbers)
        split = SplitPattern(number, origin, identity, pattern, self._budget, hops=hops)
        identities[identity] = self._split[number] = split
        actions = self._subscribe_segments(split)
        if isinstance(origin, Neighbour):
            return [*actions, Send(origin, delegation.AcceptPattern(identity))]
        return [*actions, *self._replan(split), *self._advance(split)]

    def unsubscribe(self, origin: Origin, identity: str) -> list[Action]:
        """Withdraws a pattern of a client or a neighbour."""
        return self._remove(self.by_origin[origin][identity])

    def forget(self, origin: Origin) -> list[Action]:
        """Withdraws all patterns of an origin."""
        known = list(self.by_origin.get(origin, {}).values())
        return [action for each in known for action in self._remove(each)]

    def _remove(self, known: SplitPattern | WholePattern) -> list[Action]:
        identities = self.by_origin[known.requester]
        del identities[known.identity]
        if not identities:
            del self.by_origin[known.requester]
            self._charged.pop(known.requester, None)
        if isinstance(known, WholePattern):
            del self._whole[known.number]
            return [UnsubscribeSegment(number) for number in self._engine.remove(known.number)]
        actions = self._segments.forget(known)
        actions += self._unsubscribe_segments(known, list(known.subscribed))
        self._forced += known.waiting.forced
        known.clear()
        del self._split[known.number]
        return actions

    # --- messages -----------------------------------------------------------------------------

    def receive(self, origin: Origin, message: delegation.PatternMessage) -> list[Action]:
        """Handles a message about a pattern that the sender or this server requested.

        Raises RefusedError if the pattern is unknown, exceeds a limit, or does not fit its phase:
        nothing has changed then. Answers for withdrawn patterns are counted, and change nothing.
        """
        if isinstance(message, delegation.UnsubscribePattern) and self.knows(
            origin, message.identity
        ):
            return self.unsubscribe(origin, message.identity)
        if isinstance(origin, Client):
            if isinstance(message, delegation.SubscribePattern):
                return self._subscribe_client(origin, message)
            is_gone = isinstance(message, delegation.UnsubscribePattern)
            raise RefusedError(Reason.UNKNOWN_SUBSCRIPTION if is_gone else Reason.WRONG_PATTERN)
        if isinstance(message, delegation.SubscribePattern):
            return self._accept_delegation(origin, message)
        if isinstance(message, delegation.DelegateMessage):
            known = self._segments.get(origin, message.identity)
            if known is None:
                self._stale += 1
                return []
            phase = AT_ASKER.get((known[1].phase, type(message)))
            if phase is not None:
                return self._handle_answer(*known, phase, message)
            raise RefusedError(Reason.WRONG_PATTERN)
        split = self._split_of(origin, message.identity)
        phase = None if split is None else AT_DELEGATE.get((split.phase, type(message)))
        if split is None or phase is None:
            raise RefusedError(Reason.WRONG_PATTERN)
        return self._handle_demand(split, phase, message)

    def _subscribe_client(
        self, client: Client, message: delegation.SubscribePattern
    ) -> list[Action]:
        if message.pattern.is_empty:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(message.pattern))
        known = self.pattern(client, message.identity)
        if known == message.pattern:
            return []
        if known is not None:
            raise RefusedError(Reason.IDENTITY_IN_USE)
        try:
            return self.subscribe(client, message.identity, message.pattern)
        except LimitError as error:
            raise RefusedError(Reason.FULL, error) from None
        except UnknownOperatorError as error:
            raise RefusedError(Reason.UNKNOWN_OPERATOR, error) from None

    def _accept_delegation(
        self, neighbour: Neighbour, message: delegation.SubscribePattern
    ) -> list[Action]:
        """Adds a neighbour's pattern, or hands it back at once."""
        identity, pattern = message.identity, message.pattern
        if self.knows(neighbour, identity) or pattern.is_empty:
            raise RefusedError(Reason.WRONG_PATTERN)
        if message.hops <= DELEGATIONS_MAX:
            try:
                return self.subscribe(neighbour, identity, pattern, message.hops)
            except (LimitError, UnknownOperatorError):
                pass  # It is handed back, and assembled by the asker.
        return [Send(neighbour, delegation.HandBack(identity))]

    def _handle_demand(
        self, split: SplitPattern, phase: DelegationPhase, message: delegation.Demand
    ) -> list[Action]:
        match message:
            case delegation.HandOver(_, watermark_us, pieces):
                _check_places(pieces, range(len(split.pattern.filters)))
                split.begin(watermark_us, pieces)
                split.enter(phase)
                actions = self._learn_watermark(watermark_us)
                return [*actions, *self._replan(split), *self._advance(split)]
            case delegation.AskWatermark(_, time_us):
                split.asked_us = max(split.asked_us, time_us - self._slack_us)
                return [*self.learn(time_us), *self._advance(split)]
            case delegation.RecallPattern():
                split.enter(phase)
                actions = []
                for segment in list(split.segments.values()):
                    actions += self._recall(split, segment)
                return [*actions, *self._return_pattern(split)]
        raise RefusedError(Reason.WRONG_PATTERN)

    def _handle_answer(
        self,
        split: SplitPattern,
        segment: Segment,
        phase: DelegationPhase,
        message: delegation.DelegateMessage,
    ) -> list[Action]:
        places = range(len(segment.span.places()))
        match message:
            case delegation.AcceptPattern():
                segment.phase = phase
                # Links keep order: all earlier notifications of the delegate have arrived.
                actions = self._segments.hand_over(split, segment)
                actions += self._unsubscribe_segments(split, segment.span.places())
                return [*actions, *self._advance(split)]
            case delegation.ReportMatches(_, matches, watermark_us, waits_us):
                if any(len(match.notifications) != len(places) for match in matches):
                    raise RefusedError(Reason.WRONG_PATTERN)
                self._budget.dropped[LATE] += split.hold_matches(segment, matches)
                segment.watermark_us = max(segment.watermark_us, watermark_us)
                segment.waits_us = waits_us
                return [*self._learn_watermark(watermark_us), *self._advance(split)]
            case delegation.HandBack():
                split.refused_by.add(segment.span.neighbour)  # until the link is down: no ping-pong
                if phase is not DelegationPhase.OVER:
                    return self._recall(split, segment)
                self._segments.end(split, segment)  # The delegate does not know of it.
                return []
            case delegation.ReturnPattern(_, watermark_us, pieces):
                _check_places(pieces, places)
                self._segments.end(split, segment)
                split.hold_pieces(segment.span.first, pieces)
                actions = self._learn_watermark(watermark_us)
                if split.phase is DelegationPhase.RETURNING:
                    return [*actions, *self._return_pattern(split)]
                return [*actions, *self._replan(split), *self._advance(split)]

    def _learn_watermark(self, watermark_us: int) -> list[Action]:
        """Learns the timestamp behind a neighbour's watermark."""
        if watermark_us <= TIME_MIN_US:
            return []
        return self.learn(watermark_us + self._slack_us)

    # --- splitting ----------------------------------------------------------------------------

    def replan(self, changed: Product | None = None) -> list[Action]:
        """Splits patterns anew: those with a part that meets `changed`, or all."""
        touched = [
            each
            for each in self._split.values()
            if changed is None or any(product_meets(changed, part) for part in each.pattern.filters)
        ]
        return [action for each in touched for action in self._replan(each)]

    def _replan(self, split: SplitPattern) -> list[Action]:
        if split.gathers:
            return []
        plan = self._spans(split)
        actions: list[Action] = []
        for segment in list(split.segments.values()):
            if segment.span not in plan:
                actions += self._recall(split, segment)
        for span in plan:
            if split.is_free(span):
                actions += self._segments.offer(split, span)
        return actions

    def _spans(self, split: SplitPattern) -> list[Span]:
        sources, filters = self._source_map.sources, split.pattern.filters
        known = {part: sources(part, split.requester) for part in set(filters)}
        spans = spans_of(known[part] for part in filters)
        return [span for span in spans if span.neighbour not in split.refused_by]

    def _recall(self, split: SplitPattern, segment: Segment) -> list[Action]:
        """Ends a segment: withdraws the offer, or recalls the pieces."""
        if segment.phase is DelegationPhase.RETURNING:
            return []
        if segment.phase is DelegationPhase.OFFERED:
            return self._segments.withdraw(split, segment)
        segment.phase = DelegationPhase.RETURNING
        # Subscribed first: the delegate collects until its notifications arrive singly.
        return [*self._subscribe_segments(split), *self._segments.recall(segment)]

    def _return_pattern(self, split: SplitPattern) -> list[Action]:
        """Returns a recalled pattern to its requester, once it has no segments."""
        if split.segments:
            return []
        neighbour = split.requester
        assert isinstance(neighbour, Neighbour)
        watermark_us, pieces = split.watermark_us, split.take_out(0, len(split.pattern.filters))
        message = delegation.ReturnPattern(split.identity, watermark_us, pieces)
        return [Send(neighbour, message), *self._remove(split)]

    def link_down(self, neighbour: Neighbour) -> list[Action]:
        """Drops the patterns of a lost neighbour, and the pieces that it had collected."""
        actions = self.forget(neighbour)
        for split, segment in self._segments.at(neighbour):
            self._budget.dropped[LOST] += segment.is_away
            self._segments.end(split, segment)
            actions += self._subscribe_segments(split)
            returns = split.phase is DelegationPhase.RETURNING
            actions += self._return_pattern(split) if returns else self._advance(split)
        for split in self._split.values():
            split.refused_by.discard(neighbour)
        return actions


def _check_places(pieces: Iterable[Piece], places: range) -> None:
    if any(each.place not in places for each in pieces):
        raise RefusedError(Reason.WRONG_PATTERN)
