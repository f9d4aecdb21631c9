"""`ShipmentHandler`: no message of a neighbour raises, or blocks the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Ack,
    AnnounceOwner,
    AskPast,
    CausalRow,
    Closed,
    CloseLog,
    Destination,
    DurableEntry,
    Grant,
    LogEntry,
    Nack,
    Notice,
    OpenLog,
    Past,
    Records,
    Resumed,
    Sequenced,
    Shipment,
    StreamAck,
    ToSequence,
    Transfer,
)
from contrada.model import Notification
from contrada.routing.router_messages import Neighbour
from tests.delivery.network import DeliveryNetwork, all_of, notice

SERVERS = st.sampled_from(["a", "b", "c", "unknown"])
NUMBERS = st.integers(-2, 6) | st.sampled_from([2**63 - 1, 1_000_001, 1_000_002])
NAMES = st.sampled_from(["s", "t", "none", "", "spool"])
CLASSES = st.sampled_from(
    [
        "",
        "nonsense",
        "best-effort",
        "certified",
        "reliable",
        "reliable total:t",
        "certified total:u",
    ]
)
NOTICES = st.builds(notice, st.integers(0, 3), CLASSES, NAMES, st.integers(0, 5))
INTERVALS = st.tuples(NUMBERS, NUMBERS)
ROWS = st.builds(
    CausalRow, SERVERS, NUMBERS, NUMBERS, NUMBERS, st.tuples(st.tuples(SERVERS, NUMBERS, NUMBERS))
)
BODIES = st.one_of(
    st.builds(Notice, NOTICES),
    st.builds(ToSequence, NOTICES),
    st.builds(Resumed),
    st.builds(AskPast, NAMES, NUMBERS),
    st.builds(Past, NAMES, NUMBERS, NUMBERS),
    st.builds(OpenLog, NAMES, NAMES, st.none() | NUMBERS, st.none() | NUMBERS),
    st.builds(Grant, NAMES, NAMES, NUMBERS),
    st.builds(Ack, NAMES, NAMES, st.tuples(INTERVALS)),
    st.builds(Nack, NAMES, NAMES, st.tuples(NUMBERS)),
    st.builds(CloseLog, NAMES, NAMES, st.booleans()),
    st.builds(Records, NAMES, NAMES, st.tuples(st.builds(LogEntry, NUMBERS, NUMBERS, NOTICES))),
    st.builds(Closed, NAMES, NAMES, NAMES),
)
STANDING = st.none() | st.builds(DurableEntry, NAMES, st.builds(all_of), st.booleans())
OWN_LIFE = 1_000_001


@st.composite
def message(draw: st.DrawFn) -> Any:
    """Returns any message of a neighbour; shipments mostly valid."""
    numbers = draw(st.integers(0, 4))
    bodies = draw(st.lists(BODIES, min_size=1, max_size=4))
    context = tuple(draw(st.lists(ROWS, max_size=2)))
    shipments = tuple(
        Shipment(
            (Destination("a", draw(st.sampled_from([OWN_LIFE, 1])), at, at + 1, (1, 2)),),
            each,
            context,
        )
        for at, each in enumerate(bodies, numbers)
    )
    return draw(
        st.one_of(
            st.just(Transfer("b", 1_000_002, 0, shipments)),
            st.builds(Transfer, SERVERS, NUMBERS, NUMBERS, st.just(shipments), NUMBERS),
            st.builds(
                StreamAck, SERVERS, NUMBERS, SERVERS, NUMBERS, NUMBERS, st.just(context), NUMBERS
            ),
            st.builds(Sequenced, NAMES, NUMBERS, SERVERS),
            st.builds(
                AnnounceOwner,
                *(SERVERS, NUMBERS, NUMBERS, NUMBERS, st.booleans()),
                st.tuples(st.tuples(NUMBERS, STANDING)),
                *(st.booleans(), st.booleans()),
            ),
        )
    )


@pytest.mark.slow
@given(st.lists(message(), max_size=12), st.booleans())
def test_no_message_of_a_neighbour_raises(messages: list[Any], has_store: bool) -> None:
    """One neighbour could stop a server."""
    net = DeliveryNetwork("ab", "ab", "a" if has_store else "")
    net.stand("a", "s")
    net.stand("a", "t", is_durable=has_store)
    net.run()
    net.read("a", "x", "s")
    for message in messages:
        net.do("a", net.servers["a"].receive(Neighbour("b"), message, net.now_us))
        net.servers["a"].validate()
    due = net.servers["a"].due_us
    net.do("a", net.servers["a"].tick(max(net.now_us, due or 0)))
    if has_store:
        net.crash("a")
        net.start("a")
        net.servers["a"].validate()


def carry_bodies(net: DeliveryNetwork, *bodies: Any) -> None:
    """Sends bodies from `b` to `a`, with its next numbers."""
    taken = net.servers["a"]._inbox.taken("b")[1]
    shipments = tuple(
        Shipment((Destination("a", OWN_LIFE, at, at + 1, (1,)),), each)
        for at, each in enumerate(bodies, taken)
    )
    message = Transfer("b", 1_000_002, 0, shipments)
    net.do("a", net.servers["a"].receive(Neighbour("b"), message, net.now_us))


def test_invalid_shipments_block_nothing() -> None:
    """One invalid shipment would stop a stream forever."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("a", "s")
    net.run()
    net.read("a", "x", "s")
    carry_bodies(net, ToSequence(notice(1, "nonsense"), 0), Notice(notice(2, "reliable")))
    assert net.got["x"] == [2]
    incarnation = net.incarnation("b")
    nonsense = StreamAck("b", incarnation, "a", OWN_LIFE, 99)
    net.do("a", net.servers["a"].receive(Neighbour("b"), nonsense, net.now_us))
    statistics = net.servers["a"].statistics()
    assert (statistics.refused, statistics.stranded) == (2, 0)


def test_a_large_record_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later step of its server would raise."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("a", "s")
    net.stand("a", "t")
    net.run()
    net.read("a", "x", "s")
    monkeypatch.setattr("contrada.delivery.store.RECORD_BYTES_MAX", 300)
    large = Notification({"i": 1, "t": 300 * "x"}, envelope=notice(1, "reliable").envelope)
    carry_bodies(net, *map(Notice, (notice(0, "reliable"), large, notice(2, "reliable"))))
    assert net.got["x"] == [0, 2]
    assert net.servers["a"].statistics().refused == 1


def test_messages_after_an_end_are_answered() -> None:
    """A message after another consumer's end of a subscription would stop its server."""
    net = DeliveryNetwork("ab", "ab")
    net.stand("a", "s")
    net.run()
    for client in "xyz":
        net.read("b", client, "s")
    net.run()
    late = [Grant("s", "y", 1), Nack("s", "z", (1,)), OpenLog("s", "w"), CloseLog("s", "z")]
    carry_bodies(net, CloseLog("s", "x", ends=True), *late)
    carry_bodies(net, Grant("s", "y", 1))
    assert net.servers["a"].subscriptions() == {}
    net.run(2)
    assert sorted(each.consumer for each in net.closed) == ["y", "z"]


def test_blocked_shipments_are_handled_later_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipment refused by a full store would be lost, or overtaken."""
    net = DeliveryNetwork("ab", "ab", "a")
    net.stand("a", "s", is_durable=True)
    net.run()
    net.read("a", "x", "s")
    net.stores["a"].is_full = True
    carry_bodies(net, Resumed(), *(Notice(notice(each, "reliable")) for each in range(3)))
    assert net.servers["a"]._inbox.taken("b")[1] == 1
    room = iter([True] * 100)
    net.stores["a"].is_full = False
    small = net.stores["a"].has_room
    monkeypatch.setattr(
        net.stores["a"], "has_room", lambda size: size < 300 and next(room) and small(size)
    )
    net.tick()
    net.run(3)
    assert net.got["x"] == [0, 1, 2]


def test_shipments_of_many_sequences_fill_no_table() -> None:
    """A neighbour could fill the memory, or shipments bounce forever."""
    net = DeliveryNetwork("ab", "ab", sequencer="b", limits=DeliveryLimits(sequences_max=1))
    net.stand("a", "s")
    net.run()
    net.read("a", "x", "s")
    carry_bodies(net, *(ToSequence(notice(n, f"reliable fifo total:{n}"), 1) for n in range(3)))
    assert net.got["x"] == [0, 1, 2]
    assert net.servers["a"].statistics().left_out == 2
