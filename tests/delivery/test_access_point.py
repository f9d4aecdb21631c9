"""`AccessPoint`: a publication is accepted or fails as a whole, once, in order."""

from collections import deque

import pytest

from contrada.delivery import access_point
from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Notice, Shipment, StreamAck, Transfer
from contrada.delivery.inbox import Inbox
from contrada.delivery.orders import Causality
from contrada.delivery.outbox import SPOOL, Outbox, Posting
from contrada.delivery.publishers import ASK_AGAIN_US, Publisher, Publishers
from contrada.delivery.store import Notes
from contrada.delivery.transit import SendMessage
from contrada.errors import CannotPublishError, InvalidValueError, LimitError
from contrada.model import Notification
from tests.delivery.network import DeliveryNetwork, notice


def error_of(net: DeliveryNetwork, token: int) -> Exception:
    """Returns the error of a publication."""
    outcome = net.outcomes[token]
    assert isinstance(outcome, Failed)
    return outcome.error


def test_accepted_publications_are_not_repeated_after_a_crash() -> None:
    """A publisher that missed the answer would publish twice."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    for _ in range(2):
        batch = [notice(n, "certified", "p", n) for n in (1, 2)]
        assert net.was_accepted(net.publish("a", batch, "p"))
        net.crash("a")
        net.start("a")
    batch = [notice(n, "certified", "p", n) for n in (2, 3)]
    assert net.was_accepted(net.publish("a", batch, "p"))
    for _ in range(2):
        net.publish("a", [notice(4, "certified", "", 7)])  # anonymous: no duplicates
    net.read("a", "x", "s")
    assert net.got["x"] == [1, 2, 3, 4, 4]
    assert net.servers["a"].statistics().duplicates == 1


@pytest.mark.parametrize("failed_before", [False, True])
def test_a_batch_is_no_duplicate_of_itself(failed_before: bool) -> None:
    """A notification behind a higher number would be confirmed, and never published."""
    net = DeliveryNetwork("a", "")
    net.stand("a", "s")
    net.read("a", "x", "s")
    if failed_before:
        net.publish("a", [notice(5, "certified", "p", 5)], "p")
    batch = [notice(n, "reliable", "p", n) for n in (6, 5, 5, 6)]
    assert net.was_accepted(net.publish("a", batch, "p"))
    assert net.got["x"] == [6, 5]
    assert net.servers["a"].statistics().duplicates == 2


@pytest.mark.parametrize("delivery", ["certified", "certified fifo"])
def test_publications_in_one_step_fail_alone(delivery: str) -> None:
    """One client's fault would refuse the publications that arrived together with it."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    net.read("a", "x", "s")
    good, other = ([notice(n, delivery, "p", n)] for n in (1, 3))
    mixed = [notice(2, delivery, "p", 2), notice(2, "reliable", "p", 2)]
    many = [(token, "p", its) for token, its in enumerate([good, mixed, other, good], start=7)]
    net.do("a", net.servers["a"].publish_all(many, net.now_us))
    assert [type(net.outcomes[token]) for token in (7, 8, 9, 10)] == [
        *(Confirmed, Failed, Confirmed, Confirmed)
    ]
    assert net.got["x"] == [1, 3]
    assert net.servers["a"].statistics().duplicates == 1


@pytest.mark.parametrize("count", [2, 9])
def test_publications_in_one_step_are_one_step(count: int) -> None:
    """Many publications that wait together would cost the server a step each."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    net.read("a", "x", "s")
    many = [(n, "p", [notice(n, "certified", "p", n)]) for n in range(1, count + 1)]
    effects = net.servers["a"].publish_all(many, net.now_us)
    assert [type(each) for each in effects] == [HandRecords, *[Confirmed] * count]
    net.do("a", effects)
    assert net.got["x"] == [*range(1, count + 1)]
    net.crash("a")
    net.start("a")
    again = [(n + 9, "p", [notice(n, "certified", "p", n)]) for n in range(count - 1, count + 3)]
    net.do("a", net.servers["a"].publish_all(again, net.now_us))
    assert net.servers["a"].statistics().duplicates == 2


@pytest.mark.parametrize("order", ["", " fifo", " causal", " total:t", " fifo total:t"])
def test_ordered_publications_in_one_step_are_steps_of_their_own(order: str) -> None:
    """The first would wait for the shipments of those that follow it."""
    posted, delivery = list[list[Shipment]](), f"certified{order}"
    for is_one_step in (False, True):
        net = DeliveryNetwork("sah", "sa sh ah", "sah")
        for name in "sh":
            net.stand(name, name, is_durable=True)
        net.run()
        net.do("s", net.servers["s"].pass_sequence("t", "a", net.now_us))
        net.run()
        net.publish("a", [notice(1, "certified fifo total:u", "p", 1)], "p")
        net.run()
        server, many = net.servers["a"], [(n, "p", [notice(n, delivery, "p", n)]) for n in (2, 3)]
        if is_one_step:
            effects = server.publish_all(many, net.now_us)
        else:
            effects = [each for one in many for each in server.publish(*one, net.now_us)]
        sent = [each.message for each in effects if isinstance(each, SendMessage)]
        posted.append([it for each in sent if isinstance(each, Transfer) for it in each.shipments])
    of_two = [sorted(map(str, each)) for each in posted]
    assert of_two[0] == of_two[1]
    assert len(posted[0]) == 4


def test_a_publication_has_one_class_that_is_known() -> None:
    """A client could make its server raise, or get a wrong class certified."""
    net = DeliveryNetwork("a", "")
    for batch in (
        [],
        [notice(1, "nonsense")],
        [notice(1, "best-effort")],
        [notice(1, "reliable"), notice(2, "certified")],
    ):
        assert isinstance(error_of(net, net.publish("a", batch)), InvalidValueError)
    assert isinstance(error_of(net, net.publish("a", [notice(1, "no", "p", 1)], "p")), Exception)
    assert net.was_accepted(net.publish("a", [notice(2, "reliable", "p", 2)], "p"))
    error = error_of(net, net.publish("a", [notice(1, "reliable", "p", 1)], "p"))
    assert "number 1 was refused before" in str(error), "it is published nowhere"
    error = error_of(net, net.publish("a", [notice(1, "certified")]))
    assert "this server has no store" in str(error)
    assert net.servers["a"].statistics().failed == 7


@pytest.mark.parametrize("delivery", ["reliable", "certified"])
def test_a_large_publication_fails(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log would accept it, nor later ones."""
    monkeypatch.setattr(access_point, "KEPT_BYTES_MAX", 100)
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s")
    net.read("a", "x", "s")
    large = Notification({"i": 1, "t": 100 * "x"}, envelope=notice(1, delivery).envelope)
    error = error_of(net, net.publish("a", [notice(0, delivery), large]))
    assert isinstance(error, LimitError)
    assert "KEPT_BYTES_MAX" in str(error)
    assert net.was_accepted(net.publish("a", [notice(2, delivery)]))
    assert net.got["x"] == [2]


def test_a_failed_publication_is_nowhere() -> None:
    """A publisher would repeat a publication that some logs contain."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s")
    net.stand("a", "t", is_durable=True)
    net.stores["a"].is_full = True
    assert isinstance(error_of(net, net.publish("a", [notice(1, "certified")])), Exception)
    net.stores["a"].is_full = False
    net.read("a", "x", "s")
    net.read("a", "y", "t")
    assert net.got == {}
    assert net.servers["a"].statistics().held == 0


def test_waiting_publications_keep_their_order() -> None:
    """FIFO would break at a waiting publication; or all publishers wait for one."""
    net = DeliveryNetwork("ab", "")
    net.stand("b", "s")
    net.read("b", "x", "s")
    total = net.publish("b", [notice(1, "reliable total:t", "p", 1)], "p")
    fifo = net.publish("b", [notice(2, "reliable fifo", "p", 2)], "p")
    other = net.publish("b", [notice(3, "reliable total:t", "q", 1)], "q")
    net.publish("b", [notice(4, "reliable fifo", "r", 1)], "r")
    net.publish("b", [notice(5, "reliable total:u")])
    net.publish("b", [notice(6, "reliable")])  # anonymous: no order to keep
    assert net.got["x"] == [4, 6]
    net.mend("a", "b")
    net.run(2)
    assert all(isinstance(net.outcomes[each], Confirmed) for each in (total, fifo, other))
    assert [each for each in net.got["x"] if each in (1, 3)] == [1, 3]
    assert sorted(net.got["x"]) == [1, 2, 3, 4, 5, 6]


def test_the_number_of_a_waiting_publication_is_not_reused() -> None:
    """A restarted publisher would see a lost publication confirmed as a duplicate."""
    net = DeliveryNetwork("ab", "")
    net.stand("b", "s")
    net.read("b", "x", "s")
    waiting = net.publish("b", [notice(1, "reliable total:t", "p", 1)], "p")
    following = net.servers["b"].sequence_of("p") + 1
    net.publish("b", [notice(2, "reliable", "p", following)], "p")
    net.mend("a", "b")
    net.run(2)
    assert isinstance(net.outcomes[waiting], Confirmed)
    assert sorted(net.got["x"]) == [1, 2]


def test_waiting_publications_are_bounded_in_time_and_number() -> None:
    """An absent sequencer would fill the memory of all other servers."""
    net = DeliveryNetwork("ab", "ab", limits=DeliveryLimits(waiting_max=2))
    net.run()
    net.cut("a", "b")
    begun = net.now_us
    tokens = [net.publish("b", [notice(n, "reliable total:t")]) for n in range(3)]
    error = error_of(net, tokens[2])
    assert isinstance(error, CannotPublishError)
    assert "waiting_max = 2" in str(error)
    net.tick()
    net.tick()
    assert "cannot be reached" in str(error_of(net, tokens[0]))
    assert begun + net.limits.wait_us <= net.now_us <= begun + net.limits.wait_us + 10
    net.arrive("b", "p", {"a": net.incarnation("a")})
    net.arrive("b", "p", {"a": net.incarnation("a")})
    net.arrive("b", "q", {"a": net.incarnation("a")})
    with pytest.raises(LimitError, match="waiting_max = 2 allows, found 3"):
        net.servers["b"].connect_publisher("r", {"a": net.incarnation("a")}, net.now_us)


def test_publishers_are_bounded() -> None:
    """One-time clients would fill the memory and the disk."""
    net = DeliveryNetwork("a", "", "a", limits=DeliveryLimits(publishers_max=2))
    for number, publisher in enumerate("pqpr", 1):
        net.publish("a", [notice(1, "reliable", publisher, number)], publisher)
    names = [each for each in net.stores["a"].notes() if each.startswith("publisher/")]
    assert len(names) == 2
    net.publish("a", [notice(1, "reliable", "p", 3)], "p")
    assert net.servers["a"].statistics().duplicates == 1
    net.publish("a", [notice(1, "reliable", "q", 2)], "q")
    assert net.servers["a"].statistics().duplicates == 1, "q was forgotten first"


@pytest.mark.parametrize("is_numbered", [False, True])
def test_a_change_of_route_carries_the_context(is_numbered: bool) -> None:
    """An ordered publication, numbered or not, would be overtaken by one in a sequence."""
    net = DeliveryNetwork("sah", "sa sh ah")
    net.stand("h", "q")
    net.run()
    net.read("h", "x", "q")
    net.publish("a", [notice(1, "reliable fifo", "p", 1 * is_numbered)], "p")
    net.lose_shipments("a", "h")
    net.publish("a", [notice(2, "reliable fifo total:t", "p", 2 * is_numbered)], "p")
    net.run()
    assert net.got["x"] == [], "it waits for the first, which is sent again"
    net.run(10)
    assert net.got["x"] == [1, 2]


def test_a_moved_publisher_carries_the_context() -> None:
    """A publication at a new server would overtake those at the old one."""
    net = DeliveryNetwork("abh", "ab ah bh")
    net.stand("h", "s")
    net.run()
    net.read("h", "x", "s")
    net.publish("a", [notice(1, "reliable fifo", "p", 1)], "p")
    net.lose_shipments("a", "h")
    past = {"a": net.incarnation("a"), "b": net.incarnation("b")}
    net.arrive("b", "p", past)
    net.run()
    token = net.publish("b", [notice(2, "reliable fifo", "p", 2)], "p")
    net.run()
    assert net.was_accepted(token)
    assert net.got["x"] == [], "it waits for the first, which is sent again"
    net.run(2)
    assert net.got["x"] == [1, 2]


def test_publications_accepted_elsewhere_are_confirmed_without_a_store() -> None:
    """A delivered publication would be reported as failed."""
    net = DeliveryNetwork("ab", "ab", "a")
    net.stand("b", "s")
    net.run()
    net.publish("a", [notice(1, "certified", "p", 1)], "p")
    net.arrive("b", "p", {"a": net.incarnation("a")})
    token = net.publish("b", [notice(1, "certified", "p", 1)], "p")
    net.run()
    assert net.was_accepted(token)


def test_a_returned_publisher_gets_no_false_failure() -> None:
    """It was published before the move; the other server's question arrives late."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("b", "s")
    net.run()
    incarnations = {name: net.incarnation(name) for name in "ab"}
    net.publish("a", [notice(1, "reliable", "p", 1)], "p")
    net.arrive("b", "p", {"a": incarnations["a"]})
    net.arrive("a", "p", incarnations)
    token = net.publish("a", [notice(1, "reliable", "p", 1)], "p")
    net.run()
    error = error_of(net, token)
    assert isinstance(error, CannotPublishError)
    assert error.may_be_published


def test_a_late_question_ends_no_session() -> None:
    """A publication accepted elsewhere meanwhile would be published twice."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("a", "s")
    net.run()
    net.read("a", "x", "s")
    incarnations = {name: net.incarnation(name) for name in "ab"}
    net.publish("a", [notice(1, "reliable", "p", 1)], "p")
    net.arrive("b", "p", {"a": incarnations["a"]})
    token = net.publish("b", [notice(2, "reliable", "p", 2)], "p")
    net.bring("b", "a")
    answer, taken = net.wires["a", "b"]
    assert isinstance(taken, StreamAck)
    net.wires["a", "b"] = deque([taken])
    net.bring("a", "b")
    net.now_us += ASK_AGAIN_US
    net.do("b", net.servers["b"].tick(net.now_us))
    question = net.wires["b", "a"].copy()
    net.wires["b", "a"].clear()
    assert question
    net.wires["a", "b"].append(answer)
    net.bring("a", "b")
    assert net.was_accepted(token), "which its publisher does not hear"
    net.wires["a", "b"].clear()
    net.wires["b", "a"].clear()
    net.arrive("a", "p", incarnations)
    net.wires["b", "a"].extend(question)
    net.bring("b", "a")
    net.publish("a", [notice(2, "reliable", "p", 2)], "p")
    net.run()
    net.run(10)
    assert net.got["x"] == [1, 2]


def test_an_answer_to_an_earlier_visit_counts_for_no_later_one() -> None:
    """A publication at the answering server since then would be repeated."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("a", "s")
    net.run()
    net.read("a", "x", "s")
    incarnations = {name: net.incarnation(name) for name in "ab"}
    net.publish("a", [notice(1, "reliable", "p", 1)], "p")
    net.arrive("b", "p", {"a": incarnations["a"]})
    net.bring("b", "a")
    late = net.wires["a", "b"].copy()
    net.wires["a", "b"].clear()
    net.arrive("a", "p", {"a": incarnations["a"]})
    assert net.was_accepted(net.publish("a", [notice(2, "reliable", "p", 2)], "p"))
    net.arrive("b", "p", {"a": incarnations["a"]})
    net.wires["a", "b"].extendleft(reversed(late))
    net.bring("a", "b")
    net.publish("b", [notice(2, "reliable", "p", 2)], "p")
    net.run()
    net.run(10)
    assert net.got["x"] == [1, 2]


def test_no_question_is_repeated_in_flight() -> None:
    """A long absence of a server would fill its stream with questions."""
    net = DeliveryNetwork("ab", "ab")
    net.run()
    net.cut("a", "b")
    net.arrive("b", "p", {"a": net.incarnation("a")})
    for _ in range(3):
        token = net.publish("b", [notice(1, "reliable", "p", 1)], "p")
        net.run(10)
        assert isinstance(error_of(net, token), CannotPublishError)
    assert net.servers["b"].statistics().held == 1


def test_duplicates_are_confirmed_without_a_sequencer() -> None:
    """A delivered publication would be reported as failed."""
    net = DeliveryNetwork("ab", "ab")
    net.run()
    batch = [notice(1, "reliable total:t", "p", 1)]
    assert net.was_accepted(net.publish("b", batch, "p"))
    net.cut("a", "b")
    assert net.was_accepted(net.publish("b", batch, "p"))
    batch.append(notice(2, "reliable total:t", "p", 2))
    assert net.publish("b", batch, "p") not in net.outcomes


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("pasts", "expected"),
    [
        ([(0, (1,), 0), (2, (), 0)], (2, (), 0)),  # the other one has published it after all
        ([(2, (1,), 0), (3, (1,), 0)], (3, (1,), 0)),
        ([(2, (1,), 0), (0, (), 0)], (2, (1,), 0)),
        ([(2, (), 0), (5, (3, 4), 0)], (5, (3, 4), 0)),
        ([(2, (4,), 1), (3, (), 0)], (3, (4,), 1)),
    ],
)
def test_a_failure_here_may_be_published_elsewhere(
    pasts: list[tuple[int, tuple[int, ...], int]],
    expected: tuple[int, tuple[int, ...], int],
    order: int,
) -> None:
    """A delivered publication would be reported as published nowhere."""
    known = Publisher()
    for past in pasts[::order]:
        known.learn(*past)
    assert (known.sequence, known.failed, known.unknown_to) == expected


def test_a_returned_notification_takes_the_next_route() -> None:
    """It would overtake earlier ones of its publisher that are in flight to that sequencer."""
    notes, outbox = Notes(None), Outbox("a", None)
    of = Publishers(notes, outbox, Inbox("a", 1, notes), Causality("a", notes))
    known, routes = Publisher(), [("t", server, at) for at, server in enumerate("bcd")]
    for route in routes:
        outbox.learn_start(route[1], 1)
        outbox.post([Posting(Notice(notice(1, "reliable")), {route[1]: ()})], 0, spools=False)
        of.record_route(known, route, with_context=True)
    assert [of.next_route(known, each) for each in routes] == [*routes[1:], None]


def test_what_is_owned_here_alone_needs_no_shipment() -> None:
    """Each certified notification would be stored twice; or one overtake an earlier shipment."""
    net = DeliveryNetwork("ab", "ab", "ab")
    net.stand("a", "s", "i < 10", is_durable=True)
    net.stand("a", "t", "i > 1")
    net.stand("b", "u", "i > 8")
    net.run()
    net.publish("a", [notice(1, "certified")])
    net.publish("a", [notice(2, "certified total:t")])
    assert net.stores["a"].extent(SPOOL) is None
    net.publish("a", [notice(3, "certified"), notice(9, "certified")])
    spooled = net.stores["a"].extent(SPOOL)
    assert spooled is not None
    assert spooled.next == 3, "one of them is for b, too"
    net.run()
    net.read("a", "x", "s")
    net.read("a", "y", "t")
    net.read("b", "z", "u")
    net.run()
    assert net.got == {"x": [1, 2, 3, 9], "y": [2, 3, 9], "z": [9]}


def test_what_is_owned_here_waits_for_room_in_order() -> None:
    """A later notification would be logged before one that waits for room in the store."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    net.stores["a"].is_full = True
    net.publish("a", [notice(1, "reliable")])
    net.stores["a"].is_full = False
    assert net.servers["a"].statistics().held == 1
    net.publish("a", [notice(2, "certified")])
    net.run(5)
    net.read("a", "x", "s")
    net.run()
    assert net.got["x"] == [1, 2]
    assert net.servers["a"].statistics().held == 0


def test_what_is_owned_here_follows_shipments_of_the_former_sequencer() -> None:
    """A sequence would have another order at its new sequencer than at the former one."""
    net = DeliveryNetwork("ab", "ab", "ab")
    net.stand("b", "s")
    net.run()
    net.publish("a", [notice(1, "certified total:t")])
    net.lose_shipments("a", "b")
    net.do("a", net.servers["a"].pass_sequence("t", "b", net.now_us))
    net.bring("a", "b")
    net.publish("b", [notice(2, "certified total:t")])
    net.run(9)
    net.read("b", "x", "s")
    assert net.got["x"] == [1, 2]
