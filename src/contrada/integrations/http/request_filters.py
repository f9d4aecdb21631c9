"""`parse_request_subject`: the filter or pattern of a request, or its rule in another dialect."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias, TypeVar, get_args

from contrada.errors import InvalidValueError, LimitError
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.model import Filter, FilterSet, Pattern, parse
from contrada.model.languages.work_budget import Work
from contrada.model.rule import Rule, only_rule
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.service import WhenFull

PARSED_AT_ONCE_CHARACTERS: Final = 1_000
"""Characters of a filter in the text syntax that are parsed on the event loop, at some 20 us each.
Beyond it, and in another dialect: in a thread."""

T = TypeVar("T")

_PARSER: Final = ThreadPoolExecutor(1, "contrada-filters")


RequestSubject: TypeAlias = FilterSet | Rule | Pattern


async def parse_request_subject(text: str, dialect: str, limits: GatewayLimits) -> RequestSubject:
    """Parses a filter, rule or pattern. Raises ContradaError for a malformed or too costly one."""
    most = limits.filter_characters_max
    if len(text) > most:
        raise LimitError("filter_characters_max", most, len(text))
    work = partial(_parse, text, dialect)
    if not dialect and len(text) <= PARSED_AT_ONCE_CHARACTERS:
        return _bounded(work)
    return await within_work(work)


async def within_work(work: Callable[[], T], executor: ThreadPoolExecutor = _PARSER) -> T:
    """Returns the result of a stranger's work in a thread. Raises LimitError beyond that of one
    request.
    """
    return await asyncio.get_running_loop().run_in_executor(executor, _bounded, work)


def _bounded(work: Callable[[], T]) -> T:
    with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
        return work()


def _parse(text: str, dialect: str) -> RequestSubject:
    if not dialect:
        found = parse(text)
        return FilterSet(found) if isinstance(found, Filter) else found
    if dialect not in DIALECTS:
        raise InvalidValueError(dialect, f"expected a dialect: {', '.join(DIALECTS)}")
    return only_rule(dialect, DIALECTS[dialect].reader()(text))


def parse_policy(when_full: str | None) -> WhenFull:
    """Returns the policy for a full queue of a slow reader. Raises InvalidValueError."""
    if when_full is None:
        return "drop-oldest"  # A slow browser must not delay publishers.
    if when_full not in get_args(WhenFull):
        raise InvalidValueError(when_full, f"expected one of {', '.join(get_args(WhenFull))}")
    return when_full  # type: ignore[return-value]
