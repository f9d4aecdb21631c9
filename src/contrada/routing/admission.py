"""`Admission`: the checks of received messages, before any table is read.

It checks the version, the link, the owner or source, the hops and the length of identities, and
drops duplicates of notifications and queries.

Source: PODC 2000 §4 (a parent sends only notifications; general peer-to-peer: avoiding cycles).
"""

from collections.abc import Callable
from typing import Final

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Filter, FilterSet
from contrada.routing.delegation import PatternMessage
from contrada.routing.duplicates import Duplicates
from contrada.routing.links.topology import HOPS_MAX, Topology
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    VERSION,
    AckLinks,
    AnnounceLinks,
    Answer,
    Ask,
    Cancel,
    Message,
    More,
    Neighbour,
    Origin,
    OwnerMessage,
    Publish,
    QuestionMessage,
    Reason,
    RefusedError,
    Role,
    StateMessage,
    check_label,
)
from contrada.routing.tables.next_hop_cache import ITSELF

ALTERNATIVES_MAX: Final = 1_000
"""Disjuncts of one query. Beyond it: refused, counted."""

QUESTION_TIME_MAX_US: Final = 24 * 3_600 * 1_000_000
"""Microseconds until the deadline of a query. Beyond it: refused, counted."""

_FROM_PARENT: Final = Publish | QuestionMessage | AnnounceLinks | AckLinks | PatternMessage
"""Messages that a parent may send."""


class Admission:
    """The checks of one server, which raise `RefusedError`; a named one drops duplicates."""

    def __init__(
        self, name: str, topology: Topology, limits: RouterLimits = RouterLimits()
    ) -> None:
        self._topology = topology
        self._seen = {Publish: Duplicates(limits), Ask: Duplicates(limits)} if name else None

    def check(self, origin: Origin, message: StateMessage) -> None:
        """Refuses a registration that its origin may not send."""
        if message.version != VERSION:
            raise RefusedError(Reason.VERSION)
        self._check_origin(origin, message)
        if isinstance(message, OwnerMessage):
            self._check_label(origin, message.owner, self._topology.check_owner)
        elif isinstance(message, AnnounceLinks | AckLinks):
            return
        check_label(message.identity)

    def check_forwarded(self, origin: Origin, message: Publish | Ask) -> None:
        """Refuses a notification or a query that its origin may not send."""
        if message.version != VERSION:
            raise RefusedError(Reason.VERSION)
        if not 0 <= message.hops < HOPS_MAX:
            raise RefusedError(Reason.TOO_MANY_HOPS)
        self._check_origin(origin, message)
        self._check_label(origin, message.source, self._topology.check_source)
        if isinstance(origin, Neighbour) and not self._topology.is_in_mesh(origin):
            refusal = self._topology.refusal(origin)
            if refusal is not None:
                raise RefusedError(refusal)

    def check_query(self, origin: Origin, question: Ask) -> None:
        """Refuses an invalid query."""
        self.check_forwarded(origin, question)
        check_label(question.asker, question.identity)
        count = len(question.alternatives)
        if count > ALTERNATIVES_MAX:
            error = LimitError("ALTERNATIVES_MAX", ALTERNATIVES_MAX, count)
            raise RefusedError(Reason.FULL, error)
        if (
            not 0 < question.timeout_us <= QUESTION_TIME_MAX_US
            or question.limit < 0
            or ((question.window < 1) != (question.combination is not None))
        ):
            raise RefusedError(Reason.WRONG_QUESTION)
        for each in question.alternatives:
            if not each.query.is_empty:
                break
        else:
            queries = FilterSet(Filter.of_sets(it.query.sides) for it in question.alternatives)
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(queries))

    def check_reply(self, origin: Origin, message: Answer | More | Cancel) -> None:
        """Refuses an answer, credit or cancellation that its origin may not send."""
        if message.version != VERSION:
            raise RefusedError(Reason.VERSION)
        self._check_origin(origin, message)

    def check_duplicate(self, kind: type[Publish | Ask], sender: str, identity: str) -> None:
        """Refuses a second copy, and a message without an identity."""
        if self._seen is not None:
            if not identity:
                raise RefusedError(Reason.NO_IDENTITY)
            if not self._seen[kind].is_new(sender, identity):
                raise RefusedError(Reason.DUPLICATE)

    def _check_origin(self, origin: Origin, message: Message) -> None:
        if isinstance(origin, Neighbour):
            role = self._topology.role(origin)
            if role is None:
                raise RefusedError(Reason.UNKNOWN_NEIGHBOUR)
            if role is Role.PARENT and not isinstance(message, _FROM_PARENT):
                raise RefusedError(Reason.NOT_DUE)
        elif origin.name == ITSELF.name:
            raise RefusedError(Reason.UNKNOWN_CLIENT)

    def _check_label(self, origin: Origin, label: str, check: Callable[[str], None]) -> None:
        """Refuses an owner, or the source of a notification, that does not fit the link."""
        if isinstance(origin, Neighbour) and self._topology.is_in_mesh(origin):
            check(label)
        elif label:
            raise RefusedError(Reason.WRONG_OWNER)
