"""Worlds with guarantees: they pass, and each broken guarantee is found by its checker."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contrada.delivery import inbox
from contrada.delivery.access_point import AccessPoint
from contrada.delivery.delivery_class import delivery_class
from contrada.delivery.delivery_messages import LogEntry
from contrada.delivery.durable_table import DurableTable
from contrada.delivery.inbox import Inbox
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.orders import Causality
from contrada.delivery.outbox import Outbox
from contrada.delivery.owned_logs import OwnedLogs
from contrada.delivery.publishers import Publisher, PublisherPasts, Publishers
from contrada.delivery.retention import OnFull, Retention
from contrada.delivery.streams import Incoming
from contrada.errors import CannotPublishError
from contrada.lab.simulation.oracle import Outcome, judge_delivery
from contrada.lab.simulation.run_records import DurableSpan, Sent
from contrada.lab.simulation.schedule import Schedule
from contrada.lab.simulation.script_maker import CALM, ROUGH, make_script
from contrada.lab.simulation.script_steps import (
    Connect,
    Crash,
    Kind,
    Move,
    NetworkShape,
    OpenDurable,
    PassSequence,
    PublishStep,
    Restart,
    Script,
    Step,
)
from contrada.lab.simulation.simulated_delivery import SYNC_US, SimulatedDelivery
from contrada.lab.simulation.world import run
from contrada.lab.simulation.worlds import SHAPES
from contrada.model import Envelope, Notification
from contrada.model.syntax import parse_filter_set
from contrada.routing.router import Strategy

BROKERS_MAX = 4
SEEDS = range(8)

Way = Callable[..., Any]


def promising(seed: int, shape: NetworkShape) -> Script:
    """Returns a small world with guarantees."""
    return make_script(seed, Kind(shape, Strategy.SUBSCRIPTIONS, reliable=True), BROKERS_MAX)


def overtaking(order: str, *, moves: bool) -> Script:
    """Returns a world where a publication at 0 is slow to 2 and quick to 1, which is near both.

    Then a reader of the first one, or its publisher after a move, publishes at 1.
    """
    kind = Kind("general", Strategy.SUBSCRIPTIONS, reliable=True)
    lines = [(0, 1, 1_000), (1, 2, 1_000), (0, 2, 200_000)]
    begun = 10_000_000
    second: list[Step] = [PublishStep(begun + 20_000, "reader", "p2", {"a": 1}, delivery=order)]
    if moves:
        second = [
            Move(begun + 10_000, "writer", 1),
            PublishStep(begun + 20_000, "writer", "p2", {"a": 1}, delivery=order),
        ]
    steps: tuple[Step, ...] = (
        *(Connect(0, a, b, is_parent=False, delay_us=delay_us) for a, b, delay_us in lines),
        *(Move(5_000_000, client, at) for at, client in enumerate(("writer", "reader", "far"))),
        OpenDurable(5_000_000, "reader", "near", "a > 0", True, 100, OnFull.REFUSE, 0),
        OpenDurable(5_000_000, "far", "away", "a > 0", True, 100, OnFull.REFUSE, 0),
        PublishStep(begun, "writer", "p1", {"a": 1}, delivery=order),
        *second,
    )
    return Script(0, kind, 3, CALM, steps)


def pair(*steps: Step) -> Script:
    """Two servers with a link, at each a client that reads all; then the steps."""
    clients: list[Step] = []
    for at, client in enumerate(("near", "far")):
        clients.append(Move(5_000_000, client, at))
        clients.append(
            OpenDurable(5_000_000, client, f"of {client}", "a > 0", True, 100, OnFull.REFUSE, 0)
        )
    kind = Kind("acyclic", Strategy.SUBSCRIPTIONS, reliable=True)
    line = Connect(0, 0, 1, is_parent=False, delay_us=20_000)
    return Script(0, kind, 2, CALM, (line, *clients, *steps))


@pytest.mark.quick_first
@pytest.mark.parametrize("shape", SHAPES)
def test_worlds_with_guarantees_hold(shape: NetworkShape) -> None:
    """A guaranteed notification would be lost, doubled, spurious or reordered; or the checks be
    idle.
    """
    outcomes = [run(promising(seed, shape)) for seed in SEEDS]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(SEEDS)
    assert sum(outcome.must for outcome in outcomes) > 200


REACHED: list[tuple[Any, str]] = [
    (Outbox, "_restore_shipment"),  # unsent shipments of a crash
    (inbox, "waits_for"),  # a shipment, for its causes
    (AccessPoint, "_would_overtake"),
    (AccessPoint, "resend_returned"),  # by a former sequencer
    (Publishers, "unsettled_sequencer"),
]


@pytest.mark.slow
def test_made_worlds_reach_rare_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All would pass because nothing ever waited, or was in flight in a crash."""
    reached = dict.fromkeys([name for _, name in REACHED], 0)

    def counted(name: str, keep: Way) -> Way:
        def call(*given: Any, **more: Any) -> Any:
            found = keep(*given, **more)
            reached[name] += found not in (None, False) or name in (
                "_restore_shipment",
                "resend_returned",
            )
            return found

        return call

    for owner, name in REACHED:
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    for shape in SHAPES[1:]:
        for seed in SEEDS:
            run(promising(seed, shape))
    assert min(reached.values()) >= 8, reached


DIGEST = """
import hashlib
from contrada.errors import CannotPublishError
from contrada.model import Envelope, Notification
from contrada.model.syntax import parse_filter_set
from contrada.routing.router import Strategy
from contrada.lab.simulation.script_maker import make_script
from contrada.lab.simulation.script_steps import Kind, from_text, to_text
from contrada.lab.simulation.world import network_of, _run
script = make_script(8, Kind("general", Strategy.SUBSCRIPTIONS, reliable=True), 4)
for each in (script, from_text(to_text(script), "text")):
    network = network_of(each)
    list(_run(each, network))
    delivery = network.delivery
    noted = network.history, delivery.crashes, delivery.acknowledged, delivery.sequencers
    read = {reader: read.records for reader, read in delivery.reads.items()}
    answered = [(each.id, each.order, each.brokers, each.is_accepted, each.error)
        for each in delivery.sent.values()]
    digest = hashlib.sha256(repr((noted, read, answered)).encode()).hexdigest()
    print(sum(map(len, read.values())) > 20, digest)
"""


@pytest.mark.slow
def test_a_run_with_guarantees_is_a_function_of_its_script() -> None:
    """A fault could not be repeated in another process, nor from its script."""
    said = [
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "2")
    ]
    assert len({*said[0], *said[1]}) == 1
    assert said[0][0].startswith("True ")


# --- faults on purpose: each takes the method as it is, and returns another one -------------------


def sends_nothing_again(_: Way) -> Way:
    def again(self: Outbox, now_us: int) -> list[Any]:
        self._due_us.clear()
        return []

    return again


def takes_what_has_no_room(keep: Way) -> Way:
    def append(self: OwnedLogs, *what: Any) -> bool:
        keep(self, *what)
        return True

    return append


def does_nothing(_: Way) -> Way:
    return lambda *_, **__: None


def says_false(_: Way) -> Way:
    return lambda *_, **__: False


def does_not_wait_for_its_disk(do: Way) -> Way:
    def at_once(self: SimulatedDelivery, broker: int, effects: Any) -> None:
        self._perform(broker, effects)
        do(self, broker, [])

    return at_once


def brings_nothing(seal: Way) -> Way:
    def sealed(self: MemoryStore) -> Callable[[], None]:
        seal(self)
        return lambda: None

    return sealed


def takes_all_for_new(_: Way) -> Way:
    return lambda self, notifications: list(notifications)


def takes_again_what_comes_again(_: Way) -> Way:
    def take(self: Any, run: Any) -> Sequence[Any]:
        self.taken = max(self.taken, run.first + len(run.items) - 1)
        items: Sequence[Any] = run.items
        return items

    return take


def says_nothing(_: Way) -> Way:
    return lambda *_: ()


def passes_on_and_goes_on(move: Way) -> Way:
    def moved(self: AccessPoint, said: Any) -> None:
        was_here = self._sequences.sequencer_of(said.sequence)[1] == self.name
        move(self, said)
        if was_here:
            self._sequences.move(said.sequence, said.epoch, self.name)

    return moved


def addresses_all(_: Way) -> Way:
    def addressees(self: DurableTable, notifications: Sequence[Any]) -> list[Any]:
        owners = {name: list(owner.entries) for name, owner in self.owners.items() if owner.entries}
        return [owners] * len(notifications)

    return addressees


def publishes_what_it_refuses(give_up: Way) -> Way:
    def give_up_too_late(self: AccessPoint, of: Any, error: Any) -> None:
        found = self._table.addressees(of.notifications)
        self._address(of.notifications, found, of.guarantee, 0, with_context=False)
        give_up(self, of, error)

    return give_up_too_late


def keeps_in_memory_only(_: Way) -> Way:
    def acknowledge(self: MemoryStore, log: str, intervals: Any) -> None:
        if log in self._current.logs:
            self._current.logs[log].head.acknowledge(tuple(intervals))

    return acknowledge


def gives_the_record_before(record: Way) -> Way:
    given: list[Any] = []

    def gives(self: OwnedLogs, stored: Any, attempt: int) -> LogEntry:
        entry: LogEntry = record(self, stored, attempt)
        given.append(entry.notification)
        return replace(entry, notification=given[-2:][0])

    return gives


BY_READING = overtaking("reliable causal", moves=False)
BY_MOVING = overtaking("reliable fifo", moves=True)
UNTOLD = pair(  # the other server crashes before its ack arrives
    PublishStep(10_000_000, "near", "p", {"a": 1}, delivery="certified"),
    Crash(10_027_500, 1, keeps_store=True),
    Restart(11_000_000, 1),
)
PASSED = pair(
    PassSequence(10_000_000, 1, "t"),
    PublishStep(11_000_000, "near", "p1", {"a": 1}, delivery="reliable total:t"),
    PublishStep(11_000_000, "far", "p2", {"a": 1}, delivery="reliable total:t"),
)


@pytest.mark.quick_every(3)
@pytest.mark.parametrize(
    ("owner", "name", "broken", "what", "script"),
    [
        (Outbox, "resend_due", sends_nothing_again, "lost", promising(1, "acyclic")),
        (OwnedLogs, "append", takes_what_has_no_room, "lost", promising(3, "acyclic")),
        (Outbox, "_restore_shipment", does_nothing, "lost", promising(45, "hierarchical")),
        (MemoryStore, "seal", brings_nothing, "lost", promising(0, "central")),
        (SimulatedDelivery, "do", does_not_wait_for_its_disk, "double", promising(210, "central")),
        (SimulatedDelivery, "do", does_not_wait_for_its_disk, "replay", promising(210, "central")),
        (AccessPoint, "_would_overtake", says_false, "lost", promising(24, "acyclic")),
        (Publisher, "fresh", takes_all_for_new, "double", promising(14, "central")),
        (PublisherPasts, "await_past", does_nothing, "double", promising(19, "acyclic")),
        (Incoming, "take", takes_again_what_comes_again, "double", promising(1, "acyclic")),
        (Inbox, "_note", does_nothing, "double", UNTOLD),
        (MemoryStore, "acknowledge", keeps_in_memory_only, "double", promising(2, "central")),
        (Publishers, "unsettled_sequencer", does_nothing, "FIFO", promising(5, "hierarchical")),
        (PublisherPasts, "await_past", does_nothing, "FIFO", promising(14, "acyclic")),
        (AccessPoint, "context", says_nothing, "FIFO", BY_MOVING),
        (inbox, "waits_for", does_nothing, "FIFO", BY_MOVING),
        (inbox, "waits_for", does_nothing, "causal", BY_READING),
        (Causality, "merge", does_nothing, "causal", BY_READING),
        (AccessPoint, "learn_sequencer", passes_on_and_goes_on, "total", PASSED),
        (AccessPoint, "_give_up", publishes_what_it_refuses, "refused", promising(1, "central")),
        (DurableTable, "addressees", addresses_all, "no match", promising(1, "central")),
        (OwnedLogs, "to_entry", gives_the_record_before, "replay", promising(3, "central")),
    ],
    ids=[
        "nothing is sent again",
        "what finds no room is said to be taken",
        "the spool is not read after a restart",
        "a disk keeps nothing",
        "readers are given what a disk does not have yet",
        "positions are given that a disk does not have yet",
        "what waits is overtaken",
        "duplicates are published",
        "what was published elsewhere is not asked for",
        "what comes again is taken again",
        "what was taken is not known after a restart",
        "acknowledgements are not on the disk",
        "nothing waits for the sequencer",
        "a publisher that moves is not waited for",
        "what is published carries no context",
        "no stream waits for what a publisher sent elsewhere",
        "no stream waits for what was read",
        "what was read is not known",
        "two servers give one order",
        "what is refused is published",
        "the filter is not asked",
        "a log has another record than before",
    ],
)
def test_broken_guarantees_are_seen(
    owner: Any,
    name: str,
    broken: Callable[[Way], Way],
    what: str,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Worlds would pass despite broken guarantees."""
    monkeypatch.setattr(owner, name, broken(getattr(owner, name)))
    assert what in {each.what for each in run(script).violations}
    monkeypatch.undo()
    assert run(script).violations == []


def test_a_new_link_knows_durable_subscriptions() -> None:
    """Shipments over a new link would arrive before the announcements."""
    script = Script(
        1017,
        Kind("acyclic", Strategy.SUBSCRIPTIONS, reliable=True),
        2,
        ROUGH,
        (
            Connect(0, 0, 1, is_parent=False, delay_us=5_001),
            Move(3_000_000, "c1", 1),
            Move(3_000_000, "c2", 1),
            Crash(9_718_059, 0, keeps_store=True),
            OpenDurable(13_214_317, "c2", "d38", "b prefix 'x'", True, 5, OnFull.REFUSE, 0),
            PublishStep(13_273_149, "c1", "p45", {"b": "x"}, delivery="reliable total:t"),
        ),
    )
    outcome = run(script)
    assert (outcome.violations, outcome.must) == ([], 1)


# --- the checkers, on possible histories ----------------------------------------------------------

X, Y = "log x", "log y"


def sent(
    id_: str, delivery: str = "reliable", client: str = "c", number: int = 1, **more: Any
) -> Sent:
    """Returns an accepted publication of server 1 that matches the log x."""
    notification = Notification({"a": 1}, envelope=Envelope(id=id_, publisher=client))
    given: dict[str, Any] = {"brokers": [1], "known": frozenset({X}), "order": 5}
    given |= {"is_accepted": True, **more}
    return Sent(id_, notification, delivery_class(delivery), client, number, **given)


def check_reads(
    published: Sequence[Sent],
    logs: Mapping[tuple[str, str], Sequence[str]],
    crashes: Sequence[tuple[int, int, bool]] = (),
    filters: str = "a = 1",
    **subscription: Any,
) -> list[str]:
    """Returns the violations; `logs` are the read records, from position 1 on."""
    delivery = SimulatedDelivery(1, Schedule(), no_lines, 0, ())
    delivery.sent = {each.id: each for each in published}
    given: dict[str, Any] = {
        "broker": 2,
        "is_durable": True,
        "retention": Retention(),
        **subscription,
    }
    delivery.subscriptions = {
        name: DurableSpan(name, parse_filter_set(filters), **given) for name in (X, Y)
    }
    delivery.crashes = list(crashes)
    for reader, ids in logs.items():
        delivery.reads[reader].records = dict(enumerate(ids, 1))
    return [each.what for each in judge_delivery(delivery, Outcome())]


def no_lines(broker: int, to: str, message: object) -> None:
    """Raises: there are no neighbours."""
    raise AssertionError(message)


ONE, OTHER = sent("p1"), sent("p2", number=2)
FIRST, SECOND = sent("p1", "reliable fifo"), sent("p2", "reliable fifo", number=2)
CAUSE = sent("p1", "reliable causal")
EFFECT = sent("p2", "reliable causal", "d", past=frozenset({"p1"}))
IN_T, ALSO_IN_T = (sent(f"p{n}", "reliable total:t", f"c{n}") for n in (1, 2))
IN_U = sent("p2", "reliable total:u", "c2")


@pytest.mark.parametrize(
    ("published", "logs", "expected"),
    [
        ([ONE], {}, ["lost"]),
        ([ONE], {("r", Y): ["p1"]}, ["lost"]),
        ([ONE], {("r", X): ["p1"]}, []),
        ([sent("p1", known=frozenset())], {}, []),
        ([sent("p1", is_accepted=False)], {}, []),
        ([ONE], {("r", X): ["p1", "p1"]}, ["double"]),
        ([ONE], {("r", X): ["p1"], ("s", X): ["p1"]}, []),
        ([ONE, OTHER], {("r", X): ["p1", "p2"], ("s", X): ["p2"]}, ["replay"]),
        ([sent("p1", error=CannotPublishError(X))], {("r", X): ["p1"]}, ["refused"]),
        ([FIRST, SECOND], {("r", X): ["p2", "p1"]}, ["FIFO"]),
        ([ONE, OTHER], {("r", X): ["p2", "p1"]}, []),
        ([CAUSE, EFFECT], {("r", X): ["p2", "p1"]}, ["causal"]),
        ([CAUSE, EFFECT], {("r", X): ["p1", "p2"], ("r", Y): ["p2"]}, []),
        ([IN_T, ALSO_IN_T], {("r", X): ["p1", "p2"], ("r", Y): ["p2", "p1"]}, ["total"]),
        ([IN_T, IN_U], {("r", X): ["p1", "p2"], ("r", Y): ["p2", "p1"]}, []),
    ],
)
def test_violations_are_reported(
    published: list[Sent], logs: dict[tuple[str, str], list[str]], expected: list[str]
) -> None:
    """A checker would miss a violation, or report a permitted case."""
    assert check_reads(published, logs) == expected


def test_unmatched_records_are_reported() -> None:
    """A log could have unmatched notifications."""
    assert check_reads([ONE], {("r", X): ["p1"]}, filters="a = 2") == ["no match"]


@pytest.mark.parametrize(
    ("delivery", "crashes", "is_excused"),
    [
        ("reliable", [(6, 1, True)], True),  # its access point, afterwards
        ("reliable", [(4, 1, True)], False),  # before
        ("reliable", [(6, 2, True)], False),  # its owner, with its disk
        ("reliable", [(6, 0, True)], False),  # the sequencer, which is unrelated
        ("reliable total:t", [(6, 0, True)], True),
        ("reliable total:t", [(4, 0, True)], False),
        ("certified", [(6, 1, True)], False),
        ("certified", [(6, 1, False)], True),
        ("certified", [(4, 1, False)], False),
        ("certified total:t", [(6, 0, True)], False),
        ("certified total:t", [(4, 0, False)], True),  # it is a sequencer no longer
    ],
)
def test_losses_excused_by_a_crash(
    delivery: str, crashes: list[tuple[int, int, bool]], is_excused: bool
) -> None:
    """Excused losses would be reported, or others excused."""
    assert check_reads([sent("p1", delivery)], {}, crashes) == ([] if is_excused else ["lost"])


@pytest.mark.parametrize("subscription", [{"has_ended": True}, {"is_lost": True}])
def test_losses_excused_by_a_subscription(subscription: dict[str, Any]) -> None:
    """An ended subscription, or one in memory, would be reported."""
    assert check_reads([ONE], {}, **subscription) == []


@pytest.mark.parametrize(
    ("on_full", "room", "expected"),
    [
        (OnFull.DROP_OLDEST, 2, ["lost"]),
        (OnFull.DROP_OLDEST, 1, []),
        (OnFull.END, 2, ["lost"]),
        (OnFull.END, 1, []),
        (OnFull.REFUSE, 1, ["lost"]),
    ],
)
def test_only_possible_overflows_are_excused(
    on_full: OnFull, room: int, expected: list[str]
) -> None:
    """Half of all subscriptions could lose anything, since they may drop records."""
    retention = Retention(records_max=room, on_full=on_full)
    assert check_reads([ONE, OTHER], {("r", X): ["p2"]}, retention=retention) == expected


def test_a_lost_disk_excuses_duplicates() -> None:
    """A duplicate after the loss of a disk would be reported."""
    twice = {("r", X): ["p1", "p1"]}
    assert check_reads([ONE], twice, [(6, 1, False)]) == []
    assert check_reads([ONE], twice, [(6, 1, True)]) == ["double"]
    assert check_reads([ONE], twice, [(6, 2, False)]) == ["double"]


def test_only_a_crash_excuses_acknowledged_records() -> None:
    """Any crash would excuse a lost acknowledgement."""
    for crash_us, broker, at, what in (
        (SYNC_US - 1, 0, 0, []),  # its disk did not have it yet
        (SYNC_US, 0, 0, ["double"]),
        (SYNC_US, 0, 1, []),  # it was on its way from there
        (SYNC_US, 1, 1, []),
        (SYNC_US, 1, 0, ["double"]),
    ):
        schedule = Schedule()
        delivery = SimulatedDelivery(2, schedule, no_lines, 0, ())
        delivery.subscriptions[X] = DurableSpan(X, parse_filter_set("a = 1"), 0, True, Retention())
        delivery.sent["p1"] = ONE
        read = delivery.reads["r", X]
        delivery.note_read("r", X, 1, ONE.id, is_replay=False)
        read.late[1] = 0
        delivery._acknowledge(at, "r", X, read)
        schedule.run(crash_us)
        delivery.crash(broker, keeps_store=True)
        delivery.note_read("r", X, 1, ONE.id, is_replay=False)
        assert [each.what for each in judge_delivery(delivery, Outcome())] == what
