"""`generated_pages`: the pages of the site about commands, metrics and the Python interface."""

from collections.abc import Iterator
from typing import Any, Final

import click
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import contrada as ct
from contrada.cli import main
from contrada.integrations.http.metrics import GatewayCounts, metrics_answer

WIDTH: Final = 100

COMMANDS_HEAD: Final = """# Commands

Each command with its `--help`. Exit status: 0 success; 1 a service cannot be reached; 2 wrong usage
or bad input; 3 a name in an option is not in the input; 4 answers are missing; 130 ended by Ctrl-C;
143 ended by SIGTERM. Every error is one line on standard error.
"""
METRICS_HEAD: Final = """# Metrics

`GET /metrics` of the [HTTP port](http.md) has these metrics, in the text format of Prometheus.
[Operations](operations.md#what-to-watch) explains which of them to watch.

| metric | type | labels | meaning |
|---|---|---|---|
"""
API_HEAD: Final = """# Python interface

The names of `import contrada as ct`. The [tutorial](tutorial.md) shows them in use.
"""


def generated_pages() -> dict[str, str]:
    """Returns the text of each page by its file name."""
    return {"commands.md": commands(), "metrics.md": metrics(), "api.md": python_interface()}


def commands() -> str:
    """Returns the help of each command and of its subcommands."""
    context = click.Context(main, info_name="contrada", **main.context_settings)
    sections = (f"\n## {name}\n\n```text\n{text}\n```\n" for name, text in _help_texts(context))
    return COMMANDS_HEAD + "".join(sections)


def _help_texts(parent: click.Context) -> Iterator[tuple[str, str]]:
    group = parent.command
    assert isinstance(group, click.Group)
    settings: dict[str, Any] = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=parent, **settings) as context:
            yield context.command_path, command.get_help(context)
            if isinstance(command, click.Group):
                yield from _help_texts(context)


class _Sample(dict[str, Any]):
    """Statistics of a broker in which each table of counts has one row, so its label is known."""

    def get(self, key: str, default: Any = None) -> Any:
        return {"0": 0} if default == {} else super().get(key, default)


def metrics() -> str:
    """Returns the table of the metrics of a broker and its HTTP port."""
    text = bytes(metrics_answer(_Sample(), _counted_once(), 0).body).decode()
    return METRICS_HEAD + "".join(map(_row, text_string_to_metric_families(text)))


def _counted_once() -> GatewayCounts:
    counts = GatewayCounts()
    counts.requests[("", 0)] = counts.dropped[""] = counts.pushed[""] = 1
    return counts


def _row(metric: Metric) -> str:
    labels = sorted({label for sample in metric.samples for label in sample.labels} - {"le"})
    name = metric.name + "_total" * (metric.type == "counter")
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {metric.type} | {shown} | {metric.documentation} |\n"


def python_interface() -> str:
    """Returns the directives that show the public names, sections by kind."""
    modules = ("errors", "ops")
    names = sorted(set(ct.__all__) - {*modules}, key=str.lower)
    classes = [name for name in names if isinstance(getattr(ct, name), type)]
    functions = [name for name in names if name not in classes]
    parts = {"Classes": classes, "Functions and values": functions}
    shown = "".join(
        f"\n## {title}\n" + "".join(f"\n::: contrada.{name}\n" for name in listed)
        for title, listed in parts.items()
    )
    return API_HEAD + shown + "".join(f"\n## `ct.{it}`\n\n::: contrada.{it}\n" for it in modules)
