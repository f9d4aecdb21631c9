"""The kernel of rounds of gossip: its infections, compiled and interpreted alike."""

import numpy as np
import pytest
from numpy.typing import NDArray

from contrada.lab.gossip_rounds.gossip_runs import chosen, key_of, threshold
from contrada.matching.kernels.gossip_rounds import INFECTED, UP, WANTED, choose, gossip
from tests.matching.engines import module, needs_native


def groups_of(groups: int, members: int, infected: int) -> NDArray[np.uint8]:
    """Groups in which most are interested, most are up, and the first ones are infected."""
    state = np.zeros((groups, members), np.uint8)
    state |= chosen(key_of(1), state.size, 0.7).reshape(state.shape) * np.uint8(WANTED)
    state |= chosen(key_of(2), state.size, 0.9).reshape(state.shape) * np.uint8(UP)
    state[:, :infected] |= INFECTED | UP
    return state


def test_uninterested_members_get_nothing() -> None:
    """Uninterested participants would receive, or crashed ones gossip."""
    before = groups_of(50, 30, 2)
    state, last = before.copy(), np.zeros(50, np.int64)
    rounds = np.full(50, 40, np.int64)
    rounds[7] = 0
    room = np.empty(31, np.int64), np.empty(3, np.int64)
    sent = gossip(state.reshape(-1), 30, rounds, last, key_of(6), -1, 0, *room)
    fresh = ((state ^ before) & INFECTED).astype(bool)
    assert sent > fresh.sum() > 0
    assert not fresh[(before & (WANTED | UP)) != (WANTED | UP)].any()
    assert not fresh[7].any()
    assert (last[fresh.any(axis=1)] > 0).all()
    others = np.arange(50) != 7
    assert (((state & INFECTED) > 0) | ((before & (WANTED | UP)) != (WANTED | UP)))[others].all()


def test_a_round_is_as_the_chain_has_it() -> None:
    """Senders would choose one twice, themselves, or some more often than others."""
    groups, members = 60_000, 6
    state = np.full((groups, members), WANTED | UP, np.uint8)
    state[:, 2] |= INFECTED
    once = np.ones(groups, np.int64)
    last, room = np.zeros(groups, np.int64), (np.empty(7, np.int64), np.empty(2, np.int64))
    sent = gossip(state.reshape(-1), members, once, last, key_of(7), -1, 0, *room)
    assert sent == 2 * groups
    reached = ((state & INFECTED) > 0).mean(axis=0)
    assert ((state & INFECTED) > 0).sum() == 3 * groups
    assert reached[2] == 1
    assert np.abs(np.delete(reached, 2) - 2 / 5).max() < 0.01


@needs_native
@pytest.mark.parametrize("outsider", [-1, 0, 3])
@pytest.mark.parametrize(("members", "fanout"), [(22, 2), (4, 9), (1, 1), (90, 5)])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_compiled_and_interpreted_alike(
    members: int, fanout: int, outsider: int, loss: float
) -> None:
    """The result of a simulation would depend on where it is installed."""
    rounds = np.arange(40, dtype=np.int64) % 9
    results = []
    for compiled in (True, False):
        state, last = groups_of(40, members, 1), np.zeros(40, np.int64)
        room = np.empty(members + 1, np.int64), np.empty(fanout, np.int64)
        sent = module("kernels.gossip_rounds", compiled).gossip(
            *(state.reshape(-1), members, rounds, last),
            *(key_of(5), outsider, threshold(loss), *room),
        )
        results.append((sent, state.tolist(), last.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("member", "members", "counter", "choices"),
    [
        (0, 90, 0, [31, 3, 19, 55]),
        (90, 90, 3, [67, 68, 21, 89]),
        (2, 90, 8, [15, 53, 13, 65]),
        (1, 3, 8, [0, 1]),
    ],
)
def test_the_draws_of_a_key_stay(
    member: int, members: int, counter: int, choices: list[int]
) -> None:
    """The figures of a seed would be others after an update."""
    picked = np.zeros(4, np.int64)
    count = choose(member, members, key_of(1), counter, picked)
    assert picked[:count].tolist() == choices


@pytest.mark.parametrize("outsider", [-1, 0, 2])
def test_no_two_members_share_a_random_number(
    outsider: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a round would choose alike, and infect fewer than independent ones."""
    kernels = module("kernels.gossip_rounds")
    used: list[int] = []

    def noted(index: int, members: int, key: int, counter: int, picked: NDArray[np.int64]) -> int:
        used.extend(range(counter, counter + 2 * len(picked)))
        return choose(index, members, key, counter, picked)

    monkeypatch.setattr(kernels, "choose", noted)
    groups, members, fanout = 3, 5, 2
    state, last = np.full(groups * members, WANTED | UP | INFECTED, np.uint8), np.zeros(3, np.int64)
    once, room = np.ones(groups, np.int64), (np.empty(6, np.int64), np.empty(fanout, np.int64))
    kernels.gossip(state, members, once, last, key_of(5), outsider, 0, *room)
    senders = groups * members + (outsider >= 0)
    assert len(used) == len(set(used)) == senders * 2 * fanout
    assert max(used) < groups * (members + 1) * 2 * fanout


def test_each_choice_and_each_loss_has_its_own_random_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message would be lost or not by the number that chose another target."""
    kernels = module("kernels.gossip_rounds")
    positions: list[int] = []

    def noted(key: int, at: int) -> int:
        positions.append(at)
        return int(random_word(key, at))

    random_word = kernels.random_word
    members, fanout, group, sender = 4, 3, 1, 2
    state, last = np.full(2 * members, WANTED | UP, np.uint8), np.zeros(2, np.int64)
    state[group * members + sender] |= INFECTED
    rounds, room = np.ones(2, np.int64), (np.empty(5, np.int64), np.empty(fanout, np.int64))
    monkeypatch.setattr(kernels, "random_word", noted)
    kernels.gossip(state, members, rounds, last, key_of(5), -1, 2**64 - 1, *room)
    first = (group * (members + 1) + sender) * 2 * fanout
    assert sorted(positions)[:2] == [1, 1], "of the two rounds"
    assert sorted(positions)[2:] == [*range(first + 1, first + 2 * fanout + 1)]
