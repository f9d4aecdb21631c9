"""`predicate_rule`: a predicate on objects of a type as a rule: filters, and a residue.

Source: EPFL 2503 §5.3.3, §5.3.4, §6.6.1.
"""

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from contrada.errors import InvalidObventError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.languages.atoms import failures
from contrada.model.rule import Rule
from contrada.service import Predicate
from contrada.typed.conditions import Condition
from contrada.typed.obvent_type import read_obvent, type_of
from contrada.typed.predicates import lift
from contrada.typed.shapes import Shape

_LOG: Final = logging.getLogger("contrada.typed")


def predicate_rule(cls: type[Any], predicate: Predicate[Any]) -> Rule:
    """See `Obvent.lift`."""
    kind = type_of(cls)
    if isinstance(predicate, Condition):
        predicate = predicate.predicate(cls)
    return shape_rule(kind.codec.shape, kind.filters, partial(read_obvent, cls), predicate)


def shape_rule(
    shape: Shape, within: Filter, read: Callable[[Notification], Any], predicate: Predicate[Any]
) -> Rule:
    """Returns the rule of a predicate on objects of a shape, within a filter.

    `read` makes objects of notifications. The first error of the predicate is logged, all are
    counted. Raises InvalidObventError for a predicate that accepts neither an object nor an object
    and an envelope.
    """
    lifted = lift(shape, predicate)
    _check_signature(shape, predicate, 2 if lifted.takes_envelope else 1)
    filters = within & lifted.filters
    members = FilterSet(filters.filters)
    name = getattr(predicate, "__qualname__", type(predicate).__qualname__)
    if lifted.is_exact:
        return Rule(name, members)
    decides, takes_envelope = lifted.predicate, lifted.takes_envelope
    has_failed = False

    def holds(notification: Notification) -> bool:
        nonlocal has_failed
        # A separate object: the predicate may change it without effect on the subscriber.
        made = read(notification)
        try:
            return bool(decides(made, notification.envelope) if takes_envelope else decides(made))
        except Exception as error:  # noqa: BLE001 - the subscriber's own code
            failures.add(name)
            if not has_failed:  # A misspelled field would raise for each object, unnoticed.
                has_failed = True
                facts = {"predicate": name, "reason": error, "kind": shape.cls.__qualname__}
                _LOG.warning(
                    "%(kind)s: no match: the predicate %(predicate)s raised %(reason)r", facts
                )
            return False

    holds.__qualname__ = name  # Failures are counted under this name.
    return Rule(name, members, lifted.explain(), holds)


def _check_signature(shape: Shape, predicate: Predicate[Any], given: int) -> None:
    """Raises InvalidObventError if each call would raise, so that nothing would ever match."""
    try:
        signature = inspect.signature(predicate, follow_wrapped=False)
    except (ValueError, TypeError, NameError):  # As in `type_checks`.
        return
    try:
        signature.bind(*range(given))
    except TypeError as error:
        name = getattr(predicate, "__qualname__", type(predicate).__qualname__)
        reason = f"the predicate {name}{signature} is called with an object"
        reason += ", and with the envelope where a function has two parameters without a default"
        raise InvalidObventError(shape.cls.__qualname__, f"{reason}: {error}") from None
