"""Verified subscriptions give only verified notifications at every service, and count others."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

import contrada as ct
from contrada.errors import ServiceError
from contrada.integrations.dialects import cesql
from contrada.net.broker.broker import Broker
from contrada.service.security.signatures import (
    CHANGED,
    KEY_OF_ANOTHER,
    REPEATED,
    UNKNOWN_KEY,
    UNSIGNED,
    Verifier,
)
from contrada.typed import Obvent
from tests.asynchronous import on_loop
from tests.homes import CERTIFIED, Serve, numbers, records, serve
from tests.service.security.signing_keys import DESK, FEED, FORGER, STRANGER, VERIFIER
from tests.service.ways import service_of

__all__ = ["serve"]


@dataclass
class Price(Obvent):
    symbol: str
    price: float


@on_loop
async def test_what_is_published_is_signed_and_verified(name: str) -> None:
    """A signature would not survive a service, or not be made by one way of publishing."""
    async with (
        service_of(name, publisher=DESK) as service,
        service.subscribe(VERIFIER.only("n any")) as events,
        service.subscribe("n any") as plain,
    ):
        told = await service.publish({"n": 0, "tags": ["b", "a"]}, body=b"x", priority=9)
        await service.publish_batch([{"n": 1}, ct.Notification({"n": 2.0}, body={"a": [{}]})])
        await service.publish_batch({"n": number} for number in range(3, 40))
        found = [await anext(events) for _ in range(40)]
        assert {each["n"] for each in found} == set(range(40))
        assert {each.envelope.publisher for each in found} == {"desk"}
        assert told in [each.envelope for each in found]
        unread = [await anext(plain) for _ in range(40)]
        assert all(one.is_identical(two) for one, two in zip(unread, found, strict=True))
        assert events.statistics().dropped == {}


@on_loop
async def test_what_is_not_verified_is_counted_by_reason(name: str) -> None:
    """A subscriber would accept a forgery, or not notice the attempt."""
    signed = _stamped("desk", {"n": 1})
    sent = [
        _stamped("desk", {"n": 2}),
        FORGER.signed(_stamped("desk", {"n": 3})),
        STRANGER.signed(_stamped("desk", {"n": 4})),
        DESK.signed(signed),
        FEED.signed(_stamped("feed", {"n": 5})),
    ]
    async with service_of(name) as service, service.subscribe(VERIFIER.only("n any")) as events:
        await service.publish_batch(sent)
        assert {(await anext(events))["n"] for _ in range(2)} == {1, 5}
        assert events.statistics().dropped == {UNSIGNED: 1, KEY_OF_ANOTHER: 1, UNKNOWN_KEY: 1}


def _stamped(publisher: str, attributes: dict[str, int]) -> ct.Notification:
    number = attributes["n"]
    envelope = ct.Envelope(f"{publisher}.4f0c.{number}", publisher, number, 10**15)
    return ct.Notification(attributes, envelope=envelope)


@on_loop
async def test_a_broker_that_lies_is_not_believed() -> None:
    """The owner of a broker could publish in the name of all publishers."""
    async with (
        Broker(port=0) as near,
        Broker(port=0) as far,
        ct.connect(near.address, publisher=DESK) as publisher,
        ct.connect(near.address) as ear,
        ct.connect(far.address) as mouth,
        ct.connect(far.address) as subscriber,
        ear.subscribe("n any") as heard,
        subscriber.subscribe(VERIFIER.only("n any")) as events,
    ):
        sent = await publisher.publish({"n": 1}, body=b"one")
        for lie in _lies(await anext(heard)):
            await mouth.publish(lie)
        await publisher.publish({"n": 2})
        await mouth.publish(await anext(heard))
        found = [await anext(events) for _ in range(2)]
        assert [each["n"] for each in found] == [1, 2]
        assert found[0].envelope == sent
        assert events.statistics().dropped == {
            CHANGED: 3,
            KEY_OF_ANOTHER: 1,
            REPEATED: 1,
            UNSIGNED: 1,
        }


def _lies(heard: ct.Notification) -> list[ct.Notification]:
    """The forgeries of a hostile broker; and the original twice."""
    told, plain_id = heard.envelope, heard.envelope.id.partition("~")[0]
    return [
        ct.Notification({"n": 100}, body=heard.body, envelope=told),
        ct.Notification({"n": 1}, body=b"two", envelope=told),
        heard.with_envelope(replace(told, time_us=told.at_us + 1)),
        heard.with_envelope(replace(told, publisher="feed")),
        heard.with_envelope(replace(told, id=plain_id)),
        heard,
        heard,
    ]


@on_loop
async def test_what_is_promised_is_signed_and_comes_again(serve: Serve, tmp_path: Path) -> None:
    """Stored notifications could not be verified; or a returned one would count as a repetition."""
    only = VERIFIER.only("n any")
    async with serve(tmp_path / "events.db", publisher=DESK) as service:
        async with service.subscribe(only, durable="all"):
            pass
        await service.publish_batch([{"n": 0}, {"n": 1}], delivery=CERTIFIED)
        await service.publish(FORGER.signed(_stamped("desk", {"n": 50})))
    async with serve(tmp_path / "events.db", publisher=DESK) as service:
        await service.publish({"n": 2}, delivery=CERTIFIED)
        async with service.subscribe(only, durable="all", auto_acknowledge=False) as events:
            found = await records(events, 3)
            assert [each.item["n"] for each in found] == [0, 1, 2]
            assert events.statistics().dropped == {KEY_OF_ANOTHER: 1}
            await events.nack(found[1].position)
            assert await numbers(events, 1) == [1]
        async with service.subscribe(only, durable="all") as again:
            assert await numbers(again, 3) == [0, 1, 2]


@on_loop
async def test_types_are_verified_and_narrowed_as_ever() -> None:
    """Obvents could not be signed, or a predicate over them not be given."""
    async with (
        ct.connect(publisher=DESK) as service,
        service.subscribe(VERIFIER.only(Price), lambda of: of.price > 1) as prices,
        service.subscribe(VERIFIER.only(ct.Obvent)) as obvents,
    ):
        await service.publish(FORGER.signed(_stamped("desk", {"n": 2})))
        for price in (0.5, 1.5):
            await service.publish(Price("DIS", price))
        assert await anext(prices) == Price("DIS", 1.5)
        assert [await anext(obvents) for _ in range(2)] == [Price("DIS", 0.5), Price("DIS", 1.5)]
        assert not any(obvents.statistics().dropped.values()), "untyped ones are skipped"
    with pytest.raises(ServiceError, match="narrows a type of obvents"):
        ct.connect().subscribe(VERIFIER.only("n any"), lambda of: of.n)


@on_loop
async def test_it_is_updated_and_narrowed_by_rules() -> None:
    """A subscription could not change its filters, or would forget its verifier."""
    async with (
        ct.connect(publisher=DESK) as service,
        service.subscribe(VERIFIER.only("n = 1")) as events,
        service.subscribe(VERIFIER.only("n any"), cesql.read("n % 2 = 0")) as even,
    ):
        await events.update(VERIFIER.only("n >= 2"))
        with pytest.raises(ServiceError, match="subscribe anew"):
            await events.update("n >= 2")
        with pytest.raises(ServiceError, match="subscribe anew"):
            await events.update(Verifier({"desk": FEED.public_key}).only("n >= 2"))
        await service.publish_batch([{"n": 1}, FORGER.signed(_stamped("desk", {"n": 4})), {"n": 2}])
        assert (await anext(events))["n"] == 2
        assert (await anext(even))["n"] == 2
        assert even.statistics().dropped == {KEY_OF_ANOTHER: 1}
    with pytest.raises(ServiceError, match="give it as `where`"):
        VERIFIER.only(cesql.read("n = 1"))


def test_code_that_does_not_await_signs_and_verifies() -> None:
    """Half of all programs could do neither."""
    with (
        ct.connect_sync(publisher=DESK) as service,
        service.subscribe(VERIFIER.only("n any")) as events,
    ):
        service.publish({"n": 1})
        assert events.next(10)["n"] == 1
