"""The conditions of Sigma rules: which of a rule's selections must hold.

Names stand for selections, `1 of` (also `any of`) and `all of` for several: those whose names a
pattern fits, or all with `them`. Selections whose names begin with an underscore are in neither.

Source: Sigma specification 2.1.0, section on conditions.
"""

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Final

from lark import Lark, Token, UnexpectedInput
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive, v_args

from contrada.dialects.expression import Condition, Every, Some, negation
from contrada.dialects.sigma import refusals
from contrada.dialects.sigma.refusals import refused
from contrada.errors import LimitError

SIGMA_CONDITION_CHARACTERS_MAX: Final = 10_000
"""Characters of one condition."""

SIGMA_PARENTHESES_MAX: Final = 50
"""Parentheses in one another in a condition."""


def parsed(text: str, names: Collection[str], selection: Callable[[str], Condition]) -> Condition:
    """What a condition asks. `names` are the selections there are, `selection` reads one.

    Raises RefusedRuleError, and LimitError.
    """
    _check_size(text)
    try:
        return _Reader(names, selection).transform(_grammar().parse(text))
    except UnexpectedInput as error:
        reason = refusals.AGGREGATION if "|" in text else refusals.CONDITION
        raise refused(reason, text, f"condition, column {error.column}") from None
    except VisitError as error:
        raise error.orig_exc from None


def _check_size(text: str) -> None:
    if len(text) > SIGMA_CONDITION_CHARACTERS_MAX:
        raise LimitError(
            "SIGMA_CONDITION_CHARACTERS_MAX", SIGMA_CONDITION_CHARACTERS_MAX, len(text)
        )
    depth = 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if depth > SIGMA_PARENTHESES_MAX:
            raise LimitError("SIGMA_PARENTHESES_MAX", SIGMA_PARENTHESES_MAX)


@cache
def _grammar() -> Lark:
    grammar = Path(__file__).with_name("condition.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=False)


@v_args(inline=True)
class _Reader(Transformer_NonRecursive[Token, Condition]):
    """Conditions from the parse tree."""

    def __init__(self, names: Collection[str], selection: Callable[[str], Condition]) -> None:
        super().__init__()
        self._names = names
        self._selection = selection

    def some(self, *parts: Condition) -> Condition:
        return Some(parts)

    def every(self, *parts: Condition) -> Condition:
        return Every(parts)

    def not_(self, *parts: Token | Condition) -> Condition:
        *words, part = parts
        assert not isinstance(part, Token), "words come before what they negate"
        return negation(part) if len(words) & 1 else part

    def one(self, name: Token) -> Condition:
        if name not in self._names:
            raise refused(refusals.NO_SELECTION, str(name), "condition")
        return self._selection(str(name))

    def several(self, quantity: Token, pattern: Token) -> Condition:
        names = [name for name in self._names if name[:1] != "_" and _fits(pattern, name)]
        if not names:
            raise refused(refusals.NO_SELECTION, str(pattern), "condition")
        parts = tuple(self._selection(name) for name in names)
        return Every(parts) if quantity.lower() == "all" else Some(parts)


def _fits(pattern: str, name: str) -> bool:
    """Whether the name fits the pattern. Linear, since no star ever takes back what it took."""
    if pattern.lower() == "them":
        return True
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if not name.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = name.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return name.endswith(last) and len(name) - len(last) >= at
