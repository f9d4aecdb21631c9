"""The console by keyboard, at a telephone's width, in both colour schemes, by the rules of axe."""

from pathlib import Path
from typing import Any

import pytest

from tests.asynchronous import on_loop
from tests.browsers import needs_browser, page_of, serious_findings
from tests.integrations.http.conftest import serving
from tests.integrations.http.console_tour import pages_of, show, stock_exchange

pytestmark = [pytest.mark.slow, needs_browser]

USABLE = """() => {
  const kinds = "a, button, input, select, summary, [contenteditable=true]";
  const some = [...document.querySelectorAll(kinds)].filter(it => it.checkVisibility());
  // The rows of a long list are in the page while they are visible.
  window.usable = some.filter(it => !it.disabled && !it.closest(".rows"));
  window.reached = new Set();
}"""
"""Notes the elements that a mouse could use."""

FOCUSED = """() => {
  const it = document.activeElement, isNew = it !== document.body && !reached.has(it);
  if (isNew) reached.add(it);
  return isNew || it === document.body;
}"""
"""Notes the focused element; false for one that had the focus before."""

UNREACHED = "usable.filter(it => !reached.has(it)).map(it => it.outerHTML.slice(0, 80))"

IS_SHOWN = """() => {
  const it = document.activeElement, style = getComputedStyle(it.closest(".cm-editor") || it);
  if (it === document.body) return true;  // Between the last element and the first one.
  return `${style.outlineStyle} ${style.outlineColor}` === "solid rgb(122, 183, 255)";
}"""
"""Whether the focus is visible, in the colour `--link` of the dark scheme."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@on_loop
async def test_axe_finds_nothing_serious(tmp_path: Path, scheme: str, width: int) -> None:
    """Some people could not read a page, or not use it, or a telephone's user not see all."""
    size = {"width": width, "height": 844}
    async with (
        stock_exchange(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/", color_scheme=scheme, viewport=size) as page,
    ):
        for name in await pages_of(page):
            await show(it, page, name)
            assert (name, await serious_findings(page)) == (name, [])
            hidden = "document.documentElement.scrollWidth - innerWidth"
            assert (name, await page.evaluate(hidden)) == (name, 0)


@on_loop
async def test_every_element_is_reached_by_the_keyboard(tmp_path: Path) -> None:
    """A person without a mouse could not use an element, not see where they are, or not leave."""
    async with (
        stock_exchange(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/", color_scheme="dark") as page,
    ):
        for name in await pages_of(page):
            await show(it, page, name)
            await page.evaluate(USABLE)
            for _ in range(1_000):
                await page.keyboard.press("Tab")
                if not await page.evaluate(FOCUSED):
                    break
                await page.wait_for_function(IS_SHOWN)  # The editor draws its own a moment later.
            assert (name, await page.evaluate(UNREACHED)) == (name, [])


async def tab_to(page: Any, name: str) -> None:
    """Presses Tab until the button of this name has the focus."""
    text = "document.activeElement.innerText"
    for _ in range(100):
        await page.keyboard.press("Tab")
        if await page.evaluate(text) == name:
            return
    raise AssertionError(f"no button {name}")


@on_loop
async def test_a_dialog_holds_the_keyboard_and_gives_it_back(tmp_path: Path) -> None:
    """A person without a mouse would press buttons behind a question, or be lost after it."""
    async with (
        stock_exchange(tmp_path / "events.db") as it,
        page_of(f"{it.gateway.address}/#queues") as page,
    ):
        await page.get_by_role("button", name="audit").wait_for()
        await tab_to(page, "audit")
        await page.keyboard.press("Enter")
        await page.get_by_text("No dead letters").or_(page.get_by_text("Position")).wait_for()
        await tab_to(page, "Purge")
        await page.keyboard.press("Enter")
        within = (
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        for _ in range(6):
            assert await page.evaluate(within)
            await page.keyboard.press("Tab")
        await page.keyboard.press("Escape")
        await page.get_by_role("alertdialog").wait_for(state="hidden")
        assert await page.evaluate("document.activeElement.innerText") == "Purge"
        assert (await it.service.queues.state("audit")).unread == 30
        await page.keyboard.press("Enter")
        await tab_to(page, "Purge")
        await page.keyboard.press("Enter")
        await page.get_by_text("audit: purged 30").wait_for()
        assert await page.evaluate("document.activeElement.innerText") == "Purge"


@on_loop
async def test_a_filter_is_tried_by_keyboard() -> None:
    """A person without a mouse could not complete a name, or not leave the editor."""
    async with serving() as it, page_of(f"{it.gateway.address}/") as page:
        await page.get_by_text("1 of 3 match").wait_for()
        await tab_to(page, "Copy a link")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("s")
        offered = page.get_by_label("Completions")
        chosen = offered.get_by_role("option", name="symbol", selected=True)
        first, moves = offered.get_by_role("option", selected=True), 0
        await first.wait_for()
        # The editor takes no key for a choice in the first moment of a list.
        while not moves or not await chosen.count():
            text = await first.inner_text()
            await page.keyboard.press("ArrowDown")
            moves += text != await first.inner_text()
        await page.keyboard.press("Enter")
        await page.keyboard.type(' = "IBM"')
        await page.keyboard.press("Escape")
        await page.get_by_role("row", name="3 matches").wait_for()
        await tab_to(page, "sql")
        await page.keyboard.press("Enter")
        await page.get_by_text('"symbol" = ?').wait_for()
