"""The pictures of the console in the documentation."""

from pathlib import Path

import pytest

from tests.asynchronous import on_loop
from tests.browsers import needs_browser
from tests.console_pictures import FOLDER, PICTURE_BYTES_MAX, take_pictures

ROOT = FOLDER.parent.parent


@pytest.mark.slow
@needs_browser
@on_loop
async def test_each_page_has_a_picture(tmp_path: Path) -> None:
    """A page of the console would be missing in its documentation, or a clone grow by megabytes."""
    names = [each.name for each in await take_pictures(tmp_path)]
    assert sorted(names) == sorted(each.name for each in FOLDER.glob("console-*.png"))
    page = (ROOT / "docs/console.md").read_text("utf-8")
    assert [each for each in names if f"](images/{each})" not in page] == []
    for folder in (tmp_path, FOLDER):
        for each in folder.glob("*.png"):
            assert (each.name, each.stat().st_size < PICTURE_BYTES_MAX) == (each.name, True)
