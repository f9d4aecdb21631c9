"""Figure 6.6 word for word: participants with buffers, one period after another.

Slow and plain, as a reference for the groups of `gossip_runs`.
"""

import random
from collections import defaultdict

from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import expected_rounds


def view_of(group: Parameters, participant: int, level: int) -> list[int]:
    """Returns the members of a participant's view at a level, itself included."""
    width = group.branching ** (level - 1)
    first = participant // (width * group.branching) * group.branching
    step = max(1, width // group.branching)
    delegates = range(0, group.redundancy * step, step) if level > 1 else [0]
    lines = range(first, first + group.branching)
    return [line * width + delegate for line in lines for delegate in delegates]


def reliability(group: Parameters, interest: float, seed: int) -> float:
    """The share of the interested that one event reaches."""
    chance = random.Random(seed)
    count = group.participants
    interested = {each for each in range(count) if chance.random() < interest}
    up = {each for each in range(count) if chance.random() >= group.crashes}
    publisher = chance.randrange(count)
    up.add(publisher)

    def wants(participant: int, level: int) -> bool:
        width = group.branching ** (level - 1)
        first = participant // width * width
        return any(each in interested for each in range(first, first + width))

    def rounds_of(participant: int, level: int) -> int:
        view = view_of(group, participant, level)
        hits = sum(wants(each, level) for each in view)
        return expected_rounds(group, level, len(view), hits)

    gossips: dict[int, tuple[int, int, int]] = {}
    had = {publisher}
    gossips[publisher] = (group.levels, 0, rounds_of(publisher, group.levels))
    while gossips:
        arriving: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for participant, (level, done, expected) in sorted(gossips.items()):
            while done >= expected and level > 0:
                level, done = level - 1, 0
                expected = rounds_of(participant, level) if level else 0
            if not level:
                del gossips[participant]
                continue
            view = [each for each in view_of(group, participant, level) if each != participant]
            for dest in chance.sample(view, min(group.fanout, len(view))):
                if wants(dest, level) and dest in up and chance.random() >= group.loss:
                    arriving[dest].append((level, done + 1, expected))
            gossips[participant] = (level, done + 1, expected)
        for dest, copies in arriving.items():
            if dest not in had:
                had.add(dest)
                gossips[dest] = copies[0]
    live = interested & up
    return len(live & had) / len(live) if live else 1.0
