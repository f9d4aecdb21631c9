"""A bridge publishes each received record once, or waits until the broker takes it."""

from types import SimpleNamespace
from typing import Any

import pytest

from contrada.connections import connect
from contrada.errors import QuotaError, StoreError
from contrada.integrations.bridges.bridge import Bridge
from contrada.integrations.bridges.record_translation import PeerRecord
from contrada.model import Notification
from contrada.net.broker.broker import Broker
from contrada.net.broker.users import Users, UserSettings
from contrada.net.wire.tokens import new_token
from contrada.service.backoff import Backoff
from tests.asynchronous import on_loop
from tests.integrations.bridges.test_bridge import Refusing


@on_loop
async def test_records_that_wait_for_a_broker_have_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night without the broker would log thousands of lines."""
    answers = [StoreError("full")] * 5 + [StoreError("broken")] * 2

    async def publish_batch(batch: list[Notification]) -> int:
        if answers:
            raise answers.pop(0)
        return len(batch)

    monkeypatch.setattr(Backoff, "next_s", lambda _: 0)
    open_now = SimpleNamespace(state="connected")
    service: Any = SimpleNamespace(publish_batch=publish_batch, connection=open_now)
    peer: Any = Refusing()
    unused: Any = None
    await Bridge(service, peer, unused)._publish([(PeerRecord(topic="s"), Notification({"n": 1}))])
    assert caplog.messages == [f"records of x://a:1 wait: {each}" for each in ("full", "broken")]


@on_loop
async def test_records_beyond_a_rate_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be refused and acknowledged, and so lost."""
    waits, taken = list[float](), list[Any]()

    async def publish_batch(batch: list[Notification]) -> int:
        if not waits:
            raise QuotaError("a publication would wait 37 s", 7)
        taken.extend(each["n"] for each in batch)
        return len(batch)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("contrada.integrations.bridges.bridge.asyncio.sleep", sleep)
    service: Any = SimpleNamespace(
        publish_batch=publish_batch, connection=SimpleNamespace(state="connected")
    )
    peer: Any = Refusing()
    unused: Any = None
    bridge = Bridge(service, peer, unused)
    await bridge._publish([(PeerRecord(topic="s"), Notification({"n": n})) for n in range(3)])
    assert (waits, taken, bridge.counts) == ([7], [0, 1, 2], {"in": 3})


@on_loop
async def test_permitted_records_beside_forbidden_ones_are_published_once() -> None:
    """Those of one frame at best effort would be published again."""
    token, record = new_token("desk")
    users = Users.of("here", {"desk": UserSettings(record, publish="n < 3", subscribe=True)})
    async with (
        Broker(port=0, users=users) as broker,
        connect(broker.address, token=token) as service,
        service.subscribe("everything") as events,
    ):
        unused: Any = None
        peer: Any = Refusing()
        bridge = Bridge(service, peer, unused)
        numbers = (0, 3, 1, 4, 2)
        await bridge._publish([(PeerRecord(topic="s"), Notification({"n": n})) for n in numbers])
        assert bridge.counts == {"in": 3, "in, refused": 2}
        await service.publish({"n": -1})
        assert [(await anext(events))["n"] for _ in range(4)] == [0, 1, 2, -1]
