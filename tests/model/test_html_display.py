"""HTML of values in notebooks."""

from contrada.model import Notification
from contrada.model.algebra.html_display import (
    HTML_CHARACTERS_MAX,
    HTML_ROWS_MAX,
    html_code,
    html_table,
)
from contrada.model.algebra.match_explanation import explain_match


def test_text_of_others_is_no_markup() -> None:
    """A notification could run a script in the notebook that shows it."""
    assert html_code("a < '<b>'") == "<code>a &lt; &#x27;&lt;b&gt;&#x27;</code>"
    shown = html_table(("<i>",), [("<b>",)], "<u>")
    assert shown == (
        "<table><caption><code>&lt;u&gt;</code></caption><thead><tr><th>&lt;i&gt;</th></tr></thead>"
        "<tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>"
    )


def test_large_values_are_cut_with_a_mark() -> None:
    """A page would hold megabytes; or a reader take a part for the whole."""
    full, over = [("x",)] * HTML_ROWS_MAX, [("x",)] * (HTML_ROWS_MAX + 1)
    assert "more" not in html_table(("a", "b"), full)
    shown = html_table(("a", "b"), over)
    assert shown.count("<td>x</td>") == HTML_ROWS_MAX
    assert shown.endswith('<tr><td colspan="2">… and more</td></tr></tbody></table>')
    assert "caption" not in shown
    longest = "x" * HTML_CHARACTERS_MAX
    assert html_code(longest) == f"<code>{longest}</code>"
    assert html_code(longest + "y") == f"<code>{longest}…</code>"


def test_an_explanation_shows_each_constraint() -> None:
    """The cause would stand beside a constraint that holds."""
    found = explain_match("a = 1 and b = 2", Notification({"a": 1, "b": 3}))
    shown = found._repr_html_()
    assert shown.count("<td>holds</td>") == shown.count("<td>fails</td>") == 1
    assert shown.index("holds") < shown.index("fails")
    assert "<caption><code>does not match: a = 1 and b = 2</code></caption>" in shown
