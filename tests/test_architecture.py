"""Holds docs/architecture.md: its limits are those of the code, and the places it names exist."""

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "contrada"
PAGE: Final = SOURCE.parents[1] / "docs" / "architecture.md"

ROW: Final = re.compile(r"^\| `([\w.]+):([A-Z_]+)` \| ([\d.,]+)(?: (\w+))? \|", re.MULTILINE)
PLACE: Final = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")
LIMIT: Final = re.compile(r"[A-Z][A-Z_]*(_MAX(_US)?|_WAIT_S)")
UNITS: Final = {"": 1, "s": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

NO_LIMITS: Final = {"model.domains.values:INT_MAX", "matching.compiling:EXACT_MAX"}

OPERATIONS: Final[dict[type, Callable[[float, float], float]]] = {
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Sub: operator.sub,
}


def number_of(node: ast.expr | None) -> float | None:
    """The value of a written number such as `16 * 2**20`; None where it is none."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = number_of(node.left), number_of(node.right)
        if left is not None and right is not None:
            return OPERATIONS[type(node.op)](left, right)
    return None


@cache
def definitions(module: Path) -> dict[str, ast.stmt]:
    """What a module defines at its top, and methods as `Class.method`."""
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


def constants() -> Iterator[tuple[str, float]]:
    """Every named number of the code as `room.module:NAME`, and its value."""
    for module in SOURCE.rglob("*.py"):
        dotted = ".".join(module.relative_to(SOURCE).with_suffix("").parts)
        for name, node in definitions(module).items():
            value = number_of(node.value) if isinstance(node, ast.AnnAssign) else None
            if value is not None:
                yield f"{dotted}:{name}", value


def shown() -> dict[str, float]:
    """The limits as the page has them."""
    rows = ROW.findall(PAGE.read_text("utf-8"))
    return {
        f"{module}:{name}": float(number.replace(",", "")) * UNITS[unit]
        for module, name, number, unit in rows
    }


def test_limits_are_those_of_the_code() -> None:
    """A reader would believe in a limit that is another one, or none."""
    real = dict(constants())
    assert {name: real.get(name) for name in shown()} == shown()


def test_no_limit_is_left_out() -> None:
    """A limit would stand in the code that nobody can look up."""
    limits = {name for name, _ in constants() if LIMIT.fullmatch(name.partition(":")[2])}
    missing = limits - shown().keys() - NO_LIMITS
    assert sorted(missing) == []


def test_names_of_limits_are_unique() -> None:
    """An error that names its limit would not say which of two it is."""
    limits = {name for name, _ in constants() if LIMIT.fullmatch(name.partition(":")[2])}
    named = Counter(name.partition(":")[2] for name in limits | shown().keys())
    assert [name for name, count in named.items() if count > 1] == []


def test_places_named_exist() -> None:
    """A reader would be sent to code that is not there."""
    places = PLACE.findall(PAGE.read_text("utf-8"))
    assert places
    for file, name in places:
        root = SOURCE if not file.startswith("tests/") else SOURCE.parents[1]
        assert (root / file).is_file(), file
        assert not name or name in definitions(root / file), f"{file}:{name}"
