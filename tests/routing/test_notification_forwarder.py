"""`NotificationForwarder`: a batch has the effects of its notifications."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import LimitError
from contrada.model import Envelope, Filter, Notification
from contrada.model.languages.work_budget import Work
from contrada.routing.assembly.held_patterns import AHEAD, CLOCK_AHEAD_MAX_US
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Adjacency,
    Advertise,
    Client,
    Deliver,
    Effect,
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
)

LINKS = [Neighbour("L"), Neighbour("M")]
PARTIES: list[Client | Neighbour] = [Client("ann"), Client("bob"), *LINKS]
PUBLISHER = Client("p")


def router_with(subscriptions: Iterable[tuple[int, int]], name: str = "") -> Router:
    """Returns a router with two links, and subscriptions for `a` up to some number."""
    router = Router(name=name)
    for neighbour in LINKS:
        router.handle(LinkUp(neighbour, Role.PEER), 0)
    for number, (party, most) in enumerate(subscriptions):
        request = Subscribe(str(number), Filter(f"a <= {most}"))
        router.handle(Received(PARTIES[party], request), 0)
    return router


def received_by(effects: Iterable[Effect]) -> dict[Any, list[str]]:
    """Returns the notifications of each subscription and link, in order."""
    got: dict[Any, list[str]] = defaultdict(list)
    for effect in effects:
        if isinstance(effect, Deliver):
            for identity in effect.subscriptions:
                got[effect.client, identity] += [e.envelope.id for e in effect.notifications]
        elif isinstance(effect, Send) and isinstance(effect.message, Publish):
            assert effect.message.hops == 1
            got[effect.to] += [e.envelope.id for e in effect.message.notifications]
    return got


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8),
    st.lists(st.integers(0, 5), max_size=10),
)
def test_a_batch_has_the_effects_of_its_notifications(
    subscriptions: list[tuple[int, int]], values: list[int]
) -> None:
    """A subscriber would miss some of a batch, or get them in another order."""
    batch = tuple(
        Notification({"a": value}, envelope=Envelope(id=f"{number}"))
        for number, value in enumerate(values)
    )
    whole = router_with(subscriptions).handle(Received(PUBLISHER, Publish(batch)), 0)
    router = router_with(subscriptions)
    singly: list[Effect] = []
    for each in batch:
        singly += router.handle(Received(PUBLISHER, Publish((each,))), 0)
    assert received_by(whole) == received_by(singly)
    links = [effect.to for effect in whole if isinstance(effect, Send)]
    assert links == sorted(set(links)), "one message for each link"


def test_one_that_is_refused_costs_the_others_nothing() -> None:
    """A duplicate would suppress the rest of its batch."""
    one, two = (Notification({"a": 1}, envelope=Envelope(id=each)) for each in ("1", "2"))
    router = router_with([(0, 4)], name="here")
    effects = router.handle(Received(PUBLISHER, Publish((one, one, two))), 0)
    refused = [effect for effect in effects if isinstance(effect, Refused)]
    assert [effect.reason for effect in refused] == [Reason.DUPLICATE]
    assert refused[0].event == Received(PUBLISHER, Publish((one,)))
    assert received_by(effects) == {(PARTIES[0], "0"): ["1", "2"]}
    counts = router.statistics()
    assert (counts.received["Publish"], counts.delivered) == (2, 2)


def test_excessive_work_leaves_no_trace() -> None:
    """A retried notification would be a duplicate and lost, or an expired one counted twice."""
    router = Router(Strategy.ADVERTISEMENTS, name="here")
    offer = Filter("t matches '(a|b)*c(a|b){50,90}'")
    router.handle(Received(PUBLISHER, Advertise("1", offer)), 0)
    router.handle(Received(PARTIES[0], Subscribe("0", Filter("t any"))), 0)
    values = [{"t": "c" + "ab" * (25 + n)} for n in range(8)]
    batch = tuple(
        Notification(each, envelope=Envelope(id=str(n)))
        for n, each in enumerate([*values, {"t": "d"}])
    )
    batch += (Notification({}, envelope=Envelope(id="late", time_us=0, ttl_us=0)),)
    effects: list[Effect] = []
    for steps in itertools.count():
        try:
            with Work("BATCH_WORK_MAX", steps, is_strict=True):
                effects = router.handle(Received(PUBLISHER, Publish(batch)), 0)
            break
        except LimitError:
            pass
    assert steps > len(batch)
    reasons = [effect.reason for effect in effects if isinstance(effect, Refused)]
    assert reasons == [Reason.NOT_ADVERTISED]
    assert received_by(effects) == {(PARTIES[0], "0"): [*"01234567"]}
    assert router.expired == 1


def test_each_advertisement_of_a_publisher_is_charged_alike() -> None:
    """A publisher with many advertisements could publish nothing, or large batches for nothing."""
    router = Router(Strategy.ADVERTISEMENTS)
    for number in range(50):
        offer = Advertise(str(number), Filter({"a": number}))
        router.handle(Received(PUBLISHER, offer), 0)
    batch = Publish((Notification({"a": 49}),) * 10)
    with pytest.raises(LimitError), Work("BATCH_WORK_MAX", 1_900):
        router.handle(Received(PUBLISHER, batch), 0)
    with Work("BATCH_WORK_MAX", 2_500):
        assert router.handle(Received(PUBLISHER, batch), 0) == []


def test_times_that_are_not_believed_are_counted_one_by_one() -> None:
    """One wrong clock in a batch would hide correct times, or not be counted."""
    times_us = [10, 2 * CLOCK_AHEAD_MAX_US, 20, None, 3 * CLOCK_AHEAD_MAX_US]
    batch = tuple(Notification({}, envelope=Envelope(time_us=each)) for each in times_us)
    together, singly = router_with([]), router_with([])
    together.handle(Received(PUBLISHER, Publish(batch)), 0)
    for each in batch:
        singly.handle(Received(PUBLISHER, Publish((each,))), 0)
    told = together.pattern_statistics()
    assert told == singly.pattern_statistics()
    assert (told.learned_us, told.dropped[AHEAD]) == (20, 2)


def timed(id_: str, ttl_us: int | None, delivery: str = "best-effort") -> Notification:
    """A notification of the time 100."""
    envelope = Envelope(id=id_, publisher="p", time_us=100, ttl_us=ttl_us, delivery=delivery)
    return Notification({"a": 1}, envelope=envelope)


def test_expired_notifications_are_dropped_and_counted() -> None:
    """A reader would get an expired notification, or a valid or reliable one would be dropped."""
    router = router_with([(0, 4), (2, 4)])
    late, good, sure = timed("late", 10), timed("good", 11), timed("sure", 1, "reliable")
    every = late, good, timed("any", None), sure
    got = received_by(router.handle(Received(PUBLISHER, Publish(every)), 110))
    in_time = ["good", "any", "sure"]
    assert got == {(PARTIES[0], "0"): in_time, LINKS[0]: in_time}
    assert router.statistics().expired == 1
    assert router.statistics().received == {"Subscribe": 2, "Publish": 3}
    over = Publish((timed("over", 10),), hops=1)
    assert router.handle(Received(LINKS[1], over), 110) == []
    assert router.statistics().expired == 2


def test_the_disuse_of_a_link_has_a_reason() -> None:
    """The disuse of a link would have no visible reason."""
    assert router_with([], "here").links() == [
        (Adjacency(each.name, Role.PEER), Reason.UNCONFIRMED) for each in LINKS
    ]
    assert [why for _, why in router_with([]).links()] == [None, None]


def test_a_client_cannot_forge_the_source_of_a_publication() -> None:
    """A forged message, or one of another version, would pass as a local publication."""
    router, it = Router(), Notification({"a": 1})
    for message, reason in (
        (Publish((it,), source="x"), Reason.WRONG_OWNER),
        (Publish((it,), version=2), Reason.VERSION),
        (Publish((it,), hops=-1), Reason.TOO_MANY_HOPS),
    ):
        event = Received(Client("c"), message)
        assert router.handle(event, 0) == [Refused(event, reason)]
