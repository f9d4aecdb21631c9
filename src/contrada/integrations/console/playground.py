"""`answer_trial`: what a filter, rule or pattern selects among example records, and why.

    answer_trial(Trial(text="price < 100", records='{"price": 50}'))
    ==>  {"filter": {"text": "price < 100", …}, "records": [{"matches": true, …}], …}

Each answer is that of the functions that brokers use: `parse`, `explain_match`, `covers`, `meets`,
`witness`, `PatternMatcher`, and the readers and writers of dialects. Nothing is published.
"""

import json
from collections.abc import Callable
from itertools import accumulate, islice
from time import monotonic
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contrada.errors import ContradaError, LimitError, ParseError, RefusedRuleError
from contrada.integrations.console.pasted_records import read_records, shown_record
from contrada.integrations.dialects import cloudevents, eventbridge, sql
from contrada.integrations.dialects.sql.sql_writer import KINDS, ColumnKind
from contrada.integrations.files.json_objects import shown_text
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import BadRecord, Record
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.model import Filter, FilterSet, Pattern, parse
from contrada.model.algebra.match_explanation import asked_domains, explain_match
from contrada.model.algebra.relations import covers, meets, witness
from contrada.model.rule import Rule, only_rule
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import Match

TRIAL_RECORDS_MAX: Final = 1_000
"""Records of a trial. Beyond it: the first ones are tried, and the answer says so."""

TRIAL_RESULTS_MAX: Final = 50_000
"""Records times constraints of a trial. Beyond it: the first records are tried, as above."""

TRIAL_EXPLAINED_MAX: Final = 200
"""Records without a match in a trial whose causes are named. Beyond it: the others have none."""

TRIAL_WAIT_S: Final = 2.0
"""Seconds in which the records of a trial are tried. Beyond it: the first records are answered, as
above; a trial of one user must not delay those of the others for long."""

TRIAL_TEXT_CHARACTERS_MAX: Final = 300_000
"""Characters of filters in an answer; a small text can mean many filters with long constants.
Beyond it: they are not shown."""

TRIAL_MATCHES_MAX: Final = 1_000
"""Matches of a pattern in a trial. Beyond it: the first ones are shown, as above."""

Selector: TypeAlias = Filter | FilterSet | Rule | Pattern

_SECOND_US: Final = 1_000_000


class Trial(Struct, forbid_unknown_fields=True):
    """A filter, rule or pattern, another one to compare it with, and a text with records: JSON,
    lines of JSON, CSV with a header, or XML.
    """

    text: str
    dialect: str = ""
    other: str = ""
    other_dialect: str = ""
    records: str = ""


def answer_trial(trial: Trial) -> dict[str, Any]:
    """Returns the answer to a trial as an object of JSON. Errors are members of it, with places.

    Cost: one match for each record, and an explanation for some; a relation is bounded by its work.
    """
    first = _selector_or_error(trial.text, trial.dialect)
    answered: dict[str, Any] = {"filter": _shown(first)}
    if isinstance(first, Selector) and "error" not in answered["filter"]:
        answered["dialects"] = _in_dialects(first)
    if trial.other.strip():
        other = _selector_or_error(trial.other, trial.other_dialect)
        answered["other"] = _shown(other)
        if isinstance(first, Selector) and isinstance(other, Selector):
            answered["relation"] = _relation(first, other)
    if text := trial.records.strip():
        answered |= _try_records(text, first)
    return answered


# --------------------------------------------------------------------------------------- selectors


def _selector_or_error(text: str, dialect: str) -> Selector | ContradaError:
    try:
        if not dialect:
            return parse(text)
        if dialect not in DIALECTS:
            raise RefusedRuleError(dialect, f"expected a dialect: {', '.join(DIALECTS)}", dialect)
        return only_rule(dialect, DIALECTS[dialect].reader()(text))
    except ContradaError as error:
        return error


def _shown(found: Selector | ContradaError) -> dict[str, Any]:
    if isinstance(found, ParseError):
        return {"error": found.what, "line": found.line, "column": found.column}
    if isinstance(found, ContradaError):
        return {"error": str(found)}
    filters = _filters_of(found)  # Those of a pattern are as long as its own text.
    sizes = accumulate(len(str(each)) for each in filters.filters) if filters is not None else ()
    if any(size > TRIAL_TEXT_CHARACTERS_MAX for size in sizes):
        error = LimitError("TRIAL_TEXT_CHARACTERS_MAX", TRIAL_TEXT_CHARACTERS_MAX)
        return {"error": f"it is read, but too long to be shown: {error}"}
    if isinstance(found, Rule):
        shown = {"text": str(found.filters), "name": found.name, "notes": list(found.notes)}
        return shown | ({"residue": found.residue} if found.residue else {})
    return {"text": str(found)} | ({"is_pattern": True} if isinstance(found, Pattern) else {})


def _filters_of(found: Selector) -> FilterSet | None:
    if isinstance(found, Rule):
        return found.filters
    return None if isinstance(found, Pattern) else FilterSet(found)


def _relation(first: Selector, other: Selector) -> dict[str, Any]:
    """Returns how two sets of notifications lie: filters of rules with a residue cover these."""
    f, g = _filters_of(first), _filters_of(other)
    if f is None or g is None:
        return {"error": "a pattern selects sequences: compare its filters"}
    both, only_f, only_g = witness(f, g), witness(f, but_not=g), witness(g, but_not=f)
    examples = {"both": both, "only_first": only_f, "only_other": only_g}
    return {
        "covers": covers(f, g),
        "covered": covers(g, f),
        "meets": meets(f, g),
        "examples": {name: each and shown_text(each) for name, each in examples.items()},
    }


def _in_dialects(of: Selector) -> dict[str, Any]:
    """Returns the filters as conditions of other systems, or the reasons against it."""
    filters = _filters_of(of)
    if filters is None:
        return {}

    def to_sql() -> str:
        clause = sql.where(filters, _columns_of(filters))
        return (
            f"{clause.text}  -- {list(clause.parameters)!r}" if clause.parameters else clause.text
        )

    writers: dict[str, Callable[[], str]] = {
        "sql": to_sql,
        "eventbridge": lambda: json.dumps(eventbridge.pattern_of(filters), ensure_ascii=False),
        "cloudevents": lambda: json.dumps(cloudevents.filters_of(filters), ensure_ascii=False),
    }
    return {name: _written(write) for name, write in writers.items()}


def _written(write: Callable[[], str]) -> dict[str, str]:
    try:
        return {"text": write()}
    except ContradaError as error:
        return {"error": str(error)}


def _columns_of(filters: FilterSet) -> dict[str, ColumnKind]:
    """Returns the kind of each column by the values that the constraints on it accept."""
    columns: dict[str, ColumnKind] = {}
    for each in filters.filters:
        for name, values in each.sets.items():
            known = [KINDS[tag] for tag in asked_domains(values) if tag in KINDS]
            columns.setdefault(name, known[0] if known else "text")
    return columns


# --------------------------------------------------------------------------------------- records


def _try_records(text: str, selector: Selector | ContradaError) -> dict[str, Any]:
    """Returns each record, with whether it matches and why, or the matches of a pattern."""
    filters = None if isinstance(selector, ContradaError) else _filters_of(selector)
    constraints = 1 if filters is None else sum(len(each.sides) for each in filters.filters)
    most = min(TRIAL_RECORDS_MAX, TRIAL_RESULTS_MAX // max(constraints, 1))
    found = list(islice(read_records(text, ReadOptions()), most + 1))
    is_cut, found = len(found) > most, found[:most]
    answered: dict[str, Any] = {"records": [shown_record(each) for each in found]}
    end = monotonic() + TRIAL_WAIT_S
    if isinstance(selector, Pattern):
        answered["matches"], is_late = _match_pattern(selector, found, end)
        is_cut = is_cut or is_late or len(answered["matches"]) == TRIAL_MATCHES_MAX
    elif filters is not None:
        # A rule has its residue, too.
        matches = selector.matches if isinstance(selector, Rule) else filters.matches
        explained = 0
        for number, (row, each) in enumerate(zip(answered["records"], found, strict=True), 1):
            if isinstance(each, Record):
                row["matches"] = matches(each.notification)
                # Similar texts are searched for each cause, some 100 us for long ones.
                if not row["matches"] and explained < TRIAL_EXPLAINED_MAX:
                    explained += 1
                    results = explain_match(filters, each.notification).constraints
                    row["causes"] = [result.cause for result in results if not result.holds]
            if number < len(found) and monotonic() > end:
                del answered["records"][number:]
                is_cut = True
                break
    return answered | {"is_cut": is_cut}


def _match_pattern(
    pattern: Pattern, found: list[Record | BadRecord], end: float
) -> tuple[list[list[int]], bool]:
    """Returns the indices of the records of each match, and whether records are left at the end.

    A record without a time is taken for a second later than the one before it.
    """
    matcher = PatternMatcher[str]()
    matcher.add("", pattern)
    matches: list[Match[str]] = []
    now_us, is_late = 0, False
    for place, each in enumerate(found):
        if isinstance(each, Record):
            envelope = each.notification.envelope
            now_us = now_us + _SECOND_US if envelope.time_us is None else envelope.time_us
            envelope = replace(envelope, id=str(place), time_us=now_us)
            matches += matcher.push(each.notification.with_envelope(envelope))
        is_late = place + 1 < len(found) and monotonic() > end
        if is_late or len(matches) >= TRIAL_MATCHES_MAX:
            break
    matches += matcher.flush()
    shown = matches[:TRIAL_MATCHES_MAX]
    return [[int(one.envelope.id) for one in each.notifications] for each in shown], is_late
