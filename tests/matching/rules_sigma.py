"""Sigma rules, as they were translated into conjunctions, as filter sets; Windows events.

In these rules text compares without case, an operator with `not` before it also holds where the
attribute is absent, and `null` asks for absence. A number in a rule and the same number as text
in an event are equal, and the other way round: what writes the events is not strict about it.
Constraints of one attribute are joined by intersection.

Rules that look for words anywhere in an event name no attribute. No filter says that; their
conjunctions are left out.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import contrada as ct

Constraint = tuple[str, str, Any]
"""An attribute, an operator, a constant."""

Pair = tuple[str, int, str]
"""A file of events, the place of an event in it, a rule that matches it."""

_ON_TEXT: Final = {"prefix": ct.prefix, "suffix": ct.suffix, "contains": ct.contains}
_NOT: Final = "not "


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its product, the file it came from, and what it matches."""

    id: str
    product: str | None
    path: str
    matches: ct.FilterSet
    conjunctions: int


def rules(path: Path) -> Iterator[Rule]:
    """All rules of a file, one JSON object a line."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            given = json.loads(line)
            members = [
                conjunction(each)
                for each in given["any_of"]
                if all(attribute for attribute, _, _ in each)
            ]
            yield Rule(
                given["id"],
                given["logsource"].get("product"),
                given["path"],
                ct.FilterSet(members),
                len(given["any_of"]),
            )


def conjunction(constraints: list[Constraint]) -> ct.Filter:
    """The filter of one conjunction."""
    sets: dict[str, ct.ValueSet] = {}
    for attribute, operator, constant in constraints:
        accepted = value_set(operator, type(constant).__name__, constant)
        known = sets.get(attribute)
        sets[attribute] = accepted if known is None else known & accepted
    return ct.Filter(sets)


@cache
def value_set(operator: str, kind: str, constant: Any) -> ct.ValueSet:
    """What an operator accepts. `kind` keeps True and 1 apart, which Python calls equal."""
    if operator.startswith(_NOT):
        return ~value_set(operator.removeprefix(_NOT), kind, constant)
    if operator == "null":
        return ct.absent() | ct.eq(None)
    if operator == "exists":
        return ct.exists() if constant else ct.absent()
    if operator == "=":
        return equal(constant)
    return _ON_TEXT[operator](constant, nocase=True)


def equal(constant: str | int) -> ct.ValueSet:
    """Text but for case; and a number or truth value also as the text that shows it."""
    accepted = ct.eq(str(constant), nocase=True)
    if not isinstance(constant, str):
        return accepted | ct.eq(constant)
    return accepted | ct.eq(int(constant)) if constant.isdecimal() else accepted


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a file as attributes.

    A source is also called provider. Names that begin with `@` are the system's, and the rules
    do not ask for them.
    """
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        read = [
            {name: value for name, value in json.loads(line).items() if name[0] != "@"}
            for line in lines
        ]
    for event in read:
        if "SourceName" in event:
            event["Provider_Name"] = event["SourceName"]
    return read


def event_files(folder: Path) -> list[Path]:
    """The files of events in a folder, in order."""
    return sorted(folder.glob("*.jsonl.gz"))


def expected(events_path: Path) -> set[Pair]:
    """The pairs that are known for a file of events, of rules that could be translated."""
    name = events_path.name.removesuffix(".jsonl.gz")
    path = events_path.with_name(f"{name}.expected.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        return {
            (name, int(row["event_line0"]), row["rule_id"])
            for row in csv.DictReader(lines)
            if row["in_sigma_filters"] == "1"
        }
