"""The named limits of the source, and docs/limits.md, which is made of them.

A limit is a constant at the top of a module whose docstring says what it bounds, then what happens
beyond: `Bytes of a line. Beyond it: the line is a bad record.`

    python -m tests.limits
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "contrada"
PAGE: Final = SOURCE.parents[1] / "docs" / "limits.md"

NAME: Final = re.compile(r"[A-Z][A-Z_]*(_MAX(_US)?|_WAIT_S)")
"""What the name of a limit looks like; others may be limits too."""

NO_LIMITS: Final = {"model.domains.values:INT_MAX", "matching.filter_compiler:EXACT_MAX"}
"""The largest numbers there are: not bounds of something else."""

HEAD: Final = """# Limits

Every queue, table, recursion and wait has a named limit. This page is made from the constants and
their docstrings by `make limits`; a test holds that it is not stale. A name is `module:NAME`, below
`contrada`. Errors that name a limit use the part behind the colon. *Counted* means: in the
statistics of the service, broker or process. The *safe answer* is told in
[architecture.md](architecture.md).
"""

OPERATIONS: Final[dict[type, Callable[[float, float], float]]] = {
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Sub: operator.sub,
}


class Constant(NamedTuple):
    """A named number at the top of a module, and its docstring on one line."""

    module: str
    name: str
    value: float
    docstring: str

    @property
    def place(self) -> str:
        """The constant as `module:NAME`."""
        return f"{self.module}:{self.name}"

    @property
    def is_limit(self) -> bool:
        """Whether its name or its docstring says that it is a limit."""
        named = NAME.fullmatch(self.name) is not None and self.place not in NO_LIMITS
        return named or "Beyond it:" in self.docstring


@cache
def constants() -> tuple[Constant, ...]:
    """Every named number of the source, module by module."""
    return tuple(_constants())


def _constants() -> Iterator[Constant]:
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        body = ast.parse(path.read_text("utf-8"), path).body
        for node, below in pairwise((*body, ast.Pass())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = number_of(node.value)
                if value is not None:
                    yield Constant(module, node.target.id, value, docstring_of(below))


def number_of(node: ast.expr | None) -> float | None:
    """The value of a written number such as `16 * 2**20`; None where it is none."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = number_of(node.left), number_of(node.right)
        if left is not None and right is not None:
            return OPERATIONS[type(node.op)](left, right)
    return None


def docstring_of(below: ast.stmt) -> str:
    """The text that stands alone below a constant, on one line."""
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
        return " ".join(str(below.value.value).split())
    return ""


def limits() -> list[Constant]:
    """All limits, by module."""
    return [constant for constant in constants() if constant.is_limit]


def page() -> str:
    """docs/limits.md as it must be."""
    parts = [HEAD]
    for room, members in groupby(limits(), lambda limit: limit.module.partition(".")[0]):
        parts += [f"\n## {room}\n\n", "| limit | value | bounds | beyond it |\n|---|---|---|---|\n"]
        parts += map(row, members)
    return "".join(parts)


def row(limit: Constant) -> str:
    """A limit as a row of the page."""
    bounds, _, beyond = limit.docstring.partition(" Beyond it: ")
    return f"| `{limit.place}` | {value_text(limit)} | {bounds} | {beyond} |\n"


def value_text(limit: Constant) -> str:
    """The value with its unit, which the name says last."""
    if "_BYTES" in limit.name:
        units = ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1)
        unit, size = next((unit, size) for unit, size in units if limit.value % size == 0)
        return f"{int(limit.value) // size:,} {unit}"
    number = f"{limit.value:,}" if isinstance(limit.value, int) else f"{limit.value:g}"
    timed = re.search(r"_(US|S)(_MAX)?$", limit.name)
    return number if timed is None else number + {"US": " µs", "S": " s"}[timed[1]]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
