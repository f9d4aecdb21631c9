"""Entries to kernels that only kernels call, so that tests can ask each by itself.

Loaded twice, as the modules of matching are (see `engines`): with kernels compiled, and as plain
Python.
"""

from typing import Any

from contrada.matching.kernels import bucket_lookup, evaluate, match, scratch
from contrada.matching.kernels.memory import bytes_of, entry, memory_at, prefetch
from contrada.matching.kernels.schema import GivenColumns, Ints, Memory

_bin_of, _collect, _find_bucket = (
    bucket_lookup.bin_of,
    bucket_lookup.collect,
    bucket_lookup.find_bucket,
)
_find_attr, _load, _load_row = scratch.find_attr, scratch.load, scratch.load_row
_text_hash = scratch.text_hash
_drop_repeated, _follow_chains = match.drop_repeated, match.follow_chains
_guarded, _may_pass, _seek = match.guarded, match.may_pass, match.seek
_program_holds, _set_holds = evaluate.program_holds, evaluate.set_holds
_set_holds_value = evaluate.set_holds_value


@entry
def load_span(span: bytes, memory: Memory) -> Any:
    """`reading.load`."""
    return _load(bytes_of(span), memory_at(memory))


@entry
def load_cells(columns: GivenColumns, row: int, cells: Ints, memory: Memory) -> Any:
    """`reading.load_row`."""
    return _load_row(columns, row, cells, memory_at(memory))


@entry
def attr_of(name: bytes, memory: Memory) -> Any:
    """`reading.find_attr`, of a whole name."""
    m, given = memory_at(memory), bytes_of(name)
    return _find_attr(m, given, 0, len(name), _text_hash(m.seed[0], given, 0, len(name)))


@entry
def holds(begin: int, memory: Memory) -> Any:
    """`holding.program_holds`."""
    return _program_holds(begin, memory_at(memory))


@entry
def set_holds(number: int, memory: Memory) -> Any:
    """`holding.set_holds`."""
    return _set_holds(number, memory_at(memory))


@entry
def set_holds_value(at: int, row: int, memory: Memory) -> Any:
    """`holding.set_holds_value`."""
    return _set_holds_value(at, memory_at(memory), row)


@entry
def bucket_of(h: int, memory: Memory) -> Any:
    """`seeking.find_bucket`."""
    return _find_bucket(memory_at(memory), h)


@entry
def bin_of(tree: int, domain: int, key: int, memory: Memory) -> Any:
    """`seeking.bin_of`."""
    return _bin_of(tree, domain, key, memory_at(memory))


@entry
def seek(memory: Memory) -> Any:
    """`match.seek`: lists the buckets of the loaded notification."""
    _seek(memory_at(memory))
    return 0


@entry
def prefetched(row: int, memory: Memory) -> Any:
    """`memory.prefetch`, of a row that need not be there."""
    m = memory_at(memory)
    prefetch(m.entries, row)
    prefetch(m.texts, row)
    return row


@entry
def guard_passes(guard: int, low: int, high: int, memory: Memory) -> Any:
    """The results of both tests of a guard: `may_pass`, and above it `guarded`."""
    m = memory_at(memory)
    return _may_pass(guard, low, high, m) + 2 * _guarded(guard, low, high, m)


@entry
def follow_chains(count: int, memory: Memory) -> Any:
    """`match.follow_chains`, of this many at the end of `out`."""
    m = memory_at(memory)
    counters = m.counters[0]
    counters.out = 0
    counters.chained = count
    return _follow_chains(m)


@entry
def drop_repeated(count: int, memory: Memory) -> Any:
    """`checking.drop_repeated`, of so many that were put out; how many are left."""
    m = memory_at(memory)
    counters = m.counters[0]
    counters.out = count
    _drop_repeated(m)
    return counters.out + 0
