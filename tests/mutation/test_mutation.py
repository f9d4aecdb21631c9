"""The sample of mutants, the tests of a line, and the outcomes; cosmic-ray itself is not tested."""

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, WorkerOutcome, WorkItem, WorkResult

from tests.mutation.covering_tests import IMPORT_TESTS, CoveringTests, statement_line
from tests.mutation.mutants import draw_mutants, find_mutants
from tests.mutation.mutation_report import CONTROL, EQUIVALENTS, NO_TEST, outcome_of, write_report

ROOT = Path(__file__).parents[2]
SOURCE = """
Number: TypeAlias = int | None

@kernel
@cython.exceptval(-1)
def larger(one: int | None, other: int) -> int | None:
    return one if one > other else one + other

@dataclass(slots=True)
class Held:
    def validate(self) -> None:
        assert self.count > 0
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module with types, a decorator without effect, and two operators."""
    path = tmp_path / "module.py"
    path.write_text(SOURCE, "utf-8")
    return path


def test_types_have_no_mutants(module: Path, tmp_path: Path) -> None:
    """A fault in an annotation would count as missed, though nothing evaluates it."""
    found = find_mutants([module], tmp_path / "scratch")
    assert {each.start_pos[0] for each in found} == {7, 9}
    assert {each.operator_name for each in found if each.start_pos[0] == 9} == {
        "core/RemoveDecorator"
    }
    assert {each.operator_name for each in found} >= {
        "core/ReplaceComparisonOperator_Gt_Lt",
        "core/ReplaceBinaryOperator_Add_Sub",
    }


def test_identity_for_equality_is_no_mutant(tmp_path: Path) -> None:
    """A survivor that no test can find would be looked at again and again."""
    module = tmp_path / "module.py"
    module.write_text("is_one = one == 1 or one is None\n", "utf-8")
    found = {each.operator_name for each in find_mutants([module], tmp_path / "scratch")}
    assert "core/ReplaceComparisonOperator_Eq_NotEq" in found
    assert {each for each in found if each.endswith(("Eq_Is", "Is_Eq"))} == set()


def test_a_marker_of_arguments_is_no_mutant(tmp_path: Path) -> None:
    """A module that cannot be parsed would count as a fault that no test found."""
    module = tmp_path / "module.py"
    module.write_text("def f(a, *, b):\n    return a * b\n", "utf-8")
    assert {each.start_pos for each in find_mutants([module], tmp_path / "scratch")} == {(2, 13)}


def test_a_place_is_drawn_once(module: Path, tmp_path: Path) -> None:
    """Operators with many replacements would be most of a sample, and one seed be many samples."""

    def drawn(count: int | None) -> list[MutationSpec]:
        return [each.mutations[0] for each in draw_mutants([module], count, 7, tmp_path / "s")]

    places = [(each.start_pos, each.operator_name.partition("_")[0]) for each in drawn(100)]
    assert len(places) == len(set(places)) < len(drawn(None))
    assert drawn(100) == drawn(100)
    assert len(drawn(2)) == 2


def test_a_line_belongs_to_its_innermost_statement() -> None:
    """A fault in the second line of a condition would run the tests of another statement."""
    source = "if (\n    a\n    and b\n):\n    c = (\n        1\n    )\n"
    assert [statement_line(source, line) for line in range(1, 8)] == [1, 1, 1, 1, 5, 5, 5]


def test_the_page_of_limits_is_looked_at_first() -> None:
    """A changed limit would survive: quick tests of the package would take all the time."""
    tests = CoveringTests.__new__(CoveringTests)
    page = f"{IMPORT_TESTS[0]}::test_page"
    tests._seconds = {page: 9.0, "tests/net/a.py::b": 0.1, "tests/model/a.py::b": 2.0}
    tests._seconds["tests/model/a.py::c"] = 1.0
    assert tests._ordered({*tests._seconds}, "tests/model/") == [
        *(page, "tests/model/a.py::c", "tests/model/a.py::b", "tests/net/a.py::b")
    ]


def _result(outcome: str, output: str) -> WorkResult:
    return WorkResult(WorkerOutcome.NORMAL, output, outcome, "-a\n+b")


@pytest.mark.parametrize(
    ("test_outcome", "output", "outcome"),
    [
        ("killed", ".F\nFAILED tests/a.py::test_a - assert 1 == 2\n", "killed"),
        ("killed", "\nERROR tests/a.py - TypeError\n", "killed"),
        ("killed", "ImportError while loading conftest '/a/conftest.py'.\n", "killed"),
        ("killed", "Fatal Python error: Segmentation fault\n", "killed"),
        ("killed", "timeout", "timed out"),
        ("killed", "no tests ran in 0.1s", "unclear"),
        ("survived", "2 passed", "survived"),
        ("survived", NO_TEST, "no test"),
    ],
)
def test_only_a_named_failure_kills(test_outcome: str, output: str, outcome: str) -> None:
    """Tests that did not run, as after a wrong name of a test, would count as a found fault."""
    assert outcome_of(_result(test_outcome, output)) == outcome


def test_the_report_counts_mutants_and_controls_apart(tmp_path: Path) -> None:
    """Controls would be survivors; a reader would miss a fault that no test found."""
    with use_db(str(tmp_path / "session"), WorkDB.Mode.create) as session:
        results = [
            ("a", "killed", "\nFAILED x"),
            ("b", "survived", "1 passed"),
            (CONTROL, "survived", ""),
        ]
        for number, (operator, outcome, output) in enumerate(results):
            mutant = MutationSpec(Path("src/a.py"), operator, 0, (3, 1), (3, 2))
            session.add_work_item(WorkItem.single(str(number), mutant))
            session.set_result(str(number), _result(outcome, output))
        line = write_report(session, tmp_path / "out" / "report.md")
    assert line.startswith("Tests found 1 of 2 mutants: 50.0% (95% interval 9.5% to 90.5%).")
    text = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "Without the listed" not in line
    assert "Controls, without a fault: 1 of 1 passed." in text
    assert "| src/a.py | 2 | 1 | 0 | 0 | 1 | 0 | 0 |" in text
    assert text.count("\n## ") == 1
    assert "## survived: src/a.py:3\n\nb in" in text


@pytest.mark.parametrize("change", EQUIVALENTS, ids=lambda change: f"{change[0]}:{change[1]}")
def test_listed_equivalents_are_in_the_source(change: tuple[str, str, str]) -> None:
    """A survivor could be excused by the reason of a line that is no longer there."""
    module, line, fault = change
    assert EQUIVALENTS[change]
    assert fault != line
    assert line in map(str.strip, (ROOT / module).read_text("utf-8").splitlines())


def test_a_listed_equivalent_is_no_survivor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known survivor would be examined after each run, or hide another fault of its line."""
    head = "--- mutation diff ---\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n"
    less, more = (
        WorkResult(WorkerOutcome.NORMAL, "1 passed", "survived", f"{head}-    a < b\n+    {fault}")
        for fault in ("a <= b", "a > b")
    )
    assert outcome_of(less) == "survived"
    monkeypatch.setitem(EQUIVALENTS, ("src/a.py", "a < b", "a <= b"), "they are never equal")
    assert outcome_of(less) == "equivalent"
    assert outcome_of(more) == "survived"
