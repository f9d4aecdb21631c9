"""`Parameters`: the configuration of a group: the thesis' P, F, T, R, l, a, ε, τ and D.

The protocols, the simulation and the analysis use the same value, so their results are comparable.
Invalid values are refused here only.

Source: EPFL 2503 §6.1.2, §6.2.1, §6.4.1, §6.5.4.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from contrada.errors import InvalidValueError, LimitError

HIERARCHY_LEVELS_MAX: Final = 64
"""Levels of a hierarchy. Beyond it: LimitError."""

FANOUT_MAX: Final = 1_024
"""Participants that one participant gossips to in a round. Beyond it: LimitError."""


class Approximation(StrEnum):
    """The approximation of the rounds that infect an audience (see `rounds`)."""

    PITTEL = "pittel"
    """Pittel's asymptote, equations 6.4 to 6.9, as in the thesis. For large audiences."""

    BAILEY = "bailey"
    """The simple epidemic in continuous time, until a share of the audience is infected."""

    RECURSION = "recursion"
    """The mean of the Markov chain, round by round, until a share of the audience is infected."""


_WHOLE_NUMBERS: Final = ("period_us", "fanout", "redundancy", "levels", "branching")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The configuration of a group. Errors: InvalidValueError, and LimitError beyond a named
    limit.

    Attributes:
        period_us: P, microseconds between two rounds of a participant.
        fanout: F, contacts chosen in a round, before their interest is checked.
        rounds: T, rounds of an event at each level; None: as many as expected.
        redundancy: R, delegates of a subsystem.
        levels: l, levels of the hierarchy; with one, all know all.
        branching: a, subsystems of a subsystem, and participants of a lowest one.
        loss: ε, the share of lost messages.
        crashes: τ, the share of participants that crash in a run.
        audience: D, the least audience of a level with an interested contact; 0: none.
        approximation: the approximation of the expected rounds.
        constant: c, rounds added to Pittel's asymptote.
        target: the share of an audience for the other approximations.
        bottom_redundancy: whether the lowest level counts each participant R times when it
            expects rounds, as line 27 of figure 6.6 does and equation 6.17 does not.
        digest: audiences smaller than this also exchange digests; 0: none. None: 0 as in the
            thesis' figures, but `DIGEST_AUDIENCE` for real participants.
    """

    period_us: int = 100_000
    fanout: int = 2
    rounds: int | None = None
    redundancy: int = 3
    levels: int = 3
    branching: int = 22
    loss: float = 0.0
    crashes: float = 0.0
    audience: int = 0
    approximation: Approximation = Approximation.PITTEL
    constant: float = 0.0
    target: float = 0.999
    bottom_redundancy: bool = False
    digest: int | None = None

    def __post_init__(self) -> None:
        for letter, name in zip("PFRla", _WHOLE_NUMBERS, strict=True):
            _whole(letter, name, getattr(self, name), 1)
        _whole("D", "audience", self.audience, 0)
        if self.digest is not None:
            _whole("digest", "an audience", self.digest, 0)
        if self.rounds is not None:
            _whole("T", "rounds", self.rounds, 0)
        if self.levels > HIERARCHY_LEVELS_MAX:
            raise LimitError("HIERARCHY_LEVELS_MAX", HIERARCHY_LEVELS_MAX, self.levels)
        if self.fanout > FANOUT_MAX:
            raise LimitError("FANOUT_MAX", FANOUT_MAX, self.fanout)
        if self.redundancy > self.branching:
            reason = f"redundancy R is more than branching a = {self.branching}"
            raise InvalidValueError(self.redundancy, reason)
        for letter, share in (("loss ε", self.loss), ("crashes τ", self.crashes)):
            if not 0 <= share < 1:
                raise InvalidValueError(share, f"{letter} is a share, from 0 to below 1")
        if not isinstance(self.approximation, Approximation):
            raise InvalidValueError(self.approximation, f"expected one of {list(Approximation)}")
        if not 0 < self.target < 1:
            raise InvalidValueError(self.target, "target is a share between 0 and 1")
        if not math.isfinite(self.constant) or self.constant < 0:
            raise InvalidValueError(self.constant, "constant c is a number of rounds, 0 or more")

    @property
    def participants(self) -> int:
        """The participants of a regular hierarchy. Source: EPFL 2503 §6.5.2, equation 6.16."""
        return int(self.branching**self.levels)

    @property
    def success(self) -> float:
        """The share of messages that reach their receiver: (1 - ε)(1 - τ)."""
        return (1 - self.loss) * (1 - self.crashes)

    def members(self, level: int) -> int:
        """Returns m_i, the contacts of a level. Source: EPFL 2503 §6.5.2, equation 6.17."""
        if not 1 <= level <= self.levels:
            raise InvalidValueError(level, f"a level is between 1 and l = {self.levels}")
        return self.branching * (self.redundancy if level > 1 else 1)

    @property
    def view_size(self) -> int:
        """All entries of a view, m = R a (l - 1) + a. Source: EPFL 2503 §6.5.2, equation 6.18."""
        return sum(self.members(level) for level in range(1, self.levels + 1))


def check_interest(share: float) -> float:
    """Returns p₁, the share of interested participants. Raises InvalidValueError outside (0, 1]."""
    if not 0 < share <= 1:
        raise InvalidValueError(share, "p₁, the share of the interested, is in (0, 1]")
    return share


def check_correlation(share: float) -> float:
    """Returns the share, in [0, 1], that wants what its lowest subsystem wants."""
    if not 0 <= share <= 1:
        raise InvalidValueError(share, "correlation is a share, from 0 to 1")
    return share


def _whole(letter: str, name: str, value: object, least: int) -> None:
    """Raises InvalidValueError for no whole number, or one below the least."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidValueError(value, f"{letter} ({name}) is a whole number, {least} or more")
