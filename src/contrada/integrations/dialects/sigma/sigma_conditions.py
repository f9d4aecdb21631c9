"""`parse_conditions`: the conditions of Sigma rules, over the names of their selections.

A condition joins selections by their names. `1 of` (also `any of`) and `all of` denote several:
those with a name that matches a pattern, or all with `them`, except names that begin with an
underscore. A selection of which a pipeline has left nothing is left out.

Source: Sigma specification 2.1.0, section on conditions.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Final, TypeAlias

from lark import Lark, Token, UnexpectedInput
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive, v_args

from contrada.errors import LimitError
from contrada.integrations.dialects.dialect_grammar import check_nesting
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma.sigma_refusals import refusal
from contrada.model.algebra.expression import And, Formula, Or, negation
from contrada.model.languages.wildcard import Segments

SIGMA_CONDITION_CHARACTERS_MAX: Final = 10_000
"""Characters of the conditions of a Sigma rule. Beyond it: the rule is refused."""

SIGMA_PARENTHESES_MAX: Final = 50
"""Levels of parentheses in the condition of a Sigma rule. Beyond it: the rule is refused."""

NAMES_LOOKED_AT_MAX: Final = 200_000
"""Names of a Sigma rule's selections, times its patterns. Beyond it: the rule is refused."""

ConditionPart: TypeAlias = Formula | None
"""A condition, None if nothing is left of it."""


def parse_conditions(
    texts: Collection[str],
    names: Mapping[str, object],
    selection: Callable[[str], ConditionPart],
    place: str = "condition",
) -> ConditionPart:
    """Returns the union of some conditions; `selection` reads one of the selections' names.

    Raises RefusedRuleError with the place, and LimitError.
    """
    size = sum(map(len, texts))
    if size > SIGMA_CONDITION_CHARACTERS_MAX:
        raise LimitError("SIGMA_CONDITION_CHARACTERS_MAX", SIGMA_CONDITION_CHARACTERS_MAX, size)
    reader = _ConditionReader(names, selection, place)
    parsed: list[ConditionPart] = []
    for text in texts:
        check_nesting(text, "SIGMA_PARENTHESES_MAX", SIGMA_PARENTHESES_MAX)
        try:
            parsed.append(reader.transform(_grammar().parse(text)))
        except UnexpectedInput as error:
            reason = refusals.AGGREGATION if "|" in text else refusals.CONDITION
            raise refusal(reason, text, f"{place}, column {error.column}") from None
        except VisitError as error:
            raise error.orig_exc from None
    left = tuple(each for each in parsed if each is not None)
    return Or(left) if left else None


@cache
def _grammar() -> Lark:
    return Lark.open(
        "condition.lark", rel_to=__file__, parser="lalr", lexer="basic", maybe_placeholders=False
    )


@v_args(inline=True)
class _ConditionReader(Transformer_NonRecursive[Token, ConditionPart]):
    """Builds conditions from the parse tree. Repeated parts become the same object."""

    def __init__(
        self, names: Mapping[str, object], selection: Callable[[str], ConditionPart], place: str
    ) -> None:
        super().__init__()
        self._place = place
        self._names = names
        self._selection = selection
        self._looked_at = 0
        self._named: dict[str, list[str]] = {}
        """The matching names of each pattern."""
        self._joined: dict[tuple[type[And | Or], tuple[int, ...]], Formula] = {}
        self._negated: dict[int, tuple[Formula, Formula]] = {}
        """By id, a condition and its negation. It keeps the condition alive, so that its id
        stays valid."""

    def some(self, *parts: ConditionPart) -> ConditionPart:
        return self._join(Or, parts)

    def every(self, *parts: ConditionPart) -> ConditionPart:
        return self._join(And, parts)

    def not_(self, *parts: Token | ConditionPart) -> ConditionPart:
        *words, part = parts
        assert not isinstance(part, Token), "the word `not` precedes its operand"
        if part is None or not len(words) & 1:
            return part
        if id(part) not in self._negated:
            self._negated[id(part)] = (part, negation(part))
        return self._negated[id(part)][1]

    def one(self, name: Token) -> ConditionPart:
        if name not in self._names:
            raise refusal(refusals.NO_SELECTION, str(name), self._place)
        return self._selection(str(name))

    def several(self, quantity: Token, pattern: Token) -> ConditionPart:
        if pattern not in self._named:
            self._looked_at += len(self._names)
            if self._looked_at > NAMES_LOOKED_AT_MAX:
                raise LimitError("NAMES_LOOKED_AT_MAX", NAMES_LOOKED_AT_MAX)
            shape = "*" if pattern.lower() == "them" else str(pattern)
            texts = Segments(tuple(shape.encode(errors="surrogatepass").split(b"*")))
            listed = [name for name in self._names if name[:1] != "_"]
            names = [name for name in listed if texts.hold(name.encode(errors="surrogatepass"))]
            if not names:
                raise refusal(refusals.NO_SELECTION, pattern, self._place)
            self._named[pattern] = names
        parts = tuple(self._selection(name) for name in self._named[pattern])
        return self._join(And if quantity.lower() == "all" else Or, parts)

    def _join(self, kind: type[And | Or], given: tuple[ConditionPart, ...]) -> ConditionPart:
        parts = tuple(each for each in given if each is not None)
        if not parts:
            return None
        form = (kind, tuple(map(id, parts)))
        if form not in self._joined:
            self._joined[form] = kind(parts)
        return self._joined[form]
