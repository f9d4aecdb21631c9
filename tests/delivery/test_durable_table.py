"""`DurableTable`: one version of each owner's announcements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import AnnounceOwner, DurableEntry
from contrada.delivery.durable_table import DurableTable, LogOwner
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.store import Notes
from contrada.errors import LimitError
from tests.delivery.network import all_of, notice


def make_table(
    name: str,
    store: MemoryStore | None = None,
    incarnation: int = 1,
    boot: int = 0,
    limits: DeliveryLimits = DeliveryLimits(),
) -> DurableTable:
    """Returns an empty table of a server."""
    own = LogOwner(incarnation, boot, 0, store is not None, True)
    return DurableTable(name, own, Notes(store), limits)


def names_by_owner(of: DurableTable) -> dict[str, dict[int, str]]:
    """Returns the names by owner and number."""
    return {
        name: {number: each.name for number, each in owner.entries.items()}
        for name, owner in of.owners.items()
    }


@given(
    changes=st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12),
    cuts=st.sets(st.integers(0, 12)),
    restarts=st.sets(st.integers(0, 12)),
)
def test_a_new_neighbour_learns_all_durable_subscriptions(
    changes: list[tuple[int, bool]], cuts: set[int], restarts: set[int]
) -> None:
    """Publications elsewhere would miss a subscription, or reach an ended one."""
    owner, store = make_table("h"), MemoryStore()
    other = make_table("o", store)
    wire: list[AnnounceOwner] = [*owner.announcements()]
    for at, (number, stands) in enumerate(changes):
        if at in restarts:
            kept = owner.own
            owner = make_table("h", boot=kept.boot + 1)
            for each, stood in kept.entries.items():
                owner.change(each, stood)
            wire = [*owner.announcements()]
        message = owner.change(number, DurableEntry(f"s{at}", all_of()) if stands else None)
        wire.append(message)
        if at in cuts:
            wire = [*owner.announcements()]
        while wire and at % 3 == 0:
            other.learn(wire.pop(0))
            other.validate()
    for message in wire:
        other.learn(message)
    assert names_by_owner(other)["h"] == names_by_owner(owner)["h"]
    assert not other.learn(next(owner.announcements())), "nothing of it is news"
    store.sync()
    store.crash()
    again = make_table("o", store)
    assert names_by_owner(again) == names_by_owner(other)
    again.validate()


def test_only_newer_announcements_count() -> None:
    """A late announcement would restore an ended subscription."""
    of = make_table("o")
    assert of.learn(AnnounceOwner("h", 2, 1, 3, True, ((1, DurableEntry("s", all_of())),)))
    for older in ((1, 9, 9), (2, 0, 9), (2, 1, 3)):
        assert not of.learn(AnnounceOwner("h", *older, True, ()))
    assert not of.learn(AnnounceOwner("h", 2, 1, 5, False, ((1, None),))), "one before is missing"
    assert of.learn(AnnounceOwner("h", 2, 1, 4, False, ((1, None), (7, None))))
    assert names_by_owner(of) == {"o": {}, "h": {}}
    assert of.learn(AnnounceOwner("h", 3, 0, 0, True, ()))
    assert not of.learn(AnnounceOwner("o", 99, 9, 9, True, ((1, DurableEntry("s", all_of())),)))
    assert names_by_owner(of)["o"] == {}, "a server alone says what stands there"


def test_each_is_addressed_to_the_owners_of_matching_subscriptions() -> None:
    """An owner would miss a notification, or get one in vain."""
    of = make_table("o")
    of.change(1, DurableEntry("mine", all_of("i > 1")))
    many = ((1, DurableEntry("s", all_of("i > 2"))), (2, DurableEntry("t", all_of("i = 3"))))
    of.learn(AnnounceOwner("h", 1, 0, 2, True, many))
    found = of.addressees([notice(i, "reliable") for i in (1, 2, 3)])
    found[2]["h"].sort()
    assert found == [{}, {"o": [1]}, {"o": [1], "h": [1, 2]}]
    full = DurableEntry("s", all_of("i > 2"), is_full=True)
    assert of.learn(AnnounceOwner("h", 1, 0, 3, False, ((1, full),)))
    assert of.owners["h"].entries[1].is_full
    of.forget("h")
    assert of.addressees([notice(3, "reliable")]) == [{"o": [1]}]


def test_names_are_found() -> None:
    """Two subscriptions would have one name, or a consumer not find its own."""
    of = make_table("o")
    assert of.owner_of("s") is None
    of.learn(AnnounceOwner("h", 1, 0, 1, True, ((5, DurableEntry("s", all_of())),)))
    of.learn(AnnounceOwner("g", 1, 0, 1, True, ((6, DurableEntry("s", all_of())),)))
    assert of.owner_of("s") == ("g", 6)
    of.forget("g")
    assert of.owner_of("s") == ("h", 5)
    of.learn(AnnounceOwner("h", 1, 0, 2, False, ((5, DurableEntry("t", all_of())),)))
    assert (of.owner_of("s"), of.owner_of("t")) == (None, ("h", 5))
    of.validate()


def test_a_change_without_a_full_announcement_is_ignored() -> None:
    """An unreachable owner would be announced to others."""
    of = make_table("o")
    assert not of.learn(AnnounceOwner("h", 1, 0, 7, False, ((5, DurableEntry("s", all_of())),)))
    assert [*of.owners] == ["o"]
    assert of.learn(AnnounceOwner("h", 1, 0, 7, True, ((5, DurableEntry("s", all_of())),)))


def test_what_is_known_is_bounded() -> None:
    """Another server could fill the memory; or its announcement raise here."""
    of = make_table("o", limits=DeliveryLimits(durable_subscriptions_max=2, owners_max=2))
    of.change(1, DurableEntry("mine", all_of()))
    many = tuple((n, DurableEntry(f"s{n}", all_of())) for n in range(3))
    assert of.learn(AnnounceOwner("h", 1, 0, 1, True, many))
    assert (len(of), of.left_out) == (2, 2)
    with pytest.raises(LimitError, match="durable_subscriptions_max"):
        of.check_room(1)
    assert not of.learn(AnnounceOwner("g", 1, 0, 1, True, ()))
    assert of.left_out == 3
    assert of.learn(AnnounceOwner("h", 1, 0, 2, False, ((0, None), (9, None))))
    of.validate()
