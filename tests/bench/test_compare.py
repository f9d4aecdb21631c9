"""Comparisons of two revisions, on a small repository of its own; the checks of a trip."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import contrada as ct
from bench import compare, trips
from bench.compare import Tree, checked_out, comparison
from bench.programs import measured

RUN = """
import json, sys
from contrada import VALUE
record = {"value": VALUE, "unit": "us", "more_is_better": False, "workload": "w"}
for name in ["a", *sys.argv[2:]]:
    print(json.dumps({"name": name, **record}))
"""
BUILD = """
def compiled_native(root):
    made = root / "_native.so"
    made.write_text("")
    return made
"""


def git(repository: Path, *words: str) -> None:
    """Runs git there, by an author who depends on no settings."""
    author = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repository), *author, *words], check=True)


def write(repository: Path, value: float) -> None:
    """Makes a project whose only figure has this value."""
    texts = {
        "src/contrada/__init__.py": f"VALUE = {value}",
        "bench/__init__.py": "",
        "bench/run.py": RUN,
        "hatch_build.py": BUILD,
    }
    for name, text in texts.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text, "utf-8")


def commit(repository: Path) -> None:
    """Keeps the project as it is."""
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "one")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A revision with a figure of 2.0 that was 3.0 before."""
    git(tmp_path, "init", "--quiet")
    for value in (3.0, 2.0):
        write(tmp_path, value)
        commit(tmp_path)
    return tmp_path


def records(*values: float, **others: Any) -> list[dict[str, Any]]:
    """The records of a figure, one per turn."""
    record = {"name": "a", "unit": "us", "more_is_better": False, "workload": "w"}
    return [{**record, "value": value, **others} for value in values]


def quiet() -> Console:
    """Prints nowhere."""
    return Console(file=StringIO())


def test_each_revision_is_compiled_and_runs_with_its_own_source(repository: Path) -> None:
    """A figure would show this tree, or interpreted code, as the revision before."""
    old, new = checked_out("HEAD~1", repository), checked_out("HEAD", repository)
    (made,) = compare.compare(old, new, "", 6, quiet())
    assert (made.old, made.new, made.ratio, made.verdict) == (3.0, 2.0, 2 / 3, "better")
    assert all((tree.folder / "src/contrada/_native.so").exists() for tree in (old, new))


def test_the_order_of_a_turn_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that becomes slower would make the second of each pair look worse."""
    ran: list[str] = []

    def ran_as(tree: Tree, only: str) -> dict[str, compare.Record]:
        ran.append(tree.name + only)
        return {"a": records(1.0)[0]}

    monkeypatch.setattr(Tree, "records", ran_as)
    compare.compare(Tree("o", tmp_path), Tree("n", tmp_path), "", 6, quiet())
    assert ran == ["o", "n", "n", "o"] * 3


@pytest.mark.parametrize(
    ("old", "new", "more_is_better", "verdict"),
    [
        ([2, 2, 2], [1, 1, 1.9], False, "better"),
        ([2, 2, 2], [1, 1, 1.9], True, "worse"),
        ([2, 2, 2], [9, 9, 1.9], False, "noise"),
        ([2, 2, 2], [1, 1, 2], False, "noise"),
        ([2, 2, 2], [3, 3, 9], False, "worse"),
    ],
)
def test_a_change_is_on_one_side_in_all_turns(
    old: Sequence[float], new: Sequence[float], more_is_better: bool, verdict: str
) -> None:
    """Noise would be shown as a change, or a small change in every run as noise."""
    first, second = (records(*each, more_is_better=more_is_better) for each in (old, new))
    assert comparison(first, second).verdict == verdict


def test_a_figure_of_nothing_has_no_ratio() -> None:
    """The whole comparison would end with a division by zero."""
    made = comparison(records(0, 0), records(1, 2))
    assert (made.ratio, made.verdict) == (None, "worse")


def test_figures_of_one_side_or_other_workloads_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two different works would be compared, or a figure be left out in silence."""
    found = {
        "o": {"a": records(1)[0], "b": records(1)[0], "c": records(1, name="c")[0]},
        "n": {"b": records(2, workload="v")[0], "c": records(2, name="c")[0], "d": records(1)[0]},
    }
    monkeypatch.setattr(Tree, "records", lambda tree, _: found[tree.name])
    progress = StringIO()
    old, new = Tree("o", tmp_path), Tree("n", tmp_path)
    made = compare.compare(old, new, "", 6, Console(file=progress))
    assert [each.name for each in made] == ["c"]
    for text in ("a: not in all", "b: another workload", "d: not in all"):
        assert text in progress.getvalue()
    found["n"].pop("c")
    with pytest.raises(RuntimeError, match="o and n have no figure of one workload in common"):
        compare.compare(old, new, "", 6, quiet())


def test_a_revision_that_is_there_is_kept(repository: Path) -> None:
    """Each comparison would compile it again."""
    tree = checked_out("HEAD", repository)
    (tree.folder / "made").touch()
    assert checked_out("HEAD", repository) == tree
    assert (tree.folder / "made").exists()
    assert [*tree.folder.parent.iterdir()] == [tree.folder]


def test_what_cannot_be_compiled_is_not_kept(repository: Path) -> None:
    """The next comparison would measure interpreted code."""
    (repository / "hatch_build.py").unlink()
    commit(repository)
    with pytest.raises(RuntimeError, match="HEAD cannot be compiled"):
        checked_out("HEAD", repository)
    assert [*(repository / "build" / "compare").iterdir()] == []


def test_another_source_than_the_revisions_is_found_out(tmp_path: Path) -> None:
    """What is installed would be measured in place of a revision that has no such package."""
    (tmp_path / "src").mkdir()
    with pytest.raises(RuntimeError, match=r"empty: expected contrada below .*, found"):
        Tree("empty", tmp_path).check()


def test_a_run_that_fails_says_why(repository: Path) -> None:
    """A broken benchmark would give no figures, and no reason."""
    (repository / "bench" / "run.py").write_text("1 / 0")
    with pytest.raises(RuntimeError, match=r"(?s)this tree has no figures:.*ZeroDivision"):
        Tree("this tree", repository).records("")


def test_worse_figures_are_the_status(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    """A script would not know that a change costs."""
    monkeypatch.setattr(compare, "REPOSITORY", repository)
    for words, status in ((("HEAD~1", "HEAD"), 0), (("HEAD", "HEAD~1"), 1), (("HEAD",), 0)):
        result = CliRunner().invoke(compare.main, [*words, "--turns", "6"])
        assert result.exit_code == status, result.stderr
        (line,) = result.stdout.splitlines()
        assert json.loads(line)["turns"] == 6


def test_an_unknown_revision_ends_the_run() -> None:
    """A mistyped revision would be measured as no revision at all."""
    result = CliRunner().invoke(compare.main, ["no-such-revision", "--only", "ways/import"])
    assert result.exit_code == 2
    assert "no revision 'no-such-revision'" in result.stderr


def test_a_program_runs_once_for_all_its_numbers(tmp_path: Path) -> None:
    """Each figure would run the program again."""
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"
    program = ("-c", f'{count}; print(\'{{"one": 1.0, "two": 2.0}}\')')
    assert measured("one", *program, runs=2, unit=0.5).samples == [2.0, 2.0]
    assert measured("two", *program, runs=2).samples == [2.0, 2.0]
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_program_that_fails_says_why() -> None:
    """A broken measurement would give numbers, or no reason."""
    with pytest.raises(RuntimeError, match=r"(?s)failed:.*ZeroDivisionError"):
        measured("one", "-c", "1 / 0")


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([{"n": 5}], id="lost"),
        pytest.param([{"n": 6}, {"n": 5}], id="out of order"),
        pytest.param([{"n": 5}, {"n": 5}], id="twice"),
    ],
)
def test_a_reader_checks_what_it_reads(events: list[dict[str, int]]) -> None:
    """What is lost on the way would make the way look cheaper."""

    async def some() -> None:
        async def feed() -> AsyncIterator[dict[str, int]]:
            for event in events:
                yield event

        await trips.read(feed(), 5, 2)

    with pytest.raises(AssertionError):
        asyncio.run(some())


def test_of_all_filters_one_matches() -> None:
    """The broker's figure would hold other deliveries than its text says."""
    wanted = ct.Filter(trips.WANTED)
    for item in trips.items(trips.FILTERS // trips.NEAR_MISSES)[::7]:
        notification = ct.Notification(item)
        first = item["n"] * trips.NEAR_MISSES
        near = [ct.Filter(trips.other_filter(first + each)) for each in range(trips.NEAR_MISSES)]
        assert wanted.matches(notification)
        assert not any(each.matches(notification) for each in near)
        dearer = ct.Notification(item | {"price": 100.5})
        assert [each.matches(dearer) for each in near] == [True] + [False] * (len(near) - 1)
