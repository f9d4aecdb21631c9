"""Documents that are sent and received over services."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contrada.connections import connect
from contrada.errors import ContradaError, InvalidValueError
from contrada.integrations.documents import document_of, names_in
from contrada.integrations.documents.naming_table import MARK
from contrada.integrations.feeds import document_sender
from contrada.integrations.feeds.document_receiver import Receiver
from contrada.integrations.feeds.document_sender import Sendable, Sender
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import NamingService
from contrada.integrations.files import BadRecord, ReadOptions, Record, Renderer
from contrada.model import Notification
from contrada.service.embedded_service import EmbeddedService
from tests.asynchronous import on_loop, until
from tests.net.networks import network

STORIES = b"""<backslash xmlns="urn:b"><story><title>Game Boy</title><time>1</time></story>
<story><title>Spamming</title></story><story><title>H2G2</title></story></backslash>"""
KIND = "{urn:b}backslash"
TITLE = "backslash.story.title"


def made(strategy: str = "daemon", data: bytes = STORIES) -> list[Record | BadRecord]:
    """The records of the document."""
    return list(Renderer(ReadOptions(strategy=strategy)).render(data))


@on_loop
async def test_input_of_a_sender() -> None:
    """A program would have to take records apart by itself, or lose count of bad ones."""

    async def by_and_by() -> AsyncIterator[Sendable]:
        for number in range(3):
            yield Notification({"n": number})

    async with EmbeddedService() as service, service.subscribe("n any") as events:
        sender = Sender(service, limits=FeedLimits(sent_at_once=2))
        assert await sender.send(Notification({"n": 9})) == 1
        assert await sender.send(Record("s", 1, Notification({"n": 8}))) == 1
        assert await sender.send(BadRecord("s", "bad")) == 0
        assert await sender.send(by_and_by()) == 3
        items: list[Sendable] = [Notification({"n": number}) for number in range(5)]
        assert await sender.send([*items, BadRecord("s", "bad")]) == 5
        assert sender.statistics() == document_sender.SenderStatistics(10, 2, 0)
        found = [(await anext(events))["n"] for _ in range(10)]
        assert found == [9, 8, 0, 1, 2, 0, 1, 2, 3, 4]
        wrong: list[Any] = [Notification({"n": 5}), 3]
        with pytest.raises(ContradaError) as caught:
            await sender.send(wrong)
        assert caught.value.published == 1
        assert sender.statistics().sent == 11


@on_loop
async def test_subscribers_with_names_see_the_original_ones() -> None:
    """The purpose of a naming service: other subscribers still work, and those with names lose
    nothing.
    """
    async with (
        EmbeddedService() as service,
        NamingService(service) as kept,
        service.subscribe(f"`{TITLE}` = 'Game Boy'") as plain,
        Receiver(service, f"`{TITLE}` = 'Game Boy'", names=Names(service)) as knowing,
    ):
        sender = Sender(service, Names(service))
        assert await sender.send(made()) == 1
        assert sender.statistics().told == 2
        seen = await plain.next(5)
        assert seen[TITLE] == "Game Boy"
        assert seen[f"{TITLE}~2"] == "Spamming"
        assert document_of(seen)
        found = await knowing.next(5)
        assert found[TITLE] == ("Game Boy", "H2G2", "Spamming")
        assert set(found) == {TITLE, "backslash.story.time"}
        assert found.content_type == ""
        assert knowing.statistics().translated == 1
        assert [each.generated for each in await Names(service).generated(KIND, TITLE)] == [
            f"{TITLE}~2",
            f"{TITLE}~3",
        ]
        assert kept.statistics().invalid == 0


@on_loop
async def test_names_are_registered_before_their_notifications() -> None:
    """The receiver could not translate the name yet."""
    async with EmbeddedService() as service, service.subscribe("everything") as events:
        await Sender(service, Names(service)).send([*made(), *made()])
        found = [MARK in await events.next(5) for _ in range(4)]
        assert found == [True, True, False, False]


@on_loop
async def test_names_without_a_shape_are_translated_by_their_kind() -> None:
    """Only notifications of this package could be translated."""
    async with (
        EmbeddedService() as service,
        NamingService(service),
        Receiver(service, "a any", names=Names(service)) as events,
    ):
        await Names(service).register("a", {"a.b~2": ("a.b", "a.b[2]")})
        await service.publish({"a": 1, "a.b": 1, "a.b~2": [2, 3]}, body=b"x", content_type="t")
        found = await events.next(5)
        assert dict(found) == {"a": 1, "a.b": (1, 2, 3)}
        assert (found.body, found.content_type) == (b"x", "t")
        await service.publish({"a": 1, "c": 2})
        assert dict(await events.next(5)) == {"a": 1, "c": 2}
        assert events.statistics().translated == 1


@on_loop
async def test_without_a_naming_service_names_stay() -> None:
    """A receiver would hold everything up, or lose it; or nobody could see that it knows less."""
    async with (
        EmbeddedService() as service,
        Receiver(service, "everything", names=Names(service, wait_s=0.02)) as events,
    ):
        (record,) = made()
        assert isinstance(record, Record)
        for _ in range(2):
            await service.publish(record.notification)
            found = await events.next(5)
            assert found == record.notification.with_envelope(found.envelope)
        assert events.statistics().untranslated == 2
    limits = FeedLimits(names_settle_s=0.01, names_query_again_s=0.01)
    async with (
        EmbeddedService() as service,
        NamingService(service),
        Receiver(service, "everything", names=Names(service, limits=limits)) as events,
    ):
        await service.publish(record.notification)
        assert f"{TITLE}~2" in await events.next(5)
        assert events.statistics().untranslated == 1


@on_loop
async def test_a_callback() -> None:
    """The paper's receiver calls a function; one that raises would end it."""
    told: list[object] = []
    failed: list[Exception] = []

    def note(found: Notification) -> None:
        told.append(found["n"])
        if found["n"] == 1:
            raise InvalidValueError(1, "no")

    async with EmbeddedService() as service:
        events = Receiver(service, "n > 0")
        async with events:
            await Sender(service).send(Notification({"n": number}) for number in range(4))
            await until(lambda: events.statistics().subscription.queued == 3)
            await events.update("n > 1")
            await events.unsubscribe()
            await events.handle(note, on_error=lambda error, _: failed.append(error))
        assert told == []
        async with Receiver(service, "n > 0") as again:
            await Sender(service).send(Notification({"n": number}) for number in range(4))

            async def all_but_one(found: Notification) -> None:
                note(found)
                if found["n"] == 3:
                    await again.unsubscribe()

            await again.handle(all_but_one, on_error=lambda error, _: failed.append(error))
            assert again.statistics().failed == 1
        assert told == [1, 2, 3]
        assert len(failed) == 1


@on_loop
async def test_an_error_of_on_error_ends_no_receiver() -> None:
    """A plain handler would end the receiver, and an asynchronous one would not."""
    told: list[object] = []

    def note(found: Notification) -> None:
        told.append(found["n"])
        raise InvalidValueError(1, "no")

    def fail(error: Exception, _: Notification) -> None:
        if len(told) == 3:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
        raise error

    async with EmbeddedService() as service, Receiver(service, "n > 0") as events:
        await Sender(service).send(Notification({"n": number}) for number in range(4))
        with pytest.raises(asyncio.CancelledError):
            await events.handle(note, on_error=fail)
        assert told == [1, 2, 3]


@pytest.mark.parametrize("is_next", [False, True])
@on_loop
async def test_a_cancelled_reader_loses_nothing(*, is_next: bool) -> None:
    """A time-out while a naming service is asked would lose the notification."""
    (record,) = made()
    assert isinstance(record, Record)
    limits = FeedLimits(names_settle_s=0.01, names_query_again_s=0.01)
    async with EmbeddedService() as service:
        names = Names(service, limits=limits)
        async with Receiver(service, "everything", names=names) as events:
            await service.publish(record.notification)
            reading = asyncio.ensure_future(events.next(5) if is_next else anext(events))
            await until(lambda: names.asked > 0)
            reading.cancel()
            await asyncio.wait([reading])
            async with NamingService(service):
                assert TITLE in (await events.next(5) if is_next else await anext(events))


@on_loop
async def test_patterns_over_real_brokers() -> None:
    """Subscribers to any story's title would have to know the number of stories."""
    async with (
        network(2, [(0, 1)]) as brokers,
        connect(brokers[0].address) as north,
        connect(brokers[1].address) as south,
        NamingService(north),
    ):
        await until(lambda: brokers.is_at_rest)
        sender = Sender(north, Names(north), all_names=True)
        await sender.send(made("index"))
        assert sender.statistics().told == 4
        asked = "`backslash.story.*.title` = 'H2G2' and `backslash.story.<0-0>.time` = 1"
        receiver = Receiver(south, asked, names=(names := Names(south)), patterns=names)
        async with receiver as events:
            await until(lambda: brokers.is_at_rest)
            assert "backslash.story.2.title" in str(events.filters)
            await sender.send(made("index"))
            await sender.send(made("index", STORIES.replace(b"<time>1", b"<time>2")))
            await sender.send(made("index", STORIES.replace(b"Game Boy", b"GB")))
            assert (await events.next(10))[TITLE] == ("Game Boy", "H2G2", "Spamming")
            assert (await events.next(10))[TITLE] == ("GB", "H2G2", "Spamming")


@on_loop
async def test_notifications_with_new_names_wait_for_followers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Subscribers with a pattern would mostly miss the first document with a new name."""
    async with EmbeddedService() as service:
        alone = Sender(service, Names(service, wait_s=0.05), all_names=True)
        assert await alone.send(made("index")) == 1
        assert "may miss new names: no naming service has answered" in caplog.text
        async with NamingService(service) as kept:
            names = Names(service)
            held: list[int] = []
            async with service.subscribe(f"`{KIND[7:]}.story.0.title` any") as events:
                sending_it = Sender(service, names, all_names=True).send
                await sending_it(made("index"))
                held.append(names.asked)
                await sending_it(made("index"))
                held.append(names.asked)
                await events.next(5)
            assert held == [1, 1]
            assert kept.statistics().records == 4
            await Sender(service, silent := Names(service)).send(made("daemon"))
            assert silent.asked == 0


def test_names_in_a_shape() -> None:
    """Naming services would get other names than the documents have."""
    (record,) = made()
    assert isinstance(record, Record)
    told = names_in(record.notification)
    assert told is not None
    assert told.kind == KIND
    assert told.names[f"{TITLE}~3"] == (TITLE, "backslash.story[3].title")
