"""What requests ask for: filters in the text syntax, or rules of another dialect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, get_args

from contrada.errors import InvalidValueError, LimitError, RefusedRuleError
from contrada.integrations.files.rule_files import DIALECTS
from contrada.model import FilterSet
from contrada.model.languages.work_budget import Work
from contrada.model.rule import RefusedRule, Rule
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.service import WhenFull

FILTER_CHARACTERS_MAX: Final = 20_000
"""Characters of a filter, or of a rule, that is asked for over HTTP. Beyond it: the request is
refused."""

READ_AT_ONCE_CHARACTERS: Final = 1_000
"""Characters that are read at once, at some 20 us each. Beyond it: they are read on a thread, one
text after the other, and meanwhile the others have their turns."""

ONE_RULE: Final = "a subscription is to one rule"

_READING: Final = ThreadPoolExecutor(1, "contrada-asked")


async def asked_for(text: str, dialect: str = "") -> FilterSet | Rule:
    """What a text asks for. Raises ContradaError: what cannot be read, or is too much."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise LimitError("FILTER_CHARACTERS_MAX", FILTER_CHARACTERS_MAX, len(text))
    found: FilterSet | Rule = await within_work(lambda: _read(text, dialect), len(text))
    return found


async def within_work(read: Callable[[], Any], characters: int) -> Any:
    """What is read of a stranger's text, within the work of one request. Raises LimitError."""

    def reading() -> Any:
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            return read()

    if characters <= READ_AT_ONCE_CHARACTERS:
        return reading()
    return await asyncio.get_running_loop().run_in_executor(_READING, reading)


def _read(text: str, dialect: str) -> FilterSet | Rule:
    if not dialect:
        return FilterSet(text)
    if dialect not in DIALECTS:
        raise InvalidValueError(dialect, f"expected a dialect: {', '.join(DIALECTS)}")
    rules = list(DIALECTS[dialect].reader()(text))
    if len(rules) != 1:
        raise RefusedRuleError(dialect, ONE_RULE, f"{len(rules)} rules")
    (rule,) = rules
    if isinstance(rule, RefusedRule):
        raise rule.error
    return rule


def checked_policy(when_full: str | None, default: WhenFull) -> WhenFull:
    """What becomes of what a slow reader does not take. Raises InvalidValueError."""
    if when_full is None:
        return default
    if when_full not in get_args(WhenFull):
        raise InvalidValueError(when_full, f"expected one of {', '.join(get_args(WhenFull))}")
    return when_full  # type: ignore[return-value]
