"""Files of SQL conditions, each of which ends with a semicolon, or with the file.

A comment before a condition can give its name, `-- name: cheap`; the default is its first line's
number.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from contrada.errors import RefusedRuleError
from contrada.integrations.dialects.sql.sql_reader import DIALECT, TOKENS, filters
from contrada.model.rule import RefusedRule, Rule, read_or_refuse

NO_CONDITIONS: Final = "no condition in the file"


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the conditions of a file, in order; see `model.rule.ReadRules`."""
    found, line, at = 0, 1, 0
    for begin, end in _statements(text):
        line += text.count("\n", at, begin)
        name = _name(text[at:begin].removeprefix(";")) or f"line {line}"
        if begin < end:
            found += 1
            yield read_or_refuse(name, partial(read, text[begin:end], name, line))
        line += text.count("\n", begin, end)
        at = end
    if not found:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_CONDITIONS))


def read(condition: str, name: str = "", line: int = 1) -> Rule:
    """Returns the rule of a condition that begins on a line. Places of refusals are lines of the
    file.

    Cost and errors: as `filters`.
    """
    try:
        return Rule(name, filters(condition, line))
    except RefusedRuleError as error:
        place = error.place or f"line {line}"
        raise RefusedRuleError(DIALECT, error.reason, error.found, place) from None


_COMMENTS: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*+", re.DOTALL)


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Yields the begin of each condition, behind comments, and its end; it may be empty."""
    at = 0
    ends = [match.start() for match in TOKENS.finditer(text) if match[0] == ";"]
    for end in (*ends, len(text)):
        comments = _COMMENTS.match(text, at, end)
        assert comments is not None, "it matches the empty text"
        yield comments.end(), end
        at = end + 1


def _name(comments: str) -> str:
    """Returns the name in the last comment of the form `-- name: …`."""
    bodies = [each.strip()[2:].strip() for each in comments.split("\n") if "--" in each]
    names = [each[len("name:") :].strip() for each in bodies if each.startswith("name:")]
    return names[-1] if names else ""
