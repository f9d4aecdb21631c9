"""`page_of`: a page in a real browser, which is Chromium without a window, driven by Playwright.

`serious_findings` are those of axe, which tests whether people with any ability can use a page.
"""

import re
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: install the package chromium"
)

_FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@asynccontextmanager
async def page_of(
    url: str, *, expected: str = "", others: Collection[str] = (), **options: Any
) -> AsyncIterator[Any]:
    """Yields the page of an address.

    An error on the browser's console fails the test, unless the `expected` pattern is in it. So
    does a request to another host, except `others`; both of other pages of its context, too.
    """
    playwright = pytest.importorskip("playwright.async_api")
    faults: list[str] = []
    hosts: set[str] = set()
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=[*_FLAGS])
        context = await browser.new_context(**options)
        context.on("console", lambda it: faults.append(it.text) if it.type == "error" else None)
        context.on("weberror", lambda it: faults.append(str(it.error)))
        context.on("request", lambda it: hosts.add(urlsplit(it.url).netloc))
        page = await context.new_page()
        await page.goto(url)
        yield page
        await browser.close()
    strange = [each for each in faults if not expected or not re.search(expected, each)]
    assert strange == [], strange
    # Those of `data:` and `blob:` have no host.
    assert hosts <= {"", urlsplit(url).netloc, *others}


async def serious_findings(page: Any) -> list[tuple[str, list[str]]]:
    """Returns the rules that a page breaks, of an impact from `serious` on, and its elements."""
    axe = pytest.importorskip("axe_playwright_python.async_playwright")
    found = await axe.Axe().run(page)
    return [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found.response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
