"""`qos_of`: the delivery guarantees of a class, resolved from all semantic types that it inherits.

An order extends Reliable, as does Certified; CausalOrder extends FIFOOrder. Of two contradictory
types one wins: Reliable over Expiring, an order over Prioritized. Reliable obvents pass through a
log, which has an order, so Reliable wins over Prioritized, too.

Source: EPFL 2503 §5.2.2, figures 5.3 and 5.4.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.errors import InvalidNotificationError, InvalidObventError
from contrada.model import Envelope
from contrada.model.algebra.notification import PRIORITY_DEFAULT
from contrada.typed.object_parts import known_of
from contrada.typed.type_names import ancestors_of, names_of

RELIABLE: Final = "Reliable"
CERTIFIED: Final = "Certified"
FIFO: Final = "FIFOOrder"
CAUSAL: Final = "CausalOrder"
TOTAL: Final = "TotalOrder"
# The names of types are marks on the wire, so these two keep their former names.
EXPIRING: Final = "Timely"
PRIORITIZED: Final = "Prioritary"


@dataclass(frozen=True, slots=True)
class Qos:
    """The resolved guarantees of a class.

    `delivery` is its delivery class as text; `overruled` lists inherited guarantees that do not
    hold, with the reasons.
    """

    delivery: str
    is_expiring: bool
    is_prioritized: bool
    overruled: tuple[str, ...]
    _fixed: Envelope = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fixed", Envelope(delivery=self.delivery))

    @property
    def is_reliable(self) -> bool:
        """Whether the delivery is better than best effort."""
        return self.delivery != BEST_EFFORT

    def envelope_of(self, obvent: Any) -> Envelope:
        """Returns the envelope of an object, not yet stamped. Raises InvalidObventError."""
        if not self.is_expiring and not self.is_prioritized:
            return self._fixed
        ttl_us = _ttl_us(obvent) if self.is_expiring else None
        priority = _declared(obvent, "priority", "Prioritized") if self.is_prioritized else None
        if priority is None:
            priority = PRIORITY_DEFAULT
        try:
            return Envelope(delivery=self.delivery, ttl_us=ttl_us, priority=priority)
        except InvalidNotificationError as error:
            raise InvalidObventError(names_of(known_of(type(obvent)))[0], str(error)) from None


NOTHING: Final = Qos(BEST_EFFORT, False, False, ())


def qos_of(cls: type[Any]) -> Qos:
    """Returns the guarantees of a class.

    Raises InvalidObventError for two total orders, and for an order with too long a name. Cost: one
    pass over its ancestors.
    """
    inherited = {name for ancestor in ancestors_of(cls) for name in names_of(ancestor)}
    overruled = []
    is_expiring, is_prioritized = EXPIRING in inherited, PRIORITIZED in inherited
    is_ordered = bool(inherited & {FIFO, TOTAL})
    if RELIABLE in inherited and is_expiring:
        overruled.append("Expiring: it is reliable, so it is delivered however late")
    if RELIABLE in inherited and is_prioritized:
        reason = "has an order" if is_ordered else "is reliable, and so passes through a log"
        overruled.append(f"Prioritized: it {reason}")
    if RELIABLE not in inherited:
        is_plain = not is_expiring and not is_prioritized
        return NOTHING if is_plain else Qos(BEST_EFFORT, is_expiring, is_prioritized, ())
    words = ["certified" if CERTIFIED in inherited else "reliable"]
    if FIFO in inherited:
        words.append("causal" if CAUSAL in inherited else "fifo")
    if TOTAL in inherited:
        words.append(f"total:{_sequence_of(cls)}")
    try:
        return Qos(" ".join(words), False, False, tuple(overruled))
    except InvalidNotificationError as error:
        raise InvalidObventError(names_of(cls)[0], str(error)) from None


def _sequence_of(cls: type[Any]) -> str:
    """Returns the name of the total order that a class shares with its related types."""
    ordered = [it for it in ancestors_of(cls) if _is_ordered(it)]
    roots = [it for it in ordered if not any(_is_ordered(above) for above in ancestors_of(it)[1:])]
    name = names_of(roots[0])[-1]
    if len(roots) > 1:
        both = " and ".join(sorted(names_of(it)[0] for it in roots))
        reason = f"it inherits two total orders, of {both}; let one of these inherit the other"
        raise InvalidObventError(names_of(cls)[0], reason)
    if " " in name:
        raise InvalidObventError(name, "the name of a total order has no blanks")
    return name


def _is_ordered(cls: type[Any]) -> bool:
    names = [name for ancestor in ancestors_of(cls)[1:] for name in names_of(ancestor)]
    return TOTAL in names


def _ttl_us(obvent: Any) -> int:
    ttl_s = _declared(obvent, "ttl_s", "Expiring")
    if type(ttl_s) not in (int, float) or not 0 < ttl_s < math.inf:
        reason = f"ttl_s = {ttl_s!r}: expected seconds above 0"
        raise InvalidObventError(names_of(known_of(type(obvent)))[0], reason)
    return max(round(float(ttl_s) * 1e6), 1)


def _declared(obvent: Any, name: str, mix_in: str) -> Any:
    try:
        return getattr(obvent, name)
    except AttributeError:
        reason = f"it is {mix_in} and has no {name}: a field, a property or a class attribute"
        raise InvalidObventError(names_of(known_of(type(obvent)))[0], reason) from None
