"""`PublisherPasts`: the publishers of one server whose earlier servers have not reported yet.

A publisher that moves names its earlier servers. Until each of them has reported the publisher's
last number, its publications wait here: they might be duplicates, or overtake earlier ones.

    publisher ==> connect, with its earlier servers ==> AskPast to each
                                                    <== Past: known. All known: it may publish

Invariant: a publisher without unreported servers has no session.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import AskPast, Past
from contrada.delivery.durable_table import DurableTable
from contrada.delivery.outbox import Outbox
from contrada.delivery.publishers import Publishers
from contrada.errors import LimitError

ASK_AGAIN_US: Final = 1_000_000
"""Microseconds after which an unanswered `AskPast` is repeated."""


@dataclass(slots=True)
class PublisherSession:
    """One connection of a publisher to this server.

    `number` distinguishes its connections. `incarnations`: servers that have not reported yet, each
    with its incarnation. `asked`: for each of them, the incarnation that was asked, and the place
    of the question in the stream to it.
    """

    number: int
    incarnations: dict[str, int]
    asked: dict[str, tuple[int, int]] = field(default_factory=dict)


class PublisherPasts:
    """The open sessions. `send` sends a question; `recheck` is called when a past is known."""

    def __init__(
        self,
        name: str,
        table: DurableTable,
        outbox: Outbox,
        publishers: Publishers,
        send: Callable[[str, AskPast, int], None],
        recheck: Callable[[], None],
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self.due_us = 0
        self._name = name
        self._table, self._outbox, self._publishers = table, outbox, publishers
        self._send, self._recheck = send, recheck
        self._waiting_max = limits.waiting_max
        self._sessions: dict[str, PublisherSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, publisher: object) -> bool:
        """Whether a publisher's past is still unknown."""
        return publisher in self._sessions

    def await_past(self, publisher: str, past: Mapping[str, int], now_us: int) -> None:
        """Opens a session of a publisher. `past`: its servers, each with its incarnation.

        Raises LimitError.
        """
        if publisher not in self._sessions and len(self) >= self._waiting_max:
            raise LimitError("waiting_max", self._waiting_max, len(self) + 1)
        others = {server: number for server, number in past.items() if server != self._name}
        if others:
            self._sessions[publisher] = PublisherSession(now_us, others)
            self._ask(publisher, now_us)

    def forget(self, server: str, incarnation: int) -> None:
        """Ends the wait for earlier incarnations of a server: their memory is lost."""
        for publisher, session in list(self._sessions.items()):
            if session.incarnations.get(server, incarnation) < incarnation:
                self.learn(publisher, server)

    def learn(self, publisher: str, server: str, past: Past | None = None) -> None:
        """Takes a server's report of a publisher; None: its memory is lost.

        A report for an earlier session is ignored: the publisher was there again since.
        """
        session = self._sessions.get(publisher)
        is_late = past is not None and session is not None and past.visit != session.number
        if session is None or server not in session.incarnations or is_late:
            return
        del session.incarnations[server]
        if not session.incarnations:
            del self._sessions[publisher]
        known = self._publishers.get(publisher)
        if past is not None:
            known.learn(past.sequence, past.failed, past.unknown_to)
        # Its publications there took another route, and may still be in flight.
        known.needs_context = True
        self._publishers.save(publisher, known)
        self._recheck()

    def ask_again(self, publishers: Iterable[str], now_us: int) -> None:
        """Repeats the questions about publishers, at intervals."""
        if now_us < self.due_us:
            return
        self.due_us = now_us + ASK_AGAIN_US
        for publisher in dict.fromkeys(publishers):
            self._ask(publisher, now_us)

    def _ask(self, publisher: str, now_us: int) -> None:
        """Asks the unreported servers, except while a question is in flight."""
        session = self._sessions.get(publisher)
        if session is None:
            return
        for server, incarnation in list(session.incarnations.items()):
            owner = self._table.owners.get(server)
            now, _, taken = self._outbox.stream_state(server)
            if owner is not None and incarnation < owner.incarnation:
                self.learn(publisher, server)
            elif owner is not None and session.asked.get(server, (0, 0)) <= (now, taken):
                self._send(server, AskPast(publisher, session.number), now_us)
                session.asked[server] = self._outbox.stream_state(server)[:2]
