"""Tutorials and how-to guides: every block works, and prints the output shown."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import browsers
from tests.asynchronous import on_loop
from tests.website.page_runner import PageRunner, blocks_of, pattern_of
from tests.words import REPOSITORY

needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra spark")

PAGES = (
    *(
        "eventbridge",
        "ideas",
        "migrating",
        "network",
        "tutorial_operator",
        "tutorial_security",
        "workers",
    ),
    pytest.param("tutorial_data", marks=[pytest.mark.spark, needs_spark]),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_blocks_print_the_output_shown(name: str, tmp_path: Path) -> None:
    """A newcomer's command or program would fail, or print something else."""
    with PageRunner(REPOSITORY / "docs" / f"{name}.md", tmp_path) as page:
        page.run()


@pytest.mark.slow
@browsers.needs_browser
@on_loop
async def test_a_browser_shows_and_publishes_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page for browsers would show no event, or be refused by the broker."""
    with PageRunner(REPOSITORY / "docs" / "browser.md", tmp_path) as page:
        page.run()
        inside = tmp_path / "browser.sh"
        inside.write_text(f'#!/bin/sh\nexec {" ".join(page.prefix())} {browsers.CHROMIUM} "$@"\n')
        inside.chmod(0o755)
        monkeypatch.setattr(browsers, "CHROMIUM", str(inside))
        address, others = "http://localhost:8000/page.html", ["127.0.0.1:8080"]
        # The browser also requests an icon, which the server does not have.
        async with browsers.page_of(address, expected="404", others=others) as shown:
            await shown.get_by_role("button").click()
            await shown.get_by_role("listitem").filter(has_text="tea").wait_for()
            page.start(blocks_of(page.page)[-1].text.splitlines()[0].removeprefix("$ "))
            await shown.get_by_role("listitem").filter(has_text="coffee").wait_for()


def test_another_output_is_found() -> None:
    """A page would pass with any output."""
    shown = pattern_of("a …\n…\nend\n")
    assert shown.fullmatch("a 1\nb\nend\n")
    assert shown.fullmatch("a 1\nend\n")
    assert not shown.fullmatch("a 1\nb\nEND\n")
    assert not shown.fullmatch("b 1\nend\n")


def test_a_wrong_page_fails(tmp_path: Path) -> None:
    """A block with another output, or one that nothing runs, would stay in a page."""
    for text in ("```console\n$ echo a\nb\n```", "```python\n1\n```", "```sh\ntrue\n```"):
        page = tmp_path / "page.md"
        page.write_text(text + "\n", "utf-8")
        with PageRunner(page, tmp_path) as runner, pytest.raises(AssertionError):
            runner.run()
