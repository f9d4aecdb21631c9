"""`contrada feed`: poll feeds for new and changed entries."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from contrada.cli import read_flags
from contrada.cli import shared_options as options
from contrada.cli.client_command import Approach, approach_options, connect, run
from contrada.cli.lazy_group import EXIT_BAD_INPUT, EXIT_UNREACHABLE
from contrada.cli.log_output import log_option
from contrada.cli.notification_output import json_line
from contrada.integrations.feeds.document_sender import Sender
from contrada.integrations.feeds.feed_poller import FeedPoller, Poll
from contrada.integrations.feeds.feed_states import FeedStates
from contrada.integrations.feeds.fetcher import is_address
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.files import BadRecord, ReadOptions, Record
from contrada.net.wire.endpoint import TCP

EVERY_S: Final = 300.0  # Default seconds between two polls

Emit: TypeAlias = Callable[[list[Record]], Awaitable[object]]
_COUNTED: Final = ("new", "changed", "unchanged", "bad")


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@options.text("--entries", "NAME", "Elements, or array, of the entries of an unknown feed format.")
@options.text("--identity", "PATH", "Path of an entry's identity, such as id or head.guid.")
@options.flag("--edits", "Report changed content even without a change of its date.")
@options.typed(
    "--state",
    options.NEW_FILE,
    "FILE",
    "File that keeps the known entries between runs; created if missing.",
)
@options.typed("--every", options.SECONDS, "SECONDS", "Seconds between two polls.", EVERY_S)
@options.flag("--once", "Poll once, then end.")
@options.text("--to", "ADDRESS", "Publish at this address instead of printing.")
@options.text("--publisher", "NAME", "Publisher of the entries; default: a random name.")
@options.flag("--names", "Send all names to naming services, for patterns.")
@read_flags.entry_options
@approach_options
@log_option
def feed(
    sources: tuple[str, ...],
    identity: str | None,
    edits: bool,
    state: Path | None,
    every: float,
    once: bool,
    to: str | None,
    publisher: str | None,
    names: bool,
    approach: Approach,
    **given: Any,
) -> None:
    """Poll feeds in files or at HTTP addresses; print each new or changed entry.

    Feeds are RSS, Atom, CAP, JSON Feed, or any XML or JSON with --entries. Each entry is one line
    of JSON, or is published with --to. After each poll a line on standard error counts the new,
    changed, unchanged and bad entries. A feed that cannot be read is reported and polled again.

    The identity of an entry is its guid, id or link, or the value of --identity, or else its
    content. An entry of Atom or JSON Feed has changed when its date has, or with --edits when its
    content has.
    --state keeps the known entries between runs; entries that an interrupted run did not deliver
    are delivered by the next one. SIGTERM ends the command with status 0, Ctrl-C with 130. With
    --once the exit status is 1 if a feed could not be read, and 2 if an entry could not.

    \b
    contrada feed https://example.org/news.rss --every 60
    contrada feed alerts.atom --once --state alerts.state --types feed.entry.updated=time
    contrada feed https://example.org/alerts.atom --to contrada://10.0.0.7:7655
    contrada feed tracks.gpx --entries trkpt --strategy index
    """  # noqa: D301 - click reads the escape
    for source in sources:
        if not is_address(source) and not Path(source).is_file():
            raise click.UsageError(f"found {source!r}, which is no file and no http(s) address")
    if to is None and (publisher is not None or names or approach != TCP):
        raise click.UsageError("--publisher, --names, --tls-… and tokens are for --to ADDRESS")
    reading = read_flags.reading_of(**given)
    read_flags.check_named(reading, names)
    poller = FeedPoller(sources, reading, states=FeedStates(state), identity=identity, edits=edits)
    report = _PollReport(reading, again_s=None if once else every)
    service = sender = None
    if to is not None:
        service = connect(to, approach, publisher=publisher, reconnect=not once)
        is_named = names or reading.strategy == "daemon"
        sender = Sender(service, Names(service) if is_named else None, all_names=names)

    async def poll() -> None:
        emit: Emit = _print if sender is None else sender.send
        async with nullcontext() if service is None else service:
            async for each in poller.polls(None if once else every):
                await emit([found for found in each.records if isinstance(found, Record)])
                report.add(each)

    try:
        run(poll(), is_endless=not once)
    finally:
        report.end()
    if once and report.status:
        raise click.exceptions.Exit(report.status)


async def _print(records: list[Record]) -> None:
    sys.stdout.writelines(f"{json_line(each.notification)}\n" for each in records)
    sys.stdout.flush()


class _PollReport:
    """Reports the result of each poll, and of all together."""

    def __init__(self, reading: ReadOptions, again_s: float | None) -> None:
        self.status = 0
        self._sought = read_flags.SoughtNames(reading)
        self._again_s = again_s
        self._polls = 0
        self._counts: Counter[str] = Counter()

    def add(self, poll: Poll) -> None:
        self._polls += 1
        if poll.error is not None:
            self.status = EXIT_UNREACHABLE
            self._counts["failed"] += 1
            again = "" if self._again_s is None else f"; polled again in {self._again_s:g} s"
            reason = str(poll.error).removeprefix(f"{poll.source}: ")
            click.echo(f"{poll.source}: {' '.join(reason.split())}{again}", err=True)
            return
        bad = [
            each for each in map(self._sought.noted, poll.records) if isinstance(each, BadRecord)
        ]
        for each in bad[: read_flags.BAD_SHOWN_MAX]:
            click.echo(f"{each.error()}{read_flags.hint_for(each)}", err=True)
        if bad:
            self.status = self.status or EXIT_BAD_INPUT
        counts = {name: getattr(poll, name) for name in _COUNTED}
        self._counts.update(counts)
        click.echo(f"{poll.source}: {_counted(counts)}", err=True)

    def end(self) -> None:
        """Reports unknown names in options, and the result of all polls if there were several."""
        self._sought.report()
        if self._polls > 1:
            failed = self._counts.pop("failed", 0)
            line = f"in {self._polls} polls: {_counted(self._counts)}"
            click.echo(f"{line}, {failed} polls failed" if failed else line, err=True)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts.get(name, 0)} {name}" for name in _COUNTED)
