"""`Inbox`: shipments are used once, in order, after their predecessors, within limits."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import CausalRow, Context, Destination, Notice, Shipment
from contrada.delivery.inbox import ArrivedShipment, Inbox
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.store import Notes
from tests.delivery.network import notice

ME = "me"


def arrival(
    number: int, before: int | None = None, context: Context = (), incarnation: int = 1
) -> ArrivedShipment:
    """Returns a shipment for this server."""
    address = Destination(ME, incarnation, number - 1 if before is None else before, number, (1,))
    return address, Shipment((address,), Notice(notice(number, "reliable")), context)


class ShipmentUser:
    """Uses shipments, up to a limit."""

    def __init__(self) -> None:
        self.room = 1_000
        self.by: dict[str, list[int]] = {}

    def __call__(self, source: str, turn: Sequence[ArrivedShipment]) -> int:
        count = min(self.room, len(turn))
        self.room -= count
        self.by.setdefault(source, []).extend(address.number for address, _ in turn[:count])
        return count


def make_inbox(
    store: MemoryStore | None = None, limits: DeliveryLimits = DeliveryLimits()
) -> Inbox:
    """Returns an inbox that knows `a` and `b`."""
    of = Inbox(ME, 1, Notes(store), limits)
    of.learn_start("a", 1, 0)
    of.learn_start("b", 1, 0)
    return of


class InboxMachine(RuleBasedStateMachine):
    """A source that sends, repeats and restarts; a receiver with varying room, and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.of = make_inbox(self.store)
        self.used = ShipmentUser()
        self.boot = 0
        self.next = 1
        self.before: dict[int, int] = {}  # the number before each that is held by the source
        self.last = 0
        self.lost: set[int] = set()

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        """Numbers some more at the source."""
        for _ in range(count):
            self.before[self.next] = self.last
            self.last, self.next = self.next, self.next + 1

    @precondition(lambda self: self.before)
    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        """Delivers some of them, in the order of their numbers."""
        numbers = data.draw(st.sets(st.sampled_from(sorted(self.before)), max_size=6))
        arrivals = [arrival(each, self.before[each]) for each in sorted(numbers)]
        self.of.receive("a", 1, self.boot, arrivals)

    @rule(room=st.integers(0, 5))
    def take(self, room: int) -> None:
        """Uses so many."""
        self.used.room = room
        self.of.use_ready(self.used)
        self.store.sync()

    @rule(data=st.data())
    def restart_source(self, data: st.DataObject) -> None:
        """The source loses some, and continues with new numbers."""
        kept = data.draw(st.sets(st.sampled_from(sorted(self.before) or [0]))) & set(self.before)
        self.lost |= self.before.keys() - kept
        self.boot += 1
        self.next += 10
        self.last, self.before = 0, {}
        for each in sorted(kept):
            self.before[each], self.last = self.last, each
        self.before[self.next] = self.last  # that it has restarted
        self.last, self.next = self.next, self.next + 1
        self.of.learn_start("a", 1, self.boot)

    @rule()
    def restart(self) -> None:
        """The receiver restarts after its last used number."""
        self.store.crash()
        self.of = make_inbox(self.store)
        self.of.learn_start("a", 1, self.boot)

    @invariant()
    def in_order(self) -> None:
        """Each is used once, in order."""
        used = self.used.by.get("a", [])
        assert used == sorted(set(used))

    def teardown(self) -> None:
        """Finally all are used that the source did not lose."""
        arrivals = [arrival(each, self.before[each]) for each in sorted(self.before)]
        self.used.room = 1_000
        self.of.receive("a", 1, self.boot, arrivals)
        self.of.use_ready(self.used)
        assert set(self.used.by.get("a", [])) >= set(range(1, self.next)) & set(self.before)
        assert self.of.waiting == 0


TestInbox = InboxMachine.TestCase


def test_early_shipments_of_another_start_are_dropped() -> None:
    """A source that lost the missing ones would resend the rest forever."""
    of, used = make_inbox(), ShipmentUser()
    of.receive("a", 1, 0, [arrival(3)])
    of.learn_start("a", 1, 1)
    of.receive("a", 1, 0, [arrival(1)])
    assert of.dropped == 1, "it was sent before the restart"
    of.receive("a", 1, 1, [arrival(3, before=0)])
    assert set(of.use_ready(used)) == {"a"}
    assert used.by == {"a": [3]}
    of.receive("a", 1, 1, [arrival(3, before=0)])
    assert of.repeated == 1


def test_losses_of_a_crash_cause_no_deadlock() -> None:
    """Two streams would wait for each other forever."""
    of, used = make_inbox(), ShipmentUser()
    lost, first = CausalRow("a", 1, 0, 1, ((ME, 1, 1),)), CausalRow("b", 1, 0, 1, ((ME, 1, 1),))
    of.receive("b", 1, 0, [arrival(1, context=(lost,))])
    assert not of.use_ready(used)
    of.learn_start("a", 1, 1)  # It lost the reliable ones, and kept the certified ones.
    of.receive("a", 1, 1, [arrival(2, before=0, context=(first,))])
    assert set(of.use_ready(used)) == {"a", "b"}
    assert used.by == {"b": [1], "a": [2]}


def test_the_missing_one_always_finds_room() -> None:
    """Early shipments would fill the inbox, and exclude the missing one."""
    of, used = make_inbox(limits=DeliveryLimits(early_max=3)), ShipmentUser()
    of.receive("a", 1, 0, [arrival(each) for each in range(2, 9)])
    assert (of.waiting, of.dropped) == (3, 4)
    of.receive("a", 1, 0, [arrival(1)])
    of.use_ready(used)
    assert used.by == {"a": [1, 2, 3, 4]}
    used.room = 0
    of.receive("a", 1, 0, [arrival(each) for each in range(5, 10)])
    of.use_ready(used)
    of.receive("a", 1, 0, [arrival(each) for each in range(10, 30)])
    assert of.waiting == 5, "what cannot be used is bounded, too"
    used.room = 99
    of.use_ready(used)
    of.receive("a", 1, 0, [arrival(each) for each in range(10, 30)])
    of.use_ready(used)
    assert used.by == {"a": [*range(1, 30)]}


def test_it_waits_for_predecessors() -> None:
    """An answer would precede its question; or wait for a lost one."""
    of, used = make_inbox(), ShipmentUser()
    row = CausalRow("b", 1, 0, 1, ((ME, 1, 2),))
    of.receive("a", 1, 0, [arrival(1), arrival(2, context=(row,)), arrival(3)])
    assert set(of.use_ready(used)) == {"a"}
    assert used.by == {"a": [1]}
    of.receive("b", 1, 0, [arrival(1), arrival(2)])
    assert set(of.use_ready(used)) == {"a", "b"}
    assert used.by == {"a": [1, 2, 3], "b": [1, 2]}
    later = CausalRow("b", 1, 0, 2, ((ME, 1, 9), (ME, 0, 99), ("other", 1, 99)))
    of.receive("a", 1, 0, [arrival(4, context=(later,))])
    assert set(of.use_ready(used)) == set()
    of.forget("b")
    assert set(of.use_ready(used)) == {"a"}


def test_a_forgotten_source_is_known_again_when_it_is_back() -> None:
    """Its shipments would be taken twice, or dropped forever."""
    store = MemoryStore()
    of, used = make_inbox(store), ShipmentUser()
    of.receive("b", 1, 0, [arrival(1)])
    of.use_ready(used)
    of.forget("b")
    of.receive("b", 1, 0, [arrival(2)])
    assert (of.waiting, of.dropped) == (0, 1)
    of = Inbox(ME, 1, Notes(store))
    of.learn_start("b", 1, 0)
    of.receive("b", 1, 0, [arrival(1), arrival(2)])
    of.use_ready(used)
    assert used.by == {"b": [1, 2]}
    of.learn_start("b", 2, 0)
    assert of.taken("b") == (2, 0), "it lost its memory: its numbers begin anew"
    assert of.taken("unknown") == (0, 0)


def test_nonsense_is_dropped() -> None:
    """A neighbour could break the order of a stream, or stop the server."""
    of, used = make_inbox(), ShipmentUser()
    of.receive("unknown", 1, 0, [arrival(1)])
    of.receive("a", 1, 0, [arrival(1, incarnation=9), arrival(2, before=2), arrival(-4, before=7)])
    of.receive("a", 2, 0, [arrival(1)])
    assert set(of.use_ready(used)) == set()
    assert of.dropped == 5
