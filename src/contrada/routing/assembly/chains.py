"""`Chains`: the runs of one pattern whose notifications come singly, or several at a time.

A *chain* is what a delegate reports: notifications that fill several consecutive places, the first
of which is a start of the sub-pattern, the others its earliest completion. A single notification is
a chain of one. Chains are taken in the order of their last notifications.

    places      0      1      2      3          a run (a1 b2) has filled 0 and 1, and waits at 2
    local       a
    local              b                        it takes the first chain (c d) whose c is after b2
    delegate                  c      d

Why this is the definition (see `contrada.patterns.runs`, whose argument this continues): of a
sub-pattern each start is reported with its earliest completion, and a later start is never complete
before an earlier one. A run that waits for it would take the first notification after its last one
that matches the first part, hence the first start after it, and then what the delegate took. So it
moves by the first chain that begins after its last notification; chains come in the order of their
starts, and one that the run could have taken before would have moved it. By induction, as with
single notifications, a later start of the whole is never at a higher stage than an earlier one, and
on one stage never has an earlier last notification; so those that a chain moves are the oldest.

Giving a run only the notifications that some run needs changes nothing either: the first of all
that match is the first of these. So runs are handed from server to server as *pieces*, single
notifications for one place (and group), and are built again by taking these in order.

Without `every`, matches are one after another: after a match, starts up to its end are void. A
delegate may report such a start later, so the end is remembered, by group.

Source: PODC 2000 §2, figure 4; §4 (sequences are assembled from small subsequences).
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from contrada.model import Notification, Pattern
from contrada.patterns.reordering import Order, order_of
from contrada.patterns.runs import Group, Run, RunBudget, RunTable

REFUSED: Final = "starts of a delegate"
"""Why a run is not opened: a table of a delegate is full. It hands its sub-pattern back."""

ENDS_FULL: Final = "ends of matches"
"""Why a start is not opened: it may lie before the end of a match that was forgotten. The ends of
`groups_per_pattern_max` groups are remembered."""

Held: TypeAlias = tuple[int, Group | None, Notification]
"""A place, a group (None: all of the notification's), and a notification for it."""


class Chains(RunTable):
    """The runs of one pattern, by group and stage (the number of filled places).

    Where the table is full, a delegate (`refuses`) opens no new run and is `full` from then on;
    otherwise the oldest run goes, as in `contrada.patterns.runs`.

    Invariants: those of `contrada.patterns.runs`; on one stage the last notifications are in order.
    """

    def __init__(self, pattern: Pattern, budget: RunBudget, *, refuses: bool) -> None:
        super().__init__(pattern, budget)
        self.full = False
        self._size = len(pattern.filters)
        self._refuses = refuses
        self._ends: OrderedDict[Group, Order] = OrderedDict()
        self._forgotten: Order | None = None

    # --- taking in ----------------------------------------------------------------------------

    def take(self, group: Group, place: int, chain: Run) -> Sequence[Run]:
        """Takes a chain that fills the places from `place` on; the matches, older start first.

        Cost: the runs that move or are outlived.
        """
        stages = self._groups.get(group)
        if stages is not None:
            self._outlive(group, stages, chain[-1].envelope.at_us)
            if not stages:
                del self._groups[group]
        if place == 0:
            return self._open(group, chain)
        return self._move(group, place, chain)

    def _move(self, group: Group, place: int, chain: Run) -> Sequence[Run]:
        stages = self._groups.get(group, {})
        runs = stages.get(place, [])
        count = bisect_left(runs, order_of(chain[0]), key=_end)
        if not count:
            return ()
        moved = [run + chain for run in runs[:count]]
        del runs[:count]
        if not runs:
            del stages[place]
        if place + len(chain) < self._size:
            stages.setdefault(place + len(chain), []).extend(moved)
            return ()
        self._budget.held -= count
        if self.pattern.every:
            if not stages:
                del self._groups[group]
            return moved
        self._drop(group)
        return self._ended(group, moved[0])

    def _open(self, group: Group, chain: Run) -> Sequence[Run]:
        """Begins a run, unless its start is void, there already, or not needed."""
        start = order_of(chain[0])
        if self._is_void(group, start):
            return ()
        stages = self._groups.get(group)
        if stages and (not self._keeps_starts or start <= order_of(stages[min(stages)][-1][0])):
            return ()
        if len(chain) == self._size:
            return self._ended(group, chain) if _within(self.pattern, chain) else ()
        if self._make_room(group):
            self._groups.setdefault(group, {}).setdefault(len(chain), []).append(chain)
            self._groups.move_to_end(group)
            self._budget.held += 1
        return ()

    def _is_void(self, group: Group, start: Order) -> bool:
        if group in self._ends:
            return start <= self._ends[group]
        if self._forgotten is not None and start <= self._forgotten:
            self._budget.dropped[ENDS_FULL] += 1
            return True
        return False

    def _ended(self, group: Group, match: Run) -> Sequence[Run]:
        """Remembers the end of a match, before which no other may begin."""
        if not self.pattern.every:
            self._ends[group] = order_of(match[-1])
            self._ends.move_to_end(group)
            if len(self._ends) > self._budget.limits.groups_per_pattern_max:
                _, end = self._ends.popitem(last=False)
                self._forgotten = max(end, self._forgotten or end)
        return (match,)

    def _make_room(self, group: Group) -> bool:
        """As in any table of runs; but a delegate refuses the newest."""
        if not self._refuses:
            return super()._make_room(group)
        limits, groups = self._budget.limits, self._groups
        has_room = (
            self._held_in(group) < limits.runs_per_group_max
            and (group in groups or len(groups) < limits.groups_per_pattern_max)
            and self._budget.held < limits.runs_max
        )
        if not has_room:
            self.full = True
            self._budget.dropped[REFUSED] += 1
        return has_room

    # --- handing from server to server --------------------------------------------------------

    def roll_back(self, first: int, end: int) -> Iterator[Held]:
        """Takes back what runs have filled of the places from `first`, where they lie before `end`.

        Gives that, the places counted from `first`. These runs wait at `first` again.
        """
        for group, stages in list(self._groups.items()):
            undone: list[Run] = []
            for stage in sorted(stages, reverse=True):
                if first < stage < end:
                    undone += stages.pop(stage)
            for run in undone:
                for place, notification in enumerate(run[first:]):
                    yield place, group, notification
            if undone and first:
                kept = [run[:first] for run in undone]
                stages[first] = kept + stages.get(first, [])
            elif undone:
                self._budget.held -= len(undone)
            if not stages:
                del self._groups[group]

    # --- time ---------------------------------------------------------------------------------

    def free(self, watermark_us: int, *, starts_from_us: int | None) -> None:
        """Frees what was outlived, and the ends of matches before which no start will come.

        Starts come from `starts_from_us` on, where that is known. Cost: what is freed.
        """
        self.expire(watermark_us)
        if self.pattern.within_us is not None:
            outlived_us = watermark_us - self.pattern.within_us
            starts_from_us = max(outlived_us, starts_from_us or outlived_us)
        while starts_from_us is not None and self._ends:
            group, end = next(iter(self._ends.items()))
            if end[0] >= starts_from_us:
                break
            del self._ends[group]

    def validate(self) -> int:
        """Checks the invariants; the number of runs. Cost: all runs, and their filters."""
        held = 0
        for group, stages in self._groups.items():
            assert stages, "an empty group is held"
            assert all(stages.values()), "an empty stage is held"
            assert all(stage == len(run) for stage, runs in stages.items() for run in runs)
            oldest_first = [run for stage in sorted(stages, reverse=True) for run in stages[stage]]
            starts = [order_of(run[0]) for run in oldest_first]
            assert starts == sorted(set(starts)), f"starts of {group} are out of order"
            for runs in stages.values():
                ends = [_end(run) for run in runs]
                assert ends == sorted(ends), "runs of one stage are out of order"
            for run in oldest_first:
                orders = list(map(order_of, run))
                assert orders == sorted(set(orders)), "a run does not follow time"
                for part, notification in zip(self.pattern.filters, run, strict=False):
                    assert part.matches(notification)
            held += len(oldest_first)
        return held


def _end(run: Run) -> Order:
    return order_of(run[-1])


def _within(pattern: Pattern, match: Run) -> bool:
    within_us = pattern.within_us
    return within_us is None or match[-1].envelope.at_us - match[0].envelope.at_us <= within_us
