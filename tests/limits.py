"""The named limits of the source, and docs/limits.md, which is made from them.

A limit is a field of a frozen `…Limits` class, which a user can set, or a constant at the top of a
module, which is fixed. Its docstring names the bound, then the behaviour beyond it: `Bytes of a
line. Beyond it: the line is a bad record.`

    python -m tests.limits
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from textwrap import fill
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "contrada"
PAGE: Final = SOURCE.parents[1] / "docs" / "limits.md"

NAME: Final = re.compile(r"[A-Z][A-Z_]*(_MAX(_US)?|_WAIT_S)")
"""What the name of a limit looks like; others may be limits too."""

NO_LIMITS: Final = {"model.domains.values:INT_MAX", "matching.filter_compiler:EXACT_MAX"}
"""The largest numbers there are: not bounds of something else."""

HEAD: Final = """# Limits

Every queue, table, recursion and time-out has a named limit. `make limits` makes this page from the
code. *Counted* means: in the statistics of the service, broker or process.

A limit in lower case, here with its default, is a field of a frozen `…Limits` class: pass a value
to the component, or `connect(limits=ct.Limits(…))`. A limit in upper case is a constant of a
format, protocol or kernel: search the source for its name, which no other has. Constants of caches,
which only cost time, of the output of commands and of simulations are left out. Behind → is the
behaviour beyond the limit.
"""

OPERATIONS: Final[dict[type, Callable[[float, float], float]]] = {
    ast.Add: operator.add,
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
    owner: str = ""  # the `…Limits` class of a field

    @property
    def place(self) -> str:
        """The constant as `module:NAME`, a field as `Class.name`."""
        return f"{self.owner}.{self.name}" if self.owner else f"{self.module}:{self.name}"

    @property
    def is_limit(self) -> bool:
        """Whether its name or its docstring says that it is a limit."""
        named = NAME.fullmatch(self.name.upper()) is not None and self.place not in NO_LIMITS
        return named or "Beyond it:" in self.docstring or self.owner != ""


@cache
def constants() -> tuple[Constant, ...]:
    """Every named number of the source, module by module."""
    return tuple(_constants())


def _constants() -> Iterator[Constant]:
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        body = ast.parse(path.read_text("utf-8"), path).body
        yield from _numbers_of(module, body)
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Limits"):
                yield from _numbers_of(module, node.body, node.name)


def _numbers_of(module: str, body: list[ast.stmt], owner: str = "") -> Iterator[Constant]:
    known: dict[str, float] = {}
    for node, below in pairwise((*body, ast.Pass())):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = number_of(node.value, known)
            if value is not None:
                known[node.target.id] = value
                yield Constant(module, node.target.id, value, docstring_of(below), owner)


def number_of(node: ast.expr | None, known: Mapping[str, float]) -> float | None:
    """The value of a number such as `16 * 2**20` or `SIZE_MAX + 1`; None where it is none."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = number_of(node.left, known), number_of(node.right, known)
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
    """Returns docs/limits.md as it must be: the settable limits, then the fixed ones."""
    settable = [limit for limit in limits() if limit.owner]
    fixed = [limit for limit in limits() if not limit.owner and is_of_users(limit)]
    parts = [HEAD]
    for owner, members in groupby(settable, lambda limit: limit.owner):
        parts += [f"\n## `{owner}`\n\n", *map(item, members)]
    for room, members in groupby(fixed, lambda limit: limit.module.partition(".")[0]):
        listed = "; ".join(f"`{each.name}` {value_text(each)}" for each in members)
        parts.append(f"\n## Fixed, in `{room}`\n\n{fill(listed, 118)}.\n")
    return "".join(parts)


def is_of_users(limit: Constant) -> bool:
    """Whether a fixed limit is neither of a cache nor of a command's output or the laboratory."""
    room = limit.module.partition(".")[0]
    return room not in {"cli", "lab"} and not re.search("CACHED_MAX|_KEPT_MAX", limit.name)


def item(limit: Constant) -> str:
    """Returns a settable limit as an item of the page, with its unit once."""
    bounds, _, beyond = limit.docstring.partition(". Beyond it: ")
    value, (unit, _, rest) = value_text(limit), bounds.partition(" ")
    if value[-1].isalpha() and unit in {"Bytes", "Seconds", "Microseconds"}:
        return f"- `{limit.name}` {value} {rest} → {beyond}\n"
    begin = bounds[0] if bounds[1].isupper() else bounds[0].lower()
    return f"- `{limit.name}` {value}: {begin}{bounds[1:]} → {beyond}\n"


def value_text(limit: Constant) -> str:
    """The value with its unit, which the name says last."""
    name = limit.name.upper()
    if "_BYTES" in name:
        units = ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1)
        unit, size = next((unit, size) for unit, size in units if limit.value % size == 0)
        return f"{int(limit.value) // size:,} {unit}"
    number = f"{limit.value:,}" if isinstance(limit.value, int) else f"{limit.value:g}"
    timed = re.search(r"_(US|S)(_MAX)?$", name)
    return number if timed is None else number + {"US": " µs", "S": " s"}[timed[1]]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
