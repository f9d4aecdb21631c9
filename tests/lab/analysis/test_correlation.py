"""Tests of correlation up the hierarchy, against participants that gossip sets of events."""

import itertools
import random

import numpy as np
import pytest

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import expected_rounds
from contrada.lab.analysis.correlation import gathered, meeting_levels, noticed


def groups_of(group: Parameters, level: int) -> list[list[int]]:
    """The members of each group of a level, by their numbers: delegates as in figure 6.5."""
    a, size = group.branching, group.branching ** (level - 1)
    step = max(1, size // a)
    delegates = group.redundancy if level > 1 else 1
    return [
        [start + line * size + turn * step for line in range(a) for turn in range(delegates)]
        for start in range(0, group.participants, size * a)
    ]


def heard(group: Parameters, rng: random.Random) -> list[dict[int, set[int]]]:
    """Returns, for each level, the events known to each member of a group, if each publishes
    one.
    """
    knows = {number: {number} for number in range(group.participants)}
    levels = []
    for level in range(1, group.levels + 1):
        for members in groups_of(group, level):
            for _ in range(expected_rounds(group, level, len(members), len(members))):
                before = {each: set(knows[each]) for each in members}
                for sender in members:
                    others = [each for each in members if each != sender]
                    for target in rng.sample(others, min(group.fanout, len(others))):
                        if rng.random() >= group.loss:
                            knows[target] |= before[sender]
        present = {each for members in groups_of(group, level) for each in members}
        levels.append({each: set(knows[each]) for each in present})
    return levels


@pytest.mark.parametrize(
    "group",
    [
        Parameters(branching=5, levels=3, redundancy=2, fanout=2),
        Parameters(branching=5, levels=3, redundancy=2, fanout=2, rounds=2, loss=0.2),
        Parameters(branching=20, levels=1, redundancy=1, fanout=1),
    ],
)
def test_calculated_knowledge_is_that_of_participants(group: Parameters) -> None:
    """An unnoticed pattern would be calculated as noticed."""
    rng, runs = random.Random(5), 60
    found = np.zeros((runs, group.levels))
    pairs = np.zeros((runs, group.levels))
    for run in range(runs):
        for place, known in enumerate(heard(group, rng)):
            size = group.branching ** (place + 1)
            shares = []
            for member, events in known.items():
                start = member // size * size
                shares.append(sum(start <= each < start + size for each in events) / size)
            found[run, place] = np.mean(shares)
            pairs[run, place] = np.mean(np.square(shares))
    expected, error = gathered(group), found.std(axis=0) / runs**0.5
    assert (np.abs(found.mean(axis=0) - expected) < 4 * error + 0.015).all()
    assert (error < 0.02).all()
    # Events travel together: both arrive more often than independent ones.
    assert (pairs.mean(axis=0) > expected**2 - 0.03).all()
    both = noticed(group, 2)
    assert both == pytest.approx(float(meeting_levels(group, 2) @ expected**2))
    assert both <= noticed(group, 1)


def test_publishers_meet_where_they_share_a_branch_address() -> None:
    """A pattern would be expected above or below the meeting of its events."""
    group, events = Parameters(branching=3, levels=3, redundancy=1), 2
    found = np.zeros(3)
    for one, other in itertools.product(range(27), repeat=events):
        level = next(i for i in (1, 2, 3) if one // 3**i == other // 3**i)
        found[level - 1] += 1 / 27**events
    assert meeting_levels(group, events) == pytest.approx(found)
    assert meeting_levels(group, 1) == pytest.approx([1, 0, 0])
    with pytest.raises(InvalidValueError):
        meeting_levels(group, 0)


def test_crashes_and_loss_keep_events_from_being_gathered() -> None:
    """Failures would make no difference."""
    base = Parameters(branching=6, redundancy=2, rounds=4)
    fewer = (
        Parameters(branching=6, redundancy=2, rounds=4, **{name: 0.3})  # type: ignore[arg-type]
        for name in ("loss", "crashes")
    )
    assert all((gathered(each) < gathered(base)).all() for each in fewer)
