"""`faults` of a built site: files that its pages load and that are missing, or at another host.

python -m website.site_check FOLDER
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from lxml import html

LOADED: Final = "//script/@src | //img/@src | //iframe/@src | //link[not(@rel='canonical')]/@href"
"""The addresses that a browser requests by itself."""

_OF_STYLES: Final = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


def faults(site: Path) -> Iterator[str]:
    """Returns each page with the address of a missing file, or of a file at another host."""
    for page in sorted(site.rglob("*.html")):
        for address in sorted(set(html.parse(str(page)).xpath(LOADED))):
            if not is_in_site(page, address, site):
                yield f"{page.relative_to(site)}: {address}"
    for style in sorted(site.rglob("*.css")):
        for address in _OF_STYLES.findall(style.read_text("utf-8")):
            yield f"{style.relative_to(site)}: {address}"


def is_in_site(page: Path, address: str, site: Path) -> bool:
    """Whether an address of a page is a file of the site, or data in the page itself."""
    if address.startswith("data:"):
        return True
    if re.match(r"[a-z]+:|//", address):
        return False
    path = unquote(re.split("[?#]", address)[0])
    base = site if path.startswith("/") else page.parent
    return (base / path.lstrip("/")).exists()


def _main(site: Path) -> int:
    if not (site / "index.html").is_file():
        sys.stderr.write(f"{site} has no index.html: it is not a site\n")
        return 1
    found = list(faults(site))
    for fault in found:
        sys.stderr.write(f"missing, or at another host: {fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
