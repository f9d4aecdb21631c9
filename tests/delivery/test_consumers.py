"""`Consumers`: clients of any server read any subscription, and learn of their closing."""

import pytest

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import Ack, CloseLog, Grant, OpenLog, Transfer
from tests.delivery.network import DeliveryNetwork, notice


def make_network(acks: bool = True, limits: DeliveryLimits = DeliveryLimits()) -> DeliveryNetwork:
    """Returns a network with a subscription `s` at `b`, known at `a`."""
    net = DeliveryNetwork("ab", "ab", acks=acks, limits=limits)
    net.stand("b", "s")
    net.run()
    return net


def closing_reasons(net: DeliveryNetwork) -> list[str]:
    """Returns the reasons of closings since the last call."""
    found = [each.reason for each in net.closed]
    net.closed.clear()
    return found


def test_a_replay_begins_at_its_position() -> None:
    """A client at another server could not replay records."""
    net = make_network()
    net.publish("a", [notice(i, "reliable") for i in range(4)])
    net.run()
    net.say("a", "x", OpenLog("s", "x", position=1))
    net.say("a", "x", Grant("s", "x", 2))
    net.run(3)
    assert net.got["x"] == [0, 1, 2, 3]
    net.say("a", "x", OpenLog("s", "x"))
    assert closing_reasons(net) == ["'x' reads 's' already"]
    net.run()
    net.say("a", "x", OpenLog("s", "x", position=99))
    net.run()
    assert "expected a position from 1 to 5" in closing_reasons(net)[0]


def test_messages_without_a_reading_are_answered() -> None:
    """A client would wait forever; or fill the streams with useless messages."""
    net = make_network()
    for message in (Grant("s", "x", 1), Ack("s", "x", ())):
        net.say("a", "x", message)
        net.say("b", "x", message)
    assert closing_reasons(net) == ["'x' does not read 's'"] * 4
    net.say("a", "x", CloseLog("s", "x"))
    net.say("a", "x", CloseLog("none", "x"))
    assert closing_reasons(net) == ["there is no such durable subscription"]
    net.run()
    assert closing_reasons(net) == []


def test_records_for_a_lost_consumer_go_to_another() -> None:
    """Records would be held by a consumer that closed during their flight."""
    net = make_network(acks=False)
    net.read("a", "x", "s")
    net.run()
    net.publish("b", [notice(1, "reliable")])
    net.do("a", net.servers["a"].consume("x", CloseLog("s", "x"), net.now_us))
    net.run()
    net.read("b", "y", "s")
    net.run()
    assert (net.got["x"], net.got["y"]) == ([], [1])
    # Its server has forgotten it, and answers records with a closing.
    net.close("b", "y", "s")
    net.read("a", "x", "s")
    net.run()
    net.got.clear()
    del net.servers["a"].consumers._owners["s", "x"]
    net.publish("b", [notice(2, "reliable")])
    net.run(2)
    net.read("b", "y", "s")
    net.run(2)
    assert net.got["y"] == [1, 2]


@pytest.mark.parametrize("closes", [False, True])
def test_records_return_although_the_stream_is_full(closes: bool) -> None:
    """The owner would hold a consumer open forever."""
    net = make_network(acks=False, limits=DeliveryLimits(held_max=2))
    net.read("a", "x", "s", credit=1)
    net.run()
    net.publish("b", [notice(1, "reliable")])
    net.run()
    net.cut("a", "b")
    for _ in range(2 if closes else 3):
        net.say("a", "x", Grant("s", "x", 1))
    if closes:
        net.close("a", "x", "s")
    assert len(closing_reasons(net)) == (not closes)
    assert net.servers["a"].statistics().held == 3
    net.mend("a", "b")
    net.run(5)
    net.read("b", "y", "s")
    assert (net.got["x"], net.got["y"]) == ([1], [1])


def test_all_consumers_at_a_lost_server_are_closed() -> None:
    """Their records would never be handed out again."""
    net = make_network(acks=False)
    net.read("a", "x", "s")
    net.run()
    net.publish("b", [notice(1, "reliable")])
    net.run()
    net.crash("a")
    net.do("b", net.servers["b"].forget("a", net.now_us))
    net.read("b", "y", "s")
    assert net.got["y"] == [1]
    net.start("a")
    net.mend("a", "b")
    net.run()
    net.read("a", "z", "s")
    net.do("a", net.servers["a"].forget("b", net.now_us))
    assert closing_reasons(net) == ["server 'b' will not be back"]


def test_records_carry_no_context_without_a_causal_message() -> None:
    """Each record for a reader elsewhere would carry the rows of all servers."""
    net = make_network()
    net.read("a", "x", "s")
    net.run()
    for number in range(2):
        net.publish("b", [notice(number, "reliable")])
    sent = [each for each in net.wires["b", "a"] if isinstance(each, Transfer)]
    assert [each.context for message in sent for each in message.shipments] == [(), ()]
