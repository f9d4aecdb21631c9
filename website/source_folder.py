"""The source folder of the site: the pages of the repository, completed, and the generated ones.

Pages are written for code hosts and for `contrada help`. On the site, links to
files of the repository lead to its address, CONTRADA_REPOSITORY_URL, if known.

    python -m website.source_folder FOLDER
"""

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from website.generated_pages import generated_pages

REPOSITORY: Final = Path(__file__).resolve().parents[1]

BESIDE: Final = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages beside the folder docs, and their names on the site."""

_FENCE: Final = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_TITLED: Final = re.compile(r"!?\[([^\]]*)\]\(\.\./[^)]+\)")


def write_source(folder: Path) -> None:
    """Writes all pages, pictures, scripts and styles into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs", folder)
    shutil.copytree(REPOSITORY / "website" / "assets", folder / "assets")
    for name, on_site in BESIDE.items():
        text = (REPOSITORY / name).read_text("utf-8")
        (folder / on_site).write_text(_outside_code(text, _as_in_docs), "utf-8")
    for name, text in generated_pages().items():
        (folder / name).write_text(text, "utf-8")
    url = os.environ.get("CONTRADA_REPOSITORY_URL", "").rstrip("/")
    for page in folder.glob("*.md"):
        text = page.read_text("utf-8")
        page.write_text(_outside_code(text, lambda part: _with_links(part, url)), "utf-8")


def _as_in_docs(text: str) -> str:
    """Returns text of a page beside the folder docs, with its links as seen from that folder."""

    def moved(link: re.Match[str]) -> str:
        target, anchor = link.groups("")
        inside = target.removeprefix("docs/")
        return f"]({inside if inside != target else '../' + target}{anchor})"

    return _LINK.sub(moved, text)


def _with_links(text: str, url: str) -> str:
    """Returns text with its links out of the folder docs led to the site, the address or none."""
    for name, on_site in BESIDE.items():
        text = text.replace(f"](../{name}", f"]({on_site}")
    if url:
        return text.replace("](../", f"]({url}/blob/HEAD/")
    return _TITLED.sub(r"\1", text)


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


if __name__ == "__main__":
    write_source(Path(sys.argv[1]))
