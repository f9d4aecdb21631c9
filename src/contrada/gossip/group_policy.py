"""`GroupPolicy`: how a group does what the thesis leaves open, and how long its membership takes.

Source: EPFL 2503 §6.4.2, §6.5.1, §6.6.1, §6.6.2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from contrada.gossip.condensation import Accuracy
from contrada.gossip.gossip_messages import LINES_SENT_MAX
from contrada.gossip.parameters import Parameters
from contrada.gossip.views import DelegateChoice

REFRESH_ROUNDS: Final = 4
"""Rounds after which a line is stamped again although it says the same."""

PINGS_MAX: Final = 3
"""Probes, one in a round, of a neighbour that is silent, where the bottom pings. Beyond it: it is
given up."""

LOST_MAX: Final = 64
"""Participants that were given up, and are sent a digest now and then in case they are only parted.
Beyond it: the earliest are forgotten."""

_T = TypeVar("_T")


class Chance(Protocol):
    """Where chance comes from: `random.Random` is one."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to below the bound."""
        ...

    def sample(self, population: Sequence[_T], k: int) -> list[_T]:
        """So many different ones of several."""
        ...


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """How a group does what the thesis leaves open; all participants have the same.

    Attributes:
        accuracies: of the lines of levels 2, 3, …; the last one for all above.
        delegates: how delegates are chosen.
        skips_first: whether who publishes passes over the top where only its own subsystem is
            interested (§6.5.1).
        broadcasts: whether all count as interested until they are handed the event (§6.6.2).
        floods_bottom: whether at level 1 an event is sent to all who are interested, once, by who
            brings it there (§6.6.1: another medium at the lowest level).
        reliable_top: whether at level l who publishes sends to all interested delegates until each
            acknowledges, or `RESENDS_MAX` times (§6.6.1).
        pings_bottom: whether silent neighbours are probed before they are given up (§6.6.1).
        announces: whether above level 1 events are only announced, with the attributes that the
            filters there ask about, and fetched by who sees them first (§6.6.1).
        is_static: whether views stay as they were given: nobody joins, and who crashes stays known.
    """

    accuracies: tuple[Accuracy, ...] = (Accuracy.EXACT,)
    delegates: DelegateChoice = DelegateChoice.ADDRESS
    skips_first: bool = True
    broadcasts: bool = False
    floods_bottom: bool = False
    reliable_top: bool = False
    pings_bottom: bool = False
    announces: bool = False
    is_static: bool = False

    def accuracy(self, level: int) -> Accuracy:
        """How accurate the lines of a level's table are; those of level 1 are as they can be."""
        return Accuracy.EXACT if level == 1 else self.accuracies[: level - 1][-1]


def spread_rounds(parameters: Parameters) -> int:
    """Rounds in which news at one level almost surely reach all participants that share its table.

    In each round a participant exchanges digests with F others, each time of a level drawn from l,
    both ways; an exchange fails with the messages of it that are lost. News that one of m
    participants knows are known to all after about log₂ m + ln m exchanges of each, and the rest
    falls by the factor e with each further exchange: seven more, for one in a thousand. A view of
    more lines than a digest has takes as many times longer.
    """
    digests = max(1.0, parameters.branching * parameters.levels / LINES_SENT_MAX)
    exchanges = parameters.fanout / parameters.levels * parameters.success**2 / digests
    members = parameters.members(parameters.levels)
    return math.ceil((math.log2(1 + members) + math.log(1 + members) + 7) / (2 * exchanges))


def silence_rounds(parameters: Parameters, level: int) -> int:
    """Rounds without a stamp after which a line of a level's table is silent.

    What is stamped at level i comes down through all levels to 1.
    """
    return REFRESH_ROUNDS + spread_rounds(parameters) * (1 if level == 1 else level + 1)


def convergence_rounds(parameters: Parameters) -> int:
    """Rounds after which all views are right, all but surely, once nobody comes or goes.

    The last who crashed is silent at level 1; new delegates are chosen, level by level, and each
    level's news spread. Subsystems of which everybody is gone are silent at the top.
    """
    news = (parameters.levels + 1) * (REFRESH_ROUNDS + spread_rounds(parameters))
    return (
        max(
            silence_rounds(parameters, 1) + PINGS_MAX + news,
            silence_rounds(parameters, parameters.levels),
        )
        + 1
    )
