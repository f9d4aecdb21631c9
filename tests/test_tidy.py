"""Holds the house style that no other tool holds: lengths, names, docstrings of tests, links.

Docstrings of the source but for methods are held by ruff (rules D), imports by import-linter.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PLACES = (
    *("src", "tests", "bench", "examples", "deploy", "docs", "native", "scripts"),
    *("requirements", "website"),
    *(".ci", ".github", "clients"),
)
NOT_TEXT = {".gz", ".ico", ".parquet", ".png", ".so", ".zip"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

SOURCE_LINES_MAX = {"module": 600, "class": 400, "function": 60}

# Longer ones that are being rebuilt. An entry is removed when it is short enough; none is added.
TOO_LONG: set[str] = set()

# Classes that have the methods of a protocol, which documents them, without deriving from it.
IN_THE_FORM_OF = {
    "DurableClient": "LogHost",
    "FileSource": "DataSource",
    "FunctionSource": "DataSource",
    "MemoryStore": "Store",
    "PostgresTables": "Database",
    "QueryTransport": "QueryClient",
    "RecordSource": "DataSource",
    "SqliteTables": "Database",
    "TableSource": "DataSource",
    "TableStore": "Store",
}

# Written in pieces, so that this file does not contain the searched text.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.}])/(?:" + r"wo" + r"rk|tm" + r"p|op" + r"t)/"),
    "an address of a package registry": re.compile(r"py" + r"pi\.org|python" + r"hosted"),
    "the number of a task": re.compile(r"\bissues? #?\d", re.IGNORECASE),
}

MARKDOWN_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)[^)]*\)")
CODE_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def text_files() -> Iterator[Path]:
    """Every text file of the project, without what tools and brokers started here have made."""
    for path in REPOSITORY.iterdir():
        if path.is_file() and path.name != ".git" and not path.name.startswith("contrada.db"):
            yield path
    for place in PLACES:
        for path in (REPOSITORY / place).rglob("*"):
            made = not {"__pycache__", "node_modules", "dist"}.isdisjoint(path.parts)
            if path.is_file() and not made and path.suffix not in NOT_TEXT:
                yield path


def python_files() -> Iterator[Path]:
    """Every module of the project, tests included."""
    return (path for path in text_files() if path.suffix == ".py")


def named(path: Path, line: int = 1) -> str:
    """A place in the project, as an editor understands it."""
    return f"{path.relative_to(REPOSITORY)}:{line}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a class or function from its first word to its end."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_modules_are_short() -> None:
    """A module would grow past what a reader can hold."""
    lengths = {named(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES_MAX} == {}


@pytest.mark.slow
def test_functions_are_short() -> None:
    """A function would grow past one screen."""
    too_long = {
        f"{named(path, function.lineno)} {function.name}": lines_of(function)
        for path in python_files()
        for function in functions(path)
        if lines_of(function) > FUNCTION_LINES_MAX
    }
    assert too_long == {}


@cache
def source_lengths() -> tuple[tuple[str, str, int], ...]:
    """The modules, classes and functions of the source, each with its kind and its lines."""
    return tuple(_source_lengths())


def _source_lengths() -> Iterator[tuple[str, str, int]]:
    for path in (REPOSITORY / "src").rglob("*.py"):
        place = str(path.relative_to(REPOSITORY))
        text = path.read_text("utf-8")
        yield place, "module", len(text.splitlines())
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                yield f"{place} {node.name}", kind, lines_of(node)


def test_the_source_is_in_short_pieces() -> None:
    """A part of the source would grow past what a reader holds; or be excused for nothing."""
    too_long = {place for place, kind, n in source_lengths() if n > SOURCE_LINES_MAX[kind]}
    assert too_long == TOO_LONG


def test_public_methods_have_their_docstring_or_that_of_a_base() -> None:
    """A caller would not find the contract of a method; an override need not repeat it."""
    classes = {
        node.name: node
        for path in (REPOSITORY / "src").rglob("*.py")
        for node in ast.parse(path.read_text("utf-8"), path).body
        if isinstance(node, ast.ClassDef)
    }

    def is_documented(of: ast.ClassDef, method: str) -> bool:
        own = (each for each in of.body if getattr(each, "name", None) == method)
        if any(isinstance(each, FUNCTIONS) and ast.get_docstring(each) for each in own):
            return True
        bases = [ast.unparse(each).partition("[")[0] for each in of.bases]
        above = map(classes.get, [*bases, IN_THE_FORM_OF.get(of.name, "")])
        return any(base is not None and is_documented(base, method) for base in above)

    assert {
        f"{of.name}.{each.name}"
        for of in classes.values()
        for each in of.body
        if isinstance(each, FUNCTIONS)
        and not (of.name.startswith("_") or each.name.startswith("_"))
        and not is_documented(of, each.name)
    } == set()


def test_no_two_classes_have_one_name() -> None:
    """A reader would take one concept for another."""
    names = Counter(name.lstrip("_") for name in class_and_alias_names())
    assert {name for name, count in names.items() if count > 1} == set()


def class_and_alias_names() -> Iterator[str]:
    """The names of all classes of the source, and of what its modules declare as a `TypeAlias`."""
    for path in (REPOSITORY / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"), path)):
            if isinstance(node, ast.ClassDef):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                yield ast.unparse(node.target)


def test_no_module_is_called_utils() -> None:
    """A module would be named for nothing, and everything would gather in it."""
    found = [named(path) for path in python_files() if path.stem in {"util", "utils"}]
    assert found == []


def test_packages_have_an_init() -> None:
    """A room without `__init__.py` would escape the import contract."""
    directories = {path.parent for path in (REPOSITORY / "src" / "contrada").rglob("*.py")}
    missing = [named(each) for each in directories if not (each / "__init__.py").exists()]
    assert missing == []


@pytest.mark.slow
def test_tests_say_what_they_hold() -> None:
    """A test would fail and nobody could say what is broken."""
    silent = [
        f"{named(path, function.lineno)} {function.name}"
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


@pytest.mark.parametrize("room", ["matching", "patterns", "routing"])
def test_every_module_has_its_own_tests(room: str) -> None:
    """A module would be held only by what stands far above it."""
    modules = {path.stem for path in (REPOSITORY / "src" / "contrada" / room).rglob("*.py")}
    tests = {path.stem for path in (REPOSITORY / "tests" / room).glob("test_*.py")}
    assert {f"test_{each}" for each in modules - {"__init__"}} - tests == set()


def test_tests_on_shared_data_are_marked() -> None:
    """`make verify` would pass over a test that reads the shared data."""
    unmarked = [
        named(path)
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if path.name != "test_shared_data.py"  # which makes its own
        and re.search(r"(from|import) tests\.shared_data\b", text := path.read_text("utf-8"))
        and "mark.shared_data" not in text
    ]
    assert unmarked == []


def test_tests_of_spark_are_in_one_place() -> None:
    """A run of the tests outside the Spark room would start Spark, or fail without Java."""
    starts_spark = re.compile(r"SparkSession\s*\.\s*builder")
    outside = [
        named(path)
        for path in (REPOSITORY / "tests").rglob("*.py")
        if "spark" not in path.relative_to(REPOSITORY).parts
        and starts_spark.search(path.read_text("utf-8"))
    ]
    assert outside == []


def test_pure_rooms_are_pure_at_their_door() -> None:
    """The import contract's wildcards leave out a room's own `__init__`; a clock could enter."""
    config = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    contracts = {each["id"]: each for each in config["tool"]["importlinter"]["contracts"]}
    pure = contracts["pure-core"]
    found = [
        f"{named(door, node.lineno)} imports {name}"
        for source in pure["source_modules"]
        for door in doors(source.removesuffix(".*"))
        for node, name in imports(door)
        if name.partition(".")[0] in pure["forbidden_modules"]
    ]
    assert found == []


@pytest.mark.slow
def test_no_module_imports_a_package_it_lies_in() -> None:
    """A circle of imports would be left that the import contract does not look at."""
    source = REPOSITORY / "src"
    found = [
        f"{named(path, node.lineno)} imports {alias.name} of {node.module}"
        for path in (source / "contrada").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"), path))
        if isinstance(node, ast.ImportFrom) and node.module
        if (package := source / Path(*node.module.split("."))) in path.parents
        for alias in node.names
        if path.name != "__init__.py" or package != path.parent
        if not (package / f"{alias.name}.py").exists() and not (package / alias.name).is_dir()
    ]
    assert found == []


def doors(module: str) -> Iterator[Path]:
    """The file that is the module itself, when it exists."""
    path = REPOSITORY / "src" / Path(*module.split("."))
    yield from (door for door in (path.with_suffix(".py"), path / "__init__.py") if door.exists())


def imports(path: Path) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Every module that a module imports by name, and where."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_names_a_machine_or_a_task(what: str) -> None:
    """The project would hold something that is only true where it was written."""
    found = [
        f"{named(path, number)} {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


def test_links_between_documents_resolve() -> None:
    """A reader would follow a link into nothing, or out of the project."""
    broken = [
        f"{named(path)} -> {target}"
        for path in text_files()
        if path.suffix == ".md"
        for target in MARKDOWN_LINK.findall(CODE_FENCE.sub("", path.read_text("utf-8")))
        if not re.match(r"[a-z][a-z0-9+.-]*:|#", target) and not resolves(path, target)
    ]
    assert broken == []


def resolves(document: Path, target: str) -> bool:
    """Whether a link of a document leads to a file of the project; what is made counts as there."""
    path = (document.parent / target.partition("#")[0]).resolve()
    return path.is_relative_to(REPOSITORY) and (
        path.exists() or (REPOSITORY / "out") in path.parents
    )
