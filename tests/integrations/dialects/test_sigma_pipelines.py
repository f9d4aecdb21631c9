"""Pipelines of Sigma rules: each kind of transformation and condition, and what is refused.

The rows have the answers of pySigma 2.0.1, whose queries for them were compared.
"""

import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import ContradaError, InputError, LimitError, RefusedRuleError
from contrada.integrations.dialects import sigma
from contrada.integrations.dialects.sigma import sigma_refusals as refusals
from contrada.integrations.dialects.sigma import sigma_transformations

ROWS: Final = [
    json.loads(line)
    for line in Path(__file__)
    .parents[2]
    .joinpath("conformance/dialects/sigma_pipelines.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
T: Final = "pipeline.transformations[1]"
MAPPED: Final = {"type": "field_name_mapping", "mapping": {"f": "g"}}


REFUSED: Final = (
    "command_placeholders",
    "convert_type",
    "extract_fields",
    "field_name_transform",
    "file_placeholders",
    "hashes_fields",
    "http_placeholders",
    "query_expression_placeholders",
    "regex",
    "strict_field_mapping_failure",
)
"""The transformations of pySigma that are refused."""


def pipeline(*steps: Any, **more: Any) -> sigma.ProcessingPipeline:
    return sigma.read_pipeline(json.dumps({"transformations": steps, **more}))


def rule(fields: Any, *pipelines: sigma.ProcessingPipeline, **source: Any) -> Any:
    detection: Any = {"s": fields, "condition": "s"}
    document: Any = {"logsource": source, "detection": detection}
    return sigma.read(document, pipelines=pipelines)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["source"]))
def test_pipelines_change_rules_as_in_pysigma(row: dict[str, Any]) -> None:
    """A rule with a pipeline would match other events than in the tools of its writer."""
    text = json.dumps(row["pipeline"]).replace('"~"', "null")
    selections = row.get("selections") or {"s": row["fields"]}
    document = {
        "logsource": row.get("logsource", {"product": "windows"}),
        "detection": {**selections, "condition": row.get("condition", "s")},
        **row.get("about", {}),
    }
    read = sigma.read(document, pipelines=[sigma.read_pipeline(text)])
    assert [e for e in row["matches"] if not read.matches(ct.Notification(e))] == []
    assert [e for e in row["not"] if read.matches(ct.Notification(e))] == []


def test_each_kind_of_pysigma_is_read_or_refused() -> None:
    """A transformation that is documented nowhere would be read, or one of the rows be missing."""
    used = {
        step["type"]
        for row in ROWS
        for outer in row["pipeline"]["transformations"]
        for step in (outer, *outer.get("items", ()))
    }
    failures = {"rule_failure", "detection_item_failure"}
    known = {*sigma_transformations.ACTIONS, *sigma_transformations.FIELD_MAPPINGS, "nest"}
    assert used | failures == known
    assert known.isdisjoint(REFUSED)
    for kind in REFUSED:
        with pytest.raises(RefusedRuleError, match=rf"transformations\[2\]: .*{kind}"):
            pipeline(MAPPED, {"type": kind})


def test_the_pipeline_of_windows_is_one_of_several() -> None:
    """The constraints of a log source would keep their names where events have others."""
    ecs = {"Channel": "winlog.channel", "EventID": "event.code", "SourceName": "provider"}
    event = {"winlog.channel": "Security", "provider": "p", "f": 1}
    mapping = pipeline({"type": "field_name_mapping", "mapping": ecs})
    fields = {"f": 1, "Provider_Name": "p"}
    source = {"product": "windows", "service": "security"}
    assert rule(fields, sigma.WINDOWS, mapping, **source).matches(event)
    assert not rule(fields, sigma.WINDOWS, mapping, **source).matches({**event, "provider": "q"})
    assert rule(fields, sigma.WINDOWS, **source).matches(
        {"Channel": "Security", "SourceName": "p", "f": 1}
    )
    assert rule({"f": 1}, mapping, **source).matches({"f": 1})
    audit = pipeline(
        {"type": "add_condition", "conditions": {"EventID": 4688}},
        {"type": "change_logsource", "product": "windows", "service": "security"},
    )
    created = rule({"f": 1}, audit, sigma.WINDOWS, product="windows", category="process_creation")
    assert created.matches({"f": 1, "EventID": 4688, "Channel": "Security"})
    assert created.notes == ()
    assert [note.found for note in rule({"f": 1}, mapping, product="x").notes] == ["product x"]


def test_rules_for_sysmon_match_the_audit_of_windows() -> None:
    """Rules for processes would match nothing where Sysmon is not installed."""
    pipelines = [sigma.load_pipeline("windows-audit"), sigma.WINDOWS]
    fields = {"Image|endswith": "x.exe", "ParentImage": "p", "CommandLine": "c"}
    created = rule(fields, *pipelines, product="windows", category="process_creation")
    event = {"EventID": 4688, "Channel": "Security", "NewProcessName": "x.exe", "CommandLine": "c"}
    assert created.matches({**event, "ParentProcessName": "p"})
    assert not created.matches({**event, "ParentProcessName": "p", "EventID": 1})
    registry = rule({"TargetObject": "t"}, *pipelines, product="windows", category="registry_set")
    changed = {"EventID": 4657, "Channel": "Security", "ObjectName": "t"}
    assert registry.matches({**changed, "OperationType": "Existing registry value modified"})
    assert not registry.matches({**changed, "OperationType": "New registry value created"})
    with pytest.raises(RefusedRuleError, match="no such field"):
        rule({"User": "u"}, *pipelines, product="windows", category="registry_add")
    other = rule({"User": "u"}, *pipelines, product="windows", service="system")
    assert other.matches({"User": "u", "Channel": "System"})


def test_pipelines_apply_by_priority() -> None:
    """A pipeline for the names of a store would not see the names of the one before."""
    second = pipeline({"type": "field_name_mapping", "mapping": {"g": "h"}}, priority=20)
    first = pipeline(MAPPED, priority=10)
    third = pipeline({"type": "field_name_mapping", "mapping": {"h": "k"}}, priority=20)
    assert rule({"f": 1}, second, third, first).matches({"k": 1})
    assert rule({"f": 1}, third, second, first).matches({"h": 1})


@pytest.mark.parametrize(
    ("step", "reason", "place"),
    [
        (
            {"type": "rule_failure", "message": "no"},
            refusals.FAILURE,
            "pipeline.transformations[1]",
        ),
        (
            {
                "type": "detection_item_failure",
                "message": "no",
                "field_name_conditions": [{"type": "include_fields", "fields": ["f"]}],
            },
            refusals.FAILURE,
            f"s.f, {T}",
        ),
        ({"type": "drop_detection_item"}, refusals.DROPPED, ""),
        (
            {"type": "add_condition", "conditions": {"g|hour|x": 1}},
            refusals.MODIFIER,
            "pipeline.transformations[1].conditions.g|hour|x",
        ),
        ({"type": "field_name_prefix", "prefix": "@is."}, refusals.NAME, "s.f"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_rules_are_refused_with_the_place_in_the_pipeline(
    step: Any, reason: str, place: str
) -> None:
    """A rule that the pipeline's author excludes would be matched, or its reason be lost."""
    with pytest.raises(RefusedRuleError) as refused:
        rule({"f": "x"}, pipeline(step))
    assert (refused.value.reason, refused.value.place) == (reason, place)


MALFORMED: Final = [
    ("[]", refusals.PIPELINE, "pipeline"),
    ("a: 1\n---\nb: 2", refusals.PIPELINE, ""),
    ("transformations: x", refusals.PARAMETER, "pipeline.transformations"),
    ("priority: high", refusals.PARAMETER, "pipeline.priority"),
    ("unknown: 1", refusals.PARAMETER, "pipeline"),
    ("vars: {a: [{}]}", refusals.PARAMETER, "pipeline.vars.a"),
    ("finalizers: [{type: concat}]", refusals.QUERIES, "pipeline"),
    ("{name: ecs, postprocessing: [{type: embed}]}", refusals.QUERIES, "pipeline 'ecs'"),
    ("transformations: [x]", refusals.PIPELINE, T),
    ("transformations: [{id: x}]", refusals.PARAMETER, f"{T}.type"),
    ("transformations: [{type: field_name_mapping}]", refusals.PARAMETER, f"{T}.mapping"),
    (
        "transformations: [{type: field_name_mapping, mapping: {f: []}}]",
        refusals.PARAMETER,
        f"{T}.mapping.f",
    ),
    (
        "transformations: [{type: field_name_prefix_mapping, mapping: {null: f}}]",
        refusals.PARAMETER,
        f"{T}.mapping",
    ),
    ("transformations: [{type: case, method: snake_case}]", refusals.PARAMETER, f"{T}.method"),
    ("transformations: [{type: case, other: 1}]", refusals.PARAMETER, T),
    (
        "transformations: [{type: add_condition, name: x, conditions: {f: 1}}]",
        refusals.PARAMETER,
        f"{T}.name",
    ),
    (
        "transformations: [{type: replace_string, regex: '(a', replacement: b}]",
        refusals.PATTERN,
        f"{T}.regex",
    ),
    (
        "transformations: [{type: replace_string, regex: 'a', replacement: '\\2'}]",
        refusals.PATTERN,
        f"{T}.regex",
    ),
    (
        "transformations: [{type: replace_string, regex: '(a+)+', replacement: b}]",
        refusals.PATTERN,
        f"{T}.regex",
    ),
    (
        "transformations: [{type: case, rule_conditions: [{type: bogus}]}]",
        refusals.STEP_CONDITION,
        f"{T}.rule_conditions[0]",
    ),
    (
        "transformations: [{type: case, field_name_conditions: [{type: processing_item_applied}]}]",
        refusals.STEP_CONDITION,
        f"{T}.field_name_conditions[0]",
    ),
    ("transformations: [{type: case, rule_cond_op: xor}]", refusals.PARAMETER, f"{T}.rule_cond_op"),
    (
        "transformations: [{type: case, rule_conditions: {a: {type: is_sigma_rule}},"
        " rule_cond_expr: b}]",
        refusals.NO_SELECTION,
        f"{T}.rule_cond_expr",
    ),
    (
        "transformations: [{type: case, rule_conditions: {a: {type: is_sigma_rule},"
        " b: {type: is_sigma_rule}}, rule_cond_expr: a}]",
        refusals.STEP_CONDITION,
        f"{T}.rule_cond_expr",
    ),
    (
        "transformations: [{type: case, detection_item_conditions:"
        " {a: {type: match_string, cond: any, pattern: '(?=a)'}}}]",
        refusals.PATTERN,
        f"{T}.detection_item_conditions[a].pattern",
    ),
    (
        "transformations: [{type: case, detection_item_conditions:"
        " {a: {type: match_string, cond: any, pattern: 'a)|(b'}}}]",
        refusals.PATTERN,
        f"{T}.detection_item_conditions[a].pattern",
    ),
    (
        "transformations: [{type: nest, items: [{type: nest, items: [{type: regex}]}]}]",
        refusals.STEP,
        f"{T}.transformations[1].transformations[1]",
    ),
]


@pytest.mark.parametrize(("text", "reason", "place"), MALFORMED, ids=lambda each: each[:60])
def test_malformed_pipelines_are_refused_with_a_place(text: str, reason: str, place: str) -> None:
    """A misspelled pipeline would leave rules as they are, without a word."""
    with pytest.raises(RefusedRuleError) as refused:
        sigma.read_pipeline(text)
    assert (refused.value.reason, refused.value.place) == (reason, place)


def test_files_and_names_of_pipelines_are_loaded(tmp_path: Path) -> None:
    """A user could not find out which file is wrong, or which names there are."""
    path = tmp_path / "a.yml"
    path.write_text("name: x\npriority: 3\ntransformations: []", "utf-8")
    assert (sigma.load_pipeline(path).name, sigma.load_pipeline(path).priority) == ("x", 3)
    assert sigma.load_pipeline("windows") is sigma.WINDOWS
    path.write_text("transformations: [{type: regex}]", "utf-8")
    for place, expected in ((path, "transformations.1.: .*'regex'"), (tmp_path / "b", "windows")):
        with pytest.raises(InputError, match=expected):
            sigma.load_pipeline(place)


@pytest.mark.parametrize(
    ("steps", "fields", "limit"),
    [
        ([MAPPED] * 1_001, {}, "PIPELINE_STEPS_MAX"),
        ([{"type": "nest", "items": [MAPPED] * 600}] * 2, {}, "PIPELINE_STEPS_MAX"),
        ([{"type": "case"}] * 1_000, {f"f{n}": "x" for n in range(2_000)}, "CHANGED_ITEMS_MAX"),
        (
            [{"type": "replace_string", "regex": ".*x.*y", "replacement": ""}],
            {"f": "a" * 1_000},
            "REPLACING_STEPS_MAX",
        ),
        (
            [{"type": "replace_string", "regex": "a", "replacement": "b" * 1_000}],
            {"f": "a" * 1_000},
            "SPELLED_BYTES_MAX",
        ),
        (
            [{"type": "replace_string", "regex": "(a+)", "replacement": r"\1" * 2_000}],
            {"f": "a" * 1_000},
            "SPELLED_BYTES_MAX",
        ),
        ([{"type": "value_placeholders"}], {"f|expand": "%p%" * 40}, "SPELLED_BYTES_MAX"),
        (
            [{"type": "map_string", "mapping": {"": [""] * 1_000}}] * 4,
            {"f": ""},
            "SPELLED_BYTES_MAX",
        ),
        (
            [{"type": "field_name_mapping", "mapping": {"f": ["f"] * 10}}] * 9,
            {"f": 1},
            "CHANGED_ITEMS_MAX",
        ),
    ],
    ids=(
        "steps",
        "nested steps",
        "items",
        "search",
        "texts",
        "groups",
        "placeholders",
        "empty texts",
        "names",
    ),
)
@pytest.mark.timeout(20)
def test_hostile_pipelines_are_refused(steps: list[Any], fields: Any, limit: str) -> None:
    """A small pipeline could fill the memory, or run for hours."""
    with pytest.raises(LimitError) as refused:
        rule(fields, pipeline(*steps, vars={"p": ["x", "y"]}))
    assert refused.value.limit == limit


@pytest.mark.parametrize(("regex", "new"), [("a", "b" * 20_000), ("a+", r"\g<0>" * 20_000)])
def test_replaced_texts_are_bounded_before_they_are_made(regex: str, new: str) -> None:
    """A small pipeline would fill the memory before its text is refused."""
    read = pipeline({"type": "replace_string", "regex": regex, "replacement": new})
    tracemalloc.start()
    with pytest.raises(LimitError, match="SPELLED_BYTES_MAX"):
        rule({"f": "a" * 2_000}, read)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # The text would have 40 million bytes.


def test_values_that_stay_are_not_counted() -> None:
    """A rule with a long list would be refused by a pipeline of many steps for other values."""
    steps = [{"type": "map_string", "mapping": {"x": "y"}}] * 50
    assert rule({"f": ["x"] + ["a" * 1_000] * 50}, pipeline(*steps)).matches({"f": "y"})


WORDS = st.sampled_from(
    [word for row in ROWS for word in str(row["pipeline"]).replace("'", " ").split()][:200]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(("a*", "(x)", "%p%")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A pipeline of a row with some parts replaced."""

    def change(given: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(VALUES)
        if isinstance(given, dict):
            return {key: change(each) for key, each in given.items() if draw(st.integers(0, 20))}
        return [change(each) for each in given] if isinstance(given, list) else given

    return change(draw(st.sampled_from(ROWS))["pipeline"])


@given(mutated() | VALUES, st.sampled_from(ROWS))
def test_any_pipeline_is_read_or_refused(document: Any, row: dict[str, Any]) -> None:
    """A malformed pipeline would end the program, instead of being refused."""
    fields = row.get("selections") or {"s": row["fields"]}
    with contextlib.suppress(ContradaError):
        read = sigma.read_pipeline(yaml.safe_dump(document))
        found = sigma.read({"detection": {**fields, "condition": "1 of them"}}, pipelines=[read])
        found.matches({"f": "x", "g": 1})
