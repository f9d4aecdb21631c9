"""Reasons why an event pattern is refused: fixed phrases, by which refusals are counted."""

from typing import Final, NoReturn

from contrada.errors import RefusedRuleError

DIALECT: Final = "eventbridge"

FUNCTION: Final = "a value that only the deployment of the template knows"
NO_OBJECT: Final = "a pattern is an object"
NO_PATTERN: Final = "a rule without an event pattern"
EMPTY_OBJECT: Final = "an object is not empty"
FIELD: Final = "a field has an object or an array"
EMPTY_ARRAY: Final = "an array is not empty"
TWICE: Final = "a field twice"
NAME: Final = "no attribute can have this name"
OR: Final = "$or takes at least two objects without names of operators"
VALUE: Final = "a value is a string, a number, true, false, null or a match expression"
ONE_KEY: Final = "a match expression has one key"
UNKNOWN: Final = "unknown match expression"
STRING: Final = "expected a string"
NOCASE: Final = "expected a string, or equals-ignore-case with one"
BUT: Final = "anything-but takes strings, or numbers, or one kind of match expression with strings"
BUT_EMPTY: Final = "a prefix or suffix in anything-but is not empty"
NUMERIC: Final = "numeric takes one comparison, or a lower bound and an upper one above it"
EXISTS: Final = "exists takes true or false"
CIDR: Final = "cidr takes an address, a slash and fewer bits than the address has"
WILDCARD: Final = "a wildcard has no ** and escapes nothing but * and \\"
INEXACT: Final = "no double equals this number"
NOT_TEXT: Final = "a lone surrogate is not text"

UNSAYABLE: Final = "no pattern expresses this set"
UNSAYABLE_NAME: Final = "no pattern names this attribute"
MATCHES_NOTHING: Final = "no event matches"
MATCHES_EVERYTHING: Final = "every event matches"


def refuse(reason: str, found: object, place: str) -> NoReturn:
    """Raises RefusedRuleError of this dialect; the place is the path of a field."""
    raise RefusedRuleError(DIALECT, reason, found, place)
