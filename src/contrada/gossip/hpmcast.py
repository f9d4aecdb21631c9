"""The three protocols: `Hpmcast`, and `Pmcast` and `Rfpbcast` without a hierarchy.

An event is gossiped among the delegates of the top first, and descends level by level. A contact
counts as interested if its subsystem is. At each level the event has the number of rounds expected
to infect those (`rounds`).

Source: EPFL 2503 §6.2, §6.5.1, figures 6.1, 6.2, 6.6; §6.5.4 (a threshold D of the audience).
"""

from collections.abc import Callable

from contrada.errors import InvalidValueError
from contrada.gossip.addresses import AddressSpace
from contrada.gossip.condensation import is_interested
from contrada.gossip.parameters import Parameters
from contrada.gossip.participant import GossipParticipant
from contrada.gossip.views import KnownContact
from contrada.model import Notification


class Hpmcast(GossipParticipant):
    """A participant of hpmcast. Raises InvalidValueError where l is not that of the addresses."""

    def _checked(self, space: AddressSpace, parameters: Parameters) -> Parameters:
        if space.levels != parameters.levels:
            raise InvalidValueError(parameters.levels, f"l: addresses have {space.levels} digits")
        return parameters

    def _counts(self, level: int, event: Notification) -> Callable[[KnownContact], bool]:
        if self.conduct.broadcasts:
            return anybody
        answers: dict[int, bool] = {}  # One evaluation for all delegates of a line.

        def wants(known: KnownContact) -> bool:
            key = id(known.filters)
            if key not in answers:
                answers[key] = is_interested(known.filters, event)
            return answers[key]

        least = self.parameters.audience
        if not least:
            return wants
        known = self.membership.view.table(level).known()
        if not 0 < sum(map(wants, known)) < least:
            return wants
        first = {each.contact for each in known[:least]}
        return lambda each: each.contact in first or wants(each)


def anybody(_: KnownContact) -> bool:
    """Returns True: a broadcast evaluates no filter."""
    return True


class Pmcast(Hpmcast):
    """Probabilistic multicast: hpmcast with one level, so a sender knows all interested others.

    Raises InvalidValueError where there is more than one level.
    """

    def _checked(self, space: AddressSpace, parameters: Parameters) -> Parameters:
        if space.levels != 1:
            raise InvalidValueError(space.levels, "l: without a hierarchy an address is one digit")
        return super()._checked(space, parameters)


class Rfpbcast(Pmcast):
    """Probabilistic broadcast, filtered by the receiver: events are sent to any others.

    Raises InvalidValueError where there is more than one level.
    """

    def _counts(self, level: int, event: Notification) -> Callable[[KnownContact], bool]:
        return anybody
