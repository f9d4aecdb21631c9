"""`contrada pipeline`: read, match, write and publish on Spark."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from contrada.cli.extension import extension_option
from contrada.cli.lazy import EXIT_UNMET
from contrada.cli.literals import named_text
from contrada.net import parse_addresses
from contrada.spark.session import check_requirements, interruptible, spark_session

if TYPE_CHECKING:
    from contrada.spark.pipeline.publishing import Told
    from contrada.spark.pipeline.run import PipelineSummary


@click.group()
def pipeline() -> None:
    """Pipelines on Spark: files to notifications, matches and quarantine."""


@pipeline.command()
@click.argument("description", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter.")
@click.option("--publish", metavar="ADDRESS", help="Publish the matched notifications there.")
@click.option("--resume", is_flag=True, help="Only publish what is left of the run before.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores to use; all by default.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on standard output.")
@extension_option
def run(
    description: Path,
    settings: tuple[str, ...],
    publish: str | None,
    resume: bool,
    cores: int | None,
    as_json: bool,
) -> None:
    """Run the pipeline of a TOML file DESCRIPTION.

    Writes the matches and the records that could not be read as Parquet, in place of those of
    the run before, and publishes each matched notification once. Records that cannot be read
    do not end a run: they are counted and go to the quarantine with their reason. The exit status
    is 3 where all records of a source are bad, or an option names what none of them has.

    Where the service goes away meanwhile, --resume publishes the rest of the matches that are
    written; what was sent and not answered may come twice then.

    \b
    contrada pipeline run examples/pipelines/operations.toml --set out=/data/out
    contrada pipeline run operations.toml --publish contrada://127.0.0.1:7655 --json
    """  # noqa: D301 - click reads the escape
    check_requirements()
    from contrada.spark.pipeline.description import read_pipeline
    from contrada.spark.pipeline.publishing import publish_matches
    from contrada.spark.pipeline.run import run_pipeline

    described = read_pipeline(description, dict(named_text(text, "--set") for text in settings))
    address = publish or described.publish
    if address:
        parse_addresses(address)  # Else one would wait for Spark to hear that it is wrong.

    def work(stop: threading.Event) -> "PipelineSummary":
        with spark_session(cores) as session:
            return run_pipeline(session, described, publish=publish, told=told, stop=stop)

    def rest(stop: threading.Event) -> dict[str, int]:
        assert address is not None
        with spark_session(cores) as session:
            return publish_matches(session, described, address, told, stop)

    if resume and not address:
        raise click.UsageError("--resume needs an address: --publish ADDRESS")
    with _progress() as told:
        if resume:
            _tell_published(interruptible(rest), as_json=as_json)
        else:
            _tell(interruptible(work), as_json=as_json)


def _tell_published(published: dict[str, int], *, as_json: bool) -> None:
    said = msgspec.json.encode({"published": published}).decode()
    click.echo(said if as_json else f"published {sum(published.values())}")


def _tell(summary: "PipelineSummary", *, as_json: bool) -> None:
    """Show what a run did, and end with a status of its own where that is not as it was meant."""
    if as_json:
        click.echo(msgspec.json.encode(summary).decode())
    else:
        for table in _tables(summary):
            Console(markup=False, emoji=False).print(table)
        click.echo(f"matches and quarantine: {summary.output}")
    if problems := [*_problems(summary)]:
        for each in problems:
            click.echo(f"contrada: error: {each}", err=True)
        raise click.exceptions.Exit(EXIT_UNMET)


def _problems(summary: "PipelineSummary") -> Iterator[str]:
    """What is likely not as its author meant it."""
    for each in summary.sources:
        if not each.read:
            yield f"{each.source}: " + (
                f"all {each.bad} records are bad" if each.bad else "found no record"
            )
        for name in each.unmet:
            yield f"{each.source}: no record has {name!r}, which an option names"


@contextmanager
def _progress() -> Iterator["Told"]:
    """A bar on standard error where a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("start Spark", total=None)

        def told(what: str, done: int, total: int) -> None:
            progress.update(task, description=escape(what), completed=done, total=total or None)

        yield told


def _tables(summary: "PipelineSummary") -> Iterator[Table]:
    sources = Table("source")
    for heading in ("read", "bad", "matched", "published", "records/s"):
        sources.add_column(heading, justify="right")
    for each in summary.sources:
        figures = (each.read, each.bad, each.matched, each.published, round(each.rows_per_s))
        sources.add_row(each.source, *(f"{figure:,}" for figure in figures))
    yield sources
    if any(each.bad for each in summary.sources):
        reasons = Table("source", "bad because", "records")
        for each in summary.sources:
            for reason, count in each.reasons.items():
                reasons.add_row(each.source, reason, f"{count:,}")
        yield reasons
    matches = Table("subscription")
    matches.add_column("matches", justify="right")
    for name, count in summary.matches.items():
        matches.add_row(name, f"{count:,}")
    yield matches
