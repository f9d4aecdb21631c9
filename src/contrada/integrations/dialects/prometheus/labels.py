"""`label_values`: label matchers of Prometheus as value sets.

An absent label is the empty text. A regular expression must match the whole label; `.` matches any
character, including a line feed. Labels are text in UTF-8, so `.*` at an end matches any text.

Source: Prometheus 3's documentation, Querying: basics, "Instant vector selectors".
"""

from typing import Final

from contrada.errors import InvalidFilterError, RefusedRuleError
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, ValueSet, union
from contrada.model.languages import characters, regex_operator, regex_syntax

DIALECT: Final = "prometheus"

REGULAR_EXPRESSION: Final = "a regular expression that is not linear"

_ANY: Final = regex_syntax.Chars(characters.complement(()))
_ANYTHING: Final = regex_syntax.Repeat(_ANY, 0, None)
_SOMETHING: Final = regex_syntax.Repeat(_ANY, 1, None)


def label_values(how: str, text: str) -> ValueSet:
    """Returns the values, or the absence, of a label that a matcher accepts.

    Raises RefusedRuleError for a regular expression that is invalid or not linear.
    """
    accepted = _matched_texts(text) if how.endswith("~") else sets.eq(text)
    if accepted.contains(""):
        accepted |= ABSENT
    return ~accepted if how.startswith("!") else accepted


def _matched_texts(pattern: str) -> ValueSet:
    """Returns the texts that a regular expression matches as a whole."""
    try:
        tree = regex_syntax.read(f"(?s){pattern}")
        if tree == _SOMETHING:
            return sets.ALL_TEXT - sets.eq("")
        plain = regex_operator.plain_forms(_whole(tree))
        if plain is None:
            return sets.matches(f"\\A(?s:{pattern})\\z")
    except InvalidFilterError as error:
        raise RefusedRuleError(DIALECT, REGULAR_EXPRESSION, pattern, error.reason) from None
    return union(map(sets.of_plain, plain))


def _whole(tree: regex_syntax.Tree) -> regex_syntax.Tree:
    """Returns an expression that finds a match exactly in the texts that the tree matches as a
    whole.
    """
    return _bound(_bound(tree, regex_syntax.AT_END), regex_syntax.AT_START)


def _bound(tree: regex_syntax.Tree, where: int) -> regex_syntax.Tree:
    """Adds a boundary at one end of a tree; any text at this end needs none."""
    if isinstance(tree, regex_syntax.Alternation):
        return regex_syntax.Alternation(tuple(_bound(part, where) for part in tree.parts))
    step = 1 if where == regex_syntax.AT_START else -1
    parts = (tree.parts if isinstance(tree, regex_syntax.Sequence) else (tree,))[::step]
    if parts[:1] == (_ANYTHING,):
        parts = parts[1:]
    elif parts[:1] == (regex_syntax.Look(where),):
        return _bound(regex_syntax.Sequence(parts[1:][::step]), where)
    elif parts and isinstance(parts[0], regex_syntax.Alternation):
        parts = (_bound(parts[0], where), *parts[1:])
    else:
        parts = (regex_syntax.Look(where), *parts)
    return regex_syntax.Sequence(parts[::step])
