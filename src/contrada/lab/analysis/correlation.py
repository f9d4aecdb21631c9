"""Aggregation up the hierarchy: how surely events of several publishers are correlated.

A hierarchy that carries one event down can carry what all have seen up, as the Grid Box does: the
participants of a lowest subsystem gossip all that they know of a pattern, its R delegates take it
to the level above, and so on to the top. Each level gossips as many rounds as are expected for a
broadcast. What is known is a set of events, and sets are united, so that it does no harm to hear
something twice. A pattern of several events is noticed by who has heard of all of them.

The thesis names this and calculates nothing; the chains are its own (6.1 to 6.3).
Source: EPFL 2503 §2.4.4, §6.1.3, §6.3 (footnote 8).
"""

import math

import numpy as np
from numpy.typing import NDArray

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import expected_rounds
from contrada.lab.analysis.markov_chain import Spread, first_transitions, reach, spread

Floats = NDArray[np.float64]


def meeting_levels(parameters: Parameters, events: int) -> Floats:
    """The chances that the smallest subsystem with all publishers is of level 1, 2, … l.

    Each of the events of a pattern is published by anybody, by itself.
    """
    if events < 1:
        raise InvalidValueError(events, "a pattern has one event or more")
    above = parameters.levels - np.arange(1, parameters.levels + 1.0)
    within = float(parameters.branching) ** (-(events - 1) * above)
    return np.asarray(np.diff(within, prepend=0.0))


def gathered(parameters: Parameters) -> Floats:
    """The chances that a member of a group of level 1, 2, … l hears of an event in its subsystem.

    The delegates that go up count as any R of their group. Crashes are those of 6.1: messages to
    crashed members are lost, and these count among those who could have heard. Cost: a chain for
    each level and number of delegates that know the event.
    """
    holders, chances = np.array([0.0, 1.0]), []
    for level in range(1, parameters.levels + 1):
        spreads = [
            (weight, _spread(parameters, level, count))
            for count, weight in enumerate(holders.tolist())
        ]
        members = parameters.members(level)
        chances.append(sum(weight * each.mean for weight, each in spreads) / members)
        holders = np.zeros(parameters.redundancy + 1)
        for weight, each in spreads:
            holders += weight * _among(each, parameters.redundancy)
    return np.array(chances)


def noticed(parameters: Parameters, events: int) -> float:
    """The chance that a member notices a pattern of so many events, where publishers first meet.

    Calculated as if a member heard of each event independently. In fact events travel together, so
    the chance is higher.
    """
    return float(meeting_levels(parameters, events) @ gathered(parameters) ** events)


def _spread(parameters: Parameters, level: int, holders: int) -> Spread:
    """How many of a group know an event in the end, of which so many knew at first."""
    size, fanout, loss = parameters.members(level), parameters.fanout, parameters.loss
    rounds = expected_rounds(parameters, level, size, size)
    p, first = reach(size, fanout, loss=loss, crashes=parameters.crashes), None
    if not parameters.crashes:
        first = first_transitions(size, size, fanout, loss=loss)
    return spread(size, p, rounds, infected=holders, first=first)


def _among(known: Spread, delegates: int) -> Floats:
    """The chances that 0, 1, … of some delegates are among the infected."""
    result = np.zeros(delegates + 1)
    ways = math.comb(known.n, delegates)
    for infected, chance in zip(known.infected.tolist(), known.chances.tolist(), strict=True):
        hits = round(infected)
        for count in range(min(hits, delegates) + 1):
            these = math.comb(hits, count) * math.comb(known.n - hits, delegates - count)
            result[count] += chance * (these / ways)
    return result
