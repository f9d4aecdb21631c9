"""The checks of a real history that simulated worlds do not have."""

from contrada.delivery.delivery_class import delivery_class
from contrada.lab.simulation.run_records import Sent
from contrada.model import Notification
from tests.net.crowd import Event
from tests.net.real_history import Real, Told
from tests.net.real_world import MESH


def told(unseen: int, kills: int) -> list[str]:
    """The violations of a reader that is killed, and then reads so many records again."""
    it = Told(Real(MESH, []), [], 0)
    sent = Sent("p0", Notification({}), delivery_class("reliable"), "c0", 1)
    it.promises.sent["p0"] = sent
    reads = [Event(what="reads", client="r0", name="d", positions=(1,), id="p0", sequence=1)]
    reads += [Event(what="killed", client="r0") for _ in range(kills)]
    reads += [
        Event(what="reads", client="r0", session=f"{at}", name="d", id="p0", sequence=1)
        for at in range(unseen)
    ]
    for at, event in enumerate(reads[1 + kills :]):
        event.positions, event.attempt = (2 + at,), 2
    it.tell(reads)
    return [str(each) for each in it.uncounted()]


def test_prefetched_records_of_a_killed_reader_are_no_attempts() -> None:
    """Good records that nobody saw would become dead letters, and no world would show it."""
    assert told(unseen=2, kills=2) == []
    (found,) = told(unseen=3, kills=2)
    assert "3 unseen records" in found
