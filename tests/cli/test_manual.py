"""`contrada help` prints the pages to which other texts point."""

import ast
import re
from pathlib import Path

from click.testing import CliRunner

from contrada.cli import COMMANDS, main
from contrada.cli.manual import page_of
from tests.test_papers_links import REPOSITORY

TEXTS = (*(REPOSITORY / "src").rglob("*.py"), *(REPOSITORY / "src").rglob("*.js"))


def test_a_page_is_printed() -> None:
    """A user without the repository would have no documentation."""
    page = CliRunner().invoke(main, ["help", "delivery"])
    assert (page.exit_code, page.output) == (0, page_of("delivery"))
    pages = CliRunner().invoke(main, ["help"])
    assert "(delivery.md)" in pages.output


def test_the_options_of_a_command_are_printed() -> None:
    """`contrada help sub`, as of other programs, would be an error."""
    found = CliRunner().invoke(main, ["help", "sub"])
    assert (found.exit_code, found.output) == (0, CliRunner().invoke(main, ["sub", "-h"]).output)
    assert found.output.startswith("Usage: main sub [OPTIONS]")


def test_an_unknown_topic_is_an_error_with_all_topics() -> None:
    """A user would have to guess the topics."""
    found = CliRunner().invoke(main, ["help", "no such"])
    assert found.exit_code == 2
    assert "no page 'no such'; there are: applications, architecture, " in found.output


def test_texts_point_to_topics_that_exist() -> None:
    """An error would point to nothing; or to a file that an installation does not have."""
    topics = set()
    for path in TEXTS:
        topics |= set(re.findall(r"contrada help ([a-z]+)", path.read_text("utf-8")))
        assert [text for text in shown_texts(path) if "docs/" in text] == [], path
    assert len(topics) > 5
    for topic in topics - COMMANDS.keys():
        assert page_of(topic)


def shown_texts(path: Path) -> list[str]:
    """The texts of a module that a user may see: all but docstrings, and the help of commands."""
    if path.suffix != ".py":
        return [path.read_text("utf-8")]
    tree = ast.parse(path.read_text("utf-8"))
    hidden = set()
    for node in ast.walk(tree):
        is_command = isinstance(node, ast.FunctionDef) and "cli" in path.parts
        for each in () if is_command else ast.iter_child_nodes(node):
            if isinstance(each, ast.Expr):
                hidden.add(each.value)
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [str(node.value) for node in found if node not in hidden]


def test_hints_for_extras_are_quoted() -> None:
    """A shell would take the brackets for a pattern."""
    for path in TEXTS:
        assert "install contrada[" not in path.read_text("utf-8"), path
