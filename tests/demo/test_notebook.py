"""Notebooks: the example, whose cells run in a running loop, and what values show."""

import ast
import inspect
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import contrada as ct
from contrada.model.algebra.html_display import HTML_CHARACTERS_MAX, HTML_ROWS_MAX
from tests.asynchronous import on_loop

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "service.ipynb"

EVIL = '<script>alert("1")</script>'


class Page(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@on_loop
async def test_the_notebook_runs_in_a_running_loop() -> None:
    """A reader's first cells would fail at `await`, or hang in code without it."""
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            # As a kernel does: `await` may be at the top, and the loop is this one.
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            done = eval(compile("".join(cell["source"]), cell["id"], "exec", flags), names)
            if inspect.isawaitable(done):
                await done
    assert (names["event"]["price"], names["other"]["price"]) == (61.5, 88.0)
    assert not names["why"].matches
    assert Page(names["why"]._repr_html_()).text.count("fails") == 2


@on_loop
async def test_values_are_shown_and_escaped() -> None:
    """A text of a stranger's event would run as a script in the reader's notebook."""
    wanted = ct.Filter({"name": EVIL})
    event = ct.Notification({"name": EVIL})
    async with ct.connect() as service, service.subscribe(wanted) as events:
        await service.publish(event)
        with ct.connect_sync() as blocking, blocking.subscribe(wanted) as others:
            shown: list[Any] = [
                *(wanted, event, ct.FilterSet([wanted, wanted]), ct.Advertisement({"name": EVIL})),
                ct.Pattern([wanted, wanted]),
                ct.explain(ct.covers, "name = 'x'", wanted),
                ct.explain(wanted, {"name": "<b>"}),
                *(events, others),
            ]
            for each in shown:
                page = Page(each._repr_html_())
                assert set(page.tags) <= {
                    *("table", "caption", "thead", "tbody", "tr", "th", "td", "code")
                }
                assert "name" in page.text
                assert "alert" in page.text
            assert "queued1" in Page(events._repr_html_()).text


def test_long_values_are_cut() -> None:
    """A browser would hang at the table of a large value."""
    many = ct.FilterSet([ct.Filter({"n": n}) for n in range(HTML_ROWS_MAX + 1)])
    page = Page(many._repr_html_())
    assert page.tags.count("td") == HTML_ROWS_MAX + 1
    assert page.text.endswith("… and more")
    long = ct.Filter({"name": "x" * 2 * HTML_CHARACTERS_MAX})
    assert len(long._repr_html_()) < HTML_CHARACTERS_MAX + 100
