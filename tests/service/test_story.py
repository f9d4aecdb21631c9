"""Stories of a service: the transition log, the causal order of brokers, and what is missing."""

import asyncio
from typing import Any

import pytest

from contrada.connections import connect, connect_sync
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_messages import LogEntry, Notice, Records, Shipment, Transfer
from contrada.delivery.owned_logs import AppendedRecord
from contrada.delivery.transit import SendMessage
from contrada.limits import Limits
from contrada.matching.packed import Bundle
from contrada.model import Envelope, Notification, Pattern, to_msgpack
from contrada.routing.router_messages import Client, Deliver, Neighbour, Publish
from contrada.service.clock import wall_clock_us
from contrada.service.service_limits import ServiceLimits
from contrada.service.story import ServerStory, StoryStep, Transition, in_causal_order, story_of
from contrada.service.story_reader import TRANSITIONS_MAX, StoryReader
from contrada.service.transition_log import Accepting, Dropped, TransitionLog
from tests.asynchronous import on_loop

LIMITS = Limits(service=ServiceLimits(transitions_max=100, queue_notifications_max=2))
ENVELOPE = Envelope(id="x", publisher="p", time_us=1)


@on_loop
async def test_an_embedded_service_tells_the_end_of_a_notification() -> None:
    """A program without a broker could not learn why its subscriber got nothing."""
    async with connect(limits=LIMITS, publish_wait_s=0) as service:
        async with service.subscribe("a = 1", when_full="drop-oldest"):
            sent = [await service.publish({"a": 1}) for _ in range(3)]
            found = [(each.step, each.to) for each in (await service.story(sent[0].id)).transitions]
            assert found == [("published", ""), ("queued", "1/1"), ("dropped", "1/1")]
        expired = Notification({"a": 1}, envelope=Envelope(id="late", time_us=1, ttl_us=1))
        await service.publish(expired)
        assert [each.step for each in (await service.story("late")).transitions] == [
            "published",
            "expired",
        ]
    async with connect() as silent:
        sent_unseen = await silent.publish({"a": 1})
        assert "transitions_max" in str(await silent.story(sent_unseen.id))


@on_loop
async def test_a_match_is_part_of_the_story_of_its_notifications() -> None:
    """A notification that a pattern used would look unmatched."""
    async with connect(limits=LIMITS) as service:
        pattern = Pattern("a = 1 -> a = 2")
        async with service.subscribe(pattern):
            first = await service.publish({"a": 1})
            await service.publish({"a": 2})
            service.dispatcher.pass_time(wall_clock_us() + 10**6)  # type: ignore[attr-defined]
            story = await service.story(first.id)
    assert "in a match" in {each.step for each in story.transitions}


@on_loop
async def test_the_loop_goes_on_while_a_story_is_read() -> None:
    """A large log would stop all subscribers of the process for a tenth of a second."""
    async with connect(limits=LIMITS) as service:
        sent = [await service.publish({"a": 1}) for _ in range(50)]
        reading = asyncio.create_task(service.story(sent[0].id))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 50
        assert (await reading).transitions


def test_code_without_await_reads_stories() -> None:
    """The blocking interface would lack it."""
    with connect_sync(limits=LIMITS) as service:
        sent = service.publish({"a": 1})
        assert [each.step for each in service.story(sent.id).transitions] == [
            "published",
            "matches nothing",
        ]


def at(broker: str, number: int, step: StoryStep, other: str = "", time_us: int = 0) -> Transition:
    """A transition; `other` is its origin or where it goes."""
    sides = {"origin": other} if step is StoryStep.ARRIVED else {"to": other}
    return Transition(broker, number, time_us, step, **sides)


def test_arrivals_follow_departures_whatever_the_clocks_show() -> None:
    """The story of brokers whose clocks differ would go backwards."""
    found = {
        "a": [at("a", 1, StoryStep.PUBLISHED, time_us=900), at("a", 2, StoryStep.FORWARDED, "b")],
        "b": [at("b", 7, StoryStep.ARRIVED, "a", 5), at("b", 7, StoryStep.FORWARDED, "c", 5)],
        "c": [at("c", 3, StoryStep.ARRIVED, "b", 1), at("c", 3, StoryStep.QUEUED, "1/1", 1)],
    }
    assert [each.broker for each in in_causal_order(found)] == ["a", "a", "b", "b", "c", "c"]


def test_lost_departures_do_not_stop_the_order() -> None:
    """A story with overwritten transitions would never end, or lose its rest."""
    circle = {
        "a": [at("a", 1, StoryStep.ARRIVED, "b"), at("a", 2, StoryStep.FORWARDED, "b")],
        "b": [at("b", 1, StoryStep.ARRIVED, "a"), at("b", 2, StoryStep.FORWARDED, "a")],
        "c": [at("c", 1, StoryStep.ARRIVED, "nobody")],
    }
    assert len(in_causal_order(circle)) == 5


def test_gaps_are_told() -> None:
    """A reader would take a part for the whole."""
    later = Transition("c", 1, 1, "a step of a later version")
    assert story_of("x", {"c": ServerStory([later])}, {}).transitions == [later]
    found = {"a": ServerStory([], since_us=1, left_out=2), "b": ServerStory(is_recorded=False)}
    notes = story_of("x", found, {"c": "no answer"}).notes()
    assert [each.partition(":")[0] for each in notes] == ["b", "c", "a", "a"]
    assert str(story_of("x", {}, {})) == "nothing is remembered of 'x'"


def test_the_log_is_bounded_by_number_and_bytes() -> None:
    """A broker's memory would grow with its publications."""
    one = Publish((Notification({"a": "x" * 10_000}, envelope=ENVELOPE),))
    for log, count in ((TransitionLog(3, 10**9), 3), (TransitionLog(10**9, 50_000), 4)):
        for _ in range(10):
            log.record(1, Client("1"), one, [Deliver(Client("2"), ("1",), one.notifications)])
        assert len(log.facts()) == count
        assert log.overwritten == 10 - count


def test_the_bytes_of_records_and_shipments_count() -> None:
    """Guaranteed notifications of megabytes would fill the memory of a broker."""
    one = Notification({"a": "x" * 10_000}, envelope=ENVELOPE)
    records = HandRecords("1", Records("orders", "1", (LogEntry(1, 1, one, 1),)))
    transfer = Transfer("a", 1, 1, (Shipment((), Notice(one)),))
    facts: list[tuple[Any, list[Any]]] = [
        (Accepting(1, [one]), []),
        (None, [records]),
        (transfer, []),
        (None, [SendMessage(Neighbour("b"), transfer)]),
        (AppendedRecord("orders", 1, b"x" * 10_000), []),
        (Dropped("queue full", "1/1", [(one, 10_000, None)]), []),
    ]
    for message, effects in facts:
        log = TransitionLog(10**9, 50_000)
        for _ in range(10):
            log.record(1, None, message, effects)
        assert len(log.facts()) == 4, message


def test_many_transitions_are_cut_and_counted() -> None:
    """The answer to one identity that thousands of notifications share would not fit a frame."""
    assert TRANSITIONS_MAX == 1_000
    reader = StoryReader("b", ["x"])
    one = Publish((Notification({"a": 1}, envelope=ENVELOPE),))
    names = tuple(map(str, range(50)))
    found = reader.read(0, 1, Neighbour("a"), one, [Deliver(Client("2"), names, one.notifications)])
    assert len(found) == 22
    assert found[-1].detail == "and for 30 more subscriptions"


@pytest.mark.parametrize("identity", ["7", "700"])
def test_a_bundle_is_searched_by_identity(identity: str) -> None:
    """Of a batch a notification would be missed, or found by bytes that are no identity."""
    items = [
        Notification({"a": 700}, envelope=Envelope(id=str(number), publisher="p", time_us=1))
        for number in range(8)
    ]
    bundle = Bundle.of([*map(to_msgpack, items)]) or tuple(items)  # None without a compiled core.
    found = StoryReader("b", [identity]).read(0, 1, Client("1"), Publish(bundle), [])
    assert bool(found) == (identity == "7")


@on_loop
async def test_queues_of_clients_that_leave_lose_nothing_silently() -> None:
    """A notification would seem to wait for a reader that has left."""
    async with connect(limits=LIMITS) as service:
        events = service.subscribe("a = 1")
        await events.open()
        sent = await service.publish({"a": 1})
        await events.unsubscribe()
        await asyncio.sleep(0)
        steps = [each.step for each in (await service.story(sent.id)).transitions]
    assert steps == ["published", "queued", "dropped"]
