"""All errors of the package stand in one module."""

import ast
from pathlib import Path
from typing import Final

import contrada as ct
from contrada import errors

SOURCE: Final = Path(errors.__file__).parent


def test_every_error_comes_from_errors() -> None:
    """A caller could not import what may be raised from the one place that is promised."""
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
    long = ct.Filter({"a": "x" * 1_000, "b": ct.lt(0) & ct.gt(0)})
    assert len(str(errors.UnsatisfiableFilterError(long))) < 150
    many = ct.FilterSet([ct.Filter({"a": n, "b": ct.lt(0) & ct.gt(0)}) for n in range(9)])
    error = errors.UnsatisfiableFilterError(many)
    assert str(error) == "no notification can match any of the 9 filters"
    assert error.filter is many
