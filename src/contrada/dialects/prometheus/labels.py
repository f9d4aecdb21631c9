"""What a label must be: the matchers of Prometheus as value sets.

A label that is absent is the empty text. A regular expression is of the whole label, and `.` in it
is any character, also a line feed. Labels are text in UTF-8, so `.*` at an end is any text.

Source: Prometheus 3's documentation, Querying: basics, "Instant vector selectors".
"""

from typing import Final

from contrada.errors import InvalidFilterError, RefusedRuleError
from contrada.model.algebra import sets
from contrada.model.algebra.valueset import ABSENT, ValueSet, union
from contrada.model.languages import characters, regular, search

DIALECT: Final = "prometheus"

REGULAR_EXPRESSION: Final = "a regular expression that is not linear"

_ANY: Final = regular.Chars(characters.inverse(()))
_ANYTHING: Final = regular.Repeat(_ANY, 0, None)
_SOMETHING: Final = regular.Repeat(_ANY, 1, None)


def label_values(how: str, text: str) -> ValueSet:
    """The values, or the absence, of a label that a matcher accepts.

    Raises RefusedRuleError where a regular expression is none, or not linear.
    """
    accepted = _described(text) if how.endswith("~") else sets.eq(text)
    if accepted.contains(""):
        accepted |= ABSENT
    return ~accepted if how.startswith("!") else accepted


def _described(pattern: str) -> ValueSet:
    """The texts that a regular expression describes as a whole."""
    try:
        tree = regular.read(f"(?s){pattern}")
        if tree == _SOMETHING:
            return sets.ALL_TEXT - sets.eq("")
        plain = search.plain_forms(_whole(tree))
        if plain is None:
            return sets.matches(f"\\A(?s:{pattern})\\z")
    except InvalidFilterError as error:
        raise RefusedRuleError(DIALECT, REGULAR_EXPRESSION, pattern, error.reason) from None
    return union(map(sets.of_plain, plain))


def _whole(tree: regular.Tree) -> regular.Tree:
    """An expression that finds something where the tree describes the whole text."""
    return _bound(_bound(tree, regular.AT_END), regular.AT_START)


def _bound(tree: regular.Tree, where: int) -> regular.Tree:
    """The same, at an end of the text; any text there needs no such place."""
    if isinstance(tree, regular.Alternation):
        return regular.Alternation(tuple(_bound(part, where) for part in tree.parts))
    step = 1 if where == regular.AT_START else -1
    parts = (tree.parts if isinstance(tree, regular.Sequence) else (tree,))[::step]
    if parts[:1] == (_ANYTHING,):
        parts = parts[1:]
    elif parts[:1] == (regular.Look(where),):
        return _bound(regular.Sequence(parts[1:][::step]), where)
    elif parts and isinstance(parts[0], regular.Alternation):
        parts = (_bound(parts[0], where), *parts[1:])
    else:
        parts = (regular.Look(where), *parts)
    return regular.Sequence(parts[::step])
