"""All errors of the package are in one module."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import contrada as ct
from contrada import errors
from contrada.integrations.dialects.cloudevents.cloudevent_json import event_of

SOURCE: Final = Path(errors.__file__).parent


@pytest.mark.slow
def test_every_error_comes_from_errors() -> None:
    """A caller could not import an error from the documented module."""
    known = {name for name, held in vars(errors).items() if isinstance(held, type)}
    elsewhere = [
        f"{module.relative_to(SOURCE)}: {node.name}"
        for module in SOURCE.rglob("*.py")
        if module.name != "errors.py"
        for node in ast.walk(ast.parse(module.read_text("utf-8"), module))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in known for base in node.bases)
    ]
    assert elsewhere == []


def test_a_filter_that_nothing_can_match_is_shown_in_part() -> None:
    """An error about a large filter would fill the screen, and cost a server more than the rest."""
    one = ct.Filter("a = 1 and b < 0 and b > 0")
    assert (
        str(errors.UnsatisfiableFilterError(one)) == f"no notification can match the filter {one}"
    )
    long = ct.Filter({"a": "x" * 1_000, "b": ct.ops.lt(0) & ct.ops.gt(0)})
    assert len(str(errors.UnsatisfiableFilterError(long))) < 150
    many = ct.FilterSet([ct.Filter({"a": n, "b": ct.ops.lt(0) & ct.ops.gt(0)}) for n in range(9)])
    error = errors.UnsatisfiableFilterError(many)
    assert str(error) == "no notification can match any of the 9 filters"
    assert error.filter is many


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ct.Filter("a cidr 'x'"), "cidr ('x'): "),
        (lambda: ct.Filter("a wildcard '\\\\x'"), "wildcard ('\\\\x'): "),
        (lambda: ct.Filter("a cidr x'ff'"), "cidr (b'\\xff'): "),
        (
            lambda: ct.Filter("nothing"),
            "found `nothing`, the empty filter set, expected one filter",
        ),
        (lambda: ct.Filter("a = 1 or b = 1"), "found a filter set (`or`), expected one filter"),
        (lambda: ct.Filter({"a": {"b": 1}}), "name nested attributes with dots, as 'a.b'"),
    ],
)
def test_an_error_shows_what_was_written(make: Callable[[], object], said: str) -> None:
    """A person would search their text for another fault."""
    with pytest.raises(errors.ContradaError) as caught:
        make()
    assert said in str(caught.value)


def test_a_copy_of_an_error_has_its_message_and_attributes() -> None:
    """A caller would get an error without its reason, or the notes of another caller."""
    error = errors.ConnectionFailedError("contrada://there", "lost", may_be_published=True)
    copy = error.copy()
    copy.add_note("of one caller")
    assert (type(copy), str(copy)) == (type(error), "contrada://there: lost")
    assert copy.may_be_published
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("attributes", [{}, {"id": 1, "source": "a", "type": "b"}])
def test_what_cannot_be_written_is_not_said_to_be_unreadable(attributes: dict[str, Any]) -> None:
    """A person would look for a damaged file."""
    with pytest.raises(errors.EncodingError, match=r"^cannot write CloudEvent: "):
        event_of(ct.Notification(attributes))
