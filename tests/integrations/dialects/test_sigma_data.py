"""Sigma rules as they are found in the world, on events of Windows and on events of their own."""

import csv
import gzip
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import contrada as ct
from contrada.errors import RefusedRuleError
from contrada.integrations.dialects import sigma
from contrada.integrations.dialects.sigma import sigma_refusals
from contrada.integrations.dialects.sigma.log_sources import LogSource
from contrada.integrations.dialects.sigma.sigma_items import RuleConditions, SelectionReader
from contrada.integrations.dialects.sigma.sigma_residue import RuleResidue
from contrada.integrations.dialects.sigma.sigma_values import Spelling
from contrada.integrations.dialects.yaml_documents import documents
from contrada.model.algebra.expression import And
from contrada.model.algebra.filter import filter_set
from contrada.model.rule import RefusedRule, Rule, read_or_refuse
from tests.integrations.dialects import sigma_definition

SharedData = Callable[..., Path]
Pair = tuple[str, int, str]
"""A file of events, the place of an event in it, a rule that matches it."""

PAGE: Final = Path(__file__).parents[3].joinpath("docs/dialects.md").read_text("utf-8")
RULES: Final = 3_141
REFUSED: Final = {sigma_refusals.NOT_SEARCHED: 86}
PREPARED_REFUSED: Final = {sigma_refusals.KEYWORDS: 8}
FILTERS_MAX: Final = 6_000
EVENTS: Final = 90_700
PAIRS: Final = 718
PAIRS_PREPARED: Final = 685
PAIRS_NOT_TRIED: Final = 8
"""Pairs of rules with regular expressions or Base64, which the search for pairs left out."""

NOT_TRIED: Final = ("re", "base64", "base64offset", "cidr")
SOURCES_COMPARED: Final = 1_934
EVENTS_SAMPLED: Final = 24
OWN_EVENTS_KNOWN: Final = 123
OWN_EVENTS_UNKNOWN: Final = {
    "589ac73f-8e12-409c-964e-31a2f5775ae2": [True],
    "85de1f22-d189-44e4-8239-dc276b45379b": [True],
    "916eb839-895e-47f8-99ee-3008bf377a3e": [True],
    "9cc85849-3b02-4cb5-b371-3a1ff54f2218": [True],
    "a7f3c891-2e4d-4b6a-9f8c-d5e2a1b04c73": [True],
    "beaa66d6-aa1b-4e3c-80f5-e0145369bfaf": [True],
    "e3c6d245-7b8f-4e2a-c17f-a9d0e5b38f62": [True],
}
"""Rules without recorded matches of their own events, and the results here."""


class Given(NamedTuple):
    """A rule as it is written, and as it was read."""

    document: Any
    read: Rule | RefusedRule

    @property
    def is_for_windows(self) -> bool:
        return bool(self.document["logsource"].get("product") == "windows")

    @property
    def modifiers(self) -> set[str]:
        return {modifier for key in keys(self.document["detection"]) for modifier in key}


def keys(given: Any) -> Iterator[list[str]]:
    """The modifiers of each field."""
    if isinstance(given, list):
        for each in given:
            yield from keys(each)
    elif isinstance(given, dict):
        for key, each in given.items():
            yield key.split("|")[1:]
            yield from keys(each)


def read_rules(path: Path) -> dict[str, Given]:
    """The rules of an archive, as they are written and as they were read."""
    found = {}
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".yml") else None
            if file is not None:
                [document] = documents("sigma", file.read().decode())
                assert isinstance(document, dict)
                read = read_or_refuse("", partial(sigma.read, document))
                found[str(document["id"])] = Given(document, read)
    return found


@pytest.fixture(scope="module")
def rules(shared_data: SharedData) -> dict[str, Given]:
    return read_rules(shared_data("sigma", "sigma_rules_raw.tar.xz"))


@pytest.fixture(scope="module")
def prepared(shared_data: SharedData) -> dict[str, dict[str, Any]]:
    path = shared_data("sigma", "sigma_filters.jsonl.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {given["id"]: given for given in map(json.loads, lines)}


def read_events(folder: Path) -> dict[tuple[str, int], ct.Notification]:
    """The events of all files of a folder, by the file and the place in it."""
    found = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                event = sigma.attributes_of(json.loads(line))
                found[path.name.removesuffix(".jsonl.gz"), number] = ct.Notification(event)
    return found


@pytest.fixture(scope="module")
def events(shared_data: SharedData) -> dict[tuple[str, int], ct.Notification]:
    found = read_events(shared_data("windows_events"))
    assert len(found) == EVENTS
    return found


@pytest.fixture(scope="module")
def pairs(shared_data: SharedData) -> dict[Pair, bool]:
    """The pairs that are known, and whether the rule is among the prepared ones."""
    found = {}
    for path in sorted(shared_data("windows_events").glob("*.expected.csv.gz")):
        name = path.name.removesuffix(".expected.csv.gz")
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                pair = (name, int(row["event_line0"]), row["rule_id"])
                found[pair] = row["in_sigma_filters"] == "1"
    return found


def source_filters(source: Any) -> ct.FilterSet:
    """The filters of the constraints of a log source."""
    reader, conditions = SelectionReader(Spelling({})), RuleConditions((), RuleResidue())
    parts = [conditions.of(reader.read(each, "")) for each in LogSource.of(source).constraints()]
    return filter_set(And(tuple(parts)))


def matched(rules: dict[str, Rule], events: dict[tuple[str, int], ct.Notification]) -> set[Pair]:
    index: ct.Index[str] = ct.Index()
    for key, rule in rules.items():
        index.add(key, rule)
    return {(*place, key) for place, event in events.items() for key in index.match(event)}


def for_windows(rules: dict[str, Given]) -> dict[str, Rule]:
    return {
        key: given.read
        for key, given in rules.items()
        if given.is_for_windows and isinstance(given.read, Rule)
    }


def test_nearly_all_rules_are_read(rules: dict[str, Given]) -> None:
    """If it failed, rules would be refused, or be so many filters that no index holds them."""
    assert len(rules) == RULES
    refused = Counter(g.read.reason for g in rules.values() if isinstance(g.read, RefusedRule))
    assert refused == REFUSED
    assert (
        sum(len(g.read.filters) for g in rules.values() if isinstance(g.read, Rule)) < FILTERS_MAX
    )


def test_the_page_has_the_numbers_of_rules_that_are_read(rules: dict[str, Given]) -> None:
    """The documentation would promise more rules than are read, or fewer."""
    refused = [each.document for each in rules.values() if isinstance(each.read, RefusedRule)]
    for each in refused:
        sigma.read(each, keywords=["Message"])
    read = f"Of {RULES:,} public rules {RULES - len(refused):,} are read, {RULES:,} with keywords"
    assert read in " ".join(PAGE.split())


@pytest.mark.slow
def test_rules_match_the_events_that_are_known(
    rules: dict[str, Given], events: dict[tuple[str, int], ct.Notification], pairs: dict[Pair, bool]
) -> None:
    """Rules from YAML would match other events than in their own tools."""
    found = matched(for_windows(rules), events)
    assert len(pairs) == PAIRS
    assert pairs.keys() - found == set()
    more = found - pairs.keys()
    assert len(more) == PAIRS_NOT_TRIED
    for name, number, key in more:
        assert rules[key].modifiers & {*NOT_TRIED}
        event = dict(events[name, number].attributes)
        assert sigma_definition.holds(rules[key].document["detection"], event)


@pytest.mark.slow
def test_prepared_rules_match_the_events_that_are_known(
    prepared: dict[str, dict[str, Any]],
    events: dict[tuple[str, int], ct.Notification],
    pairs: dict[Pair, bool],
) -> None:
    """Prepared rules would match other events than the originals."""
    read = {}
    refused: Counter[str] = Counter()
    for key, given in prepared.items():
        try:
            read[key] = sigma.prepared_rule(given)
        except RefusedRuleError as error:
            refused[error.reason] += 1
    assert refused == PREPARED_REFUSED
    windows = {
        key: rule
        for key, rule in read.items()
        if prepared[key]["logsource"].get("product") == "windows"
    }
    expected = {pair for pair, is_prepared in pairs.items() if is_prepared}
    assert len(expected) == PAIRS_PREPARED
    assert matched(windows, events) == expected


def test_rules_match_as_they_are_written(
    rules: dict[str, Given], events: dict[tuple[str, int], ct.Notification], pairs: dict[Pair, bool]
) -> None:
    """If it failed, the filters would differ from the rules where the known pairs do not reach."""
    places = sorted({(name, number) for name, number, _ in pairs})
    every = sorted(events)
    sampled = [*places[:: len(places) // EVENTS_SAMPLED], *every[:: len(every) // EVENTS_SAMPLED]]
    asked = {key: source_filters(rules[key].document["logsource"]) for key in rules}
    hits = 0
    for key, rule in for_windows(rules).items():
        for place in sampled:
            expected = asked[key].matches(events[place]) and sigma_definition.holds(
                rules[key].document["detection"], dict(events[place].attributes)
            )
            assert rule.matches(events[place]) is expected
            hits += expected
    assert hits >= EVENTS_SAMPLED


def test_log_sources_are_those_of_the_prepared_rules(
    rules: dict[str, Given], prepared: dict[str, dict[str, Any]]
) -> None:
    """If it failed, the tables of log sources would name other channels or numbers."""
    compared = 0
    for key, given in prepared.items():
        asked = source_filters(rules[key].document["logsource"])
        found = [
            [each for each in conjunction if each[0] in ("Channel", "EventID") and each[1] == "="]
            for conjunction in given["any_of"]
        ]
        if any(name == "Channel" for each in found for name, _, _ in each):
            shortened = {"id": key, "logsource": {}, "any_of": found}
            assert asked.covers(sigma.prepared_rule(shortened).filters)
            compared += 1
    assert compared == SOURCES_COMPARED


def test_rules_match_their_own_events(
    shared_data: SharedData, rules: dict[str, Given], capsys: pytest.CaptureFixture[str]
) -> None:
    """If it failed, rules would miss the events that they were written for."""
    known: Counter[bool] = Counter()
    unknown = {}
    path = shared_data("sigma", "sigma_regression_events.jsonl")
    for line in path.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        rule = rules[given["rule_id"]].read
        if isinstance(rule, RefusedRule):
            assert given["event_matches"] is None
            continue
        notifications = [ct.Notification(sigma.attributes_of(event)) for event in given["events"]]
        found = [rule.matches(each) for each in notifications]
        if given["event_matches"] is None:
            unknown[given["rule_id"]] = found
        else:
            known[found == given["event_matches"]] += 1
    assert known == {True: OWN_EVENTS_KNOWN}
    with capsys.disabled():  # to be seen in `make verify`
        sys.stdout.write("\nSigma rules of whose events no matches are recorded: what is found\n")
        sys.stdout.writelines(f"  {key}  {found}\n" for key, found in sorted(unknown.items()))
    assert unknown == OWN_EVENTS_UNKNOWN
    assert {key for key in unknown if key in PAGE} == {*unknown}
