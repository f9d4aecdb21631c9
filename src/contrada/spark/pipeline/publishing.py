"""Publishing the matches of a run, and what is left of them when a broker went away.

A notification is published once, however many subscriptions it matches: source by source, in the
order of files and records, read from the matches that were written. After each batch that the
service has answered, a file beside these says how much is published, so that another run can go on
there. What was sent and not answered is sent again then: of one batch a subscriber may get some
notifications twice, but none is lost.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import ConnectionFailedError, InputError
from contrada.model import Notification
from contrada.model.encoding import from_msgpack
from contrada.net.connecting import connect
from contrada.spark.pipeline.description import PROGRESS_FILE, Pipeline

PUBLISH_BATCH: Final = 500
"""Notifications handed to the service at a time. Beyond it: the next batch takes the rest."""

Told: TypeAlias = Callable[[str, int, int], None]
"""Told of progress: what is done, steps done, steps in all."""


def check_reachable(address: str) -> None:
    """Raise ConnectionFailedError where no service answers."""

    async def reach() -> None:
        async with connect(address, reconnect=False):
            pass

    asyncio.run(reach())


def go_on(stop: threading.Event) -> None:
    """Raise KeyboardInterrupt where nothing more is to be begun."""
    if stop.is_set():
        raise KeyboardInterrupt


def forget_published(pipeline: Pipeline) -> None:
    """From now on nothing of the matches counts as published."""
    _progress_of(pipeline).unlink(missing_ok=True)


def publish_matches(
    session: SparkSession,
    pipeline: Pipeline,
    address: str,
    told: Told = lambda what, done, total: None,
    stop: threading.Event | None = None,
) -> dict[str, int]:
    """Publish what is written and not yet published; how many of each source that are now.

    Raises ConnectionFailedError, with how many were published, where the service goes away, and
    InputError where there are no matches.
    """
    stop = stop or threading.Event()
    if not pipeline.matches.is_dir():
        raise InputError(str(pipeline.matches), "found no matches of a run before")
    every = session.read.parquet(str(pipeline.matches.absolute()))
    done = _published_before(pipeline)
    now: dict[str, int] = {}
    for source in pipeline.sources:
        frame = every.where(F.col("source") == source.name).dropDuplicates(["file", "record"])
        total, before = frame.count(), done.get(source.name, 0)
        if total > before:
            rows = frame.orderBy("file", "record").select("notification").toLocalIterator()
            waiting = (_notification(bytes(row[0])) for row in islice(rows, before, None))
            what = f"publish {source.name}"

            def answered(count: int, name: str = source.name, total: int = total) -> None:
                done[name] = done.get(name, 0) + count
                _keep_published(pipeline, done)
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


async def _publish(
    address: str, notifications: Iterator[Notification], answered: Callable[[int], None]
) -> None:
    async with connect(address, reconnect=False) as service:
        while batch := list(islice(notifications, PUBLISH_BATCH)):
            answered(await service.publish_batch(batch))


def _notification(encoded: bytes) -> Notification:
    notification = from_msgpack(encoded)
    assert isinstance(notification, Notification)
    return notification


def _progress_of(pipeline: Pipeline) -> Path:
    return pipeline.output / PROGRESS_FILE


def _published_before(pipeline: Pipeline) -> dict[str, int]:
    path = _progress_of(pipeline)
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"says not what is published: {error}") from None


def _keep_published(pipeline: Pipeline, done: dict[str, int]) -> None:
    path = _progress_of(pipeline)
    new = path.with_name(f".{path.name}")
    new.write_bytes(msgspec.json.encode(done))
    new.replace(path)  # Whole or not at all, whenever the run is ended.
