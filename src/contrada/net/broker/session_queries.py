"""`SessionQueries`: the queries of a client, and those that its sources answer."""

import logging
from collections import deque
from collections.abc import Generator
from typing import Final

from msgspec.structs import replace

from contrada.errors import ContradaError, FrameError, LimitError, shortened
from contrada.model import Notification
from contrada.model.languages.work_budget import Exhausted
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.frames import AboutQuestions, Frame, QuestionDelivery, Reply
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.query_codec import ANSWER_BYTES_MAX, decode_query_message, split_answer
from contrada.routing import router_messages as messages
from contrada.routing.router_messages import Client, SourceReport, SourceState
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import ENTRY_BYTES

_LOG: Final = logging.getLogger(__name__)
_MAY_NOT_GIVE: Final = "not permitted: its user may not publish all that it gave"
_MAY_NOT_COMBINE: Final = (
    "it may not publish everything, and the items in a combined answer cannot be checked"
)


class SessionQueries:
    """The queries and sources of one client."""

    def __init__(self, connection: ServerConnection, client: Client) -> None:
        self._connection, self._client = connection, client
        self._dispatcher = connection.broker.dispatcher
        self._sources: set[str] = set()
        self._asked: set[tuple[str, str]] = set()
        # For a user without all publish rights: the items of each source that was asked, by open
        # query; None for a failed source.
        self._item_counts: dict[tuple[str, str], dict[str, int | None]] = {}
        self._queue = _QueryQueue(connection)
        self._dispatcher.listen(client, self._on_effect)

    def handle(
        self, number: int, message: messages.Describe | messages.Undescribe | messages.Ask
    ) -> None:
        """Handles a request, and answers it. Raises LimitError, ServiceError, FrameError."""
        permit, limits = self._connection.permit, self._connection.broker.limits
        with request_work():
            match message:
                case messages.Describe():
                    if permit is not None:
                        permit.check_publisher(message.identity, "answer")
                        offers = tuple(map(permit.allow_offer, message.offers))
                        message = replace(message, offers=offers)
                    is_new = message.identity not in self._sources
                    if is_new and len(self._sources) >= (most := limits.sources_per_client_max):
                        raise LimitError("sources_per_client_max", most)
                    self._dispatcher.request(self._client, message)
                    self._sources.add(message.identity)
                case messages.Undescribe():
                    self._dispatcher.request(self._client, message)
                    self._sources.discard(message.identity)
                case messages.Ask():
                    self._ask(message)
        self._connection.send(Reply(number))

    def _ask(self, question: messages.Ask) -> None:
        if question.hops or question.source:
            raise FrameError("options", "a client's query has no hops and no source")
        if self._connection.permit is not None:
            if question.asker:
                self._connection.permit.check_publisher(question.asker, "ask")
            handle = self._connection.permit.allow_query(question.alternatives)
            question = replace(question, alternatives=handle)
        most = self._connection.broker.limits.questions_per_client_max
        if len(self._asked) >= most:
            raise LimitError("questions_per_client_max", most)
        key = (question.asker, question.identity)
        is_new = key not in self._asked
        self._asked.add(key)
        try:
            self._dispatcher.ask(self._client, question)
        except (ContradaError, Exhausted):
            if is_new:  # Else that one is still open.
                self._asked.discard(key)
            raise

    def handle_frame(self, frame: AboutQuestions) -> Generator[None]:
        """Handles the client's messages about queries. Raises FrameError for other messages."""
        for each in frame.messages:
            try:
                with request_work():
                    message = decode_query_message(each)
                if isinstance(message, messages.Answer) and self._connection.permit is not None:
                    message = yield from self._answerable(self._connection.permit, message)
                    if message.is_last:
                        self._item_counts.pop((message.asker, message.identity), None)
                with request_work():
                    self._dispatcher.request(self._client, message)
            except ContradaError as error:
                self._connection.fail(failure := FrameError("malformed", f"of a question: {error}"))
                raise failure from None
            if isinstance(message, messages.Cancel):
                self._asked.discard((message.asker, message.identity))
            yield

    def _answerable(
        self, permit: Permit, message: messages.Answer
    ) -> Generator[None, None, messages.Answer]:
        """Returns an answer without items that the client may not publish; their sources have
        failed.

        A source fails with its first such item, and its later items are dropped. An item of a
        source that was not asked fails all sources: it may be of each. Raises FrameError.
        """
        if message.partial and not permit.principal.publishes_all:
            raise FrameError(NOT_PERMITTED, _MAY_NOT_COMBINE)
        refused = set((yield from permit.unpublishable(message.items)))
        given = self._item_counts.get((message.asker, message.identity), {})
        kept: list[Notification] = []
        failed: list[SourceReport] = []
        for at, item in enumerate(message.items):
            name = item.envelope.publisher
            if at not in refused and (count := given.get(name)) is not None:
                given[name] = count + 1
                kept.append(item)
                continue
            for each in [name] if name in given else [*given]:
                if (count := given[each]) is not None:
                    given[each] = None
                    failed.append(SourceReport(each, SourceState.FAILED, count, _MAY_NOT_GIVE))
        if dropped := len(message.items) - len(kept):
            self._connection.broker.dropped[NOT_PERMITTED] += dropped
            # These items reach no reader, so the asker never grants their room again.
            more = messages.More(message.asker, message.identity, dropped)
            self._queue.add(AboutQuestions([encode_message(more)]))
        if failed:
            sources = shortened(", ".join(each.name for each in failed))
            fields = {"source": sources, "user": permit.principal.name}
            _LOG.info("source %(source)s gave items that %(user)s may not publish", fields)
        heard = (each for each in message.reports if given.get(each.name, 0) is not None)
        return replace(message, items=tuple(kept), reports=(*heard, *failed))

    def _on_effect(self, effect: messages.DeliverQuestion | messages.NotifyClient) -> None:
        if isinstance(effect, messages.DeliverQuestion):
            self._ask_sources(effect)
        elif isinstance(effect.message, messages.Answer):
            answer = effect.message
            if self._connection.permit is not None:
                readable = self._connection.permit.readable(answer.items)
                answer = replace(answer, items=tuple(readable))
            for each in split_answer(answer):
                self._queue.add(AboutQuestions([encode_message(each)]))
            if answer.is_last:
                self._asked.discard((answer.asker, answer.identity))
        else:
            if isinstance(effect.message, messages.Cancel):
                self._item_counts.pop((effect.message.asker, effect.message.identity), None)
            self._queue.add(AboutQuestions([encode_message(effect.message)]))

    def _ask_sources(self, effect: messages.DeliverQuestion) -> None:
        """Asks sources. A combined query fails at sources whose items the broker must check."""
        permit, question = self._connection.permit, effect.question
        if question.combination and permit and not permit.principal.publishes_all:
            state, why = SourceState.FAILED, _MAY_NOT_COMBINE
            failed = tuple([SourceReport(name, state, 0, why) for name in effect.sources])
            refused = messages.Answer(question.asker, question.identity, (), failed, is_last=True)
            self._connection.soon(self._dispatcher.request, self._client, refused)
        else:
            if permit is not None:
                self._item_counts[question.asker, question.identity] = dict.fromkeys(
                    effect.sources, 0
                )
            self._queue.add(QuestionDelivery([*effect.sources], encode_message(question)))

    def end(self) -> None:
        """Closes the queue of the client."""
        self._queue.close()


class _QueryQueue:
    """The queue of messages about queries to a client."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._frames: deque[QuestionDelivery | AboutQuestions] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: QuestionDelivery | AboutQuestions) -> None:
        self._connection.budget.change(_size_of(frame))
        self._frames.append(frame)
        self._connection.mark_ready(self)

    def next_frame(self) -> Frame | None:
        """Returns the next frame, joined with the messages behind it that fit."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        size = _size_of(frame)
        while isinstance(frame, AboutQuestions) and self._frames and size < ANSWER_BYTES_MAX:
            behind = self._frames[0]
            if not isinstance(behind, AboutQuestions):
                break
            size += _size_of(self._frames.popleft())
            frame.messages.extend(behind.messages)
        self._connection.budget.change(-size)
        return frame

    def close(self) -> None:
        self._connection.forget_feed(self)
        while self.next_frame() is not None:
            pass


def _size_of(frame: QuestionDelivery | AboutQuestions) -> int:
    messages = [frame.message] if isinstance(frame, QuestionDelivery) else frame.messages
    return ENTRY_BYTES + sum(map(len, messages))
