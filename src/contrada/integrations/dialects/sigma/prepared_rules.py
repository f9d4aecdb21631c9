"""Prepared Sigma rules: alternatives of constraints, one JSON object a line.

Each rule has `id`, `logsource`, `path` and `any_of`, a list of conjunctions. A conjunction is a
list of constraints: an attribute, an operator, a constant. Operators are `=`, `prefix`, `suffix`,
`contains`, `exists` and `null`, and the same after `not`, which also hold if the attribute is
absent. Texts are literal, and compare as in `sigma_values`. The constraints include those of the
log source.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from contrada.errors import EncodingError, InvalidFilterError, LimitError
from contrada.integrations.dialects.json_text import decode_json, numbered_lines
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_refusals import refusal, shorten
from contrada.integrations.dialects.sigma.sigma_rules import about
from contrada.integrations.dialects.sigma.sigma_values import equal
from contrada.model.algebra import sets
from contrada.model.algebra.expression import checked
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import ABSENT, PRESENT, ValueSet, intersection
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

PREPARED_CONSTRAINTS_MAX: Final = 100_000
"""Constraints of a prepared Sigma rule. Beyond it: the rule is refused."""

_ON_TEXT: Final = {"prefix": sets.prefix, "suffix": sets.suffix, "contains": sets.contains}
_NOT: Final = "not "


def read_prepared(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a text, in order; see `model.rule.ReadRules`."""
    for line in numbered_lines(text).values():
        try:
            given = decode_json(line)
            name = shorten(str(given["id"]))
        except LimitError as error:
            yield RefusedRule("", error)
        except (EncodingError, TypeError, KeyError):
            yield RefusedRule("", refusal(refusals.NO_RULE, line))
        else:
            yield read_or_refuse(name, partial(prepared_rule, given))


def prepared_rule(given: Mapping[str, Any]) -> Rule:
    """Returns one rule from parsed JSON. Raises RefusedRuleError, and LimitError."""
    try:
        reader = _ConjunctionReader(given.get("logsource") or {})
        members = checked(map(reader.conjunction, given["any_of"]))
        name = shorten(str(given["id"]))
        return Rule(name, FilterSet(map(Filter, members)), about=about(given))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refusal(refusals.NO_RULE, given.get("id")) from None
    except InvalidFilterError as error:
        raise refusal(refusals.CONSTRAINT, error.reason) from None


class _ConjunctionReader:
    """Reads the constraints of one rule, each once: many conjunctions share them."""

    def __init__(self, source: Mapping[Any, Any]) -> None:
        self._source = LogSource.of(source)
        self._known: dict[tuple[str, str, Any], ValueSet] = {}
        self._constraints = 0

    def conjunction(self, constraints: list[tuple[str, str, Any]]) -> dict[str, ValueSet]:
        self._constraints += len(constraints)
        if self._constraints > PREPARED_CONSTRAINTS_MAX:
            raise LimitError("PREPARED_CONSTRAINTS_MAX", PREPARED_CONSTRAINTS_MAX)
        accepted: dict[str, list[ValueSet]] = {}
        for field, operator, constant in constraints:
            if not field:
                raise refusal(refusals.KEYWORDS, constant)
            # The type is in the key since Python calls True and 1 equal.
            key = (operator, type(constant).__name__, constant)
            if key not in self._known:
                values = _value_set(operator.removeprefix(_NOT), constant)
                self._known[key] = ~values if operator.startswith(_NOT) else values
            accepted.setdefault(self._source.attribute(field), []).append(self._known[key])
        return {name: intersection(each) for name, each in accepted.items()}


def _value_set(operator: str, constant: Any) -> ValueSet:
    if operator == "null":
        return ABSENT | sets.eq(None)
    if operator == "exists" and isinstance(constant, bool):
        return PRESENT if constant else ABSENT
    if operator == "=" and isinstance(constant, str | int | float):
        return equal(constant)
    if operator in _ON_TEXT and isinstance(constant, str):
        return _ON_TEXT[operator](constant, nocase=True)
    raise refusal(refusals.CONSTRAINT, (operator, constant))
