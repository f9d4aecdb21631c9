"""Orders over whole servers: hand-overs of sequences, and causal order."""

import pytest

from contrada.delivery.access_point import Failed
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.errors import CannotPublishError, DeliveryError, LimitError
from contrada.routing.router_messages import Neighbour
from tests.delivery.network import DeliveryNetwork, notice

LINE = "ab bc"


def test_all_get_a_sequence_in_one_order_also_when_it_moves() -> None:
    """Two subscriptions would have different orders."""
    for seed in range(10):
        net = DeliveryNetwork("abcd", "ab bc cd da", "abcd", seed=seed)
        net.stand("a", "s", is_durable=True)
        net.stand("d", "t", is_durable=True)
        net.run()
        net.read("a", "x", "s")
        net.read("d", "y", "t")
        sent: dict[str, list[int]] = {"p": [], "q": []}
        number = 0
        for each in range(30):
            for at, publisher in (("b", "p"), ("c", "q")):
                number += 1
                sent[publisher].append(number)
                told = notice(number, "certified fifo total:t", publisher, number)
                net.publish(at, [told], publisher)
            for _ in range(net.rng.randrange(8)):
                net.step()
            if each % 10 == 4:
                where = "abcd"[each // 10]
                server = net.servers[where]
                net.do(where, server.pass_sequence("t", "abcd"[each // 10 + 1], net.now_us))
            if each % 10 == 9:
                net.run(9)
        net.run(30)
        assert sorted(net.got["x"]) == [*range(1, number + 1)], seed
        assert net.got["x"] == net.got["y"], seed
        for numbers in sent.values():
            assert [each for each in net.got["x"] if each in numbers] == numbers, seed
        net.validate()


@pytest.mark.parametrize("source", ["b", "c"])
def test_a_sequencer_without_memory_orders_nothing(source: str) -> None:
    """There would be two sequencers, and two orders."""
    net = DeliveryNetwork("abcd", "ab bc ac bd cd ad")
    for at in "cd":
        net.stand(at, at)
    net.run()
    for at in "cd":
        net.read(at, at, at)
    net.do("a", net.servers["a"].pass_sequence("t", "b", net.now_us))
    net.bring("a", "b")
    net.do("b", net.servers["b"].pass_sequence("t", "d", net.now_us))
    net.bring("b", "d")
    net.wires.clear()
    for other in "abc":
        net.cut("d", other)
    net.crash("b")
    net.start("b")
    net.mend("b", "c")
    net.run()
    token = net.publish(source, [notice(1, "reliable total:t", "p", 1)], "p")
    net.publish("d", [notice(2, "reliable total:t", "q", 1)], "q")
    if source == "b":
        net.mend("a", "b")
    net.run(10)
    assert net.was_accepted(token), "it went to the first sequencer, which has passed it on"
    net.mend("c", "d")
    net.run(10)
    assert net.got == {"c": [2], "d": [2]}
    assert net.servers["b"].statistics().refused == 1


@pytest.mark.parametrize("knows", [True, False])
def test_publications_at_a_sequencer_are_not_overtaken_after_a_restart(knows: bool) -> None:
    """FIFO would break in a restart during a hand-over."""
    net = DeliveryNetwork("abc", "ab bc", "abc", sequencer="c")
    net.stand("b", "s", is_durable=True)
    net.run()
    net.read("b", "x", "s")
    net.publish("a", [notice(1, "certified fifo total:t", "p", 1)], "p")
    net.lose_shipments("a", "b")
    if not knows:
        net.crash("a")
    net.do("c", net.servers["c"].pass_sequence("t", "b", net.now_us))
    net.run()
    if knows:
        net.crash("a")
    net.start("a")
    net.mend("a", "b")
    while net.wires["b", "a"]:  # a learns that b is the sequencer
        message = net.wires["b", "a"].popleft()
        net.do("a", net.servers["a"].receive(Neighbour("b"), message, net.now_us))
    net.lose_shipments("a", "b")  # the repetition is lost, too
    net.publish("a", [notice(2, "certified fifo total:t", "p", 2)], "p")
    net.run(10)
    assert net.got["x"] == [1, 2]


def test_a_sequence_waits_for_its_sequencer_a_bounded_time() -> None:
    """A publisher would wait forever, or another server order the sequence."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("b", "s")
    net.run()
    net.read("b", "x", "s")
    net.cut("a", "b")
    first = net.publish("b", [notice(1, "reliable total:t", "p", 1)], "p")
    second = net.publish("b", [notice(2, "reliable", "p", 2)], "p")
    other = net.publish("b", [notice(3, "reliable", "q", 1)], "q")
    assert net.was_accepted(other)
    assert net.servers["b"].statistics().waiting == 2
    net.mend("a", "b")
    net.run()
    assert net.was_accepted(first)
    assert net.was_accepted(second)
    assert net.got["x"] == [3, 2, 1] or net.got["x"] == [3, 1, 2]
    net.cut("a", "b")
    begun = net.now_us
    late = net.publish("b", [notice(4, "reliable total:t", "p", 3)], "p")
    net.run(3)
    assert isinstance(net.outcomes[late], Failed)
    assert isinstance(net.outcomes[late].error, CannotPublishError)  # type: ignore[union-attr]
    assert net.now_us - begun <= net.limits.wait_us + 10
    with pytest.raises(DeliveryError, match="'a' gives the order"):
        net.servers["b"].pass_sequence("t", "a", net.now_us)
    with pytest.raises(DeliveryError, match="'z' cannot give"):
        net.servers["a"].pass_sequence("t", "z", net.now_us)


def test_a_sequencer_without_a_store_orders_nothing_certified() -> None:
    """A confirmed certified publication would be lost in a crash of the sequencer."""
    net = DeliveryNetwork("ab", "ab", "a", sequencer="b")
    net.run()
    outcome = net.outcomes[net.publish("a", [notice(1, "certified total:t")])]
    assert isinstance(outcome, Failed)
    assert "server 'b' is not known here, or has no store" in str(outcome.error)


def test_a_hand_over_needs_room() -> None:
    """Two servers would order one sequence."""
    net = DeliveryNetwork("ab", "ab", limits=DeliveryLimits(sequences_max=1))
    net.stand("b", "s")
    net.run()
    net.do("a", net.servers["a"].pass_sequence("t", "b", net.now_us))
    net.run()
    with pytest.raises(LimitError, match="sequences_max"):
        net.servers["a"].pass_sequence("u", "b", net.now_us)
    assert net.servers["a"].statistics().held == 0
    net.do("b", net.servers["b"].pass_sequence("t", "a", net.now_us))
    net.run(3)
    net.read("b", "x", "s")
    net.publish("b", [notice(1, "reliable total:u"), notice(2, "reliable total:u")])
    net.run(3)
    assert net.got["x"] == [1, 2]


@pytest.mark.quick_every(5)
@pytest.mark.parametrize("seed", range(25))
def test_causes_precede_their_effects(seed: int) -> None:
    """An answer would precede its question; or two would wait for each other forever."""
    net = DeliveryNetwork("abcd", "ab bc cd da ac", "bd", seed=seed)
    for name in "abcd":
        net.stand(name, name, is_durable=name in "bd")
        net.run()
        net.read(name, name, name)
    net.run()
    known: dict[int, set[int]] = {}  # the causal past of each notification, plainly
    for number in range(60):
        at = net.rng.choice("abcd")
        known[number] = set(net.got[at]).union(*(known[each] for each in net.got[at]))
        net.publish(at, [notice(number, "reliable causal")])
        for _ in range(net.rng.randrange(6)):
            net.step()
        if net.rng.random() < 0.15:
            a, b = net.rng.choice(sorted(net.links))
            if len(net.links) > 8:
                net.cut(a, b)
            net.mend(a, b)
    net.run(60)
    for name in "abcd":
        got = net.got[name]
        assert sorted(got) == [*range(60)], (seed, name)
        place = {number: at for at, number in enumerate(got)}
        for number in got:
            assert all(place[each] < place[number] for each in known[number]), (seed, name)
    net.validate()
