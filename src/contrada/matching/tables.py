"""The index's memory: a few flat arrays that grow, and their meaning column by column.

Nothing in the index is an object per filter. All is in the arrays of `Store`, which are saved
and mapped as they are, and of `Scratch`, which belong to one process. `docs/matching.md` draws
them and states the invariants. Kernels see them as the fields of two named tuples.
"""

from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

# --- Store.attrs: a row per attribute -----------------------------------------------------------
NAME: Final = 0  # reference to the name's text
PREFIXES: Final = 1  # bit n: filters hang on prefixes of n bytes; then the same without case
SUFFIXES: Final = 3
GRAMS: Final = 5  # bit n: filters hang on n bytes of a substring
NOCASE: Final = 7  # 1 where some filter compares without case
TREE: Final = 8  # row in trees where filters hang in its buckets, or -1
PRESENCE: Final = 9  # the bucket of filters that need the attribute, or -1
SEEN: Final = 10  # notifications seen with the attribute
SKETCH: Final = 11  # row in sketches: of the single values that filters ask for
CUTS: Final = 12  # row in trees, or -1: where the ends of ranges lie, be it hung by or not
ATTR_COLUMNS: Final = 13

# --- Store.buckets: a row per place where filters hang ------------------------------------------
HASH: Final = 0
START: Final = 1
LENGTH: Final = 2
CAPACITY: Final = 3
HITS: Final = 4  # notifications that came by
OF_ATTR: Final = 5  # the value that leads here, where all hang by a single one: its attribute,
OF_DOMAIN: Final = 6  # its domain, or 0 where other places lead here, too,
OF_LOW: Final = 7  # and the halves of its key, or of the reference to its text
OF_HIGH: Final = 8
STAMP: Final = 9  # the number of the last notification that came by
BUCKET_COLUMNS: Final = 10

# --- Store.entries: a row per filter in a bucket, with two more constraints to look at first ----
FILTER: Final = 0
GUARD: Final = 1  # an attribute | domain | what is asked of it | what is decided by the guards
LOW: Final = 2  # lowest upper half of a key; or the hash of a text; or a set
HIGH: Final = 3  # highest upper half of a key
SECOND: Final = 4  # the three of the second guard
HERE: Final = 7  # where the filter's program starts; or its KEY, see KEY_HERE
ENTRY_COLUMNS: Final = 8
GUARD_COLUMNS: Final = 3
GUARD_ATTR: Final = (1 << 22) - 1
GUARD_DOMAIN_SHIFT: Final = 22  # three bits
GUARD_KIND_SHIFT: Final = 25  # three bits
GUARD_RANGE: Final = 0
GUARD_HASH: Final = 1
GUARD_SET: Final = 2
GUARD_NONE: Final = 3
GUARD_OTHER: Final = 4  # any value of the domain but those with this upper half of a key
GUARD_OTHER_TEXT: Final = 5  # any text but those with this hash
DECIDED_HERE: Final = 1 << 28  # the bucket's value and the guards are the whole filter
DECIDED_ALONE: Final = 1 << 29  # the guards are the whole filter
KEY_HERE: Final = 1 << 30  # matches need nothing else of the filter: KEY stands in the entry, too

ATTRS_MAX: Final = 2**22 - 1
"""Attributes that the filters of an index name. Beyond it: LimitError."""

ROOMS: Final = 32  # per power of two, where the first free room of so many entries begins, or 0

# --- Store.filters: a row per distinct filter ---------------------------------------------------
BEGIN: Final = 0  # where its program starts
KEY: Final = 1  # its only key's slot; -1 none; below -1: -2 - row in links
PLACE: Final = 2  # its bucket; -1 none; below -1: -2 - row in links; or its bit in a pool
AT: Final = 3  # which entry of its only bucket; 0 or more; -1 - pool where it is pooled
FILTER_COLUMNS: Final = 4

# --- Store.links: a row per key of a filter that has several, or per place ----------------------
VALUE: Final = 0
NEXT: Final = 1
BEFORE: Final = 2  # or, of a place, which entry of its bucket it is
LINK_COLUMNS: Final = 3

# --- Store.program: per filter a header, then its constraints -----------------------------------
# header: number of words after it | VERIFY | GONE; a constraint: attribute | op | domain, operands
OP_SHIFT: Final = 32
DOMAIN_SHIFT: Final = 40
VERIFY: Final = 1 << 40  # the match must be confirmed on the values themselves
GONE: Final = 1 << 41
WIDER: Final = 1 << 42  # the integers let more pass than the filter: equal words, other filters
WORDS_MASK: Final = (1 << 32) - 1
ATTR_MASK: Final = (1 << 32) - 1
OP_POINT: Final = 1  # key
OP_RANGE: Final = 2  # lowest key, highest key
OP_TEXT: Final = 3  # text
OP_TEXT_RANGE: Final = 4  # text from, text before which; -1 without end
OP_SET: Final = 5  # row in sets_by_row

# --- Store.sets_by_row: a row per value set that is no single interval --------------------------
SET_START: Final = 0  # where it begins in Store.sets
SET_ATTR: Final = 1
SET_GUARD: Final = 2  # what it is as a guard of an entry: GUARD, LOW, HIGH
SET_COLUMNS: Final = 5

# --- Store.sets: value sets that are no single interval -----------------------------------------
# flags, count of (domain, low, high), the intervals, length of the expression, the expression
SET_ABSENT: Final = 1
X_ATOM: Final = 1  # kind, text
X_PIECES: Final = 2  # count, (from, before)…
X_NOT: Final = 3
X_EVERY: Final = 4  # count
X_SOME: Final = 5  # count
X_MAYBE: Final = 6  # an operator that only the model can apply
ATOM_SUFFIX: Final = 0
ATOM_CONTAINS: Final = 1
ATOM_EQUAL_NOCASE: Final = 2
ATOM_PREFIX_NOCASE: Final = 3
ATOM_SUFFIX_NOCASE: Final = 4
ATOM_CONTAINS_NOCASE: Final = 5

TEXT_SHIFT: Final = 24
"""A text is referred to as its place in `texts` shifted by this, plus its length in bytes."""

# --- Scratch.counters ---------------------------------------------------------------------------
EPOCH: Final = 0
VALUES: Final = 1
OUT: Final = 2
TEXT_USED: Final = 3
PRESENT: Final = 4
INEXACT: Final = 5
CANDIDATES: Final = 6
SEEN_ALL: Final = 7  # notifications, old ones counted for less
BUCKETS: Final = 8
SEVERAL: Final = 9  # 1 where some key has several filters, or one value may lead to it twice
POOLS: Final = 10  # how many pools there are
LOOKED: Final = 11  # entries looked at for the last notification
DOUBTED: Final = 12  # filters put out to be verified
INT_KEYS: Final = 13  # 1 where Store.keys has all keys
KEYED: Final = 14  # 1 where what was put out are keys already
MATCHED: Final = 15  # notifications, all of them
CHAINED: Final = 16  # filters with several keys, the chains of which stand at the end of `out`
ASKED: Final = 17  # places to be looked up
COUNTERS: Final = 18

# --- Scratch.state: a row per attribute, valid where its EPOCH is the current one ---------------
FIRST: Final = 1
COUNT: Final = 2
LOWEST: Final = 3  # the upper halves of the lowest and highest keys outside text
HIGHEST: Final = 4
TEXT_LOWEST: Final = 5  # of the hashes of its texts: the only one, all, or none
TEXT_HIGHEST: Final = 6
ONLY_DOMAIN: Final = 7  # of the only value; 0 where there are several
STATE_COLUMNS: Final = 8

PENDING: Final = 1024
"""Places to look up, or entries that may match, that are written down at a time."""

# --- Scratch.values: a row per value of the notification ----------------------------------------
V_ATTR: Final = 0
V_DOMAIN: Final = 1
V_LOW: Final = 2
V_HIGH: Final = 3
V_START: Final = 4
V_LENGTH: Final = 5
V_FOLDED: Final = 6
V_FOLDED_LENGTH: Final = 7
VALUE_COLUMNS: Final = 8

# --- what a kernel answers ----------------------------------------------------------------------
OK: Final = 0
NEED_TEXT: Final = -1
NEED_VALUES: Final = -2
NEED_OUT: Final = -3
UNREADABLE: Final = -4
NEED_FOUND: Final = -5

# --- a column of a batch, as Arrow has it in memory ----------------------------------------------
C_ATTR: Final = 0
C_KIND: Final = 1  # the type of its values
C_VALID: Final = 2  # address of the bits that say which rows are not NULL; 0 where all are
C_DATA: Final = 3  # address of the values, or of where texts begin and end
C_TEXT: Final = 4  # address of the texts
C_OFFSET: Final = 5  # the first row's number in these
COLUMN_COLUMNS: Final = 6
KIND_BOOL: Final = 0
KIND_INT8: Final = 1
KIND_INT16: Final = 2
KIND_INT32: Final = 3
KIND_INT64: Final = 4
KIND_UINT8: Final = 5
KIND_UINT16: Final = 6
KIND_UINT32: Final = 7
KIND_FLOAT: Final = 8
KIND_DOUBLE: Final = 9
KIND_TIME: Final = 10  # microseconds
KIND_TEXT: Final = 11  # offsets of 32 bits
KIND_LARGE_TEXT: Final = 12  # offsets of 64 bits

GRAM_BITS_BYTES: Final = 2**16
"""Bytes of `gram_bits` once a filter hangs on some bytes of a substring."""

PIVOTS: Final = 63
"""Pivots of a tree of ranges: they cut an attribute's values into 64 bins."""
TREE_COLUMNS: Final = 2 + 2 * PIVOTS  # number of pivots, first bucket, (domain, key)…

WORD_BITS: Final = 63
"""Bits of a word in a pool: one less than an integer has, so that none is negative."""

# --- Store.sketches: a row per kind of constants, to count the distinct ones --------------------
COUNTED: Final = 0  # in parts of COUNT_PARTS
CHANCE: Final = 1  # of the next new constant to raise a register
REGISTERS: Final = 2  # eight in a word
SKETCH_REGISTERS: Final = 64
"""Registers of a sketch: it errs by about a tenth."""
SKETCH_COLUMNS: Final = REGISTERS + SKETCH_REGISTERS // 8
HIGHEST_RANK: Final = 26
COUNT_PARTS: Final = 16

# --- Store.pools: a row per pool of filters with many ranges ------------------------------------
POOL_COUNT: Final = 0  # its attributes
POOL_WORDS: Final = 1  # words of a row of bits
POOL_USED: Final = 2  # bits ever used
POOL_ALIVE: Final = 3  # where the bits of the filters that are there begin in Store.bits
POOL_FILTERS: Final = 4  # where their numbers begin
POOL_ATTR: Final = 5  # per attribute: its row, its tree, where its rows of bits begin
POOL_ATTRS: Final = 32
POOL_COLUMNS: Final = POOL_ATTR + 3 * POOL_ATTRS


class Store(NamedTuple):
    """What the filters are. Arrays, or memory views of them where nothing is compiled."""

    names: Any  # int32: hash table of attributes, row + 1
    attrs: Any  # int64, ATTR_COLUMNS
    texts: Any  # uint8: all names and text constants
    slots: Any  # int32: hash table of buckets, row + 1
    buckets: Any  # int32, BUCKET_COLUMNS
    entries: Any  # int32, ENTRY_COLUMNS
    program: Any  # int64
    filters: Any  # int32, FILTER_COLUMNS
    links: Any  # int32, (slot of a key, next row or -1, row before or -1)
    equal: Any  # int32: hash table of filters, row + 1
    sets: Any  # int64
    sets_by_row: Any  # int64, SET_COLUMNS
    trees: Any  # int64, TREE_COLUMNS
    pools: Any  # int64, POOL_COLUMNS
    bits: Any  # int64: rows of bits, and the numbers of pooled filters
    keys: Any  # int64: per filter its only key, where all keys are integers
    rooms: Any  # int32: rooms of entries that buckets have left, see ROOMS
    gram_bits: Any  # uint8: a bit per hash of some bytes of a substring that a filter hangs on
    sketches: Any  # int64, SKETCH_COLUMNS


class Scratch(NamedTuple):
    """What one notification is, and what was found for it."""

    counters: Any  # int64
    state: Any  # int32, STATE_COLUMNS
    values: Any  # int64, VALUE_COLUMNS
    present: Any  # int32
    text: Any  # uint8
    out: Any  # int64: slots of keys, or, where KEYED, keys; and -1 - filter for those to verify;
    # from its end on, the rows in `links` of filters with several keys
    bucket_list: Any  # int32: those to look through, twice; plus 1 where led to by its value
    key_seen: Any  # int32
    set_seen: Any  # int64: epoch * 4 + value
    stack: Any  # int64
    conjunction: Any  # int64: a row of bits
    pending: Any  # int64: places to look up, their hash above the row of the value that leads
    # there, and 1; then entries to check, each twice, plus 1 where their bucket's value led there;
    # or filters of a pool to check, and where their programs begin


SHAPES: Final[dict[str, tuple[Any, int]]] = {
    "names": (np.int32, 0),
    "attrs": (np.int64, ATTR_COLUMNS),
    "texts": (np.uint8, 0),
    "slots": (np.int32, 0),
    "buckets": (np.int32, BUCKET_COLUMNS),
    "entries": (np.int32, ENTRY_COLUMNS),
    "program": (np.int64, 0),
    "filters": (np.int32, FILTER_COLUMNS),
    "links": (np.int32, LINK_COLUMNS),
    "equal": (np.int32, 0),
    "sets": (np.int64, 0),
    "sets_by_row": (np.int64, SET_COLUMNS),
    "trees": (np.int64, TREE_COLUMNS),
    "pools": (np.int64, POOL_COLUMNS),
    "bits": (np.int64, 0),
    "keys": (np.int64, 0),
    "rooms": (np.int32, 0),
    "gram_bits": (np.uint8, 0),
    "sketches": (np.int64, SKETCH_COLUMNS),
    "counters": (np.int64, 0),
    "state": (np.int32, STATE_COLUMNS),
    "values": (np.int64, VALUE_COLUMNS),
    "present": (np.int32, 0),
    "text": (np.uint8, 0),
    "out": (np.int64, 0),
    "bucket_list": (np.int32, 0),
    "key_seen": (np.int32, 0),
    "set_seen": (np.int64, 0),
    "stack": (np.int64, 0),
    "conjunction": (np.int64, 0),
    "pending": (np.int64, 0),
}
"""The type of each array and its columns; 0 columns for an array of one dimension."""


def new_array(name: str, rows: int) -> Any:
    """An array of zeros."""
    kind, columns = SHAPES[name]
    return np.zeros((rows, columns) if columns else rows, dtype=kind)


COPIED_BYTES_MAX: Final = 2**21
"""Bytes of an array of an index. Beyond it: it gets 64 times the room when it grows, where the
system promises it, and is hardly copied again."""

_ROOM: Final = 64


def grown(array: Any, rows: int) -> Any:
    """The array with at least so many rows, more where it must be copied.

    Copying a large array would hold up whoever waits for an update. So a large one gets room for
    many times its rows: memory that is never touched is only promised by the system, not taken.
    Where the system does not promise that much, there is half as much again.
    """
    have = len(array)
    if rows <= have:
        return array
    bigger = None
    if array.nbytes > COPIED_BYTES_MAX and array.dtype != object:
        with suppress(MemoryError):
            bigger = _zeros(max(rows, _ROOM * have), array)
    if bigger is None:
        bigger = _zeros(max(rows, have + have // 2 + 16), array)
    bigger[:have] = array
    return bigger


def _zeros(rows: int, like: Any) -> Any:
    return np.zeros((rows, *like.shape[1:]), dtype=like.dtype)
