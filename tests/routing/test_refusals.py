"""Refusals carry the exceeded limit, or the invalid value."""

import pytest

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Filter, FilterSet, Notification, Pattern, Product, Query
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.router import Router
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Advertise,
    AnnounceLinks,
    Client,
    LinkState,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    RefusedError,
    Role,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    check_label,
)
from tests.routing.refused import refused
from tests.routing.test_query_router import ask

SOME, NONE = Filter("a > 0"), Filter("a < 0 and a > 0")
IMPOSSIBLE = Pattern([SOME, NONE])
LONG = "i" * 300


def answer(message: Message, limits: RouterLimits = RouterLimits()) -> Refused:
    """Returns the refusal of a client's message by a router with one subscription and one
    advertisement.
    """
    router = Router(limits=limits)
    router.handle(Received(Client("a"), Subscribe("held", SOME)), 0)
    router.handle(Received(Client("a"), Advertise("held", SOME)), 0)
    (effect,) = router.handle(Received(Client("a"), message), 0)
    assert isinstance(effect, Refused)
    return effect


@pytest.mark.parametrize(
    ("message", "reason", "limit", "size"),
    [
        (Subscribe(LONG, SOME), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (Unsubscribe("i" * 256), Reason.TOO_LONG, "LABEL_CHARS_MAX", 256),
        (Advertise(LONG, SOME), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (Unadvertise(LONG), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (SubscribePattern(LONG, IMPOSSIBLE), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (UnsubscribePattern(LONG), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (ask(Query("a = 1"), asker=LONG), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (ask(Query("a = 1"), LONG), Reason.TOO_LONG, "LABEL_CHARS_MAX", 300),
        (
            Subscribe("1", FilterSet([SOME, Filter("b = 1")])),
            Reason.FULL,
            "filters_per_subscription_max",
            2,
        ),
        (Subscribe("1", FilterSet([SOME])), Reason.FULL, "registrations_max", 2),
        (Subscribe("1", SOME), Reason.FULL, "registrations_max", 2),
        (Advertise("1", SOME), Reason.FULL, "registrations_max", 2),
    ],
)
def test_a_limit_is_named(message: Message, reason: Reason, limit: str, size: int | None) -> None:
    """A client could not identify the exceeded limit, or would see another one."""
    limits = RouterLimits(filters_per_subscription_max=1, registrations_max=1)
    refusal = answer(message, limits)
    assert refusal.reason is reason
    assert isinstance(refusal.error, LimitError)
    assert (refusal.error.limit, refusal.error.size) == (limit, size)


def test_the_filters_of_a_server_are_a_limit_of_their_own() -> None:
    """The limit of subscriptions would be reported instead of the limit of filters."""
    refusal = answer(Subscribe("1", Filter("b = 1")), RouterLimits(filters_max=1))
    assert isinstance(refusal.error, LimitError)
    assert (refusal.error.limit, refusal.error.size) == ("filters_max", 2)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (Subscribe("1", NONE), NONE),
        (Advertise("1", NONE), NONE),
        (SubscribePattern("1", IMPOSSIBLE), IMPOSSIBLE),
        (ask(Query("a < 0 and a > 0")), FilterSet([Filter("a < 0 and a > 0")])),
    ],
)
def test_an_unsatisfiable_filter_is_shown(message: Message, value: Product | Pattern) -> None:
    """A client could not identify its wrong filter."""
    refusal = answer(message)
    assert refusal.reason is Reason.UNSATISFIABLE
    assert isinstance(refusal.error, UnsatisfiableFilterError)
    assert refusal.error.filter == value


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (AnnounceLinks((LinkState("a", 1, ()),)), Reason.WRONG_LINK_STATE),
        (Unsubscribe("1"), Reason.UNKNOWN_SUBSCRIPTION),
        (Unadvertise("1"), Reason.UNKNOWN_ADVERTISEMENT),
        (Subscribe("held", Filter("b = 1")), Reason.IDENTITY_IN_USE),
        (Publish((Notification({}),), hops=-1), Reason.TOO_MANY_HOPS),
        (Subscribe("1", SOME, version=9), Reason.VERSION),
    ],
)
def test_a_sufficient_reason_has_no_error(message: Message, reason: Reason) -> None:
    """A client would see a limit that it has not exceeded."""
    refusal = answer(message)
    assert (refusal.reason, refusal.error) == (reason, None)


def test_a_link_too_many_names_its_limit() -> None:
    """An operator could not identify the full table."""
    router = Router(limits=RouterLimits(neighbours_max=0))
    (effect,) = router.handle(LinkUp(Neighbour("b"), Role.PEER), 0)
    assert isinstance(effect, Refused)
    assert isinstance(effect.error, LimitError)
    assert effect.error.limit == "neighbours_max"


def test_the_longest_label_counts() -> None:
    """A long label would pass behind a short one, or one of just that length not."""
    assert refused(check_label, "i" * 255, "") is None
    refusal = refused(check_label, "a", "i" * 256, "b")
    assert refusal is not None
    assert isinstance(refusal.error, LimitError)
    assert refusal.error.size == 256


def test_an_error_has_no_traceback() -> None:
    """A stored answer would keep all frames of its traceback alive."""
    with pytest.raises(LimitError) as caught:
        raise LimitError("NAME", 1)
    assert caught.value.__traceback__ is not None
    assert RefusedError(Reason.FULL, caught.value).error is caught.value
    assert caught.value.__traceback__ is None
