"""`App`: handlers of subscriptions, in a loop of their own and in web frameworks."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
import pytest

import contrada as ct
from contrada.app import STOP_WAIT_S
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import DeliveryError, ParseError, RemoteCallError, ServiceError
from pytest_contrada.moved_clock import MovedClock
from pytest_contrada.running_broker import RunningBroker
from tests.asynchronous import on_loop, until


@ct.obvent
@dataclass(frozen=True)
class Quote:
    """A quote of a share."""

    symbol: str
    price: float


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker with a store in memory."""
    with RunningBroker(MemoryStore()) as running:
        yield running


class Received:
    """The objects that handlers got."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.add = self.items.append

    async def wait(self, count: int) -> None:
        """Returns once there are so many."""
        await until(lambda: len(self.items) >= count)


@on_loop
async def test_the_parameter_decides_the_objects() -> None:
    """A handler would get notifications where it asks for quotes, or all quotes of every price."""
    app, got = ct.App(store=MemoryStore()), Received()

    @app.subscriber("price < 100")
    async def cheap(event: ct.Notification) -> None:
        got.add(("notification", type(event)))

    @app.subscriber("price < 100")
    def quote(event: Quote) -> None:
        got.add(("quote", event))

    @app.subscriber(lambda quote: quote.price > 100)
    async def dear(event: Quote) -> None:
        got.add(("dear", event))

    @app.subscriber("price > 100", durable="desk")
    async def durable(event: ct.Notification) -> None:
        got.add(("durable", type(event)))

    @app.subscriber("price > 100", durable="records")
    async def record(event: ct.DurableRecord[Quote]) -> None:
        got.add(("record", event.item, event.attempt))

    async with app:
        await app.service().publish(Quote("DIS", 61.5), delivery="reliable")
        await app.service().publish(Quote("IBM", 190.0), delivery="reliable")
        await got.wait(5)
    assert sorted(got.items, key=lambda each: each[0]) == [
        ("dear", Quote("IBM", 190.0)),
        ("durable", ct.Notification),
        ("notification", ct.Notification),
        ("quote", Quote("DIS", 61.5)),
        ("record", Quote("IBM", 190.0), 1),
    ]
    assert cheap.__name__ == "cheap"
    assert quote(Quote("A", 1)) is None, "the function itself is not changed"


def test_wrong_handlers_are_refused_where_they_are_decorated() -> None:
    """A mistake would be found when the first notification arrives, or never."""
    app = ct.App()

    def two(event: ct.Notification, other: int) -> None: ...

    def unknown(event: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def plain(event: ct.Notification) -> None: ...

    def typed(event: Quote) -> None: ...

    with pytest.raises(ServiceError, match=r"two\(event, other\): expected one parameter"):
        app.subscriber("price < 1")(two)
    with pytest.raises(ServiceError, match="'Missing' is unknown at run time"):
        app.subscriber("price < 1")(unknown)
    with pytest.raises(ServiceError, match="plain: expected a filter, or a parameter"):
        app.subscriber()(plain)
    with pytest.raises(ServiceError, match="one too many"):
        app.subscriber("price < 1", "price > 0")(typed)
    with pytest.raises(ParseError, match="column 8"):
        app.subscriber("price == 1")
    with pytest.raises(ServiceError, match="concurrency = 0"):
        app.subscriber("price < 1", concurrency=0)
    with pytest.raises(ServiceError, match="the app does not run"):
        app.service()


@pytest.mark.parametrize("name", ["subscriber", "replier"])
@on_loop
async def test_a_decorator_without_its_call_is_refused(name: str) -> None:
    """`@app.subscriber` without parentheses would be a handler that is never called."""
    app = ct.App()

    def work(event: ct.Notification) -> None: ...

    getattr(app, name)(work)

    with pytest.raises(ServiceError, match="work: a decorator has no function"):
        async with app:
            pass


@on_loop
async def test_a_subscription_that_cannot_be_opened_is_named() -> None:
    """Of twenty handlers, the one with the wrong option would have to be searched."""
    app = ct.App()

    @app.subscriber("price < 1", durable="desk")
    async def desk(event: ct.Notification) -> None: ...

    with pytest.raises(ServiceError, match="no store") as raised:
        async with app:
            pass
    assert raised.value.__notes__ == ["the subscriber 'desk' of an app"]


@on_loop
async def test_running_calls_end_before_the_app_does(broker: RunningBroker) -> None:
    """Work would be cut off in the middle, and done twice after each restart."""
    app, got = ct.App(broker.address), Received()
    goes_on = asyncio.Event()

    @app.subscriber("n > 0", durable="work", concurrency=2)
    async def work(event: ct.Notification) -> None:
        got.add(("begun", event["n"]))
        await goes_on.wait()
        got.add(("done", event["n"]))

    async with app:
        for n in (1, 2, 3):
            await app.service().publish({"n": n}, delivery="reliable")
        await got.wait(2)
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    assert got.items == [("begun", 1), ("begun", 2), ("done", 1), ("done", 2)]
    async with app:
        await got.wait(6)
    assert got.items[4:] == [("begun", 3), ("done", 3)]


@on_loop
async def test_queued_notifications_are_handled_before_the_app_ends() -> None:
    """The first program would print nothing, and a restart lose notifications, or never end."""
    app, got = ct.App(), Received()

    @app.subscriber("n > 0")
    async def work(event: ct.Notification) -> None:
        got.add(event["n"])
        await app.service().publish({"n": event.number("n") + 100})  # Without an end.

    async with app:
        for n in range(1, 101):
            await app.service().publish({"n": n})
    assert got.items[:100] == [*range(1, 101)]
    assert len(got.items) <= 200


@on_loop
async def test_records_in_memory_are_handled_before_the_app_ends() -> None:
    """Records of a subscription that ends with the app would be lost, since no run has it again."""
    app, got = ct.App(), Received()

    @app.subscriber("n > 0", reliable=True)
    async def work(event: ct.Notification) -> None:
        got.add(event["n"])

    async with app:
        for n in range(20):
            await app.service().publish({"n": n + 1}, delivery="reliable")
    assert got.items == [*range(1, 21)]


@on_loop
async def test_a_cancelled_end_closes_the_service() -> None:
    """A second Ctrl-C would leave the connection open, and the tasks running."""
    app, got = ct.App(), Received()

    class Hanging:
        """A handler that is an object."""

        async def __call__(self, event: ct.Notification) -> None:
            got.add(event["n"])
            await asyncio.Event().wait()

    app.subscriber("n > 0")(Hanging())

    async def run() -> None:
        async with app:
            await app.service().publish({"n": 1})
            is_ending.set()

    is_ending = asyncio.Event()
    running = asyncio.create_task(run())
    await is_ending.wait()
    await got.wait(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not app.is_running
    assert asyncio.all_tasks() == {asyncio.current_task()}


@on_loop
async def test_notifications_that_expire_in_the_queue_hold_up_no_end() -> None:
    """An app would wait for a call that never begins."""
    app, got = ct.App(), Received()
    goes_on = asyncio.Event()

    @app.subscriber("n > 0")
    async def work(event: ct.Notification) -> None:
        got.add(event["n"])
        await goes_on.wait()

    def pass_time() -> None:
        clock.advance(2)
        goes_on.set()

    with MovedClock() as clock:
        begun_s = asyncio.get_running_loop().time()
        async with app:
            await app.service().publish({"n": 1})
            await got.wait(1)
            await app.service().publish({"n": 2}, ttl_s=1)
            asyncio.get_running_loop().call_later(0.01, pass_time)
        assert clock.moved_s == 2
        assert asyncio.get_running_loop().time() - begun_s < STOP_WAIT_S
    assert got.items == [1]


@on_loop
async def test_requests_are_replied_to_while_the_app_runs(broker: RunningBroker) -> None:
    """A replier would have to be opened and closed beside the app."""
    app = ct.App(broker.address)

    @app.replier("service = 'price' and symbol exists")
    async def price_of(request: ct.Notification) -> dict[str, float]:
        return {"price": 61.5}

    request = {"service": "price", "symbol": "DIS"}
    async with ct.connect(broker.address) as desk:
        async with app:
            assert (await desk.request(request))["price"] == 61.5
        with pytest.raises(RemoteCallError, match="nobody replies"):
            await desk.request(request)


@on_loop
async def test_an_error_of_a_handler_is_passed_on_with_its_object() -> None:
    """A handler's fault would stop the app, or nobody would know the object."""
    got = Received()
    app = ct.App()

    @app.subscriber("n > 0", on_error=lambda error, event: got.add((str(error), event["n"])))
    async def work(event: ct.Notification) -> None:
        if event["n"] == 1:
            raise ValueError("no")
        got.add(event["n"])

    async with app:
        await app.service().publish({"n": 1})
        await app.service().publish({"n": 2})
        await got.wait(2)
    assert got.items == [("no", 1), 2]


@on_loop
async def test_a_subscription_that_ends_ends_the_run(broker: RunningBroker) -> None:
    """A worker would run without its subscription, and nobody would notice."""
    app = ct.App(broker.address)

    @app.subscriber("n > 0", durable="work")
    async def work(event: ct.Notification) -> None: ...

    running = asyncio.create_task(app.run())
    await until(lambda: app.is_running)
    await app.service().unsubscribe("work")
    with pytest.raises(DeliveryError, match="the subscription has ended"):
        await running


@on_loop
async def test_a_run_ends_in_order_at_sigterm() -> None:
    """A container that is stopped would lose running work, or log a traceback."""
    app, got = ct.App(), Received()

    @app.subscriber("n > 0")
    async def work(event: ct.Notification) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        got.add(event["n"])

    running = asyncio.create_task(app.run())
    await until(lambda: app.is_running)
    await app.service().publish({"n": 1})
    await running
    assert got.items == [1]
    assert asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM) is False


@on_loop
async def test_a_call_that_holds_up_the_process_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that does not end would not show why."""
    monkeypatch.setattr("contrada.app.STOP_WAIT_S", 0.01)
    app, begun, may_return = ct.App(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.subscriber("n > 0")
    def work(event: ct.Notification) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_return.wait()

    @app.subscriber("n > 0")
    async def wait(event: ct.Notification) -> None:
        await asyncio.Event().wait()

    async with app:
        await app.service().publish({"n": 1})
        await begun.wait()
    may_return.set()
    (record,) = caplog.records
    assert record.getMessage().startswith("1 calls of the subscriber work still run on threads")


@asynccontextmanager
async def client_of(api: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an application, inside its lifespan."""
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


@on_loop
async def test_fastapi_runs_the_app_and_injects_its_service(broker: RunningBroker) -> None:
    """A web program would have to open and close the service by hand."""
    fastapi = pytest.importorskip("fastapi")
    app, got = ct.App(broker.address), Received()

    @app.subscriber("price < 100")
    async def cheap(event: ct.Notification) -> None:
        got.add(event["symbol"])

    @asynccontextmanager
    async def own_lifespan(of: Any) -> AsyncIterator[None]:
        got.add("own begins")
        async with app.lifespan(of):
            yield
        got.add("own ends")

    async def publish(
        symbol: str, service: Annotated[ct.Service, fastapi.Depends(app.service)]
    ) -> str:
        return (await service.publish({"symbol": symbol, "price": 61.5})).id

    for lifespan, count in ((app.lifespan, 1), (own_lifespan, 3)):
        api = fastapi.FastAPI(lifespan=lifespan)
        api.add_api_route("/quotes/{symbol}", publish, methods=["POST"])
        async with client_of(api) as client:
            assert (await client.post("/quotes/DIS")).status_code == 200
            await got.wait(count)
    assert got.items == ["DIS", "own begins", "DIS", "own ends"]


@on_loop
async def test_starlette_takes_the_lifespan() -> None:
    """A program of Starlette alone would need FastAPI."""
    applications = pytest.importorskip("starlette.applications")
    app = ct.App()
    async with client_of(applications.Starlette(lifespan=app.lifespan)):
        assert app.service().connection.state == "connected"
    assert not app.is_running
