"""`plain_fields` and `plain_values`, compiled and interpreted: objects as attributes, and back."""

from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given

from tests.model.test_plain_codec import FORMS, values

KINDS: Final = {"a": {int}, "b": {str, type(None)}}
"""The plain types of two fields."""


@given(values, values)
def test_fields_are_plain_by_their_types(a: Any, b: Any) -> None:
    """A value that must be converted would be published as it is, or its object refused."""
    marks = {"@is.T": True}
    is_plain = type(a) is int and (type(b) is str or b is None)
    for form in FORMS:
        empty = {"a": None, "b": None, **marks}
        found = form.plain_fields(SimpleNamespace(a=a, b=b, c=1), KINDS, empty)
        assert found == ({"a": a, "b": b, **marks} if is_plain else None)
        assert empty == {"a": None, "b": None, **marks}, "the form is used again"
        attributes = {**marks, "b": b, "a": a}
        assert form.plain_values(attributes, KINDS, marks) == ((a, b) if is_plain else None)


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "x", "@is.T": False},
        {"a": 1, "b": "x", "@is.T": 1},
        {"a": 1, "b": "x", "@is.U": True},
        {"a": 1, "b": "x", "@is.T": True, "@is.U": True},
        {"a": 1, "b": "x", "@is.T": True, "c": 1},
        {"a": 1, "c": "x", "@is.T": True},
        {},
    ],
)
def test_other_attributes_are_not_read_at_once(attributes: dict[str, Any]) -> None:
    """An object of another type would be read, or a part of it lost."""
    for form in FORMS:
        assert form.plain_values(attributes, KINDS, {"@is.T": True}) is None


def test_the_error_of_a_field_is_raised() -> None:
    """An object without one of its fields would be published without an error."""
    for form in FORMS:
        with pytest.raises(AttributeError):
            form.plain_fields(SimpleNamespace(a=1), KINDS, {"a": None, "b": None})
