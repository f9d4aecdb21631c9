"""`parse`: texts to filters, filter sets, patterns, advertisements, value sets and queries.

The grammar is `text.lark`. Invalid text raises ParseError with line, column, the text found and the
text expected; constants that do not fit an operator raise InvalidFilterError, an unregistered
operator UnknownOperatorError, with the place in the message.

A query is a filter set in which a variable may stand behind `=`: `origin = $x and dest = $x`
requires equal values. A variable belongs to its alternative, and is valid in no `not`: a condition
of other or smaller values is no set of values for each attribute.

Source: PODC 2000 §2 (the operators' symbols); CU-CS-948-03 §9 (variables for matching between
constraints, its future work); the rest of the syntax is this project's.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from contrada.errors import LimitError, ParseError
from contrada.model.algebra.advertisement import Advertisement
from contrada.model.algebra.expression import conjunctions
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.value_set import PRESENT, ValueSet, union
from contrada.model.syntax.plain_parser import plain_statement

TEXT_CHARACTERS_MAX: Final = 1_000_000
"""Characters of a text that is parsed. Beyond it: LimitError."""

_T = TypeVar("_T")
_FOUND: Final = {Filter: "a filter", FilterSet: "a filter set (`or`)", Pattern: "a pattern (`->`)"}
_WANTED: Final = {
    Filter: "one filter, without `or`, `->`, and `not (…)` of several conditions",
    FilterSet: "one filter, or several joined by `or`, without `->`",
    Pattern: "a pattern, filters joined by `->`",
}


def parse(text: str) -> Filter | FilterSet | Pattern:
    """Parses a filter, a filter set (`or`) or a pattern (`->`).

    Parentheses and `not` over conditions of several attributes give filters of which one matches
    exactly if the condition holds; one alone is a filter. Raises ParseError, InvalidFilterError,
    UnknownOperatorError, and LimitError if the condition becomes too many filters, or is nested
    deeper than CONDITIONS_NESTED_MAX.
    """
    plain = plain_statement(_checked(text))
    if plain is not None:
        return plain
    parsed = _parse(text, "statement")
    if isinstance(parsed, FilterSet) and len(parsed) == 1:
        return parsed.filters[0]
    return parsed  # type: ignore[no-any-return]


def parse_filter(text: str) -> Filter:
    """Parses a filter. Raises ParseError as `parse`, also for a text with `or` or `->`."""
    return _only(Filter, parse(text))


def parse_filter_set(text: str) -> FilterSet:
    """Parses a filter set; a single filter makes a set of one. Raises ParseError as `parse`."""
    parsed = parse(text)
    return FilterSet((parsed,)) if isinstance(parsed, Filter) else _only(FilterSet, parsed)


def parse_pattern(text: str) -> Pattern:
    """Parses a pattern. Raises ParseError as `parse`, also for a text without `->`."""
    return _only(Pattern, parse(text))


def parse_advertisement(text: str) -> Advertisement:
    """Parses an advertisement: constraints on one attribute are a disjunction."""
    constraints = _parse(text, "advertisement")
    return Advertisement.of_sets({name: union(parts) for name, parts in constraints.items()})


def parse_set(text: str) -> ValueSet:
    """Parses a value set, as written behind an attribute's name."""
    return _parse(text, "union")  # type: ignore[no-any-return]


class Binding(NamedTuple):
    """A conjunction of a query: the sets of its attributes, and the attributes of each variable."""

    sets: Mapping[str, ValueSet]
    same: tuple[frozenset[str], ...] = ()


def parse_question(text: str) -> tuple[Binding, ...]:
    """Parses the conjunctions of which an answer must meet one.

    The grammar is that of filters with one more rule (`question.lark`), so that a sign in a text, a
    name or a regular expression is never read as a variable. Cost: as `parse`, or lark's for a text
    with a `$`. Raises as `parse`, with the place; ParseError for a pattern too.
    """
    if "$" in text:
        bindings = map(_split_variables, conjunctions(_parse(text, "question")))
        return tuple(each for each in bindings if each is not None)
    parsed = parse(text)
    if isinstance(parsed, Pattern):
        raise ParseError(1, 1, "a pattern (`->`)", "a question, which is asked of single items")
    if isinstance(parsed, Filter):
        return (Binding(parsed.sides),)
    return tuple([Binding(each.sides) for each in parsed.filters])


def _split_variables(sets: Mapping[str, ValueSet]) -> Binding | None:
    """Separates variables from the sets of attributes; None if nothing can match.

    Since no `not` has a variable in it, a condition that holds still holds if one more attribute
    equals its variable. So an alternative that requires an attribute *not* to equal one, as
    conjunctions that overlap less may do, is the same without that requirement.
    """
    from contrada.model.syntax.filter_builder import bound_by  # lark takes its time

    asked: dict[str, ValueSet] = {}
    variables: dict[str, set[str]] = {}
    for name, values in sets.items():
        bound = bound_by(name)
        if bound is None:
            asked[name] = values
        elif values.is_empty:
            return None
        elif values == PRESENT:
            variables.setdefault(bound[0], set()).add(bound[1])
    return Binding(asked, tuple(map(frozenset, variables.values())))


def _parse(text: str, start: str) -> Any:
    # Not before a text is read: lark takes its time.
    from contrada.model.syntax import filter_builder

    return filter_builder.build(_checked(text), start)


def _checked(text: str) -> str:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise LimitError("TEXT_CHARACTERS_MAX", TEXT_CHARACTERS_MAX, len(text))
    return text


def _only(kind: type[_T], parsed: Filter | FilterSet | Pattern) -> _T:
    if isinstance(parsed, kind):
        return parsed
    is_nothing = isinstance(parsed, FilterSet) and not parsed.filters
    found = "`nothing`, the empty filter set" if is_nothing else _FOUND[type(parsed)]
    raise ParseError(1, 1, found, _WANTED[kind])
