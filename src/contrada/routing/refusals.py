"""What a client is told of a refusal beside its reason: a limit, or the value at fault."""

from contrada.errors import ContradaError, LimitError, UnsatisfiableFilterError
from contrada.model import FilterSet
from contrada.routing.delegation import SubscribePattern
from contrada.routing.ledger import LEDGER_ENTRIES_MAX
from contrada.routing.messages import (
    LABEL_CHARS_MAX,
    SUBSCRIPTION_FILTERS_MAX,
    Advertise,
    LinkState,
    Message,
    Publish,
    Reason,
    Subscribe,
)


def error_of(message: Message, reason: Reason) -> ContradaError | None:
    """What is to be said of a message beside the reason; None where that says it all."""
    match reason:
        case Reason.UNSATISFIABLE:
            return _unsatisfiable(message)
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
    return None


def _size(message: Subscribe) -> int:
    return len(message.filters.filters) if isinstance(message.filters, FilterSet) else 1
