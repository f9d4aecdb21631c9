"""Where filters hang before and after anything was published, and that matching keeps it so."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

import contrada as ct
from contrada.matching.generation import UNUSED_BYTES_MIN
from contrada.matching.hanging import REHUNG_AT_ONCE
from contrada.model.algebra import sets
from tests.matching.engines import COMPILED, arrays_of, module, new_index


def index_of(filters: Iterable[ct.Filter], *, compiled: bool) -> ct.Index[int]:
    index: ct.Index[int] = new_index(compiled)
    for key, each in enumerate(filters):
        index.add(key, each)
    return index


def counted(index: ct.Index[int], counter: str, notifications: list[dict[str, Any]]) -> float:
    """The mean of a counter over matches."""
    total = 0
    for notification in notifications:
        index.match(notification)
        total += int(arrays_of(index)._generation.arrays.of["counters"][counter][0])
    return total / len(notifications)


@pytest.mark.parametrize("compiled", COMPILED)
def test_filters_hang_at_the_attribute_of_many_values(compiled: bool) -> None:
    """The attribute that got the first filters would get all of them, in its four buckets."""
    filters = (ct.Filter({"kind": f"k{n % 4}", "owner": f"o{n}"}) for n in range(2_000))
    index = index_of(filters, compiled=compiled)
    asked = [{"kind": f"k{n % 4}", "owner": f"o{n}"} for n in range(100, 130)]
    assert counted(index, "looked", asked) < 40
    assert all(index.match(each) == [100 + n] for n, each in enumerate(asked))
    index.validate()


@pytest.mark.quick_every(3)
@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("part", [sets.prefix, sets.suffix, sets.contains])
def test_filters_hang_at_the_parts_of_texts_that_are_many(part: Any, compiled: bool) -> None:
    """An equality of thirty values would always seem rarer than three letters."""
    filters = (ct.Filter({"kind": f"k{n % 30}", "path": part(f"{n:03}")}) for n in range(1_000))
    index = index_of(filters, compiled=compiled)
    asked = [{"kind": f"k{n % 30}", "path": f"{n:03}"} for n in range(500, 520)]
    assert counted(index, "looked", asked) < 20


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_narrow_range_is_known_wherever_filters_hang(compiled: bool) -> None:
    """Ranges would count only where filters hang by them, which then none would begin to do."""
    low = Random(3).sample(range(2_000), 2_000)
    filters = (ct.Filter({"kind": f"k{n % 4}", "price": sets.between(n, n + 1)}) for n in low)
    index = index_of(filters, compiled=compiled)
    asked = [{"kind": f"k{n % 4}", "price": n} for n in range(1_500, 1_520)]
    assert counted(index, "looked", asked) < 400


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_renewal_does_not_make_it_worse(compiled: bool) -> None:
    """A pool made anew would cut its bins by the ends of its first filter alone."""
    random = Random(7)
    names = [f"name{n}" for n in range(5)]
    filters = [
        ct.Filter({name: sets.between(low := random.random() / 2, low + 0.5) for name in names})
        for _ in range(500)
    ]
    index = index_of(filters, compiled=compiled)
    asked = [{name: random.random() for name in names} for _ in range(300)]
    before = counted(index, "candidates", asked)
    index.renew()
    index.validate()
    assert counted(index, "candidates", asked) <= 1.2 * before


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_updates_tidy_up_by_themselves(compiled: bool) -> None:
    """Memory of gone filters would be kept where nobody calls `maintain`."""
    index: ct.Index[int] = new_index(compiled)
    large = "x" * (UNUSED_BYTES_MIN // 256)
    for key in range(1_000):
        index.add(key % 8, ct.Filter({"a": f"{large}{key}"}))
    assert index.statistics().bytes < 3 * UNUSED_BYTES_MIN
    assert index.match({"a": f"{large}999"}) == [999 % 8]
    index.validate()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_answers_stay_exact_while_filters_are_hung_anew(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter on its way to another place would be missed, or be found twice."""
    monkeypatch.setattr(module("hanging", compiled), "LOOKED_BETWEEN", 0)
    random = Random(11)

    def made() -> ct.Filter:
        low = random.randrange(50)
        return ct.Filter(
            {
                "kind": sets.in_("k0", f"k{random.randint(1, 4)}"),
                "path": sets.prefix(random.choice("abcdef")),
                "price": sets.between(low, low + 50),
            }
        )

    filters = [made() for _ in range(600)]
    index = index_of(filters, compiled=compiled)
    places = arrays_of(index)._generation.arrays.of["filters"]["place"][:600].copy()
    asked: list[dict[str, Any]] = [
        {"kind": f"k{random.randrange(8)}", "path": "ax", "price": random.randrange(100)}
        for _ in range(40)
    ]
    expected = [
        [key for key, each in enumerate(filters) if each.matches(ct.Notification(given))]
        for given in asked
    ]
    for turn in range(600 // REHUNG_AT_ONCE * 4):
        at = turn % len(asked)
        assert sorted(index.match(asked[at])) == expected[at]
    assert (arrays_of(index)._generation.arrays.of["filters"]["place"][:600] != places).any(), (
        "nothing was moved"
    )
    index.validate()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_the_only_filter_of_a_bucket_is_hung_anew(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that its last filter has left would be asked for one more."""
    monkeypatch.setattr(module("hanging", compiled), "LOOKED_BETWEEN", 0)
    if not compiled:
        monkeypatch.setattr(module("hanging"), "SEEN_MIN", 64)
    names = [f"a{n}" for n in range(80)]
    index = index_of((ct.Filter({name: 1, "kind": "k"}) for name in names), compiled=compiled)
    asked = dict.fromkeys(names, 1) | {"kind": "other"}
    before = counted(index, "looked", [asked])
    assert before == len(names)
    assert counted(index, "looked", [asked] * (800 if compiled else 400)) < before
    assert counted(index, "looked", [asked]) < 70
    assert index.match(asked | {"kind": "k"}) != []
    index.validate()
