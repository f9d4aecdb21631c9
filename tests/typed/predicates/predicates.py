"""Obvents with all kinds of fields, their notifications, and predicates as text."""

import enum
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Final, final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from contrada.model import Notification
from contrada.typed.shapes import Alias, enum_values


class Side(enum.Enum):
    """A plain enumeration of texts."""

    BUY = "buy"
    SELL = "sell"
    HOLD = "hold"


class Level(enum.IntEnum):
    """Members that are integers, too."""

    LOW = 1
    MID = 2
    HIGH = 30


class Mood(enum.StrEnum):
    """Members that are texts, too."""

    GOOD = "good"
    BAD = "bad"


class Loud(enum.Enum):
    """An enumeration with code of its own."""

    YES = "yes"
    NO = "no"

    def __lt__(self, other: object) -> bool:
        return True


@dataclass
class Maker:
    """A nested object."""

    name: str
    year: int = 2000
    rate: float | None = None


@dataclass
class Trade:
    """An obvent with a field of each kind."""

    price: float
    amount: int
    company: str
    maker: Maker
    raw: bytes = b""
    bonus: float | None = None
    tip: float = 1.5
    whole: float = 3
    flag: bool = False
    vague: bool | None = None
    note: str | None = "none"
    side: Side = Side.BUY
    level: Level = Level.MID
    mood: Mood | None = None
    loud: Loud = Loud.NO
    at: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    day: date = date(2020, 1, 1)
    span: timedelta = timedelta(seconds=1)
    cost: Decimal = Decimal("1.5")
    mixed: int | float = 2
    either: bool | int = 0
    tags: list[str] = field(default_factory=list)
    second: Maker | None = None
    named: Annotated[float, Alias("called"), Alias("known")] = 7.0

    @final
    def value(self, factor: float = 2.0) -> float:
        """A method that no subtype overrides."""
        if self.flag:
            return 0.0
        return self.price * factor

    @property
    @final
    def is_odd(self) -> bool:
        """A property that no subtype overrides."""
        return self.note is None or self.side is Side.HOLD

    def loose(self) -> bool:
        """A method that a subtype may override."""
        return self.price > 1


NUMBERS: Final[tuple[Any, ...]] = (
    *(0, 1, -1, 2, 3, 30, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 10**400),
    *(0.0, -0.0, 0.5, 1.5, 3.0, 7.0, 5e-324, -5e-324, 1.0000000000000002, float(2**53 + 2), 1e308),
    *(sys.float_info.max, -sys.float_info.max, math.inf, -math.inf, math.nan, float(2**63)),
    *(True, False, Decimal("1.5"), Decimal("0.1"), Level.MID),
)
TEXTS: Final = ("", "a", "ab", "aab", "b", "ä", "z\U0010ffff", "a\0", "none", "good", "A", "abc")
BYTES: Final = (b"", b"a", b"ab", b"\xff", b"\xff\xff", b"a\xff", b"\xc3")
ZONE: Final = ZoneInfo("Europe/Zurich")
NAIVE: Final = datetime(2020, 1, 1)  # noqa: DTZ001
TWICE: Final = datetime(2020, 10, 25, 2, 30, tzinfo=ZONE)  # which clocks there show two times
TIMES: Final = (
    *(datetime(2020, 1, 1, tzinfo=UTC), NAIVE, datetime(1, 1, 1, tzinfo=UTC)),
    *(TWICE, TWICE.replace(fold=1)),
    *(datetime(2020, 3, 29, 2, 30, tzinfo=ZONE), datetime(2020, 10, 25, 0, 30, tzinfo=UTC)),
    *(datetime(2020, 10, 25, 1, 30, tzinfo=UTC), datetime(2020, 3, 29, 1, 30, tzinfo=UTC)),
    datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-5))),
)
DATES: Final = (date(2020, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2020, 1, 2))
SPANS: Final = (timedelta(), timedelta(seconds=1), timedelta(microseconds=-1), timedelta.max)
DECIMALS: Final = tuple(
    map(
        Decimal,
        ("0", "1.5", "0.1", "1e400", "1e-400", "NaN", "Infinity", "9007199254740993", "0.3"),
    )
)
CONSTANTS: Final[tuple[Any, ...]] = (
    *(*NUMBERS, *TEXTS, *BYTES, *TIMES, *DATES, *SPANS, *DECIMALS, *Side, *Level, *Mood),
    *(None, "\ud800", (), ("a", "b"), Loud.YES),
)


class _TakesAll(type):
    def __instancecheck__(cls, _: object) -> bool:
        return True


class Anything(metaclass=_TakesAll):
    """A class that claims all objects as instances."""


GLOBALS: Final[dict[str, Any]] = {
    **{f"c{place}": constant for place, constant in enumerate(CONSTANTS)},
    **{each.__name__: each for each in (Side, Level, Mood, Loud, Maker, Trade, Anything)},
    **{each.__name__: each for each in (datetime, date, timedelta, Decimal)},
    "WORDS": ["a", "ab", "none", "good"],
    "SOME": {1, 2.0, 3, math.nan, "a"},
    "TABLE": {"a": 1, Side.BUY: 2, Level.MID: 3, 1: 4},
    "TIMES": (*TIMES, None),
    "math": math,
    "sys": sys,
}
"""What predicates may name. `sys` and classes are no constants."""

_FINITE: Final = tuple(it for it in NUMBERS if type(it) is not Decimal)
_DOUBLES: Final = tuple(float(it) for it in _FINITE if abs(it) < 2**64 or type(it) is float)
_INTEGERS: Final = tuple(int(it) for it in _FINITE if -(2**63) <= it < 2**63 and it == int(it))
_UTC_TIMES: Final = tuple(
    it.astimezone(UTC) for it in TIMES if it.tzinfo is not None and 1 < it.year < 9999
)


def _of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


DOUBLES: Final = _of(*_DOUBLES) | st.floats()
INTEGERS: Final = _of(*_INTEGERS) | st.integers(-(2**63), 2**63 - 1)
STRINGS: Final = _of(*TEXTS) | st.text("ab", max_size=3)
MAKERS: Final = st.builds(Maker, name=STRINGS, year=INTEGERS, rate=st.none() | DOUBLES)


def trades() -> st.SearchStrategy[Trade]:
    """Obvents as received: doubles are doubles, times are in UTC."""
    return st.builds(
        Trade,
        price=DOUBLES,
        amount=INTEGERS,
        company=STRINGS,
        maker=MAKERS,
        raw=_of(*BYTES),
        bonus=st.none() | DOUBLES,
        tip=DOUBLES,
        whole=DOUBLES,
        flag=st.booleans(),
        vague=_of(None, True, False),
        note=st.none() | STRINGS,
        side=_of(*Side),
        level=_of(*Level),
        mood=_of(None, *Mood),
        loud=_of(*Loud),
        at=_of(*_UTC_TIMES),
        day=_of(*DATES),
        span=_of(*SPANS[:3]) | st.timedeltas(timedelta(-100), timedelta(100)),
        cost=_of(*(it for it in DECIMALS if not it.is_nan())),
        mixed=INTEGERS | DOUBLES,
        either=st.booleans() | INTEGERS,
        tags=st.lists(_of("a"), max_size=1),
        second=st.none() | MAKERS,
        named=DOUBLES,
    )


OPTIONAL: Final = tuple(
    each.name for each in fields(Trade) if each.name not in ("price", "amount", "company", "maker")
)


def carried(trade: Any, absent: frozenset[str], names: dict[str, str]) -> tuple[Any, Notification]:
    """An obvent and its notification, with some fields absent or under an alias."""
    attributes: dict[str, Any] = {}
    kept = {}
    for each in fields(trade):
        if each.name in absent:
            continue
        value = kept[each.name] = getattr(trade, each.name)
        _put(attributes, names.get(each.name, each.name), value)
    return type(trade)(**kept), Notification(attributes)


def _put(attributes: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, list):
        return
    if isinstance(value, Maker):
        for each in fields(value):
            _put(attributes, f"{name}.{each.name}", getattr(value, each.name))
        return
    attributes[name] = wire(value)


def wire(value: Any) -> Any:
    """The encoded form of a value."""
    if isinstance(value, enum.Enum):
        return dict(zip(type(value), list(enum_values(type(value))), strict=True))[value]
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and -(2**63) <= value < 2**63 and value == int(value)
        return int(value) if is_whole else float(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    return value


SCALARS: Final = tuple(each.name for each in fields(Trade) if each.name not in ("maker", "second"))
_OPERANDS: Final = (
    *(f"q.{name}" for name in SCALARS),
    *("q.maker.name", "q.maker.year", "q.maker.rate", "q.second.name", "q.second.rate"),
    *("q.side.value", "q.level.name", "q.value()", "q.value(3)", "q.is_odd"),
)
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "operand": _OPERANDS,
    "constant": tuple(f"c{place}" for place in range(len(CONSTANTS))),
    "number": tuple(f"c{place}" for place in range(len(NUMBERS))),
    "time": tuple(
        f"c{place}" for place, it in enumerate(CONSTANTS) if isinstance(it, date | timedelta)
    ),
    "order": ("<", "<=", ">", ">=", "==", "!="),
    "in": ("in", "not in"),
    "is": ("is", "is not"),
    "numeric": ("q.price", "q.amount", "q.tip", "q.whole", "q.mixed", "q.level", "q.bonus"),
    "text": ("q.company", "q.note", "q.raw", "q.mood", "q.maker.name", "q.second.name"),
    "moment": ("q.at", "q.day", "q.span"),
    "member": ("q.side", "q.level", "q.mood", "q.loud", "q.flag", "q.vague", "q.either"),
    "word": (*map(repr, (*TEXTS, *BYTES)), "('a', 'b')", "c9", "()"),
    "words": ("WORDS", "SOME", "TABLE", "('a', 'ab')", "{1, 'a', b'a'}", "TIMES"),
    "numbers": ("SOME", "{1, 2.5, True}", "(0, 1, None)", "TABLE", "range(5)"),
    "known": ("None", "True", "Side.BUY", "Level.MID"),
    "class": ("int", "float", "(str, bytes)", "Side", "date", "Trade", "object"),
    "sign": ("+", "-", "*", "/", "//", "%"),
    "plain": ("1", "-2", "0.1", "3", "1e300", "-7.5", "2**53", "0", "True", "10**400"),
    "stepped": (
        *("<numeric> <sign> <plain>", "<plain> <sign> <numeric>", "-<numeric>"),
        *("(<stepped>) <sign> <plain>", "<plain> <sign> (<stepped>)", "-(<stepped>)"),
    ),
}
TESTS: Final = (
    *("<operand>", "<operand> <order> <constant>", "<constant> <order> <operand>"),
    *("<numeric> <order> <number>", "<number> <order> <numeric> <order> <plain>"),
    *("<stepped> <order> <number>", "<number> <order> <stepped>"),
    *("<text> <order> <word>", "<word> in <text>", "<text> <in> <words>", "<text> in <word>"),
    *("<text>.startswith(<word>)", "<text>.endswith(<word>)", "<numeric> <in> <numbers>"),
    *("<moment> <order> <time>", "<time> <order> <moment>", "<moment> <in> TIMES"),
    *("<operand> <is> <known>", "<member> <is> <known>", "<member> <order> <constant>"),
    *(
        "<member> in (Side.BUY, Level.MID, 'good', True)",
        "<member> in TABLE",
        "<member> == Side.BUY",
    ),
    *("q.second <is> None", "isinstance(<operand>, <class>)", "isinstance(q, <class>)"),
    *("any(<numeric> <order> x for x in (1, 2.5, 30))", "[x for x in WORDS if x == <text>]"),
    *("TABLE[<member>] == 2", "TABLE[<text>] == 1", "(<numeric>, <text>) < (3, <word>)"),
    *("(<operand> if <member> else <constant>) == <constant>", "<member>.value == <constant>"),
    *("q.loose()", "q.tags", "q.missing", "len(q.company) > 1", "len(WORDS) == 4", "sys.argv"),
    *("abs(q.price) < 3", "math.pi < q.price", "q == 3", "q.price == q.tip", "f'{q.price}'"),
    *("q.price.is_integer()", "q.company.upper() == 'A'", "q.price.nothing", "q.price == 1j"),
)


@st.composite
def tests_of_fields(draw: st.DrawFn) -> str:
    """One test of a field, mostly of a suitable kind."""

    def part(match: re.Match[str]) -> str:
        text: str = draw(_of(*PARTS[match[1]]))
        return re.sub(r"<(\w+)>", part, text)

    test = str(draw(_of(*TESTS)))
    return re.sub(r"<(\w+)>", part, test)


def conditions() -> st.SearchStrategy[str]:
    """Tests joined by all operators."""
    return st.recursive(
        tests_of_fields(),
        lambda inner: st.one_of(
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} or {})".format, inner, inner),
            st.builds("(not {})".format, inner),
            st.builds("({} if {} else {})".format, inner, inner, inner),
            st.builds("(({}) == ({}))".format, inner, inner),
        ),
        max_leaves=4,
    )


BODIES: Final = (
    "    return {}\n",
    "    if {}:\n        return {}\n    return not {}\n",
    "    try:\n        return {}\n    except Exception:\n        return True\n",
    "    try:\n        if {}:\n            return {}\n    except:\n        pass\n    return {}\n",
    "    for x in (1, 2, 30):\n        if q.amount == x: continue\n        if {}: return True\n",
    "    found = {}\n    other = {}\n    return found or other\n",
    "    assert {}\n    return {}\n",
)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """The text of a predicate `p`."""
    body = str(draw(_of(*BODIES, BODIES[0], BODIES[0], BODIES[0])))
    parts = [draw(conditions()) for _ in range(body.count("{}"))]
    return "def p(q):\n" + body.format(*parts)


def compiled(source: str) -> Callable[[Any], Any]:
    """The predicate of a text."""
    names = dict(GLOBALS)
    exec(source, names)
    predicate: Callable[[Any], Any] = names["p"]
    return predicate
