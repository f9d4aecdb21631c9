"""`contrada match`."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.cli.read_flags import BAD_SHOWN_MAX
from tests.commands import bare_environment

ROWS = "id,delay,at\n1,10,2013-01-01T05:00:00Z\n2,130,2013-01-01T06:00:00Z\n3,NA,2013-01-02\n"

NO_X = "of the first 3 records, without a match:\nno record has 'x'\n"


def match(folder: Path, *arguments: str, subscriptions: str = "late: delay > 120") -> Result:
    (folder / "subs").write_text(subscriptions, encoding="utf-8")
    files = [str(folder / each) if (folder / each).exists() else each for each in arguments]
    return CliRunner().invoke(main, ["match", str(folder / "subs"), *files])


def test_matches_are_lines_of_json(tmp_path: Path) -> None:
    """Other programs could not read the matches."""
    (tmp_path / "a.csv").write_text(ROWS)
    options = ("--types", "at=time", "--absent", "NA", "--add", "kind=flight", "--time", "at")
    result = match(
        tmp_path, "a.csv", *options, subscriptions="late: delay > 120\nnone: delay absent"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {
        "subscription": "late",
        "file": str(tmp_path / "a.csv"),
        "record": 3,
        "time": "2013-01-01T06:00:00Z",
        "attributes": {"id": 2, "delay": 130, "at": "2013-01-01T06:00:00Z", "kind": "flight"},
    }
    assert (second["subscription"], second["record"]) == ("none", 4)


def test_all_formats_at_once(tmp_path: Path) -> None:
    """One subscription could not be matched with files of several formats."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.jsonl").write_text('{"delay":121}\n')
    (tmp_path / "c.xml").write_text("<d><e><delay>130</delay></e><e><delay>1</delay></e></d>")
    subscriptions = "late: delay > 120 or d.e.delay > 120"
    files = ("a.csv", "b.jsonl", "c.xml", "--entries", "e")
    result = match(tmp_path, *files, subscriptions=subscriptions)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(Path(each["file"]).name, each["record"]) for each in found] == [
        ("a.csv", 3),
        ("b.jsonl", 1),
        ("c.xml", 1),
    ]


def test_counts_and_output(tmp_path: Path) -> None:
    """A person would count lines by hand."""
    (tmp_path / "a.csv").write_text(ROWS)
    result = match(tmp_path, "a.csv", "--count", subscriptions="late: delay > 120\nnever: x = 1")
    assert "3 records" in result.stdout
    table = [line.split() for line in result.stdout.splitlines() if "│" in line]
    assert [(row[1], row[-2]) for row in table] == [("late", "1"), ("never", "0")]
    result = match(tmp_path, "a.csv", "--output", str(tmp_path / "out"))
    assert result.stdout == ""
    assert len((tmp_path / "out").read_text().splitlines()) == 1


def test_output_of_the_run_before_goes_where_nothing_matches(tmp_path: Path) -> None:
    """The previous run's matches would be taken for those of this one."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "out").write_text("matches of the run before")
    result = match(tmp_path, "a.csv", "--output", str(tmp_path / "out"), subscriptions="a: x = 1")
    assert (result.exit_code, result.stderr) == (0, NO_X)
    assert (tmp_path / "out").read_text() == ""


def test_output_stays_where_the_input_is_wrong(tmp_path: Path) -> None:
    """A slip of the pen would cost the previous run's matches."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "out").write_text("matches of the run before")
    result = match(tmp_path, "a.csv", "--output", str(tmp_path / "out"), subscriptions="a: x =")
    assert result.exit_code == 2
    assert (tmp_path / "out").read_text() == "matches of the run before"


def test_what_looks_like_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    """A filter with brackets would lose them in the table, or end it with a traceback."""
    (tmp_path / "a.csv").write_text(ROWS)
    subscriptions = "a [red]: x = '[/]' or x = ':smile:'"
    result = match(tmp_path, "a.csv", "--count", subscriptions=subscriptions)
    assert result.exit_code == 0
    assert "a [red]" in result.stdout
    assert """x = "[/]" or x = ":smile:" """ in result.stdout


def test_bad_records_are_listed_and_the_others_matched(tmp_path: Path) -> None:
    """One bad row would cost the others, or a script would see success."""
    (tmp_path / "a.csv").write_text("delay\n1,2\n130\n")
    (tmp_path / "b.xml").write_text("<a>\n<b></a>")
    (tmp_path / "c.json").write_text('{"delay":130}\n{"delay"')
    result = match(tmp_path, "a.csv", "b.xml", "c.json")
    assert result.exit_code == 2
    lines = result.stderr.replace(f"{tmp_path}/", "").splitlines()
    assert lines[0] == "a.csv:2:4: found 2 cells, expected 1"
    assert lines[1].startswith("b.xml:2:8: found Opening and ending tag mismatch")
    assert lines[2] == "c.json:2:9: found the end of the line, expected ':' delimiter"
    assert lines[3:] == ["3 bad of 5 records"]
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "subscriptions", "message"),
    [
        (("a.csv",), "late: delay >", "subs:1:14: found"),
        (("a.csv",), "late", "subs:1:1: found 'late', expected `name: filter`"),
        (("a.txt",), "a: x = 1", "unknown suffix '.txt'"),
        (("a.csv", "--types", "delay"), "a: x = 1", "--types: found 'delay', expected NAME=VALUE"),
        (("a.csv", "--add", "kind"), "a: x = 1", "--add: found 'kind', expected NAME=VALUE"),
        (("a.csv", "--rename", "a=b", "--rename", "a=c"), "a: x = 1", "'a' twice, as 'b' and 'c'"),
        (("a.csv", "--types", "delay=int"), "a: x = 1", "found 'int', expected one of text"),
        (("missing.csv",), "a: x = 1", "lines `name: filter` (rules with --from), then files"),
        (("a.csv", "--output", "nowhere/out"), "a: id = 1", "Could not open file 'nowhere/out'"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], subscriptions: str, message: str
) -> None:
    """A slip of the pen would end in a traceback."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "a.txt").write_text(ROWS)
    result = match(tmp_path, *arguments, subscriptions=subscriptions)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("contrada: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("file", "text", "hint"),
    [
        ("d.json", '[{"x": 1}, {"x": 2}]', "is a JSON array; --entries . reads its objects"),
        ("d.json", '[\n  {"x": 1},\n  {"x": 2}\n]\n', "is a JSON array; --entries . reads its"),
        ("d.ndjson", '[{"x": 1}]', "is a JSON array; --format json --entries . reads its objects"),
        ("d.geojson", '{"features": [{"x": 1}]}', "--entries features reads them, --format jsonl"),
        ("d.csv", "x;y\n1,5;2\n", "the header has ';': --delimiter ';' parts cells by that"),
        ("d.csv", "x\ty\n1,5\t2\n", "the header has '\\t': --delimiter $'\\t' parts cells by that"),
        ("d.csv", "x;y\n1;2\n", "the header has ';': --delimiter ';' parts cells by that"),
        ("d.csv", ",x\n1,1\n", "1 without a name, expected one; --rename =NAME gives it one"),
        ("d.csv", "@id,x\n1,1\n", "are reserved; --rename @id=NAME names one anew"),
        ("d.json", '{"@id": 1}\n{"@id": 1}', "are reserved; --rename @id=NAME names one anew"),
        ("d.json", '{"": 1}', "this one 0; --rename =NAME gives it one"),
        ("d.json", '{\n "x": 1\n}\n', "; each line is one object: `jq -c .` writes them so"),
        ("d.json", '{"x": NaN}', """which has no such number; write {"$number": "NaN"})"""),
    ],
)
def test_files_of_another_shape_get_a_hint(tmp_path: Path, file: str, text: str, hint: str) -> None:
    """A newcomer would see the fault, but no remedy."""
    (tmp_path / file).write_text(text)
    result = match(tmp_path, file, subscriptions="a: x = 1")
    assert (result.exit_code, result.stderr.count(hint)) == (2, 1), result.stderr


@pytest.mark.parametrize(
    ("file", "text", "options"),
    [
        ("d.json", '[{"x": 1}', ("--entries=.",)),
        ("d.json", '{"x": 1}\n[{"x": 1}]\n', ()),
        ("d.csv", "[x]\n1,2\n", ()),
    ],
)
def test_other_faults_get_no_hint(
    tmp_path: Path, file: str, text: str, options: tuple[str, ...]
) -> None:
    """A hint that has nothing to do with the fault would lead astray."""
    (tmp_path / file).write_text(text)
    result = match(tmp_path, file, *options, subscriptions="a: x = 1")
    assert result.exit_code == 2
    assert "--" not in result.stderr


def test_geojson_in_lines_is_read_where_that_is_said(tmp_path: Path) -> None:
    """A file with one feature a line could not be read by its name."""
    (tmp_path / "d.geojson").write_text('{"x": 1}\n{"x": 2}\n')
    result = match(tmp_path, "d.geojson", "--format", "jsonl", subscriptions="a: x = 1")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)


def test_needs_neither_java_nor_spark(tmp_path: Path) -> None:
    """The smallest installation could not match a file."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "subs").write_text("late: delay > 120")
    blocked = "import sys\nfor m in ('pyspark', 'pyarrow', 'pandas'): sys.modules[m] = None\n"
    code = blocked + "from contrada.cli import main; main()"
    command = [sys.executable, "-c", code, "match", str(tmp_path / "subs"), str(tmp_path / "a.csv")]
    environment = bare_environment()
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["record"] == 3


SIGMA = """title: Odd logon
id: 1
author: Ann
tags: [attack.t1078]
level: high
detection: {s: {user: root}, condition: s}
---
title: Words
detection: {s: [word], condition: s}
"""


NEVER = (
    SIGMA.partition("---")[0]
    .replace("id: 1", "id: 5d7a1b1e-8a77-4f3c-9d7b-1c0f6f1a0002")
    .replace("root", "bob")
)


def test_rules_of_other_dialects_are_matched_and_shown(tmp_path: Path) -> None:
    """A match would lack the author of its rule, which the rule's licence requires."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "logons.yml").write_text(SIGMA)
    (tmp_path / "a.jsonl").write_text('{"user":"root","x":1}\n{"user":"ann"}\n')
    command = ["match", "--from", "sigma", str(tmp_path / "rules"), str(tmp_path / "a.jsonl")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "Words" in result.stderr
    assert "1 refused of 2 rules" in result.stderr
    [found] = map(json.loads, result.stdout.splitlines())
    assert found["attributes"] == {"user": "root", "x": 1}
    assert found["rule"] == {
        "title": "Odd logon",
        "author": "Ann",
        "level": "high",
        "tags": ["attack.t1078"],
    }
    (tmp_path / "rules" / "never.yml").write_text(NEVER)
    counted = CliRunner().invoke(main, [*command, "--count"])
    rows = [line.strip("│ ").split("│") for line in counted.stdout.splitlines() if "│" in line]
    assert [[each.strip() for each in row] for row in rows] == [["1", "Odd logon", "high", "1"]]
    counted = CliRunner().invoke(main, [*command, "--count", "--all"], terminal_width=40)
    assert "5d7a1b1e-8a77-4f3c-9d7b-1c0f6f1a0002" in counted.stdout


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3, 40_000])
def test_what_a_rule_leaves_open_is_asked_of_whole_records(tmp_path: Path, rows: int) -> None:
    """Records would match the filters of a rule without its residue, one by one or many at once."""
    (tmp_path / "rules.cesql").write_text("a = b\na = 1 AND c + 0 = 0\n")
    lines = "".join(f"{n % 3},{n % 2},{n},x\n" for n in range(rows))
    (tmp_path / "a.csv").write_text(f"a,b,c,filling that is never asked for\n{lines}")
    command = ["match", "--from", "cesql", str(tmp_path / "rules.cesql"), str(tmp_path / "a.csv")]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stderr) == (0, "")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    same = [each["attributes"]["c"] for each in found if each["subscription"] == "line 1"]
    assert same == [n for n in range(rows) if n % 3 == n % 2]
    assert not [each for each in found if each["subscription"] == "line 2"]


@pytest.mark.slow
def test_standard_input_is_a_file_too(tmp_path: Path) -> None:
    """Output of a program would need a file."""
    (tmp_path / "subs").write_text("late: delay > 120")
    code = "from contrada.cli import main; main()"
    command = [sys.executable, "-c", code, "match", str(tmp_path / "subs"), "-"]
    run = subprocess.run(
        [*command, "--format", "csv"], input=ROWS, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["file"] == "standard input"
    run = subprocess.run(command, input=ROWS, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "standard input needs --format" in run.stderr


def test_the_first_match_is_told_before_the_input_ends(tmp_path: Path) -> None:
    """Matches of a stream would appear when it ends, if ever."""
    (tmp_path / "subs").write_text("late: delay > 120")
    code = "from contrada.cli import main; main()"
    command = [sys.executable, "-c", code, "match", str(tmp_path / "subs"), "-", "--format=json"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"delay": 130}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["attributes"] == {"delay": 130}


def test_an_input_without_records_is_named(tmp_path: Path) -> None:
    """A log that has just been rotated would be an error, and an empty export look like a run in
    which nothing matched.
    """
    for name in ("a.log", "b.jsonl"):
        (tmp_path / name).write_text("\n")
    (tmp_path / "c.csv").write_text("delay\n")
    result = match(tmp_path, "a.log", "b.jsonl", "c.csv")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "found no record\n")
    assert match(tmp_path, "c.csv", "--entries", "f").stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tiem", "attribute 'tiem' = None: it is absent, and is to give the time of the record"),
        ("delay", "must hold one time (declare its type as time); --types NAME=time"),
    ],
)
def test_a_record_without_its_time_names_the_reason(tmp_path: Path, name: str, shown: str) -> None:
    """A misspelled --time would ask to declare the type of an attribute that is nowhere."""
    (tmp_path / "a.jsonl").write_text('{"delay":130}\n')
    result = match(tmp_path, "a.jsonl", "--time", name)
    assert (result.exit_code, result.stderr.count(shown)) == (2, 1)


def test_a_directory_of_rules_asks_for_their_dialect(tmp_path: Path) -> None:
    """Without --from a directory would only be unreadable."""
    (tmp_path / "a.csv").write_text(ROWS)
    result = CliRunner().invoke(main, ["match", str(tmp_path), str(tmp_path / "a.csv")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "needs --from, such as --from sigma" in result.stderr


def test_what_is_named_and_nowhere_found_is_said(tmp_path: Path) -> None:
    """A slip in a name would look as if nothing matched."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.jsonl").write_text('{"delay":130}\n' * 3)
    (tmp_path / "c.xml").write_text("<d><e><delay>130</delay></e></d>")
    result = match(tmp_path, "a.csv", "b.jsonl", "--types", "dleay=number,at=time")
    assert result.exit_code == 3
    lack = "no record has 'dleay', which an option names, there is 'delay'"
    assert result.stderr == f"contrada: error: {lack}\n"
    assert len(result.stdout.splitlines()) == 4
    result = match(tmp_path, "a.csv", "b.jsonl", "--rename", "dleay=late")
    assert result.exit_code == 3
    lack = "no record has 'dleay', which an option renames to 'late', there is 'delay'"
    assert result.stderr == f"contrada: error: {lack}\n"
    result = match(tmp_path, "c.xml", "--entries", "f")
    assert result.exit_code == 3
    assert result.stderr.endswith("c.xml: found no entry 'f'\n")
    assert match(tmp_path, "b.jsonl", "--types", "delay=number").exit_code == 0


def test_many_bad_records_are_counted_whole_and_shown_in_part(tmp_path: Path) -> None:
    """A file of another kind would fill the screen with errors."""
    (tmp_path / "a.csv").write_text("delay\n" + "1,2\n" * 100)
    result = match(tmp_path, "a.csv")
    lines = result.stderr.splitlines()
    assert (result.exit_code, len(lines)) == (2, BAD_SHOWN_MAX + 2)
    assert lines[-2:] == [f"and {100 - BAD_SHOWN_MAX} more", "100 bad of 100 records"]


def test_counts_as_json(tmp_path: Path) -> None:
    """A script would have to parse a table."""
    (tmp_path / "a.csv").write_text(ROWS)
    result = match(tmp_path, "a.csv", "--count", "--json")
    assert json.loads(result.stdout) == {"read": 3, "bad": 0, "matches": {"late": 1}}
    assert match(tmp_path, "a.csv", "--json").exit_code == 2


def test_times_that_name_no_zone_get_a_hint(tmp_path: Path) -> None:
    """A newcomer would edit all times instead of using one option."""
    (tmp_path / "a.csv").write_text("at\n2013-01-01T00:00\n2013-01-02T00:00\n")
    result = match(tmp_path, "a.csv", "--types", "at=time")
    hint = "; --zone gives the zone of times without one"
    assert result.stderr.splitlines()[0].endswith(f"2013-01-01T05:00:00Z{hint}")
    assert result.stderr.count(hint) == 1
    result = match(
        tmp_path, "a.csv", "--types", "at=time", "--zone", "UTC", subscriptions="a: at = 1"
    )
    assert result.exit_code == 0
    assert "at: 2 times, expected a number" in result.stderr


def test_a_column_without_a_name_gets_one(tmp_path: Path) -> None:
    """Tables whose first column is a bare index could not be read."""
    (tmp_path / "a.csv").write_text(",delay\n7,121\n")
    result = match(tmp_path, "a.csv", "--rename", "=row", subscriptions="a: row = 7")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["attributes"] == {"row": 7, "delay": 121}


def test_options_of_reading(tmp_path: Path) -> None:
    """Files of other programs would have to be changed before."""
    (tmp_path / "a.tsv").write_text("@timestamp\t@version\tdelay\n1.5\t1\t'12\n1'\n")
    (tmp_path / "b.geojson").write_text('{"features": [{"delay": 121, "x": {"y": 1}}]}')
    names = ("--rename", "@timestamp=at", "--drop", "@version", "--drop", "x")
    options = (*names, "--types", "at=epoch", "--quote", "'", "--entries", "features")
    subscriptions = "late: delay > 120 or delay = '12\\n1'"
    result = match(tmp_path, "a.tsv", "b.geojson", *options, subscriptions=subscriptions)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [json.loads(line)["attributes"] for line in result.stdout.splitlines()] == [
        {"at": "1970-01-01T00:00:01.500000Z", "delay": "12\n1"},
        {"delay": 121},
    ]


def test_files_of_security_events_are_read(
    tmp_path: Path, shared_data: Callable[..., Path]
) -> None:
    """Files of log shippers would be refused, record by record."""
    file = str(shared_data("windows_events", "covenant_psremoting_command.jsonl.gz"))
    options = ("--rename", "@timestamp=at", "--drop", "@version", "--types", "at=time")
    result = match(tmp_path, file, *options, "--count", "--json", subscriptions="a: at exists")
    assert result.exit_code == 0
    counts = json.loads(result.stdout)
    assert counts["bad"] == 0
    assert counts["matches"]["a"] == counts["read"] > 0


@pytest.mark.parametrize("subscriptions", ["".join(f"s{n}: a = {n}\n" for n in range(5_000)), "a:"])
def test_no_collector_goes_over_what_is_read(tmp_path: Path, subscriptions: str) -> None:
    """Large files would take a seventh longer; or, after a bad one, memory would never be freed."""
    (tmp_path / "a.jsonl").write_text("")
    match(tmp_path, "a.jsonl")  # which imports everything
    before = gc.get_stats()[1]["collections"]
    match(tmp_path, "a.jsonl", subscriptions=subscriptions)
    assert gc.get_stats()[1]["collections"] - before <= 1
    assert gc.isenabled()


SHEET = (
    '<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform">'
    '<x:template match="/"><o n="{count(//s)}"/></x:template></x:stylesheet>'
)


def test_documents_by_strategy_stylesheet_and_schema(tmp_path: Path) -> None:
    """Repeated elements of a document would be mixed up, or nonsense would pass."""
    (tmp_path / "a.xml").write_text("<b><s>1</s><s>2</s></b>")
    (tmp_path / "a.xsl").write_text(SHEET)
    (tmp_path / "good.dtd").write_text("<!ELEMENT b (s+)><!ELEMENT s (#PCDATA)>")
    (tmp_path / "other.dtd").write_text("<!ELEMENT b (s)><!ELEMENT s (#PCDATA)>")
    for options, subscription, expected in (
        (("--strategy", "index"), "`b.s.1` = 2", {"b.s.0": 1, "b.s.1": 2}),
        (("--strategy", "last"), "`b.s` = 2", {"b.s": 2}),
        (("--strategy", "xslt", "--stylesheet", "a.xsl"), "`o.n` = 2", {"o.n": 2}),
        (("--schema", "good.dtd"), "`b.s` = 1", {"b.s": [1, 2]}),
    ):
        result = match(tmp_path, "a.xml", *options, subscriptions=f"w: {subscription}")
        assert (result.exit_code, result.stderr) == (0, ""), options
        assert json.loads(result.stdout)["attributes"] == expected
    refused = match(tmp_path, "a.xml", "--schema", "other.dtd", subscriptions="w: `b.s` = 1")
    assert "expected content that the schema allows" in refused.stderr
    for options, named in (
        (("--strategy", "xslt"), "stylesheet"),
        (("--strategy", "first"), "--strategy"),
        (("--stylesheet", "other.dtd"), "stylesheet"),
        (("--schema", "subs"), "schema"),
        (("--schema", "none.xsd"), "--schema"),
    ):
        result = match(tmp_path, "a.xml", *options, subscriptions="w: `b.s` = 1")
        assert result.exit_code != 0, options
        assert named in result.stderr, options


ODD_ROWS = "symbol,price\nDIS,61.5\nIBM,NA\n"


@pytest.mark.parametrize(
    ("wanted", "options", "shown"),
    [
        ("prise < 9", (), "no record has 'prise', there is 'price'"),
        ("Symbol any", (), "no record has 'Symbol', there is 'symbol'"),
        (
            "price < 9",
            (),
            "price: 1 number and 1 text, expected a number; texts such as 'NA' may mean no value: "
            "--absent NA",
        ),
        (
            "price < 99",
            ("--types", "price=text", "--absent", "NA"),
            "price: 1 text, expected a number; --types price=number reads texts such as '61.5'",
        ),
        ("symbol > 3", (), "symbol: 2 texts, expected a number; one is 'DIS'"),
        (
            "symbol > @2026-01-01T00:00:00Z",
            (),
            "symbol: 2 texts, expected a time; --types symbol=time:PATTERN reads texts such as 'D",
        ),
        (
            "price > @2026-01-01T00:00:00Z",
            ("--absent", "NA"),
            "price: 1 number, expected a time; --types price=epoch, epoch_ms or epoch_us reads",
        ),
    ],
)
def test_attributes_that_no_record_fits_are_named(
    tmp_path: Path, wanted: str, options: tuple[str, ...], shown: str
) -> None:
    """A run without a match would not show a misspelled name, or a text for a number."""
    (tmp_path / "a.csv").write_text(ODD_ROWS)
    result = match(tmp_path, "a.csv", *options, subscriptions=f"a: {wanted}")
    head, line = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (0, "")
    assert head == "of the first 2 records, without a match:"
    assert line.startswith(shown)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Mon, 25 Jan 2016 01:35:20 GMT", "; --types symbol=time reads texts such as 'Mon, "),
        ("2016-01-25 01:35", "; --types symbol=time --zone ZONE reads texts such as '2016"),
    ],
)
def test_texts_of_times_get_the_option_that_reads_them(
    tmp_path: Path, text: str, hint: str
) -> None:
    """A user would be told to leave the times of a file out."""
    (tmp_path / "a.csv").write_text(ODD_ROWS.replace("DIS", f'"{text}"').replace("IBM", ""))
    wanted = "a: symbol < @2000-01-01T00:00:00Z"
    assert hint in match(tmp_path, "a.csv", subscriptions=wanted).stderr
    options = ("--types", "symbol=time", "--zone", "UTC", "--count", "--json")
    found = match(tmp_path, "a.csv", *options, subscriptions=wanted.replace("<", ">"))
    assert json.loads(found.stdout)["matches"] == {"a": 1}


def test_only_faults_are_named(tmp_path: Path) -> None:
    """Rare matches would be taken for faults."""
    (tmp_path / "a.csv").write_text(ODD_ROWS)
    for wanted in ("price < 9 and kind any or symbol = 'DIS'", "symbol = 'X'", "@is.Flight any"):
        result = match(tmp_path, "a.csv", "--absent", "NA", subscriptions=f"a: {wanted}")
        assert result.stderr == ""


def test_the_nearest_record_is_explained(tmp_path: Path) -> None:
    """A user would compare filters and records by eye."""
    (tmp_path / "a.csv").write_text(ODD_ROWS)
    subscriptions = "a: price < 9 and symbol = 'DIS'\nb: symbol = 'DIS'"
    result = match(tmp_path, "a.csv", "--absent", "NA", "--why", subscriptions=subscriptions)
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == (
        "of the first 2 records, without a match:\n"
        f'a: {tmp_path / "a.csv"}:2 does not match: price < 9 and symbol = "DIS"\n'
        "  fails: `price < 9`: 61.5 is above the nearest bound 9\n"
        '  holds: symbol = "DIS"\n'
    )


def test_a_residue_that_fails_is_shown(tmp_path: Path) -> None:
    """A rule would look as if it matched."""
    (tmp_path / "rules.cesql").write_text("price + 1 = 5\n")
    (tmp_path / "a.csv").write_text(ODD_ROWS)
    command = ["match", "--from", "cesql", "--why", str(tmp_path / "rules.cesql")]
    result = CliRunner().invoke(main, [*command, str(tmp_path / "a.csv"), "--absent", "NA"])
    assert "  fails: residue " in result.stderr


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    """All attributes would seem to be missing, as a pipe is empty then."""
    (tmp_path / "subs").write_text("a: x = 1")
    code = "from contrada.cli import main; main()"
    command = [sys.executable, "-c", code, "match", str(tmp_path / "subs"), "-", "--format", "csv"]
    run = subprocess.run(
        [*command, "--why"], input="x\n2\n", capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
