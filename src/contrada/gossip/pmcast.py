"""`Pmcast`: probabilistic multicast without a hierarchy.

All know all, so that a sender knows what each wants, and sends to nobody else. It is hpmcast with
one level, which only it can be.

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
