"""Sigma rules against the specification, and against a direct evaluation."""

import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, InputError, LimitError, RefusedRuleError
from contrada.integrations.dialects import sigma
from contrada.integrations.dialects.sigma import log_sources, sigma_refusals
from contrada.model.rule import RefusedRule, Rule
from tests.integrations.dialects import sigma_definition

ROWS: Final = [
    json.loads(line)
    for line in Path(__file__)
    .parents[2]
    .joinpath("conformance/dialects/sigma.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


def document(condition: Any = "s", source: Any = None, **selections: Any) -> Any:
    detection = {**selections, "condition": condition}
    return {"id": "a rule", "logsource": source or {}, "detection": detection}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["source"]))
def test_rules_are_as_specified(row: dict[str, Any]) -> None:
    """If it failed, rules would match other events than their writers mean."""
    given = document(row.get("condition", "s"), s=row["fields"])
    rule = sigma.read(given, row.get("placeholders", {}))
    assert [e for e in row["matches"] if not rule.matches(ct.Notification(e))] == []
    assert [e for e in row["not"] if rule.matches(ct.Notification(e))] == []


@pytest.mark.parametrize(
    ("selection", "matching", "others"),
    [
        (["a b", 4688], ["xA By", "id 4688"], ["ab", "46"]),
        ({"|all": ["a", "b"]}, ["b a"], ["a", "b"]),
        ({"|re": "^a"}, ["ab"], ["ba"]),
        ([{"f": "x"}, "a"], ["a"], ["b"]),
        ("a*b", ["xaxxby"], ["ba"]),
    ],
)
def test_keywords_are_parts_of_named_attributes(
    selection: Any, matching: list[str], others: list[str]
) -> None:
    """Rules with keywords were refused, though their author knows where messages are."""
    rule = sigma.read(document(s=selection), keywords=["Message", "log.original"])
    negated = sigma.read(document("not s", s=selection), keywords=["Message", "log.original"])
    for name in ("Message", "log.original"):
        for text in (*matching, *others):
            event = ct.Notification({name: text, "other": matching[0]})
            assert rule.matches(event) is (text in matching)
            assert negated.matches(event) is not rule.matches(event)
    with pytest.raises(RefusedRuleError, match=sigma_refusals.KEYWORDS):
        sigma.read(document(s=selection))


MODIFIERS: Final[list[tuple[str, Any]]] = [
    *((each, "abcd") for each in ("all", "base64", "base64offset", "cased", "contains", "neq")),
    *((each, "abcd") for each in ("startswith", "endswith", "wide", "utf16le", "utf16be")),
    *((each, "abcd") for each in ("utf16|base64", "windash", "re")),
    *((f"re|{each}", "abcd") for each in ("i", "ignorecase", "m", "multiline", "s", "dotall")),
    *((each, 1) for each in ("gt", "gte", "lt", "lte")),
    *(("cidr", "10.0.0.0/8"), ("exists", True), ("expand", "%a%"), ("fieldref", "g")),
    *((each, 1) for each in ("minute", "hour", "day", "week", "month", "year")),
]
"""A value for each modifier."""

SPECIFIED: Final = (
    "all startswith endswith contains exists cased neq windash re i m s base64 base64offset"
    " utf16le utf16be utf16 wide lt lte gt gte minute hour day week month year cidr expand fieldref"
)
"""The modifiers of the appendix of the Sigma specification 2.1.0, in its order."""

IN_PYSIGMA: Final = ("ignorecase", "multiline", "dotall")


def test_each_modifier_of_the_specification_has_a_value() -> None:
    """A modifier of the specification would be neither read nor refused with a reason."""
    tried = {name for modifier, _ in MODIFIERS for name in modifier.split("|")}
    assert tried == {*SPECIFIED.split(), *IN_PYSIGMA}


@pytest.mark.parametrize(("modifier", "value"), MODIFIERS)
def test_modifiers_of_the_specification_are_read(modifier: str, value: Any) -> None:
    """A rule with a new modifier would count as one with a misspelled modifier."""
    assert len(sigma.read(document(s={f"f|{modifier}": value}), {"a": ["x"]}).filters)


@pytest.mark.parametrize(
    ("modifier", "numbers", "others"),
    [
        ("minute", [59], [0, 58]),
        ("hour", [22], [0, 23]),
        ("day", [3], [2, 4]),
        ("week", [53], [52, 54, 1]),
        ("month", [1], [0, 2]),
        ("year", [2027], [2026]),
        ("hour|gte", [21, 22], [23]),
        ("hour|lt", [23], [22]),
    ],
)
def test_parts_of_times_are_those_in_utc(
    modifier: str, numbers: list[int], others: list[int]
) -> None:
    """A rule for the night would match by the zone of the sensor, or texts of any form."""
    time = datetime.fromisoformat("2027-01-03T23:59:07+01:00")
    for number in (*numbers, *others):
        rule = sigma.read(document(s={f"f|{modifier}": number}))
        assert rule.matches({"f": time}) is (number in numbers)
        assert not rule.matches({"f": time.isoformat()})
        assert not rule.matches({})


def test_filters_cover_comparisons_narrowly() -> None:
    """A broker would forward all events to a rule with a comparison of two fields."""
    rule = sigma.read(document(s={"f|fieldref": "g", "f|contains": "x", "h": 1}))
    present, part = ct.Filter("f any but (null) and g any but (null)"), {"f": "ax", "h": 1}
    assert present.covers(rule.filters)
    assert not rule.filters.matches({**part, "f": "a", "g": 1})
    assert rule.filters.matches({**part, "g": "other"})
    assert not rule.matches({**part, "g": "other"})
    assert rule.residue == "f|fieldref: g"
    either = sigma.read(document("s or t", s={"f|fieldref": "g"}, t={"h": 1}))
    assert either.matches({"h": 1})
    assert not either.filters.matches({"f": 1})


def test_all_comparisons_of_a_rule_are_bounded_together() -> None:
    """A rule with many comparisons would hold a broker for seconds at each wide event."""
    rule = sigma.read(document("1 of s*", s1={"f|fieldref": "g"}, s2={"g|fieldref": "f"}))
    values = [f"v{number}" for number in range(71)]
    assert rule.matches({"f": values, "g": ["v1"]})
    assert not rule.matches({"f": values, "g": values})  # 5,041 pairs of each
    itself = sigma.read(document(s={"f|fieldref": "f"}))
    assert itself.matches({"f": values})
    assert not itself.matches({"f": [f"v{number}" for number in range(101)]})


# --- direct evaluation --------------------------------------------------------------------------

LETTERS: Final = "aAbé1-/*?\\. –"
TEXTS = st.text(LETTERS, max_size=5)
NUMBERS = st.sampled_from((0, 1, -1, 11, 1.5, 2.0, 2**53 + 1))
PLAIN = st.one_of(TEXTS, TEXTS, NUMBERS, st.booleans(), st.none())
ON_TEXT = st.lists(
    st.sampled_from(
        ("contains", "startswith", "endswith", "windash", "cased", "wide", "base64", "base64offset")
    ),
    max_size=3,
    unique=True,
)
ON_FIELD = st.lists(
    st.sampled_from(("contains", "startswith", "endswith", "cased")), max_size=2, unique=True
)
PARTS: Final = ("minute", "hour", "day", "week", "month", "year")
ORDER = st.lists(st.sampled_from(("lt", "lte", "gt", "gte")), max_size=1)
NETWORKS: Final = ("1.0.0.0/8", "1.1.1.0/24", "1::/16")
REGEXES: Final = ("a", "^a", "[ab]+1", "(a|b)b", "a.?b", r"\.", "b{2}", r"\\", "^$")


@st.composite
def items(draw: st.DrawFn) -> tuple[str, Any]:
    """A field with modifiers, and its values."""
    kind = draw(
        st.sampled_from(
            ("text", "text", "text", "plain", "re", "cidr", "order", "exists", "field", "part")
        )
    )
    several = draw(st.booleans())
    values: st.SearchStrategy[Any] = {
        "text": TEXTS,
        "plain": PLAIN,
        "re": st.sampled_from(REGEXES),
        "cidr": st.sampled_from(NETWORKS),
        "order": NUMBERS,
        "exists": st.booleans(),
        "field": st.sampled_from("fg"),
        "part": st.integers(0, 31) | st.just(2026),
    }[kind]
    modifiers = {
        "text": draw(ON_TEXT),
        "plain": [],
        "re": ["re", *draw(st.lists(st.sampled_from("ims"), unique=True))],
        "cidr": ["cidr"],
        "order": [draw(st.sampled_from(("lt", "lte", "gt", "gte")))],
        "exists": ["exists"],
        "field": ["fieldref", *draw(ON_FIELD)],
        "part": [draw(st.sampled_from(PARTS)), *draw(ORDER)],
    }[kind]
    if several and draw(st.booleans()):
        modifiers.append("all")
    if draw(st.booleans()):
        modifiers.append("neq")
    given = draw(st.lists(values, min_size=1, max_size=3) if several else values)
    return "|".join([draw(st.sampled_from("fg")), *modifiers]), given


MAPS = st.lists(items(), min_size=1, max_size=2).map(dict)
SELECTIONS = MAPS | st.lists(MAPS, min_size=1, max_size=2)
NAMES: Final = ("s1", "s2", "filter_a", "_hidden")
CONDITIONS = st.recursive(
    st.sampled_from(
        (*NAMES, "1 of s*", "all of s*", "1 of them", "all of them", "any of *_a", "1 of *")
    ),
    lambda parts: st.one_of(
        parts.map("not {}".format),
        parts.map("({})".format),
        st.tuples(parts, st.sampled_from(("and", "or")), parts).map(" ".join),
    ),
    max_leaves=4,
)
EVENTS = st.dictionaries(
    st.sampled_from("fg"),
    st.one_of(
        TEXTS,
        PLAIN,
        st.sampled_from(
            ("1.1.1.1", "1.2.3.4", "1:2::", "a\x001\x00", "true", "1.5", "2.0", "YQ==")
        ),
        st.integers(1_767_225_600, 1_800_000_000).map(partial(datetime.fromtimestamp, tz=UTC)),
    ),
)


@given(
    st.fixed_dictionaries(dict.fromkeys(NAMES, SELECTIONS)),
    CONDITIONS | st.lists(CONDITIONS, min_size=1, max_size=2),
    st.lists(EVENTS, min_size=1, max_size=12),
)
def test_rules_match_the_right_events(
    selections: dict[str, Any], condition: Any, events: list[dict[str, Any]]
) -> None:
    """If it failed, a filter set would match other events than its rule."""
    given = document(condition, **selections)
    try:
        rule = sigma.read(given)
    except RefusedRuleError as error:
        assume(error.reason not in (sigma_refusals.VALUE, sigma_refusals.MODIFIERS))
        raise
    for event in events:
        expected = sigma_definition.holds(given["detection"], event)
        assert rule.matches(ct.Notification(event)) is expected


@given(MAPS, st.lists(EVENTS, min_size=1, max_size=8))
def test_one_selection_matches_the_right_events(
    selection: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    """If it failed, a modifier would mean something else than it should."""
    given = document(s=selection)
    try:
        rule = sigma.read(given)
    except RefusedRuleError as error:
        assume(error.reason not in (sigma_refusals.VALUE, sigma_refusals.MODIFIERS))
        raise
    for event in events:
        expected = sigma_definition.holds(given["detection"], event)
        assert rule.matches(ct.Notification(event)) is expected


@given(
    st.text(st.characters(codec="utf-8"), min_size=3, max_size=8),
    st.binary(max_size=7),
    st.binary(max_size=7),
    st.sampled_from((("", "utf-8"), ("|wide", "utf-16-le"), ("|utf16be", "utf-16-be"))),
)
def test_base64_is_found_wherever_it_begins(
    text: str, before: bytes, behind: bytes, encoding: tuple[str, str]
) -> None:
    """If it failed, an encoded text would be missed at two of three places."""
    modifier, codec = encoding
    written = re.sub(r"([\\*?])", r"\\\1", text)
    rule = sigma.read(document(s={f"f{modifier}|base64offset|contains|cased": written}))
    encoded = b64encode(before + text.encode(codec) + behind).decode()
    assert rule.matches(ct.Notification({"f": encoded}))
    other = b64encode(before).decode()
    assert rule.matches(ct.Notification({"f": other})) is False


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, SELECTIONS)), CONDITIONS)
def test_yaml_has_the_same_meaning(selections: dict[str, Any], condition: str) -> None:
    """If it failed, a rule in a file would be another one than the same rule in a program."""
    given = document(condition, **selections)
    [found] = sigma.read_rules(yaml.safe_dump(given, allow_unicode=True, sort_keys=False))
    expected: Rule | RefusedRule
    try:
        expected = sigma.read(given)
    except ContradaError as error:
        expected = RefusedRule("a rule", error)
    assert type(found) is type(expected)
    assert shown(found) == shown(expected)


def shown(rule: Rule | RefusedRule) -> str:
    return str(rule.filters if isinstance(rule, Rule) else rule.error)


# --- conditions, log sources, names -------------------------------------------------------------


def test_words_of_conditions_are_known_in_any_case() -> None:
    """If it failed, conditions in capitals would be refused, or names be taken for words."""
    given = document("NOT s AND (Android Or 1 OF all*)", s={"a": 1}, Android={"b": 1}, all={"c": 1})
    rule = sigma.read(given)
    assert rule.matches(ct.Notification({"b": 1}))
    assert rule.matches(ct.Notification({"c": 1}))
    assert not rule.matches(ct.Notification({"a": 1, "b": 1}))
    assert sigma.read(document("all", all={"c": 1})).matches(ct.Notification({"c": 1}))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("them", ["a", "ab", "aba", "ba"]),
        ("a*", ["a", "ab", "aba"]),
        ("a*a", ["aba"]),
        ("*b*", ["ab", "aba", "ba"]),
        ("*b*a", ["aba", "ba"]),
        ("a**b", ["ab"]),
        ("ab", ["ab"]),
        ("A*", []),
    ],
)
def test_patterns_mean_names(pattern: str, names: list[str]) -> None:
    """If it failed, a condition would ask for selections that its pattern does not fit."""
    given = document(f"1 of {pattern}", **{name: {name: 1} for name in ("a", "ab", "aba", "ba")})
    if names:
        [*filters] = sigma.read(given).filters
        assert sorted(name for each in filters for name in each.sets) == names
    else:
        with pytest.raises(RefusedRuleError):
            sigma.read(given)


@pytest.mark.parametrize(
    ("source", "event", "matches"),
    [
        ({"category": "process_creation"}, (1, "Microsoft-Windows-Sysmon/Operational"), True),
        ({"category": "process_creation"}, ("1", "microsoft-windows-sysmon/operational"), True),
        ({"category": "process_creation"}, (1, "Security"), False),
        ({"category": "process_creation"}, (2, "Microsoft-Windows-Sysmon/Operational"), False),
        ({"category": "ps_script"}, (4104, "PowerShellCore/Operational"), True),
        ({"service": "security"}, (4624, "Security"), True),
        ({"service": "security"}, (4624, "System"), False),
        ({"category": "dns_query", "service": "security"}, (22, "Security"), False),
        ({"category": "unheard of"}, (1, "x"), True),
        ({"category": ["x"]}, (1, "x"), True),
    ],
)
def test_log_sources_of_windows_ask_for_channel_and_number(
    source: dict[str, Any], event: tuple[Any, str], matches: bool
) -> None:
    """If it failed, a rule would match events of other sources, or miss its own."""
    rule = sigma.read(document(source={"product": "windows", **source}, s={"x": "y"}))
    number, channel = event
    found = ct.Notification({"EventID": number, "Channel": channel, "x": "y"})
    assert rule.matches(found) is matches
    elsewhere = sigma.read(document(source={"product": "linux", **source}, s={"x": "y"}))
    assert elsewhere.matches(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"product": "Windows", "category": "Process_Creation"}, None),
        ({"product": "windows", "service": "sysmon", "definition": "any"}, None),
        ({"product": "windows", "category": "file_access"}, "category file_access"),
        ({"product": "windows", "category": "x", "service": "sysmon"}, "category x"),
        ({"product": "windows"}, "product windows"),
        ({"product": "aws", "service": "cloudtrail"}, "product aws, service cloudtrail"),
        ({"category": "process_creation"}, "category process_creation"),
        ({}, "none is named"),
        ({"product": ["windows"]}, "product ['windows']"),
    ],
)
def test_log_sources_that_constrain_nothing_are_noted(
    source: dict[str, Any], found: str | None
) -> None:
    """If it failed, a rule would match events of all sources without a word."""
    rule = sigma.read(document(source=source, s={"x": "y"}))
    assert [(note.reason, note.found) for note in rule.notes] == (
        [] if found is None else [(log_sources.UNKNOWN, found)]
    )
    assert rule.matches(ct.Notification({"x": "y"})) is (found not in {None, "category x"})


def test_the_providers_name_is_found_as_source_name() -> None:
    """If it failed, rules for Windows would miss events that name their provider otherwise."""
    rule = sigma.read(document(source={"product": "windows"}, s={"Provider_Name": "X"}))
    assert rule.matches(ct.Notification({"SourceName": "x"}))
    constraints = [["Provider_Name", "=", "X"]]
    given = {"id": "a", "logsource": {"product": "windows"}, "any_of": [constraints]}
    assert sigma.prepared_rule(given).matches(ct.Notification({"SourceName": "x"}))


def test_events_of_windows_become_flat() -> None:
    """If it failed, rules would not find the fields of events."""
    event = {
        "Event": {
            "#attributes": {"xmlns": "x"},
            "System": {
                "Provider": {"#attributes": {"Name": "P", "Guid": None}},
                "EventID": {"#attributes": {"Qualifiers": 7}, "#text": 104},
                "Security": None,
                "Channel": "System",
            },
            "EventData": {"Data": {"#text": ["a", "b"]}, "Image": "i", "Empty": None},
            "UserData": {"Cleared": {"#attributes": {"xmlns": "x"}, "User": "u", "Channel": "C"}},
        }
    }
    assert sigma.attributes_of(event) == {
        "Provider_Name": "P",
        "SourceName": "P",
        "EventID": 104,
        "EventID_Qualifiers": 7,
        "Channel": "System",
        "Data": ["a", "b"],
        "Image": "i",
        "User": "u",
        "UserData_Channel": "C",
    }
    nested = {"A": {"#attributes": {"of": "p", "xmlns": "x"}, "B": [{"c": 1}, {"#text": "t"}]}}
    assert sigma.attributes_of({"System": {}, "UserData": {"X": nested}}) == {
        "A_of": "p",
        "A_B_c": 1,
        "A_B": "t",
    }
    flat = {"@timestamp": "t", "@id": 5, "SourceName": "P", "x": None, "EventID": 1}
    assert sigma.attributes_of(flat) == {
        "@timestamp": "t",
        "SourceName": "P",
        "Provider_Name": "P",
        "EventID": 1,
    }


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"a": {"b": {"c": 1}}}, "a"),
        ({"Event": "login"}, "Event"),
        ({"Event": None}, "Event"),
        ({"System": 3}, "System"),
        ({"System": {"Provider": {"#attributes": "x"}}}, "Provider"),
        ({"System": {}, "EventData": "x"}, "EventData"),
        ({"System": {}, "UserData": {"a": {1: 2}}}, "a"),
        ({1: 2}, "event"),
        ("login", "event"),
    ],
)
def test_an_invalid_event_is_an_error_with_its_place(event: Any, place: str) -> None:
    """A stream of events would end with an error that nobody expects."""
    with pytest.raises(InputError, match="expected a ") as error:
        sigma.attributes_of(event)
    assert error.value.source == place


@pytest.mark.slow
@pytest.mark.parametrize(("fields", "most"), [(2, 13), (3, 8)])
def test_exceptions_with_fields_of_their_own_multiply(fields: int, most: int) -> None:
    """The documentation would promise a refused rule, or the other way round."""

    def rule(exceptions: int) -> Any:
        selections = {
            f"filter_{n}": {f"f{field}_{n}": n for field in range(fields)}
            for n in range(exceptions)
        }
        return document("s and not 1 of filter_*", s={"x": 1}, **selections)

    assert len(sigma.read(rule(most)).filters) == fields**most
    with pytest.raises(LimitError):
        sigma.read(rule(most + 1))


def test_a_rule_keeps_its_description() -> None:
    """A match would lack the author, whose name the rule's licence requires."""
    text = """
title: Odd logon
author: [Ann, Bob]
level: high
tags: [attack.t1078, 5]
references: [x]
detection: {s: {f: 1}, condition: s}
"""
    about = {
        "title": "Odd logon",
        "author": ["Ann", "Bob"],
        "level": "high",
        "tags": ["attack.t1078", "5"],
    }
    assert sigma.read(text).about == about
    prepared = {"id": "1", "any_of": [[["f", "=", 1]]], "author": "Ann", "tags": None}
    [rule] = sigma.read_prepared(json.dumps(prepared))
    assert isinstance(rule, Rule)
    assert rule.about == {"author": "Ann"}


def test_a_text_with_several_rules_is_not_one() -> None:
    """One of them would be taken, and the others lost."""
    text = "detection: {s: {f: 1}, condition: s}\n"
    for several in (text + "---\n" + text, "", text + "---\n!x y"):
        with pytest.raises(RefusedRuleError):
            sigma.read(several)


def test_the_other_rules_of_a_file_stay() -> None:
    """One rule with unreadable YAML would lose all rules behind it."""
    text = "title: {}\ndetection: {{a: {{f: {}}}, condition: a}}\n"
    file = "---\n".join(text.format(n, f) for n, f in (("x", "1" * 5_000), ("y", 1), ("z", "!b c")))
    first, second, third = sigma.read_rules(file)
    assert isinstance(first, RefusedRule)
    assert isinstance(second, Rule)
    assert isinstance(third, RefusedRule)


# --- prepared rules -----------------------------------------------------------------------------

CONSTRAINTS = st.tuples(
    st.sampled_from("fg"),
    st.one_of(
        st.tuples(st.just("="), TEXTS | NUMBERS | st.booleans()),
        st.tuples(st.sampled_from(("prefix", "suffix", "contains")), st.text(LETTERS, min_size=1)),
        st.tuples(st.just("exists"), st.booleans()),
        st.just(("null", None)),
    ),
    st.sampled_from(("", "not ")),
)
IN_YAML: Final = {"=": "", "prefix": "|startswith", "suffix": "|endswith", "contains": "|contains"}


@given(
    st.lists(st.lists(CONSTRAINTS, min_size=1, max_size=3), max_size=3),
    st.lists(EVENTS, min_size=1, max_size=8),
)
def test_prepared_rules_match_the_right_events(
    alternatives: list[list[Any]], events: list[dict[str, Any]]
) -> None:
    """Prepared rules would match other events."""
    any_of = [
        [[field, negation + operator, constant] for field, (operator, constant), negation in each]
        for each in alternatives
    ]
    [rule] = sigma.read_prepared(json.dumps({"id": "a", "any_of": any_of}))
    assert isinstance(rule, Rule)
    for event in events:
        expected = any(all(constraint_holds(c, event) for c in each) for each in alternatives)
        assert rule.matches(ct.Notification(event)) is expected


def constraint_holds(constraint: Any, event: dict[str, Any]) -> bool:
    field, (operator, constant), negation = constraint
    key = field + IN_YAML.get(operator, "|exists" if operator == "exists" else "")
    if isinstance(constant, str):
        constant = re.sub(r"([\\*?])", r"\\\1", constant)
    return sigma_definition.field_holds(key, constant, event) is not bool(negation)


# --- refusals -----------------------------------------------------------------------------------

REFUSED: Final = [
    (None, sigma_refusals.NO_RULE),
    ("text", sigma_refusals.NO_RULE),
    ({"title": "x"}, sigma_refusals.NO_RULE),
    (
        {"detection": {"condition": "s", "s": {"a": 1}}, "logsource": "windows"},
        sigma_refusals.NO_RULE,
    ),
    ({"correlation": {"type": "event_count"}}, sigma_refusals.CORRELATED),
    (document(None, s={"f": 1}), sigma_refusals.NO_CONDITION),
    (document([], s={"f": 1}), sigma_refusals.NO_CONDITION),
    (document("", s={"f": 1}), sigma_refusals.CONDITION),
    (document("s and", s={"f": 1}), sigma_refusals.CONDITION),
    (document("(s", s={"f": 1}), sigma_refusals.CONDITION),
    (document("2 of s*", s={"f": 1}), sigma_refusals.CONDITION),
    (document("s s", s={"f": 1}), sigma_refusals.CONDITION),
    (document("s | count() > 5", s={"f": 1}), sigma_refusals.AGGREGATION),
    (document(s={"f": 1}, timeframe="5m"), sigma_refusals.AGGREGATION),
    (document("t", s={"f": 1}), sigma_refusals.NO_SELECTION),
    (document("1 of t*", s={"f": 1}), sigma_refusals.NO_SELECTION),
    (document("1 of them", _s={"f": 1}), sigma_refusals.NO_SELECTION),
    (document("condition", s={"f": 1}), sigma_refusals.NO_SELECTION),
    (document(s={}), sigma_refusals.EMPTY_SELECTION),
    (document(s=[]), sigma_refusals.EMPTY_SELECTION),
    (document(s={"f": []}), sigma_refusals.EMPTY_SELECTION),
    (document(s=["word"]), sigma_refusals.NOT_SEARCHED),
    (document(s="word"), sigma_refusals.NOT_SEARCHED),
    (document(s=[{"f": 1}, "word"]), sigma_refusals.NOT_SEARCHED),
    (document(s={"|all": ["word"]}), sigma_refusals.NOT_SEARCHED),
    (document(s={"f|fieldref": "g*"}), sigma_refusals.VALUE),
    (document(s={"f|fieldref": "@id"}), sigma_refusals.NAME),
    (document(s={"f|fieldref|base64": "g"}), sigma_refusals.MODIFIERS),
    (document(s={"@id": 1}), sigma_refusals.NAME),
    (document(s={"f" * 300: 1}), sigma_refusals.NAME),
    (document(s={1: 1}), sigma_refusals.NAME),
    (document(s={"f|unheard": "x"}), sigma_refusals.MODIFIER),
    *(
        (document(s={f"f|{each}": "1"}), sigma_refusals.VALUE)
        for each in ("minute", "hour", "day", "week", "month", "year")
    ),
    (document(s={"f|hour|contains": 1}), sigma_refusals.MODIFIERS),
    (document(s={"f|gte|hour": 1}), sigma_refusals.MODIFIERS),
    (document(s={"f|contains|re": "x"}), sigma_refusals.MODIFIERS),
    ({"detection": {1: {"f": 1}, "1": {"f": 2}, "condition": "1"}}, sigma_refusals.SAME_SELECTION),
    (document(s={"f|re|contains": "x"}), sigma_refusals.MODIFIERS),
    (document(s={"f|i": "x"}), sigma_refusals.MODIFIERS),
    (document(s={"f|cidr|contains": "10.0.0.0/8"}), sigma_refusals.MODIFIERS),
    (document(s={"f" + "|base64" * 100: "x"}), sigma_refusals.MODIFIERS),
    (document(s={"f|contains": 1}), sigma_refusals.VALUE),
    (document(s={"f|contains": None}), sigma_refusals.VALUE),
    (document(s={"f|lt": "1"}), sigma_refusals.VALUE),
    (document(s={"f|lt": True}), sigma_refusals.VALUE),
    (document(s={"f|lt": float("nan")}), sigma_refusals.VALUE),
    (document(s={"f": 2**63}), sigma_refusals.VALUE),
    (document(s={"f": {"g": 1}}), sigma_refusals.VALUE),
    (document(s={"f": [[1]]}), sigma_refusals.VALUE),
    (document(s={"f": "\ud800"}), sigma_refusals.VALUE),
    (document(s={"f|exists": "yes"}), sigma_refusals.VALUE),
    (document(s={"f|contains|base64": "x"}), sigma_refusals.VALUE),
    (document(s={"f|base64offset|contains": "a"}), sigma_refusals.VALUE),
    (document(s={"f|wide": "é"}), sigma_refusals.VALUE),
    (document(s={"f|re": "(?=a)b"}), sigma_refusals.PATTERN),
    (document(s={"f|re": r"(a)\1"}), sigma_refusals.PATTERN),
    (document(s={"f|re": "("}), sigma_refusals.PATTERN),
    (document(s={"f|re": "(a{40}){40}"}), sigma_refusals.PATTERN),
    (document(s={"f": "?*a" * 10_000}), sigma_refusals.PATTERN),
    (document(s={"f|contains": "?*a" * 10_000}), sigma_refusals.PATTERN),
    (document(s={"f|cidr": "10.0.0.0/99"}), sigma_refusals.PATTERN),
    (document(s={"f|expand": "%x%"}), sigma_refusals.PLACEHOLDER),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED, ids=str)
def test_unreadable_rules_are_refused(given: Any, reason: str) -> None:
    """If it failed, a rule would be changed in silence, or end the reading of its file."""
    with pytest.raises(RefusedRuleError) as refused:
        sigma.read(given)
    assert refused.value.reason == reason
    assert refused.value.dialect == "sigma"
    assert len(str(refused.value)) < 400


def test_an_unused_selection_may_be_anything() -> None:
    """If it failed, rules would be refused for parts that their conditions do not name."""
    assert sigma.read(document(s={"f": 1}, t=["word"])).matches(ct.Notification({"f": 1}))


def test_a_file_gives_its_rules_and_its_refusals_in_order() -> None:
    """If it failed, one bad rule would hide the others of its file."""
    good = "detection: {s: {f: 1}, condition: s}"
    text = f"id: a\n{good}\n---\ntitle: b\n---\n---\nid: c\n{good}\n---\n[\n---\n{good}"
    found = list(sigma.read_rules(text))
    assert [(type(each).__name__, each.name) for each in found] == [
        ("Rule", "a"),
        ("RefusedRule", "b"),
        ("Rule", "c"),
        ("RefusedRule", ""),
    ]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '"x"', "[" * 100_000, '{"id": "a"}', '{"id": "a", "any_of": [[["f", "="]]]}']
    + [
        json.dumps({"id": "a", "any_of": [[constraint]]})
        for constraint in (
            ["", "=", "word"],
            ["f", "~", "x"],
            ["f", "prefix", 1],
            ["f", "=", "\ud800"],
            ["f", "=", 2**64],
            ["f" * 300, "=", 1],
            [["f"], "=", 1],
            ["f", ["="], 1],
            ["f", None, 1],
            ["f", "not " * 5_000 + "=", 1],
            [None, "=", 1],
            5,
            ["f", "exists", 1],
            ["f", "=", None],
            ["f", "=", ["x"]],
        )
    ],
    ids=lambda line: line[:40],
)
def test_prepared_rules_that_cannot_be_read_are_refused(line: str) -> None:
    """If it failed, one bad line would end the reading of its file."""
    good = json.dumps({"id": "b", "any_of": [[["f", "=", "x"]]]})
    found = list(sigma.read_prepared(f"{line}\n{good}"))
    assert [type(each) for each in found] == [RefusedRule, Rule]


@pytest.mark.parametrize(
    ("any_of", "limit"),
    [
        ([[["f", "=", 1], ["g", "=", 1]]] * 10_001, "CONJUNCTIONS_MAX"),
        ([[["f", "not =", f"x{n}"] for n in range(100_001)]], "PREPARED_CONSTRAINTS_MAX"),
    ],
    ids=("conjunctions", "constraints"),
)
def test_prepared_rules_are_bounded(any_of: Any, limit: str) -> None:
    """If it failed, one line could fill the memory."""
    with pytest.raises(LimitError) as refused:
        sigma.prepared_rule({"id": "a", "any_of": any_of})
    assert refused.value.limit == limit


MANY: Final = 400
EXCEPTIONS: Final = {f"t{n}": {"f": f"{n}", "g|contains": f"{n}"} for n in range(MANY)}


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (document("(s or " * MANY + "s" + ")" * MANY, s={"f": 1}), "SIGMA_PARENTHESES_MAX"),
        (document("s or " * 10 * MANY + "s", s={"f": 1}), "SIGMA_CONDITION_CHARACTERS_MAX"),
        (document(["s or s"] * 10 * MANY, s={"f": 1}), "SIGMA_CONDITION_CHARACTERS_MAX"),
        (
            document(
                " or ".join(f"1 of *{n}*" for n in range(MANY)),
                **{f"s{n}": {"f": 1} for n in range(2 * MANY)},
            ),
            "NAMES_LOOKED_AT_MAX",
        ),
        (document(s={"f|windash": " -a" * 50}), "SPELLED_BYTES_MAX"),
        (document(s={"f|windash": [" -a" * 5] * MANY}), "SPELLED_BYTES_MAX"),
        (document(s={"f|windash": " -a" * 4 + "x" * 10 * MANY}), "SPELLED_BYTES_MAX"),
        (document(s={"f": ["x" * 10 * MANY] * MANY}), "VALUES_CHARACTERS_MAX"),
        (document(s={"f|re": [f"x{n}.*y" for n in range(30 * MANY)]}), "EXPRESSIONS_SIZE_MAX"),
        (document(s={"f|re": [f"x{n}.{{{MANY}}}y" for n in range(MANY)]}), "EXPRESSIONS_SIZE_MAX"),
        (
            document(
                "(" + ") and (".join(f"a{n} or b{n}" for n in range(60)) + ")",
                **{f"{side}{n}": {f"{side}{n}": 1} for n in range(60) for side in "ab"},
            ),
            "CONJUNCTIONS_MAX",
        ),
    ],
    ids=(
        "nested",
        "long",
        "several",
        "names",
        "dashes",
        "values with dashes",
        "long text",
        "characters",
        "expressions",
        "counts",
        "conjunctions",
    ),
)
@pytest.mark.timeout(10)
def test_hostile_rules_are_refused(given: Any, limit: str) -> None:
    """If it failed, a small rule could fill the memory, or run for hours."""
    with pytest.raises(LimitError) as refused:
        sigma.read(given)
    assert refused.value.limit == limit


@pytest.mark.parametrize(
    "given",
    [
        document(" or ".join(["s"] * 2 * MANY), s={"f": [f"x{n}" for n in range(MANY)]}),
        document(" and ".join(["not s"] * MANY), s={"f|contains": [f"x{n}" for n in range(MANY)]}),
        document("not " * 2 * MANY + "s", s={"f|endswith": [f"x{n}" for n in range(MANY)]}),
        document(" and ".join(["1 of s*"] * 2 * MANY), s1={"f": "x1"}, s2={"f": 1, "g": 1}),
        document(" and  ".join(["s", *["(not 1 of t*)"] * MANY]), s={"f": "x1"}, **EXCEPTIONS),
        document(f"1 of {'*s' * MANY}*", **{"s" * MANY: {"f": "x1"}}),
        document(s={"f|contains": ["a*" * MANY + "x", "x1"]}),
        document(s={"f|re": "(a*)*" * 20 + "x1$"}),
        document(s={"f": [f"x{n}" for n in range(20 * MANY)]}),
    ],
    ids=("or", "and", "not", "repeated", "exceptions", "names", "wildcards", "regex", "values"),
)
@pytest.mark.timeout(10)
def test_large_rules_are_read(given: Any) -> None:
    """If it failed, reading or matching a rule could take time beyond measure."""
    rule = sigma.read(given)
    assert len(rule.filters) <= 2
    rule.matches(ct.Notification({"f": "a" * 10 * MANY}))
    assert rule.matches(ct.Notification({"f": "x1"})) is (
        "and not" not in given["detection"]["condition"]
    )
