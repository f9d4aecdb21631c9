"""Other engines that do what the index does, as well as they can.

Databases hold the constraints in an inverted table, a row per constraint. Where every conjunction
has an equality, that leads to it, by an index on values; else the constraints that hold are counted
per conjunction. The engines of rules ask one rule after the other. Each answers with the numbers of
the conjunctions that hold.

Only SQLite is always there; the others are found, or not, by `is_there`.
"""

import importlib
import importlib.util
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bench.matching_workloads import Attributes, Conjunction, Constraint

Row = tuple[int, int, str, str, float | None, float | None, str | None, str | None]
"""Conjunction, how many of its constraints must hold, attribute, kind, and the constants."""

_AFTER_TEXT: Final = "\x7f"
"""After every text of a workload, which are ASCII."""

_TABLES: Final = """
    CREATE TABLE led (key TEXT, conjunction INTEGER, needed INTEGER);
    CREATE TABLE held (conjunction INTEGER, needed INTEGER, attribute TEXT, kind TEXT,
                       low DOUBLE, high DOUBLE, text TEXT, before TEXT);
"""
_INDICES: Final = """
    CREATE INDEX led_key ON led (key);
    CREATE INDEX held_conjunction ON held (conjunction);
    CREATE INDEX held_attribute ON held (attribute, kind, low);
    ANALYZE;
"""
_GIVEN: Final = (
    "CREATE TEMPORARY TABLE given (id INTEGER, attribute TEXT, number DOUBLE, text TEXT, key TEXT)"
)

_HOLDS: Final = """(
    (c.kind = 'number' AND n.number BETWEEN c.low AND c.high)
    OR (c.kind = 'not' AND n.number <> c.low)
    OR (c.kind = 'text' AND n.text >= c.text AND n.text < c.before)
    OR (c.kind = 'suffix' AND substr(n.text, -length(c.text)) = c.text)
    OR (c.kind = 'contains' AND instr(n.text, c.text) > 0))"""

_BY_EQUALITY: Final = f"""
    SELECT e.id, l.conjunction FROM given e CROSS JOIN led l CROSS JOIN held c CROSS JOIN given n
    WHERE l.key = e.key AND c.conjunction = l.conjunction
    AND n.attribute = c.attribute AND n.id = e.id
    AND {_HOLDS} GROUP BY e.id, l.conjunction, l.needed HAVING count(*) = l.needed
"""
"""SQLite joins in just this order; others take the order that they like."""

_BY_COUNTING: Final = f"""
    SELECT n.id, c.conjunction FROM given n CROSS JOIN held c
    WHERE c.attribute = n.attribute AND {_HOLDS}
    GROUP BY n.id, c.conjunction, c.needed HAVING count(*) = c.needed
"""


def is_there(module: str) -> bool:
    """Whether a peer is installed."""
    return importlib.util.find_spec(module) is not None


def key_of(attribute: str, value: Any) -> str:
    """An attribute and its value as one text."""
    return f"{attribute}={value!r}"


def row_of(number: int, needed: int, constraint: Constraint) -> Row:
    """A constraint as a row of `held`."""
    name, operator, constant = constraint
    if operator == "between":
        return number, needed, name, "number", *constant, None, None
    if operator == "!=":
        return number, needed, name, "not", constant, None, None, None
    if operator in ("suffix", "contains"):
        return number, needed, name, operator, None, None, constant, None
    if isinstance(constant, str):
        ends = {
            "=": (constant, constant + "\0"),
            "<": ("", constant),
            ">": (constant + "\0", _AFTER_TEXT),
            "prefix": (constant, constant + _AFTER_TEXT),
        }
        return number, needed, name, "text", None, None, *ends[operator]
    low = math.nextafter(constant, math.inf) if operator == ">" else constant
    high = math.nextafter(constant, -math.inf) if operator == "<" else constant
    if operator == "<":
        low = -math.inf
    if operator == ">":
        high = math.inf
    return number, needed, name, "number", low, high, None, None


def given_rows(number: int, attributes: Attributes) -> Iterator[tuple[Any, ...]]:
    """A notification as rows of `given`."""
    for name, value in attributes.items():
        is_text = isinstance(value, str)
        own = (None, value) if is_text else (value, None)
        yield (number, name, *own, key_of(name, value))


def tables(
    conjunctions: Iterable[Conjunction], *, by_equality: bool
) -> Iterator[tuple[tuple[str, int, int] | None, list[Row]]]:
    """The rows of `led` and `held` for each conjunction."""
    for number, conjunction in enumerate(conjunctions):
        if not by_equality:
            yield None, [row_of(number, len(conjunction), each) for each in conjunction]
            continue
        first = next(each for each in conjunction if each[1] == "=")
        others = [each for each in conjunction if each is not first]
        led = (key_of(first[0], first[2]), number, len(others))
        yield led, [row_of(number, len(others), each) for each in others]


class Sqlite:
    """An inverted table in memory; asked for one notification at a time."""

    name = "sqlite"

    def __init__(self, conjunctions: Iterable[Conjunction], *, by_equality: bool = True) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        run = self._connection.execute
        self._connection.executescript(_TABLES)
        run(_GIVEN)
        run("BEGIN")
        for led, held in tables(conjunctions, by_equality=by_equality):
            if led is not None:
                run("INSERT INTO led VALUES (?, ?, ?)", led)
            self._connection.executemany("INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?)", held)
        run("COMMIT")
        self._connection.executescript(_INDICES)
        self._query = _BY_EQUALITY if by_equality else _BY_COUNTING

    def match(self, attributes: Attributes) -> list[int]:
        """The numbers of the conjunctions that hold."""
        self._connection.execute("DELETE FROM given")
        self._connection.executemany(
            "INSERT INTO given VALUES (?, ?, ?, ?, ?)", given_rows(0, attributes)
        )
        return [number for _, number in self._connection.execute(self._query)]


class Duckdb:
    """The same in DuckDB on one thread; asked for many notifications at once."""

    name = "duckdb"

    def __init__(self, conjunctions: Iterable[Conjunction], *, by_equality: bool = True) -> None:
        duckdb: Any = importlib.import_module("duckdb")
        self._arrow: Any = importlib.import_module("pyarrow")
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        self._connection.execute(_TABLES)
        both = list(tables(conjunctions, by_equality=by_equality))
        self._insert("led", [led for led, _ in both if led is not None])
        self._insert("held", [row for _, held in both for row in held])
        if by_equality:
            self._connection.execute("CREATE INDEX led_key ON led (key)")
        self._query = _BY_EQUALITY if by_equality else _BY_COUNTING

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._connection.register("rows", self._columns(rows))
            self._connection.execute(f"INSERT INTO {table} SELECT * FROM rows")
            self._connection.unregister("rows")

    def _columns(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        columns = list(zip(*rows, strict=True))
        return self._arrow.table({f"c{i}": self._typed(each) for i, each in enumerate(columns)})

    def _typed(self, column: tuple[Any, ...]) -> Any:
        if any(isinstance(value, float) for value in column):
            column = tuple(None if value is None else float(value) for value in column)
        return self._arrow.array(column)

    def match_batch(self, notifications: Sequence[Attributes]) -> list[tuple[int, int]]:
        """Pairs of a notification's place and a conjunction that holds."""
        rows = [row for i, each in enumerate(notifications) for row in given_rows(i, each)]
        table = self._columns(rows).rename_columns(["id", "attribute", "number", "text", "key"])
        self._connection.register("given", table)
        found: list[tuple[int, int]] = self._connection.execute(self._query).fetchall()
        return found


class ZenEngine:
    """GoRules' engine: a decision table of which every row that holds is collected."""

    name = "zen-engine"

    def __init__(self, conjunctions: Iterable[Conjunction]) -> None:
        zen: Any = importlib.import_module("zen")

        made = list(conjunctions)
        names = sorted({name for each in made for name, _, _ in each})
        rules = [
            {"_id": str(number), "number": str(number)}
            | {name: json.dumps(constant) for name, _, constant in each}
            for number, each in enumerate(made)
        ]
        for rule in rules:
            rule.update({name: rule.get(name, "") for name in names})
        content = {
            "hitPolicy": "collect",
            "inputs": [{"id": name, "name": name, "field": name} for name in names],
            "outputs": [{"id": "number", "name": "number", "field": "number"}],
            "rules": rules,
        }
        nodes = [("in", "inputNode", {}), ("table", "decisionTableNode", content)]
        self._decision = zen.ZenEngine().create_decision(
            json.dumps(
                {
                    "contentType": "application/vnd.gorules.decision",
                    "nodes": [
                        {"id": i, "name": i, "type": kind, "position": {"x": 0, "y": 0}}
                        | ({"content": body} if body else {})
                        for i, kind, body in [*nodes, ("out", "outputNode", {})]
                    ],
                    "edges": [
                        {"id": f"{a}-{b}", "sourceId": a, "targetId": b}
                        for a, b in (("in", "table"), ("table", "out"))
                    ],
                }
            )
        )

    def match(self, attributes: Attributes) -> list[int]:
        """The numbers of the conjunctions that hold."""
        return [each["number"] for each in self._decision.evaluate(attributes)["result"]]


class EventRuler:
    """event-ruler: tests one pattern of Amazon's EventBridge at a time, from JSON."""

    name = "event-ruler"

    def __init__(self, conjunctions: Iterable[Conjunction]) -> None:
        event_ruler: Any = importlib.import_module("event_ruler")
        self._test = event_ruler.test_event_pattern
        self._patterns = [
            json.dumps({name: [value] for name, _, value in each}) for each in conjunctions
        ]

    def match(self, attributes: Attributes) -> list[int]:
        """The numbers of the conjunctions that hold."""
        event = json.dumps(attributes)
        return [i for i, each in enumerate(self._patterns) if self._test(event, each)]
