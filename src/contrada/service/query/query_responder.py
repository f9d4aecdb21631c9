"""`QueryResponder`: the sources of one service, and the queries that they answer.

    DeliverQuestion ==> each source that it meets, concurrently ==> answering items ==> Answer

Plain iterables of a source are iterated on a thread, asynchronous ones on the event loop. The
sources of a service share the window of a query: items beyond it wait, and their source with them.

Source: CU-CS-948-03 §2, §4 (query application).
"""

import asyncio
import inspect
import logging
import secrets
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from contrada.errors import ContradaError, LimitError, ServiceClosedError, ServiceError, shortened
from contrada.model import Advertisement, Envelope, Notification
from contrada.model.algebra.notification import check_text
from contrada.routing.aggregation import Partial
from contrada.routing.router_messages import (
    LABEL_CHARS_MAX,
    Answer,
    Ask,
    Cancel,
    Describe,
    More,
    Offer,
    SourceReport,
    SourceState,
    Undescribe,
    failed,
)
from contrada.service.clock import wall_clock_us
from contrada.service.loop_guards import in_daemon
from contrada.service.query.source import FRESH_S
from contrada.service.query.source_query import SourceQuery
from contrada.service.query_interface import Description, SourceLike, SourceOffer
from contrada.service.requests import filters_of
from contrada.service.service_limits import ServiceLimits

T = TypeVar("T")

ITEMS_PER_ANSWER: Final = 64
"""Items after which an answer is sent."""

ITEM_BYTES_MAX: Final = 8 * 2**20
"""Bytes of an item of a source. Beyond it: the source is reported as failed."""

ITEMS_PER_STEP: Final = 256
"""Items that a plain source gives in one step, on its thread."""

STEP_S: Final = 0.02
"""Seconds after which the items of a plain source are sent, however few."""

FRESH_LEAST_S: Final = 0.01
"""The shortest time between two descriptions of a source, in seconds."""

_LOG: Final = logging.getLogger("contrada.service")


class QueryTransport(Protocol):
    """The connection of a service's sources to the servers; see `QueryClient`."""

    limits: ServiceLimits

    @property
    def publisher(self) -> str: ...

    def require_open(self) -> None:
        """Raises ServiceError or ServiceClosedError unless the service is open."""

    async def describe(self, message: Describe | Undescribe) -> None: ...

    def send(self, message: Answer | More | Cancel) -> None: ...


class QueryResponder:
    """The sources of one service, and the queries that they work on."""

    def __init__(self, transport: QueryTransport) -> None:
        self.transport = transport
        self.limits = transport.limits
        self._sources: dict[str, HeldSource] = {}
        self._working: dict[tuple[str, str], _AnsweringWork] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        """Those of sources that answer, or are stopping after the end of a query."""
        self._free = asyncio.Semaphore(self.limits.source_threads_max)
        self._closing: set[asyncio.Task[None]] = set()

    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> "HeldSource":
        """See `Service.offer`."""
        if not callable(source) and not callable(getattr(source, "answer", None)):
            raise ServiceError(f"cannot ask {source!r}: expected answer(query), or a function")
        check_text("name", name)
        if name.startswith("@") or len(name) > LABEL_CHARS_MAX:
            expected = f"up to {LABEL_CHARS_MAX} characters, of which the first is not @"
            raise ServiceError(f"name = {name!r}: expected {expected}")
        described = None if description is None else self.offers_of(description)
        return HeldSource(self, described, source, name)

    def offers_of(self, description: Any) -> tuple[Offer, ...]:
        """The alternatives of a description. Raises as `Service.offer`."""
        offers = _offers_of(description)
        if not offers:
            raise ServiceError("an empty description: no query could reach the source")
        if len(offers) > self.limits.descriptions_max:
            raise LimitError("descriptions_max", self.limits.descriptions_max, len(offers))
        return offers

    async def enter(self, held: "HeldSource", offers: tuple[Offer, ...]) -> None:
        """Puts a source in force, or replaces its description."""
        self.transport.require_open()
        known = self._sources.get(held.name)
        if known not in (None, held):
            raise ServiceError(f"{held.name!r} is the name of another source of this service")
        if known is None and len(self._sources) >= self.limits.sources_max:
            raise LimitError("sources_max", self.limits.sources_max)
        self._sources[held.name] = held
        try:
            await self.transport.describe(Describe(held.name, offers))
        except BaseException as error:
            if known is None:
                del self._sources[held.name]
                if isinstance(error, asyncio.CancelledError):  # It may be in force.
                    await self.transport.describe(Undescribe(held.name))
            raise

    async def leave(self, held: "HeldSource") -> None:
        """Withdraws a source."""
        if self._sources.pop(held.name, None) is not None:
            for each in list(self._working.values()):
                each.stop(held.name)
            await self.transport.describe(Undescribe(held.name))

    def in_force(self) -> list[Describe]:
        """The descriptions of the sources, for another connection."""
        held = self._sources.values()  # One that is offered just now is not described yet.
        return [Describe(each.name, each.described) for each in held if each.described]

    def answer(self, sources: Iterable[str], ask: Ask) -> None:
        """Starts the given sources on a query."""
        known = [self._sources[each] for each in sources if each in self._sources]
        reason = ""
        try:
            if len(self._working) >= self.limits.queries_answered_max:
                raise LimitError("queries_answered_max", self.limits.queries_answered_max)
            work = _AnsweringWork(self, ask)
            if known:
                self._working[ask.asker, ask.identity] = work
                work.begin(known)
                return
            # They were withdrawn meanwhile.
        except ContradaError as error:
            reason = str(error)
        # Later, since the client must learn the names of the sources first.
        failures = [SourceReport(each.name, SourceState.FAILED, reason=reason) for each in known]
        last = Answer(ask.asker, ask.identity, reports=(*failures,), is_last=True)
        asyncio.get_running_loop().call_soon(self.transport.send, last)

    def receive(self, message: More | Cancel) -> None:
        """Handles more credit, or the end, of a query."""
        work = self._working.get((message.asker, message.identity))
        if isinstance(message, More) and work is not None:
            work.grant(message.count)
        elif work is not None:
            work.cancel()

    def is_waited_for(self, ask: Ask) -> bool:
        """Whether a query is open."""
        return (ask.asker, ask.identity) in self._working

    def done(self, ask: Ask) -> None:
        """Forgets a query that is answered."""
        self._working.pop((ask.asker, ask.identity), None)

    def lost(self) -> None:
        """Stops all queries after the loss of the connection."""
        for each in list(self._working.values()):
            each.cancel()

    async def aclose(self) -> None:
        """Ends all sources and queries; returns when the sources have stopped."""
        for source in self._sources.values():
            source.end()
        self.lost()
        if self.tasks:
            await asyncio.wait(self.tasks)
        for task in self._closing:
            task.cancel()

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls a function of a plain source on a thread, as soon as one is free. After its caller
        is cancelled, the thread is free when the function returns: calls that hang get no queue,
        and hold no end of the process.
        """
        await self._free.acquire()
        done = in_daemon(partial(function, *arguments))
        try:
            return await asyncio.shield(done)
        finally:
            if done.done():
                self._free.release()
            else:  # The function still runs.
                done.add_done_callback(lambda _: self._free.release())

    def close(self, steps: "_SourceSteps") -> None:
        """Closes the iterable of a source on a thread; the query does not wait for it."""
        task = asyncio.create_task(self.run(steps.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class HeldSource(SourceOffer):
    """A source of a service."""

    def __init__(
        self,
        responder: QueryResponder,
        offers: tuple[Offer, ...] | None,
        source: SourceLike,
        name: str,
    ) -> None:
        self._responder, self._offers, self._name = responder, offers, name
        self._changing = asyncio.Lock()
        self._described: tuple[Offer, ...] = ()
        self._refreshing: asyncio.Task[None] | None = None
        self._ended = False
        self._source = source
        self.answer: Callable[[SourceQuery], Any] = getattr(source, "answer", source)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        return self._name

    @property
    def described(self) -> tuple[Offer, ...]:
        return self._described

    async def open(self) -> None:
        async with self._changing:
            if self._ended:
                raise ServiceClosedError("this source was withdrawn; offer it anew")
            if not self._described:
                if not self._name:  # Any user may publish under it.
                    self._name = f"{self._responder.transport.publisher}/{secrets.token_urlsafe(9)}"
                await self._describe(self._offers)

    async def describe(self, description: Any = None) -> None:
        async with self._changing:
            if not self._described or self._ended:
                raise ServiceError("describe a source inside its own `async with`")
            offers = None if description is None else self._responder.offers_of(description)
            await self._describe(offers)

    async def _describe(self, offers: tuple[Offer, ...] | None) -> None:
        await self._put(await self._worked_out() if offers is None else offers)
        if offers is None and self._refreshing is None and not self._ended:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        elif offers is not None and self._refreshing is not None:
            self._refreshing.cancel()
            self._refreshing = None

    async def _put(self, offers: tuple[Offer, ...]) -> None:
        await self._responder.enter(self, offers)
        self._described = offers

    async def _worked_out(self) -> tuple[Offer, ...]:
        describe = getattr(self._source, "describe", None)
        if describe is None:
            raise ServiceError(f"{self._name}: add a description of its data")
        return self._responder.offers_of(await self._responder.run(describe, wall_clock_us()))

    async def _refresh(self) -> None:
        """Describes the source again, at the interval of its `fresh_s`."""
        while True:
            await asyncio.sleep(max(getattr(self._source, "fresh_s", FRESH_S), FRESH_LEAST_S))
            try:
                async with self._changing:
                    offers = await self._worked_out()
                    if offers != self._described:
                        await self._put(offers)
            except Exception as error:  # noqa: BLE001  A source is the user's own code.
                fields = {"source": self._name, "reason": error}
                _LOG.warning("source %(source)s cannot be described again: %(reason)s", fields)

    def end(self) -> None:
        """Stops describing it again."""
        self._ended = True
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def withdraw(self) -> None:
        self.end()
        async with self._changing:
            if self._described:
                self._described = ()
                await self._responder.leave(self)


class _AnsweringWork:
    """One query at the sources of one service."""

    def __init__(self, responder: QueryResponder, ask: Ask) -> None:
        self._responder, self._ask = responder, ask
        self._query = SourceQuery.of(ask.alternatives, ask.asker)
        self._room = ask.window
        self._has_room = asyncio.Event()
        self._partial = None if ask.combination is None else Partial(ask.combination)
        self._failure = ""
        self._reports: list[SourceReport] = []
        self._left: dict[str, asyncio.Task[None]] = {}

    def begin(self, sources: list[HeldSource]) -> None:
        for each in sources:
            task = asyncio.create_task(self._run(each))
            self._responder.tasks.add(task)
            task.add_done_callback(self._responder.tasks.discard)
            task.add_done_callback(partial(self._stopped_at_once, each.name))
            self._left[each.name] = task

    def grant(self, count: int) -> None:
        self._room += count
        self._has_room.set()

    def stop(self, name: str) -> None:
        """Stops one source, which is withdrawn."""
        task = self._left.get(name)
        if task is not None:
            task.cancel()

    def cancel(self) -> None:
        self._responder.done(self._ask)
        for task in self._left.values():
            task.cancel()

    def _stopped_at_once(self, name: str, task: asyncio.Task[None]) -> None:
        """Reports a source that was withdrawn before it began to answer."""
        if self._left.get(name) is task:
            self._end(SourceReport(name, SourceState.STOPPED))

    async def _run(self, source: HeldSource) -> None:
        state, reason = SourceState.STOPPED, ""
        name = source.name
        out, named = _UnsentAnswers(self._flush), Envelope(publisher=name)
        until = asyncio.timeout(self._ask.timeout_us / 1e6)
        try:
            combined = None if self._partial is None else Partial(self._partial.combination)
            async with until:
                async with aclosing(self._steps(source)) as steps:
                    async for step, is_more in steps:
                        found = [it.with_envelope(named) for it in self._query.select(step)]
                        if combined is not None:
                            combined.add_all(found)
                            out.sent += len(found)
                            continue
                        out.add(found)
                        while len(out.items) >= ITEMS_PER_ANSWER and is_more:
                            await self._send(out)
                while len(out.items) > self._room:
                    await self._send(out)
            if combined is not None and self._partial is not None:
                try:
                    self._partial.combine(combined)
                except LimitError as error:  # Half of it may be in it.
                    self._failure = str(error)
            state = SourceState.ANSWERED if out.sent or out.items else SourceState.EMPTY
        except Exception as error:  # noqa: BLE001  A source is the user's own code.
            if isinstance(error, TimeoutError) and until.expired():
                state = SourceState.TIMED_OUT
            else:
                state, reason = SourceState.FAILED, shortened(f"{type(error).__name__}: {error}")
                fields = {"source": name, "reason": reason}
                _LOG.warning("source %(source)s failed to answer: %(reason)s", fields)
        finally:
            last = self._taken(out)
            out.items.clear()
            self._end(SourceReport(name, state, out.sent, reason), last)

    async def _steps(self, source: HeldSource) -> AsyncGenerator[tuple[Iterable[Any], bool]]:
        """The items of a source in steps, each with whether more may follow."""
        run = self._responder.run
        if inspect.iscoroutinefunction(source.answer) or inspect.isasyncgenfunction(source.answer):
            given = source.answer(self._query)
        else:
            given = await run(source.answer, self._query)
        if inspect.isawaitable(given):
            given = await given
        if isinstance(given, AsyncIterable):
            try:
                count = 0
                async for each in given:
                    yield (each,), True
                    count += 1
                    if count % ITEMS_PER_ANSWER == 0:  # It may wait for nothing itself.
                        await asyncio.sleep(0)
            finally:
                if isinstance(given, AsyncGenerator):
                    await given.aclose()
            return
        # No code of the source runs while these are read: a thread would take as long as the query.
        if type(given) in (list, tuple) and len(given) <= ITEMS_PER_STEP:
            yield given, False
            return
        steps = _SourceSteps(given)
        try:
            while not steps.has_ended:
                step = await run(steps.next)
                yield step, not steps.has_ended
        finally:
            if not steps.has_ended:
                self._responder.close(steps)

    async def _send(self, out: "_UnsentAnswers") -> None:
        """Waits for room, and sends the first items."""
        while not self._room:
            self._has_room.clear()
            await self._has_room.wait()
        self._flush(out)

    def _flush(self, out: "_UnsentAnswers") -> None:
        if self._room and out.items:
            self._say(self._taken(out))

    def _taken(self, out: "_UnsentAnswers") -> list[Notification]:
        """The first items with room; they count as sent."""
        taken = out.items[: self._room]
        del out.items[: len(taken)]
        self._room -= len(taken)
        out.sent += len(taken)
        return taken

    def _end(self, report: SourceReport, items: Iterable[Notification] = ()) -> None:
        """Reports a source that has ended; the last one ends the query here."""
        del self._left[report.name]
        if not self._responder.is_waited_for(self._ask):
            return
        if self._partial is None:
            self._say(items, [report], is_last=not self._left)
        else:  # The report is sent with the combined answer.
            self._reports.append(report)
            if not self._left:
                self._say(reports=self._reports, is_last=True)
        if not self._left:
            self._responder.done(self._ask)

    def _say(
        self,
        items: Iterable[Notification] = (),
        reports: Iterable[SourceReport] = (),
        *,
        is_last: bool = False,
    ) -> None:
        ask, packed = self._ask, b""
        if is_last and self._partial is not None:
            try:
                packed = b"" if self._failure else self._partial.to_bytes()
            except LimitError as error:
                self._failure = str(error)
            if self._failure:
                reports = failed(reports, self._failure)
        self._responder.transport.send(
            Answer(ask.asker, ask.identity, tuple(items), tuple(reports), packed, is_last)
        )


class _UnsentAnswers:
    """The unsent items of a source; they are sent at the end of a turn of the loop."""

    def __init__(self, flush: "Callable[[_UnsentAnswers], None]") -> None:
        self.items: list[Notification] = []
        self.sent = 0
        self._flush = flush
        self._is_due = False

    def add(self, items: Iterable[Notification]) -> None:
        """Adds items. Raises LimitError for an item that no frame can hold."""
        for item in items:
            size = len(item.span) + len(item.body)
            if size > ITEM_BYTES_MAX:
                raise LimitError("ITEM_BYTES_MAX", ITEM_BYTES_MAX, size)
            self.items.append(item)
        if self.items and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn_ends)

    def _turn_ends(self) -> None:
        self._is_due = False
        self._flush(self)


class _SourceSteps:
    """The steps of a plain iterable, on one thread at a time."""

    def __init__(self, given: Iterable[Any]) -> None:
        self.has_ended = False
        self._items = iter(given)
        self._using = threading.Lock()

    def next(self) -> list[Any]:
        """The next items: those of STEP_S, up to ITEMS_PER_STEP."""
        step: list[Any] = []
        until_s = time.monotonic() + STEP_S
        with self._using:
            for each in self._items:
                step.append(each)
                if len(step) == ITEMS_PER_STEP or time.monotonic() > until_s:
                    break
            else:
                self.has_ended = True
                return step
        if self.has_ended:  # It was closed meanwhile.
            self.close()
        return step

    def close(self) -> None:
        """Closes the iterable, with its open files; a step that still runs does so at its end."""
        self.has_ended = True
        if isinstance(self._items, Generator) and self._using.acquire(blocking=False):
            try:
                self._items.close()
            finally:
                self._using.release()


def _offers_of(description: Any) -> tuple[Offer, ...]:
    if isinstance(description, Advertisement):
        return (description,)
    if isinstance(description, list | tuple | set | frozenset):
        return tuple(offer for each in description for offer in _offers_of(each))
    return tuple(filters_of(description).filters)
