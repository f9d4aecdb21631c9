"""Alerts: rules of dialects as one subscription."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.cli.rule_alerts import RuleAlerts
from contrada.errors import InputError
from contrada.model import Envelope, Notification

AT = Envelope(time_us=1_000_000)


def test_each_matching_rule_gives_an_alert(tmp_path: Path) -> None:
    """A notification would be printed once for several rules, or for one whose residue fails."""
    path = tmp_path / "rules.cesql"
    path.write_text("a = 1 AND c + 0 = 0\na = 1\nb = 'x'\n")
    alerts = RuleAlerts(path, "cesql")
    both = Notification({"a": 1, "c": 0}, envelope=AT)
    assert list(alerts.lines(both, as_json=False)) == [
        "1970-01-01T00:00:01Z  line 1  a=1  c=0",
        "1970-01-01T00:00:01Z  line 2  a=1  c=0",
    ]
    (one,) = alerts.lines(Notification({"a": 1, "c": 1}), as_json=True)
    assert json.loads(one)["subscription"] == "line 2"
    only_residue = Notification({"a": 1, "c": 1})
    assert alerts.filters.matches(only_residue)


def test_titles_and_levels_are_shown(tmp_path: Path) -> None:
    """A person would have to look the alert up by its id."""
    (tmp_path / "a.yml").write_text(
        "title: Odd logon\nid: 5d7a1b1e-8a77-4f3c-9d7b-1c0f6f1a0002\nlevel: high\n"
        "detection: {s: {user: root}, condition: s}\n"
    )
    (tmp_path / "b.yml").write_text(
        "groups: [{rules: [{alert: Down, expr: up == 0, labels: {severity: page}, "
        "annotations: {summary: A job is down}}]}]\n"
    )
    (found,) = RuleAlerts(tmp_path / "a.yml", "sigma").lines(
        Notification({"user": "root"}), as_json=False
    )
    rule = "rule 5d7a1b1e-8a77-4f3c-9d7b-1c0f6f1a0002:"
    assert found == f'[high]  Odd logon  {rule}  user="root"'
    sample = Notification({"__name__": "up", "value": 0})
    (line,) = RuleAlerts(tmp_path / "b.yml", "prometheus").lines(sample, as_json=False)
    assert line.startswith("[page]  A job is down  rule Down:  ")


def test_keywords_are_searched_where_an_option_says(tmp_path: Path) -> None:
    """Rules with keywords could be read in Python only."""
    (tmp_path / "a.yml").write_text("title: t\nid: 1\ndetection: {k: [root], condition: k}\n")
    (tmp_path / "a.jsonl").write_text('{"Message":"by root"}\n{"user":"root"}\n')
    rules = ["--from", "sigma", "--keywords", "Message", str(tmp_path / "a.yml")]
    found = CliRunner().invoke(main, ["match", *rules, str(tmp_path / "a.jsonl")])
    assert [json.loads(line)["record"] for line in found.stdout.splitlines()] == [1]
    assert CliRunner().invoke(main, ["translate", *rules]).exit_code == 0
    alerts = RuleAlerts(tmp_path / "a.yml", "sigma", keywords=("Message",))
    assert len(list(alerts.lines(Notification({"Message": "roots"}), as_json=True))) == 1
    (tmp_path / "a.sql").write_text("x = 1;")
    wrong = ["--from", "sql", "--keywords", "x", str(tmp_path / "a.sql")]
    for command in (
        ["match", *wrong, str(tmp_path / "a.jsonl")],
        ["sub", *wrong],
        ["translate", *wrong],
    ):
        assert CliRunner().invoke(main, command).exit_code == 2


def test_pipelines_are_applied_by_each_command(tmp_path: Path) -> None:
    """Events with the names of a store could be matched in Python only, or a bad file be read."""
    (tmp_path / "a.yml").write_text("title: t\nid: 1\ndetection: {s: {f: root}, condition: s}\n")
    (tmp_path / "a.jsonl").write_text('{"f":"root"}\n{"user":"root"}\n')
    steps = "transformations: [{type: field_name_mapping, mapping: {f: user}}]"
    (tmp_path / "p.yaml").write_text(steps)
    rules = ["--from", "sigma", "--pipeline", str(tmp_path / "p.yaml"), str(tmp_path / "a.yml")]
    found = CliRunner().invoke(main, ["match", *rules, str(tmp_path / "a.jsonl")])
    assert [json.loads(line)["record"] for line in found.stdout.splitlines()] == [2]
    translated = CliRunner().invoke(main, ["translate", *rules])
    assert "user = nocase 'root'" in translated.stdout.replace('"', "'")
    (tmp_path / "p.yaml").write_text("transformations: [{type: regex}]")
    commands = (
        ["match", *rules, str(tmp_path / "a.jsonl")],
        ["sub", *rules],
        ["translate", *rules],
    )
    for command in commands:
        refused = CliRunner().invoke(main, command)
        assert refused.exit_code == 2
        assert "p.yaml: sigma: pipeline" in refused.stderr
    for command in commands:
        other = [{"sigma": "cesql"}.get(each, each) for each in command]
        assert "--pipeline is for sigma only" in CliRunner().invoke(main, other).stderr


def test_rules_are_needed(tmp_path: Path) -> None:
    """A subscription would wait forever for nothing."""
    (tmp_path / "a.sql").write_text("x = ;")
    with pytest.raises(InputError, match="found no rule of sql that can be read"):
        RuleAlerts(tmp_path / "a.sql", "sql")
    for wrong in (["--from", "sql"], ["--from", "sql", "a.sql", "--envelope"]):
        assert CliRunner().invoke(main, ["sub", *wrong]).exit_code == 2
