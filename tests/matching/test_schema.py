"""The contents of the arrays: names, sizes, and that nothing has two meanings."""

import struct
from collections import Counter

from contrada.matching.kernels import schema
from contrada.matching.kernels.schema import ARRAYS, COLUMN, KINDS, SCRATCH, STORE


def test_no_array_has_two_meanings() -> None:
    """An array would be saved that belongs to one process, or be left out of the file."""
    assert not STORE.keys() & SCRATCH.keys()
    assert list(ARRAYS) == [*STORE, *SCRATCH]


def test_every_array_is_of_integers_of_one_size() -> None:
    """Kernels would read a field at another place than where Python wrote it."""
    for name, kind in {**ARRAYS, "column": COLUMN}.items():
        assert kind.code in "Biq", name
        size = struct.calcsize(f"={max(1, len(kind.fields))}{kind.code}")
        assert kind.row_bytes == size, name
        assert len(set(kind.fields)) == len(kind.fields), name


def test_an_entry_is_half_a_line_of_memory() -> None:
    """An entry would lie on two lines, and the longest buckets take twice as long."""
    assert ARRAYS["entries"].row_bytes == 32


def test_operators_kinds_and_answers_are_distinct() -> None:
    """Two numbers would be one, and a kernel take a prefix for a suffix."""
    families = ("OP_P OP_R OP_T OP_S", "X_", "ATOM_", "NEED_ UNREADABLE OK")
    named = {name: value for name, value in vars(schema).items() if isinstance(value, int)}
    for family in families:
        members = {
            name: value
            for name, value in named.items()
            if name.startswith(tuple(family.split())) and not name.endswith("_SHIFT")
        }
        assert len(members) > 4
        assert max(Counter(members.values()).values()) == 1, members
    guards = ["RANGE", "HASH", "SET", "NONE", "OTHER", "OTHER_TEXT"]
    assert sorted(named[f"GUARD_{each}"] for each in guards) == list(range(6))
    assert named["GUARD_HASH"] & named["GUARD_OTHER_TEXT"] & 1, "odd where hashes are asked for"
    even = ("RANGE", "SET", "OTHER")
    assert not any(named[f"GUARD_{each}"] & 1 for each in even)


def test_the_parts_of_a_guard_do_not_overlap() -> None:
    """A guard's test would be read as its attribute."""
    s = schema
    domain, kind = 7 << s.GUARD_DOMAIN_SHIFT, 7 << s.GUARD_KIND_SHIFT
    parts = [s.GUARD_ATTR, domain, kind, s.DECIDED_HERE, s.DECIDED_ALONE, s.KEY_HERE]
    assert sum(parts) == 2**31 - 1, "each of 31 bits is in one of them"
    assert s.ATTRS_MAX <= s.GUARD_ATTR


def test_the_parts_of_a_program_do_not_overlap() -> None:
    """Marks of a filter would be read as the length of its program."""
    s = schema
    assert not s.WORDS_MASK & (s.VERIFY | s.GONE | s.WIDER)
    assert s.VERIFY | s.GONE | s.WIDER == s.VERIFY + s.GONE + s.WIDER
    assert s.ATTR_MASK < 1 << s.OP_SHIFT < 1 << s.DOMAIN_SHIFT
    assert s.LENGTH_MASK == 2**24 - 1


def test_kinds_of_columns_are_numbered_as_kernels_compare_them() -> None:
    """Kernels ask `kind >= STRING` for texts."""
    of_text = {name for name, kind in KINDS.items() if kind >= KINDS["string"]}
    assert of_text == {"string", "binary", "large_string", "large_binary"}
    assert sorted(set(KINDS.values())) == list(range(13))
