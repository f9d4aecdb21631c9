"""Events and event patterns for Hypothesis, over few names and values, so that they meet."""

from typing import Any

from hypothesis import strategies as st

ADDRESSES = ("10.0.0.1", "10.0.0.9", "::1", "0:0:0:0:0:0:0:1", "2001:db8::1")
NAMES = st.sampled_from("abc")
TEXTS = st.sampled_from(
    (*("", "x", "xy", "yx", "X", "xX", "é", "\\", "a*b", "a?b", "300", "null"), *ADDRESSES)
)
NUMBERS = st.sampled_from([0, 1, -1, 5, 300, 300.0, 0.5, -0.0, 2**53, 2**53 + 1, -(2**63)])
BOUNDS = NUMBERS.filter(lambda number: abs(number) <= 2**53)
PLAIN = st.one_of(TEXTS, NUMBERS, st.sampled_from([None, True, False]))

VALUES = PLAIN | st.lists(PLAIN, max_size=3)
ELEMENTS = st.lists(
    st.dictionaries(NAMES, VALUES, max_size=3) | VALUES, min_size=1, max_size=3
)  # objects, plain values and arrays of them
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
EVENTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    NAMES, VALUES | ELEMENTS | st.dictionaries(NAMES, ELEMENTS, max_size=2) | ANYTHING, max_size=3
)

SHAPES = st.lists(st.sampled_from(["*", "x", "y", "\\*", "\\\\", "?", "a", "b"]), max_size=5).map(
    lambda parts: "".join(part for n, part in enumerate(parts) if parts[n - 1 : n + 1] != ["*"] * 2)
)
NETWORKS = st.sampled_from(["10.0.0.0/8", "10.0.0.8/30", "2001:db8::/32", "::/120", "0.0.0.0/0"])
SOME_TEXTS = TEXTS | st.lists(TEXTS, min_size=1, max_size=3)
FILLED = TEXTS.filter(bool)


def _one(name: str, constants: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return constants.map(lambda constant: {name: constant})


def _range(low: Any, high: Any) -> list[Any]:
    return [">", *sorted((low, high))[:1], "<=", *sorted((low, high))[1:]]


NUMERIC = st.one_of(
    st.tuples(st.sampled_from(["=", "<", "<=", ">", ">="]), BOUNDS).map(list),
    st.tuples(BOUNDS, BOUNDS).filter(lambda pair: pair[0] != pair[1]).map(lambda p: _range(*p)),
)
OUTSIDE = st.one_of(
    SOME_TEXTS,
    BOUNDS,
    st.lists(BOUNDS, min_size=1, max_size=3),
    _one("prefix", FILLED | st.lists(FILLED, min_size=1, max_size=2)),
    _one("suffix", FILLED | st.lists(FILLED, min_size=1, max_size=2)),
    _one("equals-ignore-case", SOME_TEXTS),
    _one("wildcard", SHAPES | st.lists(SHAPES, min_size=1, max_size=2)),
)
NOCASE = _one("equals-ignore-case", TEXTS)
EXPRESSIONS = st.one_of(
    _one("exactly", TEXTS),
    NOCASE,
    _one("prefix", TEXTS | NOCASE),
    _one("suffix", TEXTS | NOCASE),
    _one("wildcard", SHAPES),
    _one("numeric", NUMERIC),
    _one("cidr", NETWORKS),
    _one("anything-but", OUTSIDE),
    _one("exists", st.booleans()),
)
FIELDS = st.lists(PLAIN | EXPRESSIONS, min_size=1, max_size=3)
OBJECTS = st.recursive(
    st.dictionaries(NAMES, FIELDS, min_size=1, max_size=3),
    lambda inner: st.dictionaries(NAMES, FIELDS | inner, min_size=1, max_size=2),
    max_leaves=3,
)


def _with_or(around: dict[str, Any], alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a pattern with alternatives, without fields that would be duplicates."""
    left = [{k: v for k, v in each.items() if k not in around} for each in alternatives]
    return {**around, "$or": left} if all(left) and len(left) > 1 else around


PATTERNS = OBJECTS | st.builds(_with_or, OBJECTS, st.lists(OBJECTS, min_size=2, max_size=3))
"""Valid patterns, of which few match."""


Case = tuple[dict[str, Any], dict[str, Any]]
"""A pattern and an event."""

VALUE_CASES: st.SearchStrategy[Case] = st.tuples(
    st.fixed_dictionaries({"a": FIELDS}), st.fixed_dictionaries({"a": VALUES})
)
"""One field, so that every operator meets many values."""

FEW = st.sampled_from((0, 1, "x"))
FEW_FIELDS = st.lists(
    FEW | st.sampled_from(({"exists": False}, {"anything-but": 1}, {"exists": True})),
    min_size=1,
    max_size=2,
)
INNER = st.lists(
    st.fixed_dictionaries({}, optional={"a": FEW, "b": FEW}) | st.lists(FEW, max_size=2) | FEW,
    min_size=2,
    max_size=3,
)
OUTER = st.lists(
    st.fixed_dictionaries({"a": FEW}, optional={"b": FEW, "c": INNER}) | INNER | FEW,
    min_size=2,
    max_size=3,
)
ELEMENT_CASES: st.SearchStrategy[Case] = st.tuples(
    st.fixed_dictionaries(
        {"a.a": FEW_FIELDS, "a.b": FEW_FIELDS},
        optional=dict.fromkeys(("a", "b.a", "b.b", "a.c", "a.c.a", "a.c.b"), FEW_FIELDS),
    ),
    st.fixed_dictionaries({"a": OUTER, "b": INNER}),
)
"""Arrays of objects, of which the patterns ask for several fields."""

GROUPS = ("p", "q", "r", "s")
OR_CASES: st.SearchStrategy[Case] = st.tuples(
    st.fixed_dictionaries(
        {"p": st.just({"a": [{"exists": True}, {"exists": False}]})},
        optional=dict.fromkeys(
            GROUPS[1:],
            st.lists(
                st.dictionaries(NAMES, FEW_FIELDS, min_size=1, max_size=2), min_size=2, max_size=3
            ).map(lambda alternatives: {"$or": alternatives}),
        ),
    ),
    st.fixed_dictionaries(
        dict.fromkeys(GROUPS, st.dictionaries(NAMES, FEW | st.lists(FEW, max_size=3), max_size=3))
    ),
)
"""Several `$or` beside one another, and events with several values."""
