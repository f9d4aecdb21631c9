"""What a check refuses, for tests."""

from collections.abc import Callable

from contrada.routing.refusals import RefusedError
from contrada.routing.router_messages import Reason


def refused(check: Callable[..., object], *args: object) -> RefusedError | None:
    """The refusal that a call raises; None where it raises none."""
    try:
        check(*args)
    except RefusedError as refusal:
        return refusal
    return None


def reason_of(check: Callable[..., object], *args: object) -> Reason | None:
    """Why a call refuses; None where it does not."""
    refusal = refused(check, *args)
    return None if refusal is None else refusal.reason
