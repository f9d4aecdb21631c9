"""Conditions: their answers, alone and combined, and their filters in a subscription."""

import asyncio
import math
from typing import Any

import pytest

import contrada as ct
from contrada.errors import InvalidObventError
from contrada.model.languages.atoms import failures
from contrada.model.syntax import parse_filter_set
from contrada.service.embedded_service import EmbeddedService
from contrada.typed.conditions import (
    Access,
    AndCondition,
    Compare,
    Condition,
    Contains,
    Equals,
    Greater,
    GreaterEqual,
    Invoke,
    IsInstance,
    Less,
    LessEqual,
    OrCondition,
    Same,
)
from contrada.typed.conditions.conditions import CONDITION_DEPTH_MAX, FAILURE, Comparison
from tests.typed.conditions.quotes import BID, Bid, Place, Side, UrgentBid


class Cheap(Condition):
    """A condition of one's own."""

    def holds(self, obvent: Any) -> bool:
        return bool(obvent.price < 100)


class EndsWith(Comparison):
    """A comparison of one's own."""

    sign = "ends with"

    def test(self, found: Any, expected: Any) -> bool:
        return str(found).endswith(expected)


def by_length(one: str, other: str) -> int:
    return len(one) - len(other)


YES, NO = Equals("company", "Telco Mobiles"), Equals("company", "x")
RAISES = Greater(Invoke(Access("place"), "broken"), 0.0)
SAME = Bid("a", 1.0)

TABLE: list[tuple[Condition, bool]] = [
    (Equals("price", 80), True),
    (Equals("price", math.nan), False),
    (Equals(BID), True),
    (Equals(Access("price"), Invoke("get_price")), True),
    (Equals(Access("price"), Access("amount")), False),
    (Greater("price", 80.0), False),
    (GreaterEqual("price", 80.0), True),
    (Less("price", 80.5), True),
    (LessEqual("price", Access("amount")), False),
    (Contains("company", "Mob"), True),
    (Contains("company", "mob"), False),
    (Equals(Invoke("above", (79.0,)), True), True),
    (Same("note", None), True),
    (Same("side", Side.BUY), True),
    (Same("side", Side.SELL), False),
    (Same(BID), True),
    (Same(SAME), False),
    (IsInstance(Bid), True),
    (IsInstance(UrgentBid), False),
    (IsInstance("place", Place), True),
    (Compare("price", 80.0, result=0), True),
    (Compare("price", 81.0, result=-1), True),
    (Compare("price", 81.0, result=1), False),
    (Compare("company", "Telco", result=8, comparator=by_length), True),
    (Compare("company", "Telco", result=1, comparator=by_length), False),
    (Compare(Access("company"), Access("place.name"), result=7, comparator=by_length), True),
    (YES & YES, True),
    (YES & NO, False),
    (NO | YES, True),
    (NO | NO, False),
    (YES ^ NO, True),
    (YES ^ YES, False),
    (~YES, False),
    (~NO, True),
    (YES.and_(YES), True),
    (NO.or_(YES), True),
    (YES.nand(YES), False),
    (YES.nand(NO), True),
    (NO.nor(NO), True),
    (NO.nor(YES), False),
    (YES.xor(YES), False),
    (NO.not_(), True),
    (AndCondition(), True),
    (OrCondition(), False),
    (Cheap(), True),
    (Cheap() & ~Cheap(), False),
    (EndsWith("company", "Mobiles"), True),
    (~EndsWith("price", "5.0"), True),
    (RAISES, False),
    (~RAISES, False),
    (RAISES | YES, False),
    (YES | RAISES, True),
    (NO & RAISES, False),
    (~(NO & RAISES), True),
    (RAISES ^ NO, False),
]


@pytest.mark.parametrize(("condition", "expected"), TABLE, ids=range(len(TABLE)))
def test_conditions_hold(condition: Condition, expected: bool) -> None:
    """A subscriber would get other obvents, or the compiled form would differ."""
    assert condition.conforms(BID) is expected
    assert condition(BID) is expected
    try:
        compiled = bool(condition.predicate()(BID))
    except ValueError:
        compiled = False
    assert compiled is expected


def test_one_that_raises_is_counted() -> None:
    """Nobody would notice that a condition never holds."""
    before = failures[FAILURE]
    assert not RAISES.conforms(BID)
    assert not (RAISES & YES).conforms(BID)
    assert (YES | RAISES).conforms(BID)
    assert failures[FAILURE] == before + 2


def test_conditions_are_not_combined_by_words() -> None:
    """`one and other` would silently be the other alone."""
    with pytest.raises(TypeError, match="combine conditions by"):
        bool(YES and NO)


WRONG: list[tuple[Condition, str]] = [
    (Less("prize", 1.0), "prize: there is no field 'prize'"),
    (YES & ~Less("place.nam", 1.0), "place.nam: there is no field 'nam'"),
    (Equals("price", Access("prize")), "there is no field 'prize'"),
    (Less("price", "x"), "price < 'x': float and str have no order"),
    (Less("company", Access("amount")), "company < amount: str and int have no order"),
    (Compare("price", "x", result=1), "have no order"),
    (YES ^ Equals(Invoke("above"), True), "missing a required argument"),
]


@pytest.mark.parametrize(("condition", "reason"), WRONG, ids=range(len(WRONG)))
def test_conditions_are_checked_against_the_type(condition: Condition, reason: str) -> None:
    """A subscription that can match nothing would be accepted."""
    with pytest.raises(InvalidObventError, match=reason):
        condition.check(Bid)
    with pytest.raises(InvalidObventError, match=reason):
        Bid.lift(condition)


def test_invalid_conditions_are_refused() -> None:
    """Mistakes would be discovered at the first obvent."""
    for make in (
        lambda: Equals(),
        lambda: Equals("price", 1, 2),
        lambda: IsInstance("price", "float"),
        lambda: Compare("price", 1.0, result=2),
        lambda: Compare("price", 1.0, result=True, comparator=by_length),
        lambda: YES & 3,  # type: ignore[arg-type]
        lambda: Equals("a..b", 1),
    ):
        with pytest.raises(InvalidObventError):
            make()
    nested: Condition = YES
    for _ in range(CONDITION_DEPTH_MAX - 1):
        nested = ~nested
    with pytest.raises(InvalidObventError, match="CONDITION_DEPTH_MAX"):
        nested.not_()
    flat: Condition = YES
    for number in range(10 * CONDITION_DEPTH_MAX):
        flat = flat | Equals("amount", number)
    assert flat.conforms(BID)


LIFTED: list[tuple[Condition, str, bool]] = [
    (
        Less("price", 100.0) & Contains("company", "Telco"),
        'company contains "Telco" and price < 100',
        True,
    ),
    (~Less("price", 100.0), "price (>= 100 | = nan)", True),
    (Equals("place.name", "Zurich"), 'place.name (absent | = "Zurich")', False),
    (Equals(Invoke("get_price"), 3.0), "price = 3", True),
    (Compare("price", 5.0, result=-1), "price < 5", True),
    (Less("price", 5.0) ^ Greater("price", 1.0), "price (<= 1 | >= 5)", True),
    (Same("note", None), "note (absent | = null)", True),
    (Equals("get_place().name", "Zurich") & Less("price", 5.0), "price < 5", False),
    (Cheap() & Less("price", 5.0), "price < 5", False),
    (
        Less("price", 5.0) & Equals(Access("price"), Access("amount")),
        "amount (absent | != nan) and price < 5",
        False,
    ),
]


@pytest.mark.parametrize(("condition", "filters", "is_exact"), LIFTED, ids=[it[1] for it in LIFTED])
def test_conditions_become_filters(condition: Condition, filters: str, is_exact: bool) -> None:
    """All obvents would travel to the subscriber, or too few."""
    rule = Bid.lift(condition)
    expected = parse_filter_set(filters) & Bid.to_filters()
    assert ct.covers(expected, rule.filters)
    assert ct.covers(rule.filters, expected)
    assert (rule.residue_holds is None) is is_exact


def test_a_condition_narrows_a_subscription() -> None:
    """A condition would not be accepted as a predicate."""

    async def run() -> list[str]:
        narrow = Less("price", 100.0) & Equals("get_place().name", "Zurich")
        async with EmbeddedService() as service, service.subscribe(Bid, narrow) as bids:
            for company, price, place in (
                ("a", 80.0, "Zurich"),
                ("b", 800.0, "Zurich"),
                ("c", 1.0, "?"),
            ):
                await service.publish(Bid(company, price, place=Place(place)))
            await service.publish(Bid("last", 0.0))
            found = []
            async for bid in bids:
                found.append(bid.company)
                if bid.company == "last":
                    break
            return found

    assert asyncio.run(run()) == ["a", "last"]
