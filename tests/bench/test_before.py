"""Measurements paired with an earlier revision, on a small repository of its own."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import contrada as ct
from bench import before, run, trips
from bench.before import Tree

PROGRAM = ("-c", "import contrada; print(contrada.NUMBERS)")


def git(repository: Path, *words: str) -> None:
    """A command of git there, by an author who depends on no settings."""
    author = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repository), *author, *words], check=True)


def write(repository: Path, text: str) -> Path:
    """Make this the whole project; its folder on the search path."""
    package = repository / "src" / "contrada"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(text, "utf-8")
    return package.parent


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tree]:
    """A revision that says 2.0, and this tree, which says 3.0; nothing is to be prepared."""
    write(tmp_path, "NUMBERS = '{\"seconds\": 2.0}'")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "two")
    source = write(tmp_path, "NUMBERS = '{\"seconds\": 3.0}'")
    both = [Tree("this tree", source), before.earlier("HEAD", tmp_path)]
    monkeypatch.setattr(before, "_trees", both)
    monkeypatch.setattr(Tree, "prepare", lambda _: None)
    before._runs.cache_clear()
    return both


def test_each_revision_runs_with_its_own_source(trees: list[Tree]) -> None:
    """A figure would show this tree, or what is installed, as the revision before."""
    measurement = before.measured("seconds", *PROGRAM, pairs=2, unit=0.5)
    assert list(measurement.samples) == [6.0, 6.0]
    assert (measurement.peer, list(measurement.peer_samples)) == ("HEAD", [4.0, 4.0])


def test_without_an_earlier_revision_only_this_tree_is_measured(trees: list[Tree]) -> None:
    """Whoever measures alone would have to name a revision."""
    del trees[1]
    measurement = before.measured("seconds", *PROGRAM, pairs=1)
    assert (list(measurement.samples), measurement.peer) == ([3.0], None)


def test_runs_are_alternate_and_made_once(
    trees: list[Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow spell would hit one side only, or each figure would run the program again."""
    ran: list[str] = []

    def record(tree: Tree, *_: str) -> dict[str, float]:
        ran.append(tree.name)
        return {"one": 1.0, "two": 2.0}

    monkeypatch.setattr(Tree, "run", record)
    assert before.measured("one", "program", pairs=2).samples == [1.0, 1.0]
    assert before.measured("two", "program", pairs=2).samples == [2.0, 2.0]
    assert ran == ["this tree", "HEAD"] * 2


def test_a_revision_that_is_there_is_kept(trees: list[Tree], tmp_path: Path) -> None:
    """What it compiled would be compiled again in each run."""
    made = trees[1].source / "made"
    made.touch()
    assert before.earlier("HEAD", tmp_path).source == trees[1].source
    assert made.exists()
    assert [path.name for path in trees[1].source.parent.iterdir()] == ["src"]


def test_another_source_than_the_revisions_is_found_out(tmp_path: Path) -> None:
    """What is installed would be measured in place of a revision that has no such package."""
    (tmp_path / "src").mkdir()
    with pytest.raises(RuntimeError, match=r"empty: expected contrada below .*src, found"):
        Tree("empty", tmp_path / "src").prepare()


def test_a_program_that_fails_says_why(trees: list[Tree]) -> None:
    """A broken measurement would give numbers, or no reason."""
    with pytest.raises(RuntimeError, match=r"(?s)with this tree failed:.*ZeroDivisionError"):
        trees[0].run("-c", "1 / 0")


def test_an_unknown_revision_ends_the_run() -> None:
    """A mistyped revision would be measured as no revision at all."""
    result = CliRunner().invoke(run.main, ["--only", "ways/import", "--before", "no-such-revision"])
    assert result.exit_code == 2
    assert "no revision 'no-such-revision'" in result.stderr


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
