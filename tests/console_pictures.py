"""`take_pictures`: each page of the console as a picture, for README.md and docs.

`python -m tests.console_pictures` writes docs/images; `make pictures` calls it.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.browsers import page_of
from tests.integrations.http.console_tour import pages_of, show, stock_exchange

FOLDER: Final = Path(__file__).parent.parent / "docs/images"
PICTURE_BYTES_MAX: Final = 100_000
_SIZE: Final = {"width": 1120, "height": 780}


async def take_pictures(folder: Path) -> list[Path]:
    """Writes a picture of each page; returns their files, in the order of the pages."""
    made: list[Path] = []
    with TemporaryDirectory() as store:
        async with (
            stock_exchange(Path(store) / "events.db") as it,
            page_of(f"{it.gateway.address}/", color_scheme="light", viewport=_SIZE) as page,
        ):
            for name in await pages_of(page):
                await show(it, page, name)
                # A picture shows neither a cursor nor the colour of an element under the mouse.
                await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
                await page.mouse.move(0, 0)
                made.append(folder / f"console-{name}.png")
                await page.screenshot(path=made[-1], animations="disabled", caret="hide")
                _shrink(made[-1])
    return made


def _shrink(picture: Path) -> None:
    """Reduces a picture to 64 colours, which takes a third of the bytes."""
    image = pytest.importorskip("PIL.Image").open(picture).convert("RGB")
    image.quantize(64, dither=0).save(picture, optimize=True)


if __name__ == "__main__":
    asyncio.run(take_pictures(FOLDER))
