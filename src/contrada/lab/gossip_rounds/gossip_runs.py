"""`disseminate`: one event gossiped in a regular hierarchy, as in figure 6.6, in common rounds.

A subsystem of a level is a *group*: the delegates of its subsystems, at level 1 its participants.
All gossiping members of a group began together and expect the same rounds, since they have one
view. So a run consists of groups within groups, level by level, and all groups of a level are one
array. A protocol without a hierarchy is the same with one level: figure 6.2, and with all as
audience 6.1.

Participant 0 … n - 1 has its address in base a. The delegates of a subsystem are, as in figure 6.5,
the smallest addresses of its R first subsystems; of a lowest one, its R first participants. Crashed
participants are down from the beginning and stay in all views: no run is worse. The publisher does
not crash, and gossips at all levels.

`draws` are random numbers that depend only on their purpose. A draw is a hash of a key and a
counter, so arrays, compiled loops, processes and Spark draw the same numbers in any order. The hash
is that of SplitMix64, which generates this sequence from a seed.

Source: EPFL 2503 §6.2, §6.5.1, §6.5.3, §6.5.4, §6.6.1.
"""

import dataclasses
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from contrada.errors import LimitError
from contrada.gossip.parameters import Parameters, check_correlation, check_interest
from contrada.gossip.rounds import exchanges_digests, expected_rounds, tuned_audience
from contrada.matching.kernels.gossip_rounds import INFECTED, UP, WANTED, gossip

GOSSIPERS_MAX: Final = 20_000_000
"""Participants of a simulated group. Beyond it: the run is refused."""

_INTEREST, _CRASHES, _PUBLISHER, _LEVEL, _TOLD, _TASTE, _FOLLOWS = range(7)
"""What a run draws for."""

Bits = NDArray[np.bool_]
Counts = NDArray[np.int64]
State = NDArray[np.uint8]
"""Groups × members, each with the bits of `gossip_rounds`: interested, running, infected."""


class GossipProtocol(StrEnum):
    """The simulated protocol."""

    HPMCAST = "hpmcast"
    """Figure 6.6: level by level, to interested participants and delegates of interested ones."""

    PMCAST = "pmcast"
    """Figure 6.2: every participant knows all others, and sends to interested ones."""

    RFPBCAST = "rfpbcast"
    """Figure 6.1: every participant knows all others, sends to any, and filters received events."""


class GossipPlan(msgspec.Struct, frozen=True):
    """One run: a group, its share of interested participants, and the options of a protocol.

    `broadcast` sends to all (§6.6.2). `skip_first` skips the top level if only the publisher's own
    subsystem is interested (§6.5.1). `reliable_top` delivers the event reliably to the top level's
    whole audience, and `flood_bottom` makes each infected participant of the lowest level broadcast
    there once (§6.6.1). With a `correlation` that share of a lowest subsystem follows its common
    interest (see `contrada.lab.analysis.hierarchy.tastes`).
    """

    parameters: Parameters
    interest: float
    seed: int
    run: int = 0
    protocol: GossipProtocol = GossipProtocol.HPMCAST
    broadcast: bool = False
    skip_first: bool = False
    reliable_top: bool = False
    flood_bottom: bool = False
    correlation: float = 0.0

    def __post_init__(self) -> None:
        check_interest(self.interest)
        check_correlation(self.correlation)
        if self.parameters.participants > GOSSIPERS_MAX:
            raise LimitError("GOSSIPERS_MAX", GOSSIPERS_MAX, self.parameters.participants)

    @property
    def hierarchy(self) -> Parameters:
        """The parameters of the run: without a hierarchy all are one group."""
        if self.protocol is GossipProtocol.HPMCAST:
            return self.parameters
        count = self.parameters.participants
        return dataclasses.replace(self.parameters, levels=1, branching=count, redundancy=1)

    @property
    def to_all(self) -> bool:
        """Whether all count as interested until they receive."""
        return self.broadcast or self.protocol is GossipProtocol.RFPBCAST


class GossipLevel(msgspec.Struct, frozen=True):
    """The result of a level. An entity is a subsystem of a group, or at level 1 a participant.

    `wanted` counts the interested entities of all groups, `reached` those of them with a running
    participant that has the event when gossiping at this level ends. `rounds`: the most rounds of
    any gossiping group.
    """

    level: int
    wanted: int
    reached: int
    messages: int
    rounds: int


class GossipOutcome(msgspec.Struct, frozen=True):
    """The result of a run.

    `interested` and `reached` count interested, running participants; `bystanders` uninterested
    ones with the event. `rounds` is the end of the last group's gossip, `last` the round of the
    last infection.
    """

    plan: GossipPlan
    interested: int
    reached: int
    bystanders: int
    messages: int
    rounds: int
    last: int
    levels: list[GossipLevel]

    @property
    def reliability(self) -> float:
        """The share of the interested that was reached; 1 without any."""
        return self.reached / self.interested if self.interested else 1.0


def disseminate(plan: GossipPlan) -> GossipOutcome:
    """Runs a plan: a pure function.

    Cost: for 10,648 participants some milliseconds, for ten million some seconds and 1 GB.
    """
    return _DisseminationRun(plan).outcome()


class _DisseminationRun:
    """The participants of a run by number: interested, running, infected."""

    def __init__(self, plan: GossipPlan) -> None:
        self._plan = plan
        self._group = group = plan.hierarchy
        self._count = count = group.participants
        key = self._key(_PUBLISHER)
        self._publisher = mixed(key) % count
        self._interested = self._who_is_interested()
        self._up = np.ones(count, np.bool_)
        if group.crashes:
            self._up = ~chosen(self._key(_CRASHES), count, group.crashes)
            self._up[self._publisher] = True
        self._infected = np.zeros(count, np.bool_)
        self._infected[self._publisher] = True
        self._started = np.zeros(1, np.int64)
        self._last = self._rounds = 0

    def _key(self, *what: int) -> int:
        return key_of(self._plan.seed, self._plan.run, *what)

    def _who_is_interested(self) -> Bits:
        plan, count = self._plan, self._count
        interested = chosen(self._key(_INTEREST), count, plan.interest)
        if plan.correlation:
            size = plan.parameters.branching
            taste = chosen(self._key(_TASTE), count // size, plan.interest)
            follows = chosen(self._key(_FOLLOWS), count, plan.correlation)
            interested = np.where(follows, np.repeat(taste, size), interested)
        return interested

    def outcome(self) -> GossipOutcome:
        levels = [self._level(level) for level in range(self._group.levels, 0, -1)]
        live = self._interested & self._up
        return GossipOutcome(
            self._plan,
            interested=int(live.sum()),
            reached=int((live & self._infected).sum()),
            bystanders=int((self._infected & ~self._interested).sum()),
            messages=sum(each.messages for each in levels),
            rounds=self._rounds,
            last=self._last,
            levels=levels,
        )

    def _level(self, level: int) -> GossipLevel:
        group, width = self._group, self._group.branching ** (level - 1)
        delegates = group.redundancy if level > 1 else 1
        wants: Bits = np.any(self._interested.reshape(-1, width), axis=1)
        infected = self._of_level(self._infected, width, delegates)
        state = self._state(level, wants, infected, self._of_level(self._up, width, delegates))
        rounds, last, sent = self._spread(level, state, wants)
        infected[...] = (state & INFECTED).astype(np.bool_).reshape(infected.shape)
        took: Bits = np.any(state & INFECTED, axis=1)
        took[self._publisher // (width * group.branching)] = True
        if last.any():
            self._last = max(self._last, int((self._started + last)[last > 0].max()))
        self._started = self._started + rounds
        self._rounds = int(self._started[took].max())
        self._started = np.repeat(self._started, group.branching)
        reached = infected.any(axis=2).reshape(-1)
        return GossipLevel(
            level,
            wanted=int(wants.sum()),
            reached=int((wants & reached).sum()),
            messages=sent,
            rounds=int(rounds[took].max()),
        )

    def _of_level(self, each: Bits, width: int, delegates: int) -> Bits:
        """Returns the members of a level's groups: a view of groups × subsystems × delegates."""
        step = max(1, width // self._group.branching)
        lines = each.reshape(-1, self._group.branching, width)
        members: Bits = lines[:, :, : (delegates - 1) * step + 1 : step]
        return members

    def _state(self, level: int, wants: Bits, infected: Bits, up: Bits) -> State:
        group, delegates = self._group, infected.shape[2]
        seen = np.repeat(wants, delegates).reshape(-1, group.members(level))
        if self._plan.to_all:
            seen[...] = True
        state = tuned_audience(seen, group.audience) * np.uint8(WANTED)
        state |= up.reshape(state.shape) * np.uint8(UP)
        state |= infected.reshape(state.shape) * np.uint8(INFECTED)
        return state

    def _spread(self, level: int, state: State, wants: Bits) -> tuple[Counts, Counts, int]:
        """Infects the groups of a level. Returns the rounds of each, its last one, and messages."""
        plan, group = self._plan, self._group
        hits = (state & WANTED).astype(np.bool_).sum(axis=1)
        last = np.zeros(len(state), np.int64)
        found, place = np.unique(hits, return_inverse=True)
        size = state.shape[1]
        expected = [expected_rounds(group, level, size, each) for each in found.tolist()]
        rounds = np.array(expected, np.int64)[place]
        top, bottom = level == group.levels > 1, level == 1
        if top and plan.skip_first and wants.sum() == wants[self._place(level - 1)]:
            return np.zeros_like(rounds), last, 0
        if top and plan.reliable_top:
            rounds = np.ones_like(rounds)
            return rounds, last, self._tell(level, state, hits, rounds, last, 1.0)
        if bottom and plan.flood_bottom:
            rounds = np.minimum(hits, 1)
            return rounds, last, self._tell(level, state, hits, rounds, last, 1 - group.loss)
        sent = gossip(
            *(state.reshape(-1), size, rounds, last, self._key(_LEVEL, level)),
            *(self._outsider(level), threshold(group.loss)),
            *(np.empty(size + 1, np.int64), np.empty(group.fanout, np.int64)),
        )
        sizes = range((group.digest or 0) + 1)
        small = np.array([exchanges_digests(group, each) for each in sizes])
        extra = small[np.minimum(hits, group.digest or 0)]
        if extra.any():
            # A digest is sent, requested, and answered.
            rounds = rounds + extra
            got = (1 - group.loss) ** 3
            sent += self._tell(level, state, hits * extra, rounds * extra, last, got)
        return rounds, last, sent

    def _place(self, level: int) -> int:
        return int(self._publisher // self._group.branching**level)

    def _outsider(self, level: int) -> int:
        """The publisher's group of a level, if the publisher is no delegate in it; else -1."""
        width = self._group.branching ** (level - 1)
        delegates = self._group.redundancy if level > 1 else 1
        turn, rest = divmod(self._publisher % width, max(1, width // self._group.branching))
        return -1 if rest == 0 and turn < delegates else self._place(level)

    def _tell(
        self, level: int, state: State, hits: Counts, rounds: Counts, last: Counts, share: float
    ) -> int:
        """Sends the event once from each infected member to the audience in groups with hits.

        Returns the messages. A message arrives with the chance `share`. `last` is set to the last
        of `rounds` in groups with new infections.
        """
        senders = (state & INFECTED).astype(np.bool_).sum(axis=1)
        outsider = self._outsider(level)
        if outsider >= 0:
            senders[outsider] += 1
        senders[hits == 0] = 0
        chances = 1 - np.power(1 - share, senders)
        words = draws(self._key(_TOLD, level), np.arange(state.size, dtype=np.uint64))
        comes = (words >> np.uint64(11)) * 2.0**-53 < np.repeat(chances, state.shape[1])
        fresh = comes.reshape(state.shape) & ((state & (WANTED | UP | INFECTED)) == (WANTED | UP))
        state[fresh] |= np.uint8(INFECTED)
        reached = fresh.any(axis=1)
        last[reached] = rounds[reached]
        return int((senders * hits).sum())


# --- random numbers -------------------------------------------------------------------------------

GAMMA: Final = 0x9E3779B97F4A7C15
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB
WORD: Final = 2**64

_CHUNK: Final = 2**15
"""Draws made at once, so that they stay near the processor."""

Words = NDArray[np.uint64]


def key_of(*numbers: int) -> int:
    """Returns the key of these numbers; other numbers, or another order, give another key."""
    key = 0
    for number in numbers:
        key = mixed((key ^ number % WORD) + GAMMA)
    return key


def mixed(word: int) -> int:
    """The hash of one word, as `draws` has it of many."""
    word %= WORD
    word = (word ^ word >> 30) * MIX_1 % WORD
    word = (word ^ word >> 27) * MIX_2 % WORD
    return word ^ word >> 31


def draws(key: int, counters: Words) -> Words:
    """A word for each counter."""
    words = counters * np.uint64(GAMMA) + np.uint64((key + GAMMA) % WORD)
    words ^= words >> np.uint64(30)
    words *= np.uint64(MIX_1)
    words ^= words >> np.uint64(27)
    words *= np.uint64(MIX_2)
    words ^= words >> np.uint64(31)
    return words


def threshold(share: float) -> int:
    """Returns the bound of words that are below it with this chance, from 0 to below 1."""
    return int(share * WORD)


def chosen(key: int, count: int, share: float) -> NDArray[np.bool_]:
    """Returns a mask of random members, each with the same chance, independently."""
    if share >= 1:
        return np.ones(count, np.bool_)
    result = np.empty(count, np.bool_)
    bound = np.uint64(threshold(share))
    for start in range(0, count, _CHUNK):
        stop = min(count, start + _CHUNK)
        result[start:stop] = draws(key, np.arange(start, stop, dtype=np.uint64)) < bound
    return result
