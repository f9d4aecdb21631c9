"""`filters_of`: filters to the filters of a CloudEvents subscription.

The result is equivalent for all CloudEvents, with attributes of text, integers and bools, one value
each.
"""

from contextlib import suppress
from typing import Any, Final

from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import cesql
from contrada.integrations.dialects.cloudevents import subscription_filters
from contrada.integrations.dialects.cloudevents.cloudevent_json import DATA, NAME, TEXTS
from contrada.integrations.dialects.text_parts import NoPartsError, text_parts
from contrada.model.algebra import sets
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet, union
from contrada.model.domains.values import ABSENT_KEY

UNSAYABLE: Final = "no filters of a subscription express this set"
UNSAYABLE_NAME: Final = "no attribute of a CloudEvent has this name"
MATCHES_NOTHING: Final = "no event matches"

_TEXT: Final = sets.prefix("") | ABSENT
_ANY: Final = _TEXT | sets.in_(True, False) | subscription_filters.INTEGERS
_DIALECTS: Final = {"=": "exact", "prefix": "prefix", "suffix": "suffix"}


def filters_of(filters: Filter | FilterSet) -> list[dict[str, Any]]:
    """Returns the filters of an equal subscription, none if all pass. Raises RefusedRuleError."""
    members = (filters,) if isinstance(filters, Filter) else filters.filters
    conditions = [_conjunction(each) for each in members if not each.is_empty]
    if not conditions:
        subscription_filters.refuse(MATCHES_NOTHING, str(filters), "")
    if len(conditions) == 1:
        return conditions[0]
    if not all(conditions):
        return []
    return [{"any": [_join("all", each) for each in conditions]}]


def _conjunction(member: Filter) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = []
    for name, values in member.sets.items():
        if not NAME.fullmatch(name) or name == DATA:
            subscription_filters.refuse(UNSAYABLE_NAME, name, name)
        possible = _TEXT if name in TEXTS else _ANY
        outside = possible - values
        if not outside.is_empty:
            conditions.append(_attribute(name, values & possible, outside))
    return conditions


def _attribute(name: str, inside: ValueSet, outside: ValueSet) -> dict[str, Any]:
    """Returns a filter on one attribute, given the values inside and outside."""
    with suppress(NoPartsError):
        if not inside.holds(ABSENT_KEY):
            return _alternatives(name, inside)
    try:
        present = outside & PRESENT
        if outside.holds(ABSENT_KEY):
            exists = _exists(name)
            without = [] if present.is_empty else [{"not": _alternatives(name, present)}]
            return _join("all", [exists, *without])
        if outside == (_TEXT if name in TEXTS else _ANY) & PRESENT:
            return {"not": _exists(name)}
        return {"not": _alternatives(name, outside)}
    except (NoPartsError, RefusedRuleError):
        subscription_filters.refuse(UNSAYABLE, str(inside), name)


def _exists(name: str) -> dict[str, Any]:
    """Returns the existence of an attribute, which only CESQL has, and not for every name."""
    expression = f"EXISTS {name}"
    if cesql.read(expression).filters != FilterSet([Filter({name: PRESENT})]):
        raise NoPartsError
    return {"sql": expression}


def _alternatives(name: str, values: ValueSet) -> dict[str, Any]:
    """Returns alternative filters on an attribute; they must cover its integers and bools, too."""
    parts = [(_DIALECTS.get(part.operator, ""), part.text) for part in text_parts(values)]
    if not parts or not all(dialect and text for dialect, text in parts):
        raise NoPartsError
    accepted = [subscription_filters.accepted_sets(name, *part) for part in parts]
    is_exact = all(surely is perhaps for surely, perhaps in accepted)
    if not is_exact or union(surely for surely, _ in accepted) != values:
        raise NoPartsError
    return _join("any", [{dialect: {name: text}} for dialect, text in parts])


def _join(dialect: str, filters: list[dict[str, Any]]) -> dict[str, Any]:
    return filters[0] if len(filters) == 1 else {dialect: filters}
