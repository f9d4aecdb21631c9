"""A predicate over the objects of a type as a rule: filters, and what they leave to its subscriber.

Source: EPFL 2503 §5.3.3, §5.3.4, §6.6.1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from contrada.dialects.rules import Rule
from contrada.model import Filter, FilterSet, Notification
from contrada.model.languages.atoms import failures
from contrada.service import Predicate
from contrada.typed.conditions import Condition
from contrada.typed.lifting import lift
from contrada.typed.publishing import type_of
from contrada.typed.receiving import received
from contrada.typed.shapes import Shape


def lifted_rule(cls: type[Any], predicate: Predicate[Any]) -> Rule:
    """See `Obvent.lift`."""
    kind = type_of(cls)
    if isinstance(predicate, Condition):
        predicate = predicate.predicate(cls)
    return lifted_rule_of(kind.carrier.shape, kind.filters, partial(received, cls), predicate)


def lifted_rule_of(
    shape: Shape,
    asked_for: Filter,
    read: Callable[[Notification], Any],
    predicate: Predicate[Any],
) -> Rule:
    """The same for a shape, what is asked for beside the predicate, and how objects are read."""
    lifted = lift(shape, predicate)
    filters = asked_for & lifted.filters
    members = FilterSet(filters.filters)
    name = getattr(predicate, "__qualname__", type(predicate).__qualname__)
    if lifted.is_exact:
        return Rule(name, members)
    asked, takes_envelope = lifted.predicate, lifted.takes_envelope

    def holds(notification: Notification) -> bool:
        # An object of its own: what the predicate does to it, its subscriber does not see.
        made = read(notification)
        try:
            return bool(asked(made, notification.envelope) if takes_envelope else asked(made))
        except Exception:  # noqa: BLE001 - the subscriber's own code
            failures.add(name)
            return False

    holds.__qualname__ = name  # What it cannot be asked about is counted under the same name.
    return Rule(name, members, lifted.explain(), holds)
