"""docs/architecture.md, docs/delivery.md and docs/where.md: the named places exist."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "contrada"
DOCS: Final = SOURCE.parents[1] / "docs"

PLACE: Final = re.compile(r"`([\w/]+\.(?:py|lark))(?::([\w.]+))?`")


BESIDE_SOURCE = ("tests/", "native/", "hatch_build", "website/")


@cache
def definitions(module: Path) -> dict[str, ast.stmt]:
    """The top definitions of a module, with methods as `Class.method`."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(module.read_text("utf-8"), module).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found[node.name] = node
            methods = (inner for inner in node.body if isinstance(inner, ast.FunctionDef))
            found |= {f"{node.name}.{method.name}": method for method in methods}
    return found


@pytest.mark.parametrize("page", ["architecture.md", "delivery.md", "where.md"])
def test_places_named_exist(page: str) -> None:
    """A page would name code that does not exist."""
    places = PLACE.findall((DOCS / page).read_text("utf-8"))
    assert places
    for file, name in places:
        root = SOURCE.parents[1] if file.startswith(BESIDE_SOURCE) else SOURCE
        assert (root / file).is_file(), file
        assert not name or name in definitions(root / file), f"{file}:{name}"
