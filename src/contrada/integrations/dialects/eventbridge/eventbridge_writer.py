"""Filters to event patterns, where there are patterns that say them.

A pattern says the same as its filters for every JSON event. NaN, infinities, times and bytes
that are no UTF-8 are no JSON, so a pattern does not speak of them.

Source: AWS EventBridge User Guide, "Comparison operators for use in event patterns".
"""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from contrada.integrations.dialects.eventbridge import eventbridge_refusals
from contrada.integrations.dialects.eventbridge.event_patterns import OR_WORD
from contrada.integrations.dialects.eventbridge.eventbridge_operators import OPERATOR_NAMES, is_ipv6
from contrada.integrations.dialects.eventbridge.eventbridge_refusals import refuse
from contrada.integrations.dialects.json_text import is_exact
from contrada.integrations.dialects.text_parts import NoPartsError, text_parts
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import PRESENT, ValueSet
from contrada.model.domains import line
from contrada.model.domains.line import Cut, Cuts
from contrada.model.domains.values import (
    ABSENT_KEY,
    BOOL,
    NULL_KEY,
    NUMBER,
    is_system_name,
    predecessor,
)

_ALL_NUMBERS: Final = line.interval((NUMBER,), (NUMBER + 1,))
_BOOLS: Final = ((BOOL, False), (BOOL, True))
_INFINITIES: Final = (line.point((NUMBER, -math.inf)), line.point((NUMBER, math.inf)))


class _Said(NamedTuple):
    """A match expression on text: `exactly`, `prefix` and so on, and its constant."""

    operator: str
    text: str


class _UnsayableError(Exception):
    """No match expression says this."""


def pattern_of(filters: Filter | FilterSet) -> dict[str, Any]:
    """The pattern that matches the same events: the reverse of reading one.

    Cost: proportional to the filters' sets. Raises RefusedRuleError where no pattern says them:
    for a set that no match expressions say, for a name that patterns do not reach, where nothing
    matches or everything does.
    """
    members = (filters,) if isinstance(filters, Filter) else filters.filters
    patterns = [_pattern(each, in_or=len(members) > 1) for each in members if not each.is_empty]
    if not patterns:
        refuse(eventbridge_refusals.MATCHES_NOTHING, str(filters), "")
    return patterns[0] if len(patterns) == 1 else {OR_WORD: patterns}


def _pattern(member: Filter, *, in_or: bool) -> dict[str, Any]:
    pattern: dict[str, Any] = {}
    for name, values in member.sets.items():
        steps = name.split(".")
        if (
            is_system_name(name)
            or OR_WORD in steps
            or (in_or and not OPERATOR_NAMES.isdisjoint(steps))
        ):
            refuse(eventbridge_refusals.UNSAYABLE_NAME, name, name)
        _put(pattern, steps, _field(values, name))
    if not pattern:
        refuse(eventbridge_refusals.MATCHES_EVERYTHING, str(member), "")
    return pattern


def _put(pattern: dict[str, Any], steps: list[str], field: list[Any]) -> None:
    """Puts a field in its place; below another field its name keeps its dots."""
    for place, step in enumerate(steps[:-1]):
        inner = pattern.setdefault(step, {})
        if isinstance(inner, list):
            pattern[".".join(steps[place:])] = field
            return
        pattern = inner
    pattern[steps[-1]] = field


def _field(values: ValueSet, name: str) -> list[Any]:
    """The match expressions of a field, or a refusal."""
    absence: list[Any] = [{"exists": False}] if values.holds(ABSENT_KEY) else []
    said = _said(values & PRESENT)
    if said is None:
        refuse(eventbridge_refusals.UNSAYABLE, str(values), name)
    if not absence + said:
        refuse(eventbridge_refusals.MATCHES_NOTHING, str(values), name)
    return absence + said


def _said(present: ValueSet) -> list[Any] | None:
    """The match expressions of a set of present values, None where there are none."""
    for say in (_all_but, _alternatives):
        try:
            return say(present)
        except _UnsayableError:
            continue
    return None


def _alternatives(present: ValueSet) -> list[Any]:
    """The values and match expressions of which one must accept."""
    cuts, _ = present.parts()
    found: list[Any] = [None] if line.holds(cuts, NULL_KEY) else []
    found += [key[1] for key in _BOOLS if line.holds(cuts, key)]
    found += _numbers(line.intersection(cuts, _ALL_NUMBERS))
    return found + [_expression(each) for each in _texts(present)]


def _all_but(present: ValueSet) -> list[Any]:
    """All, or one `anything-but`: texts of one kind are left out, or single numbers."""
    outside = PRESENT - present
    cuts, _ = outside.parts()
    if any(line.holds(cuts, key) for key in (NULL_KEY, *_BOOLS)):
        raise _UnsayableError
    numbers = _numbers(line.intersection(cuts, _ALL_NUMBERS))
    texts = _texts(outside)
    if not numbers and not texts:
        return [{"exists": True}]
    if numbers and not texts and all(map(_is_single, numbers)):
        return [{"anything-but": numbers}]
    if numbers:
        raise _UnsayableError
    return [{"anything-but": _left_out(texts)}]


def _is_single(number: object) -> bool:
    return isinstance(number, int | float) and is_exact(number)


def _left_out(texts: list[_Said]) -> Any:
    """Texts within `anything-but`, which takes one kind of them."""
    kinds = {each.operator for each in texts}
    if len(kinds) > 1:
        texts = [_Said("wildcard", _as_wildcard(each)) for each in texts]
        kinds = {"wildcard"}
    [kind] = kinds
    constants = [each.text for each in texts]
    if kind == "exactly":
        return constants
    if kind not in ("prefix", "suffix", "equals-ignore-case", "wildcard"):
        raise _UnsayableError
    if kind == "prefix" and "" in constants:
        return {"wildcard": "*"}
    return {kind: constants}


def _as_wildcard(said: _Said) -> str:
    if said.operator == "wildcard":
        return said.text
    shape = _SHAPES.get(said.operator)
    if shape is None:
        raise _UnsayableError
    return shape.format(_escaped(said.text))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("*", "\\*")


_SHAPES: Final = {"exactly": "{}", "prefix": "{}*", "suffix": "*{}"}


def _expression(said: _Said) -> Any:
    """A match expression; an equality is a plain value, but where AWS reads that otherwise."""
    operator, text = said
    if operator == _ADDRESS or (operator == "exactly" and not is_ipv6(text)):
        return text
    if operator.endswith(" nocase"):
        return {operator.removesuffix(" nocase"): {"equals-ignore-case": text}}
    return {operator: text}


def _numbers(cuts: Cuts) -> list[Any]:
    """Numbers and ranges of numbers."""
    found: list[Any] = []
    for start, end in line.pieces(cuts):
        assert end is not None, "text comes behind the numbers"
        if line.interval(start, end) not in _INFINITIES:
            found += _range(start, end)
    return found


def _range(start: Cut, end: Cut) -> list[Any]:
    """The numbers from a cut up to another. The ends of the numbers are no bounds."""
    bounds: list[Any] = []
    if len(start) == 2:
        first = _number(start)
        if len(end) == 2 and predecessor(_number(end)) == first:
            return [first]
        bounds += _bound((">=", first), (">", predecessor(first)))
    if len(end) == 2:
        bounds += _bound(("<=", predecessor(_number(end))), ("<", _number(end)))
    return [{"numeric": bounds}] if bounds else [{"numeric": ["<", 0]}, {"numeric": [">=", 0]}]


def _number(cut: Cut) -> int | float:
    number = line.first_key(cut)[1]
    assert isinstance(number, int | float)
    return number


def _bound(*ways: tuple[str, int | float | None]) -> list[Any]:
    """The shorter of two ways to say a bound, of those with a number that patterns take."""
    possible = [[word, number] for word, number in ways if number is not None and is_exact(number)]
    if not possible:
        raise _UnsayableError
    return min(possible, key=lambda each: len(repr(each[1])))


def _texts(values: ValueSet) -> list[_Said]:
    """The match expressions whose union the text of a set is."""
    try:
        parts = text_parts(values)
    except NoPartsError:
        raise _UnsayableError from None
    if not all(operator in _SAYING for operator, _ in parts):
        raise _UnsayableError
    return [_SAYING[operator](text) for operator, text in parts]


def _wildcard(constant: str) -> _Said:
    """The model's wildcard, in which `?` is one character, and is itself after a backslash."""
    tokens = _TOKEN.findall(constant)
    if "?" in tokens:
        raise _UnsayableError
    return _Said("wildcard", "".join("?" if each == "\\?" else each for each in tokens))


def _cidr(constant: str) -> _Said:
    """A network; a single IPv6 address is a plain value, a single IPv4 address cannot be said."""
    address, _, bits = constant.partition("/")
    if ":" in address and bits == "128":
        return _Said(_ADDRESS, address)
    if bits == "32" and ":" not in address:
        raise _UnsayableError
    return _Said("cidr", constant)


_TOKEN: Final = re.compile(r"\\.|.", re.DOTALL)
_ADDRESS: Final = "address"

_SAYING: Final[dict[str, Callable[[str], _Said]]] = {
    "=": partial(_Said, "exactly"),
    "prefix": partial(_Said, "prefix"),
    "suffix": partial(_Said, "suffix"),
    "contains": lambda text: _Said("wildcard", f"*{_escaped(text)}*"),
    "= nocase": partial(_Said, "equals-ignore-case"),
    "prefix nocase": partial(_Said, "prefix nocase"),
    "suffix nocase": partial(_Said, "suffix nocase"),
    "wildcard": _wildcard,
    "cidr": _cidr,
}
