"""`RefusedError`: the refusal of an event inside a router, with its reason."""

from contrada.errors import ContradaError, LimitError
from contrada.routing.router_messages import LABEL_CHARS_MAX, Reason


class RefusedError(Exception):
    """An event changes nothing. The error never leaves the router, which answers `Refused`.

    `error` adds the exceeded limit or the offending value for a client, where the reason is not
    enough.
    """

    def __init__(self, reason: Reason, error: ContradaError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        # Without its traceback, whose frames an answer would keep alive.
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
