"""How far the jobs of a session are, for whoever waits for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

PROGRESS_S: Final = 0.25
"""How often a run tells how far it is."""

ProgressListener: TypeAlias = Callable[[str, int, int], None]
"""Told of progress: what is done, steps done, steps in all."""


def is_remote(session: SparkSession) -> bool:
    """Whether Spark runs elsewhere, behind Spark Connect."""
    return getattr(session, "_sc", None) is None


def go_on(stop: threading.Event) -> None:
    """Raise KeyboardInterrupt where nothing more is to be begun."""
    if stop.is_set():
        raise KeyboardInterrupt


@contextmanager
def watched(session: SparkSession, what: str, told: ProgressListener) -> Iterator[None]:
    """Tell of the progress of the jobs inside; cancel them when the block ends in an error."""
    watching = _watched_remotely if is_remote(session) else _watched_here
    with watching(session, what, told):
        yield


@contextmanager
def _watched_remotely(session: SparkSession, what: str, told: ProgressListener) -> Iterator[None]:
    def progress(stages: Any, **_: object) -> None:
        done = sum(each.num_completed_tasks for each in stages or ())
        told(what, done, sum(each.num_tasks for each in stages or ()))

    handler: Any = progress  # PySpark wants a class, and calls it.
    session.registerProgressHandler(handler)
    try:
        yield
    except BaseException:
        session.interruptAll()
        raise
    finally:
        session.removeProgressHandler(handler)


@contextmanager
def _watched_here(session: SparkSession, what: str, told: ProgressListener) -> Iterator[None]:
    context = session.sparkContext
    context.setJobGroup(what, what, interruptOnCancel=True)
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, what, told, ended), daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelAllJobs()
        raise
    finally:
        ended.set()
        watcher.join()


def _watch(
    session: SparkSession, what: str, told: ProgressListener, ended: threading.Event
) -> None:
    while not ended.wait(PROGRESS_S):
        try:
            done, total = _tasks(session, what)
        except (Py4JError, ConnectionError):
            return  # Java has ended; whoever waits for the job is told.
        told(what, done, total)


def _tasks(session: SparkSession, group: str) -> tuple[int, int]:
    """How many tasks of a group of jobs are done, and how many there are."""
    tracker = session.sparkContext.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            tasks = tracker.getStageInfo(stage)
            if tasks is not None:
                done += tasks.numCompletedTasks
                total += tasks.numTasks
    return done, total
