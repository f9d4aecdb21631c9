"""`contrada pipeline`: read, match, write and publish on Spark."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from contrada.cli import shared_options as options
from contrada.cli.lazy_group import EXIT_UNMET
from contrada.cli.log_output import log_option
from contrada.cli.read_flags import named_text
from contrada.cli.table_output import table
from contrada.errors import InputError
from contrada.integrations.spark.spark_session import (
    check_form,
    check_listening,
    check_requirements,
    parse_conf,
    run_interruptibly,
    spark_session,
)
from contrada.net.wire.address import parse_addresses

if TYPE_CHECKING:
    from contrada.integrations.spark.pipeline.job_progress import ProgressListener
    from contrada.integrations.spark.pipeline.pipeline_description import Pipeline
    from contrada.integrations.spark.pipeline.pipeline_results import PipelineSummary

SUBSCRIPTIONS_LISTED_MAX: Final = 100
"""Subscriptions in the terminal's table, those with the most matches. Beyond it: the number of
others; the report lists them.
"""


@click.group()
def pipeline() -> None:
    """Pipelines: files and tables to matches and quarantine; small ones without Spark."""


@pipeline.command()
@click.argument("description", type=options.FILE)
@options.repeated("--set settings", "NAME=VALUE", "Parameter of the description.")
@options.text("--publish", "ADDRESS", "Publish matched notifications at this address.")
@options.flag("--resume", "Continue an interrupted run.")
@options.flag("--dry-run", "Check everything and print the plan.")
@options.typed("--report", options.FOLDER, "DIR", "Write the report to this folder too.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    help="Where to run; default: local for small local files, without Java.",
)
@click.option("--cores", type=options.COUNT, help="Cores to use; default: all.")
@options.text("--master", "URL", "Master of a cluster, such as spark://host:7077.")
@options.text("--remote", "URL", "Server of Spark Connect, such as sc://host:15002.")
@options.repeated("--conf", "KEY=VALUE", "Setting of Spark.")
@options.flag("--json as_json", "Print the summary as JSON.")
@options.extension_option
@log_option
def run(description: Path, settings: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Run the pipeline of a TOML file. It runs over present data or as a stream.

    Writes matches, matches of patterns and unreadable records as Parquet, which replace those of
    the previous run after a complete run, and publishes each matched notification once. Unreadable
    records do not end a run: they are counted and written to the quarantine with their reason. The
    exit status is 3 if all records of a source are bad, or a name in an option is in none of them.

    --resume continues an interrupted run after its completed sources, or begins one if nothing was
    written yet. After an interruption of the publication, it publishes the remaining matches, each
    once. A stream continues by itself, without loss or duplicates; Ctrl-C ends it in order.

    \b
    contrada pipeline run examples/pipelines/operations.toml --set out=/data/out
    contrada pipeline run operations.toml --publish contrada://127.0.0.1:7655 --json
    contrada pipeline run operations.toml --master spark://10.0.0.1:7077 --dry-run
    contrada pipeline run events.toml --conf spark.jars.packages=GROUP:ARTIFACT:VERSION
    """  # noqa: D301 - click reads the escape
    asked = _RunOptions(**given)
    if asked.master and asked.remote:
        raise click.UsageError("--master and --remote are two places: expected one of them")
    check_form(asked.master, asked.remote)
    conf = parse_conf((named_text(text, "--conf") for text in asked.conf), "--conf")
    check_requirements(needs_java=False)
    from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline

    described = read_pipeline(description, dict(named_text(text, "--set") for text in settings))
    described = replace(described, spark={**described.spark, **conf})
    address = asked.publish or described.publish
    if address:
        parse_addresses(address)  # A wrong address is reported now, not after Spark's start.
    asked = replace(asked, is_local=_is_local(described, asked))
    if not asked.is_local and not asked.remote:
        check_requirements()
    # In this thread: a silent master holds up no Ctrl-C.
    check_listening(asked.remote or asked.master or "local")
    with _progress() as show:
        _run(described, asked, show, as_json=as_json)


def _is_local(described: "Pipeline", asked: "_RunOptions") -> bool:
    """Whether to run without Spark, which is chosen in one line for small local files. Raises
    InputError if that is asked for and impossible.
    """
    from contrada.integrations.spark.pipeline.local_run import why_spark

    reason = why_spark(described)
    if asked.engine == "local" and reason:
        raise InputError("--engine", f"a local run is impossible: {reason}")
    if asked.engine or reason or asked.dry_run or asked.cores or asked.master or asked.remote:
        return asked.engine == "local" and not asked.dry_run
    click.echo("small local files: run without Spark (--engine spark for Spark)", err=True)
    return True


@dataclass(frozen=True, slots=True)
class _RunOptions:
    """The options of the command line beside the description."""

    publish: str | None
    resume: bool
    dry_run: bool
    engine: str | None
    report: Path | None
    cores: int | None
    master: str | None
    remote: str | None
    conf: tuple[str, ...]
    is_local: bool = False

    def session(self, described: "Pipeline") -> AbstractContextManager[Any]:
        """Returns a session of Spark at its master or server; None for a local run."""
        if self.is_local:
            return nullcontext()
        from contrada.integrations.spark.pipeline.local_run import is_small

        return spark_session(
            self.cores,
            "contrada",
            self.master,
            self.remote,
            conf=described.spark,
            is_short=not described.is_stream and is_small(described),
        )


def _run(
    described: "Pipeline", asked: _RunOptions, show: "ProgressListener", *, as_json: bool
) -> None:
    from contrada.integrations.spark.pipeline import preflight
    from contrada.integrations.spark.pipeline.match_publisher import publish_rest
    from contrada.integrations.spark.pipeline.pipeline_results import write_report
    from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
    from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
    from contrada.integrations.spark.pipeline.run_folder import current_run, unfinished_run

    address = asked.publish or described.publish
    given: dict[str, Any] = {"publish": asked.publish, "on_progress": show}

    def check(stop: threading.Event) -> tuple[list[str], list[str]]:
        with asked.session(described) as session:
            lines = list(preflight.plan_lines(session, described, asked.publish))
            return lines, list(preflight.find_problems(session, described))

    def is_done() -> bool:
        """Whether the run to resume has ended. Raises InputError if nothing is left to do."""
        output = described.output
        is_ended = unfinished_run(output) is None and current_run(output) is not None
        if is_ended and not address:
            raise InputError(str(output), "the last run has ended")
        return is_ended

    def work(stop: threading.Event) -> "PipelineSummary | dict[str, int]":
        with asked.session(described) as session:
            if described.is_stream:
                return run_stream(session, described, **given, stop=stop)
            if asked.resume:
                if session is not None:
                    preflight.check_places(session, described)
                if is_done():
                    assert address is not None
                    return publish_rest(session, described, address, show, stop)
            given.update(resume=asked.resume, is_short=True)
            return run_pipeline(session, described, **given, stop=stop)

    if asked.dry_run:
        lines, found = run_interruptibly(check)
        click.echo("\n".join(lines))
        _exit_with_problems(found)
        return
    if asked.resume and not described.is_stream and isinstance(described.output, Path):
        is_done()  # Its absence is reported now, not after Spark's start.
    if described.is_stream:  # Supervisors of services send SIGTERM.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    summary = run_interruptibly(work, is_endless=described.is_stream)
    if isinstance(summary, dict):
        counts = msgspec.json.encode({"published": summary}).decode()
        click.echo(counts if as_json else f"published {sum(summary.values())}")
        return
    if asked.report:
        write_report(summary, asked.report)
    _print_summary(summary, described, as_json=as_json)


def _print_summary(summary: "PipelineSummary", described: "Pipeline", *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(summary).decode())
    else:
        for each in _tables(summary):
            Console(markup=False, emoji=False).print(each)
        click.echo(f"matches and quarantine: {summary.output}")
    for missing in summary.missing:
        click.echo(f"without a match: {missing}", err=True)
    _exit_with_problems([*_problems(summary, described)])


def _exit_with_problems(problems: list[str]) -> None:
    for each in problems:
        click.echo(f"contrada: error: {each}", err=True)
    if problems:
        raise click.exceptions.Exit(EXIT_UNMET)


def _problems(summary: "PipelineSummary", described: "Pipeline") -> Iterator[str]:
    """Yields problems of results that the pipeline's author likely did not intend."""
    readings = {each.name: each.reading for each in described.sources}
    yield from (f"refused: {each}" for each in summary.refused)
    for each in summary.sources:
        if not each.read and (each.bad or summary.mode == "batch"):
            yield f"{each.source}: " + (
                f"all {each.bad} records are bad" if each.bad else "found no record"
            )
        for lack in map(readings[each.source].lack_of, each.unmet):
            yield f"{each.source}: {lack}"


@contextmanager
def _progress() -> Iterator["ProgressListener"]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("start Spark", total=None)

        def show(stage: str, done: int, total: int) -> None:
            progress.update(task, description=escape(stage), completed=done, total=total or None)

        yield show


def _rate(per_s: float) -> float:
    """Rounds a rate for display; a small one keeps two digits."""
    return float(f"{per_s:.2g}") if 0 < per_s < 10 else round(per_s)


def _tables(summary: "PipelineSummary") -> Iterator[Table]:
    sources = table("source", right=("read", "bad", "matched", "published", "records/s"))
    for each in summary.sources:
        figures = (each.read, each.bad, each.matched, each.published, _rate(each.rows_per_s))
        sources.add_row(each.source, *(f"{figure:,}" for figure in figures))
    yield sources
    if any(each.bad for each in summary.sources):
        reasons = table("source", "bad because", "records")
        for each in summary.sources:
            for reason, count in each.reasons.items():
                reasons.add_row(each.source, reason, f"{count:,}")
        yield reasons
    matches = table("subscription", right=("matches",))
    listed = list(summary.matches.items())
    if len(listed) > SUBSCRIPTIONS_LISTED_MAX:
        listed = sorted(listed, key=lambda each: -each[1])[:SUBSCRIPTIONS_LISTED_MAX]
        matches.caption = f"and {len(summary.matches) - len(listed):,} more, in report.json"
    for name, count in listed:
        matches.add_row(name, f"{count:,}")
    yield matches
    if summary.patterns:
        patterns = table("pattern", right=("matches",))
        for name, count in summary.patterns.items():
            patterns.add_row(name, f"{count:,}")
        yield patterns
