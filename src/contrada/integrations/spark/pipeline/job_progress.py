"""`watch_jobs`: reports the progress of a session's jobs."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark import StatusTracker
from pyspark.sql import SparkSession

PROGRESS_S: Final = 0.25
"""Seconds between two reports of progress."""

_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""The properties that `setJobGroup` sets for all later jobs of the thread."""

ProgressListener: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the step, its finished and its total tasks."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignores progress."""


def is_remote(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return getattr(session, "_sc", None) is None


def check_stop(stop: threading.Event) -> None:
    """Raises KeyboardInterrupt once `stop` is set."""
    if stop.is_set():
        raise KeyboardInterrupt


def watch_jobs(
    session: SparkSession, what: str, on_progress: ProgressListener
) -> AbstractContextManager[None]:
    """Reports the progress of the jobs inside; cancels them when the block raises."""
    watching = _watch_remote if is_remote(session) else _watch_local
    return watching(session, what, on_progress)


@contextmanager
def _watch_remote(
    session: SparkSession, what: str, on_progress: ProgressListener
) -> Iterator[None]:
    def progress(stages: Any, **_: object) -> None:
        done = sum(each.num_completed_tasks for each in stages or ())
        on_progress(what, done, sum(each.num_tasks for each in stages or ()))

    handler: Any = progress  # PySpark annotates a class, and calls a function.
    session.registerProgressHandler(handler)
    try:
        yield
    except BaseException:
        session.interruptAll()
        raise
    finally:
        session.removeProgressHandler(handler)


@contextmanager
def _watch_local(session: SparkSession, what: str, on_progress: ProgressListener) -> Iterator[None]:
    context: Any = session.sparkContext
    before = {name: context.getLocalProperty(name) for name in _GROUP}
    group = f"contrada-{secrets.token_hex(8)}"  # Of its own: not of the jobs of former runs.
    context.setJobGroup(group, f"contrada pipeline: {what}", interruptOnCancel=True)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PROGRESS_S):
            try:
                tasks = list(_tasks(context.statusTracker(), group))
            except (Py4JError, ConnectionError):
                return  # Java has ended, which the waiting call raises.
            on_progress(what, sum(done for done, _ in tasks), sum(every for _, every in tasks))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        ended.set()
        watcher.join()
        with suppress(Py4JError, ConnectionError):  # Java has ended, and its threads with it.
            for name, value in before.items():
                context.setLocalProperty(name, value)


def _tasks(tracker: StatusTracker, group: str) -> Iterator[tuple[int, int]]:
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            tasks = tracker.getStageInfo(stage)
            if tasks is not None:
                yield tasks.numCompletedTasks, tasks.numTasks
