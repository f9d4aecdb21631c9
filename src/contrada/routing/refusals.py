"""Refusals inside a router, and what a client is told of one beside its reason.

That is a limit, or the value at fault.
"""

from contrada.errors import ContradaError, LimitError, UnsatisfiableFilterError
from contrada.routing.delegation import SubscribePattern
from contrada.routing.messages import (
    LABEL_CHARS_MAX,
    SUBSCRIPTION_FILTERS_MAX,
    Advertise,
    Ask,
    Event,
    LinkState,
    Message,
    Publish,
    Reason,
    Received,
    Subscribe,
)
from contrada.routing.tables.ledger import LEDGER_ENTRIES_MAX


class RefusedError(Exception):
    """An event that changes nothing. It never leaves the router, which answers `Refused`."""

    def __init__(self, reason: Reason, error: ContradaError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self._error = error

    def error_of(self, event: Event) -> ContradaError | None:
        """What a client is told beside the reason: the limit or the value that was in the way."""
        if self._error is not None:
            return self._error.with_traceback(None)
        return error_of(event.message, self.reason) if isinstance(event, Received) else None


def error_of(message: Message, reason: Reason) -> ContradaError | None:
    """What is to be said of a message beside the reason; None where that says it all."""
    match reason:
        case Reason.UNSATISFIABLE:
            return _unsatisfiable(message)
        case Reason.TOO_LONG if isinstance(message, Ask):
            longest = max(len(message.identity), len(message.asker))
            return LimitError("LABEL_CHARS_MAX", LABEL_CHARS_MAX, longest)
        case Reason.TOO_LONG if not isinstance(message, Publish | LinkState):
            return LimitError("LABEL_CHARS_MAX", LABEL_CHARS_MAX, len(message.identity))
        case Reason.FULL if (
            isinstance(message, Subscribe) and _size(message) > SUBSCRIPTION_FILTERS_MAX
        ):
            return LimitError("SUBSCRIPTION_FILTERS_MAX", SUBSCRIPTION_FILTERS_MAX, _size(message))
        case Reason.FULL if not isinstance(message, LinkState):
            return LimitError("LEDGER_ENTRIES_MAX", LEDGER_ENTRIES_MAX)
    return None


def _unsatisfiable(message: Message) -> ContradaError | None:
    match message:
        case Subscribe(_, filters):
            return UnsatisfiableFilterError(filters)
        case SubscribePattern(_, pattern):
            return UnsatisfiableFilterError(pattern)
        case Advertise(_, offer):
            return UnsatisfiableFilterError(offer)
        case Ask(query=query):
            return UnsatisfiableFilterError(query)
    return None


def _size(message: Subscribe) -> int:
    return len(message.filters.filters)
