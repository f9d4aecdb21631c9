"""Sigma rules and events of Windows from the shared data, and the pairs that are known."""

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import contrada as ct
from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import sigma
from contrada.integrations.dialects.sigma import sigma_refusals
from contrada.integrations.dialects.sigma.windows_events import EventAttributes

Pair = tuple[str, int, str]
"""A file of events, the place of an event in it, a rule that matches it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its product, its file, and its filters."""

    id: str
    product: str | None
    path: str
    matches: ct.FilterSet
    conjunctions: int


def rules(path: Path) -> Iterator[Rule]:
    """The rules of a file, one JSON object a line. One that looks for words matches nothing."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            given = json.loads(line)
            try:
                matches = sigma.prepared_rule(given).filters
            except RefusedRuleError as error:
                if error.reason != sigma_refusals.KEYWORDS:
                    raise
                matches = ct.FilterSet(())
            yield Rule(
                given["id"],
                given["logsource"].get("product"),
                given["path"],
                matches,
                len(given["any_of"]),
            )


def events(path: Path) -> list[EventAttributes]:
    """The events of a file as attributes."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [sigma.attributes_of(json.loads(line)) for line in lines]


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
