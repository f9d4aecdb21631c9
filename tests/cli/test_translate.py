"""`contrada translate`."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.cli.translate import DIALECTS
from contrada.dialects.sql import rules as sql_rules
from contrada.records import read_subscriptions

SQL = """-- name: cheap
price < 5;
-- name: cheap
price < 3 and name like 'a%';
-- name: desk: new
side = 'buy';
lower(name) = 'x';
price > 5 and price < 3
"""


def translate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["translate", *map(str, arguments)])


@pytest.fixture
def conditions(tmp_path: Path) -> Path:
    """A file of conditions: three that can match, one that cannot, one that is refused."""
    path = tmp_path / "conditions.sql"
    path.write_text(SQL, "utf-8")
    return path


def test_the_output_is_a_file_of_subscriptions(conditions: Path) -> None:
    """What was translated could not be matched."""
    result = translate("--from", "sql", conditions)
    assert result.exit_code == 2
    found = read_subscriptions(result.stdout, "output")
    assert {name: str(each) for name, each in found.items()} == {
        "cheap": "price < 5",
        "cheap (2)": 'name prefix "a" and price < 3',
        "desk. new": 'side = "buy"',
    }
    assert "# line 8: nothing can match this rule" in result.stdout


def test_refusals_and_the_summary_stand_apart(conditions: Path) -> None:
    """A refusal would hide among the filters, or not say which rule it is and why."""
    stderr = translate("--from", "sql", conditions).stderr
    refusal = f"{conditions}: line 7: sql: line 1: a function, or a row of values: \"(name) = 'x'\""
    assert refusal in stderr
    table = " ".join(stderr[stderr.index("rules") :].split())
    for row in ("translated │ 4", "refused │ 1", "a function, or a row of values │ 1"):
        assert row in table


def test_json_has_every_rule_on_a_line(conditions: Path) -> None:
    """No other program could go on with what was translated and refused."""
    result = translate("--from", "sql", conditions, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["rule"] for each in found] == ["cheap", "cheap", "desk: new", "line 7", "line 8"]
    assert found[0] == {
        "file": str(conditions),
        "rule": "cheap",
        "filters": ["price < 5"],
        "residue": "",
    }
    assert found[3]["refused"] == "a function, or a row of values"
    assert found[3]["place"] == "line 1"
    assert "filters" not in found[3]


def test_what_filters_leave_open_is_told(tmp_path: Path) -> None:
    """A filter that matches more than its rule would pass as the rule."""
    (tmp_path / "x.cesql").write_text("a = 'x' AND LENGTH(b) = c\n", "utf-8")
    result = translate("--from", "cesql", tmp_path / "x.cesql")
    assert result.exit_code == 0
    comment, line = result.stdout.splitlines()
    assert comment.startswith("# line 1 leaves open: ")
    assert line.startswith("line 1: ")
    assert "with a residue │ 1" in " ".join(result.stderr.split())


def test_directories_are_gone_through(tmp_path: Path) -> None:
    """Thousands of rules in folders would have to be named one by one."""
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "two.SQL").write_text("x = 2")
    (tmp_path / "b" / "one.sql").write_text("x = 1")
    (tmp_path / "b" / "note.md").write_text("x = 3")
    result = translate("--from", "sql", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["line 1: x = 2", "line 1 (2): x = 1"]
    assert translate("--from", "cesql", tmp_path).exit_code == 2


def test_a_file_that_is_no_text_is_one_refusal(tmp_path: Path) -> None:
    """One bad file would end the work on all others."""
    (tmp_path / "a.sql").write_bytes(b"\xff\xfe")
    (tmp_path / "b.sql").write_text("x = 1")
    result = translate("--from", "sql", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "line 1: x = 1\n")
    assert "the file is not UTF-8" in result.stderr


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_refuses_what_is_none_of_its_rules(dialect: str, tmp_path: Path) -> None:
    """A dialect would be missing, or break on a file that is not its own."""
    assert callable(import_module(DIALECTS[dialect].module).read_rules)
    (tmp_path / "x").write_text('<xml a="b">\t{ [ ', "utf-8")
    result = translate("--from", dialect, tmp_path / "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_prometheus_may_be_of_rows(tmp_path: Path) -> None:
    """Conditions on several metrics could not be translated."""
    (tmp_path / "r.yml").write_text("rules: [{alert: A, expr: a > 5 and b < 3}]")
    assert translate("--from", "prometheus", tmp_path / "r.yml").exit_code == 2
    result = translate("--from", "prometheus", "--rows", tmp_path / "r.yml")
    assert (result.exit_code, result.stdout) == (0, "A: a > 5 and b < 3\n")
    assert translate("--from", "sql", "--rows", tmp_path / "r.yml").exit_code == 2


def test_ctrl_c_ends_quietly(conditions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ending long work would print a traceback."""

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sql_rules, "filters", interrupted)
    result = translate("--from", "sql", conditions)
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_help_explains_with_examples() -> None:
    """A person could not find out how to use it."""
    result = translate("--help")
    assert result.exit_code == 0
    assert "\n  contrada translate --from sigma" in result.output


@pytest.mark.shared_data
def test_rules_of_the_world_translate(shared_data: Callable[..., Path]) -> None:
    """Alerts of Prometheus would be lost on the way through the command."""
    path = shared_data("rules_other", "prometheus_rules.yml")
    result = translate("--from", "prometheus", "--rows", path)
    assert result.exit_code == 2
    assert len(read_subscriptions(result.stdout, "output")) == 353
