"""The types by which a class chooses the delivery of its objects.

    class Trade(Certified, CausalOrder, StockObvent): ...

They are obvent types themselves: a subscriber to `Reliable` gets all reliable obvents. `qos_of`
resolves a class that inherits several of them.

Source: EPFL 2503 §5.2.2, figure 5.3.
"""

from typing import ClassVar

from contrada.errors import InvalidObventError
from contrada.typed.obvent import Obvent
from contrada.typed.obvent_type import type_of
from contrada.typed.qos import EXPIRING, PRIORITIZED


class Unreliable(Obvent, name="Unreliable"):
    """A best-effort attempt is made to deliver it. Assumed where nothing else is said."""

    __slots__ = ()


class Reliable(Obvent, name="Reliable"):
    """Every subscriber that is up for long enough delivers it, once."""

    __slots__ = ()


class Certified(Reliable, name="Certified"):
    """So does one that disconnects or fails for a time, and servers that crash and come back."""

    __slots__ = ()


class FIFOOrder(Reliable, name="FIFOOrder"):
    """Objects of one publisher come in the order in which it published them."""

    __slots__ = ()


class CausalOrder(FIFOOrder, name="CausalOrder"):
    """An object comes after all that its publisher knew of."""

    __slots__ = ()


class TotalOrder(Reliable, name="TotalOrder"):
    """All subscribers get them in one order: that of the most general type with this order."""

    __slots__ = ()


class Expiring(Obvent, name=EXPIRING):
    """It expires `ttl_s` seconds after it was published: a field, a property or a class attribute.

    Its birth is the `@time` of its envelope.
    """

    __slots__ = ()


class Prioritized(Obvent, name=PRIORITIZED):
    """What has a higher `priority` goes first, 0 to 9: a field, a property or a class attribute."""

    __slots__ = ()


class Disseminated(Obvent, name="Disseminated"):
    """It travels by the dissemination that its class names: a class attribute `dissemination`.

    What that name stands for is registered with each service by which it is published or
    subscribed (`Service.register_dissemination`). A best effort is made, so it is not Reliable.
    """

    __slots__ = ()

    dissemination: ClassVar[str]

    @classmethod
    def chosen_dissemination(cls) -> str:
        """The name.

        Raises InvalidObventError where there is none, or the class promises more than best effort.
        """
        kind = type_of(cls)
        name: object = getattr(cls, "dissemination", None)
        if not isinstance(name, str) or not name:
            reason = f"it is Disseminated and has dissemination = {name!r}: a class attribute, text"
            raise InvalidObventError(kind.name, reason)
        if kind.qos.is_reliable:
            reason = f"it is Disseminated, at best effort, and {kind.qos.delivery}: choose one"
            raise InvalidObventError(kind.name, reason)
        return name
