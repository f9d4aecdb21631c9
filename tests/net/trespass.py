"""Principals that try everything at brokers, and a check of their reads and writes.

Each principal has other rights, and makes random use of all of a client's abilities: filters of all
kinds, unknown operators, rules of other dialects, classes of obvents, patterns, queries with
variables, offers, unasked answers, durable subscriptions and publications under any name, by TCP
and by HTTP. Each notification has a number of its own, which identifies its real publisher. The
final checks:

- each received notification matches a subscribe filter of its reader;
- its publisher may publish it, under the name that it has;
- a neighbour with limited rights got only subscriptions that it may publish for, and offers that it
  may read; and its offers are within its publish rights.

In a network the brokers `near`, `far` and `end` are in a line, and forward and merge in one of the
ways of brokers. `far` has limited rights at `near`, and `end` at `far`: all messages over a link
are held to these rights, whatever their origin.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import msgspec

import contrada as ct
from contrada.connections import connect
from contrada.delivery.delivery_messages import CloseLog
from contrada.errors import ContradaError, NotPermittedError, ServiceError
from contrada.integrations.http import Gateway, local_services
from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.product import product_meets
from contrada.model.algebra.value_set import ABSENT
from contrada.model.codec import from_msgpack
from contrada.model.domains.line import EMPTY
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.users import Users, UserSettings
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.durable_messages import AskLog, AskRecordBatch, LogState, RecordBatch
from contrada.net.wire.durable_messages import encode_durable as promised
from contrada.net.wire.frames import AboutQuestions
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.tokens import new_token
from contrada.routing.interest_forwarder import Strategy
from contrada.routing.router_messages import (
    Advertise,
    Answer,
    Cancel,
    Message,
    More,
    SourceReport,
    SourceState,
    Subscribe,
)
from contrada.service.dispatch_routes import LinkRoute
from contrada.service.security.principals import Principal, free, owns
from contrada.typed.type_names import marks_of
from tests.asynchronous import until
from tests.net.networks import are_linked
from tests.service.security.singles import singles

FILTERS: Final = (
    *("k = 1", "k = 2", "k in (1, 3)", "k < 2", "k >= 2", "k any", "k != 1", "not (k = 2)"),
    *("s prefix 'a'", "s suffix 'b'", "s contains 'ab'", "s = nocase 'AB'", "s matches '^a+b'"),
    *("s wildcard 'a*b?'", "s any", "k = 1 and s prefix 'a'", "k = 1 or s = 'ab'", "s absent"),
    *("k = 1 and s any", "k < 3 and not (s suffix 'b')", "@publisher any", "k between 1 and 2"),
    *("k = 2 and s absent", "not (s any) and k any", "k in (0, 1, 2, 3)", "s in ('a', 'ab')"),
    *("@is.trespass.Dear any", "@is.trespass.Paper any and k < 2", "@is.trespass.Dear absent"),
)
RULES: Final = (
    *(("cesql", rule) for rule in ("k = 1", "s LIKE 'a%'", "k % 2 = 1", "NOT EXISTS s", "TRUE")),
    *(("cesql", rule) for rule in ("LENGTH(s) > 1 AND k < 2", "k = 2 OR UPPER(s) = 'AB'")),
    *(("sql", rule) for rule in ("k BETWEEN 1 AND 2", "s LIKE '%b' OR k IS NULL", "k <> 1")),
    *(("eventbridge", rule) for rule in ('{"k": [1, 2]}', '{"s": [{"prefix": "a"}]}')),
    *(
        ("cloudevents", rule)
        for rule in ('{"exact": {"s": "ab"}}', '{"not": {"prefix": {"s": "b"}}}')
    ),
)
"""Rules of other dialects, some of which have no exact filters."""
QUESTIONS: Final = (
    "k = $x and n = $x",
    "s = $x and k any",
    "k = $x and k != 1",
    "k < 2 and s = $x",
)
TEXTS: Final = ("a", "ab", "AB", "b", "aab", "ba", "abx", "")
NAMES: Final = ("p0", "p1", "p2", "far")
LINKED: Final = ("far", "end")
SECRETS: Final = {name: new_token(name) for name in (*NAMES, "end", "free")}
UNKNOWN: Final = Filter.of_sets({"s": ct.ValueSet(EMPTY, Literal(Atom("unknown", b"a"), True))})
"""With an operator that nobody has registered."""
WAIT_S: Final = 600.0
"""Seconds of a query, longer than a world lasts: many sources are silent, and none is too late."""


@dataclass
class Paper(ct.Obvent, name="trespass.Paper"):
    n: int
    k: int
    s: str


@dataclass
class Dear(Paper, name="trespass.Dear"):
    pass


CLASSES: Final = (Paper, Dear)
ANY: Final = Filter("n any").sides["n"]
ATTRIBUTES: Final = (
    *("n", "k", "s", "specversion", "id", "source", "type"),
    *dict.fromkeys(mark for it in CLASSES for mark in marks_of(it)),
)
"""All that is published."""
PREDICATES: Final[tuple[Any, ...]] = (
    *(None, lambda it: it.k == 1, lambda it: it.k > 1 and len(it.s) > 1),
    *(lambda it: it.s.startswith("a"), lambda it: it.n % 2 == 0),
)


@dataclass
class Trespasser:
    """A principal, its connection, and its deliveries by their way."""

    principal: Principal
    service: TcpService
    held_to: tuple[Principal, ...]
    """Returns the rights of the links from the first broker to its own."""
    headers: dict[str, str] | None
    """Returns its HTTP headers for the first broker."""
    got: list[tuple[str, Notification]] = field(default_factory=list)
    readers: list["asyncio.Task[None]"] = field(default_factory=list)
    subscriptions: list[Any] = field(default_factory=list)


class World:
    """Brokers, principals, and their random steps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = itertools.count(1)
        self.wrote: dict[int, Trespasser] = {}
        self.items: dict[int, Notification] = {}
        """As they were written."""
        self.all: list[Trespasser] = []
        self.kept = ["p0"]
        """Names of durable subscriptions that there are."""
        self.done: dict[str, int] = {}
        self.told: list[tuple[Principal, bool, Message]] = []
        """Messages over links: the rights, the direction, and the message."""
        self.refused = 0
        self.stack = AsyncExitStack()

    # --- the network --------------------------------------------------------------------------

    def settings(self, name: str) -> UserSettings:
        """Returns random rights of a principal; fewer of a neighbour, so it rarely has all."""
        many = (1, 1, 2) if name in LINKED else (1, 2, 3, 4)
        return UserSettings(
            token=SECRETS[name][1],
            publish=self.chance.sample(FILTERS, self.chance.choice(many)),
            subscribe=self.chance.sample(FILTERS, self.chance.choice(many)),
            narrow=self.chance.random() < 0.8,
            link=name in LINKED,
        )

    async def begin(self, *, is_network: bool) -> None:
        """The brokers, and a connection of each principal."""
        chance = self.chance
        users = Users.of("here", {name: self.settings(name) for name in NAMES})
        strategy, merging = (
            chance.choice([*Strategy, Strategy.SUBSCRIPTIONS]),
            chance.random() < 0.5,
        )

        def member(name: str, *neighbours: WantedLink) -> Membership:
            token = SECRETS.get(name, ("",))[0]
            return Membership(
                *(name, False, 0, strategy, merging),
                slack_us=1000,
                neighbours=neighbours,
                token=token,
            )

        stack = self.stack
        store = Path(stack.enter_context(TemporaryDirectory())) / "store.db"
        near = Broker(
            port=0, users=users, network=member("near") if is_network else None, store=store
        )
        self.brokers = [await stack.enter_async_context(near)]
        gateway = await stack.enter_async_context(Gateway(local_services(near), port=0))
        self.http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=gateway.address, timeout=20)
        )
        for name in NAMES[:3]:
            await self.join(near, users.principals[name], SECRETS[name][0])
        if is_network:
            await self.begin_network(users.principals["far"], member)
        chance.shuffle(self.all)
        for who in self.all:  # Else nothing could be published where it has to be advertised.
            for one in who.principal.publish.filters:
                with suppress(ContradaError):
                    await who.service.advertise(self.offered(one)).open()

    async def begin_network(self, may: Principal, member: Callable[..., Membership]) -> None:
        """Two brokers more, the last of which has no users; the link of the first may do this."""
        theirs = Users.of(
            "there",
            {
                "free": UserSettings(
                    SECRETS["free"][1], publish=True, subscribe=True, publishers=["*"]
                ),
                "end": self.settings("end"),
            },
        )
        bounds: tuple[Principal, ...] = (may,)
        self.listen(self.brokers[0], "far", may, is_to_it=False)
        for name, users in (("far", theirs), ("end", None)):
            at = WantedLink(parse_address(self.brokers[-1].address))
            broker = Broker(port=0, network=member(name, at), users=users)
            self.listen(broker, "near" if name == "far" else "far", bounds[-1], is_to_it=True)
            if name == "far":
                self.listen(broker, "end", theirs.principals["end"], is_to_it=False)
            self.brokers.append(await self.stack.enter_async_context(broker))
            for number in range(2):
                who = free(f"{name}{number}")
                await self.join(broker, who, SECRETS["free"][0] if users else "", bounds)
            bounds = (*bounds, theirs.principals["end"])
        await until(lambda: are_linked(self.brokers, 2))

    def listen(self, broker: Broker, to: str, may: Principal, *, is_to_it: bool) -> None:
        """Notes the messages that a broker accepts from a neighbour with these rights."""
        dispatcher, hear = broker.dispatcher, broker.dispatcher.receive

        def noting(link: LinkRoute, message: Message) -> Any:
            if link.neighbour.name == to:
                self.told.append((may, is_to_it, message))
            return hear(link, message)

        dispatcher.receive = noting  # type: ignore[method-assign]

    async def join(
        self, broker: Broker, who: Principal, token: str, held_to: tuple[Principal, ...] = ()
    ) -> None:
        """A connection of a principal."""
        service = connect(broker.address, token=token, publisher=who.name, reconnect=False)
        assert isinstance(service, TcpService)
        await self.stack.enter_async_context(service)
        headers = None if held_to else {"authorization": f"Bearer {token}"}
        self.all.append(Trespasser(who, service, held_to, headers))

    def notification(
        self, who: Trespasser, *, sometimes_other: bool = True, chance: random.Random | None = None
    ) -> Notification:
        """Returns a new notification with a known publisher."""
        chance, number = chance or self.chance, next(self.numbers)
        attributes: dict[str, Any] = {"n": number}
        if chance.random() < 0.8:
            attributes["k"] = chance.choice((0, 1, 2, 3, [0, 1], [1, 2], [0, 3]))
        if chance.random() < 0.6:
            attributes["s"] = chance.choice((*TEXTS, ["a", "b"], ["ab", "x"]))
        self.wrote[number] = who
        name = who.principal.name
        if sometimes_other:
            name = chance.choice((name,) * 5 + ("p0", "p1", f"{name}/x", f"{name}x", "far", ""))
        envelope = Envelope(f"{name}.{number}", name, number, 1_700_000_000_000_000)
        self.items[number] = Notification(attributes, envelope=envelope)
        return self.items[number]

    def obvent(self, who: Trespasser) -> Paper:
        """Returns a new object with a known publisher."""
        number = next(self.numbers)
        made = self.chance.choice(CLASSES)(
            number, self.chance.randrange(4), self.chance.choice(TEXTS)
        )
        self.wrote[number] = who
        envelope = Envelope(publisher=who.principal.name)
        self.items[number] = made.to_notification().with_envelope(envelope)
        return made

    def filters(self, who: Trespasser, *, writes: bool = False) -> Any:
        """Returns random filters, often close to the rights."""
        chance = self.chance
        mine = who.principal.publish if writes else who.principal.subscribe
        one = FilterSet(chance.choice(FILTERS))
        kind = chance.randrange(10)
        if kind > 6 and mine.filters:
            return FilterSet([chance.choice(mine.filters)])
        if kind == 6:
            return mine & one
        other = FilterSet(chance.choice(FILTERS))
        if kind == 0:
            return FilterSet([*one.filters, *other.filters])
        if kind == 1:
            return one & other
        if kind == 2:
            return FilterSet((~one).filters[:20])
        if kind == 3:
            return Filter({})
        if kind == 4 and not writes:
            return FilterSet([UNKNOWN if self.chance.random() < 0.5 else UNKNOWN & one.filters[0]])
        return one

    def one(self, who: Trespasser, *, writes: bool = False) -> Filter:
        """Returns a random filter."""
        found: FilterSet = self.filters(who, writes=writes)
        return self.chance.choice(found.filters or (Filter({}),))

    # --- the actions --------------------------------------------------------------------------

    async def step(self) -> None:
        """One of them does something."""
        act = self.chance.choice(ACTS)
        by_http = act in (World.stream, World.post)
        who = self.chance.choice([each for each in self.all if each.headers or not by_http])
        name = act.__name__
        try:
            await asyncio.wait_for(act(self, who), 20)
            self.done[name] = self.done.get(name, 0) + 1
        except NotPermittedError:
            self.refused += 1
        except ContradaError as error:
            self.done[f"{name}: {type(error).__name__}"] = 1

    def read(self, who: Trespasser, way: str, events: AsyncIterator[Any]) -> None:
        """Notes all deliveries."""

        async def reading() -> None:
            with suppress(ContradaError, httpx.HTTPError):
                async for each in events:
                    self.note(who, way, each)

        who.readers.append(asyncio.ensure_future(reading()))

    def note(self, who: Trespasser, way: str, it: Any) -> None:
        """Somebody got something."""
        if isinstance(it, Notification):
            who.got.append((way, it))
        elif isinstance(it, Paper | int):
            number = it if isinstance(it, int) else it.n
            who.got.append((way, self.items[number]))
        else:
            for each in getattr(it, "notifications", [getattr(it, "item", None)]):
                if isinstance(each, Notification):
                    who.got.append((way, each))

    async def subscribe(self, who: Trespasser) -> None:
        """Subscribes to random filters."""
        events = who.service.subscribe(self.filters(who))
        await events.open()
        who.subscriptions.append(events)
        self.read(who, "subscription", events)

    async def subscribe_to_class(self, who: Trespasser) -> None:
        """A class of obvents, with a predicate."""
        chosen = self.chance.choice(PREDICATES)
        events = who.service.subscribe(self.chance.choice(CLASSES), chosen)
        await events.open()
        self.read(who, "obvents", events)

    async def stream(self, who: Trespasser) -> None:
        """Events by HTTP, by a rule of another dialect."""
        dialect, rule = self.chance.choice(RULES)
        asked = self.http.build_request(
            "GET", "/subscribe", params={"filter": rule, "dialect": dialect}, headers=who.headers
        )
        answer = await self.http.send(asked, stream=True)
        self.stack.push_async_callback(answer.aclose)
        _check_status(answer)

        async def numbers() -> AsyncIterator[int]:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event = msgspec.json.decode(line.removeprefix("data: "))
                    yield event["n"] if "n" in event else event["data"]["n"]

        self.read(who, "event stream", numbers())

    async def post(self, who: Trespasser) -> None:
        """Events by HTTP."""
        batch: list[dict[str, Any]] = []
        for each in (self.notification(who) for _ in range(self.chance.choice((1, 5)))):
            plain = {name: it for name, it in each.items() if isinstance(it, int | str)}
            number = int(plain["n"])
            event = {"specversion": "1.0", "id": f"e{number}", "source": "/x", "type": "t", **plain}
            batch.append(event)
            envelope = Envelope(publisher=who.principal.name)
            self.items[number] = Notification(event, envelope=envelope)
        answer = await self.http.post(
            "/events",
            content=msgspec.json.encode(batch),
            headers={"content-type": "application/cloudevents-batch+json", **(who.headers or {})},
        )
        _check_status(answer)

    async def publish_obvents(self, who: Trespasser) -> None:
        """Objects."""
        await who.service.publish_batch([self.obvent(who) for _ in range(4)])

    async def ask_with_variables(self, who: Trespasser) -> None:
        """A question that asks for equal values."""
        answers = who.service.query(self.chance.choice(QUESTIONS), timeout_s=WAIT_S)
        await answers.open()
        self.read(who, "answer with equal values", answers)

    async def update(self, who: Trespasser) -> None:
        """One in force asks for something else."""
        if who.subscriptions:
            await self.chance.choice(who.subscriptions).update(self.filters(who))

    async def watch(self, who: Trespasser) -> None:
        """A pattern."""
        parts = [self.one(who) for _ in range(2)]
        events = who.service.subscribe(Pattern(parts, every=self.chance.random() < 0.5))
        await events.open()
        self.read(who, "pattern", events)

    async def keep(self, who: Trespasser) -> None:
        """Makes a durable subscription, and its dead letters, under random names."""
        name = self.chance.choice([*NAMES[:3], f"{who.principal.name}/{self.chance.randrange(3)}"])
        filters = None if self.chance.random() < 0.3 else self.filters(who)
        options: dict[str, Any] = {"reliable": True}
        used: list[str] = []
        if filters is None or self.chance.random() < 0.7:
            dead = self.chance.choice(("", "", "p0", "p1", f"{who.principal.name}/dead"))
            kept = ct.Retention(replay_max=100, attempts_max=1 if dead else 0, dead_letter=dead)
            options = {"durable": name, "retention": kept}
            used = [each for each in (name, dead) if each]
        events = who.service.subscribe(filters, **options)
        await events.open()
        assert all(owns(who.principal.durable, each) for each in used), used
        self.kept += used
        self.read(who, "log", events)

    async def look(self, who: Trespasser) -> None:
        """Reads records by position, of a random subscription."""
        logs = who.service.delivery()
        name = self.chance.choice(self.kept)
        answer = await logs._ask(promised(AskLog(name)))
        state = _result(answer.result, LogState)
        answer = await logs._ask(
            promised(AskRecordBatch(name, state.number, 1, state.next + 1, True))
        )
        stretch = _result(answer.result, RecordBatch)
        at = 0
        for length in memoryview(stretch.lengths).cast("I"):
            found = from_msgpack(stretch.data[at : at + length])
            assert isinstance(found, Notification)
            self.note(who, "stretch", found)
            at += length

    async def end_log(self, who: Trespasser) -> None:
        """Ends another one's durable subscription."""
        others = [name for name in NAMES if not owns(who.principal.durable, name)]
        if not others:
            return
        try:
            await who.service.delivery()._ask(promised(CloseLog(others[0], "", ends=True)))
        except NotPermittedError:
            raise
        raise AssertionError(f"{who.principal.name} has ended {others[0]}")

    async def publish(self, who: Trespasser) -> None:
        """Publishes one notification or a batch, in a random delivery class."""
        many = self.chance.choice((1, 1, 3, 12))
        items = [self.notification(who) for _ in range(many)]
        if self.chance.random() < 0.2:
            name = who.principal.name
            items = [self.notification(who, sometimes_other=False) for _ in range(many)]
            items = [each.with_envelope(Envelope(publisher=name)) for each in items]
            await who.service.publish_batch(items, delivery="reliable")
        else:
            await who.service.publish_batch(items)

    async def ask(self, who: Trespasser) -> None:
        """A question."""
        answers = who.service.query(self.one(who), timeout_s=WAIT_S)
        await answers.open()
        self.read(who, "answer", answers)

    async def combine(self, who: Trespasser) -> None:
        """Asks a combined query over one or two sources."""
        combined = who.service.compute(["min(n)", "max(n)"], self.one(who), timeout_s=WAIT_S)
        await combined.open()

        async def found() -> AsyncIterator[Notification]:
            async for group in combined:
                for number in (int(each) for each in group.values() if each is not None):
                    answered = Envelope(publisher=self.wrote[number].principal.name)
                    yield self.items[number].with_envelope(answered)  # As answers have it.

        self.read(who, "combined", found())

    async def offer(self, who: Trespasser) -> None:
        """Offers a source with random items, mostly under its own name."""
        name, number = who.principal.name, next(self.numbers)
        names = (*[f"{name}/{number}"] * 4, f"{name}.{number}", f"p1/{number}", "")
        own = random.Random(number)  # It is asked at any time, which must not change the steps.
        source = who.service.offer(
            self.one(who, writes=True),
            lambda _: [self.notification(who, chance=own) for _ in range(3)],
            name=self.chance.choice(names),
        )
        await source.open()
        self.stack.push_async_callback(_quietly, source.__aexit__)

    @staticmethod
    def offered(one: Filter) -> Advertisement:
        """Returns the principals that may read all publications here, as far as a filter shows."""
        return Advertisement.of_sets(dict.fromkeys(ATTRIBUTES, ANY) | dict(one.sides))

    async def advertise(self, who: Trespasser) -> None:
        """An advertisement."""
        await who.service.advertise(self.offered(self.one(who, writes=True))).open()

    async def say(self, who: Trespasser) -> None:
        """Sends unasked messages about queries of others."""
        chance = self.chance
        questions = self.brokers[0].dispatcher.router._queries._open
        known = [*questions, ("", "1")]
        # One draw, however many queries are open now: their number depends on the time.
        asker, identity = known[int(chance.random() * len(known))]
        items = tuple(self.notification(who) for _ in range(2))
        reports = (SourceReport("x", SourceState.ANSWERED, 2),)
        said: Any = chance.choice(
            [
                Answer(asker, identity, items, reports, is_last=chance.random() < 0.5),
                More(asker, identity, 5),
                Cancel(asker, identity),
            ]
        )
        who.service.reconnection.send(AboutQuestions([encode_message(said)]))

    # --- the checks ---------------------------------------------------------------------------

    async def settle(self, ways: Collection[str]) -> None:
        """Waits for deliveries in flight, and for one in each of these ways; for any without."""
        for who in self.all:  # The reply follows all earlier messages.
            with suppress(ContradaError):
                await who.service.subscribe("k = 1").open()
        await until(lambda: bool(self.ways()) and self.ways().issuperset(ways))

    def ways(self) -> set[str]:
        """Returns the ways of all deliveries so far."""
        return {way for each in self.all for way, _ in each.got}

    async def finish(self) -> None:
        """Ends the readers and the brokers."""
        tasks = [task for each in self.all for task in each.readers]
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await self.stack.aclose()
        for each in found:
            if isinstance(each, Exception):
                raise each  # Of a reader.

    def check(self) -> int:
        """AssertionError for a read or write beyond the rights. Returns the number of
        deliveries.
        """
        count = 0
        for reader in self.all:
            for way, it in reader.got:
                n = it["n"]
                assert isinstance(n, int)
                writer = self.wrote[n]
                assert reader.principal.subscribe.matches(it), (reader.principal, way, it)
                assert may_write(writer.principal, it), (writer.principal, way, it)
                for bound in writer.held_to[len(reader.held_to) :]:  # The links of its path.
                    assert may_write(bound, it), (bound, way, it)
                for bound in reader.held_to[len(writer.held_to) :]:
                    assert bound.subscribe.matches(it), (bound, way, it)
                count += 1
        for may, is_to_it, message in self.told:
            assert may_say(may, is_to_it, message), (may, is_to_it, message)
        return count


def may_write(principal: Principal, it: Notification) -> bool:
    """Returns whether a principal may have published this. Answers have no name."""
    is_covered = all(map(principal.publish.matches, singles(it)))
    return is_covered and owns(principal.publishers, it.envelope.publisher)


def may_say(may: Principal, is_to_it: bool, message: Message) -> bool:
    """Returns whether a message may cross a link with these rights."""
    if isinstance(message, Subscribe):
        # Its right to publish decides the announcements to it; its filters are checked on receipt.
        asked = message.filters.filters if is_to_it else ()
        return all(any(product_meets(it, each) for it in may.publish.filters) for each in asked)
    if not isinstance(message, Advertise):
        return True
    offer = message.offer
    if is_to_it:
        return any(product_meets(one, offer) for one in may.subscribe.filters)
    # Each attribute lies in that of one filter; that it is absent is no matter of offers.
    return any(
        all((one.set_of(name) | ABSENT).issuperset(it) for name, it in offer.sides.items())
        and all(name in offer.sides or it.meets(ABSENT) for name, it in one.sides.items())
        for one in may.publish.filters
    )


def _result(data: Any, kind: Any) -> Any:
    return msgspec.msgpack.decode(data, type=kind, dec_hook=lambda _, it: from_msgpack(it))


def _check_status(answer: httpx.Response) -> None:
    """Raises the error that TCP would raise; AssertionError for an unexpected refusal."""
    if answer.is_error:
        assert answer.status_code in (400, 403), answer.status_code
        raise NotPermittedError("") if answer.status_code == 403 else ServiceError("")


async def _quietly(leave: Callable[..., Any], *_: object) -> None:
    with suppress(ContradaError):
        await leave(None, None, None)


ACTS: Final = [
    *(World.subscribe, World.subscribe, World.update, World.watch, World.keep, World.look),
    *(World.publish,) * 8,
    *(World.ask, World.combine, World.offer, World.advertise, World.say, World.end_log),
    *(World.subscribe_to_class, World.stream, World.post, World.publish_obvents),
    World.ask_with_variables,
]


async def trespass(
    seed: int, steps: int, *, is_network: bool, ways: Collection[str] = ()
) -> tuple[int, World]:
    """One world of so many steps, and of a delivery in each of these ways: how much was got."""
    world = World(seed)
    try:
        await world.begin(is_network=is_network)
        for _ in range(steps):
            await world.step()
        await world.settle(ways)
    finally:
        await world.finish()
    return world.check(), world
