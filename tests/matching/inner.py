"""Entries to kernels that only kernels call, so that tests can ask each by itself.

Loaded twice, as the modules of matching are (see `engines`): translated and compiled, and as plain
Python.
"""

from contrada.matching.kernels import bucket_lookup, evaluate, match, scratch
from contrada.matching.kernels.memory import entry, prefetch
from contrada.matching.kernels.schema import ColumnRows, Ints, Memory

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
def load_span(span: bytes, m: Memory) -> int:
    """`reading.load`."""
    return _load(span, m)


@entry
def load_cells(columns: ColumnRows, row: int, cells: Ints, m: Memory) -> int:
    """`reading.load_row`."""
    return _load_row(columns, row, cells, m)


@entry
def attr_of(name: bytes, m: Memory) -> int:
    """`reading.find_attr`, of a whole name."""
    return _find_attr(m, name, 0, len(name), _text_hash(m.seed[0], name, 0, len(name)))


@entry
def holds(begin: int, m: Memory) -> int:
    """`holding.program_holds`."""
    return _program_holds(begin, m)


@entry
def set_holds(number: int, m: Memory) -> int:
    """`holding.set_holds`."""
    return _set_holds(number, m)


@entry
def set_holds_value(at: int, row: int, m: Memory) -> int:
    """`holding.set_holds_value`."""
    return _set_holds_value(at, m, row)


@entry
def bucket_of(h: int, m: Memory) -> int:
    """`seeking.find_bucket`."""
    return _find_bucket(m, h)


@entry
def bin_of(tree: int, domain: int, key: int, m: Memory) -> int:
    """`seeking.bin_of`."""
    return _bin_of(tree, domain, key, m)


@entry
def seek(m: Memory) -> int:
    """`match.seek`: lists the buckets of the loaded notification."""
    _seek(m)
    return 0


@entry
def prefetched(row: int, m: Memory) -> int:
    """`memory.prefetch`, of a row that need not be there."""
    prefetch(m.entries, row)
    prefetch(m.texts, row)
    return row


@entry
def guard_passes(guard: int, low: int, high: int, m: Memory) -> int:
    """The results of both tests of a guard: `may_pass`, and above it `guarded`."""
    return _may_pass(guard, low, high, m) + 2 * _guarded(guard, low, high, m)


@entry
def follow_chains(count: int, m: Memory) -> int:
    """`match.follow_chains`, of this many at the end of `out`."""
    counters = m.counters[0]
    counters.out = 0
    counters.chained = count
    return _follow_chains(m)


@entry
def drop_repeated(count: int, m: Memory) -> int:
    """`checking.drop_repeated`, of so many that were put out; how many are left."""
    counters = m.counters[0]
    counters.out = count
    _drop_repeated(m)
    return counters.out + 0
