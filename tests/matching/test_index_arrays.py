"""How the arrays grow and move, are saved and freed; and chains of small numbers in them."""

import mmap
import runpy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import contrada as ct
from contrada.matching import index_arrays
from contrada.matching.index_arrays import COPIED_BYTES_MAX, EMPTY, Arrays, Chains, grown
from contrada.matching.kernels.memory import Rows, address_of
from contrada.matching.kernels.schema import (
    ARRAYS,
    GRAM_BITS_BYTES,
    NEED_OUT,
    NEED_STAMPS,
    NEED_TEXT,
    NEED_VALUES,
    PIVOTS,
    STORE,
)
from tests.matching.engines import generation_of, module, table

HASH_TABLES = ("names", "slots", "equal", "text_slots")


# --- growing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["texts", "program", "entries"])
def test_grown_arrays_keep_their_rows(name: str) -> None:
    """Rows would be lost, or fresh ones have the former contents of memory."""
    rows = Rows.zeros(ARRAYS[name], 10)
    width = len(rows.numbers) // 10
    rows.numbers[-1] = 1
    assert grown(rows, 10) is rows
    bigger = grown(rows, 11)
    assert len(bigger) == 10 + 5 + 16
    assert bigger.part(0, 10) == rows.numbers
    assert not any(bigger.numbers[10 * width :])
    assert len(grown(rows, 100)) == 100


def test_a_large_array_is_hardly_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update would wait for a copy of all; or none could be made."""
    large = Rows(ARRAYS["texts"], bytearray(b"\1" * (COPIED_BYTES_MAX + 1)))
    assert len(grown(large, len(large) + 1)) == 64 * len(large)
    small = Rows(ARRAYS["texts"], large.numbers[:-1])
    assert len(grown(small, len(large))) < 2 * len(large), "it is small enough"
    promised = mmap.mmap

    def mapped(file: int, size: int, **options: int) -> Any:
        if size > 2 * len(large):
            raise OSError("no memory")
        return promised(file, size, **options)

    monkeypatch.setattr(mmap, "mmap", mapped)
    bigger = grown(large, len(large) + 1)
    assert len(bigger) == len(large) + len(large) // 2 + 16
    assert all(bigger.part(0, len(large)))


def checked(arrays: Any) -> None:
    """Checks the invariants of arrays."""
    for i, name in enumerate(ARRAYS):
        array = table(arrays, name)
        if isinstance(arrays.memory, int):  # The table is for compiled kernels.
            place = [address_of(arrays.of[name].numbers), len(array)]
            assert arrays._table[2 * i : 2 * i + 2].tolist() == place, name
        assert len(getattr(arrays, name)) == len(array), name
        assert len(array) >= arrays.used[name], name
    for name in HASH_TABLES:
        size = len(table(arrays, name))
        assert size & (size - 1) == 0, name
        assert 4 * np.count_nonzero(table(arrays, name)) <= 3 * size, name


@given(st.lists(st.tuples(st.sampled_from(list(ARRAYS)), st.integers(0, 300)), max_size=12))
def test_kernels_get_the_address_of_each_array(asked: Any) -> None:
    """A kernel would read where an array was before it moved."""
    arrays = Arrays()
    checked(arrays)
    for name, rows in asked:
        if name not in HASH_TABLES:
            arrays.of[name].numbers[0] = 1
            arrays.reserve(name, rows)
            assert arrays.of[name].numbers[0] == 1
            assert len(table(arrays, name)) >= rows
    checked(arrays)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("attrs", {"parts": 6, "state": 1, "present": 1}),
        ("trees", {"pivots": PIVOTS}),
        ("pools", {"pool_attrs": 32}),
        ("sketches", {"registers": 64}),
        ("buckets", {"bucket_list": 1}),
        ("sets_by_row", {"set_seen": 1}),
    ],
)
def test_arrays_that_go_together_grow_together(name: str, others: Any) -> None:
    """A kernel would write its results behind the end of an array."""
    arrays = Arrays()
    assert [arrays.take(name, 70), arrays.take(name), arrays.used[name]] == [0, 70, 71]
    for other, rows in others.items():
        assert len(table(arrays, other)) >= 71 * rows


@given(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=60))
def test_hash_tables_stay_half_empty(hashes: Any) -> None:
    """The look-up of an unknown entry would never end."""
    arrays = generation_of([ct.Filter({f"a{n}": n}) for n in range(20)], False).arrays
    for h in hashes:
        arrays.place_bucket(h, 0, 0.5, 0, 0, arrays)
        checked(arrays)


# --- the buckets of a match ---------------------------------------------------------------------


def test_arrays_are_doubled_for_kernels() -> None:
    """A notification would be matched again and again without getting its room."""
    arrays = Arrays()
    arrays.counters.seen[0] = arrays.counters.matched[0] = 5
    for status, name in ((NEED_TEXT, "text"), (NEED_VALUES, "values"), (NEED_OUT, "out")):
        before = len(table(arrays, name))
        arrays.grow_for(status)
        assert len(table(arrays, name)) >= 2 * before, name
    assert arrays.counters.seen[0] == arrays.counters.matched[0] == 4, "it is matched once more"


def test_stamps_are_cleared_and_statistics_halved() -> None:
    """An old stamp would look new; or the statistics be forgotten at once."""
    arrays = Arrays()
    stamped = [("counters", "epoch"), ("state", "epoch"), ("buckets", "stamp")]
    seen = [("counters", "seen"), ("attrs", "seen"), ("buckets", "hits")]
    for name, field in stamped + seen:
        table(arrays, name)[field] = 7
    table(arrays, "key_seen")[:] = table(arrays, "set_seen")[:] = 7
    for name in ("attrs", "buckets", "owned", "sets_by_row"):
        arrays.used[name] = len(table(arrays, name))
    arrays.grow_for(NEED_STAMPS)
    assert not any(table(arrays, name)[field].any() for name, field in stamped)
    assert not table(arrays, "key_seen").any()
    assert not table(arrays, "set_seen").any()
    assert all((table(arrays, name)[field] == 3).all() for name, field in seen)


@pytest.mark.parametrize("secret", [1, 2**61, -1])
def test_each_process_has_its_own_seed(secret: int) -> None:
    """A client could compute values with equal hashes, and make any broker slow."""
    of_process = runpy.run_path(index_arrays.__file__, {"hash": lambda _: secret})
    assert of_process["Arrays"]().seed[0] == secret % 2**62


def test_bits_of_substrings_take_no_room_before_one_is_asked_for() -> None:
    """Each index would hold 64 KiB for nothing; or a substring's bit be nobody's."""
    arrays = Arrays()
    assert len(table(arrays, "gram_bits")) < 100
    arrays.enter_gram(0, 0x616263)
    assert arrays.used["gram_bits"] == GRAM_BITS_BYTES
    gram_bit = module("kernels.scratch").gram_bit
    (byte,) = np.flatnonzero(table(arrays, "gram_bits")).tolist()
    bit = gram_bit(0, 0x616263, 8 * len(table(arrays, "gram_bits")))
    assert (byte, table(arrays, "gram_bits")[byte]) == (bit >> 3, 1 << (bit & 7))


# --- all of them --------------------------------------------------------------------------------


def test_saved_arrays_are_restored() -> None:
    """A filter would be restored without its place, or the scratch be too small for it."""
    filters = [
        ct.Filter({"a": n, "b": ct.ops.contains(f"x{n}"), "c": ct.ops.gt(n)}) for n in range(50)
    ]
    segment = generation_of(filters, False)
    before = segment.arrays
    restored = module("index_arrays").Arrays()
    rows_of = module("kernels.memory").Rows
    saved = {name: bytearray(before.used_rows(name)) for name in STORE}
    restored.restore({name: rows_of(ARRAYS[name], saved[name]) for name in STORE}, before.used)
    checked(restored)
    for name in STORE:
        rows = len(saved[name]) // ARRAYS[name].row_bytes
        assert restored.of[name].part(0, rows).tobytes() == saved[name], name
        assert rows < len(table(before, name)) or name not in ("entries", "program"), name
    for number in range(50):
        assert restored.words_of(number) == before.words_of(number)
    assert len(table(restored, "stack")) > restored.used["sets"]
    assert len(table(restored, "bucket_list")) > restored.used["buckets"]
    assert restored.bin_at(0, (4, 0)) == before.bin_at(0, (4, 0))


def test_arrays_are_freed_one_at_a_time() -> None:
    """All of a large index would be freed between two updates."""
    arrays = Arrays()
    held = arrays.bytes_used()
    assert 0 < held < sum(each.numbers.nbytes for each in arrays.of.values())
    steps = 0
    while arrays.dissolve():
        steps += 1
    assert steps == len(ARRAYS)
    assert arrays.bytes_used() == 0


# --- chains -------------------------------------------------------------------------------------


class ChainsOfNumbers(RuleBasedStateMachine):
    """Numbers are added to chains and removed, against lists."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays = Arrays()
        self.chains = Chains(self.arrays)
        self.heads = [EMPTY] * 4
        self.rows: list[dict[int, int]] = [{} for _ in range(4)]

    @rule(chain=st.integers(0, 3), value=st.integers(0, 9))
    def put(self, chain: Any, value: Any) -> None:
        rows, before = self.rows[chain], self.heads[chain]
        if value not in rows:
            self.heads[chain], rows[value] = self.chains.put(value, before)
            if before >= 0:  # the single one has a row now, the one after
                rows[before] = self.arrays.links.next[rows[value]]

    @rule(chain=st.integers(0, 3), value=st.integers(0, 9))
    def take(self, chain: Any, value: Any) -> None:
        if value in self.rows[chain]:
            row = self.rows[chain].pop(value)
            self.heads[chain] = self.chains.take(value, row, self.heads[chain])

    @rule(chain=st.integers(0, 3))
    def drop(self, chain: Any) -> None:
        self.chains.drop(self.heads[chain])
        self.heads[chain], self.rows[chain] = EMPTY, {}

    @invariant()
    def chains_hold_what_they_got(self) -> None:
        links = self.arrays.links
        taken: list[int] = []
        for head, rows in zip(self.heads, self.rows, strict=True):
            assert sorted(self.chains.values(head)) == sorted(rows)
            if head < EMPTY:
                assert all(links.value[row] == value for value, row in rows.items())
                taken += rows.values()
        assert sorted(taken + self.chains.free_rows) == list(range(self.arrays.used["links"]))


TestChains = ChainsOfNumbers.TestCase
TestChains.__doc__ = "A key of a filter, or a row of the chains, would be lost or be used twice."


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=6))
def test_a_chain_of_places_says_which_entry_each_is(places: Any) -> None:
    """A filter would be taken out of another's entry."""
    chains = Chains(Arrays())
    head = chains.of_places(places)
    at = places[0][1] if places else 0
    assert sorted(chains.places(head, at)) == sorted(places)
    assert sorted(chains.values(head)) == sorted(bucket for bucket, _ in places)
