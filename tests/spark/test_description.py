"""Pipelines as they are described in TOML."""

from pathlib import Path

import pytest

from contrada.errors import ContradaError, InputError, InvalidObventError
from contrada.model import Filter
from contrada.spark.description import read_pipeline

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
    """Else whatever the user's own module raises would be a traceback."""
    (tmp_path / "failing_events.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = GOOD.replace('type_marks = ["T"]', 'obvent = "failing_events:C"')
    with pytest.raises(InvalidObventError, match="ZeroDivisionError"):
        read_pipeline(described(tmp_path, text))


def test_a_description_is_read(tmp_path: Path) -> None:
    """Else an option would silently not be what the user wrote."""
    found = read_pipeline(described(tmp_path, GOOD), {"host": "other"})
    (source,) = found.sources
    assert source.files == (tmp_path / "x" / "a.csv", tmp_path / "x" / "b.csv")
    assert source.reading.add == {"kind": "flight", "level": 3}
    assert (source.reading.time, source.reading.marks) == ("t", ("T",))
    assert found.subscriptions == {"one": Filter("a = 1")}
    assert found.publish == "contrada://other:7655"
    assert found.matches == tmp_path / "x" / "o" / "matches"
    assert found.quarantine == tmp_path / "x" / "o" / "quarantine"


def test_an_output_that_cannot_be_written_is_found_out(tmp_path: Path) -> None:
    """Else the whole run would be done before anyone learns that nothing can be kept."""
    path = described(tmp_path, GOOD)
    (tmp_path / "x" / "o").write_text("a file")
    with pytest.raises(InputError, match=r"x/o: cannot be written: .*x/o is no directory"):
        read_pipeline(path)


def test_parameters_can_be_set(tmp_path: Path) -> None:
    """Else one description could not be run on other files."""
    (source,) = read_pipeline(described(tmp_path, GOOD), {"out": "y"}).sources
    assert source.files == (tmp_path / "y" / "c.csv",)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"subs"', '"none"', "none: cannot be read"),
        ('"subs"', '"subs', "p.toml:2:22: "),
        ('format = "csv"', 'format = "tsv"', "tsv"),
        ('format = "csv"', 'format = "csv"\nfrom = 1', "unknown field `from`"),
        ('name = "a"', "", "missing required field `name`"),
        ('"{out}/*.csv"', '"{out}/*.xml"', "found no file for"),
        ('"{out}/*.csv"', '"{nowhere}/*.csv"', "{nowhere}"),
        ('t = "time"', 't = "date"', "'date'"),
        ("level = 3", "level = [[3]]", "list"),
        ('time = "t"', 'entries = "e"', "elements of XML"),
        ('type_marks = ["T"]', 'type_marks = ["T"]\nobvent = "m:C"', "one of them"),
        ('type_marks = ["T"]', 'obvent = "no_such_module:C"', "cannot be imported"),
        ('type_marks = ["T"]', 'obvent = "no_class"', "expected module:Class"),
        ('type_marks = ["T"]', 'obvent = "json:JSONDecoder"', "its filters cannot be had"),
        ('paths = ["{out}/*.csv"]', "paths = []", "found no paths"),
    ],
)
def test_what_is_malformed(tmp_path: Path, old: str, new: str, reason: str) -> None:
    """Else a slip of the pen would end in a traceback, or be run as something else."""
    path = described(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ContradaError) as caught:
        read_pipeline(path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sources_are_named_apart(tmp_path: Path) -> None:
    """Else their matches could not be told apart."""
    twice = GOOD + GOOD[GOOD.index("[[source]]") :]
    with pytest.raises(InputError, match="named apart"):
        read_pipeline(described(tmp_path, twice))
