"""Permissions at brokers: all input and output is checked, in any frames."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import contrada as ct
from contrada.connections import connect
from contrada.delivery.delivery_messages import Ack, CloseLog, Grant, Nack, ReadLog, Records
from contrada.errors import ConnectionFailedError, NotPermittedError
from contrada.matching.packed import BUNDLE_MIN
from contrada.model import (
    Advertisement,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    to_msgpack,
)
from contrada.model.algebra.notification import store_packed
from contrada.model.codec import notification_from_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.ingress_queue import UndecidedNotification
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.users import Users, UserSettings
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.durable_messages import (
    AskLog,
    AskRecordBatch,
    PublisherHello,
    encode_durable,
)
from contrada.net.wire.frames import (
    AboutQuestions,
    Credit,
    Delivery,
    Failure,
    Frame,
    Hello,
    Hop,
    HopCredit,
    InspectRequest,
    LogDelivery,
    LogHop,
    LogReply,
    LogRequest,
    MatchDelivery,
    Ping,
    Pong,
    QuestionDelivery,
    Reply,
    Request,
    StatisticsRequest,
)
from contrada.net.wire.message_codec import encode_message as message
from contrada.net.wire.query_codec import split_answer
from contrada.net.wire.tokens import new_token
from contrada.patterns import Match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.query_router import ANSWER_WINDOW
from contrada.routing.router_messages import (
    Advertise,
    Answer,
    Ask,
    Cancel,
    Describe,
    Follow,
    More,
    SourceReport,
    SourceState,
    alternative,
)
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import entry_of, size_of
from tests.asynchronous import on_loop, until
from tests.matching.engines import needs_native
from tests.net.networks import are_linked
from tests.net.requests import publish, subscribe
from tests.net.test_broker import RawClient
from tests.service.security.singles import singles

SECRETS = {name: new_token(name) for name in ("desk", "task", "oslo", "root")}
TOKEN = {name: token for name, (token, _) in SECRETS.items()}
ALL: dict[str, Any] = {
    "publish": True,
    "subscribe": True,
    "publishers": ["*"],
    "durable": ["*"],
    "link": True,
    "inspect": True,
}


def users(**said: dict[str, Any]) -> Users:
    given = {"root": ALL, **said}
    return Users.of(
        "here", {name: UserSettings(token=SECRETS[name][1], **of) for name, of in given.items()}
    )


async def raw(broker: Broker, name: str, *frames: Frame) -> RawClient:
    client = await RawClient.to(broker, Hello(CLIENT, "", {}, TOKEN[name]), *frames)
    assert isinstance(await client.hears(), Hello)
    return client


def stamped(publisher: str, **attributes: Any) -> Notification:
    envelope = Envelope(f"{publisher}.1", publisher, 1, 1_700_000_000_000_000)
    return Notification(attributes, envelope=envelope)


# --- reading --------------------------------------------------------------------------------------


@on_loop
async def test_an_undecided_notification_reaches_permitted_readers_only() -> None:
    """A costly filter would get notifications that its user may not read."""
    async with Broker(port=0, users=users(desk={"subscribe": "k = 1"})) as broker:
        one = Filter("k = 1")
        pattern = SubscribePattern("y", Pattern([one, one]))
        client = await raw(broker, "desk", subscribe(1, "x", to_msgpack(one), 100_000))
        client.say(Request(2, message(pattern), 100_000))
        assert [type(await client.hears()) for _ in range(2)] == [Reply, Reply]
        (session,) = broker._sessions.values()
        items = [stamped("root", k=k, n=n) for n, k in enumerate((1, 2, 1))]
        for each in items:  # As where it was too much to decide whether they match.
            store_packed(each, UndecidedNotification(to_msgpack(each)))
            assert session._queues["x"].offer_all([entry_of(each)])
        matched: Any = session._queues["y"]
        for pair in (items[:2], items[::2]):
            assert matched.offer_all([(Match("y", (), tuple(pair)), 1_000, None)])
        got: dict[str, Any] = {}
        while len(got) < 2:
            frame = await client.hears()
            if isinstance(frame, Delivery):
                got["x"] = numbers(frame.notifications)
            elif isinstance(frame, MatchDelivery):
                got["y"] = [numbers(each) for _, each in frame.matches]
        assert got == {"x": [0, 2], "y": [[0, 2]]}
        assert broker.statistics().dropped == {NOT_PERMITTED: 3}
        sent = sum(size_of(each) for each in items[::2])
        assert session._queues["x"].credit == 100_000 - sent, "what is not sent takes no credit"
        await client.leave()


@on_loop
async def test_a_match_that_may_not_be_read_leaves_its_connection() -> None:
    """A pattern over notifications of others would end the connection, with all subscriptions."""
    async with Broker(port=0, users=users(desk={"subscribe": "k = 1"})) as broker:
        pattern = SubscribePattern("y", Pattern([Filter("k = 1")] * 2))
        client = await raw(broker, "desk", Request(1, message(pattern), 100_000))
        assert isinstance(await client.hears(), Reply)
        (session,) = broker._sessions.values()
        items = tuple(stamped("root", k=2, n=n) for n in range(2))
        for each in items:
            store_packed(each, UndecidedNotification(to_msgpack(each)))
        matched: Any = session._queues["y"]
        assert matched.offer_all([(Match("y", (), items), 1_000, None)])
        client.say(subscribe(2, "x", to_msgpack(Filter("k = 1")), 100_000))
        answer = await client.hears()
        while not isinstance(answer, Reply):
            assert isinstance(answer, MatchDelivery)
            assert answer.matches == []
            answer = await client.hears()
        assert broker.statistics().dropped == {NOT_PERMITTED: 2}
        await client.leave()


def numbers(data: list[bytes]) -> list[object]:
    return [notification_from_msgpack(it)["n"] for it in data]


@pytest.mark.parametrize("merging", [False, True])
@on_loop
async def test_permissions_of_one_reader_do_not_widen_those_of_another(merging: bool) -> None:
    """Subscriptions that cover one another, or are joined on links, would open each other."""
    said = users(desk={"subscribe": "k < 5", "narrow": True}, oslo=ALL)
    far_network = Membership("far", merging=merging)
    async with Broker(port=0, network=far_network) as far:
        wanted = (WantedLink(parse_address(far.address)),)
        network = Membership("near", merging=merging, neighbours=wanted)
        async with (
            Broker(port=0, users=said, network=network) as broker,
            connect(broker.address, token=TOKEN["root"]) as root,
            connect(broker.address, token=TOKEN["desk"]) as desk,
            connect(far.address) as publisher,
            root.subscribe("k any") as wide,
            desk.subscribe("k any") as narrowed,
            desk.subscribe("k >= 4") as narrow,
            root.subscribe("k < 6") as other,
        ):
            await until(lambda: are_linked([far, broker], 1))
            await until(lambda: far.dispatcher.router.statistics().filters.nodes > 0)
            for service in (root, publisher):
                await service.publish_batch({"k": [n, n + 20] if n % 2 else n} for n in range(9))
                assert [first(await anext(wide)) for _ in range(9)] == [*range(9)]
                assert [first(await anext(other)) for _ in range(6)] == [*range(6)]
                assert [first(await anext(narrowed)) for _ in range(5)] == [*range(5)]
                assert first(await anext(narrow)) == 4
            await root.publish({"k": 4, "last": True})
            assert (await anext(narrowed))["last"]
            assert (await anext(narrow))["last"]


def first(it: Any) -> Any:
    return it["k"][0] if isinstance(it["k"], tuple) else it["k"]


@on_loop
async def test_subscriptions_of_others_stay_hidden() -> None:
    """Statistics and inspections show subscriptions; errors could, too."""
    secret = "k = 1 and s = 'secret'"
    said = users(desk={"subscribe": "k any", "publish": "k any"})
    async with (
        Broker(port=0, users=said, network=Membership("b")) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        root.subscribe(secret),
    ):
        some = bytes(to_msgpack(Notification({"k": 1, "s": "secret"})))
        for name in ("desk", "root"):
            client = await raw(broker, name)
            for asked in (
                StatisticsRequest(1),
                InspectRequest(1),
                InspectRequest(1, some),
                InspectRequest(1, page_from=(0, 0)),
            ):
                client.say(asked)
                answer = await client.hears()
                if name == "root":
                    assert not isinstance(answer, Reply)
                else:
                    assert isinstance(answer, Reply)
                    reason = "'desk' may not inspect this broker; users with `inspect` may"
                    assert (answer.code, answer.reason) == ("NotPermittedError", reason)
            await client.leave()


@on_loop
async def test_records_are_read_under_names_of_ones_own(tmp_path: Path) -> None:
    """Another one's durable subscription could be read, ended, or written to."""
    said = users(desk={"subscribe": "k = 1", "durable": ["desk"], "narrow": True})
    async with (
        Broker(port=0, users=said, store=tmp_path / "store.db") as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
    ):
        async with root.subscribe("k any", durable="kept"):
            pass
        async with root.subscribe("k any", durable="desk/wide"):
            pass
        await root.publish_batch(({"k": n % 2, "n": n} for n in range(6)), delivery="certified")
        every = FilterSet("k any")
        dead = ct.Retention(attempts_max=1, dead_letter="kept")
        client = await raw(broker, "desk")
        for refused in (
            ReadLog("kept", "r"),
            ReadLog("kept", "r", every),
            ReadLog("desk2", "r", every),
            ReadLog("desk/new", "r", every, dead),
            ReadLog("@reliable-x", "r", every, dead, False),
            AskLog("kept"),
            AskRecordBatch("kept", 1, 1, 9, True),
            CloseLog("kept", "", ends=True),
            CloseLog("kept", "r"),
            Grant("kept", "r", 100),
            Ack("kept", "r", ((1, 9),)),
            Nack("kept", "r", (1,)),
        ):
            client.say(LogRequest(1, encode_durable(refused)))
            answer = await client.hears()
            assert isinstance(answer, LogReply)
            assert answer.code == "NotPermittedError", refused
            assert "kept" not in answer.reason or "may not use" in answer.reason
        client.say(LogRequest(2, encode_durable(ReadLog("desk/wide", "r"))))
        client.say(LogRequest(3, encode_durable(Grant("desk/wide", "r", 100))))
        got: list[Any] = []
        while len(got) < 6:
            frame = await client.hears()
            if isinstance(frame, LogDelivery):
                got += msgspec.msgpack.decode(frame.message)[3]
        readable = [each for each in got if each[2] is not None]
        assert len(readable) == 3, "of a log that stands for more only what he may read"
        client.say(LogRequest(4, encode_durable(AskRecordBatch("desk/wide", 2, 1, 7, True))))
        while not (isinstance(frame := await client.hears(), LogReply) and frame.number == 4):
            pass
        assert bytes(frame.result).count(NOT_PERMITTED.encode()) == 3
        await client.leave()
        assert {"kept", "desk/wide"} <= {
            each.name for each in broker.logs.host.server.logs.subscriptions().values()
        }


@on_loop
async def test_a_refusal_to_one_reader_is_hidden_from_others(tmp_path: Path) -> None:
    """Of two that share a service one would fail for the other, and learn of its name."""
    said = users(desk={"subscribe": "k any", "publish": "k any"})
    async with (
        Broker(port=0, users=said, store=tmp_path / "store.db") as broker,
        connect(broker.address, token=TOKEN["desk"]) as desk,
        desk.subscribe("k any", durable="desk/log") as log,
    ):
        await desk.publish({"k": 1}, delivery="certified")
        found = await anext(log)
        with pytest.raises(NotPermittedError, match="may not use the durable subscription 'kept'"):
            await desk.subscribe("k any", durable="kept").open()
        await log.acknowledge()
        await log.acknowledge(found.position)
        assert broker.refused == {"NotPermittedError": 1}, "it is refused once, not twice"


@on_loop
async def test_queries_get_readable_answers_from_permitted_sources() -> None:
    """A source could give items beyond its rights, or an asker receive some."""
    said = users(
        desk={"subscribe": "k = 1", "narrow": True}, task={"publish": "k in (1, 2) and s any"}
    )
    items = [stamped("task", k=k, s="x") for k in (1, 2, 3)]
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["desk"]) as desk,
        connect(broker.address, token=TOKEN["root"]) as root,
        connect(broker.address, token=TOKEN["task"]) as task,
        task.offer("k in (1, 2) and s any", lambda _: items, name="task"),
    ):
        for asker, wanted in ((root, [1, 2]), (desk, [1])):
            answers = asker.query("k any", timeout_s=1)
            assert [each["k"] async for each in answers] == wanted
        with pytest.raises(NotPermittedError, match="'desk' may not ask for"):
            await desk.query("k = 2").open()
        combined = root.compute("count", "k any", timeout_s=1)
        await anext(combined)
        (report,) = combined.reports
        assert report.state is SourceState.FAILED
        assert "may not publish everything" in report.reason
        with pytest.raises(NotPermittedError, match="'task' may not offer"):
            await task.offer("k = 3", lambda _: items).open()
        with pytest.raises(NotPermittedError, match="'task' may not answer as 'tasks'; it may as"):
            await task.offer("k in (1, 2) and s any", lambda _: items, name="tasks").open()
        assert broker.statistics().dropped[NOT_PERMITTED] == 1
        async with task.offer("k in (1, 2) and s any", lambda _: items[:2]) as unnamed:
            assert unnamed.name.startswith("task/"), "its answers would be dropped"
            answers = root.query("k any", timeout_s=1)
            assert Counter([each["k"] async for each in answers]) == {1: 2, 2: 2}
            found = {each.name: (each.state, each.reason) for each in answers.reports}
            assert found[unnamed.name] == (SourceState.ANSWERED, "")
            gave_more = "not permitted: its user may not publish all that it gave"
            assert found["task"] == (SourceState.FAILED, gave_more)


@on_loop
async def test_answers_dropped_of_one_source_delay_no_other() -> None:
    """It would have taken the room of all: the question would end when its time is over."""
    said = users(task={"publish": "k < 5 and n any"})
    much = [{"k": 9, "n": n} for n in range(5 * ANSWER_WINDOW)]
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        connect(broker.address, token=TOKEN["task"]) as task,
        task.offer("k < 5 and n any", lambda _: much, name="task/bad"),
        task.offer("k < 5 and n any", lambda _: [{**it, "k": 1} for it in much], name="task/good"),
        asyncio.timeout(20),
    ):
        answers = root.query("n any", timeout_s=60)
        assert len([each async for each in answers]) == len(much)
        found = {each.name: (each.state, each.count) for each in answers.reports}
        assert found == {
            "task/bad": (SourceState.FAILED, 0),
            "task/good": (SourceState.ANSWERED, len(much)),
        }


@pytest.mark.parametrize("names", [("task/s", "root"), ("root",), ("task/other",)])
@on_loop
async def test_answers_of_a_source_are_checked_on_the_way(names: tuple[str, ...]) -> None:
    """An unasked source could give anything in any name, to anyone."""
    said = users(desk={"subscribe": "k = 1"}, task={"publish": "k in (1, 2)"})
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["desk"]) as desk,
    ):
        offer = message(Describe("task/s", (Filter("k in (1, 2)"),)))
        source = await raw(broker, "task", Request(1, offer))
        assert isinstance(await source.hears(), Reply)
        async with desk.query("k = 1", timeout_s=20) as answers:
            question = await source.hears()
            assert isinstance(question, QuestionDelivery)
            ((asker, identity),) = broker.dispatcher.router._queries._open
            items = [stamped("task/s", k=1), *(stamped(name, k=3) for name in names)]
            rest = [stamped("task/s", k=1, n=2)]
            report = (SourceReport("task/s", SourceState.ANSWERED, 6),)
            for part in (
                Answer(asker, identity, tuple(items)),
                Answer(asker, identity, tuple(rest), report, is_last=True),
            ):
                source.say(AboutQuestions([*map(message, split_answer(part))]))
            got = [(each.envelope.publisher, dict(each)) async for each in answers]
            assert got == [("task/s", {"k": 1})], "the others may not be published by 'task'"
            (told,) = answers.reports
            assert (told.name, told.state, told.count) == ("task/s", SourceState.FAILED, 1)
            held = [each._queries for each in broker._sessions.values()]
            assert not any(each._item_counts for each in held if each), (
                "what has ended is forgotten"
            )
        assert broker.statistics().dropped[NOT_PERMITTED] == len(names) + len(rest)
        combined = Answer(asker, identity, (), report, b"\x01", is_last=True)
        source.say(AboutQuestions([message(combined)]))
        failure = await source.hears()
        while not isinstance(failure, Failure):
            failure = await source.hears()
        assert "may not publish everything" in failure.reason
        await source.leave()


@on_loop
async def test_nobody_speaks_for_another_in_a_question() -> None:
    """A stranger could answer another one's question, take more of it, or end it."""
    said = users(desk={"publish": True, "publishers": ["desk"], "subscribe": True})
    asked = asyncio.Event()
    client_context = asyncio.Event()

    async def slowly(_: Any) -> Any:
        asked.set()
        yield {"k": 1}
        await client_context.wait()
        yield {"k": 2}

    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        root.offer("k any", slowly, name="s"),
        root.query("k any", timeout_s=20) as answers,
    ):
        await asked.wait()
        assert (await anext(answers))["k"] == 1
        ((asker, identity),) = broker.dispatcher.router._queries._open
        client = await raw(broker, "desk")
        report = (SourceReport("s", SourceState.ANSWERED, 1),)
        for told in (
            Answer(asker, identity, (stamped("desk", k=9),), report, is_last=True),
            More(asker, identity, 100),
            Cancel(asker, identity),
        ):
            client.say(AboutQuestions([message(told)]))
        client.say(Ping(1))
        assert isinstance(await client.hears(), Pong)
        client_context.set()
        assert [each["k"] async for each in answers] == [2]
        await client.leave()


@on_loop
async def test_a_client_may_not_send_messages_of_brokers() -> None:
    """Any client could send messages of brokers or neighbours."""
    said = users(desk={"subscribe": True, "publish": True})
    one = bytes(to_msgpack(stamped("desk", k=1)))
    async with Broker(port=0, users=said, network=Membership("b")) as broker:
        for frame in (
            Delivery("1", 0, [one]),
            MatchDelivery("1", 0, []),
            LogDelivery(encode_durable(Records("kept", "r", ()))),
            LogReply(1),
            Reply(1),
            Hop([]),
            HopCredit(10**9, 1),
            LogHop([]),
            Hello(CLIENT, "", {}, TOKEN["root"]),
        ):
            client = await raw(broker, "desk", frame)
            failure = await client.hears()
            assert isinstance(failure, Failure), frame
            assert failure.code == "unexpected"
            await client.leave()
        client = await raw(broker, "desk", Credit("7", 10**9), Ping(1))
        assert isinstance(await client.hears(), Pong), "of a subscription that it does not have"
        await client.leave()


# --- writing --------------------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("compiled", [False, True])
@on_loop
async def test_a_forbidden_publication_is_left_out_of_its_batch(compiled: bool) -> None:
    """A refused notification would exclude the others, or pass with them."""
    said = users(desk={"publish": "k < 5"})
    items = [
        *(stamped("desk", k=k) for k in range(8)),
        *(stamped(name, k=1) for name in ("root", "task", "", "desk/1", "deskx")),
        stamped("desk", k=[9, 1]),
        stamped("desk", k=[3, 1]),
        stamped("desk", x=1),
    ]
    if compiled:
        items = [each for each in items if len(each.keys_of("k")) == 1]
        assert len(items) > BUNDLE_MIN
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        root.subscribe({}) as events,
    ):
        data = [bytes(to_msgpack(each)) for each in items]
        client = await raw(broker, "desk", publish(1, 0, data), publish(2, 0, data[5:7]))
        answers = [await client.hears() for _ in range(2)]
        assert all(isinstance(each, Reply) for each in answers)
        assert {each.code for each in answers if isinstance(each, Reply)} == {"NotPermittedError"}
        await root.publish({"k": -1})
        got: list[Any] = []
        while not got or got[-1]["k"] != -1:
            got.append(await anext(events))
        wanted = [each for each in items if may_write(each)]
        assert [(each.envelope.publisher, dict(each)) for each in got[:-1]] == [
            (each.envelope.publisher, dict(each)) for each in wanted
        ]
        assert broker.statistics().dropped[NOT_PERMITTED] == len(items) - len(wanted) + 2
        await client.leave()


def may_write(each: Notification) -> bool:
    is_his = each.envelope.publisher in ("desk", "desk/1")
    return is_his and all(map(Filter("k < 5").matches, singles(each)))


@on_loop
async def test_a_durable_batch_with_a_forbidden_publication_is_refused_whole() -> None:
    """A part of a batch would be kept, or a forbidden notification."""
    said = users(desk={"publish": "k < 5"})
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        connect(broker.address, token=TOKEN["desk"]) as desk,
        connect(broker.address, token=TOKEN["desk"], publisher="root") as liar,
        root.subscribe("k any") as events,
    ):
        with pytest.raises(NotPermittedError, match="'desk' may not publish"):
            await desk.publish_batch([{"k": 1}, {"k": 7}], delivery="reliable")
        with pytest.raises(NotPermittedError, match="'desk' may not publish as 'root'"):
            await liar.publish({"k": 1}, delivery="reliable")
        with pytest.raises(NotPermittedError, match="'desk' may not publish as 'root'"):
            await liar.publish({"k": 2})
        await desk.publish({"k": 3}, delivery="reliable")
        assert (await anext(events))["k"] == 3


# --- links ----------------------------------------------------------------------------------------


@on_loop
async def test_a_restricted_neighbour_reads_and_writes_within_its_permissions() -> None:
    """A foreign broker could read and write everything; or get nothing after a while."""
    said = users(
        oslo={"link": True, "subscribe": "k < 5", "publish": "k > 90", "publishers": ["*"]}
    )
    async with Broker(port=0, users=said, network=Membership("near")) as near:
        wanted = (WantedLink(parse_address(near.address)),)
        network = Membership("oslo", neighbours=wanted, token=TOKEN["oslo"])
        async with (
            Broker(port=0, network=network) as far,
            connect(near.address, token=TOKEN["root"]) as here,
            connect(far.address) as there,
            here.subscribe("n any") as heard_here,
            there.subscribe("n any") as heard_there,
            here.offer("n any", lambda _: [{"n": 1}], name="here"),
        ):
            await until(lambda: are_linked([near, far], 1))
            await until(lambda: far.dispatcher.router.statistics().filters.nodes > 0)
            await until(lambda: near.dispatcher.router.statistics().filters.nodes > 0)
            body = b"x" * 40_000
            for n in range(600):  # More than three times the credit of a link, most unreadable.
                item = Notification({"n": n, "k": n % 50}, body=body)
                await here.publish(item)
            await there.publish_batch({"n": n, "k": n} for n in range(85, 100))
            found = [await anext(heard_there) for _ in range(60 + 15)]
            mine = [each["n"] for each in found if len(each.body)]
            assert mine == [n for n in range(600) if n % 50 < 5]
            links = [*near.neighbours]
            await until(lambda: links[0].queue.in_flight == 0)
            got: list[Any] = []
            while not got or got[-1] != 99:
                each = await anext(heard_here)
                if not len(each.body):
                    got.append(each["n"])
            assert got == [*range(91, 100)]
            assert near.statistics().dropped[NOT_PERMITTED] == 540 + 6
            answers = there.query("n any", timeout_s=0.3)
            assert [each async for each in answers] == []
            assert near.statistics().links == 1


# --- changes --------------------------------------------------------------------------------------


@on_loop
async def test_a_change_is_in_force_for_all_that_is(tmp_path: Path) -> None:
    """Former rights would last for ever: in logs, patterns, queries, offers."""
    may = {"subscribe": "k any", "publish": "k any"}
    async with (
        Broker(port=0, users=users(desk=may), store=tmp_path / "store.db") as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        connect(broker.address, token=TOKEN["desk"]) as desk,
    ):
        assert isinstance(desk, TcpService)
        kept = desk.subscribe("k any", durable="desk/log")
        found = desk.subscribe(Pattern([Filter("k = 1"), Filter("k = 2")]))
        source = desk.offer("k any", lambda _: [{"k": 2}])
        for each in (kept, found, source):
            await each.open()
        answers = desk.query("k any", timeout_s=60)
        await answers.open()
        peers = {
            each for each in broker._connections if each.principal and each.principal.name == "desk"
        }
        broker.change_users(users(desk={"subscribe": "k = 1", "publish": "k = 1"}))
        await until(lambda: not peers & broker._connections)
        await root.publish_batch([{"k": 2}, {"k": 1}, {"k": 2}])
        await root.publish_batch([{"k": 2}, {"k": 1}], delivery="certified")
        with pytest.raises(NotPermittedError, match="may not subscribe to"):
            await anext(found)
        assert [(await anext(kept)).item["k"] for _ in range(2)] == [1, 1], "of what is kept, too"
        assert kept.statistics().dropped == {NOT_PERMITTED: 3}
        assert not broker.dispatcher.router.statistics().questions
        assert broker.dispatcher.router.statistics().sources.nodes == 0
        broker.change_users(users())
        with pytest.raises(ConnectionFailedError, match="the token is not"):
            async with connect(broker.address, token=TOKEN["desk"], reconnect=False):
                pass


@on_loop
async def test_publications_as_single_frames_are_checked_too() -> None:
    """Client libraries check nothing of it, and the broker would not either."""
    said = users(desk={"publish": "k = 1", "subscribe": "k = 1"})
    async with (
        Broker(port=0, users=said) as broker,
        connect(broker.address, token=TOKEN["root"]) as root,
        root.advertise("k = 2"),
    ):
        client = await raw(broker, "desk")
        one = (alternative(Filter("k = 1").sides),)
        for frame in (
            Request(1, message(Ask(one, "root", "7", 1_000_000, 1))),
            Request(1, message(Advertise("o", Advertisement("k = 2")))),
            LogRequest(1, encode_durable(PublisherHello("root", "i"))),
            LogRequest(1, encode_durable(ReadLog("desk", "r", FilterSet("k any"), None, False))),
        ):
            client.say(frame)
            answer = await client.hears()
            assert isinstance(answer, Reply | LogReply)
            assert answer.code == "NotPermittedError", frame
        client.say(Request(2, message(Follow())))
        assert isinstance(await client.hears(), Reply), "nothing is on offer that it may read"
        await client.leave()
