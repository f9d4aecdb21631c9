"""Queries in every service: the sources they reach, their answers, and their end."""

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import contrada as ct
from contrada.errors import (
    InvalidCombinationError,
    LimitError,
    ParseError,
    ServiceClosedError,
    ServiceError,
    UnsatisfiableFilterError,
)
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.routing import aggregation
from contrada.routing.router_messages import SourceReport, SourceState
from contrada.service import Answers, Service, clock, dispatcher
from contrada.service.base_service import BaseService
from contrada.service.query import query_client, query_responder
from contrada.service.query.source_query import SourceQuery
from contrada.service.service_limits import ServiceLimits
from contrada.typed.object_parts import OBVENT_BODY
from tests.asynchronous import on_loop, skip, until
from tests.service.ways import known, service_of

BOOKS: list[dict[str, object]] = [
    {"author": "Steinbeck", "title": "Grapes of Wrath", "edition": 1},
    {"author": "Steinbeck", "title": "Grapes of Wrath", "edition": 2},
    {"author": "Steinbeck", "title": "East of Eden", "edition": 1},
    {"author": "Joyce", "title": "Ulysses", "edition": 1},
]
MORE: list[dict[str, object]] = [
    {"author": "Steinbeck", "title": "Cannery Row", "edition": 1, "price": 4.5},
    {"author": "Woolf", "title": "Orlando", "edition": 3, "price": 7.25},
]
NONE: list[dict[str, object]] = []
STATES = SourceState


@dataclass
class Book(ct.Obvent, name="queries.Book"):
    author: str
    title: str
    edition: int = 1


@asynccontextmanager
async def library(name: str) -> AsyncIterator[Service]:
    """A service with two sources of books, and one of weather."""
    async with service_of(name) as service, AsyncExitStack() as stack:
        for source, description, items in (
            ("north", "author any and edition < 3", BOOKS),
            ("south", "author any and edition < 9", MORE),
            ("weather", ct.Advertisement("temperature any"), NONE),
        ):
            offered = service.offer(description, ct.RecordSource(items), name=source)
            await stack.enter_async_context(offered)
        await known(service)
        yield service


def states_of(answers: Answers[Any]) -> dict[str, tuple[SourceState, int]]:
    """The state of each source."""
    return {each.name: (each.state, each.count) for each in answers.reports}


async def all_of(answers: Answers[Any]) -> list[Any]:
    """All answers."""
    return [each async for each in answers]


@on_loop
async def test_answers_come_of_all_that_may_know(name: str) -> None:
    """A source would be skipped, or reached in vain, or its answers would be lost."""
    async with library(name) as service:
        answers = service.query("author = 'Steinbeck' and edition < 2")
        found = [(each["title"], each.envelope.publisher) async for each in answers]
        assert Counter(found) == Counter(
            [("Grapes of Wrath", "north"), ("East of Eden", "north"), ("Cannery Row", "south")]
        )
        assert states_of(answers) == {"north": (STATES.ANSWERED, 2), "south": (STATES.ANSWERED, 1)}
        assert answers.is_complete
        rare = service.query("author = 'Woolf' and edition = 3")
        assert [each["title"] for each in await all_of(rare)] == ["Orlando"]
        assert states_of(rare) == {"south": (STATES.ANSWERED, 1)}
        nobody = service.query("wind > 3 and temperature > 3")
        assert await all_of(nobody) == []
        assert states_of(nobody).keys() <= {"north", "south"}


@on_loop
async def test_query_objects_are_accepted(name: str) -> None:
    """A query made for the algebra or for a source could not be sent."""
    async with library(name) as service:
        product = ct.Query("author = 'Joyce' and edition < 2")
        assert [each["title"] for each in await all_of(service.query(product))] == ["Ulysses"]
        assert len(await all_of(service.query(product, "title prefix 'U'"))) == 1
        assert await all_of(service.compute("count", product)) == [{"count": 1}]
        steinbeck = SourceQuery("author = 'Steinbeck' and edition = $n and price = $n")
        assert await all_of(service.query(steinbeck)) == []
        assert len(await all_of(service.query(SourceQuery("author = 'Woolf'")))) == 1


@on_loop
async def test_types_and_predicates_are_asked_for(name: str) -> None:
    """A program with classes would have to read notifications; a predicate would be evaluated in
    part.
    """
    books = [Book("Steinbeck", "East of Eden", 1), Book("Joyce", "Ulysses", 4)]
    async with service_of(name) as service, service.offer(Book, lambda _: iter(books), name="b"):
        await known(service)
        assert await all_of(service.query(Book)) == books
        assert await all_of(service.query(Book, lambda b: b.edition < 3)) == books[:1]
        lengthy = service.query(Book, lambda b: len(b.title) == 7)
        assert await all_of(lengthy) == books[1:]
        assert states_of(lengthy) == {"b": (STATES.ANSWERED, 2)}
        best = service.query(Book, sort="-edition", limit=1)
        assert await all_of(best) == books[1:]


@on_loop
async def test_what_a_type_cannot_read_is_no_answer(name: str) -> None:
    """Answers within the limit would be missing, although there are more."""
    book = Book("Joyce", "Ulysses", 1).to_notification()
    odd = [
        ct.Notification.with_marks(
            {"author": "Joyce", "title": "Ulysses", "edition": each}, ["queries.Book"]
        )
        for each in "ab"
    ]
    damaged = b"\x81\xa1x\xa1\xff"  # A text that is no UTF-8.
    odd.append(ct.Notification.from_attributes(dict(book), damaged, OBVENT_BODY, ct.Envelope()))
    odd.append(ct.Notification.with_marks({"author": "Joyce"}, ["queries.Book"]))
    async with service_of(name) as service, service.offer(Book, lambda _: [*odd, book]):
        await known(service)
        for where in (None, lambda b: len(b.author) == 5):
            found = await all_of(service.query(Book, where, limit=1))
            assert found == [Book("Joyce", "Ulysses", 1)]
        best = service.query(Book, sort="-edition", limit=2)
        assert await all_of(best) == []
        assert not best.is_complete, "servers have left out the readable one"
        assert best.reports[-1].reason == "2 of the first 2 answers cannot be read"
        best = service.query(Book, sort="-edition", limit=9)
        assert await all_of(best) == [Book("Joyce", "Ulysses", 1)]
        assert best.is_complete


@on_loop
async def test_a_variable_asks_for_equal_values(name: str) -> None:
    """The client would have to find duplicates among all answers."""
    flights = [{"origin": a, "dest": b} for a in ("JFK", "LGA") for b in ("JFK", "BOS")]
    async with service_of(name) as service, service.offer("origin any", lambda _: flights):
        await known(service)
        found = await all_of(service.query("origin = $x and dest = $x"))
        assert [dict(each) for each in found] == [{"origin": "JFK", "dest": "JFK"}]


@on_loop
async def test_answers_are_collated(name: str) -> None:
    """The client would have to sort, count, and find duplicates."""
    async with library(name) as service:
        few = service.query("edition any", limit=2)
        assert len(await all_of(few)) == 2
        assert few.has_ended
        every = await all_of(service.query("edition any", limit=2**70))  # Beyond 64 bits.
        assert len(every) == len(BOOKS + MORE)
        titles = [
            each["title"] for each in await all_of(service.query("edition any", sort="title"))
        ]
        assert titles == sorted(str(each["title"]) for each in BOOKS + MORE)
        last = await all_of(service.query("edition any", sort="-title", limit=2))
        assert [(each["title"], each.envelope.publisher) for each in last] == [
            ("Ulysses", "north"),
            ("Orlando", "south"),
        ]
        priced = await all_of(service.query("edition any", sort="price"))
        assert [each.get("price") for each in priced] == [4.5, 7.25, None, None, None, None]
    twice = [{"a": 1}, {"a": 1.0}, {"a": 2}]
    async with (
        service_of(name) as service,
        service.offer("a any", lambda _: twice),
        service.offer("a any", lambda _: twice),
    ):
        await known(service)
        assert len(await all_of(service.query("a any"))) == 6
        once = await all_of(service.query("a any", distinct=True))
        assert sorted(each["a"] for each in once) == [1, 2]
        some = await all_of(service.query("a any", distinct=True, limit=1))
        assert len(some) == 1


@on_loop
async def test_what_is_computed_is_that_of_all_answers(name: str) -> None:
    """All data would be transferred, or the combined result would differ."""
    async with library(name) as service:
        count = ["count", "sum(edition)", "max(price)"]
        groups = await all_of(service.compute(count, "edition any", by="author"))
        assert groups == [
            {"author": "Joyce", "count": 1, "sum(edition)": 1, "max(price)": None},
            {"author": "Steinbeck", "count": 4, "sum(edition)": 5, "max(price)": 4.5},
            {"author": "Woolf", "count": 1, "sum(edition)": 3, "max(price)": 7.25},
        ]
        answers = service.compute("count", "edition = 1")
        assert await all_of(answers) == [{"count": 4}]
        assert states_of(answers) == {"north": (STATES.ANSWERED, 3), "south": (STATES.ANSWERED, 1)}


@on_loop
async def test_what_cannot_be_combined_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of one source would stay in the result of the others."""
    monkeypatch.setattr(aggregation, "GROUPS_MAX", 3)
    groups = ([1, 2], [2, 3, 4])
    async with service_of(name) as service, AsyncExitStack() as stack:
        for number, keys in enumerate(groups):
            source = ct.RecordSource([{"k": each} for each in keys])
            offered = service.offer("k any", source, name=f"{number}")
            await stack.enter_async_context(offered)
        await known(service)
        answers = service.compute("count", "k any", by="k")
        assert await all_of(answers) == []
        assert {each.state for each in answers.reports} == {STATES.FAILED}
        assert "GROUPS_MAX" in answers.reports[0].reason
        assert await all_of(service.compute("count", "k < 3", by="k")) == [
            {"k": 1, "count": 1},
            {"k": 2, "count": 2},
        ]


@on_loop
async def test_who_asks_may_say_who_it_is(name: str) -> None:
    """A source could not recognise its clients, or would learn their names without consent."""
    askers: list[str] = []

    def remember(question: SourceQuery) -> list[dict[str, int]]:
        askers.append(question.asker)
        return []

    async with service_of(name) as service, service.offer("a any", remember):
        await known(service)
        await all_of(service.query("a = 1"))
        await all_of(service.query("a = 1", asker="desk"))
        await all_of(service.compute("count", "a = 1", asker="desk"))
    assert askers == ["", "desk", "desk"]


@on_loop
async def test_a_source_that_fails_is_told(name: str) -> None:
    """A part would be taken for the whole, or one bad source would spoil the others."""

    def fails(_: SourceQuery) -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise OSError("no such disk")

    def says_nonsense(_: SourceQuery) -> list[Any]:
        return [{"a": object()}]

    async def answers_later(_: SourceQuery) -> AsyncIterator[dict[str, int]]:
        yield {"a": 2}

    async with service_of(name) as service, AsyncExitStack() as stack:
        for source in (fails, says_nonsense, answers_later):
            offered = service.offer("a any", source, name=source.__name__)
            await stack.enter_async_context(offered)
        await known(service)
        answers = service.query("a any")
        found = await all_of(answers)
        assert 2 in {each["a"] for each in found}
        assert not answers.is_complete
        reports = {each.name: each for each in answers.reports}
        assert reports["fails"].state is STATES.FAILED
        assert reports["fails"].reason == "OSError: no such disk"
        assert reports["says_nonsense"].state is STATES.FAILED
        assert reports["answers_later"] == SourceReport("answers_later", STATES.ANSWERED, 1)
        computed = service.compute("count", "a any")
        assert await all_of(computed) == [{"count": 1}]
        assert {each.name for each in computed.reports if each.state is STATES.FAILED} == {
            "fails",
            "says_nonsense",
        }


class Endless:
    """An endless source, which counts its items and notes its end."""

    def __init__(self) -> None:
        self.given = 0
        self.has_ended = asyncio.Event()

    async def answer(self, _: SourceQuery) -> AsyncIterator[dict[str, int]]:
        try:
            while True:
                self.given += 1
                yield {"a": self.given}
                if self.given % 50 == 0:
                    await asyncio.sleep(0)
        finally:
            self.has_ended.set()


@on_loop
async def test_a_question_ends_in_time(name: str) -> None:
    """The client would wait for ever, and the source would work for nobody."""
    silent = asyncio.Event()

    async def never(_: SourceQuery) -> AsyncIterator[dict[str, int]]:
        try:
            yield {"a": 1}
            await asyncio.Event().wait()
        finally:
            silent.set()

    async with service_of(name) as service, service.offer("a any", never, name="never"):
        await known(service)
        answers = service.query("a any", timeout_s=5)
        assert (await anext(answers))["a"] == 1
        skip(5)
        assert await all_of(answers) == []
        assert states_of(answers)["never"][0] is STATES.TIMED_OUT
        await silent.wait()


@pytest.mark.parametrize("how", ["leave", "close", "drop", "limit"])
@on_loop
async def test_sources_end_when_nobody_waits(name: str, how: str) -> None:
    """Sources would continue although their clients have enough answers."""
    source = Endless()
    async with service_of(name) as service, service.offer("a any", source, name="endless"):
        await known(service)
        if how == "limit":
            assert len(await all_of(service.query("a any", limit=3))) == 3
        elif how == "drop":
            answers = service.query("a any")
            await anext(answers)
            del answers
            gc.collect()
        else:
            answers = service.query("a any")
            async with answers:
                await anext(answers)
                if how == "close":
                    await answers.aclose()
            assert answers.has_ended
            with pytest.raises(ServiceClosedError):
                await service.query("a any").__class__.open(answers)
        await source.has_ended.wait()


@on_loop
async def test_a_source_waits_for_who_reads_slowly(name: str) -> None:
    """One large source would fill the memory of the client, and of all servers on the way."""
    source = Endless()
    async with service_of(name) as service, service.offer("a any", source, name="endless"):
        await known(service)
        async with service.query("a any") as answers:
            await anext(answers)
            rest = -1
            while rest != source.given:  # Until it waits.
                rest = source.given
                for _ in range(200):
                    await asyncio.sleep(0)
                await asyncio.sleep(0.05)
            assert rest < 5_000
            found = [(await anext(answers))["a"] for _ in range(6_000)]
            assert found == list(range(2, 6_002))


@on_loop
async def test_a_source_is_asked_while_it_is_offered(name: str) -> None:
    """A source would be queried before its begin or after its end, or by a former description."""
    async with service_of(name) as service:
        source = service.offer("a < 10", lambda _: [{"a": 1}], name="one")
        async with source:
            await known(service)
            assert len(await all_of(service.query("a = 1"))) == 1
            assert await all_of(service.query("a = 20")) == []
            await source.describe(["a > 15", "a < 5 and b any"])
            await known(service)
            answers = service.query("a = 3 and b = 1")
            assert await all_of(answers) == []
            assert states_of(answers) == {"one": (STATES.EMPTY, 0)}
            answers = service.query("a = 7")
            assert await all_of(answers) == []
            assert answers.reports == ()
            with pytest.raises(ServiceError, match="name of another source"):
                await service.offer("c any", lambda _: [], name="one").open()
        await known(service)
        answers = service.query("a > 15")
        assert await all_of(answers) == []
        assert answers.reports == ()
        with pytest.raises(ServiceClosedError):
            await source.open()


@on_loop
async def test_a_source_describes_itself_again(name: str) -> None:
    """Data that a source got after its offer would never be found."""
    records = [{"a": 1}]
    source = ct.RecordSource(records, fresh_s=0.02)
    async with service_of(name) as service, service.offer(None, source, name="records") as held:
        await known(service)
        assert await all_of(service.query("a = 9")) == []
        records.append({"a": 9})
        before = held.described
        await until(lambda: held.described != before)
        await known(service)
        assert [each["a"] for each in await all_of(service.query("a = 9"))] == [9]


@on_loop
async def test_what_makes_no_sense_is_refused(name: str) -> None:
    """The client would wait for an answer to an invalid query."""
    async with service_of(name) as service:
        for wrong, error in (
            (lambda: service.query("a = "), ParseError),
            (lambda: service.query("a < 1 and a > 2"), UnsatisfiableFilterError),
            (lambda: service.query("a = 1", timeout_s=0), ServiceError),
            (lambda: service.query("a = 1", limit=0), ServiceError),
            (lambda: service.query("a = 1", hops=-1), ServiceError),
            (lambda: service.compute([], "a = 1"), InvalidCombinationError),
            (lambda: service.compute("total(a)", "a = 1"), InvalidCombinationError),
            (lambda: service.compute("sum", "a = 1"), InvalidCombinationError),
            (
                lambda: service.compute("count", Book, lambda b: len(b.title) == 1),
                InvalidCombinationError,
            ),
            (lambda: service.offer("a any", 3), ServiceError),  # type: ignore[arg-type]
            (lambda: service.offer("a any", lambda _: [], name="@x"), ServiceError),
            (lambda: service.offer([], lambda _: []), ServiceError),
        ):
            with pytest.raises(error):
                wrong()
        with pytest.raises(ServiceError, match="add a description"):
            await service.offer(None, lambda _: []).open()


@on_loop
async def test_limits_are_told(name: str) -> None:
    """One client could fill a server, or its own memory."""
    async with service_of(name) as service:
        for end in (service, getattr(service, "far", service)):
            assert isinstance(end, BaseService)
            end.service_limits = ServiceLimits(collated_max=3, sources_max=1)
        many = [{"a": each} for each in range(9)]
        async with service.offer("a any", lambda _: many, name="many"):
            await known(service)
            for options in ({"sort": "a"}, {"distinct": True}):
                with pytest.raises(LimitError, match="collated_max"):
                    await all_of(service.query("a any", **options))
            with pytest.raises(LimitError, match="sources_max"):
                await service.offer("a any", lambda _: []).open()


@on_loop
async def test_a_closed_service_ends_its_questions(name: str) -> None:
    """An iteration would never end."""
    source = Endless()
    async with service_of(name) as service, service.offer("a any", source, name="endless"):
        await known(service)
        answers = service.query("a any")
        await anext(answers)
        await service.aclose()
        async for _ in answers:
            pass
        assert answers.has_ended
        await until(source.has_ended.is_set)
    with pytest.raises(ServiceClosedError):
        await all_of(service.query("a any"))


@on_loop
async def test_a_closed_service_has_closed_its_sources(name: str) -> None:
    """A source would still use its files and connections, or be cut off by the end of the loop."""
    events: list[str] = []

    async def source(_: SourceQuery) -> AsyncIterator[dict[str, object]]:
        try:
            yield BOOKS[0]
            events.append("began")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("stopped")

    asked = ct.FunctionSource(source)
    async with service_of(name) as service, service.offer("author any", asked):
        await known(service)
        async with service.query("author any", timeout_s=60):
            await until(lambda: bool(events))
            await service.aclose()
            assert events == ["began", "stopped"]


@on_loop
async def test_a_source_that_is_withdrawn_before_it_has_begun_ends(name: str) -> None:
    """The client would wait until the timeout, and the service would work for nothing."""
    async with service_of(name) as service:
        source = service.offer("a any", lambda _: [{"a": 1}], name="s")
        await source.open()
        await known(service)
        answers = service.query("a any", timeout_s=60)
        await answers.open()
        await source.withdraw()
        async with asyncio.timeout(10):
            await all_of(answers)
        ended = {STATES.STOPPED, STATES.ANSWERED}
        assert {state for state, _ in states_of(answers).values()} <= ended


@on_loop
async def test_sources_that_hang_hold_their_threads_and_no_queue(name: str) -> None:
    """Each query to a source that hangs would stay in the queue of the threads for ever, and its
    end would hold another thread, so that other sources could not answer.
    """
    go_on = threading.Event()
    begun: list[str] = []
    ended: list[str] = []

    def hangs(_: SourceQuery) -> Iterator[dict[str, str]]:
        try:
            yield {"of": "a"}
            begun.append("hangs")
            go_on.wait()
            yield {"of": "a"}
        finally:
            ended.append("closed")

    async def leave(has_begun: Callable[[], bool]) -> None:
        async with service.query("of = 'a'"):
            await until(has_begun)
        await until(lambda: not sources.tasks)

    def waiting() -> int:
        return len(sources._free._waiters or ())

    async def other_state() -> SourceState:
        answers = service.query("of = 'b'")
        await all_of(answers)
        return states_of(answers)["b"][0]

    async with service_of(name) as service, AsyncExitStack() as stack:
        for end in (service, getattr(service, "far", service)):
            assert isinstance(end, BaseService)
            end.service_limits = ServiceLimits(source_threads_max=2)
            sources = end._query_client().responder
        await stack.enter_async_context(service.offer("of = 'a'", hangs, name="a"))
        works = service.offer("of = 'b'", lambda _: [{"of": "b"}], name="b")
        await stack.enter_async_context(works)
        stack.callback(go_on.set)
        await known(service)
        await leave(lambda: len(begun) == 1)
        assert await other_state() is STATES.ANSWERED
        await leave(lambda: len(begun) == 2)
        for _ in range(11):
            await leave(lambda: len(begun) > 2 or waiting() > len(sources._closing))
        gc.collect()
        assert sum(isinstance(each, SourceQuery) for each in gc.get_objects()) < 8
        go_on.set()
        await until(lambda: ended == ["closed"] * 2)
        assert await other_state() is STATES.ANSWERED


async def silent(_: SourceQuery) -> list[dict[str, int]]:
    """A source that only waits."""
    await asyncio.Event().wait()
    return []


async def restless(_: SourceQuery) -> AsyncIterator[dict[str, int]]:
    """A source that never waits, and never answers."""
    while True:
        yield {"b": 1}


@on_loop
async def test_a_source_that_waits_for_nothing_ends_in_time(name: str) -> None:
    """A source would block its whole service, beyond every deadline."""
    async with service_of(name) as service, service.offer("a any", restless, name="s"):
        await known(service)
        answers = service.query("a any", timeout_s=0.2)
        assert await all_of(answers) == []
        # A busy server on the way may be late too.
        assert states_of(answers)["s"] == (STATES.TIMED_OUT, 0)


@on_loop
async def test_a_limit_changes_no_order(name: str) -> None:
    """With a limit, answers without the attribute would be missing or out of order."""
    items = [{"a": each} for each in range(3)]
    items += [{"a": 3, "b": 2}, {"a": 4, "b": [1, 9]}, {"a": 5, "b": 5}]  # type: ignore[dict-item]
    async with service_of(name) as service, service.offer("a any", lambda _: items, name="s"):
        await known(service)
        for sort, first in (("b", [4, 3, 5]), ("-b", [4, 5, 3])):
            for limit in (2, 5, 1_001):
                found = await all_of(service.query("a any", sort=sort, limit=limit))
                places = [each["a"] for each in found]
                assert places[:3] == first[:limit]
                assert sorted(places[3:]) == [0, 1, 2][: max(0, limit - 3)]
        (best,) = await all_of(service.compute("top 5(b)", "a any"))
        assert [each["a"] for each in best["top 5(b)"]] == [4, 5, 3]


@on_loop
async def test_a_sorted_predicate_that_fails_is_told_to_who_asks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would end the answers of other queries."""

    def fails(*_: object) -> bool:
        raise ValueError("a fault of who asks")

    monkeypatch.setattr(query_client.AnswerReader, "is_asked_for", fails)
    async with library(name) as service:
        with pytest.raises(ValueError, match="who asks"):
            await all_of(service.query("author any", sort="title"))


@on_loop
async def test_what_a_service_combines_beyond_a_limit_fails_as_a_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a failed combination would be in the result."""
    async with library(name) as service:
        monkeypatch.setattr(aggregation, "GROUPS_MAX", 3)
        answers = service.compute("count", "author any", by="title")
        assert await all_of(answers) == []
        assert {state for state, _ in states_of(answers).values()} == {STATES.FAILED}
        assert not answers.is_complete


@on_loop
async def test_who_sets_the_clock_ends_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """All queries would end at once, or never."""
    async with library("embedded") as service, service.offer("a any", silent, name="s"):
        answers = service.query("a any", timeout_s=60)
        await answers.open()
        short = service.query("a any", timeout_s=0.1)
        await short.open()
        for each in (dispatcher, clock):
            monkeypatch.setattr(each, "wall_clock_us", lambda: 2 * 10**15)
        assert await all_of(short) == []
        await asyncio.sleep(0)
        assert not answers.has_ended
        await answers.aclose()


@on_loop
async def test_a_source_that_cannot_be_offered_is_not_described_again() -> None:
    """A source would be described for ever."""
    async with service_of("embedded") as service:
        records = ct.RecordSource([{"a": 1}])
        async with service.offer(None, records, name="s"):
            second = service.offer(None, records, name="s")
            with pytest.raises(ServiceError, match="another source"):
                await second.open()
            looking = [it for it in asyncio.all_tasks() if "_refresh" in repr(it.get_coro())]
            assert len(looking) == 1


@on_loop
async def test_what_a_source_cannot_give_is_its_own_failure(name: str) -> None:
    """An item beyond a frame would be lost uncounted, or a fast source would flood its client."""
    assert query_responder.ITEM_BYTES_MAX <= CONTENT_BYTES_MAX

    def hasty(_: SourceQuery) -> None:
        raise TimeoutError("its database")

    async with (
        service_of(name) as service,
        service.offer("a any", lambda _: [{"a": "x" * CONTENT_BYTES_MAX}], name="large"),
        service.offer("a any", hasty, name="hasty"),
    ):
        await known(service)
        answers = service.query("a any", timeout_s=10)
        assert await all_of(answers) == []
        assert states_of(answers) == dict.fromkeys(("large", "hasty"), (STATES.FAILED, 0))
