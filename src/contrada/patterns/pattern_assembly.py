"""`Assembly`: one pattern assembled from parts of several servers, each with its own watermark.

    singles   a    b         from here, in any order
    chains           (c d)   from the server that assembles a part
                |
                `---> in order, up to the owner's watermark ---> runs ---> matches

The whole state can be taken out as *pieces*, single notifications for one place, and handed to
another assembly of the same pattern, or of a part of it.

Source: PODC 2000 §4 (servers assemble sequences from small subsequences or single notifications).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from contrada.model import Notification, Pattern, Value
from contrada.model.domains.values import key_of, value_of
from contrada.patterns.reorder_buffer import Order, ReorderBuffer, order_of
from contrada.patterns.runs import Group, Run, RunBudget, Runs, groups_of

GATHERED_FULL: Final = "gathered by a delegate"
"""The reason for no part: `pending_max`, while the watermark cannot be forced."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A notification for a place, and the one group that still needs it (None: all)."""

    place: int
    by: tuple[Value, ...] | None
    notification: Notification


class _HeldChain(NamedTuple):
    """A waiting chain; a single notification with `group` None is for all of its groups."""

    place: int
    group: Group | None
    chain: Run

    def singles(self) -> Iterator[tuple[int, Group | None, Notification]]:
        """Yields its notifications, each for its place."""
        for place, notification in enumerate(self.chain, start=self.place):
            yield place, self.group, notification


class Assembly:
    """The waiting chains of one pattern, and its runs.

    While it `gathers`, everything is held and nothing assembled: beyond `pending_max` chains the
    newest is dropped. Otherwise the watermark is forced then, as in any `ReorderBuffer`.

    Invariant: the watermark never falls.
    """

    def __init__(self, pattern: Pattern, budget: RunBudget, *, refuses: bool = False) -> None:
        self.pattern = pattern
        self.gathers = False
        self._budget = budget
        self.runs = Runs(pattern, budget, refuses=refuses)
        self.waiting: ReorderBuffer[_HeldChain] = ReorderBuffer(budget.limits.pending_max)

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def watermark_us(self) -> int:
        """The time below which everything is assembled."""
        return self.waiting.watermark_us

    def is_late(self, time_us: int) -> bool:
        """Whether the watermark has passed a time."""
        return self.waiting.is_late(time_us)

    def hold(self, place: int, chain: Run, group: Group | None = None) -> None:
        """Adds a chain that fills the places from `place` on. Cost: O(log waiting)."""
        part = _HeldChain(place, group, chain)
        # The later place of one notification is first, so that it fills one place of a run.
        if not self.waiting.hold(order_of(chain[-1]), part, -place, forces=not self.gathers):
            self._budget.dropped[GATHERED_FULL] += 1

    def hold_pieces(self, first: int, pieces: Iterable[Piece]) -> None:
        """Adds another assembly's state of places from `first` on, also below the watermark."""
        for piece in pieces:
            group = None if piece.by is None else tuple(map(key_of, piece.by))
            self.hold(first + piece.place, (piece.notification,), group)

    def begin(self, watermark_us: int, pieces: Iterable[Piece]) -> None:
        """Begins with another assembly's gathered state below its watermark."""
        self.waiting.take_out(lambda part: part.chain[-1].envelope.at_us < watermark_us)
        self.waiting.raise_watermark(watermark_us)
        self.hold_pieces(0, pieces)

    def advance(
        self, watermark_us: int, *, has_all_starts: bool = True
    ) -> list[tuple[tuple[Value, ...], Run]]:
        """Moves the watermark and returns the matches, each with the values of `by`.

        `has_all_starts` means that no start will arrive from below the watermark. Cost: the
        released chains, and the runs that they move.
        """
        waiting, runs, by_names = self.waiting, self.runs, self.pattern.by
        waiting.raise_watermark(watermark_us)
        matches: list[tuple[tuple[Value, ...], Run]] = []
        for _, (place, group, chain) in waiting.release():
            for each in groups_of(chain[0], by_names, self._budget) if group is None else (group,):
                by = tuple(map(value_of, each))
                matches += [(by, run) for run in runs.take(each, (place,), chain)]
        runs.expire(waiting.watermark_us)
        if has_all_starts:
            runs.forget_ends(waiting.watermark_us)
        elif self.pattern.within_us is not None:
            runs.forget_ends(waiting.watermark_us - self.pattern.within_us)
        return matches

    def take_out(self, first: int, end: int) -> tuple[Piece, ...]:
        """Removes and returns the state of places from `first` to `end`, counted from `first`."""
        taken = list(self.runs.roll_back(first, end))
        held: list[tuple[int, Group | None, Notification]] = [*taken]
        for part in self.waiting.take_out(lambda each: first <= each.place < end):
            held += part.singles()
        pieces: dict[tuple[int, Group | None, Order], Piece] = {}
        for place, group, notification in held:
            by = None if group is None else tuple(map(value_of, group))
            piece = Piece(place - first, by, notification)
            pieces[place, group, order_of(notification)] = piece
        return tuple(pieces.values())

    def take_apart(self, first: int, end: int) -> None:
        """Splits the waiting chains at the places before `end` into single notifications."""
        for part in self.waiting.take_out(lambda each: first <= each.place < end):
            for place, group, notification in part.singles():
                self.hold(place, (notification,), group)

    def clear(self) -> None:
        """Drops the whole state."""
        self.runs.clear()
        self.waiting.clear()

    def validate(self) -> int:
        """Checks the invariants; returns the number of runs. Cost: the whole state."""
        self.waiting.validate()
        return self.runs.validate()
