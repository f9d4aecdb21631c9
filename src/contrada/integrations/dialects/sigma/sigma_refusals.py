"""Why a Sigma rule is refused: the fixed phrases, and the error that carries one."""

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
"""Characters of a Sigma rule's name, and of a place in it. Beyond it: the rest is left out."""


def refused(reason: str, found: object = None, place: str = "") -> RefusedRuleError:
    """The error that refuses a rule."""
    return RefusedRuleError(DIALECT, reason, found, shortened(place))


def shortened(text: str) -> str:
    """The text, or how it begins where it is too long to be told."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[: SHOWN_CHARACTERS_MAX - 1] + "…"
