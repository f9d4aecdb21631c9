"""Filters and notifications to measure the matching engine with, all from fixed seeds.

A workload is given twice: as constraints in plain Python, for peers, and as filters. Its constants
are chosen so that a notification has the number of matches that the workload's figure states.
"""

import itertools
import random
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contrada.model import Filter, ValueSet
from contrada.model.algebra import sets

Constraint = tuple[str, str, Any]
"""An attribute, an operator of `OPERATORS`, and its constant."""

Conjunction = Sequence[Constraint]
Attributes = dict[str, Any]

NOTIFICATIONS: Final = 4_000

OPERATORS: Final[dict[str, Callable[[Any], ValueSet]]] = {
    "=": sets.eq,
    "!=": sets.ne,
    "<": sets.lt,
    ">": sets.gt,
    "between": lambda ends: sets.between(*ends),
    "prefix": sets.prefix,
    "suffix": sets.suffix,
    "contains": sets.contains,
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Conjunctions on demand, since a million take much memory; and notifications."""

    size: int
    conjunctions: Callable[[], Iterator[Conjunction]]
    notifications: Sequence[Attributes]

    def filters(self) -> Iterator[Filter]:
        """The conjunctions as filters."""
        return map(filter_of, self.conjunctions())


def filter_of(conjunction: Conjunction) -> Filter:
    """A conjunction as a filter; its attributes are distinct."""
    return Filter({name: OPERATORS[op](constant) for name, op, constant in conjunction})


def _taken(made: Callable[[random.Random], Conjunction], size: int) -> Callable[[], Any]:
    """`size` conjunctions, the same ones whenever they are asked for."""

    def conjunctions() -> Iterator[Conjunction]:
        chance = random.Random(1)
        return (made(chance) for _ in range(size))

    return conjunctions


def _workload(
    size: int,
    conjunction: Callable[[random.Random], Conjunction],
    notification: Callable[[random.Random], Attributes],
) -> Workload:
    chance = random.Random(2)
    notifications = [notification(chance) for _ in range(NOTIFICATIONS)]
    return Workload(size, _taken(conjunction, size), notifications)


class Zipf:
    """Names of which the n-th is chosen as often as 1/n."""

    def __init__(self, count: int) -> None:
        self.names = [f"name{number:03}" for number in range(count)]
        self._weights = list(itertools.accumulate(1 / n for n in range(1, count + 1)))

    def distinct(self, chance: random.Random, count: int) -> list[str]:
        """Some names, each once, the popular ones more often first."""
        found: dict[str, None] = {}
        while len(found) < count:
            found.update(
                dict.fromkeys(chance.choices(self.names, cum_weights=self._weights, k=count))
            )
        return list(found)[:count]


# --- one equality, two ranges ---------------------------------------------------------------------

SHARE_OF_RANGE: Final = 0.44
"""How much of the values a range of `three_constraints` has on average."""


def three_constraints(size: int) -> Workload:
    """An equality and two ranges, names by Zipf's law out of 100; 10 attributes, ~7 matches.

    There are as many values of an attribute as make the answers equal at every size.
    """
    zipf = Zipf(100)
    values = size // 1_000

    def conjunction(chance: random.Random) -> Conjunction:
        exact, *ranged = zipf.distinct(chance, 3)
        made: list[Constraint] = [(exact, "=", chance.randrange(values))]
        for name in ranged:
            width = values * SHARE_OF_RANGE * (0.5 + chance.random())
            low = chance.random() * (values - width)
            made.append((name, "between", (low, low + width)))
        return made

    def notification(chance: random.Random) -> Attributes:
        return {name: chance.randrange(values) for name in zipf.distinct(chance, 10)}

    return _workload(size, conjunction, notification)


# --- four attributes ------------------------------------------------------------------------------

FOUR: Final = ("kind", "source", "region", "owner")


def equalities(size: int) -> Workload:
    """Two equalities on two of four attributes; 1 match."""
    values = max(2, round(size**0.5))

    def conjunction(chance: random.Random) -> Conjunction:
        return [(name, "=", f"v{chance.randrange(values)}") for name in chance.sample(FOUR, 2)]

    def notification(chance: random.Random) -> Attributes:
        return {name: f"v{chance.randrange(values)}" for name in FOUR}

    return _workload(size, conjunction, notification)


FEW: Final = 4


def uneven_equalities(size: int) -> Workload:
    """An equality on an attribute of four values, and one on an attribute of many; 1 match."""
    many = max(1, size // FEW)

    def given(chance: random.Random) -> Attributes:
        return {"kind": f"k{chance.randrange(FEW)}", "owner": f"o{chance.randrange(many)}"}

    def conjunction(chance: random.Random) -> Conjunction:
        return [(name, "=", value) for name, value in given(chance).items()]

    return _workload(size, conjunction, given)


def letters(chance: random.Random, count: int) -> str:
    """Some letters."""
    return "".join(chance.choices(string.ascii_lowercase, k=count))


def with_text(size: int, operator: str, values: int, lengths: range, text_length: int) -> Workload:
    """An equality and an operator on a text of random letters, of four attributes."""

    def conjunction(chance: random.Random) -> Conjunction:
        exact = chance.choice(("kind", "source"))
        constant = letters(chance, chance.choice(lengths))
        return [
            (exact, "=", f"v{chance.randrange(values)}"),
            (chance.choice(("path", "title")), operator, constant),
        ]

    def notification(chance: random.Random) -> Attributes:
        return {name: f"v{chance.randrange(values)}" for name in ("kind", "source")} | {
            name: letters(chance, text_length) for name in ("path", "title")
        }

    return _workload(size, conjunction, notification)


def prefixes(size: int) -> Workload:
    """An equality and a prefix of 2 to 4 letters; 1 match for 100,000."""
    return with_text(size, "prefix", size // 1_950, range(2, 5), 24)


def substrings(size: int) -> Workload:
    """An equality and a substring of 3 to 5 letters of 40; 1 match."""
    return with_text(size, "contains", max(2, size // 1_330), range(3, 6), 40)


KINDS: Final = 20


def three_kinds(size: int) -> Workload:
    """An equality of 20 values, a range of half the values and a prefix of three or four letters.

    Four attributes; of a million filters about one matches.
    """

    def conjunction(chance: random.Random) -> Conjunction:
        low = chance.random() / 2
        return [
            ("kind", "=", f"k{chance.randrange(KINDS)}"),
            ("price", "between", (low, low + 0.5)),
            ("path", "prefix", letters(chance, chance.choice((3, 4)))),
        ]

    def notification(chance: random.Random) -> Attributes:
        given = {"kind": f"k{chance.randrange(KINDS)}", "price": chance.random()}
        return given | {name: letters(chance, 12) for name in ("path", "title")}

    return _workload(size, conjunction, notification)


# --- one equality and a comparison ----------------------------------------------------------------

SYMBOLS: Final = 100
THRESHOLDS: Final = 1_000


def compared(size: int, operator: str) -> Workload:
    """`symbol = …` of 100 and `price` compared with one of 1,000 numbers; 10 attributes."""
    others = [f"name{number}" for number in range(8)]

    def conjunction(chance: random.Random) -> Conjunction:
        symbol = f"S{chance.randrange(SYMBOLS)}"
        return [("symbol", "=", symbol), ("price", operator, chance.randrange(THRESHOLDS))]

    def notification(chance: random.Random) -> Attributes:
        given: Attributes = {name: chance.randrange(1_000) for name in others}
        given["symbol"] = f"S{chance.randrange(SYMBOLS)}"
        given["price"] = chance.randrange(THRESHOLDS)
        return given

    return _workload(size, conjunction, notification)


# --- SIENA's mix ----------------------------------------------------------------------------------

_NUMBER_OPERATORS: Final = ("=", "<", ">")
_TEXT_OPERATORS: Final = ("=", "prefix", "suffix", "contains", "<", ">")


def mixed(size: int) -> Workload:
    """1 to 9 constraints, 60 of 100 on integers, the others on words; names by Zipf's law.

    1 to 19 attributes. About 4 of 1,000 filters match.
    """
    zipf = Zipf(200)
    chance = random.Random(3)
    words = [letters(chance, chance.randint(4, 10)) for _ in range(1_000)]

    def constraint(chance: random.Random, name: str) -> Constraint:
        if chance.random() < 0.6:
            return name, chance.choice(_NUMBER_OPERATORS), chance.randrange(100)
        operator, word = chance.choice(_TEXT_OPERATORS), chance.choice(words)
        part = chance.randint(1, 3)
        if operator == "prefix":
            word = word[:part]
        elif operator == "suffix":
            word = word[-part:]
        elif operator == "contains":
            start = chance.randrange(len(word) - part + 1)
            word = word[start : start + part]
        return name, operator, word

    def conjunction(chance: random.Random) -> Conjunction:
        names = zipf.distinct(chance, chance.randint(1, 9))
        return [constraint(chance, name) for name in names]

    def notification(chance: random.Random) -> Attributes:
        return {
            name: chance.randrange(100) if chance.random() < 0.6 else chance.choice(words)
            for name in zipf.distinct(chance, chance.randint(1, 19))
        }

    return _workload(size, conjunction, notification)


def wide_ranges(size: int) -> Workload:
    """Ten ranges of half the values, on ten of 20 attributes, all present; 1 of 1,024."""
    return ranges(size, 20)


def ranges(size: int, attributes: int) -> Workload:
    """Ten ranges of half the values, on ten of so many attributes, all of which are present."""
    names = [f"name{number}" for number in range(attributes)]

    def conjunction(chance: random.Random) -> Conjunction:
        starts = ((name, chance.random() / 2) for name in chance.sample(names, 10))
        return [(name, "between", (start, start + 0.5)) for name, start in starts]

    def notification(chance: random.Random) -> Attributes:
        return {name: chance.random() for name in names}

    return _workload(size, conjunction, notification)


def rare_ranges(size: int, alone: float = 0.0) -> Workload:
    """A range on an attribute that all have, and one on an attribute that 1 of 50 has.

    A share `alone` of the filters has the first range only.
    """

    def conjunction(chance: random.Random) -> Conjunction:
        names = ("common",) if alone and chance.random() < alone else ("common", "rare")
        starts = ((name, 80 * chance.random()) for name in names)
        return [(name, "between", (start, start + 20)) for name, start in starts]

    def notification(chance: random.Random) -> Attributes:
        names = ("common", "rare") if chance.random() < 0.02 else ("common",)
        return {name: 100 * chance.random() for name in names}

    return _workload(size, conjunction, notification)


def chunks(of: Iterable[Filter], size: int) -> Iterator[list[Filter]]:
    """A stream in lists."""
    stream = iter(of)
    while chunk := list(itertools.islice(stream, size)):
        yield chunk
