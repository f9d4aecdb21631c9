"""Sigma rules that were translated into alternatives of constraints, one JSON object a line.

Each rule has `id`, `logsource`, `path` and `any_of`, a list of conjunctions; a conjunction is a
list of constraints: an attribute, an operator, a constant. Operators are `=`, `prefix`,
`suffix`, `contains`, `exists` and `null`, and the same with `not` before them, which also holds
where the attribute is absent. Texts are literal, and compare as in `values`. What the log source
asks is among the constraints.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from contrada.dialects.expression import CONJUNCTIONS_MAX
from contrada.dialects.rules import RefusedRule, Rule, read_or_refused
from contrada.dialects.sigma import refusals, sources
from contrada.dialects.sigma.refusals import refused
from contrada.dialects.sigma.values import equal
from contrada.errors import LimitError
from contrada.model import sets
from contrada.model.filter import Filter, FilterSet
from contrada.model.valueset import ABSENT, PRESENT, ValueSet

_ON_TEXT: Final = {"prefix": sets.prefix, "suffix": sets.suffix, "contains": sets.contains}
_NOT: Final = "not "


def read_prepared(text: str) -> Iterator[Rule | RefusedRule]:
    """The rules of a text, in order; see `dialects.rules.ReadRules`."""
    for line in text.splitlines():
        try:
            given = json.loads(line)
            name = str(given["id"])
        except (ValueError, TypeError, KeyError, RecursionError):
            yield RefusedRule("", refused(refusals.NO_RULE, line))
        else:
            yield read_or_refused(name, partial(prepared_rule, given))


def prepared_rule(given: Mapping[str, Any]) -> Rule:
    """One rule from parsed JSON. Raises RefusedRuleError, and LimitError."""
    reader = _Reader(given.get("logsource") or {})
    try:
        if len(given["any_of"]) > CONJUNCTIONS_MAX:
            raise LimitError("CONJUNCTIONS_MAX", CONJUNCTIONS_MAX, len(given["any_of"]))
        members = [reader.conjunction(each) for each in given["any_of"]]
        return Rule(str(given["id"]), FilterSet(members))
    except (KeyError, TypeError, ValueError):
        raise refused(refusals.NO_RULE, given.get("id")) from None


class _Reader:
    """The constraints of one rule. The same ones come in many of its conjunctions."""

    def __init__(self, source: Mapping[Any, Any]) -> None:
        self._source = source
        self._known: dict[tuple[str, str, Any], ValueSet] = {}

    def conjunction(self, constraints: list[tuple[str, str, Any]]) -> Filter:
        """The filter of one conjunction."""
        accepted: dict[str, ValueSet] = {}
        for field, operator, constant in constraints:
            if not field:
                raise refused(refusals.KEYWORDS, constant)
            name = sources.attribute(field, self._source)
            one = self._set(operator, constant)
            accepted[name] = accepted[name] & one if name in accepted else one
        return Filter(accepted)

    def _set(self, operator: str, constant: Any) -> ValueSet:
        # The type is in the key since Python calls True and 1 equal.
        key = (operator, type(constant).__name__, constant)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _value_set(operator, constant)
        return known


def _value_set(operator: str, constant: Any) -> ValueSet:
    if operator.startswith(_NOT):
        return ~_value_set(operator.removeprefix(_NOT), constant)
    if operator == "null":
        return ABSENT | sets.eq(None)
    if operator == "exists" and isinstance(constant, bool):
        return PRESENT if constant else ABSENT
    if operator == "=" and isinstance(constant, str | int | float):
        return equal(constant)
    if operator in _ON_TEXT and isinstance(constant, str):
        return _ON_TEXT[operator](constant, nocase=True)
    raise refused(refusals.CONSTRAINT, (operator, constant))
