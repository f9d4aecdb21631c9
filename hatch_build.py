"""`RepositoryLinks`: README and addresses of a package, with links that work on a package index.

The links of README.md are relative, so that they work in every checkout and fork. On a package
index they need the repository's address. It is not written here, since forks and mirrors have their
own; the build takes it from its environment: CONTRADA_REPOSITORY_URL, or the variables of GitHub
Actions. Without an address, links to files become plain text. (hatch-fancy-pypi-readme rewrites
links too, but only to an address in pyproject.toml.)
"""

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class RepositoryLinks(MetadataHookInterface):
    """Sets `readme` and `urls` of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fills in the dynamic fields."""
        url = repository_url(os.environ)
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(text, url)}
        metadata["urls"] = urls(url) if url else {}


def repository_url(environment: Any) -> str:
    """Returns the address of the repository, or an empty text."""
    if url := environment.get("CONTRADA_REPOSITORY_URL"):
        return str(url).rstrip("/")
    server, name = (environment.get(f"GITHUB_{each}") for each in ("SERVER_URL", "REPOSITORY"))
    return f"{server}/{name}" if server and name else ""


def with_links(text: str, url: str) -> str:
    """Returns a page with absolute links, or with plain text instead of links to files."""
    return LINK.sub(rf"[\1]({url}/blob/HEAD/\2)" if url else r"\1", text)


def urls(url: str) -> dict[str, str]:
    """Returns the addresses of the package's parts."""
    pages = {
        "Documentation": "docs/index.md",
        "Changelog": "CHANGELOG.md",
        "Security": "SECURITY.md",
    }
    return {
        "Repository": url,
        "Issues": f"{url}/issues",
        **{name: f"{url}/blob/HEAD/{path}" for name, path in pages.items()},
    }
