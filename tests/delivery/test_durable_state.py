"""`DurableState`: what a standby follows is what a server would read at its start."""

from collections import deque
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from contrada.delivery.delivery_messages import AnnounceOwner, CloseLog, DurableEntry
from contrada.delivery.delivery_server import DeliveryServer
from contrada.delivery.durable_state import DurableState
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.retention import Retention
from contrada.routing.router_messages import Neighbour
from tests.delivery.network import all_of, notice

SMALL = Retention(records_max=3, attempts_max=9, backoff_s=1.0)

PROBES = [notice(i, "reliable") for i in range(6)]

STEPS = st.one_of(
    st.tuples(
        st.sampled_from(("create", "end", "nack", "done", "learn", "unlearn")), st.integers(0, 2)
    ),
    st.tuples(st.sampled_from(("publish", "look", "forget")), st.just(0)),
)


class Leader:
    """A server whose store a standby follows, and a reader of each subscription."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.server = DeliveryServer("a", incarnation=1, store=self.store, sequencer="a")
        self._number, self._version = 0, 0

    def do(self, step: str, which: int) -> None:
        """Makes one change, if it is possible now, and brings it to the disk."""
        server, name, self._number = self.server, f"s{which}", self._number + 1
        terms = server.logs.terms(name)
        if step == "create" and terms is None:
            filters = all_of(f"i >= {self._number % 4}")
            server.create_subscription(name, filters, 5, SMALL, is_durable=True)
        elif step == "publish":
            server.publish(self._number, "p", [notice(self._number % 6, "certified")], 5)
        elif step in ("learn", "unlearn"):
            self._version += 1
            entry = DurableEntry(f"o{which}", all_of(f"i < {which}")) if step == "learn" else None
            age, is_whole = (7, 0, self._version), self._version == 1
            message = AnnounceOwner("o", *age, is_whole, ((which, entry),), True, True)
            server.receive(Neighbour("o"), message, 5)
        elif step == "forget":
            server.forget("o", 5)
            self._version = 0
        elif terms is not None:
            log = server.logs.log_of(name)
            if step == "end":
                server.consume("", CloseLog(name, "", ends=True), 5)
            elif step == "nack":
                log.open("r")
                log.grant("r", 1)
                log.nack("r", [each.entry.position for each in log.take("r", now_us=5)], 5)
                log.close("r")
                log.attempts.write()
            else:
                log.acknowledge([(log.extent.first, min(log.extent.first + 1, log.extent.next))])
                server.settle_logs([name], 5)
        self.store.sync()


def content_of(state: DurableState) -> dict[str, Any]:
    """All that a server takes from a state."""
    table, logs = state.table, state.logs
    own = {}
    for number, entry in logs.subscriptions().items():
        log = logs.log_of(entry.name)
        rows = [(at, log.attempts[at], log.attempts.due_us(at)) for at in sorted(log.attempts)]
        own[number] = entry, log.retention, log.extent, list(log.done), log.available, rows
    return {
        "owners": {
            name: (each.age[: 3 * (name != "a")], each.entries)
            for name, each in table.owners.items()
        },
        "own": own,
        "names": sorted(logs.names()),
        "index": table.addressees(PROBES),
        "full": sorted(number for number, _ in logs.changes()),
        "next": logs.create("new", all_of(), Retention(), is_durable=False)[0],
    }


def looked_at(*steps: tuple[str, int]) -> list[tuple[str, int]]:
    """Steps, each with a look behind."""
    return [each for step in steps for each in (step, ("look", 0))]


@given(steps=st.lists(STEPS, max_size=30))
@example(steps=looked_at(("create", 0), ("publish", 0), ("nack", 0)))
@example(steps=looked_at(("create", 0), ("publish", 0), ("done", 0), ("end", 0)))
@example(steps=[*looked_at(("create", 0)), ("end", 0), ("create", 1), ("create", 0)])
@example(steps=looked_at(("learn", 0), ("learn", 1), ("unlearn", 0), ("forget", 0)))
@example(steps=[*looked_at(("learn", 0)), ("forget", 0), ("learn", 1)])
def test_a_followed_state_is_as_one_that_is_read(steps: list[tuple[str, int]]) -> None:
    """A leader that took over would miss a subscription, a record, an attempt or a server."""
    leader, copy = Leader(), MemoryStore()
    state = DurableState("a", copy)
    for step, which in [*steps, ("look", 0)]:
        if step == "look":
            deque(state.follow(copy.open_disk_of(leader.store)), maxlen=0)
        else:
            leader.do(step, which)
    state.table.validate()
    assert not copy.unsynced, "a standby writes nothing"
    fresh = MemoryStore()
    fresh.open_disk_of(leader.store)
    server = DeliveryServer("a", incarnation=9, store=copy, sequencer="a", state=state)
    server.validate()
    assert content_of(state) == content_of(DurableState("a", fresh))


def test_only_what_has_changed_is_looked_at() -> None:
    """A take-over would take longer the more durable subscriptions there are."""
    leader, copy = Leader(), MemoryStore()
    for which in range(30):
        leader.do("create", which)
    state = DurableState("a", copy)
    assert len([*state.follow(copy.open_disk_of(leader.store))]) == 30
    logs = {name: state.logs.log_of(name) for name in state.logs.names()}
    leader.do("nack", 3)
    leader.do("end", 4)
    leader.do("create", 4)
    assert [*state.follow(copy.open_disk_of(leader.store))] == ["s4", "s4"]
    leader.server.publish(99, "q", [notice(0, "certified")], 5)
    leader.store.sync()
    changed = {*state.follow(copy.open_disk_of(leader.store))}
    assert changed == {name for name in logs if int(name[1:]) % 4 == 3}
    assert all(
        state.logs.log_of(name) is of for name, of in logs.items() if name not in changed | {"s4"}
    )
