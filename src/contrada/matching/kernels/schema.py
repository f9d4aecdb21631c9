"""The index's memory: a few growing arrays, and the contents of their rows.

Nothing in the index is an object per filter. All is in arrays: those of the store describe the
filters, and are saved and mapped unchanged; those of the scratch hold one notification and its
matches. `docs/matching.md` draws them and states the invariants.

This is the only definition: kernels read `m.buckets[row].length`, Python
`arrays.buckets.length[row]`. The compiled kernels have the same rows as structures in C.
"""

from typing import Any, Final, NamedTuple, TypeAlias

_NUMBER_BYTES: Final = {"B": 1, "i": 4, "q": 8}


class Layout(NamedTuple):
    """The layout of a row: integers of one size, a code of `struct`; without names one number."""

    code: str
    fields: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return _NUMBER_BYTES[self.code] * (len(self.fields) or 1)


_I1, _I4, _I8 = Layout("B"), Layout("i"), Layout("q")


def _row(number: Layout, *fields: str) -> Layout:
    """Returns the layout of a row with integers of one size as fields."""
    return Layout(number.code, fields)


STORE: Final[dict[str, Layout]] = {
    # one number, see HASH_SEED_BITS
    "seed": _I8,
    # hash table of attributes: row + 1
    "names": _I4,
    "attrs": _row(
        _I8,
        "name",  # reference to the name's text
        "hash",  # of the name
        "nocase",  # 1 where some filter compares without case
        "tree",  # row in trees where filters hang in its buckets, or -1; see cuts
        "presence",  # the bucket of filters that need the attribute, or -1
        "seen",  # notifications seen with the attribute
        "sketch",  # row in sketches: of the single values that filters ask for
        "cuts",  # row in trees, or -1: the newest bins, to which the filters in tree are moved
        "ranges",  # about how many filters ask for, without those that were removed
        "ends",  # where the ends of some of these begin in ends,
        "kept",  # of how many they are,
        "room",  # and of how many they may be
        "due",  # the number of ranges at which the bins are looked at; 0 before the first
        "by_value",  # 1 where filters hang on single values
    ),
    # per attribute six words, see PREFIXES: bit n says that filters hang on parts of n bytes
    "parts": _I8,
    # all names and text constants, each behind the number of its uses; how they are referred to:
    # see TEXT_SHIFT
    "texts": _I1,
    # hash table of texts: their references
    "text_slots": _I8,
    # hash table of buckets: row + 1
    "slots": _I4,
    # a row per place where filters hang
    "buckets": _row(
        _I4,
        "hash",
        "start",  # its entries: the first, how many, and how many it has room for
        "length",
        "capacity",
        "hits",  # notifications that came by
        "of_attr",  # the value that leads here, where all hang by a single one: its attribute,
        "of_domain",  # its domain, or 0 where other places lead here, too,
        "of_low",  # and the halves of its key, or of the reference to its text
        "of_high",
        "stamp",  # the number of the last notification that came by
        "needed",  # an attribute that all its filters need besides, or -1
    ),
    # a row per filter in a bucket, with two more constraints to look at first: see GUARD_ATTR
    "entries": _row(
        _I4,
        "filter",
        "guard",  # an attribute | domain | what is asked of it | what is decided by the guards
        "low",  # lowest upper half of a key; or the hash of a text; or a set
        "high",  # highest upper half of a key
        "second",  # the three of the second guard
        "second_low",
        "second_high",
        "here",  # where the filter's program starts; or its key, see KEY_HERE
    ),
    # rooms of entries that buckets have left: per power of two where the first begins, or 0
    "rooms": _I4,
    # per filter a header, then its constraints: see OP_SHIFT
    "program": _I4,
    # a row per distinct filter
    "filters": _row(
        _I4,
        "begin",  # where its program starts
        "key",  # its only key's slot; -1 none; below -1: -2 - row in links
        "place",  # its bucket; -1 none; below -1: -2 - row in links; or its bit in a pool
        "at",  # which entry of its only bucket; 0 or more; -1 - pool where it is pooled
    ),
    # per key's slot the number of its only filter + 1; 0 without filters, or with several
    "owned": _I4,
    # and the row in links that leads back, where that filter has several keys
    "owned_links": _I4,
    # a row per key of a filter that has several, or per place of one that hangs in several
    "links": _row(
        _I4,
        "value",
        "next",
        "before",  # or, of a place, which entry of its bucket it is
    ),
    # hash table of filters: row + 1
    "equal": _I4,
    # a row for each range that is remembered: its ends, and where its filter's program starts
    "ends": _row(_I8, "domain", "low", "end_domain", "high", "begin"),
    # value sets that are no single interval: flags, count of (domain, low, high), the intervals,
    # length of the expression on text, the expression: see X_ATOM
    "sets": _I8,
    "sets_by_row": _row(
        _I8,
        "start",  # where it begins in sets
        "attr",
        "guard",  # what it is as a guard of an entry
        "low",
        "high",
    ),
    # trees of ranges
    "trees": _row(
        _I8,
        "count",  # of pivots
        "first_bucket",  # of its nodes; 0 until filters hang in one
    ),
    # PIVOTS for each tree, where its bins begin
    "pivots": _row(_I8, "domain", "key"),
    # for each bin of each tree the nodes above it that filters hang at: bit n says that the one n
    # levels above the leaf does
    "levels": _I1,
    # pools of filters with many ranges: see `access_predicates.Pools`
    "pools": _row(
        _I8,
        "attrs",  # how many
        "words",  # of a row of bits
        "used",  # bits ever used
        "alive",  # where the bits of the filters that are there begin in bits
        "filters",  # where their numbers begin
    ),
    # POOL_ATTRS for each pool: the attribute, its tree, where its rows of bits begin
    "pool_attrs": _row(_I8, "attr", "tree", "begin"),
    # rows of bits, and the numbers of pooled filters
    "bits": _I8,
    # a bit per hash of some bytes of a substring that a filter hangs on
    "gram_bits": _I1,
    # a row per kind of constants, to count the distinct ones: see `bucket_lookup.count`
    "sketches": _row(
        _I8,
        "counted",  # in parts of COUNT_PARTS
        "chance",  # of the next new constant to raise a register
    ),
    # SKETCH_REGISTERS for each sketch
    "registers": _I1,
}
"""The filters: the type of a row of each array."""

SCRATCH: Final[dict[str, Layout]] = {
    # per filter its only key, where all keys are integers
    "keys": _I8,
    # one row
    "counters": _row(
        _I8,
        "epoch",  # the number of the notification: what is stamped with another is old
        "values",
        "out",
        "text",  # bytes used
        "present",
        "inexact",  # 1 where a number of the notification is no double
        "candidates",
        "seen",  # notifications, old ones counted for less
        "buckets",
        "several",  # what may lead to a key twice: see REPEATS
        "pools",
        "looked",  # entries looked at for the last notification
        "doubted",  # filters put out to be verified
        "int_keys",  # 1 where all keys are in keys
        "matched",  # notifications, all of them
        "due",  # how many they are when somebody is to look at what hangs badly
        "chained",  # filters with several keys, the chains of which stand at the end of out
        "asked",  # places to be looked up
        "work",  # bytes of texts that may still be compared; below 0 texts are not looked at
        "block_first",  # the rows of a batch that are matched together: from this one
        "block_end",  # to before this one;
        "block_size",  # how many,
        "block_max",  # and at most
        "block_shared_min",  # see BLOCK_SHARED_MIN
        "block_epoch",  # what their columns are stamped with
        "visits",  # used rows
        "outcomes",
        "undecided",
        "repeats",  # 1 where a row may have come twice to a bucket
        "lanes",  # rows that are compared together
        "lane_stamp",  # their number
    ),
    # a row per attribute, valid where its epoch is the current one
    "state": _row(
        _I4,
        "epoch",
        "first",
        "count",
        "only_domain",  # of the only value; 0 where there are several
    ),
    # two rows per attribute: the upper halves of its lowest and highest keys outside text; and of
    # the hashes of its texts the only one, or all. Without such values the ends are the wrong way
    # round: no guard meets them
    "hulls": _row(_I4, "lowest", "highest"),
    # a row per value of the notification; of a text low and high are its hash
    "values": _row(
        _I8, "attr", "domain", "low", "high", "start", "length", "folded", "folded_length"
    ),
    "present": _I4,
    "text": _I1,
    # slots of keys, or, where all are known, keys; and -1 - filter for those to verify; from its
    # end on, the rows in links of filters with several keys
    "out": _I8,
    # those to look through, twice; plus 1 where led to by its value
    "bucket_list": _I4,
    # epochs
    "key_seen": _I4,
    # epoch * 4 + value
    "set_seen": _I8,
    "stack": _I8,
    # a row of bits
    "conjunction": _I8,
    # places to look up, their hash above the row of the value that leads there, and 1; then entries
    # to check, each twice, plus 1 where their bucket's value led there; or filters of a pool to
    # check, and where their programs begin
    "pending": _I8,
    # --- a block of rows of a batch, see `batch_match`
    # of each column the upper halves of the keys of each row, of texts their hashes
    "halves": _I4,
    # rows of buckets
    "visits": _row(_I4, "bucket", "row", "next"),
    # per bucket its last row in visits + 1; 0 without one
    "bucket_visits": _I4,
    "block_rows": _row(
        _I4,
        "end",  # how many keys; then where they end in block_keys
        "undecided",  # its last row in undecided + 1; 0 without one
        "chained",  # 1 where one of the keys is a chain
        "odd",  # 1 where it must be matched by itself
    ),
    # matches that guards have decided, as `filters` has keys
    "outcomes": _row(_I4, "row", "key"),
    # their keys, by the row
    "block_keys": _I4,
    # entries that remain to be checked for a row
    "undecided": _row(_I4, "entry", "by_value", "next"),
    # the rows of a bucket that are compared together, and their halves in each column, if these are
    # stamped with their number
    "lane_rows": _I4,
    "lanes": _I4,
    "lane_stamps": _I8,
}
"""One notification, and its matches. Belongs to one process."""

ARRAYS: Final = STORE | SCRATCH


# Types of arguments of kernels: Python passes anything with such numbers in memory in sequence.
Bytes: TypeAlias = Any
Flags: TypeAlias = Any  # truth values of a byte
RowNumbers: TypeAlias = Any  # integers of 32 bits
Ints: TypeAlias = Any  # integers of 64 bits
Doubles: TypeAlias = Any
Grid: TypeAlias = Any  # rows of integers of 64 bits
ColumnRows: TypeAlias = Any  # of a batch; each is a COLUMN
ColumnRow: TypeAlias = Any
Marks: TypeAlias = Any  # of eight bytes, each by its highest bit


class Memory:
    """All arrays by name, as `Arrays.memory` passes them to entries and kernels pass them on."""

    def __getattr__(self, name: str) -> Any: ...


COLUMN: Final = _row(
    _I8,
    "attr",
    "kind",  # the type of its values
    "valid",  # address of the bits that say which rows are not NULL; 0 where all are
    "data",  # address of the values, or of where texts begin and end
    "text",  # address of the texts
    "offset",  # the first row's number in these
)
"""A column of a batch in Arrow's memory."""

KINDS: Final = {
    "bool": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "uint8": 5,
    "uint16": 6,
    "uint32": 7,
    "float": 8,
    "double": 9,
    "time": 10,
    "string": 11,
    "binary": 11,
    "large_string": 12,
    "large_binary": 12,
}
"""Kinds of columns by Arrow's names for their types; `time` is microseconds."""

HASH_BITS: Final = 32
HASH_SEED_BITS: Final = 62
"""Bits of a seed: the initial value of hashes, and above it their multiplier. Each process has its
own, so that nobody can send values with equal hashes; a saved index keeps its own."""

# --- parts of texts -----------------------------------------------------------------------------
PREFIXES: Final = 0  # the column in parts; the next is the same without case
SUFFIXES: Final = 2
GRAMS: Final = 4  # bytes of a substring
PART_COLUMNS: Final = 6

TEXT_SHIFT: Final = 24
"""A text is referred to as its position in `texts` shifted by this, plus its length in bytes."""
LENGTH_MASK: Final = (1 << TEXT_SHIFT) - 1
USES_BYTES: Final = 4
"""Bytes before a text: the number of its uses in filters, and UNUSED."""
UNUSED: Final = 1 << 31
"""A text that was used, and is no more: its bytes, and those of the number, count as unused."""

GRAM_BITS_BYTES: Final = 2**16
"""Bytes of `gram_bits` once a filter is assigned to some bytes of a substring."""

# --- guards of entries --------------------------------------------------------------------------
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
KEY_HERE: Final = 1 << 30  # matches need nothing else of the filter: its key stands in the entry

ATTRS_MAX: Final = 2**22 - 1
"""Attributes in the filters of an index. Beyond it: LimitError."""

ROOMS: Final = 32

# --- programs of filters ------------------------------------------------------------------------
# header: number of words after it | VERIFY | GONE; a constraint: attribute | op | domain, and its
# operands, of 64 bits each: in memory as two words, the lower half first
OP_SHIFT: Final = 22  # three bits
DOMAIN_SHIFT: Final = 25  # three bits
VERIFY: Final = 1 << 28  # the match must be confirmed on the values themselves
GONE: Final = 1 << 29
WIDER: Final = 1 << 30  # the integers let more pass than the filter: equal words, other filters
WORDS_MASK: Final = (1 << 28) - 1
ATTR_MASK: Final = (1 << 22) - 1
OP_MASK: Final = 7
OP_POINT: Final = 1  # key
OP_RANGE: Final = 2  # lowest key, highest key
OP_TEXT: Final = 3  # text
OP_TEXT_RANGE: Final = 4  # text from, text before which; -1 without end
OP_SET: Final = 5  # row in sets_by_row

# --- expressions of sets on text, in postfix form -----------------------------------------------
SET_ABSENT: Final = 1  # a flag
SET_TEXTS: Final = 2  # a flag: its texts are single ones
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

# --- other sizes --------------------------------------------------------------------------------
PENDING: Final = 1024
"""Places to look up, or entries that may match, that are stored at a time."""

LANES: Final = 32
"""Rows of a block that a guard is compared with at a time."""

BLOCK_SHARED_MIN: Final = 3
"""Rows of a block that on average share the entries of a row, from which on they are matched
together: one comparison with many rows costs as much as comparisons with so many, one by one. Rows
of few entries are matched together in any case."""

BLOCK_ROWS: Final = 2**14
"""Rows of a batch that are matched together. Beyond it: the next block has the rest."""

BLOCK_CELLS: Final = 2**22
"""Values of a block of rows, NULL among them. Beyond it: the block has fewer rows."""

BLOCK_MATCHES: Final = 2**20
"""Matches of a block of rows, and places of filters that they reach. Beyond either: this block and
the later ones of the batch have half as many rows."""

PIVOTS: Final = 63
"""Pivots of a tree of ranges: they cut an attribute's values into 64 bins."""

TREE_LEVELS: Final = 7
"""Levels of a tree of ranges, from the leaves to the root."""

RANGES_KEPT: Final = 512
"""Ranges remembered per attribute. Beyond it: each is equally likely to be remembered."""

WORD_BITS: Final = 63
"""Bits of a word in a pool: one less than an integer has, so that none is negative."""
POOL_ATTRS: Final = 32

SHARED_HASH: Final = 1  # two places have one hash
SEVERAL_PLACES: Final = 2  # a filter has several places
REPEATS: Final = SHARED_HASH | SEVERAL_PLACES
"""A notification may reach a key twice: by two places of a filter, one of which has the hash of
another place. Also if some key has several filters, or one text may have several parts."""

SKETCH_REGISTERS: Final = 64
"""Registers of a sketch: it errs by about a tenth."""
HIGHEST_RANK: Final = 26
COUNT_PARTS: Final = 16

# --- what a kernel answers ----------------------------------------------------------------------
OK: Final = 0
NEED_TEXT: Final = -1
NEED_VALUES: Final = -2
NEED_OUT: Final = -3
UNREADABLE: Final = -4
NEED_FOUND: Final = -5
NEED_STAMPS: Final = -6
NEED_VISITS: Final = -7
NEED_OUTCOMES: Final = -8

EPOCHS_MAX: Final = 2**30
"""Notifications until the stamps of an index, which have 32 bits, are cleared. Beyond it: they are,
and counts of visits are halved."""
