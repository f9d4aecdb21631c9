"""`Attempts`: the attempts and delays of the records of a log.

`RequeuedRecords` will be handed out again, `HeldRecords` are those of one consumer.

Attempts and delays survive restarts in notes:

    attempts/NAME/CHUNK  ==>  for each record: offset in the chunk, attempts, time of the next one

A note is about `CHUNK` positions. So a change costs one small note, however many records there are.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Final, TypeAlias

from contrada.delivery.store import Notes

CHUNK: Final = 32
"""Positions of a note. More: fewer notes, and larger ones."""

_KIND: Final = "attempts"

AttemptRow: TypeAlias = tuple[int, int, int]
"""A position, its attempts, and the time in microseconds before which it waits, or 0."""


def load_attempts(notes: Notes) -> Mapping[str, list[AttemptRow]]:
    """Returns the rows in the notes, by the name of the log. Cost: all notes."""
    found: defaultdict[str, list[AttemptRow]] = defaultdict(list)
    for name, rows in notes.of(_KIND, tuple[AttemptRow, ...]):
        log, _, chunk = name.rpartition("/")
        found[log] += [(int(chunk) * CHUNK + at, *rest) for at, *rest in rows]  # type: ignore[misc]
    return found


def log_of_attempts(note: str) -> str:
    """Returns the log of a note `NAME/CHUNK`."""
    return note.rpartition("/")[0]


class Attempts:
    """The attempts of the records of one log, and the times before which they wait."""

    def __init__(
        self, name: str = "", notes: Notes | None = None, rows: Iterable[AttemptRow] = ()
    ) -> None:
        """Without notes, they are in memory alone."""
        self._name, self._notes = name, notes
        self._counts = Counter({position: count for position, count, _ in rows if count})
        self._due_us = {position: due_us for position, _, due_us in rows if due_us}
        self._changed: dict[int, None] = {}

    def __getitem__(self, position: int) -> int:
        return self._counts[position]

    def __iter__(self) -> Iterator[int]:
        return iter({*self._counts, *self._due_us})

    def __len__(self) -> int:
        return len(self._counts) + len(self._due_us)

    @property
    def highest(self) -> int:
        """The highest number of attempts. Cost: all records with attempts."""
        return max(self._counts.values(), default=0)

    def add(self, position: int, count: int = 1) -> None:
        """Adds attempts, or takes them back."""
        self._counts[position] += count
        self._note(position)

    def due_us(self, position: int) -> int:
        """Returns the time before which a record waits, or 0."""
        return self._due_us.get(position, 0)

    def delay(self, position: int, due_us: int) -> None:
        """Sets this time; 0 removes it."""
        if due_us or self._due_us.pop(position, 0):
            if due_us:
                self._due_us[position] = due_us
            self._note(position)

    def forget(self, position: int) -> None:
        """Forgets a record, which was acknowledged or dropped."""
        known = self._counts.pop(position, None) is not None
        if self._due_us.pop(position, 0) or known:
            self._note(position)

    def _note(self, position: int) -> None:
        if self._notes is not None:
            self._changed[position // CHUNK] = None

    def write(self) -> None:
        """Writes the changes to the notes. Cost: `CHUNK` look-ups for each changed note."""
        if self._notes is None:
            return
        for chunk in self._changed:
            first = chunk * CHUNK
            rows = [(at, self._counts[first + at], self.due_us(first + at)) for at in range(CHUNK)]
            kept = tuple(each for each in rows if any(each[1:]))
            self._notes.put(_KIND, f"{self._name}/{chunk}", kept or None)
        self._changed.clear()

    def end(self) -> None:
        """Removes all notes."""
        for position in [*self]:
            self.forget(position)
        self.write()


class RequeuedRecords:
    """Positions that will be handed out again, now or after a delay. Iteration gives them all."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._ready: list[int] = []  # a heap
        self._delayed: list[tuple[int, int]] = []  # a heap of times and positions

    def __len__(self) -> int:
        """The number of those that wait no longer."""
        return len(self._ready)

    def __iter__(self) -> Iterator[int]:
        yield from self._ready
        for _, position in self._delayed:
            yield position

    def add(self, position: int, due_us: int) -> None:
        """Adds a record, which waits until a time; 0: not at all."""
        self._attempts.delay(position, due_us)
        if due_us:
            heappush(self._delayed, (due_us, position))
        else:
            heappush(self._ready, position)

    @property
    def delayed(self) -> int:
        """The number of those that wait."""
        return len(self._delayed)

    @property
    def first(self) -> int:
        """The lowest position that waits no longer."""
        return self._ready[0]

    def pop(self) -> None:
        """Removes the first."""
        heappop(self._ready)

    @property
    def due_us(self) -> int | None:
        """The time when a delay ends."""
        return self._delayed[0][0] if self._delayed else None

    def expire(self, now_us: int) -> None:
        """Ends the delays until a time."""
        while self._delayed and self._delayed[0][0] <= now_us:
            heappush(self._ready, heappop(self._delayed)[1])

    def forget(self, before: int) -> None:
        """Keeps the positions before one."""
        self._keep(lambda position: position < before)

    def take_back(self, positions: set[int]) -> set[int]:
        """Removes and returns those of these positions that are there. Cost: all."""
        found = positions.intersection(self)
        if found:
            self._keep(lambda position: position not in found)
        return found

    def _keep(self, is_kept: Callable[[int], bool]) -> None:
        self._ready = sorted(filter(is_kept, self._ready))
        self._delayed = sorted(each for each in self._delayed if is_kept(each[1]))


@dataclass(slots=True, eq=False)
class HeldRecords:
    """The credit of a consumer, and its records: those that it read, and those that it prefetched.

    `sent` has the prefetched ones, each with its place in the sequence of all that were handed to
    the consumer, `counted` the one of them that has an attempt. `read` has the times of reading, in
    order. A consumer `is_idle` after its prefetched records were taken from it, until it reads.
    """

    attempts: Attempts
    credit: int = 0
    handed: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    counted: int | None = None
    active_us: int = 0
    is_idle: bool = False
    renews: bool = False  # void credit

    def __len__(self) -> int:
        return len(self.sent) + len(self.read)

    @property
    def held(self) -> set[int]:
        """All positions."""
        return {*self.sent, *self.read}

    def own(self, positions: Iterable[int]) -> set[int]:
        """Returns those of these positions that it holds. Cost: the given ones."""
        return {each for each in positions if each in self.read or each in self.sent}

    def adopt(self, position: int, now_us: int) -> None:
        """Adds a record that its client read before; its attempt counts already, if any does."""
        if not self.attempts[position]:
            self.attempts.add(position)
        self.read[position] = now_us

    def note_read(self, position: int, now_us: int) -> None:
        """Counts the attempt of a record, if it does not count yet; its time begins now."""
        if position not in self.read and position != self.counted:
            self.attempts.add(position)
        self.discard(position)
        self.read[position] = now_us

    def count_first(self) -> None:
        """Counts an attempt for the first record, if the consumer may be reading that."""
        first = None if self.read else next(iter(self.sent), None)
        if first is not None and first != self.counted:
            self.counted = first
            self.attempts.add(first)

    def count_alone(self, positions: set[int]) -> None:
        """Corrects which of its records have an attempt by this consumer."""
        counted = {*self.read} if self.counted is None else {*self.read, self.counted}
        for each in positions ^ counted:
            self.attempts.add(each, 1 if each in positions else -1)

    def discard(self, position: int) -> None:
        """Removes a record."""
        if self.sent.pop(position, None) is None:
            self.read.pop(position, None)
        if position == self.counted:
            self.counted = None

    def overdue(self, until_us: int) -> list[int]:
        """Returns the records that were read until a time; all, of a consumer silent since then.

        That one is idle from now on.
        """
        found = [*takewhile(lambda each: self.read[each] <= until_us, self.read)]
        if self and self.active_us <= until_us:
            self.is_idle = True
            self.count_alone({*self.read})  # It is connected, and would have announced another one.
            found += self.sent
        return found

    def due_us(self, time_out_us: int) -> int | None:
        """Returns when its time for a record ends; None without records."""
        since = [*islice(self.read.values(), 1), *([self.active_us] if self.sent else [])]
        return min(since) + time_out_us if since else None
