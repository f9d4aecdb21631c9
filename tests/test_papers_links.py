"""Holds docs/papers.md: what it says is built and tested exists under the names it gives."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAPERS = REPOSITORY / "docs" / "papers.md"

COLUMNS = ["claim", "code and tests", "deviation"]
NOT_YET = "—"
BREAKS = re.compile(r"\s*(?:,|;|<br\s*/?>|\s)\s*")


SOURCE = re.compile(r"\bSource: ([^\n]+)")
CITED = (
    *("PODC 2000", "CU-CS-946-03", "CU-CS-948-03", "Erenkrantz 2001", "EPFL 2503"),
    *("Kleene, ", "Knuth, ", "Thompson, ", "the syntax page of RE2", "RFC ", "ISO/IEC 9075-2"),
    *("AWS EventBridge User Guide", "AWS Event Ruler", "CloudEvents", "Sigma specification 2.1.0"),
    *(
        "Prometheus 3's documentation",
        "E. Cohen, ",
        "pySigma 2.0.1",
        "Microsoft, ",
        "JSON Feed 1.1",
        "the AsyncAPI Specification 3.0.0",
        "the OpenAPI Specification 3.1.0",
        "NATS client protocol",
        "Jakarta Messaging 3.1",
        "Falco documentation",
        "RabbitMQ documentation",
        "Google Cloud Pub/Sub documentation",
        "Azure Service Bus documentation",
    ),
)
"""How sources are cited: the papers as this page heads them, and works beside them."""


def cells_of(line: str) -> list[str]:
    """The cells of a table's row; a border after a backslash is text."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def rows() -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row of every table, heads and rulers left out."""
    for number, line in enumerate(PAPERS.read_text("utf-8").splitlines(), start=1):
        if not line.startswith("|"):
            continue
        cells = cells_of(line)
        if cells != COLUMNS and not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            yield number, cells


def names_in(cell: str) -> list[str]:
    """The names in a cell, without their backticks; none when it says that there is nothing yet."""
    return [] if cell == NOT_YET else [name for name in BREAKS.split(cell.replace("`", "")) if name]


def fault_of_code(name: str) -> str | None:
    """Why `module:attribute` does not lead to code of the project, or None."""
    module, colon, attribute = name.partition(":")
    if not colon or module.partition(".")[0] != "contrada":
        return "expected contrada.module:name"
    try:
        attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        return str(error)
    return None


def fault_of_test(name: str) -> str | None:
    """Why `tests/path::name` does not lead to a test or a conformance file, or None."""
    file, *inner = name.split("::")
    path = REPOSITORY / file
    if not file.startswith("tests/") or not path.is_file():
        return "no such file of tests/"
    if inner and "::".join(inner) not in defined_in(path):
        return f"no {'::'.join(inner)} in that file"
    if not inner and path.suffix == ".py":
        return "expected tests/path.py::name"
    return None


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The names of a module's functions and classes, methods as `Class::method`."""
    tree = ast.parse(path.read_text("utf-8"), path)
    definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    top = [node for node in tree.body if isinstance(node, definition)]
    methods = {
        f"{node.name}::{inner.name}"
        for node in top
        if isinstance(node, ast.ClassDef)
        for inner in node.body
        if isinstance(inner, definition)
    }
    return frozenset({node.name for node in top} | methods)


def faults() -> Iterator[str]:
    """All that does not resolve, with its line."""
    for number, cells in rows():
        place = f"{PAPERS.relative_to(REPOSITORY)}:{number}"
        if len(cells) != len(COLUMNS):
            yield f"{place} has {len(cells)} cells, expected {len(COLUMNS)}"
            continue
        names = names_in(cells[1])
        are_tests = [name.startswith("tests/") for name in names]
        if names and (all(are_tests) or not any(are_tests)):
            yield f"{place} names code without a test, or a test without code"
        for name, is_test in zip(names, are_tests, strict=True):
            fault = fault_of_test(name) if is_test else fault_of_code(name)
            if fault is not None:
                yield f"{place} {name}: {fault}"


def test_every_claim_resolves() -> None:
    """The page would claim code or tests that are not there."""
    assert list(faults()) == []


def test_the_table_has_its_columns() -> None:
    """Rows would be read against other columns than their author meant."""
    lines = PAPERS.read_text("utf-8").splitlines()
    heads = [
        cells_of(above) for above, line in pairwise(lines) if re.fullmatch(r"\|[\s:|-]+\|", line)
    ]
    assert heads
    assert all(head == COLUMNS for head in heads)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("contrada.errors:ContradaError", None),
        ("contrada.errors:NoSuchError", "no attribute"),
        ("contrada.no_such_room:name", "No module named"),
        ("json:loads", "expected contrada"),
    ],
)
def test_code_is_looked_up(name: str, fault: str | None) -> None:
    """A name that leads nowhere would pass."""
    found = fault_of_code(name)
    assert found == fault or (fault is not None and found is not None and fault in found)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tests/test_papers_links.py::test_tests_are_looked_up", None),
        ("tests/test_papers_links.py::test_gone", "no test_gone in that file"),
        ("tests/test_gone.py::test_x", "no such file of tests/"),
        ("tests/test_papers_links.py", "expected tests/path.py::name"),
    ],
)
def test_tests_are_looked_up(name: str, fault: str | None) -> None:
    """A test that does not exist would pass."""
    assert fault_of_test(name) == fault


def test_sources_are_cited_by_the_names_of_the_page() -> None:
    """One paper would have several names, and a reader would not find all that comes from it."""
    cited = [
        (module.name, source)
        for module in (REPOSITORY / "src").rglob("*.py")
        for source in SOURCE.findall(module.read_text("utf-8"))
    ]
    assert len(cited) > 50
    assert [each for each in cited if not each[1].startswith(CITED)] == []
