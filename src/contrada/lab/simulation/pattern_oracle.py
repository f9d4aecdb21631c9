"""`judge_matches`: the oracle of patterns: required and permitted matches of a run.

docs/simulation.md has *may*, *must* and *stream*. The order of the notifications of a match is the
common one. While no link changes, and none is up at one end alone, each match of a stream is
required once no consequence of the announced time is in flight, and no other match of its
notifications is permitted.

A stream holds only notifications for which a matcher's input and matches are determined:

- those *sure* to arrive, and in time: the advertisement that they need had settled before, and
  remains until the last copy has arrived, none of them travels for longer than the slack, and they
  have no time to live. An unsure one ends a stream, and after it another begins;
- without `every` a match depends on the end of the one before. So the stream begins with the first
  notification that the pattern receives at all, or after a pause longer than `within`.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple, TypeAlias

from contrada.lab.simulation.oracle import Outcome, Violation, stays
from contrada.lab.simulation.run_records import (
    Cause,
    Change,
    InterestSpan,
    Matched,
    ObservedNetwork,
    PublishedRecord,
)
from contrada.lab.simulation.simulated_network import SLACK_US
from contrada.lab.simulation.sites import distances, graph_of
from contrada.model import Pattern
from contrada.model.domains.values import key_of
from contrada.patterns import Match
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.reorder_buffer import order_of
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router import Strategy

_MatchIdentity: TypeAlias = tuple[object, ...]
"""The identity of a match: its group, and the ids of its notifications."""

_DeliveredMatches: TypeAlias = dict[_MatchIdentity, Matched]
"""The delivered matches of a subscription."""

_Busy: TypeAlias = list[tuple[float, float]]
"""The spans of orders with a message in flight, in order."""


class _OrderSpan(NamedTuple):
    """From after one order to before another."""

    begin: float
    end: float


def judge_matches(network: ObservedNetwork, found: Outcome) -> None:
    """Compares the delivered matches with the required and the permitted ones, in an outcome."""
    history = network.history
    if not history.patterns:
        return
    found.matches += len(history.matched)
    given = _group_deliveries(network, found)
    calm = list(_calm(network))
    control = _busy([cause for cause in history.causes if cause.is_control])
    busy = _busy(history.causes)
    for held in history.patterns:
        filters = _pattern(held).filters
        relevant = [
            each
            for each in history.published
            if any(part.matches(each.notification) for part in filters)
        ]
        for (begin, end), lines in calm:
            begin = _quiet_from(control, max(begin, held.begun))
            span = _OrderSpan(begin, end if held.ended is None else min(end, held.ended))
            if span.begin < span.end:
                due_us = _due_us(history.time_advances, busy, span)
                for stream in _streams(network, held, span, lines, relevant):
                    _compare(found, held, span, stream, due_us, given[held])


def _pattern(held: InterestSpan) -> Pattern:
    assert isinstance(held.message, SubscribePattern)
    return held.message.pattern


def _identity_of(match: Match[str]) -> _MatchIdentity:
    return (*map(key_of, match.by), *(each.envelope.id for each in match.notifications))


def _describe(known: _MatchIdentity, held: InterestSpan) -> str:
    return f"{known} for {held.message.identity} of {held.client} at {held.broker}"


# --- may ------------------------------------------------------------------------------------------


def _group_deliveries(
    network: ObservedNetwork, found: Outcome
) -> dict[InterestSpan, _DeliveredMatches]:
    """Returns the delivered matches of each subscription; adds the forbidden ones to an outcome."""
    history = network.history
    by_identity: dict[tuple[str, int, str], list[InterestSpan]] = defaultdict(list)
    for held in history.patterns:
        by_identity[held.client, held.broker, held.message.identity].append(held)
    published = {each.notification.envelope.id: each for each in history.published}
    given: dict[InterestSpan, _DeliveredMatches] = {held: {} for held in history.patterns}
    for matched in history.matched:
        asked = by_identity[matched.client, matched.broker, matched.match.key]
        order, known = matched.order, _identity_of(matched.match)
        in_force = [each for each in asked if each.is_held(order, order)]
        if not in_force:
            found.violations.append(Violation("nobody asks for a match", f"{matched}"))
            continue
        held = in_force[-1]
        if known in given[held]:
            found.violations.append(Violation("match twice", _describe(known, held)))
        given[held][known] = matched
        if not _is_match(_pattern(held), matched.match, published):
            found.violations.append(Violation("no match of a pattern", _describe(known, held)))
    return given


def _is_match(pattern: Pattern, match: Match[str], published: dict[str, PublishedRecord]) -> bool:
    chain = match.notifications
    known = [published.get(each.envelope.id) for each in chain]
    span_us = chain[-1].envelope.at_us - chain[0].envelope.at_us
    return (
        len(chain) == len(pattern.filters)
        and all(it and it.notification == each for it, each in zip(known, chain, strict=True))
        and all(part.matches(each) for part, each in zip(pattern.filters, chain, strict=True))
        and all(order_of(one) < order_of(other) for one, other in pairwise(chain))
        and (pattern.within_us is None or span_us <= pattern.within_us)
        and len(match.by) == len(pattern.by)
        and all(
            key_of(value) in each.keys_of(name)
            for name, value in zip(pattern.by, match.by, strict=True)
            for each in chain
        )
    )


# --- must -----------------------------------------------------------------------------------------


def _calm(network: ObservedNetwork) -> Iterator[tuple[_OrderSpan, frozenset[int]]]:
    """Yields the spans without changing or half-up links, with the lines that were up."""
    begin = 0.0
    ends: dict[int, set[int]] = defaultdict(set)
    changes: list[Change | None] = [*network.history.changes, None]
    for change in changes:
        order = inf if change is None else change.order
        if begin < order and all(len(up) != 1 for up in ends.values()):
            yield _OrderSpan(begin, order), frozenset(line for line, up in ends.items() if up)
        if change is not None:
            up = ends[change.line]
            (up.add if change.is_up else up.discard)(change.end)
        begin = order


def _busy(causes: Sequence[Cause]) -> _Busy:
    """Returns the spans with messages of these causes in flight; the causes are in order."""
    busy: _Busy = []
    for cause in causes:
        end = inf if cause.ended is None else cause.ended
        if busy and cause.begun <= busy[-1][1]:
            busy[-1] = busy[-1][0], max(busy[-1][1], end)
        else:
            busy.append((cause.begun, end))
    return busy


def _quiet_from(busy: _Busy, order: float) -> float:
    """Returns the first order from another one on with nothing in flight."""
    place = bisect_right(busy, (order, inf)) - 1
    return order if place < 0 else max(order, busy[place][1])


def _due_us(time_advances: Sequence[tuple[int, int]], busy: _Busy, span: _OrderSpan) -> float:
    """Returns the time below which all matches of a span must have arrived."""
    due_us = -inf
    for order, time_us in time_advances:
        if span.begin < order and _quiet_from(busy, order) < span.end:
            due_us = time_us - SLACK_US
    return due_us


def _streams(
    network: ObservedNetwork,
    held: InterestSpan,
    span: _OrderSpan,
    lines: frozenset[int],
    relevant: Sequence[PublishedRecord],
) -> Iterator[list[PublishedRecord]]:
    """Yields the runs of relevant publications with determined matches."""
    pattern = _pattern(held)
    place = bisect_right(relevant, span.begin, key=lambda each: each.order)
    if place == len(relevant) or relevant[place].order > span.end:
        return
    reached = distances(graph_of((*network.ends[line], 1) for line in lines), held.broker)
    ends = (each.cause.ended for each in relevant[:place])
    is_clean = pattern.every or all(it is not None and it < held.begun for it in ends)
    # Publications of the same moment may precede it in order.
    unsure_us = last_us = _time_us(relevant[place - 1]) if place else -inf
    stream: list[PublishedRecord] = []
    for each in relevant[place:]:
        if each.order > span.end:
            break
        if each.broker not in reached:
            continue
        time_us = _time_us(each)
        if not _is_sure(network, each, span):
            yield [one for one in stream if _time_us(one) < time_us]
            stream, is_clean, unsure_us = [], pattern.every, time_us
        elif time_us > unsure_us:
            if pattern.within_us is not None:
                is_clean = is_clean or time_us - last_us > pattern.within_us
            if is_clean:
                stream.append(each)
        last_us = time_us
    yield stream


def _time_us(published: PublishedRecord) -> int:
    return published.notification.envelope.at_us


def _is_sure(network: ObservedNetwork, published: PublishedRecord, span: _OrderSpan) -> bool:
    """Whether a notification is sure to arrive, and in time, if links do not change."""
    ended = published.cause.ended
    if ended is None or ended >= span.end:
        return False
    if published.cause.arrived_us - _time_us(published) > SLACK_US:
        return False
    if published.notification.envelope.ttl_us is not None:
        return False
    return network.kind.strategy is not Strategy.ADVERTISEMENTS or any(
        stays(each, published.settled, ended) for each in published.offers
    )


def _compare(
    found: Outcome,
    held: InterestSpan,
    span: _OrderSpan,
    stream: Sequence[PublishedRecord],
    due_us: float,
    given: _DeliveredMatches,
) -> None:
    should = {_identity_of(match): match for match in _matches_in(_pattern(held), stream)}
    for known, match in should.items():
        if match.envelope.at_us < due_us:
            found.matches_must += 1
            if known not in given or given[known].order > span.end:
                found.violations.append(Violation("match lost", _describe(known, held)))
    ids = {each.notification.envelope.id for each in stream}
    for known, matched in given.items():
        held_in = ids.issuperset(each.envelope.id for each in matched.match.notifications)
        if held_in and matched.order < span.end and known not in should:
            found.violations.append(Violation("another match", _describe(known, held)))


def _matches_in(pattern: Pattern, stream: Sequence[PublishedRecord]) -> list[Match[str]]:
    """Returns the matches of one matcher over the whole stream in order."""
    if len(stream) < len(pattern.filters):
        return []
    matcher: PatternMatcher[str] = PatternMatcher()
    matcher.add("", pattern)
    found = []
    for each in sorted((each.notification for each in stream), key=order_of):
        found += matcher.push(each)
    return found + matcher.flush()
