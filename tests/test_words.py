"""Holds the language of docstrings, pages, errors and comments, and the names of modules."""

from collections import Counter
from pathlib import Path

import pytest

from tests.words import LIMITS, REPOSITORY, comments, counted, files_below, prose, rates, texts_of

PLACES = {
    "src": [REPOSITORY / "src"],
    "help": [REPOSITORY / "src" / "contrada" / "cli"],
    "tests": [REPOSITORY / "tests"],
    "bench": [REPOSITORY / "bench"],
    "docs": [REPOSITORY / "docs"],
    "README": [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"],
}


@pytest.mark.parametrize("place", PLACES)
def test_sentences_name_things(place: str) -> None:
    """A reader would meet clauses such as "what waits" in the place of nouns."""
    found = rates(counted(prose(path) for path in files_below(PLACES[place])))
    assert {name: rate for name, rate in found.items() if rate > LIMITS[name]} == {}


def test_errors_name_things() -> None:
    """A user would read the sentence of an error twice."""
    found = rates(counted(text for path in modules("src") for text in texts_of(path).messages))
    assert {name: rate for name, rate in found.items() if rate > LIMITS[name]} == {}


@pytest.mark.parametrize("place", ["src", "tests"])
def test_comments_name_things(place: str) -> None:
    """A maintainer would read the reason of a line twice."""
    found = rates(counted(text for path in modules(place) for text in comments(path)))
    assert {name: rate for name, rate in found.items() if rate > LIMITS[name]} == {}


def modules(place: str) -> list[Path]:
    """The modules of a folder of the repository."""
    return [path for path in files_below([REPOSITORY / place]) if path.suffix == ".py"]


def test_avoided_words_are_counted() -> None:
    """A rate would be below its limit because nothing was counted."""
    counts = counted(["What waits is told to who comes, and goes where it stands."])
    assert {name: counts[name] for name in LIMITS} == {
        "what": 1,
        "who": 1,
        "told/said": 1,
        "come/go": 2,
        "stand": 1,
    }
    assert counts["words"] == 12


def test_module_names_are_nouns_and_differ() -> None:
    """An editor's list of open files would show several of one name, or a gerund."""
    names = Counter(path.stem for path in modules("src") if path.stem[:2] != "__")
    assert [name for name, count in names.items() if count > 2] == []
    assert [name for name in names if name.endswith("ing")] == []
