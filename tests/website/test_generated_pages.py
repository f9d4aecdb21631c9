"""The generated pages of the site: commands, metrics and the Python interface."""

import re

import click

import contrada as ct
from contrada.cli import COMMANDS, main
from website.generated_pages import generated_pages

PAGES = generated_pages()


def test_every_command_has_a_section_with_its_options() -> None:
    """A user would not find a command, or a subcommand, on the page."""
    sections = dict(re.findall(r"^## contrada (.*)\n\n```text\n(.*)", PAGES["commands.md"], re.M))
    assert {name.split()[0] for name in sections} == COMMANDS.keys()
    with click.Context(main, info_name="contrada") as context:
        for name in COMMANDS:
            command = main.get_command(context, name)
            for below in command.commands if isinstance(command, click.Group) else ():
                assert f"{name} {below}" in sections
    assert sections["sub"].startswith("Usage: contrada sub [OPTIONS]")
    assert "\n  --help" not in PAGES["commands.md"], "help of commands outside their group"


def test_metrics_have_type_labels_and_meaning() -> None:
    """An operator would write a rule for a metric or label that does not exist."""
    assert "| `contrada_published_total` | counter |  | Notifications" in PAGES["metrics.md"]
    assert "| `contrada_queue_unread` | gauge | `queue` | Unread" in PAGES["metrics.md"]
    assert "| `contrada_http_requests_total` | counter | `status`, `way` |" in PAGES["metrics.md"]


def test_every_public_name_is_shown() -> None:
    """A developer would not find a public class or function."""
    shown = re.findall(r"^::: contrada\.(\w+)$", PAGES["api.md"], re.MULTILINE)
    assert sorted(shown) == sorted(ct.__all__)
