"""The kernel of rounds of gossip in many groups, group after group.

A group of some hundreds stays near the processor. The draws of a round depend only on the drawing
member, so any order of groups gives the same numbers.

Source: EPFL 2503 figures 6.1, 6.2 and 6.6, in common rounds (§6.2.1).
"""

from contrada.matching.kernels.memory import array_entry, below, kernel, random_word
from contrada.matching.kernels.schema import Bytes, Ints, Marks

WANTED, UP, INFECTED = 1, 2, 4
"""Bits of a member's state."""


@kernel
def choose(index: int, members: int, key: Marks, counter: int, picked: Ints) -> int:
    """Writes the choices of a member among the others, by Floyd's algorithm; returns their number.

    A member beyond the last one chooses among all.
    """
    others = members - 1 if index < members else members
    choices = min(len(picked), others)
    for turn in range(choices):
        highest = others - choices + turn
        pick = below(random_word(key, counter + 2 * turn + 1), highest + 1)
        for earlier in range(turn):
            if picked[earlier] == pick:
                pick = highest
                break
        picked[turn] = pick
    return choices


@array_entry
def gossip(
    state: Bytes,
    members: int,
    rounds: Ints,
    last: Ints,
    key: Marks,
    outsider: int,
    loss: Marks,
    senders: Ints,
    picked: Ints,
) -> int:
    """Gossips in each group for its rounds. Returns the number of messages.

    In a round, all members infected before it gossip. Each sends to F others, as many as `picked`
    has room for, that count as interested. `last` gets the round, from 1, of each group's last
    infection. In the group `outsider` the publisher gossips too without being a member.

    `state` has the members of each group in sequence; `senders` has room for them and one more.
    `loss` is the bound below which a random word loses a message.
    """
    sent = 0
    for group in range(len(rounds)):
        base, infected = group * members, 0
        for member in range(members):
            if state[base + member] & INFECTED:
                senders[infected] = member
                infected += 1
        if group == outsider:
            senders[infected] = members
            infected += 1
        for number in range(rounds[group]):
            round_key, before = random_word(key, number + 1), infected
            for place in range(before):
                index = senders[place]
                counter = (group * (members + 1) + index) * 2 * len(picked)
                for turn in range(choose(index, members, round_key, counter, picked)):
                    target = picked[turn] + 1 if picked[turn] >= index else picked[turn]
                    bits = state[base + target]
                    if bits & WANTED == 0:
                        continue
                    sent += 1
                    if bits & INFECTED or bits & UP == 0:
                        continue
                    if loss != 0 and random_word(round_key, counter + 2 * turn + 2) < loss:
                        continue
                    state[base + target] = bits | INFECTED
                    senders[infected] = target
                    infected += 1
                    last[group] = number + 1
    return sent
