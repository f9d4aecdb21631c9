"""`Pmcast`: probabilistic multicast without a hierarchy.

Every participant knows all others with their filters, so a sender sends only to interested ones. It
is hpmcast restricted to one level.

Source: EPFL 2503 §6.2.2, figure 6.2.
"""

from contrada.errors import InvalidValueError
from contrada.gossip.addresses import AddressSpace
from contrada.gossip.hpmcast import Hpmcast
from contrada.gossip.parameters import Parameters


class Pmcast(Hpmcast):
    """A participant of pmcast. Raises InvalidValueError where there is more than one level."""

    def _checked(self, space: AddressSpace, parameters: Parameters) -> Parameters:
        if space.levels != 1:
            raise InvalidValueError(space.levels, "l: without a hierarchy an address is one digit")
        return super()._checked(space, parameters)
