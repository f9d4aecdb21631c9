"""Advertisements at a broker: the requests of a client, and their end."""

import asyncio
from unittest import mock

import msgspec
import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.model import Filter, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.frames import Frame, Hello, Offers, Reply, Request
from contrada.net.wire.message_codec import encode_message
from contrada.routing.router_messages import Advertise, Follow, Unadvertise
from contrada.service import OfferChange
from contrada.service.subscription_queue import ENTRY_BYTES
from tests.asynchronous import on_loop, until
from tests.net.processes import WAIT_S
from tests.net.soon import connect
from tests.net.test_broker import RawClient
from tests.net.test_reconnection import cut, lose, reached

ALARMS = ct.Advertisement("what = 'alarm'")
LOGINS = ct.Advertisement("what = 'login' and user any")


def raw(number: int, *fields: object) -> Request:
    return Request(number, msgspec.Raw(msgspec.msgpack.encode(fields)))


@on_loop
async def test_advertisements_of_a_client_end_with_it() -> None:
    """An offer without a publisher would stay for ever."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.advertisements() as found,
    ):
        other = await connect(broker.address)
        for offered in (ALARMS, LOGINS):
            await other.advertise(offered).open()
        assert {(await anext(found)).offer for _ in range(2)} == {ALARMS, LOGINS}
        await other.aclose()
        gone = [await anext(found) for _ in range(2)]
        assert {each.offer for each in gone if not each.is_on_offer} == {ALARMS, LOGINS}
        assert broker.dispatcher.on_offer == {}


@on_loop
async def test_advertisements_are_taken_up_again() -> None:
    """A broker that restarts would know of no publisher any more."""
    broker = Broker(port=0)
    await broker.start()
    address = broker.address
    async with (
        connect(address) as service,
        connect(address) as other,
        service.advertise(ALARMS),
        service.advertisements() as found,
    ):
        theirs = await other.advertise(LOGINS)
        assert [(await anext(found)).offer for _ in range(2)] == [ALARMS, LOGINS]
        states = service.connection_states()
        await reached(states, "connected")
        await cut(broker)
        await reached(states, "lost")
        await theirs.unadvertise()
        async with Broker(port=parse_address(address).port) as again:
            await reached(states, "connected")
            assert found.current == (ALARMS,)
            assert await anext(found) == OfferChange(LOGINS, is_on_offer=False)
            assert len(again.dispatcher.on_offer) == 1
            async with other.advertise(LOGINS):
                assert await anext(found) == OfferChange(LOGINS, is_on_offer=True)


@on_loop
async def test_a_connection_lost_between_two_questions_is_made_again() -> None:
    """The second request would be lost; the client would wait for its answer for ever."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.advertise(ALARMS),
        service.advertisements() as found,
        asyncio.timeout(WAIT_S),
    ):
        assert isinstance(service, TcpService)
        received = service.on_frame
        lost: list[Frame] = []

        def losing(frame: Frame) -> None:
            if isinstance(frame, Reply) and not lost:
                lost.append(frame)
                lose(service)
            received(frame)

        with mock.patch.object(service, "on_frame", losing):
            states = service.connection_states()
            for each in list(broker._connections):
                each.abort()
            for _ in range(2):
                await reached(states, "trying")
            await reached(states, "connected")
        assert lost
        assert found.current == (ALARMS,)


@on_loop
async def test_an_advertisement_that_is_not_taken_up_costs_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that the next broker refuses would end the connection of its client."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.advertise(ALARMS),
        service.subscribe("n any") as events,
    ):
        states = service.connection_states()
        await reached(states, "connected")
        broker.limits = BrokerLimits(offers_per_client_max=0)
        (its_end,) = broker._connections
        its_end.abort()
        await reached(states, "connected")
        assert "offers_per_client_max" in caplog.text
        await service.publish({"n": 1})
        assert (await events.next(10))["n"] == 1


@on_loop
async def test_a_client_lost_during_a_query_leaves_nothing() -> None:
    """A broker would keep offers without an owner."""
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        opening = asyncio.create_task(service.advertise(ALARMS).open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        following = asyncio.create_task(service.advertisements().open())
        await asyncio.sleep(0)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        async with service.advertisements() as found:
            assert found.current == ()
        assert broker.dispatcher.followers == {}


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Request(5, encode_message(Advertise("1", LOGINS))), "repeated"),
        (Request(5, encode_message(Follow())), "repeated"),
        (Request(5, encode_message(Unadvertise("2"))), "ServiceError"),
        (Request(5, encode_message(Advertise("x" * 256, LOGINS))), "LimitError"),
        (Request(5, encode_message(Advertise("2", LOGINS, "home"))), "ServiceError"),
        (
            Request(5, encode_message(Advertise("2", Filter("a > 1 and a < 1")))),
            "UnsatisfiableFilterError",
        ),
        (raw(5, "advertise", "2", to_msgpack(ct.Notification({"a": 1}))), "unsupported"),
        (raw(5, "advertise", "2", b"\xc1"), "EncodingError"),
        (raw(5, "advertise", 2, b"\xc1"), "EncodingError"),
    ],
)
@on_loop
async def test_a_bad_request_is_refused_and_the_connection_stays(frame: Frame, code: str) -> None:
    """One bad request would cost a client all that it has."""
    first = Request(3, encode_message(Advertise("1", ALARMS))), Request(4, encode_message(Follow()))
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), *first, frame)
        heard = [await client.hears() for _ in range(5)]
        assert Offers([(to_msgpack(ALARMS), True)]) in heard
        assert {each.number: each.code for each in heard if isinstance(each, Reply)} == {
            3: "",
            4: "",
            5: code,
        }
        assert len(broker.dispatcher.on_offer) == 1
        await client.leave()
        await until(lambda: not broker.dispatcher.on_offer and not broker.dispatcher.followers)


@on_loop
async def test_advertisements_of_a_client_are_bounded() -> None:
    """One client could fill the tables of a network."""
    async with (
        Broker(port=0, limits=BrokerLimits(offers_per_client_max=2)) as broker,
        connect(broker.address) as service,
    ):
        async with service.advertise("a = 1"), service.advertise("a = 2"):
            with pytest.raises(ServiceError, match="offers_per_client_max"):
                await service.advertise("a = 3").open()
        await service.advertise("a = 3").open()


@on_loop
async def test_waiting_announcements_are_held_for_the_client() -> None:
    """Clients that follow and do not read would fill the memory of a broker."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), Request(1, encode_message(Follow())))
        assert isinstance(await client.hears(), Hello)
        assert await client.hears() == Reply(1)
        (its_end,) = broker._connections
        its_end.pause_writing()
        async with connect(broker.address) as service:
            for number in range(3):
                await service.advertise({"a": number}).open()
            assert its_end.held_bytes == 3 * ENTRY_BYTES
            its_end.resume_writing()
            told = await client.hears()
            assert isinstance(told, Offers)
            assert len(told.changes) == 3
            assert its_end.held_bytes == 0
        await client.leave()


@on_loop
async def test_many_offers_arrive_in_several_frames() -> None:
    """The offers would not fit into a frame, or delay other connections."""
    limits = BrokerLimits(offers_per_frame_max=2)
    async with Broker(port=0, limits=limits) as broker, connect(broker.address) as service:
        for number in range(5):
            await service.advertise({"a": number}).open()
        client = await RawClient.to(broker, Hello("client"), Request(1, encode_message(Follow())))
        heard = [await client.hears() for _ in range(5)]
        assert [len(each.changes) for each in heard if isinstance(each, Offers)] == [2, 2, 1]
        assert heard[-1] == Reply(1)
        await client.leave()
        async with service.advertisements() as found:
            assert len(found.current) == 5


@on_loop
async def test_a_broker_that_tells_nonsense_is_left() -> None:
    """A client would break in its event loop, and nobody know why."""
    async with Broker(port=0) as broker, TcpService(broker.address, reconnect=False) as service:
        (its_end,) = broker._connections
        its_end.send(Offers([(b"\xc1", True)]))
        its_end.write()
        await until(lambda: service.connection.state == "closed")
        assert "malformed" in service.connection.reason or "faulty" in service.connection.reason
