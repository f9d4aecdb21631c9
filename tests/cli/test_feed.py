"""`contrada feed` and `contrada xml render`, over files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main

ITEM = "<item><guid>{0}</guid><title>{1}</title></item>"


def rss(path: Path, **titles: str) -> Path:
    """A feed with these entries."""
    items = "".join(ITEM.format(*each) for each in titles.items())
    path.write_text(f"<rss><channel><title>T</title>{items}</channel></rss>")
    return path


def run(*arguments: str | Path) -> Result:
    """The output of the command."""
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_a_feed_that_is_polled_twice(tmp_path: Path) -> None:
    """A script that follows a feed would get all entries each time."""
    path, state = rss(tmp_path / "f.rss", a="1", b="2"), tmp_path / "state"
    first = run("feed", path, "--once", "--state", state)
    assert first.exit_code == 0
    assert [json.loads(line)["rss.channel.item.title"] for line in first.stdout.splitlines()] == [
        1,
        2,
    ]
    assert first.stderr == f"{path}: 2 new, 0 changed, 0 unchanged, 0 bad\n"
    rss(path, c="3", a="x", b="2")
    second = run("feed", path, "--once", "--state", state)
    assert [json.loads(line)["rss.channel.item.guid"] for line in second.stdout.splitlines()] == [
        "c",
        "a",
    ]
    assert second.stderr == f"{path}: 1 new, 1 changed, 1 unchanged, 0 bad\n"


def test_what_cannot_be_read_has_a_status(tmp_path: Path) -> None:
    """A script would not see that an entry is missing."""
    path = rss(tmp_path / "f.rss", a="1", b="x")
    found = run("feed", path, "--once", "--types", "rss.channel.item.title=number")
    assert found.exit_code == 2
    assert len(found.stdout.splitlines()) == 1
    assert "'rss.channel.item.title'" in found.stderr
    assert "2 new, 0 changed, 0 unchanged, 1 bad" in found.stderr
    other = tmp_path / "other.xml"
    other.write_text("<g><p/></g>")
    found = run("feed", other, path, "http://127.0.0.1:1/f", "--once")
    assert found.exit_code == 1
    assert len(found.stdout.splitlines()) == 2
    told = found.stderr.splitlines()
    assert told[0].startswith(f"{other}: found the root 'g', which is no feed's; name the elem")
    assert told[0].endswith("(--entries)")
    assert told[2].startswith("http://127.0.0.1:1/f: cannot be read: ")
    assert told[3] == "in 3 polls: 2 new, 0 changed, 0 unchanged, 0 bad, 2 polls failed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["feed", "nowhere.xml"], "found 'nowhere.xml', which is no file and no http(s) address"),
        (["feed", "http://x", "--names"], "are for --to ADDRESS"),
        (
            ["feed", "http://x", "--to", "contrada://x", "--names"],
            "--names is for --strategy index",
        ),
        (["xml", "send", "http://x", "--names"], "--names is for --strategy index"),
        (["feed", "http://x", "--every", "0"], "--every"),
        (["feed", "http://x", "--strategy", "no"], "--strategy"),
        (["feed"], "Missing argument"),
        (["xml", "render", "nowhere.xml"], "which is no file and no http(s) address"),
        (["xml", "receive", "a = 1", "--known", "x"], "--known is for --patterns"),
        (["xml", "receive", "a = 1", "--document", "--json"], "leave --names and --json out"),
        (["xml", "receive", "`a.*` absent", "--patterns", "--known", "x"], "pattern of names"),
        (["xml", "receive", "`a.<9-1>` = 1", "--patterns"], "the smaller number first"),
        (["xml", "daemon", "--store", "nowhere/x.db"], "there is no folder nowhere"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str) -> None:
    """A person would see a traceback, or wait for nothing."""
    found = run(*arguments)
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.startswith("contrada: error: ")
    assert found.stderr.count("\n") == 1


def test_wrong_states_are_refused(tmp_path: Path) -> None:
    """A user's file would be overwritten."""
    (tmp_path / "state").write_text("mine")
    path = rss(tmp_path / "f.rss", a="1")
    found = run("feed", path, "--once", "--state", tmp_path / "state")
    assert found.exit_code == 2
    assert "no file of states of feeds" in found.stderr
    assert (tmp_path / "state").read_text() == "mine"


def test_documents_are_rendered_and_what_repeats_is_told(tmp_path: Path) -> None:
    """Nobody could see the notifications of a document, or its repeated elements."""
    path = tmp_path / "s.xml"
    path.write_text("<b><s><t>x</t></s><s><t>y</t></s></b>")
    found = run("xml", "render", path)
    assert json.loads(found.stdout) == {"b.s.t": ["x", "y"]}
    assert found.stderr == "repeated: b.s, at most 2 in one place\n"
    lost = run("xml", "render", path, "--strategy", "last")
    assert json.loads(lost.stdout) == {"b.s.t": "y"}
    assert "lost: 1 values of b.s.t\n" in lost.stderr
    split = run("xml", "render", path, "--entries", "s")
    assert len(split.stdout.splitlines()) == 2
    (tmp_path / "s.json").write_text('{"s": [{"t": "x"}, {"t": "y"}]}')
    index = run("xml", "render", tmp_path / "s.json", path, "--strategy", "index")
    names = [set(json.loads(line)) - {"$body"} for line in index.stdout.splitlines()]
    assert names == [{"s.0.t", "s.1.t"}, {"b.s.0.t", "b.s.1.t"}]


def test_names_in_options_that_no_entry_has_are_reported(tmp_path: Path) -> None:
    """A misspelled name would keep what is to be left out, without a word."""
    path = rss(tmp_path / "f.rss", a="1")
    options = ("--drop", "rss.channel.item.guid,rss.channel.item.titel", "--types", "author=text")
    near = "'rss.channel.item.title' or 'rss.channel.title'"
    lacks = [
        "no record has 'author', which an option names",
        f"no record has 'rss.channel.item.titel', which an option names, there is {near}",
    ]
    for command in (("feed", path, "--once"), ("xml", "render", path, "--strategy", "index")):
        found = run(*command, *options)
        assert found.exit_code == 0
        assert found.stderr.splitlines()[-2:] == lacks
    assert run("feed", rss(path), "--once", *options).stderr.count("\n") == 1  # without an entry


def test_bad_documents_have_a_status(tmp_path: Path) -> None:
    """A script would not see that a document is missing."""
    (tmp_path / "bad.xml").write_text("<a>\n<b></a>")
    (tmp_path / "good.xml").write_text("<a>1</a>")
    found = run("xml", "render", tmp_path / "bad.xml", tmp_path / "good.xml")
    assert found.exit_code == 2
    assert json.loads(found.stdout) == {"a": 1}
    assert f"{tmp_path / 'bad.xml'}:2:" in found.stderr
    assert "1 bad of 2" in found.stderr


@pytest.mark.parametrize(
    "name", ["feed", "xml render", "xml send", "xml receive", "xml daemon", "xml names"]
)
def test_each_explains_itself_with_examples(name: str) -> None:
    """A person could not find out how to use it."""
    found = run(*name.split(), "--help")
    assert found.exit_code == 0
    assert f"\n  contrada {name}" in found.stdout, "examples keep their lines"
