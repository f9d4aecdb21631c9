"""Holds docs/limits.md, and what the docstrings of limits say."""

import re
from collections import Counter

from tests.limits import NO_LIMITS, PAGE, constants, limits, page


def test_the_page_is_made_from_the_code() -> None:
    """A reader would believe in a limit that is another one, or none: run `make limits`."""
    assert PAGE.read_text("utf-8") == page()


def test_limits_say_what_happens_beyond_them() -> None:
    """Who reaches a limit could not look up what happens then."""
    form = re.compile(r".+\. Beyond it: .+\.")
    silent = [limit.place for limit in limits() if not form.fullmatch(limit.docstring)]
    assert silent == []


def test_names_of_limits_are_unique() -> None:
    """An error that names its limit would not say which of two it is."""
    named = Counter(f"{limit.owner}.{limit.name}" for limit in limits())
    assert [name for name, count in named.items() if count > 1] == []


def test_what_is_no_limit_is_there() -> None:
    """A name would be excused that nothing has, and the next one to take it with it."""
    assert {constant.place for constant in constants()} >= NO_LIMITS
