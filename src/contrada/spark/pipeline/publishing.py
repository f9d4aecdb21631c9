"""Publishing the matches of a run, and what is left of them when a broker went away.

A notification is published once, however many subscriptions it matches: source by source, in the
order of files and records, read from the matches that were written. After each batch that the
service has answered, a file beside these says how much is published, so that another one can go on
there. What was sent and not answered is sent again then: of one batch a subscriber may get some
notifications twice, but none is lost.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ConnectionFailedError, InputError
from contrada.model import Notification
from contrada.model.encoding import from_msgpack
from contrada.net.address import parse_addresses, shown_addresses
from contrada.net.connecting import connect
from contrada.spark.pipeline.description import Pipeline
from contrada.spark.pipeline.output import (
    PROGRESS_FILE,
    RunFolder,
    alone_in,
    current_run,
    mend,
    read_whole,
    write_whole,
)
from contrada.spark.pipeline.sinks import MATCHES_DDL
from contrada.spark.pipeline.watching import ProgressListener, go_on

PUBLISH_BATCH: Final = 500
"""Notifications handed to the service at a time. Beyond it: the next batch takes the rest."""


class _PublishedState(msgspec.Struct, forbid_unknown_fields=True):
    """How much of a run's matches is published, by source, and where the last of it went."""

    address: str | None = None
    sources: dict[str, int] = {}


def forget_published(run: RunFolder) -> None:
    """From now on nothing of the matches of a run counts as published."""
    write_whole(run.path / PROGRESS_FILE, b"{}")


def publish_matches(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    told: ProgressListener = lambda what, done, total: None,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publish what the last run wrote and is not yet published; how many of each source are now.

    Raises ConnectionFailedError, with how many were published, where the service goes away, and
    InputError where there are no matches.
    """
    stop = stop or threading.Event()
    run = current_run(pipeline.output)
    if run is None:
        raise InputError(str(pipeline.matches), "found no matches of a run before")
    every = session.read.schema(MATCHES_DDL).parquet(run.place("matches")).where("is_first")
    done = (read_whole(run.path / PROGRESS_FILE, _PublishedState) or _PublishedState()).sources
    where = shown_addresses(parse_addresses(address))
    now: dict[str, int] = {}
    for source in pipeline.sources:
        frame = every.where(F.col("source") == source.name)
        total, before = frame.count(), done.get(source.name, 0)
        if total > before:
            ordered = frame.orderBy("file", "record", "notification")
            rows = ordered.select("notification").toLocalIterator()
            waiting = (_notification(bytes(row[0])) for row in islice(rows, before, None))
            what = f"publish {source.name}"

            def answered(count: int, name: str = source.name, total: int = total) -> None:
                done[name] = done.get(name, 0) + count
                _keep_published(run, _PublishedState(where, done))
                go_on(stop)
                told(what, done[name], total)  # noqa: B023 - called before the next source

            try:
                asyncio.run(_publish(address, waiting, answered))
            except ConnectionFailedError as error:
                why = str(error).removeprefix(f"{error.address}: ")
                count = done.get(source.name, 0)
                said = f"{count} of {total} notifications of {source.name} are published; "
                rest = "once it is back, --resume publishes the rest"
                raise ConnectionFailedError(address, f"{why}; {said}{rest}") from None
        now[source.name] = done.get(source.name, 0) - before
    return now


def publish_rest(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    told: ProgressListener = lambda what, done, total: None,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """`publish_matches` where no run is under way; two would publish everything twice.

    Raises InputError where one is, too.
    """
    with alone_in(pipeline.output):
        mend(pipeline.output)
        return publish_matches(session, pipeline, address, told, stop)


async def _publish(
    address: str, notifications: Iterator[Notification], answered: Callable[[int], None]
) -> None:
    async with connect(address, reconnect=False) as service:
        # In a thread: Spark may take minutes, and a broker ends who gives no sign of life.
        while batch := await asyncio.to_thread(list, islice(notifications, PUBLISH_BATCH)):
            answered(await service.publish_batch(batch))


def _notification(encoded: bytes) -> Notification:
    notification = from_msgpack(encoded)
    assert isinstance(notification, Notification)
    return notification


def _keep_published(run: RunFolder, done: _PublishedState) -> None:
    write_whole(run.path / PROGRESS_FILE, msgspec.json.encode(done))
