"""Keys by small numbers: integers in an array, others in a dictionary."""

import weakref
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import contrada as ct
from tests.matching.engines import COMPILED, module, needs_native, new_index

INTEGERS = [*range(-3, 30), 2**63 - 1, -(2**63), 2**32, 2**40 + 1]
OTHERS = ["text", "1", None, True, 2.5, 2**64, (1, "x"), b"1"]


class SlotsOfKeys(RuleBasedStateMachine):
    """Keys are added, removed and saved, against a dict."""

    compiled = False

    def __init__(self) -> None:
        super().__init__()
        self.type: Any = module("key_table", self.compiled).KeyTable
        self.slots: Any = self.type()
        self.by_key: dict[Any, int] = {}

    def take(self, key: Any) -> None:
        found = self.slots.find(key)
        if key in self.by_key:
            assert found == self.by_key[key]
            return
        assert found < 0
        slot = self.slots.take(key, found)
        assert slot not in self.by_key.values()
        self.by_key[key] = slot

    @rule(key=st.sampled_from(INTEGERS))
    def take_integer(self, key: Any) -> None:
        self.take(key)

    @precondition(lambda self: len(self.by_key) > 8)
    @rule(key=st.sampled_from(OTHERS))
    def take_other(self, key: Any) -> None:
        self.take(key)

    @rule(key=st.sampled_from(INTEGERS + OTHERS))
    def free_slot(self, key: Any) -> None:
        if key in self.by_key:
            self.slots.free_slot(self.by_key.pop(key))

    @rule()
    def save(self) -> None:
        self.slots = self.type.of(self.slots.by_slot(), list(self.slots.free))

    @invariant()
    def every_key_has_its_slot(self) -> None:
        slots = self.slots
        slots.validate()
        assert len(slots) == len(self.by_key)
        assert {slots.by_slot()[slot]: slot for slot in slots} == self.by_key
        assert all(slots.find(key) < 0 for key in (*INTEGERS, *OTHERS) if key not in self.by_key)
        keys = slots.by_slot()
        assert all(keys[slot] == key for key, slot in self.by_key.items())
        assert all(keys[slot] is None for slot in slots.free)


class CompiledSlotsOfKeys(SlotsOfKeys):
    """The same on compiled kernels."""

    compiled = True


TestSlots = SlotsOfKeys.TestCase
TestSlots.__doc__ = (
    "A key would be lost when another goes, or when the first that is no integer comes."
)
TestCompiledSlots = needs_native(CompiledSlotsOfKeys.TestCase)
TestCompiledSlots.__doc__ = "The same on compiled kernels."


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize(
    ("key", "found"),
    [
        *((each, True) for each in (1, 1.0, True, Decimal(1))),
        *((each, False) for each in ("1", b"1", 1.5, (1,), None, 2**64 + 1, float("nan"))),
        *((each, False) for each in (float("inf"), -(2**63) - 1, "9" * 10_000, object())),
    ],
    ids=range(15),
)
def test_values_equal_to_an_integer_are_its_key(key: Any, found: bool, compiled: Any) -> None:
    """A key would be found as a dict finds it only while some key is no integer, or only then."""
    slots = module("key_table", compiled).KeyTable()
    slots.take(1, slots.find(1))
    for _ in range(2):
        assert (slots.find(key) == 0) is found
        slots.take("other", slots.find("other"))  # from now on keys are in a dictionary


@pytest.mark.parametrize("compiled", COMPILED)
def test_a_slot_is_a_plain_number(compiled: Any) -> None:
    """An index from which a key was removed could not be saved."""
    slots = module("key_table", compiled).KeyTable()
    slots.take(7, slots.find(7))
    slots.free_slot(slots.find(7))
    assert [type(each) for each in slots.free] == [int]


def test_a_key_that_went_is_let_go() -> None:
    """The objects of a removed key would remain in memory until its slot is reused."""

    class Holder:
        """An object as a key."""

    slots, key = module("key_table").KeyTable(), Holder()
    slots.take("other", slots.find("other"))
    slots.take(key, slots.find(key))
    slots.free_slot(slots.find(key))
    gone = weakref.ref(key)
    del key
    assert gone() is None


@pytest.mark.parametrize("compiled", COMPILED)
def test_invalid_keys_take_no_slot(compiled: Any) -> None:
    """A refused key would leave a slot that is nobody's."""
    slots = module("key_table", compiled).KeyTable()
    wrong: Any = [1]
    for taken in ((), (5,), ("text",)):
        for key in taken:
            slots.take(key, slots.find(key))
        before = len(slots), slots.used, slots.are_int
        with pytest.raises(TypeError):
            slots.take(wrong, -1)
        assert (len(slots), slots.used, slots.are_int) == before


@pytest.mark.parametrize("compiled", COMPILED)
def test_keys_with_two_slots_are_found(compiled: Any) -> None:
    """`validate` would pass over a table that leads elsewhere."""
    slots = module("key_table", compiled).KeyTable()
    for key in range(5):
        slots.take(key, slots.find(key))
    slots.keys.numbers[3] = 0
    with pytest.raises(AssertionError, match="slot 3"):
        slots.validate()


def test_integer_keys_are_keys_like_others() -> None:
    """A key would be lost with the first key that is no integer, or mistaken for another."""
    index: ct.Index[Any] = new_index(False)
    for key in range(100):
        index.add(key * 7919, ct.Filter({"a": key % 3}))
    for key in range(0, 100, 2):
        index.remove(key * 7919)
    index.validate()
    assert len(index) == 50
    assert 7919 in index
    assert 7919.0 in index
    assert 0 not in index
    assert "7919" not in index
    assert 2**70 not in index
    before = index.match({"a": 1})
    others: tuple[Any, ...] = ("text", 2**64, True, 2.5, (1, "x"))
    for other in others:
        index.add(other, ct.Filter({"a": 1}))
        index.validate()
    assert sorted(map(str, index.match({"a": 1}))) == sorted(map(str, [*before, *others]))
    thirds = [key * 7919 for key in range(100) if key % 2 and key % 3 == 0]
    assert sorted(index.match({"a": 0})) == thirds
