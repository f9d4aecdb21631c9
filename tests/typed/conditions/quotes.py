"""Obvents for the tests of conditions."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, final

from contrada.typed import Obvent
from tests.typed.made_classes import Unresolved


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Place:
    name: str
    fee: float = 0.5

    def get_name(self) -> str:
        """A subclass may override it."""
        return self.name

    @final
    def fee_of(self, amount: float, currency: str = "EUR") -> float:
        return self.fee * amount if currency == "EUR" else -1.0

    def broken(self) -> float:
        raise ValueError("closed")


@dataclass
class Bid(Obvent, name="conditions.Bid"):
    company: str
    price: float
    amount: int = 1
    side: Side = Side.BUY
    note: str | None = None
    place: Place = field(default_factory=lambda: Place("Zurich"))
    other: Place | None = None
    calls: list[str] = field(default_factory=list)

    @final
    def get_price(self) -> float:
        return self.price

    def get_place(self) -> Place:
        return self.place

    def lost(self) -> Place:
        raise LookupError("it has none")

    def counted(self, name: str) -> "Bid":
        """Returns the same object, and counts the call."""
        self.calls.append(name)
        return self

    def above(self, least: float) -> bool:
        if self.amount < 0:
            raise ValueError("no amount")
        return self.price > least

    def anything(self, *given: Any) -> Any:
        return given

    unresolved: ClassVar[Unresolved] = Unresolved()


@dataclass
class UrgentBid(Bid, name="conditions.UrgentBid"):
    until: int = 0

    def get_place(self) -> Place:
        return Place("elsewhere")


@dataclass
class Stranger:
    """No obvent, but with the members that conditions read."""

    price: float

    def get_price(self) -> float:
        return self.price


@dataclass
class Cheaper:
    """No Bid, but with its fields, and with another method of that name."""

    company: str
    price: float

    def get_price(self) -> float:
        return 0.0


@dataclass
class Dearer:
    """No Place, but with its fields."""

    name: str
    fee: float = 0.5

    def fee_of(self, amount: float) -> float:
        return 10.0


BID = Bid("Telco Mobiles", 80.0, 10)
