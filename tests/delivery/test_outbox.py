"""`Outbox`: posted shipments are held until taken; certified ones survive a crash."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    LogEntry,
    Notice,
    Payload,
    Records,
    Resumed,
    Shipment,
    ToSequence,
)
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.outbox import (
    RESEND_US,
    RESEND_US_MAX,
    SHIPMENT_BYTES,
    SPOOL,
    Outbox,
    Posting,
)
from contrada.delivery.store import Extent
from contrada.errors import CannotPublishError, ProtocolError, StoreFullError
from tests.delivery.network import notice
from tests.delivery.stores import AwayStore, flip

HOMES = ("a", "b")


def posting(i: int, *owners: str) -> Posting:
    """Returns a posting for the subscription 1 of owners."""
    return Posting(Notice(notice(i, "certified")), dict.fromkeys(owners, (1,)))


def make_outbox(
    store: MemoryStore | None = None, limits: DeliveryLimits = DeliveryLimits()
) -> Outbox:
    """Returns an outbox that knows two owners."""
    of = Outbox("me", store, limits)
    for owner in HOMES:
        of.learn_start(owner, 1)
    return of


def resent(of: Outbox, now_us: int) -> list[tuple[str, int, int]]:
    """Returns the resent shipments: the owner, the number, the body."""
    return [
        (to.owner, to.number, _number(shipment))
        for shipment in of.resend_due(now_us)
        for to in shipment.to
    ]


def due_us(of: Outbox) -> int | None:
    """Returns the time of the next resending."""
    return of.due_us


def _number(shipment: Shipment) -> int:
    assert isinstance(shipment.body, Notice)
    return int(str(shipment.body.notification["i"]))


class OutboxMachine(RuleBasedStateMachine):
    """Posts, acknowledgements and crashes at any sync point, compared with plain sets."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.of = make_outbox(self.store)
        self.posted = self.now_us = 0
        self.held: dict[str, dict[int, int]] = {owner: {} for owner in HOMES}  # number to notice
        self.numbers: dict[tuple[str, int], int] = {}
        self.certified: set[int] = set()
        self.last = dict.fromkeys(HOMES, 0)
        self.groups: list[tuple[dict[str, dict[int, int]], dict[str, int]]] = []
        self.seal()

    def seal(self) -> None:
        """Records the state that a crash restores with all groups so far."""
        held = {owner: dict(of) for owner, of in self.held.items()}
        self.groups.append((held, dict(self.last)))

    @rule(
        owners=st.lists(st.sets(st.sampled_from(HOMES), min_size=1), max_size=4),
        spools=st.booleans(),
    )
    def post(self, owners: list[set[str]], spools: bool) -> None:
        """Posts some."""
        postings = []
        for each in owners:
            self.posted += 1
            postings.append(posting(self.posted, *sorted(each)))
            if spools:
                self.certified.add(self.posted)
        for shipment, number in zip(
            self.of.post(postings, 0, spools=spools),
            range(self.posted - len(owners) + 1, self.posted + 1),
            strict=True,
        ):
            for to in shipment.to:
                assert to.number > self.last[to.owner], "a number was given twice"
                assert to.before <= self.last[to.owner]
                self.last[to.owner] = to.number
                self.held[to.owner][to.number] = self.numbers[to.owner, to.number] = number

    @rule(owner=st.sampled_from(HOMES), part=st.floats(0, 1))
    def acknowledge(self, owner: str, part: float) -> None:
        """Acknowledges some at an owner."""
        numbers = sorted(self.held[owner])
        taken = numbers[: int(len(numbers) * part)]
        if taken:
            assert self.of.acknowledge(owner, 1, taken[-1], 0)
            for each in taken:
                del self.held[owner][each]

    @rule()
    def sync(self) -> None:
        """Syncs the store; only then others know of the changes."""
        self.store.sync()
        self.groups.clear()
        self.seal()

    @rule()
    def end_group(self) -> None:
        """Ends a group."""
        self.store.seal()
        self.seal()

    @rule(survived=st.integers(0, 4))
    def crash(self, survived: int) -> None:
        """Restarts with the first few groups."""
        self.store.crash(survived)
        if survived >= len(self.groups):
            self.seal()  # also the unsealed ones
        held, self.last = self.groups[min(survived, len(self.groups) - 1)]
        self.of = make_outbox(self.store)
        found = self.found()
        for owner, number, each in found:
            assert self.numbers[owner, number] == each
            assert each in self.certified
        for owner, of in held.items():
            for number, each in of.items():
                assert each not in self.certified or (owner, number, each) in found, "it is lost"
        # A shipment untaken by one owner is sent to all of its owners again.
        self.held = {owner: {at: each for to, at, each in found if to == owner} for owner in HOMES}
        self.groups = []
        self.seal()

    def found(self) -> list[tuple[str, int, int]]:
        """Returns the resent shipments on a route."""
        self.now_us += 10**9
        self.of.change_routes({owner: owner for owner in HOMES}, 0)
        return resent(self.of, self.now_us)

    @invariant()
    def holds(self) -> None:
        """The held shipments are the posted, untaken ones."""
        found = self.found()
        for owner in HOMES:
            of_owner = [(number, each) for to, number, each in found if to == owner]
            assert of_owner == sorted(self.held[owner].items())
        assert self.of.held == len(found)
        open_ = {each for of in self.held.values() for each in of.values()} & self.certified
        assert self.of.spooled == len(open_)
        extent = self.store.extent(SPOOL)
        assert open_ or extent is None or extent.first == extent.next, "the spool is never empty"


TestOutbox = OutboxMachine.TestCase


def test_untaken_shipments_are_resent_with_growing_intervals() -> None:
    """A shipment lost on a link would stay lost; or an absent owner fill the links."""
    of = make_outbox()
    of.change_routes({"a": "x"}, 0)
    of.post([posting(1, "a", "b")], 0, spools=False)
    assert of.due_us == RESEND_US
    assert resent(of, RESEND_US - 1) == []
    assert resent(of, RESEND_US) == [("a", 1, 1)]
    assert of.due_us == 2 * RESEND_US, "b has no way: it is not due before there is one"
    times = [0]
    for _ in range(20):
        times.append(of.due_us or 0)
        assert resent(of, times[-1]) == [("a", 1, 1)]
    assert times[-1] - times[-2] == RESEND_US_MAX
    of.change_routes({"a": "y", "b": "y"}, times[-1] + 1)
    assert resent(of, times[-1] + 1) == [("a", 1, 1), ("b", 1, 1)]
    assert of.acknowledge("a", 1, 1, 0)
    assert not of.acknowledge("a", 1, 1, 0)
    assert not of.acknowledge("a", 2, 1, 0), "of another life"
    assert not of.acknowledge("z", 1, 1, 0)
    with pytest.raises(ProtocolError):
        of.acknowledge("a", 1, 2, 0)
    of.acknowledge("b", 1, 1, 0)
    assert of.resent == 23
    assert due_us(of) is None


def test_local_shipments_need_no_route() -> None:
    """A server's own untaken shipments would stay in its spool forever."""
    of = make_outbox()
    of.learn_start("me", 1)
    of.post([posting(1, "me")], 0, spools=False)
    assert resent(of, RESEND_US) == [("me", 1, 1)]
    of.change_routes({}, RESEND_US)
    assert resent(of, 2 * RESEND_US) == [("me", 1, 1)]


def test_a_large_backlog_is_sent_at_once() -> None:
    """The backlog of an absent owner would be sent in small parts with long pauses."""
    of = make_outbox(limits=DeliveryLimits(resend_max=2))
    of.post([posting(i, "a") for i in range(5)], 0, spools=False)
    of.change_routes({"a": "a"}, 7)
    assert resent(of, 7) == [("a", 1, 0), ("a", 2, 1)]
    of.acknowledge("a", 1, 2, 9)
    assert of.due_us == 9
    assert resent(of, 9) == [("a", 3, 2), ("a", 4, 3)]
    of.acknowledge("a", 1, 4, 11)
    assert resent(of, 11) == [("a", 5, 4)]
    of.post([posting(6, "a")], 12, spools=False)
    of.acknowledge("a", 1, 5, 13)
    assert of.due_us == 13 + RESEND_US, "what was sent just now is not sent again at once"


def test_a_new_incarnation_gets_nothing_of_the_old_one() -> None:
    """Shipments for a lost log would be held forever, or reach another one."""
    store = MemoryStore()
    of = make_outbox(store)
    of.post([posting(1, "a", "b")], 0, spools=True)
    of.learn_start("a", 2)
    assert (of.held, of.lost, of.spooled) == (1, 1, 1)
    of.learn_start("a", 1)
    shipments = of.post([posting(2, "a")], 0, spools=True)
    assert [(to.incarnation, to.before, to.number) for to in shipments[0].to] == [(2, 0, 1)]
    store.sync()
    of = Outbox("me", store)
    of.change_routes({"a": "a", "b": "b"}, 0)
    assert sorted(resent(of, 0)) == [("a", 1, 2), ("b", 1, 1)]
    of.acknowledge("b", 1, 1, 0)
    assert of.spooled == 1


def test_a_forgotten_owner_stays_forgotten() -> None:
    """The spool would be held for it again, and never be empty."""
    store = MemoryStore()
    of = make_outbox(store)
    of.post([posting(1, "b"), posting(2, "a")], 0, spools=True)
    of.forget("a")
    of.forget("unknown")
    assert (of.held, of.lost, of.spooled) == (1, 1, 1)
    store.sync()
    store.crash()
    of = make_outbox(store)
    assert (of.held, of.spooled) == (1, 1)
    shipments = of.post([posting(3, "a")], 0, spools=False)
    assert shipments[0].to[0].number > 1, "should it be back, what is new is new to it"


def test_after_a_restart_owners_learn_of_lost_numbers() -> None:
    """Owners would wait forever for lost shipments."""
    store = MemoryStore()
    of = make_outbox(store)
    of.post([posting(1, "a")], 0, spools=False)
    store.sync()
    of = make_outbox(store)
    (shipment,) = of.resume(HOMES)
    assert shipment.body == Resumed()
    assert shipment.to[0].owner == "a", "b was never sent anything"
    assert shipment.to[0].number > 1


def test_a_refused_posting_is_not_held() -> None:
    """A publisher would get a wrong confirmation, or a wrong refusal."""
    store = MemoryStore()
    of = make_outbox(store, DeliveryLimits(held_max=1))
    store.is_full = True
    with pytest.raises(StoreFullError):
        of.post([posting(1, "a")], 0, spools=True)
    assert (of.held, of.spooled) == (0, 0)
    of.check_room(HOMES)
    of.post([posting(1, "a")], 0, spools=False)
    of.check_room(["b", "unknown"])
    with pytest.raises(CannotPublishError, match="'a' has not taken"):
        of.check_room(HOMES)


def test_shipments_count_with_their_notifications() -> None:
    """The stream to an absent owner would hold more bytes than it may."""
    of, one = make_outbox(), notice(1, "reliable")
    entries = LogEntry(1, 5, one, 1), LogEntry(2, 0, None, 1, "it is not there")
    bodies: list[Payload] = [Notice(one), ToSequence(one, 0), Records("s", "x", entries), Resumed()]
    sizes = [0]
    for each in bodies:
        of.post([Posting(each, {"a": ()})], 0, spools=False)
        sizes.append(of.held_bytes - sum(sizes))
    alone = SHIPMENT_BYTES + len(one.span)
    assert sizes[1:] == [alone, alone, alone + SHIPMENT_BYTES, SHIPMENT_BYTES]


def test_a_damaged_spool_is_counted_and_stops_nothing() -> None:
    """A server would not start again for one record."""
    store = MemoryStore()
    of = make_outbox(store)
    to = Posting(ToSequence(notice(1, "certified total:t"), 0), {"a": ()})
    of.post([posting(0, "a"), to, posting(2, "a")], 0, spools=True)
    store.sync()
    flip(store, SPOOL, 1, 3)
    of = make_outbox(store)
    assert (of.lost, of.held) == (1, 2)


def test_letting_go_one_by_one_costs_each_the_same() -> None:
    """Each release would scan a long spool."""
    store = MemoryStore(survives=False)
    of = make_outbox(store)
    of.post([posting(1, "a")] * 5_000, 0, spools=True)
    for number in range(1, 5_001):
        of.acknowledge("a", 1, number, 0)
    assert of._first == 5_001
    assert store.extent(SPOOL) == Extent(5_001, 5_001, 0)


def test_a_failed_truncation_is_repeated() -> None:
    """A restart of the database would stop a server during a release."""
    store = AwayStore()
    of = make_outbox(store)
    of.post([posting(1, "a")], 0, spools=True)
    store.is_away = True
    assert of.acknowledge("a", 1, 1, 0)
    store.is_away = False
    assert store.extent(SPOOL) != Extent(2, 2, 0)
    of.post([posting(2, "a")], 0, spools=True)
    assert of.acknowledge("a", 1, 2, 0)
    assert store.extent(SPOOL) == Extent(3, 3, 0)
