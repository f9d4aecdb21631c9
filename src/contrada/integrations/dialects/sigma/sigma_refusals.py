"""Reasons why a Sigma rule is refused: fixed phrases, and the error with one of them."""

from typing import Final

from contrada.errors import RefusedRuleError

DIALECT: Final = "sigma"

NO_RULE: Final = "no detection rule"
NO_CONDITION: Final = "no condition"
CONDITION: Final = "a condition that cannot be read"
AGGREGATION: Final = "aggregation over several events"
NO_SELECTION: Final = "a selection that is not there"
SAME_SELECTION: Final = "two selections of one name"
EMPTY_SELECTION: Final = "an empty selection"
KEYWORDS: Final = "keyword selection"
FIELD_REFERENCE: Final = "comparison of two fields"
NAME: Final = "a field that is no attribute's name"
MODIFIER: Final = "unknown modifier"
MODIFIERS: Final = "modifiers that do not go together"
VALUE: Final = "a value that its modifiers do not take"
PLACEHOLDER: Final = "placeholder without values"
PATTERN: Final = "a pattern that is not supported"
CONSTRAINT: Final = "unknown constraint"


SHOWN_CHARACTERS_MAX: Final = 200
"""Characters of a Sigma rule's name, and of a place in it. Beyond it: the rest is omitted."""


def refusal(reason: str, found: object = None, place: str = "") -> RefusedRuleError:
    """Returns the error that refuses a rule."""
    return RefusedRuleError(DIALECT, reason, found, shorten(place))


def shorten(text: str) -> str:
    """Returns the text, shortened if it is too long to show."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[: SHOWN_CHARACTERS_MAX - 1] + "…"
