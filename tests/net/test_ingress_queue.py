"""Small publications are matched on receipt, others by a task."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from contrada.errors import ContradaError, FrameError, LimitError
from contrada.matching.packed import Bundle
from contrada.model import Filter, FilterSet, Notification
from contrada.model.codec import to_msgpack
from contrada.model.languages.work_budget import spend
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.delivery_rounds import WRITTEN_AT_ONCE_MAX, DeliveryRounds
from contrada.net.broker.ingress_queue import NOTIFICATIONS_PER_TURN, IngressQueue
from contrada.routing.router_messages import Publish, Subscribe
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.subscription_queue import ENTRY_BYTES, SubscriptionQueue
from tests.asynchronous import on_loop, until
from tests.matching.engines import needs_native

LIMITS = BrokerLimits()


class Workshop:
    """One publisher and one subscriber of a dispatcher."""

    limits = LIMITS

    def __init__(self, room: int = 10_000) -> None:
        self.dispatcher = Dispatcher()
        self.tasks: list[asyncio.Task[None]] = []
        self.answers: list[tuple[int, int | ContradaError]] = []
        self.ends: list[FrameError] = []
        self.held = 0
        self.queue: SubscriptionQueue[Notification] = SubscriptionQueue(notifications_max=room)
        request = Subscribe("1", FilterSet([Filter("n >= 0")]))
        self.dispatcher.subscribe(self.dispatcher.client(), request, self.queue)
        self.accepted: IngressQueue[int] = IngressQueue(
            self.dispatcher.client(),
            self,
            answer=lambda number, answer: self.answers.append((number, answer)),
            end=self.ends.append,
        )
        self._stamp = EnvelopeFactory("p")

    def start_work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    def hold(self, size: int) -> None:
        self.held += size

    def publish(self, request: int, *numbers: int, wait_ms: int = 60_000) -> None:
        items = self._stamp.stamped([Notification({"n": each}) for each in numbers], 1)
        self.accepted.add(request, wait_ms, Publish(tuple(items)))

    def taken(self) -> list[object]:
        batch, _ = self.queue.take_batch(10_000, 2**40)
        return [each["n"] for each in batch]


@on_loop
async def test_small_work_is_done_at_once() -> None:
    """A task for each notification would cost more than matching it."""
    shop = Workshop()
    shop.publish(1, *range(LIMITS.immediate_notifications_max))
    assert shop.answers == [(1, 0)]
    assert shop.taken() == [*range(LIMITS.immediate_notifications_max)]
    assert (shop.tasks, shop.held) == ([], 0)
    shop.publish(2, *range(LIMITS.immediate_notifications_max + 1))
    assert shop.answers == [(1, 0)]
    assert shop.held > 0
    shop.publish(3, 99)  # It is queued after the others.
    await asyncio.gather(*shop.tasks)
    assert shop.answers == [(1, 0), (2, 0), (3, 0)]
    assert shop.taken() == [*range(LIMITS.immediate_notifications_max + 1), 99]
    assert (len(shop.tasks), shop.held) == (1, 0)


@on_loop
async def test_large_work_is_left_to_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A costly publication would delay others, or be published twice."""
    shop = Workshop()
    take = shop.dispatcher.take

    def take_with_effort(*of: Any) -> Any:
        spend(LIMITS.immediate_work_max + 1)
        return take(*of)

    monkeypatch.setattr(shop.dispatcher, "take", take_with_effort)
    shop.publish(1, 5, 6)
    assert shop.answers == []
    await asyncio.gather(*shop.tasks)
    assert shop.answers == [(1, 0)]
    assert shop.taken() == [5, 6]


@on_loop
async def test_work_without_room_waits_in_order() -> None:
    """It would be dropped, or overtaken, or answered too early."""
    shop = Workshop(room=2)
    shop.publish(1, 0, 1, 2, 3)
    shop.publish(2, 4)
    assert shop.answers == []
    assert shop.held > 0
    found: list[object] = []

    def all_are_there() -> bool:
        found.extend(shop.taken())
        return len(found) == 5

    await until(all_are_there)
    await asyncio.gather(*shop.tasks)
    assert found == [0, 1, 2, 3, 4]
    assert shop.answers == [(1, 0), (2, 0)]
    assert shop.held == 0


@on_loop
async def test_work_without_room_in_time_is_reported() -> None:
    """A publisher would take it for delivered."""
    shop = Workshop(room=2)
    shop.publish(1, 0, 1, 2, wait_ms=0)
    await asyncio.gather(*shop.tasks)
    assert shop.answers == [(1, 1)]
    assert (shop.taken(), shop.held) == ([0, 1], 0)


@on_loop
async def test_a_refusal_and_an_error_are_distinguished(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the broker would be taken for the client's, or end the broker."""
    shop = Workshop()
    refusal = LimitError("SOME_MAX", 1)
    for error in (refusal, ZeroDivisionError("secret")):

        def take(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(shop.dispatcher, "take", take)
        shop.publish(1, 0)
    assert shop.answers == [(1, refusal)]
    assert [each.code for each in shop.ends] == ["internal"]
    assert "secret" not in str(shop.ends)
    assert "secret" in caplog.text
    assert shop.held == 0


class Written:
    """A connection that notes when it is flushed."""

    def __init__(self, flushed: list["Written"], *, fails: bool = False) -> None:
        self._flushed = flushed
        self._fails = fails
        self.ended: list[FrameError] = []
        self.end = self.ended.append

    def flush(self) -> None:
        self._flushed.append(self)
        if self._fails:
            raise ZeroDivisionError


@on_loop
async def test_few_are_written_to_at_once_and_many_together() -> None:
    """Few receivers would wait for a turn, or many would be written to for each publisher."""
    rounds, flushed = DeliveryRounds(), list[Written]()
    few: Any = [Written(flushed) for _ in range(WRITTEN_AT_ONCE_MAX)]
    for each in few:
        rounds.add(each)
    rounds.end_turn()
    assert flushed == few
    many: Any = [*few, Written(flushed)]
    for each in many:
        rounds.add(each)
    rounds.end_turn()
    assert flushed == few
    await asyncio.sleep(0)
    assert flushed == few + many


@on_loop
async def test_one_that_cannot_be_written_to_is_ended_and_no_other() -> None:
    """One broken connection would silence those behind it, or end the publisher."""
    rounds, flushed = DeliveryRounds(), list[Written]()
    faulty, good = Written(flushed, fails=True), Written(flushed)
    due: Any = [faulty, good]
    for each in due:
        rounds.add(each)
    rounds.end_turn()
    assert flushed == due
    assert [each.code for each in faulty.ended] == ["internal"]
    assert not good.ended


def bundle_of(count: int) -> tuple[Bundle, list[bytes]]:
    """A bundle of so many, and their encodings."""
    stamp = EnvelopeFactory("p")
    encodings = [to_msgpack(each) for each in stamp.stamped([Notification({"n": 1})] * count, 1)]
    bundle = Bundle.of(encodings)
    assert bundle is not None
    return bundle, encodings


@needs_native
@on_loop
async def test_a_bundle_is_matched_at_once() -> None:
    """A task for each batch would cost more than matching it."""
    shop = Workshop()
    shop.accepted.add(1, 0, Publish(bundle_of(NOTIFICATIONS_PER_TURN)[0]))
    assert (shop.answers, shop.tasks, shop.held) == ([(1, 0)], [], 0)
    assert len(shop.queue) == NOTIFICATIONS_PER_TURN
    shop.accepted.add(2, 0, Publish(bundle_of(NOTIFICATIONS_PER_TURN + 1)[0]))
    assert len(shop.tasks) == 1  # Others get a turn in between.


class Effort:
    """A dispatcher's `take` that spends some steps of work, and counts its calls."""

    def __init__(self, shop: Workshop, steps: int) -> None:
        self.steps, self.calls = steps, 0
        self._take = shop.dispatcher.take
        shop.dispatcher.take = self.take  # type: ignore[method-assign, assignment]

    def take(self, *of: Any) -> Any:
        """Takes a publication."""
        self.calls += 1
        spend(self.steps)
        return self._take(*of)


@needs_native
@on_loop
async def test_a_costly_bundle_is_tried_once() -> None:
    """Each batch among many subscriptions would be matched twice; or none at once ever after."""
    shop = Workshop()
    effort = Effort(shop, LIMITS.immediate_work_max + 1)
    calls, tasks = list[int](), list[int]()
    for number in range(5):
        if number == 3:
            effort.steps = 1
        shop.accepted.add(number, 0, Publish(bundle_of(40)[0]))
        await until(lambda: shop.accepted.held_bytes == 0)
        calls.append(effort.calls)
        tasks.append(len(shop.tasks))
    assert calls == [2, 3, 4, 5, 6]
    assert tasks == [1, 2, 3, 4, 4]
    assert shop.answers == [(number, 0) for number in range(5)]
    assert len(shop.queue) == 200


@needs_native
@on_loop
async def test_a_bundle_counts_with_all_that_it_holds() -> None:
    """A client could make a broker hold twice its limit."""
    shop = Workshop()
    Effort(shop, LIMITS.immediate_work_max + 1)
    bundle, encodings = bundle_of(40)
    shop.accepted.add(1, 0, Publish(bundle))
    assert shop.held >= 2 * sum(map(len, encodings)) + 40 * ENTRY_BYTES
    await asyncio.gather(*shop.tasks)
    assert shop.held == 0
