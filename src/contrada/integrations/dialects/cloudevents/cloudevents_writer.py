"""Filters to the filters of a CloudEvents subscription, where these say them.

They say the same of every CloudEvent, whose attributes are text, integers and bools, one value
each.
"""

from typing import Any, Final

from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import cesql
from contrada.integrations.dialects.cloudevents.cloudevent_json import DATA, NAME, TEXTS
from contrada.integrations.dialects.cloudevents.subscription_filters import (
    INTEGERS,
    accepted,
    refuse,
)
from contrada.integrations.dialects.text_parts import NoPartsError, text_parts
from contrada.model.algebra import sets
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet, union
from contrada.model.domains.values import ABSENT_KEY

UNSAYABLE: Final = "no filters of a subscription say this set"
UNSAYABLE_NAME: Final = "no attribute of a CloudEvent has this name"
MATCHES_NOTHING: Final = "no event matches"

_TEXT: Final = sets.prefix("") | ABSENT
_ANY: Final = _TEXT | sets.in_(True, False) | INTEGERS
_DIALECTS: Final = {"=": "exact", "prefix": "prefix", "suffix": "suffix"}


def filters_of(filters: Filter | FilterSet) -> list[dict[str, Any]]:
    """The array `filters` of a subscription that passes the same events; empty where all pass.

    Cost: proportional to the filters' sets. Raises RefusedRuleError where it cannot be said.
    """
    members = (filters,) if isinstance(filters, Filter) else filters.filters
    said = [_conjunction(each) for each in members if not each.is_empty]
    if not said:
        refuse(MATCHES_NOTHING, str(filters), "")
    if len(said) == 1:
        return said[0]
    if not all(said):
        return []
    return [{"any": [_joined("all", each) for each in said]}]


def _conjunction(member: Filter) -> list[dict[str, Any]]:
    """What must be true of each attribute."""
    said: list[dict[str, Any]] = []
    for name, values in member.sets.items():
        if not NAME.fullmatch(name) or name == DATA:
            refuse(UNSAYABLE_NAME, name, name)
        possible = _TEXT if name in TEXTS else _ANY
        outside = possible - values
        if not outside.is_empty:
            said.append(_attribute(name, values & possible, outside))
    return said


def _attribute(name: str, inside: ValueSet, outside: ValueSet) -> dict[str, Any]:
    """A filter on one attribute, given the values that pass and those that do not."""
    try:
        if not inside.holds(ABSENT_KEY):
            return _alternatives(name, inside)
    except NoPartsError:
        pass
    try:
        return _negation(name, outside)
    except (NoPartsError, RefusedRuleError):
        refuse(UNSAYABLE, str(inside), name)


def _negation(name: str, outside: ValueSet) -> dict[str, Any]:
    if not outside.holds(ABSENT_KEY):
        if outside == (_TEXT if name in TEXTS else _ANY) & PRESENT:
            return {"not": _exists(name)}
        return {"not": _alternatives(name, outside)}
    present = outside & PRESENT
    if present.is_empty:
        return _exists(name)
    return {"all": [_exists(name), {"not": _alternatives(name, present)}]}


def _exists(name: str) -> dict[str, Any]:
    """No dialect but CESQL says that an attribute is there; not of every name."""
    expression = f"EXISTS {name}"
    if cesql.read(expression).filters != FilterSet([Filter({name: PRESENT})]):
        raise NoPartsError
    return {"sql": expression}


def _alternatives(name: str, values: ValueSet) -> dict[str, Any]:
    """The filters of which one is true; they must say the integers and bools too."""
    parts = [(_DIALECTS.get(part.operator, ""), part.text) for part in text_parts(values)]
    if not parts or not all(dialect and text for dialect, text in parts):
        raise NoPartsError
    said = [accepted(name, *part) for part in parts]
    if union(each for each in said if each is not None) != values or None in said:
        raise NoPartsError
    return _joined("any", [{dialect: {name: text}} for dialect, text in parts])


def _joined(dialect: str, filters: list[dict[str, Any]]) -> dict[str, Any]:
    return filters[0] if len(filters) == 1 else {dialect: filters}
