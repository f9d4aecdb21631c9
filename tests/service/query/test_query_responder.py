"""The sources of a service alone, at a transport that only takes notes."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.model import Query
from contrada.routing.router_messages import (
    Answer,
    Ask,
    Cancel,
    Describe,
    Disjunct,
    More,
    SourceState,
    Undescribe,
)
from contrada.service.query import query_responder as answering
from contrada.service.query.query_responder import QueryResponder
from contrada.service.query.source_query import SourceQuery
from contrada.service.service_limits import ServiceLimits
from tests.asynchronous import TEST_S_MAX, on_loop, until

HANGING = """
import asyncio, threading
import contrada as ct

def hang(_):
    begun.set()
    threading.Event().wait()

async def main():
    async with ct.connect() as service, service.{offered}:
        asked = asyncio.create_task({asked})
        await asyncio.to_thread(begun.wait)
        {then}
        asked.cancel()

begun = threading.Event()
asyncio.run(main())
"""
"""A program with a source that never ends."""


@dataclass
class Notes:
    """A transport that notes each message; a description waits until that is `allowed`."""

    limits: ServiceLimits = field(default_factory=ServiceLimits)
    described: list[Describe | Undescribe] = field(default_factory=list)
    said: list[Answer | More | Cancel] = field(default_factory=list)
    allowed: asyncio.Event = field(default_factory=asyncio.Event)
    publisher: str = "desk"

    def require_open(self) -> None:
        pass

    async def describe(self, message: Describe | Undescribe) -> None:
        self.described.append(message)
        if isinstance(message, Describe):
            await self.allowed.wait()

    async def ask(self, question: Ask) -> None:
        raise NotImplementedError

    def send(self, message: Answer | More | Cancel) -> None:
        self.said.append(message)

    @property
    def answers(self) -> list[Answer]:
        return [each for each in self.said if isinstance(each, Answer)]

    def ends(self) -> list[tuple[str, SourceState, str]]:
        """The state of each source."""
        reports = [report for answer in self.answers for report in answer.reports]
        return [(each.name, each.state, each.reason) for each in reports]


def question(window: int = 1_000) -> Ask:
    return Ask((Disjunct(Query("a any")),), "", "q", 60_000_000, window)


@asynccontextmanager
async def responder_at(notes: Notes) -> AsyncIterator[QueryResponder]:
    """Sources at these notes."""
    responder = QueryResponder(notes)
    try:
        yield responder
    finally:
        await responder.aclose()


@on_loop
async def test_a_refusal_comes_after_the_news_of_who_is_asked() -> None:
    """A client would learn of the failure of an unknown source, and wait for it for ever."""
    notes = Notes(ServiceLimits(queries_answered_max=0))
    notes.allowed.set()
    async with responder_at(notes) as responder:
        await responder.offer("a any", lambda _: [{"a": 1}], name="s").open()
        responder.answer(["s"], question())
        assert notes.said == [], "the server still tells whom it asks"
        await asyncio.sleep(0)
        ((name, state, reason),) = notes.ends()
        assert (name, state) == ("s", SourceState.FAILED)
        assert "queries_answered_max" in reason
        assert notes.answers[-1].is_last


@on_loop
async def test_a_question_that_cannot_be_worked_on_is_refused() -> None:
    """An empty foreign message would end the connection, or never be answered."""
    notes = Notes()
    notes.allowed.set()
    async with responder_at(notes) as responder:
        await responder.offer("a any", lambda _: [{"a": 1}], name="s").open()
        responder.answer(["s"], Ask((), "", "q", 60_000_000, 1))
        await asyncio.sleep(0)
        assert [each[:2] for each in notes.ends()] == [("s", SourceState.FAILED)]
        assert notes.answers[-1].is_last
        assert not responder.is_waited_for(question())


@on_loop
async def test_what_is_offered_just_now_is_not_in_force() -> None:
    """On another connection it would be described by nothing, which no server takes."""
    notes = Notes()
    async with responder_at(notes) as responder:
        held = responder.offer("a any", lambda _: [], name="s")
        opening = asyncio.ensure_future(held.open())
        await until(lambda: bool(notes.described))
        assert responder.in_force() == []
        notes.allowed.set()
        await opening
        assert responder.in_force() == notes.described


@on_loop
async def test_who_gives_up_offering_leaves_nothing_behind() -> None:
    """A source would be queried that is not offered, and its name would be taken."""
    notes = Notes()
    async with responder_at(notes) as responder:
        opening = asyncio.ensure_future(responder.offer("a any", lambda _: [], name="s").open())
        await until(lambda: bool(notes.described))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert notes.described[-1] == Undescribe("s"), "it may have been in force already"
        notes.allowed.set()
        await responder.offer("a any", lambda _: [], name="s").open()
        with pytest.raises(ServiceError, match="name of another source"):
            await responder.offer("a any", lambda _: [], name="s").open()


@on_loop
async def test_what_is_awaited_is_worked_off_in_pieces() -> None:
    """A long list would block the event loop, and a slow reader would get all of it."""
    given: list[int] = []
    threads: set[threading.Thread] = set()

    def items() -> Iterator[dict[str, int]]:
        for n in range(10_000):
            threads.add(threading.current_thread())
            given.append(n)
            yield {"a": n}

    async def source(_: SourceQuery) -> Any:
        return items()

    notes = Notes()
    notes.allowed.set()
    async with responder_at(notes) as responder:
        await responder.offer("a any", source, name="s").open()
        responder.answer(["s"], question(window=10))
        await until(lambda: bool(notes.answers))
        assert sum(len(each.items) for each in notes.answers) == 10
        assert len(given) <= 2 * answering.ITEMS_PER_STEP
        assert threading.main_thread() not in threads
        responder.receive(More("", "q", 20_000))
        await until(lambda: notes.answers[-1].is_last)
        found = [each["a"] for answer in notes.answers for each in answer.items]
        assert found == list(range(10_000))


@on_loop
async def test_what_gives_asynchronously_without_waiting_lets_others_run() -> None:
    """The whole service would be blocked while a source works."""
    turns = 0

    async def restless(_: SourceQuery) -> AsyncIterator[ct.Notification]:
        for _each in range(answering.ITEMS_PER_ANSWER * 20):
            yield ct.Notification({"b": 1})  # An item that is no answer waits for no room.

    notes = Notes()
    notes.allowed.set()
    async with responder_at(notes) as responder:
        await responder.offer("a any", restless, name="s").open()
        responder.answer(["s"], question())
        while not notes.answers:
            await asyncio.sleep(0)
            turns += 1
        assert notes.ends() == [("s", SourceState.EMPTY, "")]
        assert turns > 20


@on_loop
async def test_a_source_that_raises_stop_iteration_fails() -> None:
    """Its query would wait until its time-out, and its thread would be free never again."""

    def source(_: SourceQuery) -> Any:
        return next(iter([]))

    notes = Notes(ServiceLimits(source_threads_max=1))
    notes.allowed.set()
    async with responder_at(notes) as responder:
        await responder.offer("a any", source, name="s").open()
        for _ in range(2):
            responder.answer(["s"], question())
            await until(lambda: notes.answers[-1:] != [] and notes.answers[-1].is_last)
            assert notes.ends() == [
                ("s", SourceState.FAILED, "RuntimeError: the function raised StopIteration")
            ]
            notes.said.clear()


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        ("offer('a any', hang, name='s')", "service.query('a any').open()"),
        ("reply('a any', hang)", "service.request({'a': 1})"),
    ],
)
def test_a_source_that_hangs_holds_no_end(offered: str, asked: str, is_interrupted: bool) -> None:
    """At its end, or after Ctrl-C, a program would wait for the thread of the source for ever."""
    then = "print('begun', flush=True); await asyncio.Event().wait()" if is_interrupted else "pass"
    command = [sys.executable, "-c", HANGING.format(offered=offered, asked=asked, then=then)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as program:
        try:
            if is_interrupted:
                assert program.stdout is not None
                program.stdout.readline()
                program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=TEST_S_MAX / 4)
        finally:
            program.kill()
    assert program.returncode == (-signal.SIGINT if is_interrupted else 0), errors
