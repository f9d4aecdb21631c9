"""`RefusedError`: inside a router, an event that changes nothing, and why."""

from contrada.errors import ContradaError, LimitError
from contrada.routing.router_messages import LABEL_CHARS_MAX, Reason


class RefusedError(Exception):
    """An event that changes nothing. It never leaves the router, which answers `Refused`.

    `error` is told to a client beside the reason, where the reason alone is not enough: it names
    the limit or the value that was in the way.
    """

    def __init__(self, reason: Reason, error: ContradaError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        # Without the frames that it came through, which an answer would keep alive.
        self.error = None if error is None else error.with_traceback(None)


def check_limit(limits: object, name: str, size: int) -> None:
    """Refuses a size beyond the limit of this name."""
    maximum: int = getattr(limits, name)
    if size > maximum:
        raise RefusedError(Reason.FULL, LimitError(name, maximum, size))


def check_label(*labels: str) -> None:
    """Refuses names and identities of more than LABEL_CHARS_MAX characters."""
    longest = max(map(len, labels))
    if longest > LABEL_CHARS_MAX:
        error = LimitError("LABEL_CHARS_MAX", LABEL_CHARS_MAX, longest)
        raise RefusedError(Reason.TOO_LONG, error)
