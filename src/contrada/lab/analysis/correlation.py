"""Correlation of events of several publishers by gossip up the hierarchy.

A hierarchy that carries one event down can carry the union of all events up, as the Grid Box does:
the participants of a lowest subsystem gossip all events that they know of a pattern, its R
delegates take them to the level above, and so on to the top. Each level gossips the rounds expected
for a broadcast. Known events form a set, and sets are united, so duplicates are harmless. A
participant notices a pattern of several events once it knows all of them.

The thesis names this and calculates nothing; the chains are its own (6.1 to 6.3). Source: EPFL 2503
§2.4.4, §6.1.3, §6.3 (footnote 8).
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
    """Returns the chances that the smallest subsystem with all publishers is of level 1, 2, … l.

    Each of the events of a pattern is published by a random participant, independently.
    """
    if events < 1:
        raise InvalidValueError(events, "a pattern has one event or more")
    above = parameters.levels - np.arange(1, parameters.levels + 1.0)
    within = float(parameters.branching) ** (-(events - 1) * above)
    return np.asarray(np.diff(within, prepend=0.0))


def gathered(parameters: Parameters) -> Floats:
    """Returns the chances that a member of a group of level 1, 2, … l learns an event in its
    subsystem.

    The delegates of the next level count as any R of their group. Crashes are those of 6.1:
    messages to crashed members are lost, and these members remain in the total. Cost: a chain for
    each level and number of delegates that know the event.
    """
    holders, chances = np.array([0.0, 1.0]), []
    for level in range(1, parameters.levels + 1):
        pairs = enumerate(holders.tolist())
        spreads = [(weight, _spread(parameters, level, count)) for count, weight in pairs]
        members = parameters.members(level)
        chances.append(sum(weight * each.mean for weight, each in spreads) / members)
        holders = np.zeros(parameters.redundancy + 1)
        for weight, each in spreads:
            holders += weight * _among(each, parameters.redundancy)
    return np.array(chances)


def noticed(parameters: Parameters, events: int) -> float:
    """Returns the chance that a member notices a pattern of so many events, where publishers first
    meet.

    The events count as independent. In fact events travel together, so the chance is higher.
    """
    return float(meeting_levels(parameters, events) @ gathered(parameters) ** events)


def _spread(parameters: Parameters, level: int, holders: int) -> Spread:
    """Returns the final number of members that know an event, from an initial number."""
    size, fanout, loss = parameters.members(level), parameters.fanout, parameters.loss
    rounds = expected_rounds(parameters, level, size, size)
    p, first = reach(size, fanout, loss=loss, crashes=parameters.crashes), None
    if not parameters.crashes:
        first = first_transitions(size, size, fanout, loss=loss)
    return spread(size, p, rounds, infected=holders, first=first)


def _among(known: Spread, delegates: int) -> Floats:
    """Returns the chances that 0, 1, … of some delegates are among the infected."""
    result = np.zeros(delegates + 1)
    ways = math.comb(known.n, delegates)
    for infected, chance in zip(known.infected.tolist(), known.chances.tolist(), strict=True):
        hits = round(infected)
        for count in range(min(hits, delegates) + 1):
            these = math.comb(hits, count) * math.comb(known.n - hits, delegates - count)
            result[count] += chance * (these / ways)
    return result
