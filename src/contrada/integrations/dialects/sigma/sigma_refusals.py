"""Reasons why a Sigma rule is refused: fixed phrases, and the error with one of them."""

from typing import Final

from contrada.errors import RefusedRuleError
from contrada.model.rule import require_name

DIALECT: Final = "sigma"

NO_RULE: Final = "no detection rule"
NO_CONDITION: Final = "no condition"
CONDITION: Final = "a condition that cannot be read"
AGGREGATION: Final = "aggregation over several events"
NO_SELECTION: Final = "a selection that is not there"
SAME_SELECTION: Final = "two selections of one name"
EMPTY_SELECTION: Final = "an empty selection"
KEYWORDS: Final = "keyword selection"
NOT_SEARCHED: Final = "keyword selection, and `keywords` names no attribute to search"
NAME: Final = "a field that is no attribute's name"
MODIFIER: Final = "unknown modifier"
MODIFIERS: Final = "modifiers that exclude each other"
VALUE: Final = "a value that its modifiers do not take"
PLACEHOLDER: Final = "placeholder without values"
PATTERN: Final = "a pattern that is not supported"
CONSTRAINT: Final = "unknown constraint"
PIPELINE: Final = "a pipeline that cannot be read"
PARAMETER: Final = "a parameter that is missing, unknown or of another type"
STEP: Final = "a transformation that is not supported"
STEP_CONDITION: Final = "a condition that is not supported"
QUERIES: Final = "a part of a pipeline that changes queries"
FAILURE: Final = "refused by a pipeline"
DROPPED: Final = "a rule of which the pipelines leave nothing"
CORRELATED: Final = "a correlation of several events, which filters cannot express"
CORRELATION: Final = "a correlation that cannot be read"
CORRELATION_TYPE: Final = "a type of correlation that patterns cannot express"
COUNT: Final = "a count that patterns cannot express"
TIMESPAN: Final = "a timespan that is no number of s, m, h or d"
ALIASES: Final = "groups by attributes of different names"
CHAIN: Final = "a correlation of correlations"
NO_RELATED: Final = "a rule that is not in the file"

SHOWN_CHARACTERS_MAX: Final = 200
"""Characters of a Sigma rule's name, and of a place in it. Beyond it: the rest is omitted."""


def refusal(reason: str, found: object = None, place: str = "") -> RefusedRuleError:
    """Returns the error that refuses a rule."""
    return RefusedRuleError(DIALECT, reason, found, shorten(place))


def field_name(name: str, place: str) -> str:
    """Returns the name of a field. Raises RefusedRuleError if no attribute can have it."""
    return require_name(DIALECT, NAME, name, shorten(place))


def shorten(text: str) -> str:
    """Returns the text, shortened if it is too long to show."""
    if len(text) <= SHOWN_CHARACTERS_MAX:
        return text
    return text[: SHOWN_CHARACTERS_MAX - 1] + "…"
