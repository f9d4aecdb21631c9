"""Shared Hypothesis strategies: values, value sets, filters, notifications and the rest.

The constants come from small pools of nasty values, so that independent draws meet: numbers
where int64 and double part, ends of domains, text over three letters beside text that folds
oddly or is no UTF-8. `values()` adds arbitrary ones.
"""

import math
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial, reduce
from typing import Final, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from contrada.model import (
    Advertisement,
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Pattern,
    Query,
    Value,
    ValueSet,
)
from contrada.model.algebra import sets
from contrada.model.domains.values import INT_MAX, INT_MIN, TIME_MAX_US, TIME_MIN_US, datetime_of

FEW: Final = 50
"""Examples of a run that is to be quick, at most."""


def more(times: float) -> settings:
    """So many times the examples that others get; of a quick run at most as many as they."""
    most = settings().max_examples
    return settings(max_examples=int(most * (min(times, 1) if most <= FEW else times)))


_T = TypeVar("_T")

NUMBERS: Final[tuple[int | float, ...]] = (
    0,
    -0.0,
    1,
    -1,
    0.5,
    3,
    5e-324,
    -5e-324,
    sys.float_info.min,
    1.0000000000000002,
    2**53 - 1,
    2**53,
    2**53 + 1,
    float(2**53 + 2),
    -(2**53) - 1,
    INT_MAX,
    INT_MAX - 1,
    float(2**63),
    float(2**63 - 1024),
    INT_MIN,
    INT_MIN + 1,
    math.nextafter(-(2.0**63), -math.inf),
    sys.float_info.max,
    -sys.float_info.max,
    math.inf,
    -math.inf,
    math.nan,
)
TIMES: Final = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 11, 20, 9, 30, 0, 1, tzinfo=UTC),
    datetime(2026, 11, 20, 10, 30, tzinfo=timezone(timedelta(hours=1))),
    datetime_of(TIME_MIN_US),
    datetime_of(TIME_MAX_US),
)
TEXTS: Final[tuple[str | bytes, ...]] = (
    "",
    *"abc",
    "ab",
    "ba",
    "aab",
    "abc",
    "A",
    "aB",
    "a\0",
    "a\0\0",
    "k",
    "K",
    "\u212a",
    "s",
    "ſ",
    "ß",
    "ẞ",
    "i",
    "İ",
    "ı",
    "σς",
    "Σ",
    "ﬀ",
    "\U00010400",
    "\U0010ffff",
    "a & b",
    "a | (b)",
    '"quoted"',
    "back\\slash",
    "`tick`",
    "line\nline\r\t",
    "\x7f\x85\u2028",
    "and",
    b"\xff",
    b"\xff\xff",
    b"a\xff",
    b"\xfea",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xe2\x84",
)
NAMES: Final = (
    *("a", "b", "x0", "x1", "price", "class"),
    *("Threat Name", "in", "and", "not", "every", "everything", "nothing", "within", "nan"),
    *(
        "1st",
        "@timestamp",
        "@1",
        "a-b",
        "a->b",
        "a.",
        "é",
        "日本",
        "tick`s",
        "``",
        "'",
        '"',
        "a|b",
        "(",
        "~",
        "x" * 255,
    ),
)
CONTROLS: Final = tuple(map(chr, (*range(0x20), *range(0x7F, 0xA0))))

numbers = st.sampled_from(NUMBERS)
ordered_numbers = st.sampled_from([n for n in NUMBERS if n == n])
times = st.sampled_from(TIMES)
texts = st.sampled_from(TEXTS)
unicode_texts = st.sampled_from([text for text in TEXTS if isinstance(text, str)])
letters = st.text("abc", max_size=4)
names = st.sampled_from(NAMES)
few_names = st.sampled_from(NAMES[:3])
odd_names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20
).filter(lambda name: name[0] != "@" and len(name.encode()) <= 255)

pooled_values: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), numbers, times, texts, letters
)
"""Values of all domains, from pools: these often equal a constant or stand beside one."""


def values() -> st.SearchStrategy[Value]:
    """Values of all domains, pooled and arbitrary."""
    return st.one_of(
        pooled_values,
        st.integers(INT_MIN, INT_MAX),
        st.floats(),
        st.integers(TIME_MIN_US, TIME_MAX_US).map(datetime_of),
        st.text(st.characters(codec="utf-8"), max_size=12),
        st.binary(max_size=12),
    )


_ordered: st.SearchStrategy[Value] = st.one_of(
    st.booleans(), ordered_numbers, times, texts, letters
)
_many = st.lists(pooled_values, min_size=1, max_size=4)
_folded = st.one_of(unicode_texts, letters)


def _spread(build: Callable[..., ValueSet]) -> Callable[[list[Value]], ValueSet]:
    return lambda constants: build(*constants)


def _between(low_and_high: tuple[Value, Value]) -> ValueSet:
    return sets.between(*low_and_high)


_pairs = st.one_of(
    *(
        st.tuples(domain, domain)
        for domain in (st.booleans(), ordered_numbers, times, st.one_of(texts, letters))
    )
)

interval_constraints: st.SearchStrategy[ValueSet] = st.one_of(
    pooled_values.map(sets.eq),
    pooled_values.map(sets.ne),
    *(_ordered.map(build) for build in (sets.lt, sets.le, sets.gt, sets.ge)),
    _pairs.map(_between),
    *(_many.map(_spread(build)) for build in (sets.in_, sets.not_in, sets.any_but, sets.none_of)),
    st.one_of(texts, letters).map(sets.prefix),
    st.sampled_from([sets.exists(), sets.absent()]),
)
"""One constraint whose set is plain intervals."""

text_constraints: st.SearchStrategy[ValueSet] = st.one_of(
    *(st.one_of(texts, letters).map(build) for build in (sets.suffix, sets.contains)),
    *(
        _folded.map(partial(build, nocase=True))
        for build in (sets.eq, sets.ne, sets.prefix, sets.suffix, sets.contains)
    ),
    st.lists(_folded, min_size=1, max_size=3).map(lambda texts: sets.in_(*texts, nocase=True)),
    st.lists(_folded, min_size=1, max_size=3).map(lambda texts: sets.not_in(*texts, nocase=True)),
    letters.map(lambda text: sets.text_not(sets.suffix(text))),
    letters.map(lambda text: sets.text_not(sets.contains(text))),
)
"""One constraint on text that is not intervals."""

EXPRESSIONS: Final = (
    *("a", "^a", "a$", "^(a|b)$", "a.b", "^[^a]*$", "(?i)k.", "(?s)^.$", r"\bab?\b", "a{2,3}|b+c"),
    *(
        "",
        "/",
        r"\/\\/",
        "\n\x7f",
        r"\Qa|b\E.",
        '"&|~',
        "(?m)^b$",
        "[/\"']",
        "`",
        r"[\x{2100}-\x{2200}]",
    ),
)
SHAPES: Final = (
    "a*b",
    "*",
    "?",
    "a?",
    "*a?*b",
    r"\*a\?*\\b*c",
    "k*\u212a?",
    "a*b*c",
    "",
    "*a*",
    "ß*ſ*",
)
NETWORKS: Final = (
    "10.0.0.0/8",
    "10.1.2.3",
    "::/0",
    "2001:DB8::/32",
    "::ffff:10.0.0.0/104",
    "0.0.0.0/0",
)

shape_constraints: st.SearchStrategy[ValueSet] = st.one_of(
    st.sampled_from(EXPRESSIONS).map(sets.matches),
    st.sampled_from(SHAPES).map(sets.wildcard),
    st.sampled_from(SHAPES).map(partial(sets.wildcard, nocase=True)),
    st.sampled_from(NETWORKS).map(sets.cidr),
)
"""One constraint on the shape of text."""

constraints = st.one_of(interval_constraints, text_constraints, shape_constraints)
"""One constraint of any built-in operator."""


def value_sets(max_leaves: int = 6) -> st.SearchStrategy[ValueSet]:
    """Boolean combinations of constraints."""
    return st.recursive(
        constraints,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
            inner.map(lambda one: ~one),
        ),
        max_leaves=max_leaves,
    )


def interval_sets(max_leaves: int = 6) -> st.SearchStrategy[ValueSet]:
    """Boolean combinations of constraints that are plain intervals."""
    return st.lists(
        st.tuples(interval_constraints, st.booleans(), st.booleans()),
        min_size=1,
        max_size=max_leaves,
    ).map(_combined)


def _combined(parts: list[tuple[ValueSet, bool, bool]]) -> ValueSet:
    signed = [(one if positive else ~one, either) for one, positive, either in parts]
    return reduce(
        lambda held, part: held | part[0] if part[1] else held & part[0], signed[1:], signed[0][0]
    )


def filters(
    of: st.SearchStrategy[ValueSet] = constraints, named: st.SearchStrategy[str] = few_names
) -> st.SearchStrategy[Filter]:
    """Conjunctions over few attributes."""
    return st.dictionaries(named, of, max_size=3).map(Filter)


def filter_sets(
    of: st.SearchStrategy[ValueSet] = constraints, max_size: int = 4
) -> st.SearchStrategy[FilterSet]:
    """Finite unions of filters."""
    return st.lists(filters(of), max_size=max_size).map(FilterSet)


def advertisements(
    of: st.SearchStrategy[ValueSet] = constraints, named: st.SearchStrategy[str] = few_names
) -> st.SearchStrategy[Advertisement]:
    """Advertisements over few attributes."""
    return st.dictionaries(named, of, max_size=3).map(Advertisement)


def queries(of: st.SearchStrategy[ValueSet] = constraints) -> st.SearchStrategy[Query]:
    """Queries over few attributes."""
    return st.dictionaries(few_names, of, max_size=3).map(Query)


def patterns(of: st.SearchStrategy[ValueSet] = constraints) -> st.SearchStrategy[Pattern]:
    """Sequences of filters with every option."""
    return st.builds(
        Pattern,
        st.lists(filters(of), min_size=2, max_size=4),
        by=st.lists(names, max_size=3),
        within_us=st.one_of(st.none(), st.integers(0, INT_MAX), st.sampled_from([0, 300_000_000])),
        every=st.booleans(),
    )


envelopes = st.builds(
    Envelope,
    id=st.sampled_from(["", "id-1", "ı"]),
    publisher=st.sampled_from(["", "a", "b"]),
    sequence=st.sampled_from([0, 1, INT_MAX]),
    time_us=st.sampled_from([None, 0, 1, TIME_MIN_US, TIME_MAX_US]),
    ttl_us=st.sampled_from([None, 0, 1_000_000]),
    priority=st.integers(0, 9),
)


def notifications(
    of: st.SearchStrategy[Value] = pooled_values,
    named: st.SearchStrategy[str] = few_names,
    values_max: int = 3,
) -> st.SearchStrategy[Notification]:
    """Notifications whose attributes have one or several values; an empty collection is absent."""
    several = st.lists(of, max_size=values_max)
    held: st.SearchStrategy[object] = st.one_of(of, several) if values_max > 1 else of
    return st.builds(
        Notification,
        st.dictionaries(named, held, max_size=3),
        body=st.sampled_from([b"", b"\0\xff"]),
        content_type=st.sampled_from(["", "text/plain"]),
    )
