"""Holds sources in memory, and descriptions that are worked out of data."""

import math
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidNotificationError, ServiceError, UnsatisfiableFilterError
from contrada.model import Advertisement, Filter, Notification
from contrada.model.algebra.relations import meets
from contrada.service.query import source as module
from contrada.service.query.source import DataSource, FunctionSource, RecordSource
from contrada.service.query.source_query import SourceQuery
from tests.integrations.sources.rows import counted, is_described, questions
from tests.strategies import notifications

SECOND_US = 1_000_000


@given(st.lists(notifications(), max_size=6), questions(("a", "b", "x0")))
def test_records_answer_and_are_described(items: list[Notification], asked: SourceQuery) -> None:
    """A record would be left out, or a query not reach it."""
    source = RecordSource(items)
    expected = [item for item in items if asked.answers(item)]
    assert counted(source.answer(asked)) == counted(expected)
    offer = source.describe(0)
    assert is_described(offer, items)
    if expected:
        assert meets(offer, asked.filters)


def test_records_of_any_kind() -> None:
    """The owner of mappings would have to convert them to notifications."""
    source = RecordSource([{"a": 1}, Notification({"a": 2, "b": None}), {"c": {"d": 3}}])
    assert [item["a"] for item in source.answer(SourceQuery("a any"))] == [1, 2]
    assert [item["c.d"] for item in source.answer(SourceQuery("c.d = 3"))] == [3]
    assert isinstance(source, DataSource)
    with pytest.raises(ServiceError):
        RecordSource(iter([{"a": 1}]))
    with pytest.raises(InvalidNotificationError):
        list(RecordSource([{"a": object()}]).answer(SourceQuery("a any")))


def test_many_values_are_told_by_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description would grow with the data, or be narrower than they are."""
    monkeypatch.setattr(module, "DESCRIBED_VALUES_MAX", 3)
    values = [5, 1, 9.5, "b", "a", None, math.nan, True]
    offer = RecordSource([{"v": value, "w": 1} for value in values]).describe(0)
    assert str(offer) == str(
        Advertisement(
            "v = null and v = true and v = nan and v between 1 and 9.5 "
            "and v between 'a' and 'b' and w = 1"
        )
    )
    assert meets(offer, Filter("v = 2"))
    assert not meets(offer, Filter("v = 10"))
    assert not meets(offer, Filter("other any"))


def test_many_names_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description would be longer than a server takes."""
    monkeypatch.setattr(module, "DESCRIBED_NAMES_MAX", 2)
    records = [{"a": 1}, {"b": 1}]
    assert isinstance(RecordSource(records).describe(0), Advertisement)
    assert RecordSource([*records, {"c": 1}]).describe(0) == Filter({})


def test_a_description_is_kept_while_it_is_fresh() -> None:
    """It would be worked out for each question, or never again."""
    records = [{"a": 1}]
    source = RecordSource(records, fresh_s=2)
    first = source.describe(7 * SECOND_US)
    records.append({"a": 2})
    assert source.describe(9 * SECOND_US - 1) is first
    assert source.describe(9 * SECOND_US) == Advertisement({"a": [1, 2]})
    records.append({"a": 3})
    assert source.describe(8 * SECOND_US) == Advertisement({"a": [1, 2, 3]})


def test_a_given_description_is_kept() -> None:
    """A known future of the data could not be described."""
    source = RecordSource([{"a": 1}], description="a < 100")
    assert source.describe(0) == Advertisement("a < 100")
    with pytest.raises(UnsatisfiableFilterError):
        RecordSource([], description=Filter("a = 1 and a = 2"))
    for wrong in (-1, math.nan, "1", True):
        with pytest.raises(ServiceError):
            RecordSource([], fresh_s=wrong)  # type: ignore[arg-type]


def test_a_function_may_say_too_much() -> None:
    """The items of a function would be sent untested."""
    asked_of: list[SourceQuery] = []

    def function(question: SourceQuery) -> Iterator[dict[str, int]]:
        asked_of.append(question)
        for n in range(4):
            yield {"n": n}

    source = FunctionSource(function)
    question = SourceQuery("n > 1")
    answers = source.answer(question)
    assert isinstance(answers, Iterator)
    assert [item["n"] for item in answers] == [2, 3]
    assert asked_of == [question]
    assert source.describe(0) == Filter({})
    assert FunctionSource(function, description="n >= 0").describe(0) == Advertisement("n >= 0")
    with pytest.raises(ServiceError):
        FunctionSource(3)  # type: ignore[arg-type]


def test_a_function_may_answer_later() -> None:
    """An asynchronous result would be iterated at once."""

    async def function(question: SourceQuery) -> AsyncIterator[dict[str, int]]:
        yield {"n": 1}

    given = FunctionSource(function).answer(SourceQuery("n > 1"))
    assert hasattr(given, "__aiter__")
