"""`QueryClient`: the queries of one service, the answers to each, and its sources.

    query ==> Ask ==> server;  Answer ==> queue ==> reader ==> More

Sources send no more items than the reader granted by `More`, so they wait for a slow reader.

Source: CU-CS-948-03 §2 (query, advertise, and respond: "that client can then collate").
"""

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

from msgspec.structs import replace

from contrada.errors import InvalidCombinationError, LimitError, ServiceClosedError, ServiceError
from contrada.model import Notification
from contrada.model.algebra.notification import check_text
from contrada.model.domains.values import INT_MAX, check_name
from contrada.routing.admission import QUESTION_TIME_MAX_US
from contrada.routing.aggregation import (
    TOP_MAX,
    Aggregate,
    AggregateKind,
    Combination,
    Partial,
    aggregate_of,
)
from contrada.routing.router_messages import (
    LABEL_CHARS_MAX,
    QUESTION_HOPS_MAX,
    Answer,
    Ask,
    Cancel,
    Client,
    DeliverQuestion,
    Describe,
    More,
    NotifyClient,
    SourceReport,
    SourceState,
    Undescribe,
)
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.loop_guards import check_loop, running_loop
from contrada.service.query.query_responder import QueryResponder
from contrada.service.query.source_query import SourceQuery
from contrada.service.query_interface import QUESTION_WAIT_S, Answers, Computed
from contrada.service.requests import reader_of
from contrada.service.service_limits import ServiceLimits

T = TypeVar("T")

UNTOLD: Final = "@service"
"""Name in a report for sources that are unknown, since the last answer did not arrive."""

_LOG: Final = logging.getLogger("contrada.service")


class QueryClient(ABC):
    """The open queries of one service, and its sources. A subclass sends the messages."""

    require_open: Callable[[], None]
    """Raises ServiceError, ServiceClosedError unless queries can be sent."""

    def __init__(self, stamp: EnvelopeFactory, limits: ServiceLimits) -> None:
        self.limits = limits
        self.responder = QueryResponder(self)
        self._stamp = stamp
        # Weak, so that a dropped query ends: see `HeldAnswers.__del__`.
        self._under_way: WeakValueDictionary[str, HeldAnswers[Any]] = WeakValueDictionary()

    @property
    def publisher(self) -> str:
        """The name under which the service publishes."""
        return self._stamp.publisher

    @abstractmethod
    async def describe(self, message: Describe | Undescribe) -> None:
        """Puts a source in force, or withdraws it. Raises as `SourceOffer.open`."""

    @abstractmethod
    async def ask(self, question: Ask) -> None:
        """Sends a query. Raises as `Answers.open`."""

    @abstractmethod
    def send(self, message: Answer | More | Cancel) -> None:
        """Sends a message about a query; without a connection it does nothing."""

    def query(
        self,
        subject: Any,
        where: Any = None,
        *,
        timeout_s: float = QUESTION_WAIT_S,
        limit: int | None = None,
        sort: str = "",
        distinct: bool = False,
        hops: int = QUESTION_HOPS_MAX,
        asker: str = "",
    ) -> "HeldAnswers[Any]":
        """See `Service.query`."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ServiceError(f"limit = {limit!r}: expected 1 answer or more, or None")
        query = SourceQuery(subject, where)
        held_max = self.limits.collated_max
        read = AnswerReader(
            reader_of(subject), query.residue, distinct=distinct, collated_max=held_max
        )
        asked = _ask(query, timeout_s, hops, asker, self.limits.query_window)
        if not sort:
            # Unreadable objects are no answers, so only the reader knows the number of answers.
            if limit is not None and read.takes_all and read.reads_all:
                asked = replace(asked, limit=min(limit, INT_MAX))
            return AnswersInTurn(self, asked, read, limit)
        is_descending, name = sort.startswith("-"), check_name(sort.removeprefix("-"))
        if limit is not None and limit <= TOP_MAX and read.takes_all:
            kind = AggregateKind.TOP if is_descending else AggregateKind.BOTTOM
            best = Combination((Aggregate(kind, name, limit),))
            return CombinedAnswers(self, replace(asked, window=0, combination=best), read)
        return SortedAnswers(self, asked, read, name, limit, is_descending=is_descending)

    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        *,
        by: str = "",
        timeout_s: float = QUESTION_WAIT_S,
        hops: int = QUESTION_HOPS_MAX,
        asker: str = "",
    ) -> "HeldAnswers[dict[str, Any]]":
        """See `Service.compute`."""
        query = SourceQuery(subject, where)
        if query.residue is not None:
            reason = "its predicate needs more than filters (see `plan`); use `query`"
            raise InvalidCombinationError(subject, reason)
        several = (aggregates,) if isinstance(aggregates, Aggregate | str) else aggregates
        asked = _ask(query, timeout_s, hops, asker, self.limits.query_window)
        combination = Combination(tuple(map(aggregate_of, several)), by)
        return CombinedAnswers(self, replace(asked, window=0, combination=combination))

    async def begin(self, answers: "HeldAnswers[Any]") -> None:
        """Sends a query. Raises as `Answers.open`."""
        self.require_open()
        identity = answers.asked.identity
        self._under_way[identity] = answers
        try:
            await self.ask(answers.asked)
        except BaseException as error:
            self.forget(identity)
            if isinstance(error, asyncio.CancelledError):
                self.send(Cancel(answers.asked.asker, identity))  # It may be under way.
            raise

    def forget(self, identity: str) -> None:
        """Forgets a query that has ended."""
        self._under_way.pop(identity, None)

    def receive(self, message: Answer | More | Cancel) -> None:
        """Passes an answer to its query, and other messages to the sources."""
        if not isinstance(message, Answer):
            self.responder.receive(message)
        elif (answers := self._under_way.get(message.identity)) is not None:
            answers.receive(message)

    def expire(self, identity: str) -> None:
        """Ends a query whose time is over."""
        answers = self._under_way.get(identity)
        if answers is not None:
            answers.end(SourceState.TIMED_OUT)

    def lost(self, reason: str) -> None:
        """Ends the open queries after the loss of the connection; sources stay offered."""
        for each in list(self._under_way.values()):
            each.end(SourceState.LOST, reason)
        self.responder.lost()

    async def aclose(self) -> None:
        """Ends all queries and sources with the service."""
        self.lost("the service is closed")
        await self.responder.aclose()


class LocalQueryClient(QueryClient):
    """The queries of an embedded service, at its dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: Client,
        stamp: EnvelopeFactory,
        require_open: Callable[[], None],
        limits: ServiceLimits,
    ) -> None:
        super().__init__(stamp, limits)
        self._dispatcher, self._client, self.require_open = dispatcher, client, require_open
        dispatcher.listen(client, self._on_effect)

    async def describe(self, message: Describe | Undescribe) -> None:
        self._dispatcher.request(self._client, message)

    async def ask(self, question: Ask) -> None:
        self._dispatcher.ask(self._client, question)

    def send(self, message: Answer | More | Cancel) -> None:
        self._dispatcher.request(self._client, message)

    def _on_effect(self, effect: DeliverQuestion | NotifyClient) -> None:
        if isinstance(effect, DeliverQuestion):
            self.responder.answer(effect.sources, effect.question)
        else:
            self.receive(effect.message)


class AnswerReader:
    """Makes the subject's objects of items, and finds duplicates."""

    def __init__(
        self,
        reader: Callable[[Notification], Any] | None,
        residue: Callable[[Notification], bool] | None,
        *,
        distinct: bool,
        collated_max: int,
    ) -> None:
        self._reader, self._residue, self._collated_max = reader, residue, collated_max
        self._seen: set[Notification] | None = set() if distinct else None
        self.unreadable = 0
        self.takes_all = residue is None and not distinct
        """Whether each item is an answer."""
        self.reads_all = reader is None
        """Whether no item can be unreadable."""

    def is_asked_for(self, item: Notification) -> bool:
        """Whether an item is an answer, and the first of its kind. Raises LimitError."""
        if self._residue is not None:
            holds = self._call(self._residue, item)
            if holds is _NOTHING or not holds:
                return False
        if self._seen is None:
            return True
        if item in self._seen:
            return False
        if len(self._seen) >= self._collated_max:
            raise LimitError("collated_max", self._collated_max)
        self._seen.add(item)
        return True

    def read(self, item: Notification) -> Any:
        """The subject's object of an item, or _NOTHING, counted, if it is unreadable."""
        return item if self._reader is None else self._call(self._reader, item)

    def _call(self, function: Callable[[Notification], Any], item: Notification) -> Any:
        try:
            return function(item)
        except Exception as error:  # noqa: BLE001 - the asker's own code
            if not self.unreadable:
                fields = {"publisher": item.envelope.publisher, "reason": error}
                _LOG.warning("an answer of %(publisher)s cannot be read: %(reason)s", fields)
            self.unreadable += 1
            return _NOTHING


class HeldAnswers(Answers[T]):
    """One query of a service, and its answers."""

    def __init__(self, client: QueryClient, asked: Ask) -> None:
        self.asked, self._client = asked, client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking = asyncio.Lock()
        self._ready: deque[Any] = deque()
        self._came = asyncio.Event()
        self._expected: Counter[str] = Counter()
        self._reports: list[SourceReport] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._ended = False
        self._has_last = False
        self._failure: Exception | None = None

    # The receivers of answers.

    @abstractmethod
    def _take(self, items: Sequence[Notification]) -> None:
        """Handles items."""

    def _finish(self, partial: bytes) -> None:
        """Handles the combined result of all sources, before the end."""

    @abstractmethod
    def _next(self) -> Any:
        """The next answer that is ready, or _NOTHING."""

    @property
    def reports(self) -> tuple[SourceReport, ...]:
        waiting = [SourceReport(it, SourceState.ASKED) for it in self._expected.elements()]
        return (*self._reports, *waiting)

    @property
    def has_ended(self) -> bool:
        return self._ended

    async def open(self) -> None:
        async with self._asking:
            if self._ended:
                raise ServiceClosedError("this query has ended; make another one")
            if self._loop is not None:
                return
            self._loop = running_loop()
            timeout_s = self.asked.timeout_us / 1e6
            # By its name, so that the loop keeps no dropped query alive.
            expire, identity = self._client.expire, self.asked.identity
            self._deadline = self._loop.call_later(timeout_s, expire, identity)
            until = asyncio.timeout(timeout_s)
            try:
                async with until:
                    await self._client.begin(self)
            except BaseException as error:
                if isinstance(error, TimeoutError) and until.expired():
                    self.end(SourceState.TIMED_OUT, is_told=True)
                    raise ServiceError(f"nobody took it within timeout_s = {timeout_s:g}") from None
                self.end(SourceState.FAILED, is_told=True)
                raise

    async def aclose(self) -> None:
        self.end(SourceState.STOPPED)

    def __del__(self) -> None:
        """Lets the sources stop when the caller has dropped the query."""
        loop = self._loop
        if not self._ended and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_given_up, self._client, self.asked, self._deadline)

    def receive(self, message: Answer) -> None:
        """Handles an answer."""
        for report in message.reports:
            if report.state is SourceState.ASKED:
                self._expected[report.name] += 1
            else:
                self._expected -= Counter([report.name])
                self._reports.append(report)
        try:
            if message.items:
                self._take(message.items)
            if message.is_last:
                self._has_last = True
                if message.partial:
                    self._finish(message.partial)
                self.end(SourceState.FAILED, "it ended without a report", is_told=True)
        except Exception as error:  # noqa: BLE001  A predicate is the user's own code.
            self._failure = error
            self.end(SourceState.STOPPED, is_told=message.is_last)
        self._came.set()

    def end(self, state: SourceState, reason: str = "", *, is_told: bool = False) -> None:
        """Ends the query and reports the sources that did not end. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        left, self._expected = self._expected, Counter()
        self._reports += [SourceReport(it, state, reason=reason) for it in left.elements()]
        if not self._has_last:  # Sources without any report may have been asked, too.
            self._reports.append(SourceReport(UNTOLD, state, reason=reason))
        self._client.forget(self.asked.identity)
        if not is_told and self._loop is not None:
            self._client.send(Cancel(self.asked.asker, self.asked.identity))
        self._came.set()

    async def __anext__(self) -> T:
        if self._loop is None:
            await self.open()
        while True:
            found = self._next()
            if found is not _NOTHING:
                return cast(T, found)
            if self._ended:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                raise StopAsyncIteration
            check_loop(self._loop)
            self._came.clear()
            await self._came.wait()

    def _more(self, count: int) -> None:
        if not self._ended:
            self._client.send(More(self.asked.asker, self.asked.identity, count))


class AnswersInTurn(HeldAnswers[Any]):
    """Answers in the order of arrival, made into objects when they are read."""

    def __init__(
        self, client: QueryClient, asked: Ask, read: AnswerReader, limit: int | None
    ) -> None:
        super().__init__(client, asked)
        self._read = read
        self._takes_all, self._reads_all = read.takes_all, read.reads_all
        self._left = limit
        self._since_more = 0

    def _take(self, items: Sequence[Notification]) -> None:
        self._ready.extend(items)

    def _next(self) -> Any:
        while self._ready:
            if self._left == 0:
                self._ready.clear()
                break
            item = self._ready.popleft()
            self._since_more += 1
            if 2 * self._since_more >= self.asked.window:
                self._more(self._since_more)
                self._since_more = 0
            if not self._takes_all and not self._read.is_asked_for(item):
                continue
            found = item if self._reads_all else self._read.read(item)
            if found is not _NOTHING:
                if self._left is not None:
                    self._left -= 1
                    if not self._left:
                        self.end(SourceState.STOPPED)
                return found
        return _NOTHING


class _AnswersAtEnd(HeldAnswers[Any]):
    """Answers that are given after the end of the query."""

    def _take(self, items: Sequence[Notification]) -> None:
        self._more(len(items))

    def _next(self) -> Any:
        return self._ready.popleft() if self._ended and self._ready else _NOTHING


class SortedAnswers(_AnswersAtEnd):
    """Answers in the order of an attribute, followed by those without it."""

    def __init__(
        self,
        client: QueryClient,
        asked: Ask,
        read: AnswerReader,
        name: str,
        limit: int | None,
        *,
        is_descending: bool,
    ) -> None:
        super().__init__(client, asked)
        self._read, self._name = read, name
        self._limit, self._is_descending = limit, is_descending
        self._collated_max = client.limits.collated_max
        self._held: list[Notification] = []

    def _take(self, items: Sequence[Notification]) -> None:
        super()._take(items)
        self._held += filter(self._read.is_asked_for, items)
        if self._limit is not None and len(self._held) >= 2 * self._limit and self._read.reads_all:
            self._held = self._in_order(self._held)[: self._limit]
        if len(self._held) > self._collated_max:
            raise LimitError("collated_max", self._collated_max)

    def _next(self) -> Any:
        if not self._ended:
            return _NOTHING
        if self._held:
            self._ready.extend(self._in_order(self._held))
            self._held = []
        while self._ready and self._limit != 0:
            found = self._read.read(self._ready.popleft())
            if found is not _NOTHING:
                if self._limit is not None:
                    self._limit -= 1
                return found
        self._ready.clear()
        return _NOTHING

    def _in_order(self, held: list[Notification]) -> list[Notification]:
        """A stable order; of several values of one item, the best one counts."""
        best = max if self._is_descending else min
        keyed = [(best(it.keys_of(self._name)), it) for it in held if self._name in it]
        keyed.sort(key=lambda pair: pair[0], reverse=self._is_descending)
        return [*(it for _, it in keyed), *(it for it in held if self._name not in it)]


class CombinedAnswers(_AnswersAtEnd):
    """Results that servers combined on the way.

    With a reader, the first answers in an order; otherwise aggregates, one mapping for each group.
    """

    def __init__(self, client: QueryClient, asked: Ask, read: AnswerReader | None = None) -> None:
        super().__init__(client, asked)
        self._read = read

    def _finish(self, partial: bytes) -> None:
        assert self.asked.combination is not None, "they are combined"
        result = Partial.from_bytes(self.asked.combination, partial)
        if (read := self._read) is None:
            self._ready.extend(result.results())
            return
        best = result.ordered()
        self._ready.extend(each for it in best if (each := read.read(it)) is not _NOTHING)
        if read.unreadable and len(best) == self.asked.combination.aggregates[0].items:
            # Servers have left out the answers behind these.
            reason = f"{read.unreadable} of the first {len(best)} answers cannot be read"
            self._reports.append(SourceReport(UNTOLD, SourceState.FAILED, reason=reason))


_NOTHING: Final = object()


def _ask(query: SourceQuery, timeout_s: float, hops: int, asker: str, window: int) -> Ask:
    given: object = timeout_s
    most = QUESTION_TIME_MAX_US / 1e6
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= most:
        raise ServiceError(f"timeout_s = {timeout_s!r}: expected seconds above 0, at most {most:g}")
    check_text("asker", asker)
    if len(asker) > LABEL_CHARS_MAX:
        raise LimitError("LABEL_CHARS_MAX", LABEL_CHARS_MAX, len(asker))
    if type(hops) is not int or not 0 <= hops <= QUESTION_HOPS_MAX:
        raise ServiceError(f"hops = {hops!r}: expected 0 to {QUESTION_HOPS_MAX}")
    identity, timeout_us = secrets.token_urlsafe(12), max(1, round(timeout_s * 1e6))
    return Ask(query.alternatives, asker, identity, timeout_us, window, hops_max=hops)


def _given_up(client: QueryClient, asked: Ask, deadline: asyncio.TimerHandle | None) -> None:
    if deadline is not None:
        deadline.cancel()
    client.forget(asked.identity)
    client.send(Cancel(asked.asker, asked.identity))
