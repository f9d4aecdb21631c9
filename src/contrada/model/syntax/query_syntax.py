"""`parse_question`: the syntax of filters with variables behind `=`.

`origin = $x and dest = $x` requires equal values. A variable belongs to its alternative: in `(a =
$x and b = $x) or c = $x` the last is any value of c. It is valid only behind `=`, and in no `not`:
a condition of other or smaller values is no set of values for each attribute.

The grammar is that of filters with one more rule (`question.lark`), so that a sign in a text, a
name or a regular expression is never read as a variable.

Invariant: since no `not` has a variable in it, a condition that holds still holds if one more
attribute equals its variable. So an alternative that requires an attribute *not* to equal one, as
conjunctions that overlap less may do, is the same without that requirement.

Source: CU-CS-948-03 §9 (variables for matching between constraints, its future work).
"""

from collections.abc import Mapping
from typing import NamedTuple

from contrada.errors import ParseError
from contrada.model.algebra.expression import conjunctions
from contrada.model.algebra.filter import Filter
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.value_set import PRESENT, ValueSet
from contrada.model.syntax.parser import parse, parse_question_text


class Binding(NamedTuple):
    """A conjunction of a text: the sets of its attributes, and the attributes of each variable."""

    sets: Mapping[str, ValueSet]
    same: tuple[frozenset[str], ...] = ()


def parse_question(text: str) -> tuple[Binding, ...]:
    """Parses the conjunctions of which an answer must meet one.

    Cost: as `parse`, or lark's for a text with a `$`. Raises as `parse`, with the place; ParseError
    for a pattern too.
    """
    if "$" not in text:
        parsed = parse(text)
        if isinstance(parsed, Pattern):
            raise ParseError(1, 1, "a pattern (`->`)", "a question, which is asked of single items")
        if isinstance(parsed, Filter):
            return (Binding(parsed.sides),)
        return tuple([Binding(each.sides) for each in parsed.filters])
    bindings = (_split_variables(each) for each in conjunctions(parse_question_text(text)))
    return tuple(each for each in bindings if each is not None)


def _split_variables(sets: Mapping[str, ValueSet]) -> Binding | None:
    """Separates variables from the sets of attributes; None if nothing can match."""
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
