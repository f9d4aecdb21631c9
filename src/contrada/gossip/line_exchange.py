"""`LineExchange`: the exchange of view lines between two participants.

The sender of a digest gets the lines that are newer here, and is asked for those that are newer
there. A line is accepted if it is valid at its place, later than the line here, and not too far in
the future.

Source: EPFL 2503 §6.4.2 (gossip pull), §6.1.2 (anti-entropy).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from contrada.errors import EncodingError
from contrada.gossip.addresses import distance
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import (
    LINES_SENT_MAX,
    AgedLine,
    Contact,
    LineStamp,
    Update,
    ViewLine,
    Welcome,
)
from contrada.gossip.views import HeldLine, View

STAMP_AHEAD_MAX_US: Final = 60_000_000
"""Microseconds of a timestamp ahead of the clock. Beyond it: its line is refused, counted."""

UPDATE_LINES_BYTES_MAX: Final = 524_288
"""Bytes of lines in one update or welcome. Beyond it: the next has the rest."""

_LINE_BYTES: Final = 64


@dataclass(eq=False)
class LineExchange:
    """Digests, lines and stamps of one view.

    `echoes` has, by level, the latest stamp of the own line in the views of others; `strangers` has
    contacts in lines of the own subsystem that are not known there. `refused` counts by reason.
    """

    _view: View
    _contact: Contact
    _redundancy: int
    _silence: list[int]
    _limits: GossipLimits = GossipLimits()
    echoes: dict[int, int] = field(default_factory=dict)
    strangers: dict[str, Contact] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    _votes: dict[str, bool] = field(default_factory=dict)
    _verdict: bool | None = None

    @property
    def doubts(self) -> bool:
        """Whether more of the recent clocks were refused than accepted.

        Each participant has one vote, so a single liar is outvoted, however many lines it sends.
        """
        return 2 * sum(self._votes.values()) < len(self._votes)

    def forget(self) -> None:
        """Clears the state of a group that was left."""
        self.echoes.clear()
        self.strangers.clear()
        self._votes.clear()

    def _vote(self, sender: Contact) -> None:
        """Counts the verdict on the timestamps of a message as its sender's vote."""
        if self._verdict is not None:
            self._votes.pop(sender.place, None)
            self._votes[sender.place] = self._verdict
            if len(self._votes) > self._limits.voters_max:
                del self._votes[next(iter(self._votes))]
        self._verdict = None

    def admit(self, newcomer: Contact, line: ViewLine, now_us: int) -> None:
        """Accepts the line of a newcomer."""
        self.take(AgedLine(1, 0, line), now_us)
        self._vote(newcomer)

    def compare(self, sender: Contact, digest: Sequence[LineStamp], now_us: int) -> Update | None:
        """Returns the answer to a digest: lines that are newer here, and requests for newer
        ones.

        The sender lacks lines that its digest does not name, unless the digest is full.
        """
        lowest = distance(self._contact.address, sender.address)
        aged: list[AgedLine] = []
        stamps: list[LineStamp] = []
        wanted: list[tuple[int, int]] = []
        seen: set[tuple[int, int]] = set()
        for stamp in digest:
            if not self._is_shared(lowest, stamp.level, stamp.digit):
                continue
            seen.add((stamp.level, stamp.digit))
            held = self._view.table(stamp.level).get(stamp.digit)
            self._note_echo(stamp, held)
            if held is None or held.line.timestamp_us < stamp.timestamp_us:
                if not self._touch(stamp, now_us) and not self._is_old(stamp.level, stamp.age):
                    wanted.append((stamp.level, stamp.digit))
            elif held.line.timestamp_us > stamp.timestamp_us and not held.is_silent:
                if held.mark == stamp.mark:
                    stamps.append(self._view.stamp_of(stamp.level, held))
                else:
                    aged.append(self._view.aged(stamp.level, held))
                    if self._is_contested(stamp.level, held, stamp.timestamp_us):
                        wanted.append((stamp.level, stamp.digit))
        self._vote(sender)
        if seen and len(digest) < LINES_SENT_MAX:
            lines = self._view.aged_lines(lowest)
            aged += [each for each in lines if (each.level, each.line.digit) not in seen]
        if not (aged or stamps or wanted):
            return None
        return Update(self._contact, fit_lines(aged), tuple(stamps), tuple(wanted[:LINES_SENT_MAX]))

    def _note_echo(self, stamp: LineStamp, held: HeldLine | None) -> None:
        is_own = held is not None and self._view.is_own(stamp.level, stamp.digit)
        if is_own and held is not None and stamp.timestamp_us <= held.line.timestamp_us:
            echo = self.echoes.get(stamp.level, stamp.timestamp_us)
            self.echoes[stamp.level] = max(echo, stamp.timestamp_us)

    def learn(self, message: Update | Welcome, now_us: int) -> Update | None:
        """Accepts newer lines. Returns the lines that the sender requested."""
        lowest = distance(self._contact.address, message.sender.address)
        for aged in message.lines:
            if self._is_shared(lowest, aged.level, aged.line.digit):
                self.take(aged, now_us)
        if isinstance(message, Welcome):
            self._vote(message.sender)
            return None
        for stamp in message.stamps:
            if self._is_shared(lowest, stamp.level, stamp.digit):
                self._touch(stamp, now_us)
        self._vote(message.sender)
        lines = []
        for level, digit in message.wanted:
            if self._is_shared(lowest, level, digit):
                held = self._view.table(level).get(digit)
                if held is not None and not held.is_silent:
                    lines.append(self._view.aged(level, held))
        return Update(self._contact, fit_lines(lines)) if lines else None

    def _is_shared(self, lowest: int, level: int, digit: int) -> bool:
        """Returns whether a line is in a table of both participants; counts a refusal."""
        tables = len(self._view.tables)
        if lowest <= level <= tables and digit < self._view.space.radix(level):
            return True
        self.refused["level"] += 1
        return False

    def _touch(self, stamp: LineStamp, now_us: int) -> bool:
        """Accepts a later timestamp of an equal line. Returns whether it is equal."""
        table = self._view.table(stamp.level)
        held = table.get(stamp.digit)
        if held is None or held.mark != stamp.mark:
            return False
        is_later = stamp.timestamp_us > held.line.timestamp_us
        is_later = is_later and not self._is_old(stamp.level, stamp.age)
        if is_later and self._is_believed(stamp.timestamp_us, now_us):
            table.restamp(held, stamp.timestamp_us, self._view.round - stamp.age)
        return True

    def _is_old(self, level: int, age: int) -> bool:
        return age >= self._silence[level - 1]

    def _is_believed(self, timestamp_us: int, now_us: int) -> bool:
        """Returns whether a timestamp is not too far ahead of the clock; counted."""
        if timestamp_us <= now_us + STAMP_AHEAD_MAX_US:
            self._verdict = True
            return True
        self._verdict = self._verdict or False
        self.refused["clock"] += 1
        return False

    def take(self, aged: AgedLine, now_us: int) -> None:
        """Accepts a valid line that is later than the one here."""
        line, level = aged.line, aged.level
        table = self._view.table(level)
        held = table.get(line.digit)
        if held is not None and line.timestamp_us <= held.line.timestamp_us:
            if self._is_contested(level, held, line.timestamp_us):
                self._meet(level, line)
            return
        if self._is_old(level, aged.age) or not self._is_believed(line.timestamp_us, now_us):
            return
        fault = self._view.line_faults(level, line, self._redundancy)
        if fault:
            self.refused[fault] += 1
            return
        is_own = self._view.is_own(level, line.digit)
        if level == 1 and is_own and held is not None:
            # Only the participant writes its own line: it overwrites the foreign one.
            table.restamp(held, line.timestamp_us + 1, self._view.round)
            return
        if is_own:
            self._meet(level, line)
        try:
            table.put(line, self._view.round - aged.age)
        except EncodingError:
            self.refused["interests"] += 1

    def _is_contested(self, level: int, held: HeldLine, timestamp_us: int) -> bool:
        """Returns whether another participant writes a different line of the own subsystem."""
        is_own = level > 1 and self._view.is_own(level, held.line.digit)
        return is_own and held.first_us < timestamp_us

    def _meet(self, level: int, line: ViewLine) -> None:
        """Notes unknown delegates in a line of the own subsystem as strangers."""
        if level == 1 or self._view.line_faults(level, line, self._redundancy):
            return
        known = {each.contact for each in self._view.table(level - 1).known()}
        for contact in line.delegates:
            if contact not in known and len(self.strangers) < self._limits.strangers_max:
                self.strangers[contact.place] = contact


def fit_lines(lines: Sequence[AgedLine]) -> tuple[AgedLine, ...]:
    """Returns the first lines, as many as one message takes."""
    left = UPDATE_LINES_BYTES_MAX
    found: list[AgedLine] = []
    for aged in lines[:LINES_SENT_MAX]:
        left -= len(aged.line.interests) + _LINE_BYTES
        # The most bytes of each contact.
        left -= sum(8 + 4 * len(it.place) + 4 * len(it.address) for it in aged.line.delegates)
        if left < 0:
            break
        found.append(aged)
    return tuple(found)
