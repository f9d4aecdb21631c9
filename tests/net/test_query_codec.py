"""Queries over connections and links: the asked sources, and reported losses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contrada.connections import connect
from contrada.errors import ServiceError
from contrada.model import Advertisement, Query
from contrada.net.broker import fair_scheduler, session_queries
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import AboutQuestions
from contrada.net.wire.message_codec import encode_message
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Ask, Describe, Disjunct, SourceReport, SourceState
from tests.asynchronous import on_loop, until
from tests.net.networks import FIVE, network

RING = [*FIVE, (3, 4)]
STATES = SourceState


@pytest.mark.parametrize("strategy", [Strategy.ADVERTISEMENTS, Strategy.SUBSCRIPTIONS])
@pytest.mark.parametrize("general", [False, True])
@on_loop
async def test_a_query_reaches_matching_sources(strategy: Strategy, general: bool) -> None:
    """It would stay at the asker's broker, be doubled in a ring, or load all others."""
    async with (
        network(5, RING if general else FIVE, strategy=strategy, general=general) as brokers,
        connect(brokers[3].address) as far,
        connect(brokers[4].address) as other,
        connect(brokers[0].address) as asker,
        far.offer("author = 'Steinbeck' and edition any", lambda _: BOOKS, name="far"),
        other.offer(Advertisement("author = 'Joyce'"), lambda _: BOOKS, name="other"),
    ):
        await until(lambda: brokers.is_at_rest)
        answers = asker.query("author = 'Steinbeck'")
        assert [each["edition"] async for each in answers] == [1, 2]
        assert answers.reports == (SourceReport("far", STATES.ANSWERED, 2),)
        asked = [each.dispatcher.router.statistics().received.get("Ask", 0) for each in brokers]
        assert asked == [1, 1, 1, 1, 0], "it went where nothing meets it"
        answers = asker.query("author = 'Joyce'")
        assert [each async for each in answers] == []
        assert answers.reports == (SourceReport("other", STATES.EMPTY),)
        assert not any(each.dispatcher.router.statistics().questions for each in brokers)


BOOKS = [{"author": "Steinbeck", "edition": 1}, {"author": "Steinbeck", "edition": 2}]


async def endless(_: Any) -> AsyncIterator[dict[str, str]]:
    """A source that gives one item, and then nothing."""
    yield {"author": "Steinbeck"}
    await asyncio.Event().wait()


@on_loop
async def test_answers_missing_from_a_dead_broker_are_reported() -> None:
    """A part would be taken for the whole when a broker dies in the middle."""
    async with (
        network(3, [(0, 1), (1, 2)]) as brokers,
        connect(brokers[0].address) as asker,
        connect(brokers[1].address) as near,
        connect(brokers[2].address) as far,
        asker.offer("author any", lambda _: BOOKS, name="here"),
        near.offer("author any", lambda _: BOOKS, name="near"),
        far.offer("author any", endless, name="far"),
    ):
        await until(lambda: brokers.is_at_rest)
        combined = asker.compute("count", "author any", timeout_s=20)
        reading = asyncio.ensure_future(anext(combined))
        await until(lambda: len(combined.reports) == 3)
        await brokers[2].stop()
        assert await reading == {"count": 4}
        states = {each.name: each.state for each in combined.reports}
        assert states == {
            "here": STATES.ANSWERED,
            "near": STATES.ANSWERED,
            "far": STATES.LOST,
            "@b2": STATES.LOST,
        }
        assert not combined.is_complete


@on_loop
async def test_a_lost_connection_ends_queries_and_sources_are_restored() -> None:
    """An asker would wait for a lost connection; a source would never be asked again."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as source,
        connect(broker.address) as asker,
        source.offer("author any", endless, name="books"),
    ):
        answers = asker.query("author any", timeout_s=30)
        await anext(answers)
        for each in list(broker._connections):
            each.abort()
        assert [each async for each in answers] == []
        assert {each.name: each.state for each in answers.reports} == {
            "books": STATES.LOST,
            "@service": STATES.LOST,
        }
        await until(lambda: broker.dispatcher.router.statistics().sources.nodes == 1)
        again = asker.query("author any")
        assert (await anext(again))["author"] == "Steinbeck"
        assert [each.name for each in again.reports] == ["books"]
        await again.aclose()
        await until(lambda: not broker.dispatcher.router.statistics().questions)


@on_loop
async def test_an_end_that_nobody_tells_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that no broker has answered would be taken for one that nobody knows of."""
    async with Broker(port=0) as broker, connect(broker.address) as client:
        monkeypatch.setattr(broker.dispatcher, "ask", lambda *_: None)
        answers = client.query("a = 1", timeout_s=0.05)
        assert [each async for each in answers] == []
        assert not answers.is_complete
        assert answers.reports == (SourceReport("@service", STATES.TIMED_OUT),)


@on_loop
async def test_invalid_messages_are_refused() -> None:
    """A client could ask in another one's name, or fill a broker."""
    async with Broker(port=0) as broker, connect(broker.address) as client:
        assert isinstance(client, TcpService)
        question = Ask((Disjunct(Query("a = 1")),), "", "7", 1_000_000, 1)
        for wrong, words in (
            (msgspec.structs.replace(question, hops=1), "has no hops"),
            (msgspec.structs.replace(question, timeout_us=0), "without a time"),
            (msgspec.structs.replace(question, identity="x" * 300), "length <= 255"),
            (Describe("s", ()), "no notification can match"),
        ):
            with pytest.raises(ServiceError, match=words):
                await client.reconnection.request(encode_message(wrong))
        assert broker.dispatcher.router.statistics().questions == 0


@pytest.mark.parametrize(
    ("asked", "same", "words"),
    [
        ("a = 1 and b = 2", (("a", "b"),), "no notification can match"),
        ("a = 1", (("",),), "name"),
        ("a = 1", tuple((f"a{each}", "b") for each in range(200)), "SAME_NAMES_MAX"),
    ],
)
@on_loop
async def test_alternatives_that_no_source_can_read_are_refused(
    asked: str, same: tuple[tuple[str, ...], ...], words: str
) -> None:
    """An asker could end the connections of sources."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address, reconnect=False) as source,
        connect(broker.address) as client,
        source.offer("a any", lambda _: [{"a": 1}], name="s"),
    ):
        assert isinstance(client, TcpService)
        question = Ask((Disjunct(Query(asked), same),), "", "7", 1_000_000, 1)
        with pytest.raises(ServiceError, match=words):
            await client.reconnection.request(encode_message(question))
        assert [dict(each) async for each in client.query("a any")] == [{"a": 1}]


@pytest.mark.parametrize("message", [["answer", "", "7", ["no bytes"]], ["dance"]])
@on_loop
async def test_nonsense_about_questions_ends_the_connection(message: list[Any]) -> None:
    """A broker would process undecodable messages."""
    async with Broker(port=0) as broker, connect(broker.address, reconnect=False) as client:
        assert isinstance(client, TcpService)
        raw = msgspec.Raw(msgspec.msgpack.encode(message))
        client.reconnection.send(AboutQuestions([raw]))
        await until(lambda: client.connection.state in ("closed", "lost"))


@on_loop
async def test_limits_of_a_client_are_reported() -> None:
    """One client could take all places of a broker."""
    limits = BrokerLimits(sources_per_client_max=1, questions_per_client_max=1)
    async with (
        Broker(port=0, limits=limits) as broker,
        connect(broker.address) as client,
        client.offer("a any", endless, name="one"),
    ):
        with pytest.raises(ServiceError, match="sources_per_client_max"):
            await client.offer("b any", endless, name="two").open()
        async with client.query("a any"):
            with pytest.raises(ServiceError, match="questions_per_client_max"):
                await client.query("a any").open()
        async with client.query("a any"):
            pass


@on_loop
async def test_a_query_that_is_too_much_work_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused queries would count as open, until the client may ask no more."""
    limits = BrokerLimits(questions_per_client_max=1)
    async with Broker(port=0, limits=limits) as broker, connect(broker.address) as client:
        with monkeypatch.context() as patch:
            patch.setattr(fair_scheduler, "REQUEST_WORK_MAX", 1)
            for _ in range(2):
                with pytest.raises(ServiceError, match="REQUEST_WORK_MAX"):
                    await client.query("a any").open()
        async with client.query("a any"):
            pass


@on_loop
async def test_large_answers_arrive_in_parts() -> None:
    """Items too large for one frame would end a connection, or be lost."""
    text = "x" * 200_000
    items = [{"a": number, "text": text} for number in range(200)]
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[1].address) as source,
        connect(brokers[0].address) as asker,
        source.offer("a any", lambda _: items),
    ):
        await until(lambda: brokers.is_at_rest)
        answers = asker.query("a any", timeout_s=60)
        assert [each["a"] async for each in answers] == list(range(200))
        assert answers.is_complete


@on_loop
async def test_a_query_times_out_at_a_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """An asker would wait for ever; or an unanswered query would count as answered."""
    monkeypatch.setattr(session_queries.SessionQueries, "handle", lambda *_: None)
    async with Broker(port=0) as broker, connect(broker.address) as client:
        answers = client.query("a any", timeout_s=0.1)
        with pytest.raises(ServiceError, match=r"timeout_s = 0\.1"):
            async with asyncio.timeout(20):
                await answers.open()
        assert answers.has_ended
        assert not answers.is_complete


@on_loop
async def test_a_repeated_query_is_counted() -> None:
    """One client could take all places of a broker after all."""
    async with (
        Broker(port=0, limits=BrokerLimits(questions_per_client_max=2)) as broker,
        connect(broker.address) as client,
        client.offer("a any", endless, name="one"),
    ):
        assert isinstance(client, TcpService)
        question = Ask((Disjunct(Query("a any")),), "", "7", 60_000_000, 1)
        await client.reconnection.request(encode_message(question))
        with pytest.raises(ServiceError, match="come already"):
            await client.reconnection.request(encode_message(question))
        await client.reconnection.request(
            encode_message(msgspec.structs.replace(question, identity="8"))
        )
        with pytest.raises(ServiceError, match="questions_per_client_max"):
            await client.reconnection.request(
                encode_message(msgspec.structs.replace(question, identity="9"))
            )
