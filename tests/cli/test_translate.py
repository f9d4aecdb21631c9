"""`contrada translate`."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lark import Lark

from contrada.cli import main
from contrada.integrations.dialects.sql import sql_reader
from contrada.integrations.files.subscription_files import DIALECTS, read_subscriptions
from contrada.model import Filter

SQL = """-- name: cheap
price < 5;
-- name: cheap
price < 3 and name like 'a%';
-- name: desk: new
side = 'buy';
lower(name) = 'x';
price > 5 and price < 3
"""


def translate(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["translate", *map(str, arguments)], input=stdin)


@pytest.fixture
def conditions(tmp_path: Path) -> Path:
    """A file of conditions: three that can match, one that cannot, one that is refused."""
    path = tmp_path / "conditions.sql"
    path.write_text(SQL, "utf-8")
    return path


def test_the_output_is_a_file_of_subscriptions(conditions: Path) -> None:
    """Translated rules could not be matched."""
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
    """A refusal would hide among the filters, or lack its rule and reason."""
    stderr = translate("--from", "sql", conditions).stderr
    refusal = f"{conditions}: line 7: sql: line 7: a function, or a row of values: \"(name) = 'x'\""
    assert refusal in stderr
    table = " ".join(stderr[stderr.index("rules") :].split())
    for row in ("translated │ 4", "refused │ 1", "a function, or a row of values │ 1"):
        assert row in table


def test_json_has_every_rule_on_a_line(conditions: Path) -> None:
    """Other programs could not read translations and refusals."""
    result = translate("--from", "sql", conditions, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["rule"] for each in found] == ["cheap", "cheap", "desk: new", "line 7", "line 8"]
    assert found[0] == {
        "file": str(conditions),
        "rule": "cheap",
        "filters": ["price < 5"],
        "residue": "",
        "notes": [],
        "about": {},
    }
    assert found[3]["refused"] == "a function, or a row of values"
    assert found[3]["place"] == "line 7"
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


def test_notes_of_rules_are_listed_and_counted(tmp_path: Path) -> None:
    """A rule for events of one source would silently match those of all."""
    path = tmp_path / "rules.yml"
    rules = ["linux", "windows", "WINDOWS"]
    path.write_text(
        "".join(
            f"---\ntitle: {product}\nlogsource: {{product: {product}, service: Sysmon}}\n"
            "detection: {s: {x: 1}, condition: s}\n"
            for product in rules
        ),
        "utf-8",
    )
    result = translate("--from", "sigma", path)
    note = "a log source that constrains nothing: product linux, service sysmon"
    assert [line for line in result.stdout.splitlines() if line[:1] == "#"] == [
        f"# linux has {note}"
    ]
    assert {*read_subscriptions(result.stdout, "output")} == {*rules}
    assert "with a log source that constrains nothing │ 1" in " ".join(result.stderr.split())
    given = [
        json.loads(line)
        for line in translate("--from", "sigma", path, "--json").stdout.splitlines()
    ]
    assert [each["notes"] for each in given] == [[note], [], []]


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
    refusal = f"{tmp_path / 'a.sql'}: byte 1 is not UTF-8"
    assert refusal in result.stderr.splitlines()
    assert "not UTF-8 │ 1" in " ".join(result.stderr.split())


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff\n"])
def test_a_file_without_a_rule_ends_alike_in_every_dialect(dialect: str, text: str) -> None:
    """The status of an empty file would depend on the dialect."""
    result = translate("--from", dialect, "-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "-: found no rule in the file" in result.stderr.splitlines()


def test_comments_alone_are_no_rules() -> None:
    """A file whose rules were all commented out would pass as translated."""
    for dialect in ("sigma", "cesql"):
        assert "found no rule" in translate("--from", dialect, "-", stdin="# none\n").stderr


def test_what_authors_say_of_rules_is_told(tmp_path: Path) -> None:
    """The author of a rule would be lost in the file of subscriptions."""
    rule = "title: Odd\nauthor: [Ann, Bob]\nlogsource: {}\ndetection: {s: {f: 1}, condition: s}\n"
    result = translate("--from", "sigma", "-", stdin=rule)
    assert "# Odd has author: Ann, Bob\n" in result.stdout
    [line] = translate("--from", "sigma", "--json", "-", stdin=rule).stdout.splitlines()
    assert json.loads(line)["about"] == {"title": "Odd", "author": ["Ann", "Bob"]}


def test_lone_surrogates_in_rules_are_shown_as_escapes() -> None:
    """A rule whose name or error cannot be encoded would end the work."""
    lines = '{"id": "\\ud800", "source": "a"}\n{"id": "b", "types": ["\\udc80"]}'
    result = translate("--from", "cloudevents", "--json", "-", stdin=lines)
    assert [json.loads(line)["rule"] for line in result.stdout.splitlines()] == ["\\ud800", "2"]
    assert translate("--from", "cloudevents", "-", stdin=lines).stdout.startswith("\\ud800: ")
    pattern = '{"a\\ud800": [1]}'
    [line] = translate("--from", "eventbridge", "--json", "-", stdin=pattern).stdout.splitlines()
    assert "a\\ud800" in json.loads(line)["message"]


def test_standard_input_is_read() -> None:
    """Rules from another program would need a file."""
    result = translate("--from", "sql", "-", stdin="x = 1;\ny <")
    assert (result.exit_code, result.stdout) == (2, "line 1: x = 1\n")
    assert "-: line 2: sql: line 2: not a condition" in result.stderr


def test_prepared_rules_are_reached(tmp_path: Path) -> None:
    """Sigma rules that others translated could only be read in Python."""
    rule = {"id": "r", "logsource": {}, "any_of": [[["a", "prefix", "x"]]]}
    (tmp_path / "r.jsonl").write_text(json.dumps(rule))
    result = translate("--from", "sigma", "--prepared", tmp_path)
    assert (result.exit_code, result.stdout) == (0, 'r: a prefix nocase "x"\n')
    assert translate("--from", "sql", "--prepared", tmp_path).exit_code == 2


def test_placeholders_are_filled_in(tmp_path: Path) -> None:
    """Rules with placeholders could not be translated by the command."""
    (tmp_path / "p.json").write_text('{"admins": ["ann", "bob"]}')
    (tmp_path / "r.yml").write_text(
        "title: t\nlogsource: {product: x}\n"
        "detection: {s: {user|expand: '%admins%'}, condition: s}\n"
    )
    without = translate("--from", "sigma", tmp_path / "r.yml")
    assert without.exit_code == 2
    result = translate("--from", "sigma", "--placeholders", tmp_path / "p.json", tmp_path / "r.yml")
    assert result.exit_code == 0
    [found] = read_subscriptions(result.stdout, "output").values()
    assert found == Filter("user in nocase ('ann', 'bob')")
    for text in ("[]", '{"a": "x"}', "\udcff"):
        (tmp_path / "p.json").write_text(text, "utf-8", "surrogateescape")
        bad = translate(
            "--from", "sigma", "--placeholders", tmp_path / "p.json", tmp_path / "r.yml"
        )
        assert bad.exit_code == 2
        assert f"{tmp_path / 'p.json'}: expected an object" in bad.stderr


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

    def interrupted(text: str, line: int, parser: Lark) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sql_reader, "parse_filters", interrupted)
    result = translate("--from", "sql", conditions)
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_help_explains_with_examples() -> None:
    """A person could not find out how to use it."""
    result = translate("--help")
    assert result.exit_code == 0
    assert "\n  contrada translate --from sigma" in result.output
    for dialect, (_, suffixes, _) in DIALECTS.items():
        [line] = [each for each in result.output.splitlines() if each.startswith(f"  {dialect} ")]
        assert all(suffix in line.split() for suffix in suffixes)


@pytest.mark.shared_data
def test_rules_of_the_world_translate(shared_data: Callable[..., Path]) -> None:
    """Alerts of Prometheus would be lost on the way through the command."""
    path = shared_data("rules_other", "prometheus_rules.yml")
    result = translate("--from", "prometheus", "--rows", path)
    assert result.exit_code == 2
    assert len(read_subscriptions(result.stdout, "output")) == 357
