"""A predicate over the objects of a type as a rule: filters, and what they leave to its subscriber.

Source: EPFL 2503 §5.3.3, §5.3.4, §6.6.1.
"""

from typing import Any

from contrada.dialects.rules import Rule
from contrada.model import FilterSet, Notification
from contrada.model.languages.atoms import failures
from contrada.service import Predicate
from contrada.typed.conditions import Condition
from contrada.typed.lifting import lift
from contrada.typed.publishing import type_of
from contrada.typed.receiving import received


def lifted_rule(cls: type[Any], predicate: Predicate[Any]) -> Rule:
    """See `Obvent.lift`."""
    kind = type_of(cls)
    if isinstance(predicate, Condition):
        predicate = predicate.predicate(cls)
    lifted = lift(kind.carrier.shape, predicate)
    filters = kind.filters & lifted.filters
    members = FilterSet(filters.filters)
    name = lifted.name
    if lifted.is_exact:
        return Rule(name, members)
    asked = lifted.predicate

    def holds(notification: Notification) -> bool:
        # An object of its own: what the predicate does to it, its subscriber does not see.
        made = received(cls, notification)
        try:
            return bool(asked(made))
        except Exception:  # noqa: BLE001 - the subscriber's own code
            failures.add(name)
            return False

    return Rule(name, members, lifted.explain(), holds)
