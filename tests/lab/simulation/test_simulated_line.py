"""`Line`: each message in order, once, or reported as lost, over any transport."""

import random

import pytest

from contrada.lab.simulation.schedule import Schedule
from contrada.lab.simulation.simulated_line import Faults, Line


class Ends:
    """The two ends of a line, with their events."""

    def __init__(self, faults: Faults | None, seed: int = 0) -> None:
        self.schedule = Schedule()
        self.up = [False, False]
        self.taken: list[list[int]] = [[], []]
        self.lost: list[int] = []
        self.sessions = 0
        self.line: Line[int] = Line(7, self.schedule, self, 1_000, faults=faults, seed=seed)

    def line_up(self, line: int, end: int) -> None:
        assert not self.up[end], "up twice"
        self.up[end] = True
        self.sessions += end

    def line_down(self, line: int, end: int) -> None:
        assert self.up[end], "down twice"
        self.up[end] = False

    def take(self, line: int, end: int, message: int) -> None:
        assert self.up[end], "an end that is down takes nothing"
        self.taken[end].append(message)

    def lose(self, line: int, message: int) -> None:
        self.lost.append(message)


ROUGH = Faults(loss=0.3, duplication=0.3, late_us=5_000)


@pytest.mark.parametrize("seed", range(20))
def test_a_rough_transport_costs_time_only(seed: int) -> None:
    """Faults of the transport would show in the session."""
    ends = Ends(ROUGH, seed)
    ends.line.begin()
    ends.schedule.run(100_000)
    for message in range(50):
        ends.line.send(message % 2, message)
        ends.schedule.run(ends.schedule.now_us + 700)
    ends.schedule.run()
    assert ends.taken == [list(range(1, 50, 2)), list(range(0, 50, 2))]
    assert not ends.lost


@pytest.mark.parametrize("seed", range(60))
def test_every_message_is_taken_in_order_or_lost(seed: int) -> None:
    """A message would be doubled, late, or vanish when sessions end."""
    chance = random.Random(seed)
    ends = Ends(chance.choice((ROUGH, Faults())), seed)
    ends.line.begin()
    running = [True, True]
    for message in range(300):
        kind = chance.random()
        end = chance.randrange(2)
        if kind < 0.03:
            ends.line.cut()
        elif kind < 0.06:
            ends.line.mend()
        elif kind < 0.08 and running[end]:
            running[end] = ends.up[end] = False
            ends.line.crash(end)
        elif kind < 0.12 and not running[end]:
            running[end] = True
            ends.line.restart(end)
        if running[end]:
            ends.line.send(end, message)
        else:
            ends.lost.append(message)
        ends.schedule.run(ends.schedule.now_us + chance.choice((100, 1_000, 100_000)))
    for end in (0, 1):
        if not running[end]:
            ends.line.restart(end)
    ends.line.mend()
    ends.schedule.run()
    assert ends.up == [True, True]
    for taken in ends.taken:
        assert taken == sorted(set(taken))
    assert sorted((*ends.taken[0], *ends.taken[1], *ends.lost)) == list(range(300))


def test_a_short_cut_is_not_noticed_and_a_long_one_is() -> None:
    """Every hiccup would end a session, or a dead line be kept."""
    ends = Ends(Faults())
    ends.line.begin()
    ends.schedule.run()
    ends.line.cut()
    ends.line.send(0, 1)
    ends.schedule.run(ends.schedule.now_us + 100_000)
    ends.line.mend()
    ends.schedule.run()
    assert (ends.sessions, ends.taken[1], ends.lost) == (1, [1], [])
    ends.line.cut()
    ends.line.send(0, 2)
    ends.schedule.run()
    assert (ends.up, ends.lost) == ([False, False], [2])
    ends.line.mend()
    ends.schedule.run()
    assert (ends.up, ends.sessions) == ([True, True], 2)


def test_without_faults_a_message_takes_its_delay() -> None:
    """Costs of sweeps would include sessions."""
    ends = Ends(None)
    ends.line.begin()
    ends.schedule.run()
    begun_us = ends.schedule.now_us
    ends.line.send(0, 1)
    ends.schedule.run()
    assert (ends.taken[1], ends.schedule.now_us) == ([1], begun_us + 1_000)
