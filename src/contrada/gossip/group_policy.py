"""`GroupPolicy`: the choices that the thesis leaves open, and the durations of membership.

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
"""Rounds after which an unchanged line is stamped again."""

PINGS_MAX: Final = 3
"""Probes of a silent neighbour, one in a round, with `pings_bottom`. Beyond it: it is lost."""

_T = TypeVar("_T")


class Chance(Protocol):
    """A source of randomness, such as `random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """Returns a number from 0 to below the bound."""
        ...

    def sample(self, population: Sequence[_T], k: int) -> list[_T]:
        """Returns distinct members of a population."""
        ...


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """The choices that the thesis leaves open; they are the same for all participants.

    Attributes:
        accuracies: of the lines of levels 2, 3, …; the last one for all above.
        delegates: the choice of delegates.
        skips_first: whether the publisher skips the top where only its own subsystem is interested
            (§6.5.1).
        broadcasts: whether all contacts count as interested until delivery (§6.6.2).
        floods_bottom: whether at level 1 the first receiver sends an event once to all interested
            neighbours (§6.6.1: another medium at the lowest level).
        reliable_top: whether at level l the publisher sends to all interested delegates until each
            acknowledges, or `resends_max` times (§6.6.1).
        pings_bottom: whether silent neighbours are probed before they are lost (§6.6.1).
        announces: whether above level 1 events are only announced, with the attributes in the
            filters there, and fetched by new receivers (§6.6.1).
        is_static: whether views are fixed: nobody joins, and crashed participants stay known.
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
        """Returns the accuracy of the lines of a level's table; level 1 is exact."""
        return Accuracy.EXACT if level == 1 else self.accuracies[: level - 1][-1]


def spread_rounds(parameters: Parameters) -> int:
    """Returns the rounds in which news of one level almost surely reach all who share its table.

    In each round a participant exchanges digests with F others, each of a level drawn from l, both
    ways; an exchange fails if one of its messages is lost. News of one of m participants reach all
    after about log₂ m + ln m exchanges of each, and the rest falls by the factor e with each
    further exchange: seven more, for one in a thousand. A view of more lines than a digest takes
    proportionally longer.
    """
    digests = max(1.0, parameters.branching * parameters.levels / LINES_SENT_MAX)
    exchanges = parameters.fanout / parameters.levels * parameters.success**2 / digests
    members = parameters.members(parameters.levels)
    return math.ceil((math.log2(1 + members) + math.log(1 + members) + 7) / (2 * exchanges))


def silence_rounds(parameters: Parameters, level: int) -> int:
    """Returns the rounds until a line is silent; a stamp of level i descends through all to 1."""
    return REFRESH_ROUNDS + spread_rounds(parameters) * (1 if level == 1 else level + 1)


def convergence_rounds(parameters: Parameters) -> int:
    """Returns the rounds until all views are almost surely right, without further changes.

    The last crashed participant is silent at level 1; new delegates are chosen, level by level, and
    the news of each level spread. Empty subsystems are silent at the top.
    """
    news = (parameters.levels + 1) * (REFRESH_ROUNDS + spread_rounds(parameters))
    last, top = silence_rounds(parameters, 1), silence_rounds(parameters, parameters.levels)
    return max(last + PINGS_MAX + news, top) + 1
