"""Descriptions of pipelines in TOML."""

import re
from pathlib import Path

import pytest

from contrada.errors import ContradaError, InputError, InvalidObventError
from contrada.integrations.files import FORMATS
from contrada.integrations.files.read_options import CONVERTERS
from contrada.integrations.files.subscription_files import DIALECTS
from contrada.integrations.spark.pipeline.pipeline_description import (
    _PipelineFields,
    _SequenceFields,
    _SourceFields,
    _SubscribedFields,
    _TableFields,
    read_pipeline,
)
from contrada.integrations.spark.pipeline.run_folder import PROGRESS_FILE
from contrada.model import Filter, Pattern

GOOD = """
subscriptions = "subs"
output = "{out}/o"
publish = "contrada://{host}:7655"
[parameters]
out = "x"
host = "localhost"
[[source]]
name = "a"
format = "csv"
paths = ["{out}/*.csv"]
types = { t = "time" }
absent = ["NA"]
add = { kind = "flight", level = 3 }
time = "t"
type_marks = ["T"]
"""


def described(folder: Path, text: str) -> Path:
    path = folder / "p.toml"
    path.write_text(text)
    (folder / "subs").write_text("one: a = 1")
    for name in ("x/b.csv", "x/a.csv", "y/c.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a\n1\n")
    return path


def test_an_obvent_whose_module_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the user's module would be a traceback."""
    (tmp_path / "failing_events.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = GOOD.replace('type_marks = ["T"]', 'obvent = "failing_events:C"')
    with pytest.raises(InvalidObventError, match="ZeroDivisionError"):
        read_pipeline(described(tmp_path, text))


def test_a_description_is_read(tmp_path: Path) -> None:
    """An option would silently differ from the description."""
    found = read_pipeline(described(tmp_path, GOOD), {"host": "other"})
    (source,) = found.sources
    assert source.files == (tmp_path / "x" / "a.csv", tmp_path / "x" / "b.csv")
    assert source.reading.add == {"kind": "flight", "level": 3}
    assert (source.reading.time, source.reading.marks) == ("t", ("T",))
    assert found.subscriptions == {"one": Filter("a = 1")}
    assert found.publish == "contrada://other:7655"
    assert found.matches == tmp_path / "x" / "o" / "matches"
    assert found.output == tmp_path / "x" / "o"
    assert (found.is_stream, found.delivery) == (False, "certified")
    text = GOOD.replace("[parameters]", 'delivery = "reliable"\n[parameters]')
    assert read_pipeline(described(tmp_path, text)).delivery == "reliable"


def test_a_stream_is_read(tmp_path: Path) -> None:
    """A stream would have another trigger, or another place of its state."""
    text = 'mode = "stream"\ntrigger = "5 s"\nslack = "1 min"\n'
    text += '[[pattern]]\nname = "p"\npattern = "a = 1 -> a = 2"\n'
    text += '[[table]]\npath = "s3a://b/t"\noptions = { compression = "zstd", header = true }\n'
    text = GOOD.replace("[parameters]", f"{text}[parameters]").replace("{out}/*.csv", "none/*.csv")
    found = read_pipeline(described(tmp_path, text))
    assert (found.is_stream, found.trigger_us, found.slack_us) == (True, 5_000_000, 60_000_000)
    assert found.delivery == "certified"
    assert found.checkpoint == tmp_path / "x" / "o" / ".checkpoint"
    assert found.patterns == {"p": Pattern("a = 1 -> a = 2")}
    assert found.sources[0].paths == (str(tmp_path / "none" / "*.csv"),)
    (table,) = found.tables
    assert (table.path, table.rows) == ("s3a://b/t", "matches")
    assert table.options == {"compression": "zstd", "header": "true"}


def test_an_unwritable_output_is_reported_first(tmp_path: Path) -> None:
    """A whole run would be done before its results cannot be written."""
    path = described(tmp_path, GOOD)
    (tmp_path / "x" / "o").write_text("a file")
    with pytest.raises(InputError, match=r"x/o: cannot be written: .*x/o is no directory"):
        read_pipeline(path)


def test_parameters_can_be_set(tmp_path: Path) -> None:
    """One description could not be run on other files."""
    (source,) = read_pipeline(described(tmp_path, GOOD), {"out": str(tmp_path / "y")}).sources
    assert source.files == (tmp_path / "y" / "c.csv",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"subs"', '"none"', "none: cannot be read"),
        ('"subs"', '"subs', "p.toml:2:22: "),
        ('format = "csv"', 'format = "csv"\nfrom = 1', "expected one of: name, format"),
        ('name = "a"', "", "source[0]: the key name is missing"),
        ('"{out}/*.csv"', '"{out}/*.xml"', "found no file for"),
        ('"{out}/*.csv"', '"{nowhere}/*.csv"', "{nowhere}"),
        ('t = "time"', 't = "date"', "'date'"),
        ("level = 3", "level = [[3]]", "list"),
        ('time = "t"', 'entries = "e"', "elements of XML"),
        ('type_marks = ["T"]', 'type_marks = ["T"]\nobvent = "m:C"', "one of them"),
        ('type_marks = ["T"]', 'obvent = "no_such_module:C"', "cannot be imported"),
        ('type_marks = ["T"]', 'obvent = "contrada:Obvent"', "no mark of their own"),
        ('type_marks = ["T"]', 'obvent = "no_class"', "expected module:Class"),
        ('type_marks = ["T"]', 'obvent = "json:JSONDecoder"', "its filters cannot be had"),
        ('paths = ["{out}/*.csv"]', "paths = []", "found no paths"),
        ('format = "csv"', 'format = "csv"\ntable = "t"', "found paths and a table"),
        ('format = "csv"', 'format = "csv"\ncolumn = "c"', "for the formats of Spark"),
        ('format = "csv"', 'format = "orc"\nof = "json"', "the column is missing"),
        ("[parameters]", 'mode = "stram"\n[parameters]', "expected one of: batch, stream"),
        (
            "[parameters]",
            'mode = "stream"\ntrigger = "soon"\n[parameters]',
            'expected "available-now" or',
        ),
        (
            "[parameters]",
            'mode = "stream"\nslack = "5 weeks"\n[parameters]',
            "slack: found '5 weeks'",
        ),
        ('"subs"', '"s3a://b/subs"', "found the address 's3a://b/subs', expected a path of"),
        (
            "[parameters]",
            'trigger = "5 s"\nslack = "1 s"\n[parameters]',
            "found trigger, slack, which a stream has",
        ),
        (
            "[parameters]",
            '[[table]]\nrows = "patterns"\npath = "p"\n[parameters]',
            "found a table for patterns, expected a pattern",
        ),
        ("[parameters]", '[[pattern]]\nname = "p"\n[parameters]', "name and pattern, or a file"),
        (
            "[parameters]",
            '[[pattern]]\nname = "p"\npattern = "a = 1"\n[parameters]',
            "p.toml: pattern[0]: ",
        ),
        ("[parameters]", "[[table]]\n[parameters]", "expected a table or a path"),
        ("[parameters]", '[spark]\n"jars" = "a"\n[parameters]', "spark: found the setting 'jars'"),
        (
            "[parameters]",
            '[spark]\n"spark.sql.caseSensitive" = false\n[parameters]',
            "found spark.sql.caseSensitive, by which results would mean something else",
        ),
        ("[parameters]", 'partition = ["day"]\n[parameters]', "expected one of: date, type"),
        ('subscriptions = "subs"', "subscriptions = []", "found no subscriptions"),
        ('subscriptions = "subs"', "subscriptions = [{}]", "expected a file or a broker"),
        (
            'subscriptions = "subs"',
            'subscriptions = [{ file = "subs", dialect = "sgima" }]',
            "found 'sgima', expected one of: sigma",
        ),
        (
            'subscriptions = "subs"',
            'subscriptions = [{ file = "subs" }, { file = "subs" }]',
            "found the name 'one' again",
        ),
    ],
)
def test_malformed_descriptions_are_refused(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    """A typing error would end in a traceback, or run differently."""
    path = described(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ContradaError) as caught:
        read_pipeline(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_parameter_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--set out=here` would write beside the description."""
    path = described(tmp_path, GOOD)
    (tmp_path / "elsewhere" / "y").mkdir(parents=True)
    (tmp_path / "elsewhere" / "y" / "c.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = read_pipeline(path, {"out": "y"})
    assert found.output == Path("y/o")
    assert found.sources[0].files == (Path("y/c.csv"),)


def test_an_unused_parameter_is_refused(tmp_path: Path) -> None:
    """A typing error in its name would leave the default in force."""
    with pytest.raises(InputError, match=r"'uot', expected one of: host, out"):
        read_pipeline(described(tmp_path, GOOD), {"uot": "y"})


def test_an_output_with_foreign_files_is_refused(tmp_path: Path) -> None:
    """A run could replace foreign files."""
    path = described(tmp_path, GOOD)
    matches = tmp_path / "x" / "o" / "matches"
    matches.mkdir(parents=True)
    for name in ("part-0.parquet", "_SUCCESS", ".part-0.crc", "date=x", "type=y", "batch=0"):
        (matches / name).touch()
    (tmp_path / "x" / "o" / PROGRESS_FILE).touch()
    read_pipeline(path)
    (matches / "letters.txt").touch()
    with pytest.raises(InputError, match=r"letters\.txt, expected a folder of its own"):
        read_pipeline(path)
    (matches / "letters.txt").rename(tmp_path / "x" / "o" / "photos")
    with pytest.raises(InputError, match="photos"):
        read_pipeline(path)


def test_every_key_is_explained() -> None:
    """An option would be missing on the page, or an unknown one described."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "pipeline.md").read_text("utf-8")
    keys = {
        part.partition("\n")[0]: set(re.findall(r"^\| `(\w+)` \|", part, re.M))
        for part in page.split("## ")[1:]
    }
    for title, struct in (
        ("The pipeline", _PipelineFields),
        ("A source", _SourceFields),
        ("Subscriptions", _SubscribedFields),
        ("Patterns", _SequenceFields),
        ("Tables", _TableFields),
    ):
        assert keys[title] == set(struct.__struct_fields__), title
    assert keys["Types"] == set(CONVERTERS)
    assert all(f"`{name}`" in page for name in (*FORMATS, *DIALECTS))


def test_sources_are_named_apart(tmp_path: Path) -> None:
    """Their matches could not be distinguished."""
    twice = GOOD + GOOD[GOOD.index("[[source]]") :]
    with pytest.raises(InputError, match="named apart"):
        read_pipeline(described(tmp_path, twice))
