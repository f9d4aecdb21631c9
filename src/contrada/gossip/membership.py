"""`GroupMembership`: the view of one participant, learned by gossip, line by line.

In each round a participant sends the digest of its view to some others, which answer with newer
lines, and ask for older ones (gossip pull, both ways). A neighbour writes its own line. The
delegates of a subsystem write its line: they condense the table below, and stamp the line again
after a change, or after `REFRESH_ROUNDS`.

A timestamp is the writer's clock, but always later than the one before, and refused if it is more
than `STAMP_AHEAD_MAX_US` ahead of the receiver's clock: nobody can lock a line. Ages of lines count
rounds, so a clock that jumps makes no line expire. A participant that refuses the stamps of more
others than it accepts *doubts* its own clock, and lets no line grow old.

A line without new stamps becomes silent after `silence_rounds`: its subsystem crashed or is empty.
It is kept as long again, so that older copies do not restore it. Its contacts are *lost*, and get a
digest from time to time, so the parts of a partitioned group join again. A participant overwrites a
lie about itself, or about a subsystem of which it is a delegate, by a later stamp.

Source: EPFL 2503 §6.4.2, §6.6.1 (failure detection).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from contrada.gossip import gossip_messages as messages
from contrada.gossip.addresses import AddressSpace, distance
from contrada.gossip.condensation import encode_interests
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.group_policy import (
    PINGS_MAX,
    REFRESH_ROUNDS,
    Chance,
    GroupPolicy,
    silence_rounds,
)
from contrada.gossip.line_exchange import STAMP_AHEAD_MAX_US, LineExchange, fit_lines
from contrada.gossip.parameters import Parameters
from contrada.gossip.views import Condensate, HeldLine, View, condense_table
from contrada.model import FilterSet

JOIN_WAIT_ROUNDS: Final = 3
"""Rounds after which a newcomer asks the next participant."""

Outgoing = list[tuple[str, messages.GossipMessage]]
"""Messages by place."""


class GroupMembership:
    """The view of one participant and its maintenance, as a pure state machine.

    Invariant: `validate`. `exchange` has the messages about views.
    """

    def __init__(
        self,
        contact: messages.Contact,
        space: AddressSpace,
        parameters: Parameters,
        conduct: GroupPolicy,
        rng: Chance,
        limits: GossipLimits = GossipLimits(),
    ) -> None:
        self.limits = limits
        self.contact = contact
        self.view = View(space, contact.address)
        self.parameters = parameters
        self.conduct = conduct
        self.is_in = False
        self._rng = rng
        self._desired: Sequence[FilterSet] = ()
        self._interests: bytes | None = None
        self._lost: dict[str, messages.Contact] = {}
        self._joining: Newcomer | None = None
        self._condensates: dict[int, tuple[int, Condensate]] = {}
        self._silence = [silence_rounds(parameters, level) for level in range(1, space.levels + 1)]
        self.exchange = LineExchange(
            self.view, contact, parameters.redundancy, self._silence, limits
        )

    # --- calls of the user ---------------------------------------------------------------------

    def set_interests(self, filters: Sequence[FilterSet]) -> None:
        """Sets the filters of the participant; others learn them from the next round on."""
        self._desired, self._interests = filters, None

    def _own_interests(self) -> bytes:
        """Returns the interests of the own line, condensed at first use."""
        if self._interests is None:
            self._interests = encode_interests(self._desired)
        return self._interests

    def start_group(self, now_us: int) -> None:
        """Starts a group of one."""
        self.is_in, self._joining = True, None
        self._write_lines(now_us)

    def join(self, places: Sequence[str], now_us: int) -> Outgoing:
        """Asks to join the group of these places.

        A participant of another group joins both groups.
        """
        self._joining = Newcomer(places, self.limits.join_redirects_max)
        return self._ask_join(now_us)

    def leave(self, now_us: int) -> Outgoing:
        """Announces the departure to R + F of the nearest participants.

        The last participant of a subsystem removes its line, too.
        """
        self._joining = None
        if not self.is_in:
            return []
        gone: list[messages.AgedLine] = []
        others: list[messages.Contact] = []
        for table in self.view.tables:
            digit = self.view.digit(table.level)
            others = [each.contact for each in table.known() if each.contact != self.contact]
            if table.level == 1 or not self.view.table(table.level - 1).live():
                held = table.get(digit)
                stamp = self._stamp(table.level, held, now_us)
                line = messages.ViewLine(digit, stamp, encode_interests([]), 0, ())
                table.put(line, self.view.round)
                gone.append(messages.AgedLine(table.level, 0, line))
            if others:  # They write the lines of the subsystems above.
                break
        self.is_in = False
        self._forget_others()
        aged = min(len(others), self.parameters.redundancy + self.parameters.fanout)
        update = messages.Update(self.contact, tuple(gone))
        return [(each.place, update) for each in self._rng.sample(others, aged)]

    def _forget_others(self) -> None:
        """Empties the view except for the own line, since a later line needs a later stamp."""
        for table in self.view.tables:
            for held in list(table):
                if table.level > 1 or not self.view.is_own(1, held.line.digit):
                    table.forget(held.line.digit)
        self._lost.clear()
        self.exchange.forget()

    # --- rounds --------------------------------------------------------------------------------

    def advance(self, now_us: int) -> Outgoing:
        """Starts a round: old lines become silent, own lines are written, a newcomer asks again."""
        self.view.round += 1
        asked = self._ask_join(now_us)
        if not self.is_in or self.conduct.is_static:
            return asked
        probes = self._age_lines()
        self._write_lines(now_us)
        return asked + probes

    def partners(self) -> list[messages.Contact]:
        """Returns the receivers of the digest: F others, strangers, and rarely a lost contact.

        Each of the F is drawn at a level that is drawn first. Source: EPFL 2503 §6.4.2.
        """
        if not self.is_in or self.conduct.is_static:
            return []
        chosen = dict(self.exchange.strangers)
        self.exchange.strangers.clear()
        # About once in a silence: cheap, and enough to join the parts of a group again.
        if self._lost and not self._rng.randrange(self._silence[0]):
            contact = [*self._lost.values()][self._rng.randrange(len(self._lost))]
            chosen[contact.place] = contact
        for _ in range(self.parameters.fanout):
            level = 1 + self._rng.randrange(len(self.view.tables))
            known = self.view.table(level).known()
            others = [each.contact for each in known if each.contact != self.contact]
            if others:
                contact = others[self._rng.randrange(len(others))]
                chosen[contact.place] = contact
        return list(chosen.values())

    def digest_for(self, contact: messages.Contact) -> tuple[messages.LineStamp, ...]:
        """Returns the digest of the common levels, sampled where it has too many lines."""
        stamps = self.view.stamps(distance(self.contact.address, contact.address))
        if len(stamps) < messages.LINES_SENT_MAX:
            return stamps
        return tuple(self._rng.sample(stamps, messages.LINES_SENT_MAX))

    def _age_lines(self) -> Outgoing:
        """Lets old lines become silent and then forgotten, with probes before."""
        probes: Outgoing = []
        if self.exchange.doubts:
            for table in self.view.tables:
                for held in table:
                    # Ages do not grow: the own clock may be the cause of the silence.
                    held.since += not self.view.is_own(table.level, held.line.digit)
            return probes
        for table, silence in zip(self.view.tables, self._silence, strict=True):
            for held in list(table):
                age = self.view.round - held.since
                if age < silence or (table.level == 1 and self.view.is_own(1, held.line.digit)):
                    continue
                if held.is_live:
                    pings = self.conduct.pings_bottom and table.level == 1
                    if pings and held.probes < PINGS_MAX:
                        held.probes += 1
                        probes.append((held.line.delegates[0].place, messages.Probe(self.contact)))
                    else:
                        table.silence(held)
                        self._add_lost(held.line.delegates)
                elif age >= 2 * silence + PINGS_MAX:
                    table.forget(held.line.digit)
        return probes

    def _add_lost(self, contacts: Iterable[messages.Contact]) -> None:
        """Adds lost contacts; of too many the earliest are forgotten."""
        for contact in contacts:
            if contact != self.contact:
                self._lost[contact.place] = contact
        while len(self._lost) > self.limits.lost_max:
            del self._lost[next(iter(self._lost))]

    def _write_lines(self, now_us: int) -> None:
        """Writes the own line, and those of subsystems with this delegate."""
        self._write(1, Condensate(self._own_interests(), 1, (self.contact,)), now_us)
        for level in range(2, len(self.view.tables) + 1):
            below = self.view.table(level - 1)
            known = self._condensates.get(level)
            if known is None or known[0] != below.version:
                redundancy, accuracy = self.parameters.redundancy, self.conduct.accuracy(level)
                what = condense_table(below, redundancy, accuracy, self.conduct.delegates)
                known = self._condensates[level] = below.version, what
            if self.contact in known[1].delegates:
                self._write(level, known[1], now_us)

    def _write(self, level: int, what: Condensate, now_us: int) -> None:
        table, digit = self.view.table(level), self.view.digit(level)
        held = table.get(digit)
        if held is not None and held.is_live:
            line = held.line
            is_same = (line.interests, line.count, line.delegates) == what
            if is_same and self.view.round - held.since < REFRESH_ROUNDS:
                return
        stamp = self._stamp(level, held, now_us)
        table.put(messages.ViewLine(digit, stamp, *what), self.view.round)

    def _stamp(self, level: int, held: HeldLine | None, now_us: int) -> int:
        """Returns the clock's time, later than the stamp before, and acceptable to others.

        All others would refuse the stamps of a clock far ahead. So if it is far ahead of the latest
        echo of its own stamps, time is counted from that echo.
        """
        stamp = now_us if held is None else max(now_us, held.line.timestamp_us + 1)
        echo_us = self.exchange.echoes.get(level)
        if echo_us is None or stamp <= echo_us + STAMP_AHEAD_MAX_US // 2:
            return stamp
        return echo_us + REFRESH_ROUNDS * self.parameters.period_us

    def mark_alive(self, contact: messages.Contact) -> None:
        """Marks the sender of a message as alive."""
        self._lost.pop(contact.place, None)
        if distance(self.contact.address, contact.address) != 1:
            return
        held = self.view.table(1).get(contact.address[-1])
        if held is not None and held.is_live and held.line.delegates[0] == contact:
            held.since, held.probes = self.view.round, 0

    # --- joining -------------------------------------------------------------------------------

    def admit(self, message: messages.AskJoin, place: str, now_us: int) -> Outgoing:
        """Answers a newcomer with its lines, or with nearer participants."""
        newcomer, line = message.sender, message.line
        if line.digit != newcomer.address[-1] or line.delegates != (newcomer,):
            self.exchange.refused["line of another"] += 1
            return []
        apart = distance(self.contact.address, newcomer.address)
        table = self.view.table(max(apart, 1))
        held = table.get(newcomer.address[-max(apart, 1)])
        is_there = held is not None and held.is_live
        if apart <= 1:
            taken = is_there and held and held.line.delegates[0].place != newcomer.place
            if apart == 0 or taken:
                self.exchange.refused["address taken"] += 1
                return [(place, messages.TurnAway(self.contact, "the address is taken"))]
            self.exchange.admit(newcomer, line, now_us)
        elif is_there and held:
            # One at the newcomer's place may be itself, which returns to the group.
            nearer = tuple(each for each in held.line.delegates if each.place != newcomer.place)
            if nearer:
                return [(place, messages.Redirect(self.contact, nearer))]
        lines = self.view.aged_lines(max(apart, 1))
        return [(place, messages.Welcome(self.contact, fit_lines(lines)))]

    def follow_redirect(self, message: messages.Redirect) -> None:
        """Continues with nearer participants."""
        if self._joining is None:
            self.exchange.refused["redirect"] += 1
            return
        own = self.contact
        before = distance(own.address, message.sender.address)
        # Only nearer ones than the sender, so that redirections end.
        nearer = [
            each.place
            for each in message.contacts
            if self.view.space.holds(each.address) and distance(own.address, each.address) < before
        ]
        self._joining.point_to(nearer)

    def accept_welcome(self, message: messages.Welcome, now_us: int) -> bool:
        """Accepts the first lines. Returns whether the participant is in the group by that."""
        if self._joining is None:
            self.exchange.refused["welcome"] += 1
            return False
        self.exchange.learn(message, now_us)
        self.is_in, self._joining = True, None
        self._write_lines(now_us)
        self.exchange.strangers[message.sender.place] = message.sender
        return True

    def accept_refusal(self) -> bool:
        """Ends the attempt to join. Returns whether there was one."""
        wanted, self._joining = self._joining is not None, None
        if not wanted:
            self.exchange.refused["turn away"] += 1
        return wanted

    def _ask_join(self, now_us: int) -> Outgoing:
        joining = self._joining
        if joining is None or not joining.is_due():
            return []
        digit = self.view.digit(1)
        stamp = self._stamp(1, self.view.table(1).get(digit), now_us)
        line = messages.ViewLine(digit, stamp, self._own_interests(), 1, (self.contact,))
        return [(joining.next_place(), messages.AskJoin(self.contact, line))]

    # --- invariants ----------------------------------------------------------------------------

    def settle(self, lines: Iterable[messages.AgedLine]) -> None:
        """Enters a group with a known view."""
        for aged in lines:
            self.view.table(aged.level).put(aged.line, self.view.round - aged.age)
        self.is_in, self._joining = True, None

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold. Cost: the whole view."""
        redundancy = self.parameters.redundancy
        assert len(self._lost) <= self.limits.lost_max, "a lost participant was not forgotten"
        for table in self.view.tables:
            assert len(table) <= self.view.space.radix(table.level), "a line for each digit"
            for held in table:
                fault = self.view.line_faults(table.level, held.line, redundancy)
                assert not fault, f"level {table.level}, line {held.line.digit}: {fault}"
                assert held.since <= self.view.round, "a line has a stamp of a later round"
            live = [held for held in table if held.is_live]
            assert table.live() == sorted(live, key=lambda held: held.line.digit), "live lines"
        if self.is_in:
            own = self.view.table(1).get(self.view.digit(1))
            assert own is not None, "a participant has no line"
            assert own.is_live, "a participant is not alive"
            assert own.line.delegates == (self.contact,), "one's line is one's own"


class Newcomer:
    """The nearer participants of redirections first, then the given places in turn."""

    def __init__(self, places: Sequence[str], redirects_max: int = 256) -> None:
        self._redirects_max = redirects_max
        self._next: list[str] = []
        self._wait = 0
        self._places = list(places)
        self._turn = 0

    def point_to(self, places: Sequence[str]) -> None:
        """Adds nearer participants, asked in the next round."""
        self._next = [*places, *self._next][: self._redirects_max]
        self._wait = 0

    def is_due(self) -> bool:
        """Counts a round. Returns whether a participant is to be asked in it."""
        self._wait -= 1
        return self._wait < 0 and bool(self._places)

    def next_place(self) -> str:
        """Returns the next place to ask."""
        self._wait = JOIN_WAIT_ROUNDS
        if self._next:
            return self._next.pop(0)
        self._turn += 1
        return self._places[(self._turn - 1) % len(self._places)]
