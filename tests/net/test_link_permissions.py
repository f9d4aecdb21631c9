"""A neighbour with limited rights: the messages that it gets, and those it may send.

Two brokers over a socket, and the decisions by themselves.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from contrada.connections import connect
from contrada.errors import NotPermittedError
from contrada.model import Advertisement, Filter, FilterSet
from contrada.net.broker.broker import Broker
from contrada.net.broker.link import LinkPermissions
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.address import parse_address
from contrada.net.wire.tokens import new_token
from contrada.routing.interest_forwarder import Strategy
from contrada.routing.router_messages import (
    Advertise,
    Neighbour,
    NextHop,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from contrada.service.security.permits import Permit
from contrada.service.security.principals import Principal
from tests.asynchronous import on_loop, until
from tests.net.networks import are_linked

TOKEN, RECORD = new_token("oslo")
QUOTE, ALERT, SECRET = (f"what = '{each}'" for each in ("quote", "alert", "secret"))


def limited(*, narrows: bool = False) -> LinkPermissions:
    may = Principal("oslo", FilterSet(QUOTE), FilterSet(ALERT), ("*",), narrows=narrows)
    return LinkPermissions(Permit(may))


def offer(text: str) -> Advertisement:
    return Advertisement.of_sets(dict(Filter(text).sides))


def test_it_sees_interests_in_its_publications_only() -> None:
    """It would learn foreign subscriptions; or miss those that it may publish for."""
    link = limited()
    meets = Subscribe("1", Filter("what any and price < 3"))
    assert link.outgoing(meets) is meets
    assert link.outgoing(Subscribe("2", Filter(SECRET))) is None
    both = link.outgoing(Subscribe("3", FilterSet([Filter(SECRET), Filter(QUOTE)])))
    assert both == Subscribe("3", FilterSet([Filter(QUOTE)]))
    assert link.outgoing(Subscribe("2", Filter(QUOTE), owner="far")) is not None


def test_it_sees_advertisements_of_readable_notifications_only() -> None:
    """It would learn of offers that it may not read; or miss others."""
    link = limited()
    meets = Advertise("1", offer("what in ('alert', 'secret')"))
    assert link.outgoing(meets) is meets
    assert link.outgoing(Advertise("2", offer(SECRET))) is None
    assert link.outgoing(Advertise("3", offer(QUOTE))) is None, "which it may publish, not read"


def test_hidden_offers_are_not_withdrawn() -> None:
    """It would learn the end of an unknown subscription; or keep a known one for ever."""
    link = limited()
    for begin, end in ((Subscribe, Unsubscribe), (Advertise, Unadvertise)):
        of = QUOTE if begin is Subscribe else ALERT
        known, unknown = (
            Filter(each) if begin is Subscribe else offer(each) for each in (of, SECRET)
        )
        link.outgoing(begin("1", known))  # type: ignore[arg-type]
        link.outgoing(begin("2", unknown))  # type: ignore[arg-type]
        for _ in range(2):
            assert link.outgoing(end("2")) is None
        assert link.outgoing(end("1", owner="far")) is None, (
            "another tree has identities of its own"
        )
        assert link.outgoing(end("1")) == end("1")
        assert link.outgoing(end("1")) is None
        link.outgoing(begin("1", unknown))  # type: ignore[arg-type]
        assert link.outgoing(end("1")) is None, "the identity stands for something else now"


def test_its_advertisements_are_limited_to_its_publications() -> None:
    """Others would ask it for data that it may not publish."""
    said = Advertise("1", offer("what in ('quote', 'alert') and price any"))
    with pytest.raises(NotPermittedError, match="'oslo' may not offer"):
        limited().incoming(said)
    narrowed = limited(narrows=True).incoming(said)
    assert narrowed == Advertise("1", offer(f"{QUOTE} and price any"))
    with pytest.raises(NotPermittedError):
        limited(narrows=True).incoming(Advertise("1", offer(SECRET)))
    for narrows in (False, True):
        for each in (Advertise("1", offer(QUOTE)), Unadvertise("1"), Subscribe("1", Filter({}))):
            assert limited(narrows=narrows).incoming(each) == each


@asynccontextmanager
async def two(strategy: Strategy, **may: Any) -> AsyncIterator[Sequence[Any]]:
    """Main, and oslo, which may not everything there, with a client of each."""
    said = UserSettings(RECORD, link=True, publishers=["*"], **may)
    anyone = UserSettings(publish=True, subscribe=True, inspect=True)
    users = Users.of("here", {"oslo": said, "anonymous": anyone})
    async with AsyncExitStack() as stack:
        main = Broker(port=0, users=users, network=Membership("main", strategy=strategy))
        await stack.enter_async_context(main)
        wanted = (WantedLink(parse_address(main.address)),)
        network = Membership("oslo", strategy=strategy, neighbours=wanted, token=TOKEN)
        oslo = await stack.enter_async_context(Broker(port=0, network=network))
        here = await stack.enter_async_context(connect(main.address))
        there = await stack.enter_async_context(connect(oslo.address))
        await until(lambda: are_linked([main, oslo], 1))
        yield main, oslo, here, there


def held(broker: Broker, of: str) -> tuple[set[str], set[str]]:
    """Returns the subscriptions and offers of a neighbour at a broker."""
    forwarding = broker.dispatcher.router._forwarding
    way = NextHop(Neighbour(of))
    return tuple(  # type: ignore[return-value]
        {str(node.product) for node in table.nodes(way)}
        for table in (forwarding.subscriptions, forwarding.offers)
    )


@on_loop
async def test_it_sees_only_the_necessary_part_of_interests() -> None:
    """The operator of another broker would read the interests of all clients here."""
    may = {"publish": QUOTE, "subscribe": ALERT}
    async with two(Strategy.SUBSCRIPTIONS, **may) as (main, oslo, here, there):
        secret, quotes = here.subscribe(SECRET), here.subscribe("what any and price < 3")
        async with secret, quotes:
            await until(lambda: held(oslo, "main")[0] != set())
            assert held(oslo, "main") == ({str(Filter("what any and price < 3"))}, set())
            await there.publish({"what": "quote", "price": 1})
            assert (await anext(quotes))["price"] == 1
        await until(lambda: held(oslo, "main") == (set(), set()))
        async with here.subscribe(QUOTE):
            await until(lambda: held(oslo, "main") == ({str(Filter(QUOTE))}, set()))
            # Its permissions have changed: the link is made again, with the new ones.
            before = [*main.neighbours]
            now = UserSettings(RECORD, publish=ALERT, subscribe=ALERT, link=True, publishers=["*"])
            anyone = UserSettings(publish=True, subscribe=True, inspect=True)
            main.change_users(Users.of("here", {"oslo": now, "anonymous": anyone}))
            await until(lambda: are_linked([main, oslo], 1) and [*main.neighbours] != before)
            async with here.subscribe(ALERT):
                await until(lambda: held(oslo, "main") == ({str(Filter(ALERT))}, set()))


@on_loop
async def test_offers_go_over_as_far_as_both_sides_may() -> None:
    """Clients of either broker would see offers that they never get, or miss others.

    And subscriptions would not reach the offers that may be published.
    """
    may = {"publish": QUOTE, "subscribe": ALERT, "narrow": True}
    async with two(Strategy.ADVERTISEMENTS, **may) as (main, oslo, here, there):
        offers = [offer(each) for each in ("what in ('quote', 'alert')", SECRET)]
        async with AsyncExitStack() as stack:
            for each in offers:
                await stack.enter_async_context(there.advertise(each))
            for text in (SECRET, QUOTE, ALERT):
                await stack.enter_async_context(here.advertise(offer(text)))
            await until(lambda: held(main, "oslo")[1] == {str(offer(QUOTE))})
            await until(lambda: held(oslo, "main")[1] == {str(offer(ALERT))})
            await until(lambda: main.refused[NotPermittedError.__name__] == 1)
            quotes = await stack.enter_async_context(here.subscribe("what any"))
            alerts = await stack.enter_async_context(there.subscribe("what any"))
            await until(lambda: held(oslo, "main")[0] != set() and held(main, "oslo")[0] != set())
            await there.publish({"what": "quote"})
            await here.publish({"what": "alert"})
            assert (await anext(quotes))["what"] == "quote"
            assert "alert" in [(await anext(alerts))["what"] for _ in range(2)]
