"""`Subject`: subjects as filters, nesting, and invalid paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import InvalidValueError, LimitError
from contrada.typed.collections import Subject
from contrada.typed.collections.subject_path import SUBJECT, SUBJECT_CHARS_MAX

NAMES = st.text("ab.*[", min_size=1, max_size=3).filter(lambda it: "*" not in it)
PATHS = st.lists(NAMES, min_size=1, max_size=4)
ASKED = st.lists(st.one_of(st.just("*"), NAMES), max_size=4)


def path(names: list[str]) -> str:
    return "/" + "/".join(names)


def lies_in(names: list[str], outer: list[str], nested: bool) -> bool:
    """The definition of nesting, name by name."""
    if len(names) < len(outer) or (not nested and len(names) > len(outer)):
        return False
    return all(it in ("*", name) for it, name in zip(outer, names, strict=False))


@given(PATHS, ASKED, st.booleans())
def test_a_subject_is_a_filter(names: list[str], outer: list[str], nested: bool) -> None:
    """A subject with the same beginning, or with special characters, would match."""
    if not nested and not outer:
        return
    found = Subject(path(outer), nested).to_filters()
    carried = {SUBJECT: Subject(path(names)).text}
    assert found.matches(carried) == lies_in(names, outer, nested)


def test_covering_falls_out_of_the_algebra() -> None:
    """Servers would need an entry for each nested subject."""
    chat = Subject("/Chat").to_filters()
    for narrower in ("/Chat", "/Chat/Insomnia", "/Chat/*/en", "/Chat/a/b/c/"):
        assert ct.covers(chat, Subject(narrower).to_filters())
    assert ct.covers(chat, Subject("/Chat", nested=False).to_filters())
    assert not ct.covers(chat, Subject("/Chats").to_filters())
    assert ct.covers(Subject("/").to_filters(), Subject("/*/x").to_filters())


def test_without_a_subject_is_not_under_the_root() -> None:
    """The root would match everything."""
    assert not Subject("/").to_filters().matches({"a": 1})


@pytest.mark.parametrize("wrong", ["Chat", "", "/a//b", "/a*", "/a/**", "//", "/a\n", 3])
def test_invalid_subjects_are_refused(wrong: str) -> None:
    """A misspelled subject would have no subscribers."""
    with pytest.raises(InvalidValueError):
        Subject(wrong)


def test_a_subject_is_bounded() -> None:
    """A subject could have any size."""
    with pytest.raises(LimitError, match="SUBJECT_CHARS_MAX"):
        Subject("/" + "a" * SUBJECT_CHARS_MAX)


@pytest.mark.parametrize("several", ["/", "/a/*"])
def test_nothing_is_published_under_a_pattern(several: str) -> None:
    """A star would be a name."""
    with pytest.raises(InvalidValueError, match="more than one"):
        _ = Subject(several).text


def test_paths_are_normalized() -> None:
    """One subject would be two."""
    assert Subject("/a/b/") == Subject("/a/b")
    assert str(Subject("/a/b/")) == "/a/b"
