"""The hash table of integer keys, against a dict."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.matching.engines import module, needs_native


def of_few_places(count: int) -> list[int]:
    """Keys of which many fall to the same places of a table of 16, its last ones among them."""
    key_hash = module("kernels.key_lookup").key_hash
    found = [each for each in range(-400, 400) if key_hash(each) & 15 in (0, 14, 15)]
    return [*found[:count], 2**63 - 1, -(2**63), 2**32, 2**32 + 1]


class KeyTable(RuleBasedStateMachine):
    """A hash table of keys, against a dict."""

    compiled = False
    keys_known = of_few_places(12)

    def __init__(self) -> None:
        super().__init__()
        self.kernels = module("kernels.key_lookup", self.compiled)
        self.keys: Any = np.zeros(len(self.keys_known), dtype=np.int64)
        self.table: Any = np.zeros(32, dtype=np.int32)
        self.slots: dict[int, int] = {}

    @rule(key=st.sampled_from(keys_known))
    def put(self, key: Any) -> None:
        found = self.kernels.find_key(key, self.keys, self.table)
        if key not in self.slots:
            slot = min(set(range(len(self.keys))) - set(self.slots.values()))
            assert found < 0
            self.table[-1 - found], self.keys[slot] = slot + 1, key
            self.slots[key] = slot

    @rule(key=st.sampled_from(keys_known))
    def drop(self, key: Any) -> None:
        if key in self.slots:
            self.kernels.drop_key(key, self.keys, self.table)
            del self.slots[key]

    @rule(size=st.sampled_from([32, 64]))
    def rehash(self, size: Any) -> None:
        old, self.table = self.table, np.zeros(size, dtype=np.int32)
        half = len(self.keys) // 2
        for first, end in ((half, len(self.keys)), (0, half + 1)):  # One of them twice.
            self.kernels.rehash_keys(first, end, self.table, self.keys, old)

    @invariant()
    def every_key_is_found(self) -> None:
        for key in self.keys_known:
            found = self.kernels.find_key(key, self.keys, self.table)
            assert self.slots.get(key, -1) == max(found, -1)
        assert np.count_nonzero(self.table) == len(self.slots)


class CompiledKeyTable(KeyTable):
    """The same on compiled kernels."""

    compiled = True


TestKeyTable = KeyTable.TestCase
TestKeyTable.__doc__ = "A key would be lost behind another that went, or be found where it is not."
TestCompiledKeyTable = needs_native(CompiledKeyTable.TestCase)
TestCompiledKeyTable.__doc__ = "The same on compiled kernels."
