"""Plain filters, read without the parser, are those that the parser reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import ContradaError
from contrada.model import Filter, FilterSet
from contrada.model.languages.atoms import KEYWORDS
from contrada.model.syntax.building import built
from contrada.model.syntax.plain import plain_filter


def one_of(words: str, *others: str) -> st.SearchStrategy[str]:
    """One of the words of a text, or of what has spaces in it."""
    return st.sampled_from([*words.split(), *others])


NAMES = one_of(
    "a price a.b-c a- x: _1 $a @id @no @ @1 @is.T @time é `a` 1a", "a" * 256, *sorted(KEYWORDS)
)
OPERATORS = one_of(
    "= != < <= > >= == <> >* * prefix suffix contains in any absent prefix= a= matches &&",
    "= nocase",
    "not prefix",
)
NUMBERS = one_of(
    "5 -5 +7 007 5. .5 -0 -0.0 1.5e3 1e999 inf -inf nan 5_0 ٣ 5.5.5 --5 0x10 9223372036854775807 "
    f"9223372036854775808 {1:018} {1:019} {'1' * 400} {1:018}.{3:018} {1:019}.5 1.{3:019}"
)
TEXTS = one_of(
    r"""'x' "x" "" 'it"s' "\n" '\x' "é" "open x"41" /x/ @2026-11-20T09:30:00Z ('x')""",
    '"a and b = 1"',
    '"\ud800"',
    '"a\nb"',
    '"\0"',
    f'"{"long " * 20}"',
)
WORDS = one_of("true false null True truely trueand x", "")
SPACES = st.sampled_from([" ", " ", " ", "", "\t", "\r\n", "  ", "\v", "\u00a0"])
JOINTS = one_of("and and and And or -> , andand &")


@st.composite
def nearly_plain(draw: st.DrawFn) -> str:
    """Comparisons joined by `and`, and what only looks so."""
    text = ""
    for number in range(draw(st.integers(1, 4))):
        parts = [draw(JOINTS)] if number else []
        parts += [draw(NAMES), draw(OPERATORS), draw(NUMBERS | TEXTS | WORDS)]
        for part in parts:
            text += draw(SPACES) + part
    return text + draw(SPACES)


def check(text: str) -> bool:
    """Whether it is read as plain; if so, the parser reads the same."""
    found = plain_filter(text)
    if found is None:
        return False
    parsed = built(text, "statement")
    assert isinstance(parsed, FilterSet)
    assert [found.sets] == [each.sets for each in parsed.filters], text
    assert [str(found)] == [str(each) for each in parsed.filters], text
    return True


@given(nearly_plain())
def test_what_is_plain_is_read_as_the_parser_reads_it(text: str) -> None:
    """A text would be another filter, or no error, because it was read the fast way."""
    check(text)


@given(st.text(alphabet="ab=<>!'\"1.-+ \tndprefixtrue\\", max_size=24))
def test_no_text_at_all_is_read_otherwise(text: str) -> None:
    """As above, of texts that nobody thought of."""
    check(text)


@pytest.mark.parametrize(
    "text",
    [
        "price < 100 and symbol = 'DIS'",
        " a=1and b>=-2.50\tand\na!='x' and c prefix \"x\" and d = true and e != null ",
        "price >= 1 and price < 2 and price != 1.5",
        f"a = '{'long ' * 20}'",
        "a = 'é' and a-b.c:d = 1",
    ],
)
def test_the_common_form_is_plain(text: str) -> None:
    """The most frequent subscriptions would go the slow way."""
    assert check(text)


@pytest.mark.parametrize(
    "text", ["a < null", "a prefix 3", "a = '\ud800'", "b = 9999999999999999999"]
)
def test_errors_are_told_by_the_parser(text: str) -> None:
    """A fault would have no place, or none would be found."""
    assert plain_filter(text) is None
    with pytest.raises(ContradaError, match="line 1, column"):
        Filter(text)
