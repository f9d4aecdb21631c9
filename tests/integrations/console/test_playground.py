"""The answers of the console's playground are those of the engine."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.integrations.console import playground
from contrada.integrations.console.playground import TRIAL_RECORDS_MAX, Trial, answer_trial

RECORDS = '{"price": 50, "symbol": "DIS"}\n{"Price": "50", "symbol": "DISX"}'


def test_each_record_is_matched_and_explained() -> None:
    """A user would see a match that a broker does not deliver, or no cause of a failure."""
    answer = answer_trial(Trial("price < 100 and symbol = 'DIS'", records=RECORDS))
    first, second = answer["records"]
    assert (first["matches"], "causes" in first) == (True, False)
    assert second["matches"] is False
    assert "'price' is absent, there is 'Price'" in second["causes"][0]
    assert answer["is_cut"] is False


@pytest.mark.parametrize(
    ("records", "read"),
    [
        ('{"a": 1, "b": "x"}', ['{"a":1,"b":"x"}']),
        ('[{"a": 1}, {"a": {"b": 2}}]', ['{"a":1}', '{"a.b":2}']),
        ('{"a": 1}\n{"a": 9007199254740993}', ['{"a":1}', '{"a":9007199254740993}']),
        ("a,b\n1,x\n,y\n", ['{"a":1,"b":"x"}', '{"b":"y"}']),
        ("<r><a>1</a></r>", ['{"r.a":1}']),
    ],
)
def test_records_are_read_by_their_first_character(records: str, read: list[str]) -> None:
    """Pasted records would be refused, or a large integer changed on its way to the page."""
    found = answer_trial(Trial("everything", records=records))["records"]
    assert [each["record"] for each in found] == read
    assert all(each["matches"] for each in found)


@pytest.mark.parametrize(
    ("records", "error"),
    [('{"a": 1 2}', "expected ',' delimiter"), ("[1]", "expected a JSON object"), ("<r>", "r")],
)
def test_an_unreadable_record_is_reported_beside_the_others(records: str, error: str) -> None:
    """A user would search for the malformed line, or miss the other records."""
    (found,) = answer_trial(Trial("a = 1", records=records))["records"]
    assert error in found["error"]
    assert "matches" not in found


def test_errors_have_their_place() -> None:
    """The page could not mark the error in the text."""
    answer = answer_trial(Trial("price <", records=RECORDS, other="a = 1 and"))
    assert answer["filter"] == {
        "error": "found the end of the text, expected a value",
        "line": 1,
        "column": 8,
    }
    assert answer["other"]["column"] == 10
    assert [*answer["records"][0]] == ["number", "record"]


@pytest.mark.parametrize(
    ("dialect", "text", "error"),
    [
        ("sql", "price <", "line 1"),
        ("perl", "a", "expected a dialect"),
        ("sql", "a = 1; b = 2;", "more than one rule"),
        ("prometheus", "a: [", ""),
    ],
)
def test_rules_that_cannot_be_read_are_answered(dialect: str, text: str, error: str) -> None:
    """A wrong rule would end the answer instead of being explained."""
    assert error in answer_trial(Trial(text, dialect))["filter"]["error"]


def test_a_rule_is_matched_with_its_residue() -> None:
    """A record would match here, and not in a subscription to the rule."""
    trial = Trial(
        "a LIKE '%5' AND b + 1 = 3", "cesql", records='{"a":"15","b":2}\n{"a":"15","b":3}'
    )
    answer = answer_trial(trial)
    assert answer["filter"]["residue"]
    assert [each["matches"] for each in answer["records"]] == [True, False]


def test_two_filters_are_compared_with_examples() -> None:
    """A user would believe that one subscription makes another needless."""
    relation = answer_trial(Trial("price < 100 and s = 'a'", other="price < 200"))["relation"]
    assert (relation["covers"], relation["covered"], relation["meets"]) == (False, True, True)
    examples = {name: each and json.loads(each) for name, each in relation["examples"].items()}
    assert examples["only_first"] is None
    assert ct.matches("price < 200", examples["only_other"])
    assert not ct.matches("price < 100 and s = 'a'", examples["only_other"])
    assert ct.matches("price < 100 and s = 'a'", examples["both"])


def test_a_pattern_has_its_matches_in_order() -> None:
    """A user would try a pattern here and get other matches from a broker."""
    records = '{"a":1}\n{"b":2}\n{"c":3}\n{"a":1}\n{"b":2}'
    answer = answer_trial(Trial("a = 1 -> b = 2", records=records, other="a = 1"))
    assert answer["matches"] == [[0, 1], [3, 4]]
    assert "pattern" in answer["relation"]["error"]


def test_filters_are_written_in_other_dialects() -> None:
    """A user could not take a filter to a system that they have."""
    written = answer_trial(Trial("price < 100"))["dialects"]
    assert written["sql"] == {"text": '"price" < ?  -- [100]'}
    assert json.loads(written["eventbridge"]["text"]) == {"price": [{"numeric": ["<", 100]}]}
    assert "price" in written["cloudevents"]["error"]


def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pasted file, or a pattern of many matches, would make an answer without an end."""
    records = "\n".join(["a"] + ["1"] * (TRIAL_RECORDS_MAX + 5))
    answer = answer_trial(Trial("a = 1", records=records))
    assert (len(answer["records"]), answer["is_cut"]) == (TRIAL_RECORDS_MAX, True)
    monkeypatch.setattr(playground, "TRIAL_EXPLAINED_MAX", 10)
    answer = answer_trial(Trial("a = 2", records=records))
    assert sum("causes" in each for each in answer["records"]) == 10
    monkeypatch.setattr(playground, "TRIAL_MATCHES_MAX", 10)
    answer = answer_trial(Trial("every a = 1 -> a = 1", records=records))
    assert (len(answer["matches"]), answer["is_cut"]) == (10, True)


def test_a_long_trial_answers_its_first_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial of one user would delay those of all others for minutes."""
    monkeypatch.setattr(playground, "TRIAL_WAIT_S", -1.0)
    for text, answers in (("a = 1", 1), ("a = 1 -> a = 1", 3)):
        answer = answer_trial(Trial(text, records="a\n1\n1\n1"))
        assert (len(answer["records"]), answer["is_cut"]) == (answers, True)
        assert not answer.get("matches")
        one = answer_trial(Trial(text, records="a\n1"))
        assert (len(one["records"]), one["is_cut"]) == (1, False)


def test_filters_that_are_too_long_are_not_written() -> None:
    """A small text would make an answer of gigabytes, and end the broker."""
    text = f"x = '{'q' * 2_000}' and ({' or '.join(f'a{n} = 1' for n in range(200))})"
    records = json.dumps({"x": "q" * 2_000, "a7": 1})
    answer = answer_trial(Trial(text, other=text, records=records))
    assert "TRIAL_TEXT_CHARACTERS_MAX" in answer["filter"]["error"]
    assert "TRIAL_TEXT_CHARACTERS_MAX" in answer["other"]["error"]
    assert answer["records"][0]["matches"]
    assert len(json.dumps(answer)) < 50_000


@given(st.text(max_size=40), st.sampled_from(["", "sql", "cesql", "sigma"]), st.text(max_size=60))
def test_any_text_has_an_answer(text: str, dialect: str, records: str) -> None:
    """A user could end the page, or the thread of others' trials, by a text."""
    answer: dict[str, Any] = answer_trial(Trial(text, dialect, text, dialect, records))
    assert answer["filter"].keys() & {"text", "error"}
