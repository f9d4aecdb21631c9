"""Requests and replies, in every service."""

import asyncio
import threading
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InvalidValueError, RemoteCallError
from contrada.model.rule import Rule
from pytest_contrada.moved_clock import MovedClock
from tests.asynchronous import on_loop
from tests.service.ways import known, service_of

PRICES = {"DIS": 61.5, "IBM": 190.0}
PRICE = "service = 'price' and symbol exists"


@ct.obvent
@dataclass(frozen=True)
class Price:
    """A reply with a type."""

    price: float


async def price_of(request: ct.Notification) -> dict[str, Any] | None:
    """The price of a symbol, if it is known."""
    price = PRICES.get(request.text("symbol"))
    return None if price is None else {"price": price}


@on_loop
async def test_a_request_has_one_reply(name: str) -> None:
    """A program would need a subscription of its own for each reply."""
    async with service_of(name) as service, service.reply(PRICE, price_of):
        await known(service)
        for symbol, price in PRICES.items():
            reply = await service.request({"service": "price", "symbol": symbol})
            assert dict(reply) == {"service": "price", "symbol": symbol, "price": price}


@on_loop
async def test_the_lack_of_a_reply_is_known_at_once(name: str) -> None:
    """A caller would wait for its time-out, and not know whether anybody was asked."""
    async with service_of(name) as service:
        with pytest.raises(RemoteCallError, match="nobody replies to such requests"):
            await service.request({"service": "price"}, timeout_s=60)
        async with service.reply(PRICE, price_of, name="desk"):
            await known(service)
            with pytest.raises(RemoteCallError, match='symbol = "X": desk did not reply'):
                await service.request({"service": "price", "symbol": "X"}, timeout_s=60)


@on_loop
async def test_faults_of_a_replier_are_those_of_the_request(name: str) -> None:
    """A caller would get no reply, and its reason would be at another machine."""

    async def fail(request: ct.Notification) -> dict[str, Any]:
        raise KeyError(request["symbol"])

    async def change(request: ct.Notification) -> dict[str, Any]:
        return {"symbol": "other"}

    async with service_of(name) as service:
        for function, reason in ((fail, "KeyError: 'DIS'"), (change, "changes the attribute 'sym")):
            async with service.reply(PRICE, function, name="desk"):
                await known(service)
                with pytest.raises(RemoteCallError, match=f"^desk: .*{reason}"):
                    await service.request({"service": "price", "symbol": "DIS"}, timeout_s=60)


@on_loop
async def test_a_reply_may_repeat_each_value_of_its_request(name: str) -> None:
    """A NaN is another number than itself in Python, and True is the number 1."""

    def repeat(request: ct.Notification) -> dict[str, Any]:
        return {**request, "price": 1.0}

    async with service_of(name) as service, service.reply("symbol exists", repeat, name="desk"):
        await known(service)
        for value in (nan, True, -0.0, inf):
            reply = await service.request({"symbol": value}, timeout_s=60)
            assert reply["price"] == 1.0
    other = {"symbol": 1}
    async with service_of(name) as service, service.reply("symbol exists", lambda _: other):
        await known(service)
        with pytest.raises(RemoteCallError, match="changes the attribute 'symbol'"):
            await service.request({"symbol": True}, timeout_s=60)


@on_loop
async def test_plain_functions_reply_on_a_thread() -> None:
    """A replier that waits for a database would hold up the event loop."""
    threads = {threading.get_ident()}

    def reply(request: ct.Notification) -> dict[str, Any]:
        threads.add(threading.get_ident())
        return {"count": len(threads)}

    async with ct.connect() as service, service.reply("n exists", reply):
        assert (await service.request({"n": 1}))["count"] == 2


@on_loop
async def test_replies_may_be_objects_and_have_bodies() -> None:
    """A reply could only be a mapping of attributes."""

    async def typed(request: ct.Notification) -> Price:
        return Price(61.5)

    async def full(request: ct.Notification) -> ct.Notification:
        # An attribute of the request may be repeated.
        return ct.Notification(dict(request), body=b"text", content_type="text/plain")

    class Called:
        """A replier that is an object."""

        async def __call__(self, request: ct.Notification) -> dict[str, Any]:
            return {"price": 61.5}

    async with ct.connect() as service:
        async with service.reply("n exists", typed):
            price = Price.from_notification(await service.request({"n": 1}))  # type: ignore[attr-defined]
            assert isinstance(price, Price)
            assert price.price == 61.5
        async with service.reply(ct.Filter("n exists"), Called()):
            assert (await service.request({"n": 1}))["price"] == 61.5
        async with service.reply("n exists", full):
            reply = await service.request({"n": None})
            assert (reply["n"], reply.body, reply.content_type) == (None, b"text", "text/plain")


@on_loop
async def test_a_replier_leaves_other_queries_unanswered() -> None:
    """A query for a range would be a request with a value that nobody sent."""
    queries = ["symbol prefix 'D'", "symbol = 'DIS' or symbol = 'IBM'", "symbol = $x"]
    queries += ["symbol (= 1 | matches /D/)", "symbol = 'DIS' and a = $x and b = $x"]
    called: list[object] = []
    async with ct.connect() as service, service.reply(PRICE, called.append):
        for query in queries:
            assert [each async for each in service.query(f"service = 'price' and {query}")] == []
    assert called == []


@on_loop
async def test_a_replier_gets_only_requests_that_match_its_filter() -> None:
    """A function would read an attribute that a request lacks, or fail for a further one."""
    seen = []

    async def reply(request: ct.Notification) -> dict[str, Any]:
        seen.append(dict(request))
        return {"price": 61.5}

    async with ct.connect() as service, service.reply(PRICE, reply):
        wanted = {"service": "price", "symbol": "DIS", "currency": "EUR"}
        assert (await service.request(wanted))["price"] == 61.5
        for lacking in ({"service": "price"}, {"symbol": "DIS"}):
            with pytest.raises(RemoteCallError, match="did not reply"):
                await service.request(lacking)
        assert seen == [wanted]


@on_loop
async def test_a_replier_of_a_rule_gets_only_requests_that_its_residue_accepts() -> None:
    """A part of a rule that no filter has would be left out, so the function got other requests."""
    rule = Rule(
        "odd", ct.FilterSet([ct.Filter("n > 0")]), "n odd", lambda it: it.number("n") % 2 == 1
    )
    async with ct.connect() as service, service.reply(rule, lambda request: {"is_odd": True}):
        assert (await service.request({"n": 3}))["is_odd"] is True
        with pytest.raises(RemoteCallError, match="did not reply"):
            await service.request({"n": 4})


@on_loop
async def test_a_late_reply_is_a_timeout() -> None:
    """A caller would wait for ever for a replier that hangs."""

    async def hang(request: ct.Notification) -> None:
        await asyncio.Event().wait()

    async with ct.connect() as service, service.reply("n exists", hang):
        with MovedClock() as clock:
            asking = asyncio.create_task(service.request({"n": 1}, timeout_s=40))
            await clock.sleep(35)  # Each hop on the way has less time than the request.
            assert not asking.done()
            await clock.sleep(6)
            with pytest.raises(TimeoutError, match="no reply within 40 s"):
                await asking


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({}, "it has no attribute"),
        ({"tags": ["a", "b"]}, "'tags' has several values"),
        ({"legs": [{"to": "JFK"}]}, "a request has attributes only"),
        ("n = 1", "expected a mapping"),
        (ct.Notification({"n": 1}), "expected a mapping"),
    ],
)
@on_loop
async def test_other_items_are_no_requests(item: Any, reason: str) -> None:
    """A request would be sent without a part of it, or to everybody."""
    async with ct.connect() as service:
        with pytest.raises(InvalidValueError, match=reason):
            await service.request(item)


def test_programs_without_await_send_and_reply() -> None:
    """A script could not ask a service."""
    with ct.connect_sync() as service, service.reply(PRICE, price_of):
        assert service.request({"service": "price", "symbol": "DIS"})["price"] == 61.5
        with pytest.raises(RemoteCallError, match="did not reply"):
            service.request({"service": "price", "symbol": "X"}, timeout_s=5)
