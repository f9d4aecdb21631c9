"""One behaviour for every service: embedded, at a broker, and in a network of brokers."""

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from contrada.connections import connect, connect_sync
from contrada.errors import (
    InvalidNotificationError,
    InvalidObventError,
    ParseError,
    ServiceClosedError,
    ServiceError,
    UnsatisfiableFilterError,
)
from contrada.integrations.dialects import cesql
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.service import ConnectionState, DurableRecord, Subscription
from contrada.service.clock import wall_clock_us
from contrada.service.requests import notification_of, publication_of
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import EXPIRED
from contrada.typed import Obvent, type_name_of
from tests.asynchronous import on_loop, until
from tests.service.ways import known_durable, service_of, way_of

QUEUE_NOTIFICATIONS_MAX = ServiceLimits().queue_notifications_max


@dataclass
class Stock(Obvent):
    company: str


@dataclass
class Quote(Stock):
    price: float


@dataclass
class Picky(Stock):
    def __post_init__(self) -> None:
        {"Telco": 1}[self.company]


@dataclass
class Trade(Stock):
    buyer: str | None = None


async def first(events: Subscription[Notification], count: int) -> list[Notification]:
    """The first so many notifications of a subscription."""
    return [await anext(events) for _ in range(count)]


@on_loop
async def test_one_loop_reads_plain_and_durable_subscriptions(name: str) -> None:
    """A program would need two loops, as soon as it wanted one subscription to be reliable."""
    async with service_of(name) as service:
        plain, durable = (
            service.subscribe("price any"),
            service.subscribe("price any", reliable=True),
        )
        async with plain, durable:
            await known_durable(service, 1)
            await service.publish({"price": 5, "venue": "NYSE"}, delivery="reliable")
            for events in (plain, durable):
                event: Notification | DurableRecord[Notification] = await events.next(20)
                assert event["price"] == event.number("price") == 5
                assert ("venue" in event, "volume" in event) == (True, False)
                assert [*event] == ["price", "venue"]
                assert event.text("venue") == "NYSE"
                assert event.envelope.delivery == "reliable"


@on_loop
async def test_a_record_reads_like_its_obvent(name: str) -> None:
    """Code for plain subscriptions to a class would fail with the first durable one."""
    async with service_of(name) as service, service.subscribe(Quote, reliable=True) as records:
        await known_durable(service, 1)
        await service.publish(Quote("Telco", 5.0), delivery="reliable")
        record: Any = await records.next(20)
        assert (record.company, record.price, record.position) == ("Telco", 5.0, 1)
        assert copy.copy(record) == record
        with pytest.raises(AttributeError, match="amount"):
            record.amount  # noqa: B018
        with pytest.warns(DeprecationWarning, match=r"give_back is nack now"):
            await records.give_back(record.position)  # type: ignore[attr-defined]
        assert (await records.next(20)).attempt == 2


def test_a_record_is_published_like_its_item() -> None:
    """A program that passes on what it gets would publish positions and attempts in its place."""
    for item in (Notification({"price": 5}), {"price": 5}, Quote("Telco", 6.0)):
        record = DurableRecord(item, 7, 1, 2)
        assert notification_of(record) == notification_of(item)
        assert publication_of(record, {"priority": 3}) == notification_of(item)


@on_loop
async def test_an_unknown_option_is_refused_with_the_known_ones(name: str) -> None:
    """A misspelt option would be ignored, or its right spelling be hard to find."""
    async with service_of(name) as service:
        options: dict[str, Any] = {"prioritty": 3}
        with pytest.raises(ServiceError, match=r"publish has no option prioritty.* priority"):
            await service.publish({"a": 1}, **options)
        with pytest.raises(ServiceError, match=r"subscribe has no option prioritty.* reliable"):
            service.subscribe("a = 1", **options)
        with pytest.raises(ServiceError, match=r"query has no option prioritty.* timeout_s"):
            service.query("a = 1", **options)
        with pytest.raises(ServiceError, match=r"compute has no option prioritty.* by"):
            service.compute("count", "a = 1", **options)


def test_an_unknown_option_of_connect_is_refused_with_the_known_ones() -> None:
    """A misspelt option would be taken for a network, or be ignored."""
    options: dict[str, Any] = {"stroe": "x.db"}
    for address in (None, "contrada://127.0.0.1:7655"):
        with pytest.raises(ServiceError, match=r"connect has no option stroe.* store"):
            connect(address, **options)
        with pytest.raises(ServiceError, match=r"connect has no option stroe.* store"):
            connect_sync(address, **options)


@on_loop
async def test_a_service_can_be_awaited_and_closed_by_hand(name: str) -> None:
    """An `await` of a service, common elsewhere, would fail."""
    async with way_of(name) as way:
        service = await way.connect()
        events = await service.subscribe("change < 0")
        await service.publish({"change": -1})
        assert (await anext(events))["change"] == -1
        await events.unsubscribe()
        await service.aclose()
        with pytest.raises(ServiceClosedError):
            await service.publish({"change": -2})


@on_loop
async def test_what_matches_is_delivered_in_order(name: str) -> None:
    """Subscribers would get other notifications than they subscribed to."""
    async with service_of(name) as service, service.subscribe("change < 0") as events:
        for change in (-1, 1, -2, 0, -3):
            await service.publish({"symbol": "DIS", "change": change})
        assert [n["change"] for n in await first(events, 3)] == [-1, -2, -3]
        assert events.statistics().delivered == 3
        assert events.statistics().dropped == {}


@on_loop
async def test_notifications_arrive_whole(name: str) -> None:
    """A value, the envelope or the body would be changed on the way."""
    attributes: dict[str, Any] = {
        "null": None,
        "bool": True,
        "large": 2**53 + 1,
        "double": 0.1,
        "infinite": float("inf"),
        "text": "Telefónica 電話",
        "bytes": b"\xff\x00",
        "time": datetime(2013, 1, 1, 5, tzinfo=UTC),
        "several": ["b", "a", 3],
    }
    async with (
        service_of(name, publisher="desk") as service,
        service.subscribe("large exists") as events,
    ):
        envelope = await service.publish(attributes, body=b"\x00body", content_type="x/y")
        (got,) = await first(events, 1)
        assert got == Notification(attributes, body=b"\x00body", content_type="x/y")
        assert got.envelope == envelope
        assert got.envelope.publisher == "desk"
        assert got.envelope.sequence == 1


@on_loop
async def test_what_a_rule_leaves_open_is_decided(name: str) -> None:
    """A subscriber would get notifications that only the filters of a rule match."""
    rule, narrower = cesql.read("a = b"), cesql.read("a + b > 2")
    async with (
        service_of(name) as service,
        service.subscribe(rule) as found,
        service.subscribe(rule, where=narrower) as fewer,
        service.subscribe("a any", where=narrower) as sums,
    ):
        assert await service.publish_batch({"a": n % 3, "b": n // 3} for n in range(9)) == 9
        assert [(each["a"], each["b"]) for each in await first(found, 3)] == [
            (0, 0),
            (1, 1),
            (2, 2),
        ]
        assert [each["a"] for each in await first(fewer, 1)] == [2]
        assert [(each["a"], each["b"]) for each in await first(sums, 3)] == [(2, 1), (1, 2), (2, 2)]
        assert found.statistics().dropped == {}
        assert found.statistics().delivered == 3


@on_loop
async def test_each_subscription_gets_its_own(name: str) -> None:
    """Subscriptions of one access point, or of two, would disturb one another."""
    async with way_of(name) as way, way.connect() as one, way.connect() as other:
        subscriber = one if name == "embedded" else other
        async with (
            one.subscribe("kind = 'mine' and n < 5") as low,
            subscriber.subscribe(FilterSet("kind = 'mine' and n > 3 or n = 1")) as split,
            subscriber.subscribe({"kind": "mine"}) as every,
        ):
            await one.publish_batch({"kind": "mine", "n": n} for n in range(8))
            assert [n["n"] for n in await first(low, 5)] == [0, 1, 2, 3, 4]
            assert [n["n"] for n in await first(split, 5)] == [1, 4, 5, 6, 7]
            assert [n["n"] for n in await first(every, 8)] == list(range(8))


@on_loop
async def test_nothing_comes_after_unsubscribe(name: str) -> None:
    """A handler would be called for objects after the end of its subscription."""
    async with service_of(name) as service:
        events = service.subscribe("after = 1")
        await events.open()
        await service.publish_batch({"after": 1, "n": n} for n in range(10))
        await events.unsubscribe()
        await service.publish({"after": 1})
        assert [n async for n in events] == []
        with pytest.raises(ServiceClosedError):
            await events.open()


@on_loop
async def test_unsubscribe_ends_an_iteration_under_way(name: str) -> None:
    """A waiting task would hang."""
    async with service_of(name) as service:
        events = service.subscribe("never = 1")
        await events.open()
        reader = asyncio.create_task(anext(events, None))
        await asyncio.sleep(0)
        await events.unsubscribe()
        assert await reader is None


@on_loop
async def test_closing_ends_iterations_after_what_they_hold(name: str) -> None:
    """A subscriber would hang or fail when the service is closed in order."""
    async with service_of(name) as service:
        events = service.subscribe("closing = 1")
        await events.open()
        await service.publish_batch({"closing": 1, "n": n} for n in range(3))
        await until(lambda: events.statistics().queued == 3)
        await service.aclose()
        assert [n["n"] async for n in events] == [0, 1, 2]
        with pytest.raises(ServiceClosedError):
            await service.publish({"closing": 1})


@pytest.mark.quick_first
@on_loop
async def test_a_slow_reader_loses_nothing(name: str) -> None:
    """A fast publisher would overrun a healthy subscriber."""
    total = QUEUE_NOTIFICATIONS_MAX * 5 // 2
    async with (
        way_of(name) as way,
        way.connect() as publisher,
        way.connect() as other,
        (publisher if name == "embedded" else other).subscribe("slow = 1") as events,
    ):
        published = asyncio.create_task(
            publisher.publish_batch({"slow": 1, "n": n} for n in range(total))
        )
        expected = 0
        async for notification in events:
            assert notification["n"] == expected
            expected += 1
            if expected == total:
                break
            if expected % 100 == 0:
                await asyncio.sleep(0.001)  # It is slower than its publisher.
        assert await published == total
        assert events.statistics().dropped == {}


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_dead_reader_loses_what_it_does_not_read_and_it_is_counted(name: str) -> None:
    """A stopped subscriber would block publishers, or lose notifications uncounted."""
    async with (
        way_of(name) as way,
        way.connect(publish_wait_s=0.05) as publisher,
        way.connect() as other,
        (publisher if name == "embedded" else other).subscribe("dead = 1 or end = 1") as events,
    ):
        total = 3 * QUEUE_NOTIFICATIONS_MAX
        await publisher.publish_batch({"dead": 1, "n": n} for n in range(total))
        if name == "embedded":  # The newest are lost, and the publisher gets an error.
            lost = publisher.statistics().dropped["queue full"]
            got = [each["n"] for each in await first(events, total - lost)]
            assert got == list(range(total - lost))
        else:  # The oldest are lost that the broker has not sent yet.
            await publisher.publish({"end": 1})
            left = list[int]()
            while "n" in (each := await anext(events)):
                left.append(int(str(each["n"])))
            lost = total - len(left)
            assert left == sorted(left)
            assert left[-1] == total - 1
        assert lost > 0
        await events.unsubscribe()
        assert events.statistics().dropped == {"queue full": lost}


@on_loop
async def test_typed_subscriptions_give_objects(name: str) -> None:
    """Obvents would be read as another class, or subtypes would be missed."""
    async with (
        service_of(name) as service,
        service.subscribe(Stock) as stocks,
        service.subscribe(Quote, "price < 100") as quotes,
    ):
        sent = [Quote("Telco", 80.0), Trade("Telco"), Quote("Disco", 120.0), Quote("Telco", 90)]
        for obvent in sent:
            await service.publish(obvent)
        assert [await anext(stocks) for _ in sent] == sent
        assert [await anext(quotes) for _ in range(2)] == [sent[0], sent[3]]


@on_loop
async def test_each_subscription_gets_objects_of_its_own(name: str) -> None:
    """One subscriber's change of an object would reach another, or the publisher."""
    sent = Quote("Telco", 80.0)
    async with (
        service_of(name) as service,
        service.subscribe(Quote) as one,
        service.subscribe(Quote) as other,
    ):
        await service.publish(sent)
        first, second = await anext(one), await anext(other)
        assert first == second == sent
        assert first is not second
        assert first is not sent
        first.price = 1.0
        assert (second.price, sent.price) == (80.0, 80.0)


@on_loop
async def test_what_a_type_cannot_hold_is_counted(name: str) -> None:
    """A foreign notification would end a subscriber's loop, or vanish."""
    marks = [type_name_of(Stock), type_name_of(Quote)]
    strange = Notification.with_marks({"company": 5}, marks=marks)
    async with service_of(name) as service, service.subscribe(Quote) as quotes:
        await service.publish(strange)
        await service.publish(Quote("Telco", 1.0))
        assert await anext(quotes) == Quote("Telco", 1.0)
        assert quotes.statistics().dropped == {"unreadable": 1}


@on_loop
async def test_a_type_that_raises_is_counted_and_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user's own class would end the loop, or lose notifications uncounted."""
    async with service_of(name) as service, service.subscribe(Picky) as found:
        marks = [type_name_of(Stock), type_name_of(Picky)]
        for company in ("Disco", "Tele", "Telco"):
            await service.publish(Notification.with_marks({"company": company}, marks=marks))
        assert await found.next(10) == Picky("Telco")
        assert found.statistics().dropped == {"unreadable": 2}
    [said] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "KeyError('Disco')" in said.getMessage()


class Selected:
    """A user's own interest with a failing reader."""

    def to_filters(self) -> Filter:
        return Filter("own any")

    def from_notification(self, notification: Notification) -> float:
        return 1 / notification["own"]  # type: ignore[operator]


@on_loop
async def test_an_interest_that_raises_is_counted_and_logged(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of a subscriber's code would end its loop."""
    async with service_of(name) as service, service.subscribe(Selected()) as found:
        await service.publish_batch([{"own": 0}, {"own": 2}])
        assert await found.next(10) == 0.5
        assert found.statistics().dropped == {"unreadable": 1}
    assert "ZeroDivisionError" in caplog.text


@on_loop
async def test_where_names_fields_of_the_class(name: str) -> None:
    """A misspelt field would match nothing, for ever, without an error."""
    async with service_of(name) as service:
        for where in ("prize < 100", "company = 'a' or prize < 1", {"prize": 1}):
            with pytest.raises(InvalidObventError, match=r"'prize'.*company, price"):
                service.subscribe(Quote, where)
        with pytest.raises(InvalidObventError, match="'price'"):
            service.subscribe(Stock, "price < 100")
        service.subscribe(Stock, "@publisher = 'p' and company = 'a'")


@on_loop
async def test_the_next_is_waited_for_as_long_as_one_says(name: str) -> None:
    """A subscriber could not do something else meanwhile, or would lose later notifications."""
    async with service_of(name) as service, service.subscribe("waited = 1") as found:
        with pytest.raises(TimeoutError):
            await found.next(0.01)
        await service.publish({"waited": 1})
        assert (await found.next(10))["waited"] == 1
        for timeout_s in (float("nan"), -1, "5"):
            with pytest.raises(ServiceError, match="timeout_s"):
                await found.next(timeout_s)  # type: ignore[arg-type]
        await found.unsubscribe()
        with pytest.raises(ServiceClosedError):
            await found.next(10**400)


@on_loop
async def test_a_batch_of_several_kinds_is_numbered_and_timed_in_order(name: str) -> None:
    """A pattern would see its publisher's notifications in another order than they were sent in."""
    plain, nested = {"a": 1}, {"a": {"b": [1, 2]}}
    items: list[Any] = [plain, Notification(plain), nested, plain, nested, plain] * 20
    for delivery in (None, "best-effort"):
        async with service_of(name) as service, service.subscribe({}) as found:
            assert await service.publish_batch(items, delivery=delivery) == len(items)
            envelopes = [each.envelope for each in await first(found, len(items))]
        assert [each.sequence for each in envelopes] == [*range(1, len(items) + 1)]
        assert envelopes == sorted(envelopes, key=lambda each: each.at_us)


@on_loop
async def test_a_batch_that_fails_says_how_many_were_taken(name: str) -> None:
    """A publisher of the rest would publish some twice, or lose some."""

    def items() -> Iterator[dict[str, int]]:
        yield from ({"taken": n} for n in range(300))
        raise KeyError("own")

    async with service_of(name) as service, service.subscribe("taken any") as found:
        with pytest.raises(KeyError) as own:
            await service.publish_batch(items())
        assert own.value.published == 300  # type: ignore[attr-defined]
        assert own.value.__notes__ == ["300 notifications of the batch were published before"]
        with pytest.raises(InvalidNotificationError) as invalid:
            await service.publish_batch([{"taken": 1}, {"taken": object()}, {"taken": 2}])
        assert invalid.value.published == 1
        assert len(await first(found, 301)) == 301
        await service.aclose()
        with pytest.raises(ServiceClosedError) as closed:
            await service.publish_batch([{"taken": 1}])
        assert closed.value.published == 0


@on_loop
async def test_another_event_loop_is_told_so(name: str) -> None:
    """A service on another loop would hang, or fail obscurely."""
    async with service_of(name) as service, service.subscribe("a = 1") as found:

        async def elsewhere() -> None:
            for work in (
                lambda: service.open(),
                lambda: service.publish({"a": 1}),
                lambda: service.publish_batch([{"a": 1}]),
                lambda: service.subscribe("a = 1").open(),
                lambda: found.next(1),
                lambda: anext(found),
                lambda: found.unsubscribe(),
                lambda: service.aclose(),
            ):
                with pytest.raises(ServiceError, match="event loop"):
                    await work()

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        await service.publish({"a": 1})
        assert (await found.next(10))["a"] == 1


@on_loop
async def test_bad_requests_are_refused_and_nothing_else_happens(name: str) -> None:
    """One bad request would cost the whole service."""
    async with service_of(name) as service, service.subscribe("good = 1") as events:
        with pytest.raises(ParseError):
            service.subscribe("good =")
        with pytest.raises(UnsatisfiableFilterError):
            service.subscribe(Filter("good > 1 and good < 1"))
        with pytest.raises(InvalidNotificationError):
            await service.publish({"good": object()})
        with pytest.raises(InvalidNotificationError):
            await service.publish_batch([{"good": 1}, {"@id": 1}, {"good": 1}])
        await service.publish({"good": 1, "last": True})
        assert [n.get("last") for n in await first(events, 2)] == [None, True]


@on_loop
async def test_a_service_is_used_inside_its_context(name: str) -> None:
    """Use before opening or after closing would hang or fail obscurely."""
    async with way_of(name) as way:
        service = way.connect()
        with pytest.raises(ServiceError, match="async with"):
            await service.publish({"a": 1})
        async with service:
            with pytest.raises(ServiceError, match="async with"):
                await anext(service.subscribe("a = 1"))
        with pytest.raises(ServiceClosedError):
            await service.open()


@on_loop
async def test_batches_may_be_asynchronous(name: str) -> None:
    """An asynchronous stream could not be published."""

    async def numbers() -> AsyncIterator[dict[str, int]]:
        for n in range(200):
            await asyncio.sleep(0)
            yield {"stream": 1, "n": n}

    async with service_of(name) as service, service.subscribe("stream = 1") as events:
        assert await service.publish_batch(numbers()) == 200
        assert [n["n"] for n in await first(events, 200)] == list(range(200))


@on_loop
async def test_many_publish_at_once(name: str) -> None:
    """Publications of several tasks would be mixed up or lost."""
    async with service_of(name) as service, service.subscribe("task exists") as events:

        async def publish(task: int) -> None:
            for n in range(50):
                await service.publish({"task": task, "n": n})

        await asyncio.gather(*(publish(task) for task in range(20)))
        got = await first(events, 1000)
        assert [n.envelope.sequence for n in got] == list(range(1, 1001))
        for task in range(20):
            assert [n["n"] for n in got if n["task"] == task] == list(range(50))


@on_loop
async def test_closing_ends_publications_under_way(name: str) -> None:
    """A task that publishes would hang, or see a broken connection where one was closed."""
    async with service_of(name) as service:

        async def numbers() -> AsyncIterator[dict[str, int]]:
            for n in itertools.count():
                await asyncio.sleep(0)
                yield {"endless": n}

        publisher = asyncio.create_task(service.publish_batch(numbers()))
        await until(lambda: service.statistics().published > 100)
        await service.aclose()
        with pytest.raises(ServiceClosedError):
            await publisher


@on_loop
async def test_the_state_of_the_connection_is_told(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A program could not show whether it is connected, nor find out why it is not."""
    told: list[ConnectionState] = []

    def on_connection(state: ConnectionState) -> None:
        told.append(state)
        raise ValueError("own")

    async with way_of(name) as way:
        service = way.connect(on_connection=on_connection)
        states = service.connection_states()
        assert service.connection == ConnectionState("new")
        async with service, service.subscribe("a = 1") as events:
            connected = ConnectionState("connected", service.connection.address)
            assert service.connection == connected
            later = service.connection_states()
            assert await anext(later) == connected
            waiting = asyncio.ensure_future(anext(later))
            await asyncio.sleep(0)
            await service.publish({"a": 1})
            assert events.statistics().reconnects == 0
        assert (await waiting).state == service.connection.state == "closed"
        assert [each.state async for each in states] == ["new", "connected", "closed"]
        assert [each.state async for each in service.connection_states()] == ["closed"]
    assert [each.state for each in told] == ["connected", "closed"]
    assert caplog.text.count("ValueError: own") == len(told)


@pytest.mark.quick_first
@on_loop
async def test_a_backlog_leaves_by_priority_and_in_time(name: str) -> None:
    """A busy reader would read unimportant or expired notifications first."""
    async with service_of(name) as service, service.subscribe("backlog >= 0") as events:
        for n, priority in enumerate((None, 0, 9, None, 9)):
            await service.publish({"backlog": n}, priority=priority)
        short = await service.publish({"backlog": 5}, priority=8, ttl_s=1)
        sure = [6] if name == "embedded" else []  # A broker promises nothing more.
        for n in sure:
            envelope = Envelope(ttl_us=1, priority=9, delivery="reliable")
            await service.publish(Notification({"backlog": n}, envelope=envelope))
        assert (short.priority, short.ttl_us) == (8, 1_000_000)
        await until(lambda: events.statistics().queued == 6 + len(sure))
        assert short.expires_us is not None
        await until(lambda: wall_clock_us() > (short.expires_us or 0) + 1_000)
        assert [each["backlog"] for each in await first(events, 5 + len(sure))] == [
            *(2, 4, 0, 3, *sure, 1)
        ]
        assert events.statistics().dropped == {EXPIRED: 1}
        old = Envelope(time_us=5, ttl_us=10)
        await service.publish(Notification({"backlog": 7}, envelope=old))
        await service.publish({"backlog": 8})
        assert (await events.next(10))["backlog"] == 8


@on_loop
async def test_an_impossible_time_to_live_is_refused(name: str) -> None:
    """A notification would be dropped on its way, without a reason."""
    async with service_of(name) as service:
        with pytest.raises(ServiceError, match="ttl_s = 0: expected seconds above 0"):
            await service.publish({"a": 1}, ttl_s=0)
        with pytest.raises(ServiceError, match="priority = 11: expected 0"):
            await service.publish({"a": 1}, priority=11)
