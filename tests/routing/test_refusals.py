"""Who is refused something is told the limit, or the value, that was in the way."""

import pytest

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Filter, FilterSet, Pattern, Product
from contrada.routing import refusals as module
from contrada.routing.delegation import SubscribePattern
from contrada.routing.messages import (
    Advertise,
    LinkState,
    Message,
    Reason,
    Subscribe,
    Unsubscribe,
)
from contrada.routing.refusals import error_of

SOME, NONE = Filter("a > 0"), Filter("a < 0 and a > 0")


@pytest.mark.parametrize(
    ("message", "reason", "limit", "size"),
    [
        (Subscribe("i" * 300, SOME), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (Unsubscribe("i" * 256), Reason.TOO_LONG, "LABEL_CHARS_MAX", 256),
        (Subscribe("1", FilterSet([SOME, Filter("b = 1")])), Reason.FULL, "FILTERS", 2),
        (Subscribe("1", FilterSet([SOME])), Reason.FULL, "LEDGER_ENTRIES_MAX", None),
        (Subscribe("1", SOME), Reason.FULL, "LEDGER_ENTRIES_MAX", None),
        (Advertise("1", SOME), Reason.FULL, "LEDGER_ENTRIES_MAX", None),
    ],
)
def test_a_limit_is_named(
    message: Message,
    reason: Reason,
    limit: str,
    size: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client could not tell which of its limits it has met, or would be told another."""
    monkeypatch.setattr(module, "SUBSCRIPTION_FILTERS_MAX", 1)
    error = error_of(message, reason)
    assert isinstance(error, LimitError)
    assert limit in error.limit
    assert error.size == size


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (Subscribe("1", NONE), NONE),
        (Advertise("1", NONE), NONE),
        (SubscribePattern("1", Pattern([SOME, NONE])), Pattern([SOME, NONE])),
    ],
)
def test_what_cannot_match_is_shown(message: Message, value: Product | Pattern) -> None:
    """A client could not tell which of its filters is wrong."""
    error = error_of(message, Reason.UNSATISFIABLE)
    assert isinstance(error, UnsatisfiableFilterError)
    assert error.filter == value


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (LinkState("a", 1, ()), Reason.FULL),
        (Unsubscribe("1"), Reason.UNKNOWN_SUBSCRIPTION),
    ],
)
def test_where_the_reason_says_it_all_nothing_is_added(message: Message, reason: Reason) -> None:
    """A neighbour would be told of a limit that it has not met."""
    assert error_of(message, reason) is None
