"""`QuestionStream`: a question of the console, whose answers and sources arrive as events.

    answers    answers of sources, as they arrive
    groups     the aggregates: at the end, or of the answers so far
    sources    the state of each source, and whether answers may be missing

The question is sent with the token of the request, and ends with the connection.

Source: CU-CS-948-03 §2 (query, advertise, and respond).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Any, Final

from msgspec import Raw, Struct, json, structs

from contrada.errors import InvalidCombinationError, LimitError
from contrada.integrations.files.json_objects import json_group, shown_text
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.metrics import GatewayCounts
from contrada.integrations.http.request_filters import within_work
from contrada.integrations.http.request_slots import RequestSlots
from contrada.integrations.http.sent_events import QUIET, SentEvents, sent_event
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification
from contrada.routing.aggregation import Combination, Partial, aggregate_of
from contrada.routing.router_messages import QUESTION_HOPS_MAX, SourceReport, SourceState
from contrada.service import Answers
from contrada.service.query.source_query import SourceQuery
from contrada.service.query_interface import QUESTION_WAIT_S

QUESTION_ROWS_MAX: Final = 1_000
"""Sources, or groups of aggregates, in one event of a question. Beyond it: the first ones are in
it, those that failed before the others, and the event has the number of all."""

_STEP_S: Final = 0.25
"""Seconds between two states of the sources and of partial aggregates."""

_ORDER: Final = {SourceState.ASKED: 1, SourceState.ANSWERED: 2, SourceState.EMPTY: 2}


class Question(Struct, forbid_unknown_fields=True, kw_only=True):
    """A question, as the options of `contrada ask`.

    With `aggregates` the network combines the answers, and the result arrives at the end. With
    `shows_answers` too, the answers arrive, and the gateway combines them: the result of those that
    arrived so far. Both give the same result of the same answers.
    """

    question: str
    aggregates: tuple[str, ...] = ()
    by: str = ""
    shows_answers: bool = False
    limit: int | None = None
    sort: str = ""
    unique: bool = False
    timeout_s: float = QUESTION_WAIT_S
    hops: int = QUESTION_HOPS_MAX

    def combination(self) -> Combination | None:
        """Returns what is combined of the answers. Raises InvalidCombinationError."""
        if not self.aggregates:
            if self.by:
                reason = "is for aggregates: add one, such as count"
                raise InvalidCombinationError(self.by, reason)
            return None
        if self.sort or self.unique or (self.limit is not None and not self.shows_answers):
            reason = "limit, sort and unique are for answers, not for aggregates"
            raise InvalidCombinationError(self.aggregates, reason)
        return Combination(tuple(map(aggregate_of, self.aggregates)), self.by)


class Questions:
    """The open questions of each user of a gateway."""

    def __init__(self, counts: GatewayCounts, limits: GatewayLimits) -> None:
        self._counts, self._limits = counts, limits
        most = limits.questions_per_user_max
        self._slots = RequestSlots("questions (questions_per_user_max)", per_user=most)

    async def ask(
        self, question: Question, access: TokenService, opened: AsyncExitStack
    ) -> "QuestionStream":
        """Sends a question; returns its stream. `opened` ends it. Raises ContradaError."""
        most, text = self._limits.filter_characters_max, question.question
        if len(text) > most:
            raise LimitError("filter_characters_max", most, len(text))
        combination = question.combination()
        opened.enter_context(self._slots.take(access.user))
        query = await within_work(partial(SourceQuery, text))
        options: dict[str, Any] = {"timeout_s": question.timeout_s, "hops": question.hops}
        answers: Answers[Any]
        combined: Partial | None = None
        if combination is not None and not question.shows_answers:
            answers = access.service.compute(
                combination.aggregates, query, by=combination.by, **options
            )
        else:
            if combination is not None:
                combined = Partial(combination)
            if question.limit is not None:
                options["limit"] = question.limit
            answers = access.service.query(
                query, sort=question.sort, distinct=question.unique, **options
            )
        await opened.enter_async_context(answers)
        return QuestionStream(answers, combined, opened, self._counts, self._limits)


class QuestionStream(SentEvents):
    """The answer that writes what arrives of a question."""

    def __init__(
        self,
        answers: Answers[Any],
        combined: Partial | None,
        opened: AsyncExitStack,
        counts: GatewayCounts,
        limits: GatewayLimits,
    ) -> None:
        super().__init__(opened, counts, limits)
        self._answers, self._combined = answers, combined
        self._groups: list[Mapping[str, Any]] = []
        self._arrived: Counter[str] = Counter()
        self._sent: dict[str, bytes] = {}

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Answers in portions, and at each step what has changed beside them."""
        is_over, written, due = False, monotonic(), monotonic() + _STEP_S
        while not is_over:
            rows, is_over = await self._next_rows(due)
            pieces = sent_event("answers", {"rows": list(map(Raw, rows))}) if rows else b""
            began = monotonic()
            if is_over or began >= due:
                pieces += self._changes(is_over=is_over)
                # Many groups take long: at most a twentieth of the time.
                due = monotonic() + max(_STEP_S, 20 * (monotonic() - began))
            if not pieces and began - written > self._limits.stream_quiet_s:
                pieces = QUIET
            if pieces:
                yield pieces
                written = monotonic()

    async def _next_rows(self, until: float) -> tuple[list[bytes], bool]:
        """Returns the answers of a step, in JSON, and whether these are the last ones."""
        rows: list[bytes] = []
        size = 0
        while size < self._limits.stream_write_bytes:
            try:
                async with asyncio.timeout(until - monotonic()):
                    found = await anext(self._answers)
            except TimeoutError:
                break
            except StopAsyncIteration:
                return rows, True
            if isinstance(found, Notification):
                rows.append(self._take(found))
                size += len(rows[-1])
            else:
                self._groups.append(found)
        return rows, False

    def _take(self, answer: Notification) -> bytes:
        """Returns an answer as JSON. Raises LimitError for aggregates beyond their limits."""
        self._counts.delivered += 1
        self._arrived[answer.envelope.publisher] += 1
        if self._combined is not None:
            self._combined.add(answer)
        text = Raw(shown_text(answer).encode())
        return json.encode({"source": answer.envelope.publisher, "answer": text})

    def _changes(self, *, is_over: bool) -> bytes:
        """Returns the aggregates and the sources, where they differ from those sent before."""
        combined, most = self._combined, QUESTION_ROWS_MAX
        count = len(self._groups) if combined is None else combined.group_count
        groups = self._groups[:most] if combined is None else combined.results(most)
        answers = self._answers
        # A list that is cut must not hide the failed ones.
        reports = sorted(answers.reports, key=lambda each: _ORDER.get(each.state, 0))
        sources = {
            "sources": [self._source(each) for each in reports[:most]],
            "states": Counter(each.state for each in reports),
            "has_ended": is_over,  # The last answers may be unread when the question ends.
            "is_complete": is_over and answers.is_complete,
        }
        news = self._new("sources", sources)
        if groups:
            shown = [Raw(json_group(each).encode()) for each in groups]
            news += self._new("groups", {"groups": shown, "count": count})
        return news

    def _source(self, report: SourceReport) -> dict[str, Any]:
        # The report of a source that has not ended counts nothing.
        count = max(report.count, self._arrived[report.name])
        return structs.asdict(report) | {"count": count}

    def _new(self, name: str, details: Mapping[str, Any]) -> bytes:
        event = sent_event(name, details)
        if self._sent.get(name) == event:
            return b""
        self._sent[name] = event
        return event
