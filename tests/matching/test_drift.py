"""When an index finds that its filters hang badly."""

from random import Random

import contrada as ct
from contrada.matching import drift
from contrada.matching.tables import LOOKED
from tests.matching.engines import arrays_of, new_index


def filters(random: Random, key: int) -> ct.Filter:
    """Asks for a kind and for an owner, of which there are ten, and for what all but one have."""
    kind, owner = f"k{random.randrange(10)}", f"o{random.randrange(10)}"
    return ct.Filter({"kind": kind, "owner": owner, "number": ct.none_of(key)})


def looked_at(index: ct.Index[int], notifications: list[dict[str, str]]) -> float:
    """Filters looked at per notification, maintaining the index meanwhile."""
    total = 0
    for notification in notifications:
        index.match(notification)
        counters = arrays_of(index)._generation.arrays.of["counters"]
        total += int(counters[LOOKED])
        index.maintain(16)
    return total / len(notifications)


def test_places_follow_what_is_published() -> None:
    """Filters would stay where they were hung before anything was known of notifications."""
    random = Random(5)
    index: ct.Index[int] = new_index(False)
    for key in range(2_000):
        index.add(key, filters(random, key))
    size = drift.NOTIFICATIONS_BETWEEN
    by_kind = [{"kind": "k1", "owner": f"o{random.randrange(10)}"} for _ in range(2 * size)]
    before = looked_at(index, by_kind[:1_000])
    looked_at(index, by_kind)
    after = looked_at(index, by_kind[:1_000])
    assert after < before / 2
    by_owner = [{"kind": each["owner"].replace("o", "k"), "owner": "o1"} for each in by_kind]
    before = looked_at(index, by_owner[:1_000])
    for _ in range(3):
        looked_at(index, by_owner)
    assert looked_at(index, by_owner[:1_000]) < before / 2
    index.validate()


def test_what_hangs_well_is_left_alone() -> None:
    """An index would be renewed again and again for nothing."""
    random = Random(6)
    index: ct.Index[int] = new_index(False)
    for key in range(2_000):
        index.add(key, ct.Filter({"id": key}))
    first = arrays_of(index)._generation
    for _ in range(3 * drift.NOTIFICATIONS_BETWEEN):
        index.match({"id": random.randrange(4_000)})
        assert not index.maintain(8)
    assert arrays_of(index)._generation is first
