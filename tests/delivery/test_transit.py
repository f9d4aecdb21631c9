"""`Transit`: each message crosses each needed link once, up to the hop limit."""

from contrada.delivery.delivery_messages import (
    AnnounceOwner,
    Destination,
    Notice,
    Shipment,
    StreamAck,
    Transfer,
)
from contrada.delivery.transit import Transit
from contrada.routing.links.topology import HOPS_MAX
from contrada.routing.router_messages import Neighbour
from tests.delivery.network import notice


def to(*owners: str) -> tuple[Destination, ...]:
    """Returns destinations."""
    return tuple(Destination(owner, 1, 0, 1) for owner in owners)


def test_one_message_crosses_each_link() -> None:
    """A link would carry a notification once per owner behind it, or not at all."""
    of = Transit("me")
    of.routes = {"b": "x", "c": "x", "d": "y"}
    first = Shipment(to("b", "c", "d", "me", "gone"), Notice(notice(1, "reliable")))
    second = Shipment(to("d"), Notice(notice(2, "reliable")))
    of.forward(Transfer("s", 1, 0, (first, second), 3))
    told = {each.to.name: each.message for each in of.outgoing}
    assert of.stranded == 1
    x, y = told["x"], told["y"]
    assert isinstance(x, Transfer)
    assert isinstance(y, Transfer)
    assert ([each.to for each in x.shipments], x.hops) == ([to("b", "c")], 4)
    assert [each.to for each in y.shipments] == [to("d"), to("d")]


def test_looping_messages_end() -> None:
    """Inconsistent routes would keep a message in a loop forever."""
    of = Transit("me")
    of.routes = {"b": "x"}
    shipment = Shipment(to("b"), Notice(notice(1, "reliable")))
    of.forward(Transfer("s", 1, 0, (shipment,), HOPS_MAX))
    of.forward_ack(StreamAck("h", 1, "b", 1, 1, (), HOPS_MAX))
    of.forward_ack(StreamAck("h", 1, "unknown", 1, 1))
    assert (of.outgoing, of.stranded) == ([], 3)
    of.forward_ack(StreamAck("h", 1, "b", 1, 1, (), 2))
    assert [each.message for each in of.outgoing] == [StreamAck("h", 1, "b", 1, 1, (), 3)]


def test_announcements_are_flooded() -> None:
    """A server would miss announcements, or receive its own."""
    of = Transit("me")
    message = AnnounceOwner("h", 1, 0, 1, True, ())
    for name in "xyz":
        of.link_up(Neighbour(name), [message])
    of.link_down(Neighbour("z"))
    of.link_down(Neighbour("unknown"))
    assert [each.to.name for each in of.outgoing] == ["x", "y", "z"]
    of.outgoing.clear()
    of.flood(message, but=Neighbour("x"))
    assert [each.to.name for each in of.outgoing] == ["y"]
