"""`GossipWorld`: real participants of a group in virtual time, with loss, delay and crashes.

Participants are the objects that serve real groups; their messages are delayed, and some are lost.
A run is a pure function of its seed. `faults` compares all views with the true group.

In a world that is *in step* all periods begin together and every message, and the answer to its
answer, arrives before the next: the rounds of the analysis. Otherwise each participant has its own
phase.

Source: EPFL 2503 §6.2.1 (assumptions), §6.4.2.
"""

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from contrada.gossip import gossip_messages as messages
from contrada.gossip.addresses import AddressSpace, Branch, LogicalAddress, address_text, branch_of
from contrada.gossip.condensation import encode_interests
from contrada.gossip.group_policy import GroupPolicy
from contrada.gossip.hpmcast import Hpmcast
from contrada.gossip.parameters import Parameters
from contrada.gossip.views import ViewTable, condense_table
from contrada.model import FilterSet, Notification

START_US: Final = 1_700_000_000_000_000
"""The initial time of all clocks."""

_ANYTHING: Final = "anything"

Interests = Mapping[LogicalAddress, FilterSet]
"""The participants of a group, with the filters of each."""


@dataclass(slots=True)
class _WorldMember:
    participant: Hpmcast
    filters: FilterSet
    given: set[messages.EventId] = field(default_factory=set)
    clock_ahead_us: int = 0


class GossipWorld:
    """A group in virtual time. `rounds` advances the time; requests take effect at once.

    Args:
        parameters: of the group; messages are lost with its ε.
        space: the addresses; by default regular, of a and l.
        protocol: the class of the participants.
        in_step: whether all gossip in common rounds.
        as_bytes: whether messages travel as bytes.
        checks: whether each participant is validated after each event.
    """

    def __init__(
        self,
        parameters: Parameters,
        seed: int,
        *,
        space: AddressSpace | None = None,
        protocol: Callable[..., Hpmcast] = Hpmcast,
        conduct: GroupPolicy | None = None,
        in_step: bool = False,
        as_bytes: bool = False,
        checks: bool = False,
    ) -> None:
        self.parameters = parameters
        self.space = space or AddressSpace.regular(parameters.levels, parameters.branching)
        self.conduct = conduct or GroupPolicy()
        self.now_us = START_US
        self.messages = 0
        self._protocol = protocol
        self._in_step, self._as_bytes, self._checks = in_step, as_bytes, checks
        self._rng = random.Random(seed)
        self._inhabitants: dict[str, _WorldMember] = {}
        self._queue: list[tuple[int, int, str, messages.GossipEvent]] = []
        self._number = 0
        self._taps: list[Callable[[str, messages.SendGossip], bool]] = []

    # --- members -------------------------------------------------------------------------------

    def settle(self, interests: Interests) -> None:
        """Adds a group with correct views. Cost: as many lines as all views have."""
        tables = self._true_tables(interests)
        for address, filters in interests.items():
            participant = self._move_in(address, filters)
            participant.membership.settle(
                messages.AgedLine(level, 0, held.line)
                for level in range(1, self.space.levels + 1)
                for held in tables[branch_of(address, level)].live()
            )

    def join(
        self, address: LogicalAddress, filters: FilterSet, *through: LogicalAddress
    ) -> Hpmcast:
        """Adds a newcomer that joins through participants; without any it founds a group."""
        participant = self._move_in(address, filters)
        self._happen(address_text(address), messages.JoinGroup(tuple(map(address_text, through))))
        return participant

    def leave(self, address: LogicalAddress) -> None:
        """Lets a participant leave, and stops it."""
        self._happen(address_text(address), messages.LeaveGroup())
        del self._inhabitants[address_text(address)]

    def crash(self, address: LogicalAddress) -> None:
        """Stops a participant without a message."""
        del self._inhabitants[address_text(address)]

    def want(self, address: LogicalAddress, filters: FilterSet) -> None:
        """Changes the filters of a participant."""
        self._inhabitants[address_text(address)].filters = filters
        self._happen(address_text(address), messages.AddInterest(_ANYTHING, filters))

    def jump_clock(self, address: LogicalAddress, by_us: int) -> None:
        """Moves a participant's clock forward, or back."""
        self._inhabitants[address_text(address)].clock_ahead_us += by_us

    def multicast(self, address: LogicalAddress, event: Notification) -> messages.EventId:
        """Publishes an event at a participant."""
        self._happen(address_text(address), messages.Multicast(event))
        return messages.event_id(event)

    def deliver(
        self, address: LogicalAddress, event: messages.GossipEvent
    ) -> list[messages.GossipEffect]:
        """Hands any event to a participant. Returns its effects."""
        return self._happen(address_text(address), event)

    def tap(self, passes: Callable[[str, messages.SendGossip], bool]) -> None:
        """Filters all sent messages: rejected ones are lost."""
        self._taps.append(passes)

    def participant(self, address: LogicalAddress) -> Hpmcast:
        """Returns the participant with an address."""
        return self._inhabitants[address_text(address)].participant

    @property
    def addresses(self) -> list[LogicalAddress]:
        """The addresses of the group, in order."""
        return sorted(self.interests)

    @property
    def interests(self) -> dict[LogicalAddress, FilterSet]:
        """The participants with the filters of each."""
        return {
            each.participant.membership.contact.address: each.filters
            for each in self._inhabitants.values()
        }

    def _move_in(self, address: LogicalAddress, filters: FilterSet) -> Hpmcast:
        place = address_text(address)
        contact, rng = messages.Contact(address, place), random.Random(self._rng.getrandbits(64))
        participant = self._protocol(contact, self.space, self.parameters, rng, self.conduct)
        self._inhabitants[place] = _WorldMember(participant, filters)
        self._happen(place, messages.AddInterest(_ANYTHING, filters))
        period = self.parameters.period_us
        wait = period - (self.now_us - START_US) % period
        after = wait if self._in_step else 1 + self._rng.randrange(period)
        self._push(after, place, messages.Tick())
        return participant

    # --- time ----------------------------------------------------------------------------------

    def rounds(self, count: int) -> None:
        """Lets `count` periods pass."""
        until = self.now_us + count * self.parameters.period_us
        while self._queue and self._queue[0][0] <= until:
            self.now_us, _, place, event = heapq.heappop(self._queue)
            if place in self._inhabitants:
                if isinstance(event, messages.Tick):
                    self._push(self.parameters.period_us, place, event)
                self._happen(place, event)
        self.now_us = until

    def rounds_until(self, holds: Callable[[], bool], most: int) -> int:
        """Lets periods pass until a condition holds, at most so many. Returns their number."""
        for count in range(most):
            if holds():
                return count
            self.rounds(1)
        return most

    def _push(self, delay_us: int, place: str, event: messages.GossipEvent) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._number, place, event))

    def _happen(self, place: str, event: messages.GossipEvent) -> list[messages.GossipEffect]:
        inhabitant = self._inhabitants[place]
        participant = inhabitant.participant
        effects = participant.handle(event, self.now_us + inhabitant.clock_ahead_us)
        for effect in effects:
            if isinstance(effect, messages.SendGossip):
                self._send(place, effect)
            elif isinstance(effect, messages.GiveEvent):
                identity = messages.event_id(effect.event)
                assert identity not in inhabitant.given, "an event is given once"
                inhabitant.given.add(messages.event_id(effect.event))
        if self._checks:
            participant.validate()
        return effects

    def _send(self, place: str, effect: messages.SendGossip) -> None:
        self.messages += 1
        if not all(passes(place, effect) for passes in self._taps):
            return
        if self._rng.random() < self.parameters.loss:
            return
        # In step an answer to an answer arrives before the next round; else two rounds may pass.
        longest = self.parameters.period_us // 4 if self._in_step else 2 * self.parameters.period_us
        delay = 1 + self._rng.randrange(longest)
        event: messages.GossipEvent = messages.MessageReceived(place, effect.message)
        if self._as_bytes:
            event = messages.Datagram(place, messages.encode_gossip(effect.message))
        self._push(delay, effect.place, event)

    # --- results -------------------------------------------------------------------------------

    def given(self, identity: messages.EventId) -> set[LogicalAddress]:
        """Returns the participants that were handed an event."""
        return {
            each.participant.membership.contact.address
            for each in self._inhabitants.values()
            if identity in each.given
        }

    def infected(self, identity: messages.EventId) -> set[LogicalAddress]:
        """Returns the participants that received an event, interested or not."""
        return {
            each.participant.membership.contact.address
            for each in self._inhabitants.values()
            if each.participant.dissemination.has(identity)
        }

    def faults(self) -> list[str]:
        """Returns the differences of all views from the true group; empty if every view is exact.

        Each line must count the participants of its subsystem, have exactly their filters, and name
        the right delegates.
        """
        tables = self._true_tables(self.interests)
        found: list[str] = []
        for place, inhabitant in self._inhabitants.items():
            view = inhabitant.participant.membership.view
            for table in view.tables:
                truth = tables[branch_of(view.address, table.level)]
                actual = {held.line.digit: held.mark for held in table.live()}
                expected = {held.line.digit: held.mark for held in truth.live()}
                if actual != expected:
                    digits = actual.keys() | expected.keys()
                    wrong = sorted(it for it in digits if actual.get(it) != expected.get(it))
                    found.append(f"{place}: level {table.level}, lines {wrong}")
        return found

    def _true_tables(self, interests: Interests) -> dict[Branch, ViewTable]:
        """Returns the tables of all branches, built from the participants."""
        lines: dict[Branch, list[messages.ViewLine]] = defaultdict(list)
        for address, filters in sorted(interests.items()):
            contact = messages.Contact(address, address_text(address))
            packed = encode_interests([filters])
            line = messages.ViewLine(address[-1], START_US, packed, 1, (contact,))
            lines[branch_of(address, 1)].append(line)
        tables: dict[Branch, ViewTable] = {}
        for level in range(1, self.space.levels + 1):
            lines, below = defaultdict(list), lines
            accuracy = self.conduct.accuracy(level + 1)
            for branch, of in below.items():
                tables[branch] = table = ViewTable(level)
                for line in of:
                    table.put(line, 0)
                if level < self.space.levels:
                    what = condense_table(
                        table, self.parameters.redundancy, accuracy, self.conduct.delegates
                    )
                    lines[branch[:-1]].append(messages.ViewLine(branch[-1], START_US, *what))
        return tables
