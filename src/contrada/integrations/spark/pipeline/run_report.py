"""`write_report`: `report.json` for programs, `report.html` for people."""

from pathlib import Path
from typing import Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from contrada.integrations.spark.pipeline.hadoop_paths import Folder
from contrada.integrations.spark.pipeline.outcome_counts import PipelineSummary
from contrada.integrations.spark.pipeline.run_folder import write_atomically

SUBSCRIPTIONS_SHOWN_MAX: Final = 1_000
"""Subscriptions on the page, those with the most matches. Beyond it: `report.json` has all of
them."""

_TEMPLATE: Final = "report.html.jinja"


def write_report(summary: PipelineSummary, folder: Folder) -> None:
    """Writes both reports, replacing former ones."""
    write_atomically(folder / "report.json", msgspec.json.format(msgspec.json.encode(summary)))
    write_atomically(folder / "report.html", _page(summary).encode())


def _page(summary: PipelineSummary) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    frequent = sorted(summary.matches.items(), key=lambda each: -each[1])
    return environment.get_template(_TEMPLATE).render(
        summary=summary, frequent=frequent[:SUBSCRIPTIONS_SHOWN_MAX]
    )
