"""`DeliveryServer`: accepted notifications are delivered once, in order, despite crashes."""

import pytest
from msgspec.structs import astuple

from contrada.delivery.access_point import Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Ack, CloseLog, Grant, Nack, OpenLog, Records
from contrada.delivery.delivery_server import RETRY_US, DeliveryServer
from contrada.delivery.retention import OnFull, Retention
from contrada.errors import DeliveryError, InvalidValueError, LimitError
from tests.delivery.network import DeliveryNetwork, all_of, notice
from tests.delivery.stores import AwayStore

LINE = "ab bc"


def test_a_notification_arrives_once_over_a_server_in_between() -> None:
    """The first purpose of a delivery server would fail."""
    net = DeliveryNetwork("abc", LINE)
    net.stand("c", "s")
    net.stand("b", "t", "i > 1")
    net.run()
    net.read("c", "x", "s")
    net.read("b", "y", "t")
    token = net.publish("a", [notice(i, "reliable") for i in range(4)])
    net.run()
    assert net.was_accepted(token)
    assert net.got == {"x": [0, 1, 2, 3], "y": [2, 3]}
    for server in net.servers.values():
        server.validate()
        assert server.statistics().held == 0
    assert all(each.due_us is None for each in net.servers.values()), "nothing waits"


def test_losses_of_a_link_are_resent_on_another_route() -> None:
    """A notification would be lost with a link, or with a server in between."""
    net = DeliveryNetwork("abcd", "ab bd ac cd")
    net.stand("d", "s")
    net.run()
    net.read("d", "x", "s")
    net.publish("a", [notice(1, "reliable")])
    net.cut("a", "b")
    net.run()
    assert net.got["x"] == [1], "at once, since there is another way"
    net.cut("a", "c")
    net.publish("a", [notice(2, "reliable fifo")])
    net.run(20)
    net.mend("a", "b")
    net.run(1)
    assert net.got["x"] == [1, 2]
    net.publish("a", [notice(3, "reliable")])
    net.lose_shipments("a", "b")
    net.run(1)
    assert net.got["x"] == [1, 2, 3], "lost in silence, and sent again when it was due"
    assert net.servers["a"].statistics().held == 0


def test_a_large_batch_arrives_whole_here_and_elsewhere() -> None:
    """Early shipments without room would be lost; or never have their turn."""
    net = DeliveryNetwork("ab", "ab", limits=DeliveryLimits(early_max=3, resend_max=2))
    for name in "ab":
        net.stand(name, name)
        net.read(name, name, name)
    net.run()
    net.publish("a", [notice(i, "reliable") for i in range(20)])
    net.run()
    assert net.got == {"a": [*range(20)], "b": [*range(20)]}
    for i in range(20, 40):
        net.publish("a", [notice(i, "reliable")])
        if i == 20:
            net.lose_shipments("a", "b")  # later ones arrive early
    net.run(40)
    assert net.got == {"a": [*range(40)], "b": [*range(40)]}


def test_blocked_local_shipments_are_retried() -> None:
    """A shipment refused by a full store would stay in a stream without a route."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    net.read("a", "x", "s")
    net.publish("a", [notice(1, "reliable")])
    net.stores["a"].is_full = True
    net.publish("a", [notice(2, "reliable"), notice(3, "reliable")])
    assert net.got["x"] == [1]
    net.stores["a"].is_full = False
    net.run(3)
    assert net.got["x"] == [1, 2, 3]
    net.stores["a"].is_full = True
    token = net.publish("a", [notice(4, "certified")])
    assert isinstance(net.outcomes[token], Failed), "a full spool takes nothing"


def test_a_failed_read_is_repeated_at_its_time() -> None:
    """A reader would stop until another event."""
    store = AwayStore()
    server = DeliveryServer("a", incarnation=1, store=store)
    server.create_subscription("s", all_of(), 0, is_durable=True)
    server.publish(1, "", [notice(1, "certified")], 0)
    server.consume("c", OpenLog("s", "c"), 0)
    store.is_away = True
    assert server.consume("c", Grant("s", "c", 9), 0) == []
    assert (server.tick(0), server.due_us) == ([], RETRY_US)
    store.is_away = False
    (given,) = server.tick(RETRY_US)
    assert isinstance(given, HandRecords)
    assert isinstance(given.message, Records)
    assert [each.position for each in given.message.records] == [1]
    assert server.due_us is None
    server.consume("c", Ack("s", "c", ((1, 2),)), 0)
    server.validate()


@pytest.mark.parametrize("delivery", ["reliable", "certified", "certified causal"])
def test_certified_notifications_survive_crashes_of_both_ends(delivery: str) -> None:
    """An accepted notification would be lost with a server that restarts with its disk."""
    net = DeliveryNetwork("abc", LINE, "ac")
    net.stand("c", "s", is_durable=True)
    net.run()
    net.cut("a", "b")
    net.publish("a", [notice(1, delivery), notice(2, delivery)])
    net.crash("a")
    net.start("a")
    net.crash("c")
    net.start("c")
    net.mend("a", "b")
    net.mend("b", "c")
    net.run(5)
    net.publish("a", [notice(3, delivery)])
    net.run(5)
    net.crash("c")
    net.start("c")
    net.mend("b", "c")
    net.read("c", "x", "s")
    net.run(5)
    assert net.got["x"] == ([3] if delivery == "reliable" else [1, 2, 3])
    assert net.servers["a"].statistics().held == 0
    net.validate()


def test_nobody_waits_for_losses_of_a_crash() -> None:
    """Causal successors of a lost reliable notification would wait forever."""
    net = DeliveryNetwork("abh", "ab bh", "abh")
    net.stand("h", "s", is_durable=True)
    net.stand("b", "t", is_durable=True)
    net.run()
    net.read("h", "x", "s")
    net.cut("b", "h")
    net.publish("a", [notice(1, "reliable causal")])  # reaches b, and is on its way to h
    net.run()
    net.crash("a")
    net.publish("b", [notice(2, "reliable causal")])  # after it
    net.start("a")
    net.mend("a", "b")
    net.mend("b", "h")
    net.run(5)
    assert net.got["x"] == [2]
    net.crash("a")
    net.publish("b", [notice(3, "reliable causal")])
    net.do("h", net.servers["h"].forget("a", net.now_us))
    net.run(5)
    assert net.got["x"] == [2, 3]


def test_nobody_waits_for_a_server_that_was_given_up() -> None:
    """Its causal successors would wait forever; also after a restart."""
    net = DeliveryNetwork("abh", "ab bh ah", "abh")
    net.stand("h", "s", is_durable=True)
    net.stand("b", "t", is_durable=True)
    net.run()
    net.read("h", "x", "s")
    net.cut("b", "h")
    net.cut("a", "h")
    net.publish("a", [notice(1, "certified causal")])
    net.run()
    net.crash("a")
    net.publish("b", [notice(2, "certified causal")])
    net.mend("b", "h")
    net.run(5)
    assert net.got["x"] == [], "it waits for what a has sent"
    net.do("h", net.servers["h"].forget("a", net.now_us))
    assert net.got["x"] == [2]
    net.do("b", net.servers["b"].forget("a", net.now_us))  # or it would announce it to h again
    net.publish("b", [notice(3, "certified causal")])
    net.crash("h")
    net.start("h")
    net.read("h", "x", "s")
    net.mend("b", "h")
    net.run(5)
    assert net.got["x"] == [2, 3]
    net.start("a")  # it returned anyway
    net.mend("a", "h")
    net.run(5)
    net.publish("h", [notice(4, "certified causal")])
    net.publish("a", [notice(5, "certified causal")])
    net.run(5)
    assert sorted(net.got["x"]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("restarts", [False, True])
def test_no_publisher_waits_for_a_sequencer_that_was_given_up(restarts: bool) -> None:
    """All ordered publications would fail for good."""
    net = DeliveryNetwork("sab", "sa ab", "a")
    net.stand("b", "q")
    net.run()
    net.read("b", "x", "q")
    net.publish("a", [notice(1, "reliable fifo total:t", "p", 1)], "p")
    net.crash("s")
    batch = [notice(2, "reliable fifo", "p", 2)]
    token = 0 if restarts else net.publish("a", batch, "p")
    assert token not in net.outcomes, "it waits"
    for each in "ab":
        net.do(each, net.servers[each].forget("s", net.now_us))
    if restarts:
        net.crash("a")
        net.start("a")
        net.mend("a", "b")
        token = net.publish("a", batch, "p")
    assert net.was_accepted(token)
    net.run(3)
    assert net.got["x"] == [2]


def test_numbers_are_not_reused_for_a_forgotten_server() -> None:
    """New shipments would count as old at a server that does return."""
    net = DeliveryNetwork("ab", "ab", "ab")
    net.stand("b", "s", is_durable=True)
    net.run()
    net.publish("a", [notice(i, "reliable") for i in range(5)])
    net.run()
    net.crash("b")
    net.do("a", net.servers["a"].forget("b", net.now_us))
    assert net.servers["a"].subscriptions() == {}
    net.start("b")
    net.mend("a", "b")
    net.run()
    net.publish("a", [notice(5, "reliable")])
    net.read("b", "x", "s")
    net.run(3)
    assert net.got["x"] == [0, 1, 2, 3, 4, 5]
    assert net.servers["a"].statistics().held == 0


def test_a_server_that_lost_its_memory_begins_anew() -> None:
    """Shipments for its earlier incarnation would be held forever, or reach another log."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("b", "s")
    net.run()
    net.cut("a", "b")
    net.publish("a", [notice(1, "reliable")])
    net.crash("b")
    net.start("b")
    net.mend("a", "b")
    net.stand("b", "s")
    net.run(3)
    assert net.servers["a"].statistics().held == 0
    assert net.servers["a"].statistics().lost == 1
    net.read("b", "x", "s")
    net.publish("a", [notice(2, "reliable")])
    net.run(3)
    assert net.got["x"] == [2]


# --- consumers ------------------------------------------------------------------------------------


def test_causal_order_survives_a_restart() -> None:
    """An answer of a log reader would overtake its cause elsewhere."""
    net = DeliveryNetwork("hgk", "hg gk hk", "h", sequencer="g")
    net.stand("h", "one", is_durable=True)
    net.stand("k", "two")
    net.run()
    net.read("k", "y", "two")
    net.publish("h", [notice(1, "certified causal", "p", 1)], "p")
    net.crash("h")
    net.run()
    net.start("h")
    net.mend("h", "g")
    net.bring("h", "g")
    net.lose_shipments("g", "k")
    net.read("g", "x", "one")
    net.bring("g", "h")
    net.bring("h", "g")
    net.lose_shipments("g", "k")
    assert net.got["x"] == [1]
    net.publish("g", [notice(2, "reliable causal", "q", 1)], "q")
    net.run()
    assert net.got["y"] == [], "it waits for the first, which is sent again"
    net.run(10)
    assert net.got["y"] == [1, 2]


def test_consumers_share_and_move_between_servers() -> None:
    """A durable subscription would be bound to one server, or one consumer get all records."""
    net = DeliveryNetwork("abc", LINE, "c", acks=False)
    net.stand("c", "s", is_durable=True)
    net.run()
    net.read("a", "x", "s")
    net.read("b", "y", "s")
    net.run()
    for i in range(6):
        net.publish("b", [notice(i, "reliable")])
        net.run()
    assert (net.got["x"], net.got["y"]) == ([1, 3, 5], [0, 2, 4])
    net.publish("b", [notice(i, "reliable") for i in range(6, 10)])
    net.run()
    assert (net.got["x"][3:], net.got["y"][3:]) == ([8, 9], [6, 7])
    net.say("a", "x", Ack("s", "x", ((2, 3),)))
    net.close("a", "x", "s")
    net.run()
    assert net.got["y"][5:] == [3, 5, 8, 9], "what was not acknowledged comes again"
    assert net.attempts["y"][5:] == [2, 1, 1, 1], "it may have read the first of them"
    net.close("b", "y", "s")
    net.read("c", "x", "s")
    net.run()
    assert net.got["x"][5:] == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    net.validate()


def test_restarts_of_either_end_leave_no_consumer_behind() -> None:
    """Records would be held by a lost consumer."""
    net = DeliveryNetwork("ab", "ab", "ab", acks=False)
    net.stand("b", "s", is_durable=True)
    net.run()
    net.read("a", "x", "s")
    net.publish("b", [notice(1, "certified")])
    net.run()
    assert net.got["x"] == [1]
    net.crash("b")
    net.start("b")
    net.mend("a", "b")
    net.run(3)
    assert [each[2:] for each in map(astuple, net.closed)] == [("server 'b' has restarted", True)]
    net.read("a", "x", "s")
    net.run(3)
    assert net.got["x"] == [1, 1]
    net.crash("a")
    net.start("a")
    net.mend("a", "b")
    net.read("a", "z", "s")
    net.run(3)
    assert net.got["z"] == [1]
    # a's message about a consumer arrives after b's restart: it is unknown there.
    net.lose_shipments("a", "b")
    net.close("a", "z", "s")
    net.run(3)
    net.read("a", "z", "s")
    net.lose_shipments("a", "b")
    net.crash("b")
    net.start("b")
    net.mend("a", "b")
    net.run(5)
    net.read("b", "w", "s")
    net.run(5)
    assert net.got["w"] == [1]


def test_an_impossible_request_closes_a_consumer() -> None:
    """A client would wait for records in vain."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("b", "s")
    net.run()
    net.read("a", "x", "nothing")
    assert net.closed[0].reason == "there is no such durable subscription"
    net.closed.clear()
    net.read("a", "x", "s")
    net.read("a", "x", "s")
    assert "reads 's' already" in net.closed[0].reason
    net.run()
    net.read("a", "x", "s")
    net.publish("a", [notice(1, "reliable")])
    net.run()
    assert net.got["x"] == [1]
    net.say("a", "x", Ack("s", "x", ((1, 99),)))
    net.run()
    assert "expected positions before 2" in net.closed[-1].reason
    net.read("a", "x", "s")
    net.run()
    net.say("b", "y", CloseLog("s", "y", ends=True))
    net.run()
    assert net.closed[-1].reason == "the subscription has ended"
    assert not any(each.again for each in net.closed), "it would open again for ever"
    assert net.servers["a"].subscriptions() == {}


def test_a_consumer_cannot_fill_the_stream_to_an_owner() -> None:
    """A client's messages during the owner's absence would grow without bound."""
    net = DeliveryNetwork("ab", "ab", acks=False, limits=DeliveryLimits(held_max=10))
    net.stand("b", "s")
    net.run()
    net.cut("a", "b")
    net.read("a", "x", "s", 1)
    for _ in range(20):
        net.say("a", "x", Grant("s", "x", 1))
    assert net.servers["a"].statistics().held <= 11
    assert "'b' has not taken" in net.closed[0].reason
    # And records for a consumer that cannot be reached stay in their log.
    net.mend("a", "b")
    net.run(9)
    net.read("a", "x", "s", 100)
    net.run(9)
    net.cut("a", "b")
    for i in range(30):
        net.publish("b", [notice(i, "reliable")])
    assert net.servers["b"].statistics().held <= 10
    net.mend("a", "b")
    net.run(9)
    assert net.got["x"] == [*range(30)]


def test_dead_letters_are_a_subscription() -> None:
    """They would fill an unlimited, unreadable log."""
    net = DeliveryNetwork("ab", "ab", "b", acks=False)
    retention = Retention(attempts_max=1, dead_letter="dead")
    server = net.servers["b"]
    effects = server.create_subscription("s", all_of(), net.now_us, retention, is_durable=True)
    net.do("b", effects)
    net.run()
    assert net.servers["a"].subscriptions() == {"s": "b", "dead": "b"}
    net.read("a", "d", "dead")
    net.read("b", "x", "s")
    net.publish("a", [notice(1, "reliable")])
    net.run()
    net.say("b", "x", Nack("s", "x", (1,)))
    net.run()
    assert net.got == {"x": [1], "d": [1]}
    assert server.statistics().logs["s"].dead == 1
    net.crash("b")
    net.start("b")
    assert net.servers["b"].subscriptions() == {"s": "b", "dead": "b"}
    net.validate()
    for name, dead in (("s2", "@spool"), ("s3", "s3"), ("s4", "\n")):
        bad = Retention(attempts_max=1, dead_letter=dead)
        with pytest.raises(InvalidValueError):
            net.servers["b"].create_subscription(name, all_of(), net.now_us, bad, is_durable=True)
    assert set(net.servers["b"].subscriptions()) == {"s", "dead"}
    net.validate()


def test_a_full_subscription_refuses_publishers_everywhere() -> None:
    """A publisher at another server would get a wrong confirmation."""
    net = DeliveryNetwork("ab", "ab", acks=False)
    server = net.servers["b"]
    net.do("b", server.create_subscription("s", all_of(), net.now_us, Retention(records_max=2)))
    net.run()
    for i in (1, 2):
        assert net.was_accepted(net.publish("a", [notice(i, "reliable")]))
    net.run()
    for at in "ab":
        failed = net.outcomes[net.publish(at, [notice(3, "reliable")])]
        assert isinstance(failed, Failed)
        assert "'s' is full" in str(failed.error)
    net.read("b", "x", "s")
    net.say("b", "x", Ack("s", "x", ((1, 3),)))
    net.run()
    assert net.was_accepted(net.publish("a", [notice(4, "reliable")]))


def test_a_moving_publisher_keeps_its_order_without_duplicates() -> None:
    """Repetitions at another server would be doubled, or precede earlier ones."""
    net = DeliveryNetwork("abc", LINE, "ab")
    net.stand("c", "s")
    net.run()
    net.read("c", "x", "s")
    net.publish("a", [notice(1, "reliable fifo", "p", 1)], "p")
    net.lose_shipments("a", "b")
    net.arrive("b", "p", {"a": net.incarnation("a")})
    token = net.publish(
        "b", [notice(1, "reliable fifo", "p", 1), notice(2, "reliable fifo", "p", 2)], "p"
    )
    assert token not in net.outcomes
    net.run(5)
    assert net.was_accepted(token)
    assert net.got["x"] == [1, 2]
    assert net.servers["b"].statistics().duplicates == 1


def test_waiting_publications_of_a_moved_publisher_fail() -> None:
    """Its old server would publish after its new one."""
    net = DeliveryNetwork("abz", "ab", sequencer="z")
    net.stand("b", "s")
    net.mend("z", "a")
    net.run()
    net.cut("z", "a")
    old = net.publish("a", [notice(1, "reliable total:t", "p", 1)], "p")
    net.arrive("b", "p", {"a": net.incarnation("a")})
    net.run()
    assert isinstance(net.outcomes[old], Failed)
    assert "has moved" in str(net.outcomes[old].error)  # type: ignore[union-attr]


@pytest.mark.parametrize("stores", ["", "a"])
def test_a_question_survives_a_restart(stores: str) -> None:
    """A question lost in a crash would block a publisher."""
    net = DeliveryNetwork("ab", "ab", stores)
    net.stand("b", "s")
    net.run()
    net.arrive("b", "p", {"a": net.incarnation("a")})
    net.step()  # a has taken the question, and its answer is on the way
    net.crash("a")
    net.start("a")
    net.mend("a", "b")
    token = net.publish("b", [notice(1, "reliable", "p", 1)], "p")
    net.run(3)
    assert net.was_accepted(token)
    net.cut("a", "b")
    net.arrive("b", "q", {"a": net.incarnation("a")})
    token = net.publish("b", [notice(2, "reliable", "q", 1)], "q")
    net.do("b", net.servers["b"].forget("a", net.now_us))
    assert net.was_accepted(token)


def test_a_refused_subscription_leaves_nothing() -> None:
    """A log would be kept for an unknown subscription."""
    net = DeliveryNetwork("ab", "ab", "a")
    net.stand("a", "s")
    net.run()
    server = net.servers["b"]
    with pytest.raises(DeliveryError, match="'s' at 'a' already"):
        server.create_subscription("s", all_of(), net.now_us)
    with pytest.raises(DeliveryError, match="no store"):
        server.create_subscription("t", all_of(), net.now_us, is_durable=True)
    with pytest.raises(InvalidValueError):
        server.create_subscription("", all_of(), net.now_us)
    net.validate()
    full = DeliveryNetwork("a", "", limits=DeliveryLimits(durable_subscriptions_max=0))
    with pytest.raises(LimitError, match="durable_subscriptions_max"):
        full.servers["a"].create_subscription("t", all_of(), full.now_us)
    with pytest.raises(InvalidValueError, match="server's name"):
        DeliveryServer("", incarnation=1)


def test_best_effort_notifications_are_in_the_log() -> None:
    """A durable subscription would miss best-effort publications."""
    net = DeliveryNetwork("a", "", "a")
    net.stand("a", "s", is_durable=True)
    net.do("a", net.servers["a"].append("s", [notice(1, "best-effort")], net.now_us))
    net.stores["a"].is_full = True
    net.do("a", net.servers["a"].append("s", [notice(2, "best-effort")], net.now_us))
    net.read("a", "x", "s")
    assert net.got["x"] == [1]
    with pytest.raises(DeliveryError, match="no durable subscription 't'"):
        net.servers["a"].append("t", [], net.now_us)


def test_end_and_drop_oldest_are_obeyed_for_other_servers_publishers() -> None:
    """An owner would retry an impossible append, or not announce an end."""
    net = DeliveryNetwork("ab", "ab")
    for name, on_full in (("d", OnFull.DROP_OLDEST), ("e", OnFull.END)):
        retention = Retention(bytes_max=1, on_full=on_full)
        net.do("b", net.servers["b"].create_subscription(name, all_of(), net.now_us, retention))
    net.run()
    assert net.was_accepted(net.publish("a", [notice(1, "reliable")]))
    net.run()
    assert net.servers["a"].subscriptions() == {"d": "b"}
    assert net.servers["b"].statistics().logs["d"].dropped == 1
    net.validate()


# --- chance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_certified_notifications_survive_all_crashes(seed: int) -> None:
    """An accepted notification would be lost, doubled, or reordered in some rare case."""
    net = DeliveryNetwork("abcd", "ab bc cd da", "abcd", seed=seed)
    for name in "bd":
        net.stand(name, name, is_durable=True)
        net.run()
    net.dying = 0.02
    accepted: dict[str, list[int]] = {"p": [], "q": []}
    tokens: list[tuple[int, str, int]] = []
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    for number in range(1, 61):
        publisher, at = net.rng.choice([("p", "a"), ("q", "c")])
        told = notice(number, "certified fifo", publisher, number)
        if at in net.servers:
            tokens.append((net.publish(at, [told], publisher), publisher, number))
        for _ in range(net.rng.randrange(10)):
            net.step()
        for _ in range(net.rng.randrange(2)):
            net.tick()
        _fault(net, ring)
    net.dying = 0.0
    for name in "abcd":
        if name not in net.servers:
            net.start(name)
    for a, b in ring:
        if (a, b) not in net.links:
            net.mend(a, b)
    net.run(40)
    for token, publisher, number in tokens:
        if token in net.outcomes and net.was_accepted(token):
            accepted[publisher].append(number)
    for name in "bd":
        net.read(name, name, name)
        net.run(10)
        for publisher, numbers in accepted.items():
            got = [each for each in net.got[name] if each in numbers]
            assert got == numbers, (seed, name, publisher)
        assert len(set(net.got[name])) == len(net.got[name]), seed
    for server in net.servers.values():
        server.validate()
        assert server.statistics().held == 0, (seed, server.name, server.statistics())
        assert server.statistics().spooled == 0


def _fault(net: DeliveryNetwork, ring: list[tuple[str, str]]) -> None:
    """A random crash or restart, or a broken or repaired link."""
    chance = net.rng.random()
    if chance < 0.1 and net.servers:
        net.crash(net.rng.choice(sorted(net.servers)), net.rng.randrange(2))
    elif chance < 0.3 and len(net.servers) < 4:
        net.start(net.rng.choice(sorted(set("abcd") - set(net.servers))))
    a, b = net.rng.choice(ring)
    if net.rng.random() < 0.4 and a in net.servers and b in net.servers:
        if (a, b) in net.links:
            net.cut(a, b)
        else:
            net.mend(a, b)
