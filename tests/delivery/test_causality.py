"""`Causality`: an owner waits for all predecessors, and for no taken or lost ones."""

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import CausalRow
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.orders import Causality, waits_for
from contrada.delivery.store import Notes


def row(
    server: str, count: int, *numbers: tuple[str, int, int], incarnation: int = 1, boot: int = 0
) -> CausalRow:
    """Returns a server's row of untaken numbers."""
    return CausalRow(server, incarnation, boot, count, numbers)


def test_the_newest_row_of_each_server_holds() -> None:
    """A taken shipment would be awaited; or one in flight be forgotten."""
    store = MemoryStore()
    of = Causality("me", Notes(store))
    of.merge((row("a", 2, ("h", 1, 7)), row("me", 9, ("h", 1, 1)), row("b", 1)))
    of.merge((row("a", 1, ("h", 1, 3)),))
    assert of.context(row("me", 1)) == (row("a", 2, ("h", 1, 7)),)
    of.merge((row("a", 1, ("h", 1, 9), boot=1),))
    own = row("me", 2, ("h", 1, 4))
    assert of.context(own) == (row("a", 1, ("h", 1, 9), boot=1), own)
    store.sync()
    store.crash()
    again = Causality("me", Notes(store))
    assert again.context(own) == of.context(own)
    of.merge((row("a", 1, incarnation=2),))
    of.forget("a")
    of.forget("unknown")
    assert (of.context(own), len(of)) == ((own,), 1)


def test_it_waits_for_untaken_shipments() -> None:
    """A shipment would precede its cause; or wait for a lost one."""
    taken = {"a": (1, 6), "h": (1, 2)}
    seven = (row("a", 1, ("h", 1, 7), ("g", 1, 99)),)
    assert waits_for(seven, "h", 1, "b", taken) == "a"
    assert waits_for(seven, "h", 1, "a", taken) is None, "a stream is in order by itself"
    of_source = row("b", 1, ("h", 1, 5))
    assert waits_for((of_source, *seven), "h", 1, "b", taken) == "a"
    assert waits_for(seven, "h", 2, "b", taken) is None, "it was for an earlier life"
    assert waits_for(seven, "h", 1, "b", {"a": (1, 7)}) is None
    assert waits_for(seven, "h", 1, "b", {"a": (2, 0)}) is None, "its source lost its memory"
    assert waits_for(seven, "h", 1, "b", {}) == "a"
    own = (row("h", 1, ("h", 1, 3)),)
    assert waits_for(own, "h", 1, "b", taken) == "h", "what was sent here from here, too"


def test_rows_are_bounded() -> None:
    """A neighbour could fill the memory with invented servers."""
    of = Causality("me", Notes(None), DeliveryLimits(owners_max=2))
    of.merge(tuple(row(str(n), 1, ("h", 1, 1)) for n in range(5)))
    assert len(of) == 2
    of.merge((row("1", 2, ("h", 1, 2)),))
    assert of.context(row("me", 1))[1].count == 2
