"""The report of a session of mutants: rates by module, and each mutant that no test found.

Survivors that `equivalents.toml` lists, each with a reason, are *equivalent*: nobody can notice
them. The rate is given with and without them.
"""

import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, WorkResult
from scipy.stats import binomtest

CONTROL: Final = "core/NoOp"
"""The operator of cosmic-ray that changes nothing: tests that fail with it fail by themselves."""

FAILURES: Final = (
    *("\nFAILED ", "\nERROR "),
    *("ImportError while loading conftest", "Fatal Python error"),
)
"""What pytest writes of a failed test, of modules that no test can import, and of a crash."""

NO_TEST: Final = "no test executes this line"
FOUND: Final = ("killed", "timed out")
OUTCOMES: Final = (*FOUND, "equivalent", "survived", "no test", "unclear")


def read_equivalents() -> dict[tuple[str, str, str], str]:
    """Returns the reasons by module, and by the line without and with the fault."""
    listed = tomllib.loads(Path(__file__).with_name("equivalents.toml").read_text("utf-8"))
    return {
        (module, each["line"], each["fault"]): each["reason"]
        for module, mutants in listed.items()
        for each in mutants
    }


EQUIVALENTS: Final = read_equivalents()


def outcome_of(result: WorkResult) -> str:
    """Returns one of `OUTCOMES`.

    A mutant that prevents the import of the package, or crashes the process, is killed. One is
    unclear if the tests ended otherwise without the name of a failed one.
    """
    output = result.output or ""
    if output == NO_TEST:
        return "no test"
    if not result.is_killed:
        return "equivalent" if change_of(result) in EQUIVALENTS else "survived"
    if output == "timeout":
        return "timed out"
    return "killed" if any(each in output for each in FAILURES) else "unclear"


def change_of(result: WorkResult) -> tuple[str, str, str]:
    """Returns the module of a mutant, and its first changed line without and with the fault."""
    lines: list[str] = (result.diff or "").splitlines()
    module = _first(lines, "+++ b/")
    changed = [each for each in lines if not each.startswith(("---", "+++"))]
    return module, _first(changed, "-"), _first(changed, "+")


def _first(lines: list[str], prefix: str) -> str:
    """Returns the rest of the first line with a prefix."""
    found = (each.removeprefix(prefix).strip() for each in lines if each.startswith(prefix))
    return next(found, "")


def write_report(session: WorkDB, path: Path) -> str:
    """Writes the report of the results so far. Returns its line of totals."""
    results = [(item.mutations[0], result) for item, result in session.completed_work_items]
    mutants = [each for each in results if each[0].operator_name != CONTROL]
    controls = [result for mutant, result in results if mutant.operator_name == CONTROL]
    total = _totals([outcome_of(result) for _, result in mutants])
    by_module: dict[str, list[str]] = defaultdict(list)
    for mutant, result in mutants:
        by_module[str(mutant.module_path)].append(outcome_of(result))
    passed = sum(not each.is_killed for each in controls)
    text = [
        "# Mutants",
        f"{total}\n",
        f"Controls, without a fault: {passed} of {len(controls)} passed.\n",
        f"| module | mutants | {' | '.join(OUTCOMES)} |",
        "|---" * (len(OUTCOMES) + 2) + "|",
        *(_row(module, outcomes) for module, outcomes in sorted(by_module.items())),
        "",
        *(
            _section(mutant, result)
            for mutant, result in sorted(
                mutants, key=lambda each: (each[0].module_path, each[0].start_pos)
            )
            if outcome_of(result) not in FOUND
        ),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text), "utf-8")
    return f"{total} See {path}."


def _totals(outcomes: list[str]) -> str:
    found = sum(each in FOUND for each in outcomes)
    if not outcomes:
        return "No mutants."
    text = f"Tests found {_rate(found, len(outcomes))}."
    noticeable = len(outcomes) - outcomes.count("equivalent")
    if 0 < noticeable < len(outcomes):
        text += f" Without the listed equivalent ones: {_rate(found, noticeable)}."
    return text


def _rate(found: int, mutants: int) -> str:
    interval = binomtest(found, mutants).proportion_ci(method="wilson")
    return (
        f"{found} of {mutants} mutants: {found / mutants:.1%}"
        f" (95% interval {interval.low:.1%} to {interval.high:.1%})"
    )


def _row(module: str, outcomes: list[str]) -> str:
    counts = Counter(outcomes)
    numbers = (len(outcomes), *(counts[each] for each in OUTCOMES))
    return f"| {module} | {' | '.join(map(str, numbers))} |"


def _section(mutant: MutationSpec, result: WorkResult) -> str:
    reason = EQUIVALENTS.get(change_of(result), "")
    return (
        f"## {outcome_of(result)}: {mutant.module_path}:{mutant.start_pos[0]}\n\n"
        f"{mutant.operator_name} in `{mutant.definition_name}`\n\n{reason}\n\n"
        f"```diff\n{result.diff}\n```\n"
    )
