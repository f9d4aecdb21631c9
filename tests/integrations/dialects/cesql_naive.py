"""CESQL over trees of tuples: their text, a plain evaluation, and strategies.

It shares nothing with the code under test and knows nothing of filters. A tree is a literal, or a
tuple of an operation's name and its operands; `("name", x)` is an attribute, and a pattern of LIKE
is a plain text.
"""

import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

Tree = Any
Scalar = bool | int | float | str

NAMES = ("a", "b", "c")
TEXTS = (
    *("", "a", "b", "ab", "ba", "A", "é", "a%", "a_", "it's", 'say "a"', "back\\slash", "*?"),
    *("5", "+5", "005", "-0", "00", "-7", "2147483647", "2147483648", "-2147483648", "5.5", " 5"),
    *("true", "TRUE", "fAlse", "null", "nan", "inf", "0.5", "1e+300", "9223372036854775808.0"),
    *("2018-04-26T12:48:09Z", "2018-04-26T12:48:09.500000Z", "2018-04-26T14:48:09+02:00"),
)
INTEGERS = (0, 1, -1, 5, -5, 7, 10, 2**31 - 1, -(2**31))
PATTERNS = (
    *(
        "%",
        "",
        "_",
        "__",
        "a%",
        "%a",
        "%a%",
        "a_%",
        "%_",
        "a%b",
        "a\\%",
        "a\\_",
        "k\\s",
        "*%",
        "?_",
    ),
    *("5%", "%5", "5", "_5", "0._", "2018%", "%Z", "%:%", "tr%", "%e", "nul_", "n%n", "-%", "é_"),
)
TIMES = (
    datetime(2018, 4, 26, 12, 48, 9, tzinfo=UTC),
    datetime(2018, 4, 26, 12, 48, 9, 500_000, tzinfo=UTC),
)
LITERALS = (*TEXTS, *INTEGERS, True, False)
POOL = (
    *(*LITERALS, *TIMES, None, float("nan"), float("inf"), 0.5, 5.0, -7.25, 1e300, 2**40, b"\xff"),
)
VALUES = st.sampled_from(POOL)

literals = st.sampled_from(LITERALS)
names = st.sampled_from(NAMES).map(lambda name: ("name", name))
_FUNCTIONS = {
    **dict.fromkeys(("INT", "BOOL", "STRING", "IS_INT", "IS_BOOL", "LENGTH", "ABS"), (1,)),
    "LOWER": (1,),
    "UPPER": (1,),
    "TRIM": (1,),
    "LEFT": (2,),
    "RIGHT": (2,),
    "CONCAT": (0, 1, 3),
    "CONCAT_WS": (1, 3),
    "SUBSTRING": (2, 3),
}


def _joined(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def call(name: str, count: int) -> st.SearchStrategy[Tree]:
        return st.tuples(st.just(name), *[inner] * count)

    one_or_more = st.lists(inner, min_size=1, max_size=3)
    calls = [call(name, count) for name, counts in _FUNCTIONS.items() for count in counts]
    return st.one_of(
        st.tuples(st.sampled_from(("AND", "OR", "XOR")), inner, inner),
        st.tuples(st.sampled_from(("AND", "OR", "XOR")), inner, inner),
        st.tuples(st.sampled_from(("=", "!=", "<>", "<", "<=", ">", ">=")), inner, inner),
        st.tuples(st.just("NOT"), inner),
        st.tuples(st.sampled_from(("LIKE", "NOT LIKE")), inner, st.sampled_from(PATTERNS)),
        st.builds(
            lambda name, left, right: (name, left, *right),
            st.sampled_from(("IN", "NOT IN")),
            inner,
            one_or_more,
        ),
        st.tuples(st.just("EXISTS"), names),
        st.tuples(st.sampled_from(("+", "-", "*", "/", "%")), inner, inner),
        st.tuples(st.just("minus"), inner),
        st.one_of(calls),
    )


_plain = st.one_of(names, names, literals)
_comparisons = st.one_of(
    st.tuples(st.sampled_from(("=", "!=", "<", "<=", ">", ">=")), names, literals),
    st.tuples(st.sampled_from(("=", "<", ">=")), literals, names),
    st.tuples(st.sampled_from(("LIKE", "NOT LIKE")), names, st.sampled_from(PATTERNS)),
    st.builds(lambda left, right: ("IN", left, *right), names, st.lists(literals, min_size=1)),
    st.tuples(st.just("EXISTS"), names),
    names,
)
trees: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(_plain, _comparisons), _joined, max_leaves=8
)
"""Trees of all kinds."""

conditions: st.SearchStrategy[Tree] = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(("AND", "OR", "XOR")), inner, inner),
        st.tuples(st.just("NOT"), inner),
    ),
    max_leaves=8,
)
"""Trees that are sets throughout, LIKE for some numbers and times excepted."""

events = st.dictionaries(st.sampled_from(NAMES), VALUES)


def text_of(tree: Tree) -> str:
    """The expression in the syntax, all parts in parentheses."""
    if isinstance(tree, str):
        quote = '"' if "'" in tree else "'"
        return f"{quote}{tree.replace(quote, chr(92) + quote)}{quote}"
    if not isinstance(tree, tuple):
        return str(tree)
    name, *parts = tree
    if name == "name":
        return str(parts[0])
    if name == "EXISTS":
        return f"EXISTS {text_of(parts[0])}"
    shown = [f"({text_of(part)})" for part in parts]
    if name in ("NOT", "minus"):
        return f"{'-' if name == 'minus' else name} {shown[0]}"
    if name in ("LIKE", "NOT LIKE"):
        return f"{shown[0]} {name} {text_of(parts[1])}"
    if name in ("IN", "NOT IN"):
        return f"{shown[0]} {name} ({', '.join(shown[1:])})"
    return (
        f"{name}({', '.join(shown)})"
        if name[0].isalpha() and name not in _WORDS
        else (f"{shown[0]} {name} {shown[1]}")
    )


_WORDS = ("AND", "OR", "XOR")


class WrongError(Exception):
    """An error of the language, by its kind."""


def value_of(tree: Tree, event: dict[str, Any]) -> Scalar:
    """The value of a tree. Raises WrongError at the first error."""
    if not isinstance(tree, tuple):
        return tree  # type: ignore[no-any-return]
    name, *parts = tree
    if name == "name":
        return _attribute(parts[0], event)
    if name == "EXISTS":
        return parts[0][1] in event
    if name.startswith("NOT "):
        return not value_of((name[4:], *parts), event)
    if name in ("AND", "OR"):
        decided = boolean(value_of(parts[0], event))
        return decided if decided is (name == "OR") else boolean(value_of(parts[1], event))
    if name == "LIKE":
        return like(string(value_of(parts[0], event)), parts[1])
    if name == "IN":
        left = value_of(parts[0], event)
        return any(cast(value_of(part, event), left) == left for part in parts[1:])
    if name in _FUNCTIONS:
        return _called(name, parts, event)
    return _applied(name, [value_of(part, event) for part in parts])


def _attribute(name: str, event: dict[str, Any]) -> Scalar:
    if name not in event:
        raise WrongError("missingAttribute")
    value = event[name]
    if value is None or value != value:
        return "null" if value is None else "nan"
    if isinstance(value, datetime):
        shape = "%Y-%m-%dT%H:%M:%S.%fZ" if value.microsecond else "%Y-%m-%dT%H:%M:%SZ"
        return value.strftime(shape)
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value  # type: ignore[no-any-return]


def cast(value: Scalar, like_this: Scalar) -> Scalar:
    """The value as one of the type of another."""
    if isinstance(like_this, bool):
        return boolean(value)
    return string(value) if isinstance(like_this, str) else integer(value)


def boolean(value: Scalar) -> bool:
    if isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise WrongError("cast")
        return value.lower() == "true"
    return value != 0


def string(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def integer(value: Scalar) -> int | float:
    if isinstance(value, str):
        if not re.fullmatch("[+-]?[0-9]+", value) or not -(2**31) <= int(value) < 2**31:
            raise WrongError("cast")
        return int(value)
    return int(value) if isinstance(value, bool) else value


def whole(value: Scalar) -> int:
    number = integer(value)
    if isinstance(number, float) or not -(2**31) <= number < 2**31:
        raise WrongError("cast")
    return number


def like(text: str, pattern: str) -> bool:
    shapes = {"%": "(.|\n)*", "_": "[^\udc80-\udcff]"}
    parts = re.findall(r"\\[%_]|.", pattern)
    return re.fullmatch("".join(shapes.get(p) or re.escape(p[-1]) for p in parts), text) is not None


def _applied(name: str, values: list[Scalar]) -> Scalar:
    if name == "NOT":
        return not boolean(values[0])
    if name == "minus":
        return within(-whole(values[0]))
    x, y = values
    if name in ("=", "!=", "<>"):
        return (cast(x, y) == y) is (name == "=")
    kind = boolean if name == "XOR" else integer if name in _ORDERS else whole
    a: Any = kind(x)
    b: Any = kind(y)
    joined: Scalar = a != b if name == "XOR" else (_ORDERS | _ARITHMETIC)[name](a, b)
    return joined


def within(number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise WrongError("math")
    return number


def _divided(a: int, b: int, *, remainder: bool) -> int:
    if b == 0:
        raise WrongError("math")
    quotient = int(a / b)
    return a - quotient * b if remainder else within(quotient)


_ORDERS: dict[str, Any] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_ARITHMETIC: dict[str, Any] = {
    "+": lambda a, b: within(a + b),
    "-": lambda a, b: within(a - b),
    "*": lambda a, b: within(a * b),
    "/": lambda a, b: _divided(a, b, remainder=False),
    "%": lambda a, b: _divided(a, b, remainder=True),
}


def _can(cast: Any, value: Scalar) -> bool:
    try:
        cast(value)
    except WrongError:
        return False
    return True


def _called(name: str, parts: list[Tree], event: dict[str, Any]) -> Scalar:
    if name.startswith("CONCAT"):
        texts = [string(value_of(part, event)) for part in parts]
        return "".join(texts) if name == "CONCAT" else texts[0].join(texts[1:])
    x = value_of(parts[0], event)
    if len(parts) > 1:
        return _cut(name, string(x), *[whole(value_of(part, event)) for part in parts[1:]])
    called: dict[str, Any] = {
        "INT": integer,
        "BOOL": boolean,
        "STRING": string,
        "IS_INT": lambda x: _can(integer, x),
        "IS_BOOL": lambda x: _can(boolean, x),
        "ABS": lambda x: within(abs(whole(x))),
        "LENGTH": lambda x: len(string(x)),
        "LOWER": lambda x: string(x).lower(),
        "UPPER": lambda x: string(x).upper(),
        "TRIM": lambda x: re.sub("^ +| +$", "", string(x)),  # no other white space is in TEXTS
    }
    return called[name](x)  # type: ignore[no-any-return]


def _cut(name: str, text: str, first: int, length: int | None = None) -> str:
    if name != "SUBSTRING":
        if first < 0:
            raise WrongError("functionEvaluation")
        return text[:first] if name == "LEFT" else text[::-1][:first][::-1]
    if (length is not None and length < 0) or not -len(text) <= first <= len(text):
        raise WrongError("functionEvaluation")
    tail = "" if first == 0 else text[first - 1 :] if first > 0 else text[first:]
    return tail if length is None else tail[:length]
