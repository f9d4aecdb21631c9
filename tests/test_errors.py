"""All errors of the package stand in one module."""

import ast
from pathlib import Path
from typing import Final

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
