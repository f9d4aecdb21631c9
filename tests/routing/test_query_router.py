"""`QueryRouter`: queries reach all sources with matching descriptions, and no others; answers
return.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Advertisement, Envelope, Filter, Notification, Query
from contrada.model.algebra.product import product_meets
from contrada.model.languages.work_budget import Work
from contrada.routing.admission import QUESTION_TIME_MAX_US
from contrada.routing.aggregation import Aggregate, AggregateKind, Combination, Partial
from contrada.routing.query_router import ANSWER_WINDOW
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    VERSION,
    Advertise,
    Answer,
    Ask,
    Cancel,
    Client,
    ClientGone,
    DeadlinePassed,
    DeliverQuestion,
    Describe,
    Disjunct,
    Effect,
    LinkDown,
    LinkUp,
    Message,
    More,
    Neighbour,
    NotifyClient,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    SourceReport,
    SourceState,
    Unadvertise,
    Undescribe,
)
from tests.routing.network import LOOPED, MESHES, TRANSIENT, TREES, Network
from tests.routing.test_general import FailingWorld
from tests.routing.test_poset import random_filter

ANN, BOB, EVE = Client("ann"), Client("bob"), Client("eve")
NORTH, SOUTH = Neighbour("n"), Neighbour("s")
WARM: Final = Query("temperature > 20")
SENSOR: Final = Advertisement("temperature > 0 and room any")
SECOND: Final = 1_000_000
FURTHER: Final = 950_000
"""The time left of a second for the next hop."""


def ask(query: Query, identity: str = "7", **options: Any) -> Ask:
    """Returns a query with a second."""
    options = {"asker": "", "timeout_us": SECOND, "window": ANSWER_WINDOW, **options}
    return Ask((Disjunct(query),), identity=identity, **options)


def router_with_sources(
    *sources: tuple[Client | Neighbour, str],
    name: str = "",
    links: str = "ns",
    limits: RouterLimits = RouterLimits(),
) -> Router:
    """Returns a router with links, and descriptions of warm rooms."""
    router = Router(name=name, limits=limits)
    for each in links:
        router.handle(LinkUp(Neighbour(each), Role.PEER), 0)
    for origin, identity in sources:
        router.handle(Received(origin, Describe(identity, (SENSOR,))), 0)
    return router


def items(*numbers: int) -> tuple[Notification, ...]:
    """Items of data."""
    return tuple(Notification({"temperature": each}) for each in numbers)


def report(name: str, state: SourceState, count: int = 0, reason: str = "") -> SourceReport:
    """Returns the report of a source."""
    return SourceReport(name, state, count, reason)


def answer(*, identity: str = "7", **parts: Any) -> Answer:
    """Returns an answer."""
    return Answer("", identity, **parts)


COUNTED: Final = Combination((Aggregate(AggregateKind.COUNT),), "source")


def last_answer(*reports: SourceReport) -> NotifyClient:
    """Returns the last answer to the asker."""
    return NotifyClient(BOB, answer(reports=reports, is_last=True))


ASKED, ANSWERED, EMPTY = SourceState.ASKED, SourceState.ANSWERED, SourceState.EMPTY
FAILED, TIMED_OUT = SourceState.FAILED, SourceState.TIMED_OUT
LOST, STOPPED = SourceState.LOST, SourceState.STOPPED


class DescribingWorld(FailingWorld):
    """A world with descriptions equal to its advertisements."""

    def fresh(self) -> Network:
        network = super().fresh()
        say = network.say

        def and_describe(broker: int, client: str, message: Message) -> None:
            say(broker, client, message)
            if isinstance(message, Advertise):
                say(broker, client, Describe(message.identity, (message.offer,)))
            elif isinstance(message, Unadvertise):
                say(broker, client, Undescribe(message.identity))

        network.say = and_describe  # type: ignore[method-assign]
        return network


@pytest.mark.quick_every(12)
@pytest.mark.parametrize("covering", [True, False])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("shape", [*TREES, *MESHES, *LOOPED])
@pytest.mark.parametrize("seed", range(2))
def test_each_matching_source_is_asked_once(
    seed: int, shape: str, strategy: Strategy, covering: bool
) -> None:
    """A source would be missed, asked twice, or asked in vain."""
    world = DescribingWorld(seed, shape, strategy, covering=covering)
    for number in range(12):
        for _ in range(world.chance.randint(1, 4)):
            world.change()
        if world.named and number % 3 == 2:
            world.fail()
        world.network.settle(TRANSIENT)
        world.network.taken()
        if not world.up:
            continue
        for turn in range(3):
            query = Query(random_filter(world.chance).sides)
            if query.is_empty:
                continue
            at = world.chance.choice(sorted(world.up))
            asked = ask(query, identity=f"q{number}.{turn}")
            world.network.say(at, f"{at}p", asked)
            world.network.settle(TRANSIENT)
            reached = world.joined(at)
            assert world.network.taken() == Counter(
                (client, identity, asked.identity)
                for (broker, client, identity), offer in world.offers.items()
                if broker in reached and product_meets(offer, query)
            )


class AskedQuery:
    """A query at a client: the rest of each source, and its credit."""

    def __init__(self, left: dict[str, int], may: int) -> None:
        self.left = left
        self.may = may
        self.count_of_rooms: list[str] = []


class AnsweringWorld(DescribingWorld):
    """A world with sources that answer, a few items at a time, in any order."""

    def __init__(self, seed: int, shape: str, *, combined: bool, covering: bool) -> None:
        super().__init__(seed, shape, Strategy.SUBSCRIPTIONS, covering=covering)
        self.combination = COUNTED if combined else None
        self.partials: list[bytes] = []
        self.came: Counter[str] = Counter()
        self.reports: list[SourceReport] = []
        self.granted: dict[str, int] = {}
        self.under_way: dict[tuple[int, str, str], AskedQuery] = {}

    def count_of(self, source: str) -> int:
        """Returns the items of a source: more than a window, for some."""
        return int(source) * 37 % 600

    def look(self) -> None:
        """Handles the messages to sources and askers."""
        for broker, asked in self.network.asked:
            left = {source: self.count_of(source) for source in asked.sources}
            key = (broker, asked.client.name, asked.question.identity)
            self.under_way[key] = AskedQuery(left, asked.question.window)
        for broker, last_answer in self.network.told:
            client, message = last_answer.client.name, last_answer.message
            mine = self.under_way.get((broker, client, message.identity))
            if isinstance(message, Answer):
                self.take(broker, client, message)
            elif mine is not None and isinstance(message, More):
                mine.may += message.count
            elif mine is not None:
                del self.under_way[broker, client, message.identity]
        self.network.asked.clear()
        self.network.told.clear()

    def take(self, broker: int, client: str, message: Answer) -> None:
        """Takes items at the asker, and grants more."""
        self.came.update(item.envelope.id for item in message.items)
        self.partials += [message.partial] if message.partial else []
        self.reports += message.reports
        self.granted[message.identity] -= len(message.items)
        assert self.granted[message.identity] >= 0, "more came than was asked for"
        if message.is_last:
            del self.granted[message.identity]
        elif self.granted[message.identity] < 10 and self.combination is None:
            self.granted[message.identity] += 100
            self.network.say(broker, client, More("", message.identity, 100))

    def send(self) -> bool:
        """Sends from a random source with credit. Returns whether there was one."""
        ready = [
            (key, source)
            for key, asked in self.under_way.items()
            for source, left in asked.left.items()
            if asked.may or not left or self.combination is not None
        ]
        if not ready:
            return False
        key, source = self.chance.choice(sorted(ready))
        asked, identity = self.under_way[key], key[2]
        if self.combination is not None:
            self.count(key, source)
            return True
        left = asked.left[source]
        count = min(left, self.chance.randint(1, 80), asked.may)
        made = tuple(
            Notification({"a": 1}, envelope=Envelope(id=f"{source}/{left - n}/{identity}"))
            for n in range(count)
        )
        reports: tuple[SourceReport, ...] = ()
        asked.may -= count
        asked.left[source] -= count
        if left == count:
            total = self.count_of(source)
            reports = (report(source, ANSWERED if total else EMPTY, total),)
            del asked.left[source]
        if not asked.left:
            del self.under_way[key]
        said = answer(identity=identity, items=made, reports=reports, is_last=not asked.left)
        self.network.say(key[0], key[1], said)
        return True

    def count(self, key: tuple[int, str, str], source: str) -> None:
        """Counts the items of a source; the last of a client reports for all."""
        asked = self.under_way[key]
        del asked.left[source]
        asked.count_of_rooms.append(source)
        if asked.left:
            return
        del self.under_way[key]
        partial = Partial(COUNTED)
        for each in asked.count_of_rooms:
            partial.add_all([{"source": each}] * self.count_of(each))
        reports = tuple(
            report(each, ANSWERED if self.count_of(each) else EMPTY, self.count_of(each))
            for each in asked.count_of_rooms
        )
        said = answer(identity=key[2], partial=partial.to_bytes(), reports=reports, is_last=True)
        self.network.say(key[0], key[1], said)

    def ask(self, at: int, query: Query, identity: str, *, fails: bool) -> None:
        """Runs a query during failures of links and servers."""
        self.came.clear()
        self.reports.clear()
        self.partials.clear()
        window = 30 if self.combination is None else 0
        self.granted[identity] = 30
        asked = ask(query, identity, window=window, combination=self.combination)
        self.network.say(at, "asker", asked)
        while identity in self.granted and at in self.up:
            moved = self.network.step() if self.chance.random() < 0.8 else self.send()
            if fails and self.named and self.chance.random() < 0.02:
                self.fail()
            self.look()
            if not moved and not self.network.step() and not self.send():
                self.look()
                break
        self.network.settle(set(Reason) if fails else TRANSIENT)
        self.look()


@pytest.mark.quick_every(12)
@pytest.mark.parametrize("combined", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("shape", [*TREES, *MESHES])
@pytest.mark.parametrize("seed", range(4))
def test_all_answers_arrive_once_and_missing_ones_are_reported(
    seed: int, shape: str, fails: bool, combined: bool
) -> None:
    """Answers would be lost, doubled, or missing without a report."""
    world = AnsweringWorld(5_000 + seed, shape, combined=combined, covering=seed % 2 == 0)
    for _ in range(20):
        world.change()
    world.network.settle(TRANSIENT)
    for turn in range(4):
        at = world.chance.choice(sorted(world.up))
        query = Query("a any") if turn % 2 else Query(random_filter(world.chance).sides)
        if query.is_empty:
            continue
        world.ask(at, query, f"q{turn}", fails=fails)
        if at not in world.up:
            return
        assert f"q{turn}" not in world.granted, "the question has no end"
        assert all(count == 1 for count in world.came.values())
        asked = Counter(each.name for each in world.reports if each.state is ASKED)
        ended = [each for each in world.reports if each.state is not ASKED]
        assert Counter(each.name for each in ended if each.name[0] != "@") == asked
        came = Counter(each.split("/")[0] for each in world.came)
        if combined:
            (partial,) = world.partials
            results = Partial.from_bytes(COUNTED, partial).results()
            came = Counter({each["source"]: each["count"] for each in results})
            answered = {each.name for each in ended if each.state is ANSWERED}
            assert came.keys() == answered, "what is combined is not what is reported"
        for each in ended:
            if each.state in (ANSWERED, EMPTY):
                assert came[each.name] == world.count_of(each.name)
        if not fails:
            reached = world.joined(at)
            assert asked == Counter(
                key
                for (broker, _, key), offer in world.offers.items()
                if broker in reached and product_meets(offer, query)
            )
            assert {each.state for each in ended} <= {ANSWERED, EMPTY}
        assert all(not each.statistics().questions for each in world.network.routers)


def test_a_query_follows_matching_descriptions() -> None:
    """Every source would see every query, despite descriptions."""
    router = router_with_sources((NORTH, "1"), (ANN, "1"))
    router.handle(Received(SOUTH, Describe("1", (Advertisement("temperature < 0"),))), 0)
    router.handle(Received(ANN, Describe("2", (Advertisement("temperature any"),))), 0)
    router.handle(Received(BOB, Describe("1", (Advertisement("humidity any"),))), 0)
    question = ask(WARM)
    further = replace(question, timeout_us=FURTHER)
    asked = (report("1", ASKED), report("2", ASKED))
    assert router.handle(Received(BOB, question), 0) == [
        DeliverQuestion(ANN, ("1", "2"), further),
        Send(NORTH, replace(further, hops=1)),
        NotifyClient(BOB, answer(reports=asked)),
    ]
    router.handle(Received(NORTH, Undescribe("1")), 0)
    router.handle(Received(ANN, Undescribe("1")), 0)
    assert router.handle(Received(BOB, ask(WARM, "8")), 0) == [
        DeliverQuestion(ANN, ("2",), replace(further, identity="8")),
        NotifyClient(BOB, answer(identity="8", reports=asked[1:])),
    ]
    assert router.statistics().received["Ask"] == 2
    assert router.statistics().questions == 2


def test_advertisements_are_no_data() -> None:
    """Publishers would be queried for data that they do not keep."""
    router = Router()
    router.handle(Received(ANN, Advertise("1", SENSOR)), 0)
    assert router.handle(Received(BOB, ask(WARM)), 0) == [NotifyClient(BOB, answer(is_last=True))]


def test_undescribed_attributes_are_absent() -> None:
    """A source would be queried for missing attributes; an open one may have them."""
    router = router_with_sources((ANN, "1"), links="")
    router.handle(Received(BOB, Describe("1", (Filter("temperature > 0"),))), 0)
    effects = router.handle(Received(BOB, ask(Query("temperature > 20 and height = 3"))), 0)
    assert [each.client for each in effects if isinstance(each, DeliverQuestion)] == [BOB]


def test_any_alternative_and_any_description_is_enough() -> None:
    """A source with several descriptions would be asked twice, or not at all."""
    router = Router()
    offers = (Advertisement("a = 1"), Advertisement("a = 2"))
    router.handle(Received(ANN, Describe("1", offers)), 0)
    question = replace(
        ask(WARM), alternatives=tuple(Disjunct(Query(f"a = {n}")) for n in (2, 1, 3))
    )
    effects = router.handle(Received(BOB, question), 0)
    assert [each.sources for each in effects if isinstance(each, DeliverQuestion)] == [("1",)]


def test_a_query_keeps_to_its_hop_limit() -> None:
    """A query for nearby sources would reach the whole network."""
    router = router_with_sources((NORTH, "1"), (ANN, "1"))
    for hops, onward in ((1, []), (0, [NORTH])):
        effects = router.handle(Received(SOUTH, ask(WARM, f"{hops}", hops=hops, hops_max=1)), 0)
        sent = [each.to for each in effects if isinstance(each, Send)]
        assert [each for each in sent if each != SOUTH] == onward


def effects_of(router: Router, origin: Client | Neighbour, message: Message) -> list[Effect]:
    """Returns the effects of a message, with checked invariants."""
    effects = router.handle(Received(origin, message), 0)
    router.validate()
    return effects


def test_a_report_follows_the_items_of_its_source() -> None:
    """A source would count as answered before its items arrive."""
    router = router_with_sources((ANN, "1"), links="")
    effects_of(router, BOB, ask(WARM, window=2))
    said = answer(items=items(21, 22, 23), reports=(report("1", ANSWERED, 3),), is_last=True)
    assert effects_of(router, ANN, said) == [NotifyClient(BOB, answer(items=items(21, 22)))]
    assert effects_of(router, BOB, More("", "7", 5)) == [
        NotifyClient(
            BOB, answer(items=items(23), reports=(report("1", ANSWERED, 3),), is_last=True)
        )
    ]
    assert router.statistics().questions == 0


def test_nobody_is_granted_more_than_a_limit() -> None:
    """An asker with unlimited credit and no reads would fill a server's memory."""
    router = router_with_sources((ANN, "1"), links="", limits=RouterLimits(items_granted_max=3))
    effects_of(router, BOB, ask(WARM, window=10**9))
    counts = [len(items_to_bob(effects_of(router, ANN, answer(items=items(*range(8))))))]
    counts += [len(items_to_bob(effects_of(router, BOB, More("", "7", 10**9)))) for _ in range(2)]
    assert counts == [3, 3, 2]


def test_grants_add_up() -> None:
    """An asker that grants more before all of its items have arrived would wait for ever."""
    router = router_with_sources((ANN, "1"), links="")
    effects_of(router, BOB, ask(WARM, window=3))
    for count in (3, -1):
        assert effects_of(router, BOB, More("", "7", count)) == []
    assert len(items_to_bob(effects_of(router, ANN, answer(items=items(*range(9)))))) == 6


def items_to_bob(effects: list[Effect]) -> tuple[Notification, ...]:
    """Returns the items for the asker."""
    return tuple(
        item
        for each in effects
        if isinstance(each, NotifyClient) and isinstance(each.message, Answer)
        for item in each.message.items
    )


def test_a_branch_gets_more_as_its_items_leave() -> None:
    """A fast source would fill a server's memory, or stop forever."""
    router = router_with_sources((ANN, "1"), links="")
    effects_of(router, BOB, ask(WARM, window=10))
    effects_of(router, ANN, answer(items=items(*range(ANSWER_WINDOW))))
    half = ANSWER_WINDOW // 2
    assert effects_of(router, BOB, More("", "7", half - 11)) == [
        NotifyClient(BOB, answer(items=items(*range(10, half - 1))))
    ]
    assert effects_of(router, BOB, More("", "7", 1)) == [
        NotifyClient(ANN, More("", "7", half)),
        NotifyClient(BOB, answer(items=items(half - 1))),
    ]
    over = effects_of(router, ANN, answer(items=items(*range(half + 1))))
    assert over == [NotifyClient(ANN, Cancel("", "7"))]
    rest = effects_of(router, BOB, More("", "7", 1_000))
    (last,) = rest
    assert isinstance(last, NotifyClient)
    assert last.message == answer(
        items=items(*range(half, ANSWER_WINDOW)),
        reports=(report("1", FAILED, 0, "it sent more than was asked for"),),
        is_last=True,
    )


def test_a_limit_stops_the_remaining_sources() -> None:
    """Sources would continue in vain."""
    router = router_with_sources((ANN, "1"), (EVE, "2"), (NORTH, "1"))
    effects_of(router, BOB, ask(WARM, limit=3))
    effects_of(
        router, ANN, answer(items=items(1), reports=(report("1", ANSWERED, 1),), is_last=True)
    )
    assert effects_of(router, EVE, answer(items=items(2, 3, 4))) == [
        NotifyClient(BOB, answer(items=items(2, 3))),
        NotifyClient(EVE, Cancel("", "7")),
        Send(NORTH, Cancel("", "7")),
        NotifyClient(
            BOB, answer(reports=(report("2", STOPPED), report("@n", STOPPED)), is_last=True)
        ),
    ]


def test_at_the_deadline_missing_sources_are_reported() -> None:
    """The asker would wait forever, or take a part for the whole."""
    router = router_with_sources((ANN, "1"), (EVE, "2"), (NORTH, "1"))
    effects_of(router, BOB, ask(WARM))
    effects_of(router, NORTH, answer(reports=(report("x", ASKED), report("y", ASKED))))
    effects_of(router, NORTH, answer(items=items(9), reports=(report("x", ANSWERED, 1),)))
    effects_of(router, ANN, answer(reports=(report("1", EMPTY),), is_last=True))
    assert router.question_due_us == FURTHER
    assert router.handle(DeadlinePassed(), FURTHER - 1) == []
    assert router.handle(DeadlinePassed(), FURTHER) == [
        NotifyClient(EVE, Cancel("", "7")),
        Send(NORTH, Cancel("", "7")),
        NotifyClient(
            BOB,
            answer(
                reports=(
                    report("2", TIMED_OUT), report("y", TIMED_OUT), report("@n", TIMED_OUT)
                ),
                is_last=True,
            ),
        ),
    ]  # fmt: skip
    assert router.statistics().questions == 0
    assert effects_of(router, EVE, answer(items=items(1))) == []
    router.validate()


def test_unsent_items_at_the_deadline_are_missing() -> None:
    """A source would count as answered, although its items never left a server."""
    router = router_with_sources((ANN, "1"), links="")
    effects_of(router, BOB, ask(WARM, window=1))
    said = answer(items=items(1, 2), reports=(report("1", ANSWERED, 2),), is_last=True)
    assert effects_of(router, ANN, said) == [NotifyClient(BOB, answer(items=items(1)))]
    assert router.handle(DeadlinePassed(), SECOND) == [
        NotifyClient(BOB, answer(reports=(report("1", TIMED_OUT, 2),), is_last=True))
    ]


def test_there_is_no_time_to_ask_anyone() -> None:
    """A query would return after its asker's deadline."""
    router = router_with_sources((ANN, "1"), (NORTH, "1"))
    assert effects_of(router, BOB, ask(WARM, timeout_us=2_000)) == [
        NotifyClient(
            BOB, answer(reports=(report("1", TIMED_OUT), report("@n", TIMED_OUT)), is_last=True)
        )
    ]


@pytest.mark.parametrize(
    ("event", "gone"), [(LinkDown(NORTH), ["x", "@n"]), (ClientGone(ANN), ["1"])]
)
def test_lost_sources_are_reported(event: LinkDown | ClientGone, gone: list[str]) -> None:
    """A query would wait for a lost source, and the gap be unknown."""
    router = router_with_sources((ANN, "1"), (NORTH, "1"))
    effects_of(router, BOB, ask(WARM))
    effects_of(router, NORTH, answer(reports=(report("x", ASKED), report("y", ASKED))))
    effects_of(router, NORTH, answer(reports=(report("y", EMPTY),)))
    (last_answer,) = (each for each in router.handle(event, 0) if isinstance(each, NotifyClient))
    assert last_answer == NotifyClient(
        BOB, answer(reports=tuple(report(it, LOST, 0, "its connection was lost") for it in gone))
    )
    router.validate()


@pytest.mark.parametrize("how", ["cancel", "link down"])
def test_nobody_answers_a_cancelled_query(how: str) -> None:
    """Sources would work for a disconnected asker."""
    router = router_with_sources((ANN, "1"), (NORTH, "1"))
    effects_of(router, SOUTH, ask(WARM))
    event = Received(SOUTH, Cancel("", "7")) if how == "cancel" else LinkDown(SOUTH)
    effects = [
        each
        for each in router.handle(event, 0)
        if isinstance(each, NotifyClient | Send) and isinstance(each.message, Cancel)
    ]
    assert effects == [NotifyClient(ANN, Cancel("", "7")), Send(NORTH, Cancel("", "7"))]
    assert router.statistics().questions == 0
    router.validate()


def test_a_client_may_ask_its_own_sources() -> None:
    """It would miss the end of its source, or its query be held forever."""
    router = router_with_sources((ANN, "1"), (BOB, "2"), links="")
    effects_of(router, ANN, ask(WARM))
    effects_of(router, ANN, answer(reports=(report("1", EMPTY),), is_last=True))
    for event in (Received(BOB, answer(is_last=True)), ClientGone(ANN)):
        router.handle(event, 0)
        router.validate()
    assert router.statistics().questions == 0
    effects_of(router, BOB, ask(WARM, "8"))
    assert router.handle(ClientGone(BOB), 0) == []
    router.validate()


def test_sources_of_one_name_end_one_by_one() -> None:
    """Two servers may have sources of one name: both would end with the first, or neither."""
    router = router_with_sources((NORTH, "1"))
    effects_of(router, BOB, ask(WARM))
    effects_of(router, NORTH, answer(reports=(report("1", ASKED),) * 2))
    effects_of(router, NORTH, answer(reports=(report("1", EMPTY),)))
    lost = [report(name, LOST, 0, "its connection was lost") for name in ("1", "@n")]
    assert router.handle(LinkDown(NORTH), 0)[-1] == last_answer(*lost)


def test_only_the_asker_grants_or_cancels() -> None:
    """A client could end, or see, another client's query."""
    router = router_with_sources((ANN, "1"), links="")
    effects_of(router, BOB, ask(WARM))
    for message in (Cancel("", "7"), More("", "7", 3), answer(is_last=True)):
        assert effects_of(router, EVE, message) == []
    assert router.statistics().questions == 1


def test_a_client_speaks_for_its_own_sources_only() -> None:
    """One source could report another one as answered."""
    router = router_with_sources((ANN, "1"), (EVE, "2"), links="")
    effects_of(router, BOB, ask(WARM))
    assert effects_of(router, ANN, answer(reports=(report("2", EMPTY), report("3", ASKED)))) == []
    assert effects_of(router, ANN, answer(is_last=True)) == [
        NotifyClient(BOB, answer(reports=(report("1", FAILED, 0, "it ended without a report"),)))
    ]


def test_a_forwarding_neighbour_is_always_answered() -> None:
    """A server would wait for a neighbour that has refused its query."""
    router = router_with_sources((ANN, "1"))
    again = ask(WARM)
    effects_of(router, BOB, again)
    effects = router.handle(Received(NORTH, again), 0)
    assert effects == [
        Refused(Received(NORTH, again), Reason.DUPLICATE),
        Send(NORTH, answer(is_last=True)),
    ]
    wrong = ask(WARM, "8", window=0)
    (_, last) = router.handle(Received(NORTH, wrong), 0)
    assert last == Send(
        NORTH,
        answer(
            identity="8",
            reports=(report("@", FAILED, 0, str(Reason.WRONG_QUESTION)),),
            is_last=True,
        ),
    )


@pytest.mark.parametrize(
    ("origin", "question", "reason"),
    [
        (ANN, ask(WARM, "1", version=VERSION + 1), Reason.VERSION),
        (ANN, ask(WARM, "1", hops=-1), Reason.TOO_MANY_HOPS),
        (ANN, ask(WARM, "1", hops=255), Reason.TOO_MANY_HOPS),
        (ANN, ask(WARM, "1", source="s"), Reason.WRONG_OWNER),
        (ANN, ask(WARM, ""), Reason.NO_IDENTITY),
        (ANN, ask(WARM, "known"), Reason.DUPLICATE),
        (ANN, ask(WARM, "1", timeout_us=0), Reason.WRONG_QUESTION),
        (ANN, ask(WARM, "1", timeout_us=QUESTION_TIME_MAX_US + 1), Reason.WRONG_QUESTION),
        (ANN, ask(WARM, "1", window=0), Reason.WRONG_QUESTION),
        (ANN, ask(WARM, "1", limit=-1), Reason.WRONG_QUESTION),
        (Neighbour("x"), ask(WARM, "1"), Reason.UNKNOWN_NEIGHBOUR),
        (Client("@patterns"), ask(WARM, "1"), Reason.UNKNOWN_CLIENT),
    ],
)
def test_what_makes_no_sense_is_refused(
    origin: Client | Neighbour, question: Ask, reason: Reason
) -> None:
    """A query would loop, be answered twice, or have no origin."""
    router = Router(name="s")
    router.handle(Received(ANN, ask(WARM, "known")), 0)
    event = Received(origin, question)
    assert router.handle(event, 0) == [Refused(event, reason)]
    assert router.statistics().refused == {reason: 1}
    router.validate()


@pytest.mark.parametrize("timeout_us", [1, QUESTION_TIME_MAX_US])
def test_the_least_and_the_greatest_time_out_are_allowed(timeout_us: int) -> None:
    """A query would be refused though its time-out is documented as allowed."""
    effects = Router(name="s").handle(Received(ANN, ask(WARM, "1", timeout_us=timeout_us)), 0)
    assert not any(isinstance(each, Refused) for each in effects)


def test_a_query_and_a_notification_may_share_an_identity() -> None:
    """One of them would be dropped as a duplicate."""
    router = Router(name="s")
    notification = Notification({"a": 1}, envelope=Envelope(id="1", publisher=""))
    for message in (Publish((notification,)), ask(WARM, "1")):
        effects = router.handle(Received(ANN, message), 0)
        assert not any(isinstance(each, Refused) for each in effects)


def test_a_refusal_names_the_fault_of_a_query() -> None:
    """The asker would have to guess."""
    router = Router()
    nothing = Query("temperature > 20 and temperature < 10")
    (refused,) = router.handle(Received(ANN, ask(nothing)), 0)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, UnsatisfiableFilterError)
    for asker, identity in (("a" * 256, "1"), ("ann", "1" * 256)):
        (refused,) = router.handle(Received(ANN, ask(WARM, identity, asker=asker)), 0)
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, LimitError)
        assert refused.error.size == 256


@pytest.mark.parametrize(
    ("limit", "made"),
    [
        ("questions_max", lambda router: effects_of(router, BOB, ask(WARM, "first"))),
        ("question_sources_max", lambda router: effects_of(router, ANN, Describe("3", (SENSOR,)))),
    ],
)
def test_tables_have_limits(limit: str, made: Callable[[Router], object]) -> None:
    """One client could fill a server."""
    router = router_with_sources((ANN, "1"), links="", limits=RouterLimits(**{limit: 1}))
    made(router)
    (refused,) = effects_of(router, BOB, ask(WARM))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, LimitError)
    assert refused.error.limit == limit


def test_deadlines_of_ended_queries_are_forgotten() -> None:
    """A server would hold the deadline of each ended query."""
    router = router_with_sources((ANN, "1"), links="")
    for number in range(1_000):
        effects_of(router, BOB, ask(WARM, f"{number}"))
        effects_of(router, ANN, answer(identity=f"{number}", is_last=True))
    held = router._queries._due
    assert len(held) <= 128


def test_finding_the_sources_of_a_query_is_charged_as_work() -> None:
    """A client could block a server by a query of many disjuncts."""
    router = router_with_sources((ANN, "a"))
    many = ask(WARM)
    many = replace(many, alternatives=many.alternatives * 1_000)
    with pytest.raises(LimitError), Work("WORK", 10_000):
        router.handle(Received(BOB, many), 0)
    assert not router.statistics().questions


def test_the_descriptions_that_a_query_meets_are_bounded() -> None:
    """A query of many alternatives at a server with many sources would hold its loop for long."""
    router = router_with_sources(links="")
    for number in range(50):
        offer = Filter({"room": number})
        router.handle(Received(ANN, Describe(str(number), (offer,))), 0)
    disjuncts = tuple(Disjunct(Query(f"floor = {number}")) for number in range(10))
    question = Ask(disjuncts, "", "7", SECOND, ANSWER_WINDOW)
    with pytest.raises(LimitError), Work("WORK", 1_000):
        router.handle(Received(BOB, question), 0)
    assert not router.knows(BOB)
    with Work("WORK", 2_000):
        (asked, *_) = router.handle(Received(BOB, question), 0)
    assert isinstance(asked, DeliverQuestion)
