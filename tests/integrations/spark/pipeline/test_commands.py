"""`contrada pipeline run` with each of its options, in an existing session."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from contrada.cli import main
from contrada.cli.pipeline import SUBSCRIPTIONS_LISTED_MAX, _rate
from contrada.integrations.spark.pipeline import pipeline_run as running
from contrada.integrations.spark.pipeline.run_folder import lock_output

DESCRIPTION = """
subscriptions = "subs"
output = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["*.csv"]
"""


class Commands:
    """Runs the command on a description in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *options: str) -> Result:
        """Runs the command."""
        command = ["pipeline", "run", str(self.folder / "p.toml"), "--engine", "spark"]
        return CliRunner().invoke(main, [*command, *options])


@pytest.fixture
def commands(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Two rows, one of which matches, and their description."""
    (tmp_path / "a.csv").write_text("n\n1\n5\n")
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "p.toml").write_text(DESCRIPTION)
    monkeypatch.setattr("contrada.cli.pipeline.spark_session", lambda *_, **__: nullcontext(spark))
    return Commands(tmp_path)


def test_a_dry_run_describes_the_run(commands: Commands) -> None:
    """Faults of a pipeline would show only in a run."""
    found = commands.run("--dry-run")
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.startswith("1 subscription of ")
    assert "source rows: 1 path; csv; 1 filter by an index in workers" in found.stdout
    assert not (commands.folder / "out").exists()


@pytest.mark.parametrize(
    ("rate", "shown"), [(0.0, "0"), (0.254, "0.25"), (9.96, "10.0"), (12.4, "12"), (1e5, "100,000")]
)
def test_rates_of_small_runs_are_shown(rate: float, shown: str) -> None:
    """A run would look as if it had read nothing."""
    assert f"{_rate(rate):,}" == shown


def test_settings_of_spark_reach_the_session(
    commands: Commands, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of formats and keys of stores could not be set."""
    given: list[Any] = []

    def session(*_: Any, conf: Any, is_short: bool) -> Any:
        given.append((conf, is_short))
        return nullcontext(spark)

    monkeypatch.setattr("contrada.cli.pipeline.spark_session", session)
    spark_table = '[spark]\n"spark.jars.packages" = "{package}"\n"spark.a" = true\n'
    text = f'{DESCRIPTION}[parameters]\npackage = "io.delta:delta"\n{spark_table}'
    (commands.folder / "p.toml").write_text(text)
    found = commands.run("--dry-run", "--conf", "spark.a=b=c", "--conf", "spark.d=1")
    assert found.exit_code == 0, found.stderr
    expected = {"spark.jars.packages": "io.delta:delta", "spark.a": "b=c", "spark.d": "1"}
    assert given == [(expected, True)]


def test_a_dry_run_checks_headers(commands: Commands) -> None:
    """A misspelt option would make every record bad, and show after hours."""
    (commands.folder / "b.csv").write_text('"at time\nof it",k\n2026-01-01T00:00:00Z,1\n')
    (commands.folder / "c.csv").write_text("")
    options = 'rename = { "at time\\nof it" = "at" }\ntypes = { at = "time", k = "number" }\n'
    (commands.folder / "p.toml").write_text(f'{DESCRIPTION}{options}time = "at"\n')
    found = commands.run("--dry-run")
    assert found.exit_code == 3
    first, empty = found.stderr.splitlines()
    assert first.startswith("contrada: error: rows: ")
    named = "a.csv lacks 'at', 'k', which options name; its columns are 'n'"
    assert first.endswith(named)
    assert "c.csv:1:1: found an empty file" in empty
    text = DESCRIPTION.replace("csv", "tsv").replace(
        "subscriptions", 'mode = "stream"\nsubscriptions'
    )
    (commands.folder / "p.toml").write_text(text)
    found = commands.run("--dry-run")
    assert (found.exit_code, found.stderr) == (0, ""), "files may come later"


def test_a_dry_run_detects_a_concurrent_run(commands: Commands) -> None:
    """The dry run would succeed, and the run be refused."""
    with lock_output(commands.folder / "out"):
        found = commands.run("--dry-run")
        assert (found.exit_code, found.stdout) == (2, "")
        assert "another run writes there" in found.stderr
    assert commands.run("--dry-run").exit_code == 0
    assert [each.name for each in (commands.folder / "out").iterdir()] == [".lock"]


def test_the_report_is_also_written_to_a_given_folder(commands: Commands) -> None:
    """A service that collects reports would have to know every output."""
    found = commands.run("--report", str(commands.folder / "reports"), "--json")
    assert found.exit_code == 0, found.stderr
    report = json.loads((commands.folder / "reports" / "report.json").read_text())
    assert report["run"] == json.loads(found.stdout)["run"]
    assert (commands.folder / "reports" / "report.html").exists()


def test_the_terminal_lists_the_most_frequent(commands: Commands) -> None:
    """Errors would be above twenty thousand lines; a rate of a small run would be 0."""
    names = [f"none {n}: n = 9" for n in range(SUBSCRIPTIONS_LISTED_MAX)]
    (commands.folder / "subs").write_text("\n".join([*names, "low: n < 2", "all: n < 9\n"]))
    found = commands.run()
    assert found.exit_code == 0, found.stderr
    listed = re.findall(r"│ (none \d+|low|all) +│ +(\d) │", found.stdout)
    assert listed[:3] == [("all", "2"), ("low", "1"), ("none 0", "0")]
    assert len(listed) == SUBSCRIPTIONS_LISTED_MAX
    assert "and 2 more, in report.json" in found.stdout
    report = json.loads((commands.folder / "out" / "report.json").read_text())
    assert len(report["matches"]) == SUBSCRIPTIONS_LISTED_MAX + 2


def test_an_interrupted_run_resumes(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of matching would be repeated."""

    def ended(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running.ShortRun, "write", ended)
        assert commands.run().exit_code == 130
    monkeypatch.setattr(running.ShortRun, "match", ended)
    found = commands.run("--resume")
    assert found.exit_code == 0, found.stderr
    assert pq.read_table(commands.folder / "out" / "matches").num_rows == 1
    assert "the last run has ended" in commands.run("--resume").stderr


def test_a_run_that_has_written_nothing_is_resumed_from_its_beginning(commands: Commands) -> None:
    """A supervisor that always resumes would never begin."""
    found = commands.run("--resume")
    assert found.exit_code == 0, found.stderr
    assert pq.read_table(commands.folder / "out" / "matches").num_rows == 1


def test_the_rest_is_not_published_during_a_run(commands: Commands) -> None:
    """Both would publish the same matches."""
    assert commands.run().exit_code == 0
    with lock_output(commands.folder / "out"):
        found = commands.run("--resume", "--publish", "contrada://127.0.0.1:1")
    assert found.exit_code == 2
    assert "another run writes there" in found.stderr


def test_a_stream_reports_likely_mistakes(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in a description would show in no micro-batch."""
    monkeypatch.setattr("contrada.cli.pipeline.signal.signal", lambda *_: None)
    (commands.folder / "rules.cesql").write_text("n < 2\nn <\n")
    (commands.folder / "b.json").write_text("{\n")
    (commands.folder / "p.toml").write_text("""
mode = "stream"
subscriptions = [{ file = "rules.cesql", dialect = "cesql" }]
output = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["*.csv"]
types = { m = "text" }
[[source]]
name = "bad"
format = "json"
paths = ["*.json"]
""")
    for name in "b", "c":
        found = commands.run()
        assert found.exit_code == 3
        refused, unmet, bad = sorted(found.stderr.splitlines(), key=len, reverse=True)
        assert refused.startswith("contrada: error: refused: ")
        assert unmet == "contrada: error: rows: no record has 'm', which an option names"
        assert bad == "contrada: error: bad: all 1 records are bad"
        (commands.folder / f"{name}.csv").write_text("n\n1\n")


def test_refused_rules_are_reported(commands: Commands) -> None:
    """The author of an unreadable rule would wait for its matches."""
    (commands.folder / "rules.cesql").write_text("n < 2\nn <\n")
    text = DESCRIPTION.replace('"subs"', '[{ file = "rules.cesql", dialect = "cesql" }]')
    (commands.folder / "p.toml").write_text(text)
    found = commands.run()
    assert found.exit_code == 3
    assert "contrada: error: refused: " in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "options", "said"),
    [
        ("csv", "jsonlines", (), "source 'rows': found the format 'jsonlines', expected csv, "),
        ("csv", "delta", (), "or one with its package in Spark, by --conf spark.jars.packages="),
        (
            "[[source]]",
            '[[table]]\ntable = "t"\nformat = "iceberg"\n[[source]]',
            (),
            "table t: found the format 'iceberg', expected parquet, orc, ",
        ),
        (
            "[[source]]",
            '[[table]]\npath = "t"\nformat = "parkett"\n[[source]]',
            (),
            "t: found the format 'parkett', expected parquet, orc, ",
        ),
        ("", "", ("--conf", "spark.master=yarn"), "--conf: found spark.master, expected --master"),
        ("", "", ("--master", "foo"), "--master: found 'foo', expected local, "),
        ("", "", ("--master", "local[1]", "--remote", "sc://a"), "expected one of them"),
        ("subs", "subs", ("--publish", "contrada://127.0.0.1:1"), "127.0.0.1:1"),
        ("[[source]]", '[[table]]\ntable = "no.such.place.t"\n[[source]]', (), "no.such.place.t"),
    ],
)
def test_errors_are_one_line(
    commands: Commands, old: str, new: str, options: tuple[str, ...], said: str
) -> None:
    """A mistake would end in pages of Java."""
    (commands.folder / "p.toml").write_text(DESCRIPTION.replace(old, new) if old else DESCRIPTION)
    found = commands.run("--dry-run", *options)
    assert found.exit_code in (1, 2), found.stderr
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_table_by_name(commands: Commands, spark: SparkSession) -> None:
    """Results would have to be copied into catalogs."""
    text = DESCRIPTION.replace("[[source]]", '[[table]]\ntable = "found_matches"\n[[source]]')
    (commands.folder / "p.toml").write_text(text)
    try:
        for _ in range(2):
            found = commands.run()
            assert found.exit_code == 0, found.stderr
            assert [row["subscription"] for row in spark.table("found_matches").collect()] == [
                "low"
            ]
        text = text.replace('"found_matches"', '"found_matches"\nrows = "quarantine"')
        (commands.folder / "p.toml").write_text(text)
        assert "found_matches: has other columns than quarantine" in commands.run().stderr
    finally:
        spark.sql("DROP TABLE IF EXISTS found_matches")
