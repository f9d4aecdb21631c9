"""The source folder of the site: links and names of the pages."""

import re
from pathlib import Path

import pytest

from website.source_folder import REPOSITORY, write_source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source folder of a site whose repository has no address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CONTRADA_REPOSITORY_URL", raising=False)
        folder = tmp_path_factory.mktemp("site") / "source"
        write_source(folder)
    return folder


def test_pages_of_the_root_link_to_the_others(folder: Path) -> None:
    """A newcomer would follow a link from the README into nothing."""
    text = (folder / "readme.md").read_text("utf-8")
    assert "[The tutorial](tutorial.md)" in text
    assert "[CONTRIBUTING.md](contributing.md)" in text
    assert "(readme.md#install)" in (folder / "tutorial.md").read_text("utf-8")


def test_links_out_of_the_pages_are_text(folder: Path) -> None:
    """A link to a file of the repository would lead out of the site."""
    for page in folder.glob("*.md"):
        assert re.findall(r"\]\(\.\./", page.read_text("utf-8")) == [], page.name


def test_links_lead_to_the_address_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published site would not lead to the code that it mentions."""
    monkeypatch.setenv("CONTRADA_REPOSITORY_URL", "https://code.example/contrada/")
    write_source(tmp_path / "source")
    text = (tmp_path / "source" / "where.md").read_text("utf-8")
    assert "[src/contrada](https://code.example/contrada/blob/HEAD/src/contrada)" in text


def test_code_is_unchanged(folder: Path) -> None:
    """An example that holds `](…)` would be another one on the site."""
    fences = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    for page in (REPOSITORY / "docs").glob("*.md"):
        of_site = fences.findall((folder / page.name).read_text("utf-8"))
        assert of_site == fences.findall(page.read_text("utf-8"))


def test_every_page_is_in_the_navigation(folder: Path) -> None:
    """A reader of the site would find a page by search only."""
    listed = re.findall(r": (\w+\.md)$", (REPOSITORY / "mkdocs.yml").read_text("utf-8"), re.M)
    assert sorted(listed) == sorted(page.name for page in folder.glob("*.md"))
