"""`parse_request_filter`: the filter of a request, in the text syntax or another dialect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, get_args

from contrada.errors import InvalidValueError, LimitError, RefusedRuleError
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.model import FilterSet
from contrada.model.languages.work_budget import Work
from contrada.model.rule import RefusedRule, Rule
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.service import WhenFull

PARSED_AT_ONCE_CHARACTERS: Final = 1_000
"""Characters that are parsed on the event loop, at some 20 us each. Beyond it: in a thread."""

_PARSER: Final = ThreadPoolExecutor(1, "contrada-filters")


async def parse_request_filter(text: str, dialect: str, limits: GatewayLimits) -> FilterSet | Rule:
    """Parses a filter or rule. Raises ContradaError for a malformed or too costly one."""
    most = limits.filter_characters_max
    if len(text) > most:
        raise LimitError("filter_characters_max", most, len(text))
    found: FilterSet | Rule = await within_work(lambda: _parse(text, dialect), len(text))
    return found


async def within_work(parse: Callable[[], Any], characters: int) -> Any:
    """Parses a stranger's text within the work of one request. Raises LimitError."""

    def bounded() -> Any:
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            return parse()

    if characters <= PARSED_AT_ONCE_CHARACTERS:
        return bounded()
    return await asyncio.get_running_loop().run_in_executor(_PARSER, bounded)


def _parse(text: str, dialect: str) -> FilterSet | Rule:
    if not dialect:
        return FilterSet(text)
    if dialect not in DIALECTS:
        raise InvalidValueError(dialect, f"expected a dialect: {', '.join(DIALECTS)}")
    rules = list(DIALECTS[dialect].reader()(text))
    if len(rules) != 1:
        raise RefusedRuleError(dialect, "a subscription is to one rule", f"{len(rules)} rules")
    (rule,) = rules
    if isinstance(rule, RefusedRule):
        raise rule.error
    return rule


def parse_policy(when_full: str | None) -> WhenFull:
    """Returns the policy for a full queue of a slow reader. Raises InvalidValueError."""
    if when_full is None:
        return "drop-oldest"  # A slow browser must not delay publishers.
    if when_full not in get_args(WhenFull):
        raise InvalidValueError(when_full, f"expected one of {', '.join(get_args(WhenFull))}")
    return when_full  # type: ignore[return-value]
