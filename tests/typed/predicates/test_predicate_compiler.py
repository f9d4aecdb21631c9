"""`lift`: the filters of predicates, exactness, and the reasons for unlifted parts."""

import enum
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest

from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.typed import Obvent
from contrada.typed.predicates import CompiledPredicate, lift
from contrada.typed.predicates.captured_constants import CONSTANT_ITEMS_MAX
from contrada.typed.predicates.path_explorer import FORKS_MAX, PATHS_MAX
from contrada.typed.predicates.recorded_objects import OBJECTS_WITHIN_MAX
from contrada.typed.predicates.value_kinds import ENUM_FORKS_MAX
from contrada.typed.shapes import shape_of
from tests.typed.predicates.predicates import GLOBALS, Level, Side, Trade, compiled

SHAPE = shape_of(Trade)
NUMBER = "(<= inf | = nan)"

EXACT = [
    ("80 < q.price < 100", "price > 80 and price < 100"),
    ("not q.price < 100", "price (>= 100 | = nan)"),
    ("q.price != q.amount if False else q.price == 1", "price = 1"),
    ("q.price < 1 or q.amount == 3", f"price < 1 or amount = 3 and price {NUMBER}"),
    ("q.company in ('a', 'b')", "company in ('a', 'b')"),
    ("q.company not in {'a'}", "company != 'a'"),
    ("'Telco' in q.company", "company contains 'Telco'"),
    ("q.company.startswith(('a', 'b'))", "company (prefix 'a' | prefix 'b')"),
    ("q.company.endswith('x') and q.company", "company suffix 'x'"),
    ("q.note is None", "note = null"),
    ("q.note < 'b'", "note < 'b'"),
    ("q.bonus > 3", "bonus > 3"),
    ("q.tip > 1", "tip (> 1 | absent)"),
    ("q.tip > 2", "tip > 2"),
    ("q.flag", "flag = true"),
    ("q.flag == 0", "flag (= false | absent)"),
    ("q.flag + 1 == 2", "flag = true"),
    ("q.side is Side.BUY", "side (= 'buy' | absent)"),
    ("q.side == Side.SELL", "side = 'sell'"),
    ("q.side.value > 'c'", "side in ('hold', 'sell')"),
    ("q.level >= 2", "level (in (2, 30) | absent)"),
    ("q.price * 2 < 200", "price < 100"),
    ("(1 - q.price) / 4 >= 2", "price <= -7"),
    ("q.amount // 10 == 3", "amount >= 30 and amount < 40"),
    ("q.maker.year > 2000", "maker.year > 2000"),
    ("q.second is None", "second = null or second none of (null) and second.name absent"),
    (
        "q.second.year > 0",
        "second none of (null) and second.name any and second.year (> 0 | absent)",
    ),
    ("q.is_odd", "note = null or side = 'hold' and note (>= '' | absent)"),
    ("q.value() > 4", "flag (= false | absent) and price > 2"),
    (
        "q.named < 3",
        "named < 3 or called < 3 and named absent or called absent and known < 3 and named absent",
    ),
    ("q.day > date(2019, 1, 1)", "day (> '2019-01-01' | absent)"),
    ("q.span >= timedelta(seconds=2)", "span >= 2000000"),
    ("isinstance(q.company, str) and q.amount == 1", "amount = 1 and company >= ''"),
    ("isinstance(q.whole, int)", "whole absent"),
    ("isinstance(q.whole, float) and q.whole > 3", "whole > 3"),
    ("any(q.price == x for x in [1, 2])", "price in (1, 2)"),
    ("min(q.price, 10) > 3", "price > 3"),
    ("sum(q.price > x for x in (1, 2, 3)) == 2", "price > 2 and price <= 3"),
    ("sum((q.amount, 1)) > 3", "amount >= 3"),
    ("len([x for x in (1, 2, 3) if q.price > x]) == 2", "price > 2 and price <= 3"),
    ("q.amount * 0 < q.flag", "flag = true and amount (>= 0 | < 0)"),
    ("q.price > math.pi", f"price > {math.pi!r}"),
]


NEVER = [
    "q.amount + 1 > 2**63",
    "q.at < datetime(2020, 1, 1)",
    "q.price == float('nan')",
    "q.price > 'a'",
    "q.price > 1 and q.price < 0",
    "None",
    "1 / 0",
    "q.company.nothing",
]
STAYING = [
    ("q.price > 1 and q.loose()", "price > 1", "@typing.final"),
    ("q.price > 1 or q.tags", f"price {NUMBER}", "in the body"),
    ("q.price > 1 and abs(q.price) < 3", "price > 1", "abs"),
    ("q.price < q.tip", f"price {NUMBER} and tip ({NUMBER[1:-1]} | absent)", "another field"),
    ("q.price > 1 and sys.path_hooks", "price > 1", "sys.path_hooks is type in a collection"),
    ("q.price > 1 and f'{q.company}' == 'a'", "price > 1 and company >= ''", "format"),
    ("q.price > 1 and q.company.lower() == 'a'", "price > 1 and company >= ''", "str.lower"),
    ("q.cost < 2", "cost (<= 2 | absent)", "again: the attribute is the double nearest to the"),
    ("q.price > 1 and q.note % 2", "price > 1 and note (null | >= '' | absent)", "%"),
    ("q.loud < 3", "loud (in ('yes', 'no') | absent)", "code of its own"),
    ("q.price * 0 < 1", f"price {NUMBER}", "fails for some numbers"),
    ("q.price % 2 == 1", f"price {NUMBER}", "`%`"),
    ("q.price == 1j", f"price {NUMBER}", "complex"),
    ("isinstance(q.mixed, int)", f"mixed (absent | {NUMBER[1:]}", "one value"),
    ("q.mixed.real > 1", f"mixed (absent | {NUMBER[1:]}", "real of an int or a float"),
    ("isinstance(q.price, Anything)", f"price {NUMBER}", "about its instances itself"),
    ("sum((0.1, q.price, 0.2)) > 1", f"price {NUMBER}", "a sum of doubles"),
    ("sum((0.1, q.amount)) > 1", "amount (>= 0 | < 0)", "a sum of doubles"),
    ("q.either is q.flag", "everything", "`is` compares"),
    ("(lambda: 0).__globals__ and q.price > 1", "everything", "__globals__"),
    ("datetime.now() < q.at", "everything", "now"),
    ("list.append(WORDS, q.note) or q.price > 1", "everything", "'append' of class list"),
    ("q.price != math.nothing", f"price {NUMBER}", "math.nothing is not there"),
    ("(yield q.price)", "everything", "generator"),
]


def lifted_of(source: str) -> CompiledPredicate:
    """The compiled predicate of an expression."""
    return lift(SHAPE, compiled(f"def p(q):\n    return {source}\n"))


@pytest.mark.parametrize(("source", "wanted"), EXACT)
def test_a_predicate_becomes_filters(source: str, wanted: str) -> None:
    """Brokers would match other obvents than the predicate."""
    lifted = lifted_of(source)
    assert lifted.is_exact, lifted.explain()
    assert FilterSet(lifted.filters) == FilterSet(wanted)


@pytest.mark.parametrize("source", NEVER)
def test_a_contradiction_has_no_filter(source: str) -> None:
    """A subscription that gets nothing would be made silently."""
    lifted = lifted_of(source)
    assert lifted.filters.is_empty
    assert lifted.is_exact


def test_a_tautology_has_no_constraint() -> None:
    """A subscription to all obvents of a type would miss some."""
    assert lifted_of("True").filters == Filter({})
    assert lifted_of("True").is_exact


@pytest.mark.parametrize(("source", "wanted", "reason"), STAYING)
def test_the_plan_explains_unlifted_parts(source: str, wanted: str, reason: str) -> None:
    """A user would not learn why brokers send more than the predicate accepts."""
    lifted = lifted_of(source)
    assert not lifted.is_exact
    wanted_filters = Filter({}) if wanted == "everything" else Filter(_plain(wanted))
    assert lifted.filters == wanted_filters
    assert reason in lifted.explain()
    assert any(line.reason for line in lifted.plan)


def _plain(text: str) -> str:
    return text.replace("(null", "(= null")


def test_the_plan_names_file_line_and_operand() -> None:
    """A user would have to search for the place."""
    lifted = lift(SHAPE, lambda q: q.price > 1 and q.company.upper() == "A")
    places = [
        (line.place.rpartition("/")[2].partition(":")[0], line.source) for line in lifted.plan
    ]
    assert places == [
        ("test_predicate_compiler.py", "q.price > 1"),
        ("test_predicate_compiler.py", "q.company.upper"),
    ]
    assert "lifted: price > 1  [q.price > 1]" in lifted.explain()


HIDING = [
    "try:\n        return len(q.company) > 1\n    except BaseException:\n        return False",
    "try:\n        q.tags.x\n    except:\n        pass\n    return q.price > 1",
    "try:\n        return q.note < 'b'\n    except TypeError:\n        return True",
    "try:\n        return q.price > 1 and 1 / 0\n    finally:\n        return True",
    "return any(x > 1 for x in [q.price, abs(q.price)])",
    "return [q.tags is None for x in (1,)] == [True]",
    "return ','.join([q.company]) == 'a'",
    "return q.company in 'abc'",
    "return 'abc'.startswith(q.company)",
    "return [1, 2][q.amount] == 2",
    "try:\n        return q.price < 'a'\n    except TypeError:\n        return True",
    "try:\n        return q.price < Decimal('NaN')\n    except Exception:\n        return True",
]


@pytest.mark.filterwarnings("ignore:'return' in a 'finally'")  # Since Python 3.14.
@pytest.mark.parametrize("body", HIDING)
def test_handlers_do_not_hide_unrecorded_values(body: str) -> None:
    """Code that handles errors would count as an answer, and obvents be missed."""
    assert not lift(SHAPE, compiled(f"def p(q):\n    {body}\n")).is_exact


WHOLE = [
    "n = 0\n    while n < 3:\n        n += 1\n    return q.price > n",
    "global c0\n    c0 = 1\n    return q.price > 1",
    "q.price = 1\n    return True",
    "import math\n    return q.price > math.pi",
    "with q:\n        return q.price > 1",
    "match q:\n        case Trade(price=1.0):\n            return True",
    "yield q.price > 1",
    "return q.price is c0",
    "return q.side is WORDS.first",
    "return q.side is (c0 if q.flag else None)",
    "return q.side is (c0 if q.flag else Side).BUY",
    "return q.__class__ is None",
]


@pytest.mark.parametrize("body", WHOLE)
def test_unknown_code_stays_whole(body: str) -> None:
    """Copies of it would have effects, or read values that are not recorded."""
    lifted = lift(SHAPE, compiled(f"def p(q):\n    {body}\n"))
    assert lifted.filters == Filter({})
    assert not lifted.is_exact
    assert len(lifted.plan) == 1


def test_an_internal_error_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the compiler would count as a predicate that raises."""

    def failing(order: str, constant: object) -> object:
        raise OverflowError(order)

    monkeypatch.setattr("contrada.typed.predicates.value_kinds.number_cuts", failing)
    lifted = lifted_of("q.price > 1")
    assert not lifted.is_exact
    assert lifted.filters == Filter(f"price {NUMBER}")


def test_captured_constants_are_frozen() -> None:
    """Filter and residue would disagree once a captured list has changed."""
    limits, words, table = [1.0, 2.0], {"a"}, {"a": [3]}

    def predicate(q: Trade) -> bool:
        return q.price in limits or q.company in words or table["a"] == [q.amount]

    lifted = lift(SHAPE, predicate)
    limits.append(3.0)
    words.clear()
    table["a"].append(4)
    made = GLOBALS["Maker"]("m")
    wanted = [True, False, True, True]
    trades = [(2.0, "x", 0), (3.0, "x", 0), (0.0, "a", 0), (0.0, "x", 3)]
    for (price, company, amount), answer in zip(trades, wanted, strict=True):
        attributes = {"price": price, "company": company, "amount": amount}
        assert lifted.filters.matches(Notification(attributes)) is answer
        assert lifted.predicate(Trade(price, amount, company, made)) is answer


def test_captured_constants_are_read_only() -> None:
    """A run would change constants for the next run, and for the program."""
    seen: list[object] = []

    def predicate(q: Trade) -> bool:
        seen.append(q.price)
        return q.price > 1

    lifted = lift(SHAPE, predicate)
    assert seen == []
    assert not lifted.is_exact


def test_defaults_of_parameters_are_constants() -> None:
    """The usual way to keep a loop's variable would leave the whole predicate unlifted."""
    several = [lift(SHAPE, lambda q, limit=limit: q.price > limit) for limit in (1, 2)]
    assert [each.filters for each in several] == [Filter("price > 1"), Filter("price > 2")]


def test_a_second_parameter_is_the_envelope() -> None:
    """Obvents could not be selected by their publisher."""
    lifted = lift(SHAPE, lambda q, e: e.publisher == "x" and q.price > 1)
    assert lifted.filters == Filter("@publisher = 'x' and price > 1")
    assert lifted.is_exact
    assert lifted.takes_envelope
    assert not lift(SHAPE, lambda q, e: e.time_us > 1).is_exact
    made = Trade(2.0, 1, "c", GLOBALS["Maker"]("m"))
    assert lifted.predicate(made, Envelope(publisher="x"))


def test_constants_are_bounded() -> None:
    """Each run would copy or scan a collection of any size."""
    many = list(range(CONSTANT_ITEMS_MAX + 1))
    itself: list[object] = []
    itself.append(itself)
    assert not lift(SHAPE, lambda q: q.amount in many).is_exact
    assert not lift(SHAPE, lambda q: q.amount in itself).is_exact


def test_paths_are_bounded() -> None:
    """A predicate with many tests would take exponential time."""
    names = [f"f{number}" for number in range(12)]
    shape = shape_of(make_dataclass("Many", [(name, bool) for name in names]))
    source = " + ".join(f"q.{name}" for name in names)
    lifted = lift(shape, compiled(f"def p(q):\n    return {source} == 12\n"))
    assert not lifted.is_exact
    assert f"PATHS_MAX = {PATHS_MAX}" in lifted.explain()
    assert lifted.filters.matches(Notification(dict.fromkeys(names, True)))


@pytest.mark.slow
def test_truth_tests_of_a_path_are_bounded() -> None:
    """Lifting a long loop would not end."""
    lifted = lifted_of(f"all(q.price != x for x in range({FORKS_MAX + 1}))")
    assert not lifted.is_exact
    assert f"FORKS_MAX = {FORKS_MAX}" in lifted.explain()


def test_explored_members_are_bounded() -> None:
    """An enumeration with many members would multiply the paths."""
    large = enum.Enum("large", {f"M{n}": n for n in range(ENUM_FORKS_MAX + 1)})  # type: ignore[misc]
    shape = shape_of(make_dataclass("Coloured", [("colour", large)]))
    lifted = lift(shape, lambda q: q.colour == large.M3)  # type: ignore[attr-defined]
    assert lifted.filters == Filter("colour = 3")
    assert lifted.is_exact
    assert not lift(shape, lambda q: q.colour.name == "M3").is_exact
    assert not lift(shape, lambda q: q.colour is large.M3).is_exact  # type: ignore[attr-defined]


@dataclass
class Link:
    """A recursive object."""

    weight: float
    link: "Link | None" = None


def test_the_depth_of_objects_is_bounded() -> None:
    """A linked list would be followed for ever."""
    depth = OBJECTS_WITHIN_MAX
    shallow, deep = "q" + ".link" * depth, "q" + ".link" * (depth + 1)
    shape = shape_of(Link)
    assert lift(shape, compiled(f"def p(q):\n    return {shallow}.weight > 1\n")).is_exact
    assert not lift(shape, compiled(f"def p(q):\n    return {deep}.weight > 1\n")).is_exact


@dataclass
class Animal(Obvent, name="lifting.Animal"):
    """A class with a subtype."""

    legs: int

    @typing.final
    def walks(self, least: int) -> bool:
        return self.legs >= least

    def runs(self) -> bool:
        return self.legs > 2


@dataclass
class Horse(Animal, name="lifting.Horse"):
    """The subtype."""


@typing.final
@dataclass
class Snail(Animal, name="lifting.Snail"):
    """A class without subtypes."""

    @property
    def is_slow(self) -> bool:
        return self.legs < 2


def test_methods_are_lifted_where_no_subtype_overrides_them() -> None:
    """The filter would contradict a subtype's method."""
    animal = lift(shape_of(Animal), lambda q: q.walks(3))
    assert animal.is_exact
    assert animal.filters == Filter("legs >= 3")
    assert not lift(shape_of(Animal), lambda q: q.runs()).is_exact
    snail = lift(shape_of(Snail), lambda q: q.is_slow and not q.runs())
    assert snail.is_exact
    assert snail.filters == Filter("legs < 2")


def test_a_mark_shows_what_an_object_may_be() -> None:
    """A subtype's obvents would be missed, or the mark count as the class."""
    lifted = lift(shape_of(Animal), lambda q: isinstance(q, Horse) and q.legs > 1)
    assert lifted.filters == Filter("`@is.lifting.Horse` = true and legs > 1")
    assert not lifted.is_exact
    other = lift(shape_of(Animal), lambda q: not isinstance(q, Horse))
    assert other.filters == Filter({})
    same = lift(shape_of(Horse), lambda q: isinstance(q, Animal) and q.legs > 1)
    assert same.is_exact


def test_a_default_that_a_constructor_may_change_is_not_used() -> None:
    """An object with absent fields would match, but not its filter."""

    @dataclass
    class Changing:
        size: int = 0

        def __post_init__(self) -> None:
            self.size = self.size or 5

    lifted = lift(shape_of(Changing), lambda q: q.size > 3)
    assert lifted.filters == Filter("size (> 3 | absent)")
    assert not lifted.is_exact


@pytest.mark.parametrize(
    "predicate", [len, print, type("Called", (), {"__call__": lambda self, q: True})()]
)
def test_other_callables_stay(predicate: Callable[..., Any]) -> None:
    """An unreadable predicate would be refused, or match nothing."""
    lifted = lift(SHAPE, predicate)
    assert lifted.filters == Filter({})
    assert not lifted.is_exact
    assert lifted.predicate is predicate


def test_a_predicate_that_counts_keeps_its_outer_names() -> None:
    """The residue's copy would count elsewhere than the program reads."""
    count = 0

    def predicate(q: Trade) -> bool:
        nonlocal count
        count += 1
        return q.price > count

    lifted = lift(SHAPE, predicate)
    assert lifted.predicate(Trade(2.0, 1, "c", GLOBALS["Maker"]("m")))
    assert count == 1
    assert "outer function" in lifted.explain()


def test_members_are_compared_by_identity() -> None:
    """`is` with members would be a comparison that no run records."""
    lifted = lift(SHAPE, lambda q: q.side is not Side.BUY and q.level is Level.HIGH)
    assert lifted.is_exact
    assert lifted.filters == Filter("side in ('sell', 'hold') and level = 30")


def test_a_member_is_in_its_enumeration() -> None:
    """From Python 3.12 on `in` looks for a value of another type, without an error."""
    lifted = lift(SHAPE, lambda q: q.side in Side)
    assert not lifted.is_exact
    assert all(lifted.filters.matches({"side": each.value}) for each in Side)
