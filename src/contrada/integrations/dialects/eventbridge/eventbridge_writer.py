"""`pattern_of`: filters to equivalent event patterns.

Both match the same JSON events. NaN, infinities, times and bytes outside UTF-8 are not JSON, so no
pattern depends on them.

Source: AWS EventBridge User Guide, "Comparison operators for use in event patterns".
"""

import math
import re
from contextlib import suppress
from typing import Any, Final

from contrada.integrations.dialects.eventbridge import eventbridge_refusals as refusals
from contrada.integrations.dialects.eventbridge.event_patterns import OR_WORD
from contrada.integrations.dialects.eventbridge.eventbridge_operators import OPERATOR_NAMES, is_ipv6
from contrada.integrations.dialects.eventbridge.eventbridge_refusals import refuse
from contrada.integrations.dialects.json_text import is_exact
from contrada.integrations.dialects.text_parts import NoPartsError, TextPart, text_parts
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import PRESENT, ValueSet
from contrada.model.domains import line
from contrada.model.domains import values as domains
from contrada.model.domains.line import Cut, Cuts

_ALL_NUMBERS: Final = line.interval((domains.NUMBER,), (domains.NUMBER + 1,))
_BOOLS: Final = ((domains.BOOL, False), (domains.BOOL, True))
_INFINITIES: Final = (
    line.point((domains.NUMBER, -math.inf)),
    line.point((domains.NUMBER, math.inf)),
)


def pattern_of(filters: Filter | FilterSet) -> dict[str, Any]:
    """Returns the pattern that matches the same events: the reverse of `read`.

    Cost: linear. Raises RefusedRuleError for a set without match expressions, for a name that
    patterns cannot reach, and for filters that match nothing or everything.
    """
    members = (filters,) if isinstance(filters, Filter) else filters.filters
    patterns = [_pattern(each, in_or=len(members) > 1) for each in members if not each.is_empty]
    if not patterns:
        refuse(refusals.MATCHES_NOTHING, str(filters), "")
    return patterns[0] if len(patterns) == 1 else {OR_WORD: patterns}


def _pattern(member: Filter, *, in_or: bool) -> dict[str, Any]:
    pattern: dict[str, Any] = {}
    for name, values in member.sets.items():
        steps = name.split(".")
        reserved = {OR_WORD, *OPERATOR_NAMES} if in_or else {OR_WORD}
        if domains.is_system_name(name) or not reserved.isdisjoint(steps):
            refuse(refusals.UNSAYABLE_NAME, name, name)
        _put(pattern, steps, _field(values, name))
    if not pattern:
        refuse(refusals.MATCHES_EVERYTHING, str(member), "")
    return pattern


def _put(pattern: dict[str, Any], steps: list[str], field: list[Any]) -> None:
    """Adds a field at its place; below another field its name keeps its dots."""
    for place, step in enumerate(steps[:-1]):
        inner = pattern.setdefault(step, {})
        if isinstance(inner, list):
            pattern[".".join(steps[place:])] = field
            return
        pattern = inner
    pattern[steps[-1]] = field


def _field(values: ValueSet, name: str) -> list[Any]:
    """Returns the match expressions of a field, or refuses it."""
    absence: list[Any] = [{"exists": False}] if values.holds(domains.ABSENT_KEY) else []
    for write in (_all_but, _alternatives):
        with suppress(NoPartsError):
            expressions = absence + write(values & PRESENT)
            if not expressions:
                refuse(refusals.MATCHES_NOTHING, str(values), name)
            return expressions
    return refuse(refusals.UNSAYABLE, str(values), name)


def _alternatives(present: ValueSet) -> list[Any]:
    """Returns values and match expressions, one of which must accept."""
    cuts, _ = present.parts()
    found: list[Any] = [None] if line.holds(cuts, domains.NULL_KEY) else []
    found += [key[1] for key in _BOOLS if line.holds(cuts, key)]
    found += _numbers(line.intersection(cuts, _ALL_NUMBERS))
    return found + [_expression(each) for each in _texts(present)]


def _all_but(present: ValueSet) -> list[Any]:
    """Returns everything, or one `anything-but` without texts of one kind or single numbers."""
    outside = PRESENT - present
    cuts, _ = outside.parts()
    if any(line.holds(cuts, key) for key in (domains.NULL_KEY, *_BOOLS)):
        raise NoPartsError
    numbers = _numbers(line.intersection(cuts, _ALL_NUMBERS))
    texts = _texts(outside)
    if not numbers and not texts:
        return [{"exists": True}]
    if not numbers:
        return [{"anything-but": _exclude(texts)}]
    if texts or not all(isinstance(each, int | float) and is_exact(each) for each in numbers):
        raise NoPartsError
    return [{"anything-but": numbers}]


def _exclude(texts: list[TextPart]) -> Any:
    """Returns texts for `anything-but`, which takes one kind of them."""
    kind, *others = {each.operator for each in texts}
    constants = [each.text for each in texts]
    if others:
        if not all(each.operator in ("wildcard", *_SHAPES) for each in texts):
            raise NoPartsError
        shapes = [(_SHAPES.get(each.operator), each.text) for each in texts]
        kind = "wildcard"
        constants = [shape.format(_escape(text)) if shape else text for shape, text in shapes]
    if kind == "exactly":
        return constants
    if kind not in ("prefix", "suffix", "equals-ignore-case", "wildcard"):
        raise NoPartsError
    if kind == "prefix" and "" in constants:
        return {"wildcard": "*"}
    return {kind: constants}


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*")


_SHAPES: Final = {"exactly": "{}", "prefix": "{}*", "suffix": "*{}"}


def _expression(expression: TextPart) -> Any:
    """Returns a match expression; an equality is a plain value unless AWS reads it differently."""
    operator, text = expression
    if operator == _ADDRESS or (operator == "exactly" and not is_ipv6(text)):
        return text
    if operator.endswith(" nocase"):
        return {operator.removesuffix(" nocase"): {"equals-ignore-case": text}}
    return {operator: text}


def _numbers(cuts: Cuts) -> list[Any]:
    found: list[Any] = []
    for start, end in line.pieces(cuts):
        assert end is not None, "text is above all numbers"
        if line.interval(start, end) not in _INFINITIES:
            found += _range(start, end)
    return found


def _range(start: Cut, end: Cut) -> list[Any]:
    """Returns the numbers between two cuts. The ends of all numbers are no bounds."""
    bounds: list[Any] = []
    if len(start) == 2:
        first = _number(start)
        if len(end) == 2 and domains.predecessor(_number(end)) == first:
            return [first]
        bounds += _bound((">=", first), (">", domains.predecessor(first)))
    if len(end) == 2:
        bounds += _bound(("<=", domains.predecessor(_number(end))), ("<", _number(end)))
    return [{"numeric": bounds}] if bounds else [{"numeric": ["<", 0]}, {"numeric": [">=", 0]}]


def _number(cut: Cut) -> int | float:
    number = line.first_key(cut)[1]
    assert isinstance(number, int | float)
    return number


def _bound(*ways: tuple[str, int | float | None]) -> list[Any]:
    """Returns the shorter of two forms of a bound, of those with a number that patterns accept."""
    possible = [[word, number] for word, number in ways if number is not None and is_exact(number)]
    if not possible:
        raise NoPartsError
    return min(possible, key=lambda each: len(repr(each[1])))


def _texts(values: ValueSet) -> list[TextPart]:
    return [_match_expression(part) for part in text_parts(values)]


def _match_expression(part: TextPart) -> TextPart:
    """Returns an operator of the model as a match expression: `exactly`, `prefix` and so on."""
    operator, text = part
    match operator:
        case "=":
            return TextPart("exactly", text)
        case "= nocase":
            return TextPart("equals-ignore-case", text)
        case "prefix" | "suffix" | "prefix nocase" | "suffix nocase":
            return part
        case "contains":
            return TextPart("wildcard", f"*{_escape(text)}*")
        case "wildcard":
            tokens = _TOKEN.findall(text)
            if "?" not in tokens:  # It is one character in the model, itself after a backslash.
                return TextPart("wildcard", "".join(tokens).replace("\\?", "?"))
        case "cidr":
            address, _, bits = text.partition("/")
            if ":" in address and bits == "128":  # A plain value accepts all its spellings.
                return TextPart(_ADDRESS, address)
            if ":" in address or bits != "32":
                return part
    raise NoPartsError


_TOKEN: Final = re.compile(r"\\.|.", re.DOTALL)
_ADDRESS: Final = "address"
