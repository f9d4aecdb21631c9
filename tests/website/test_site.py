"""The built site, in a browser that opens it from its files."""

from pathlib import Path

import pytest

from tests.asynchronous import on_loop
from tests.browsers import needs_browser, page_of, serious_findings

SITE = Path(__file__).resolve().parents[2] / "out" / "site"

pytestmark = [
    pytest.mark.slow,
    needs_browser,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="needs the site: run make docs"),
]


@on_loop
async def test_search_needs_no_server() -> None:
    """A reader without a network would have no search."""
    async with page_of((SITE / "index.html").as_uri()) as page:
        await page.keyboard.press("/")
        await page.get_by_role("combobox").fill("request and reply")
        await page.get_by_role("option").filter(has_text="Request and reply").first.click()
        await page.wait_for_url("**/applications.html*")


@pytest.mark.parametrize("name", ["index", "syntax"])
@on_loop
async def test_pages_are_for_everyone(name: str) -> None:
    """A reader with a screen reader or a keyboard alone could not use the site."""
    # axe requests the style sheets once more, which files do not allow.
    async with page_of((SITE / f"{name}.html").as_uri(), expected="CORS policy|ERR_FAILED") as page:
        assert await serious_findings(page) == []


@on_loop
async def test_each_production_has_a_picture() -> None:
    """The page of the syntax would be text only, or a name in a picture lead nowhere."""
    async with page_of((SITE / "syntax.html").as_uri()) as page:
        assert await page.locator("svg.railroad-diagram").count() >= 20
        for name in await page.locator("svg.railroad-diagram a").evaluate_all(
            "links => links.map(link => link.getAttribute('xlink:href').slice(1))"
        ):
            assert await page.locator(f"[id='{name}']").count() == 1, name
