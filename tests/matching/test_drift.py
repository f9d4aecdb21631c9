"""When an index finds that its filters hang badly, and what it does then: all by matching."""

from random import Random
from typing import Any

import pytest

import contrada as ct
from tests.matching.engines import arrays_of, module, new_index

drift = module("hanging")


def filters(random: Random, key: int) -> ct.Filter:
    """Asks for a kind and for an owner, of which there are ten, and for what all but one have."""
    kind, owner = f"k{random.randrange(10)}", f"o{random.randrange(10)}"
    return ct.Filter({"kind": kind, "owner": owner, "number": ct.none_of(key)})


def looked_at(index: ct.Index[int], notifications: list[dict[str, str]]) -> float:
    """Filters looked at per notification."""
    total = 0
    for notification in notifications:
        index.match(notification)
        total += arrays_of(index)._generation.arrays.counters.looked[0]
    return total / len(notifications)


def test_places_follow_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters would stay where they were hung before anything was known of notifications."""
    monkeypatch.setattr(drift, "FADING_AFTER", 500)
    monkeypatch.setattr(drift, "LOOKED_BETWEEN", 0)
    random = Random(5)
    index: ct.Index[int] = new_index(False)
    for key in range(2_000):
        index.add(key, filters(random, key))
    size = 2 * drift.FADING_AFTER
    by_kind = [{"kind": "k1", "owner": f"o{random.randrange(10)}"} for _ in range(2 * size)]
    before = looked_at(index, by_kind[: drift.SEEN_MIN])
    looked_at(index, by_kind)
    after = looked_at(index, by_kind[:1_000])
    assert after < before / 2
    by_owner = [{"kind": each["owner"].replace("o", "k"), "owner": "o1"} for each in by_kind]
    before = looked_at(index, by_owner[:1_000])
    for _ in range(3):
        looked_at(index, by_owner)
    assert looked_at(index, by_owner[:1_000]) < before / 2
    index.validate()


def test_what_hangs_well_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters would be hung anew again and again for nothing."""
    monkeypatch.setattr(drift, "LOOKED_BETWEEN", 0)
    random = Random(6)
    index: ct.Index[int] = new_index(False)
    for key in range(2_000):
        index.add(key, ct.Filter({"kind": f"k{key % 10}", "id": ct.none_of(key)}))
    asked: list[int] = []
    rehang = drift.Hanging.rehang

    def counted(hanging: Any, bucket: int, place: int) -> bool:
        asked.append(place)
        return bool(rehang(hanging, bucket, place))

    monkeypatch.setattr(drift.Hanging, "rehang", counted)
    first = arrays_of(index)._generation
    for _ in range(drift.PATIENCE_MAX):
        index.match({"kind": f"k{random.randrange(10)}", "id": -1})
        assert not index.maintain(8)
    assert arrays_of(index)._generation is first
    assert len(asked) <= drift.REHUNG_AT_ONCE * (drift.PATIENCE_MAX.bit_length() + 1)
