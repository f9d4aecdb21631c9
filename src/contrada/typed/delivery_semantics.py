"""The semantic types, by which a class chooses the delivery of its objects.

    class Trade(Certified, CausalOrder, StockObvent): ...

They are obvent types themselves: a subscription to `Reliable` includes all reliable obvents.
`qos_of` resolves a class that inherits several of them.

Source: EPFL 2503 §5.2.2, figure 5.3.
"""

from typing import ClassVar

from contrada.errors import InvalidObventError
from contrada.typed.obvent import Obvent
from contrada.typed.obvent_type import type_of
from contrada.typed.qos import EXPIRING, PRIORITIZED


class Unreliable(Obvent, name="Unreliable"):
    """Best-effort delivery; the default."""

    __slots__ = ()


class Reliable(Obvent, name="Reliable"):
    """Each subscriber that is up long enough gets each object once."""

    __slots__ = ()


class Certified(Reliable, name="Certified"):
    """As Reliable, also for subscribers that disconnect or fail, and when servers restart."""

    __slots__ = ()


class FIFOOrder(Reliable, name="FIFOOrder"):
    """Objects of one publisher are delivered in the order of their publication."""

    __slots__ = ()


class CausalOrder(FIFOOrder, name="CausalOrder"):
    """An object is delivered after all objects that its publisher had received."""

    __slots__ = ()


class TotalOrder(Reliable, name="TotalOrder"):
    """All subscribers get the objects in one order, that of the most general such type."""

    __slots__ = ()


class Expiring(Obvent, name=EXPIRING):
    """The object expires `ttl_s` seconds after its publication, the `@time` of its envelope.

    `ttl_s` is a field, a property or a class attribute.
    """

    __slots__ = ()


class Prioritized(Obvent, name=PRIORITIZED):
    """Objects with a higher `priority`, 0 to 9, are delivered first.

    `priority` is a field, a property or a class attribute.
    """

    __slots__ = ()


class Disseminated(Obvent, name="Disseminated"):
    """Objects travel by the dissemination that the class attribute `dissemination` names.

    The name is registered with each service that publishes or subscribes them
    (`Service.register_dissemination`). Delivery is best effort, so the class is not Reliable.
    """

    __slots__ = ()

    dissemination: ClassVar[str]

    @classmethod
    def chosen_dissemination(cls) -> str:
        """Returns the name.

        Raises InvalidObventError if there is none, or if the class guarantees more than best
        effort.
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
