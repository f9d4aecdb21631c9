"""`TopView`: the tables of `contrada top`, and the choices that a person makes by keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from contrada.cli.table_output import table
from contrada.model.domains.values import datetime_of

TABLES: Final = {
    "broker": (
        *("published/s", "matched/s", "dropped/s", "connections", "links", "subscriptions"),
        "held bytes",
    ),
    "link": ("sent/s", "waiting"),
    "subscription": ("waiting", "dropped/s"),
    "queue": ("unread", "handed", "readers", "dead", "oldest"),
}
"""The headings of each table, after its name."""

CLOSED: Final = ""
"""The key of a terminal that was closed."""

AS_GIVEN: Final = "as given"

ORDERS: Final = (AS_GIVEN, *dict.fromkeys(each for those in TABLES.values() for each in those))
"""The columns by which tables are sorted: each table that has it."""

_HELD: Final = ("connections", "links", "subscriptions", "held_bytes")


class Cell(NamedTuple):
    """The value of a column, by which rows are sorted, and its text."""

    value: float
    text: str


class TopRow(NamedTuple):
    """A row of one of the tables."""

    table: str
    name: str
    cells: tuple[Cell, ...]


@dataclass(slots=True)
class TopView:
    """The choices; `brokers` are the addresses."""

    brokers: Sequence[str]
    order: int = 0
    is_ascending: bool = False
    name: str = ""
    """Part of the names of shown rows, in any case."""
    broker: int = -1
    """The number of the only shown broker; -1 for all."""
    is_paused: bool = False
    is_typing: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Changes a choice by a key; others are ignored."""
        if key == CLOSED:
            self.is_over = True
        elif self.is_typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif key in (" ", "p"):
            self.is_paused = not self.is_paused
        elif key == "s":
            self.order = (self.order + 1) % len(ORDERS)
        elif key == "r":
            self.is_ascending = not self.is_ascending
        elif key == "b":
            self.broker = -1 if self.broker + 1 == len(self.brokers) else self.broker + 1
        elif key == "/":
            self.is_typing = True

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.is_typing = False
        elif key == "\x1b":
            self.is_typing, self.name = False, ""
        elif key in "\x7f\b":
            self.name = self.name[:-1]
        elif key.isprintable():
            self.name += key

    def status(self) -> str:
        """Returns two lines of keys, with the present choices."""
        order = ORDERS[self.order]
        if self.order:
            order += ", ascending" if self.is_ascending else ", descending"
        name = f"{self.name}_" if self.is_typing else self.name or "all"
        broker = "all" if self.broker < 0 else self.brokers[self.broker]
        paused = "PAUSED" if self.is_paused else "pause"
        return (
            f"q quit  p {paused}  s sort: {order}  r reverse\n/ names: {name}  b broker: {broker}"
        )

    def tables(self, pictures: Sequence[Mapping[str, Any]]) -> Group:
        """Returns the tables of the chosen rows: brokers, links, subscriptions, queues."""
        chosen = pictures if self.broker < 0 else pictures[self.broker : self.broker + 1]
        made = {kind: table(kind, right=headings) for kind, headings in TABLES.items()}
        away = table("no picture of", "why")
        for each in chosen:
            if "error" in each:
                away.add_row(each["address"], each["error"])
        rows = [row for each in chosen if "error" not in each for row in _rows(each)]
        for row in self._sorted(rows):
            if self.name.casefold() in row.name.casefold():
                made[row.table].add_row(row.name, *(cell.text for cell in row.cells))
        shown = (made["broker"], away, made["link"], made["subscription"], made["queue"])
        return Group(*(each for each in shown if each.row_count))

    def screen(self, pictures: Sequence[Mapping[str, Any]]) -> RenderableType:
        """Returns the tables below the status, which so stays in a low terminal."""
        return Group(Text(self.status(), style="reverse", no_wrap=True), self.tables(pictures))

    def _sorted(self, rows: list[TopRow]) -> list[TopRow]:
        """Returns rows in the chosen order; those without the column keep theirs."""
        if not self.order:
            return rows
        order = ORDERS[self.order]

        def value(row: TopRow) -> float:
            headings = TABLES[row.table]
            return row.cells[headings.index(order)].value if order in headings else 0.0

        return sorted(rows, key=value, reverse=not self.is_ascending)


def _rows(picture: Mapping[str, Any]) -> Iterator[TopRow]:
    address = picture["address"]
    dropped = picture["dropped_per_s"]
    reasons = ", ".join(f"{rate:,.1f} {reason}" for reason, rate in dropped.items() if rate)
    lost = sum(dropped.values()) if dropped else 0.0
    rates = (_rate(picture[name]) for name in ("published_per_s", "matched_per_s"))
    held = (_count(picture[name]) for name in _HELD)
    yield TopRow("broker", address, (*rates, Cell(lost, reasons or "0.0"), *held))
    for name, waiting in picture["link_waiting"].items():
        sent = picture["link_sent_per_s"][name]
        yield TopRow("link", f"{address} to {name}", (_rate(sent), _count(waiting)))
    for name, waiting in picture["subscription_waiting"].items():
        lost = picture["subscription_dropped_per_s"][name]
        yield TopRow("subscription", f"{address} {name}", (_count(waiting), _rate(lost)))
    for name, unread in (picture["queue_unread"] or {}).items():
        counts = (picture[f"queue_{of}"][name] for of in ("handed", "readers", "dead"))
        oldest_us = picture["queue_oldest_us"][name]
        oldest = f"{datetime_of(oldest_us):%Y-%m-%dT%H:%M:%SZ}" if oldest_us else ""
        numbers = (*map(_count, (unread, *counts)), Cell(oldest_us, oldest))
        yield TopRow("queue", f"{address} {name}", numbers)


def _rate(rate: float) -> Cell:
    return Cell(rate, f"{rate:,.1f}")


def _count(count: int) -> Cell:
    return Cell(count, f"{count:,}")
