"""The refusals of checks, for tests."""

from collections.abc import Callable

from contrada.routing.router_messages import Reason, RefusedError


def refused(check: Callable[..., object], *args: object) -> RefusedError | None:
    """Returns the refusal of a call, or None."""
    try:
        check(*args)
    except RefusedError as refusal:
        return refusal
    return None


def reason_of(check: Callable[..., object], *args: object) -> Reason | None:
    """Returns the reason of a call's refusal, or None."""
    refusal = refused(check, *args)
    return None if refusal is None else refusal.reason
