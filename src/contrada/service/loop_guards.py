"""Checks and helpers of calls to a service: event loops, time-outs, options, and batches."""

import asyncio
import threading
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, Final, TypeVar, get_args

from contrada.errors import ServiceClosedError, ServiceError
from contrada.service.subjects import Item, WhenFull
from contrada.service.subscription_queue import BLOCK, PUBLISH_WAIT_S_MAX, QueueSettings

T = TypeVar("T")

TIMEOUT_S_MAX: Final = 1e9
"""Seconds of a wait for the next notification: some thirty years. Beyond it: it ends then."""

CANCEL_S: Final = 1.0
"""Seconds until a task that has not ended is cancelled again."""

_END: Final = object()
_POLICIES: Final = get_args(WhenFull)
_PUBLISHED: Final = "notifications of the batch were published before"


def running_loop() -> asyncio.AbstractEventLoop:
    """The running event loop. Raises ServiceError in a process forked from the one where it ran."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ServiceError(
            "this process was forked from the one in which the service was opened, and no event "
            "loop runs here; connect anew, on a loop of this process"
        ) from None


def check_loop(opened_on: asyncio.AbstractEventLoop | None) -> None:
    """Raises ServiceError where another event loop runs than that of the opened object."""
    if opened_on is not running_loop():
        raise ServiceError(
            "it belongs to the event loop on which it was opened, and another one runs here; "
            "connect anew on each loop, and in each process, or use connect_sync"
        )


async def off_loop(work: Callable[[], None]) -> None:
    """Does slow work in a thread, so that the event loop goes on.

    Python starts no such thread after the main thread has ended: then the loop waits.
    """
    try:
        done = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        work()
    else:
        await done


def in_daemon(work: Callable[[], T]) -> asyncio.Future[T]:
    """Does work in a thread of its own, for which the end of the process does not wait.

    The work may hang; then the future is never done, and may be cancelled. It raises RuntimeError
    where the machine has no thread left.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(call: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            call(value)

    def run() -> None:
        try:
            ended: tuple[Callable[[Any], None], Any] = done.set_result, work()
        except StopIteration:  # No future takes it: this one would never be done.
            ended = done.set_exception, RuntimeError("the function raised StopIteration")
        except BaseException as error:  # noqa: BLE001 - the future raises it
            ended = done.set_exception, error
        with suppress(RuntimeError):  # The loop was closed: nobody waits.
            loop.call_soon_threadsafe(finish, *ended)

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError as error:
        if threading.main_thread().is_alive():  # On the loop, work that hangs would hold it.
            done.set_exception(error)
        else:  # Python starts no threads any more, and the loop ends.
            run()
    return done


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Runs all until one has ended, and cancels the others. Raises the error of that one."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = set(tasks)
        while left:
            for each in left:
                each.cancel()
            # Again and again: `asyncio.wait_for` of Python 3.11, which libraries use, drops a
            # cancellation in the turn in which its work is done.
            _, left = await asyncio.wait(left, timeout=CANCEL_S)
        for each in tasks:
            if not each.cancelled():
                each.exception()  # Retrieved, or asyncio would report those that are not raised.
    for each in done:
        each.result()


async def stop_tasks(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancels tasks, and waits until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def checked_wait(publish_wait_s: float) -> float:
    """The wait itself, if it is valid. Raises ServiceError."""
    if not 0 <= publish_wait_s <= PUBLISH_WAIT_S_MAX:
        raise ServiceError(
            f"publish_wait_s = {publish_wait_s!r}: expected 0 to {PUBLISH_WAIT_S_MAX} seconds"
        )
    return publish_wait_s


def checked_when_full(when_full: WhenFull) -> WhenFull:
    """The behaviour of a full queue, if it is a known one. Raises ServiceError."""
    if when_full not in _POLICIES:
        known = ", ".join(map(repr, _POLICIES))
        raise ServiceError(f"when_full = {when_full!r}: expected one of {known}")
    return when_full


def queue_settings_of(options: Mapping[str, Any]) -> QueueSettings:
    """The settings of a queue among the options of `subscribe`. Raises ServiceError."""
    for name in ("queue_max", "queue_bytes", "prefetch"):
        given = options.get(name)
        if given is not None and (type(given) is not int or given < 1):
            raise ServiceError(f"{name} = {given!r}: expected a number from 1")
    when_full = checked_when_full(options.get("when_full", BLOCK))
    return QueueSettings(when_full, options.get("queue_max"), options.get("queue_bytes"))


def checked_timeout(timeout_s: float | None, name: str = "timeout_s") -> float | None:
    """The timeout itself, if it is valid. Raises ServiceError with its name, for NaN too."""
    if timeout_s is None:
        return None
    given: object = timeout_s
    if not isinstance(given, int | float) or not given >= 0:
        raise ServiceError(f"{name} = {timeout_s!r}: expected seconds from 0, or None")
    return min(timeout_s, TIMEOUT_S_MAX)


async def next_of(held: AsyncIterator[T], timeout_s: float | None) -> T:
    """The next object. One that arrives after the timeout is returned by a later call.

    Raises TimeoutError, ServiceClosedError when the iterator has ended, ServiceError for an invalid
    timeout.
    """
    running_loop()
    try:
        async with asyncio.timeout(checked_timeout(timeout_s)):
            found: Any = await anext(held, _END)
    except TimeoutError:
        raise TimeoutError(f"nothing arrived for {timeout_s} s") from None
    if found is _END:
        raise ServiceClosedError("it has ended")
    return found  # type: ignore[no-any-return]


def check_items(items: object) -> None:
    """Raises ServiceError for a single item: its parts would be published."""
    if isinstance(items, str | bytes | Mapping):
        kind = type(items).__name__
        raise ServiceError(f"cannot publish the parts of a {kind}: expected a list of items")


def in_batches(items: Iterable[T], most: int) -> Iterator[Sequence[T]]:
    """The items in batches. An error of the iterable follows a batch of the items before it."""
    batch: list[T] = []
    try:
        for item in items:
            batch.append(item)
            if len(batch) >= most:
                full, batch = batch, []
                yield full
    except Exception:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _made_in_batches(
    items: list[Any], most: int, made: Callable[[Any], T], make: Callable[[Any, int, int], list[T]]
) -> Iterator[Sequence[T]]:
    """As `in_batches` of the converted items. Where `make` converts none, `made` takes a batch."""
    at = 0
    while at < len(items):
        if batch := make(items, at, most):
            at += len(batch)
            yield batch
        else:
            yield from in_batches(map(made, items[at : at + most]), most)
            at += most


async def batches_of(
    items: Iterable[Item] | AsyncIterable[Item],
    most: int,
    made: Callable[[Item], T],
    make: Callable[[Any, int, int], list[Any]] | None = None,
) -> AsyncIterator[Sequence[T]]:
    """The items in batches, each converted by `made`; asynchronous items one by one.

    Of a list, `make` converts as many as it can from a position, at most so many. An item that
    `made` refuses ends the batches with its error, after the items before it. Raises ServiceError
    for a single mapping or text.
    """
    check_items(items)
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield (made(item),)
        return
    if make is not None and type(items) is list:
        batches = _made_in_batches(items, most, made, make)
    else:
        batches = in_batches(map(made, items), most)
    for batch in batches:
        yield batch


def tell_published(error: Exception, count: int) -> None:
    """Adds the number of published notifications to an error that ends a batch.

    It is the attribute `published`, and a note that is shown with the error.
    """
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.endswith(_PUBLISHED)]
    error.published = count  # type: ignore[attr-defined]
    error.add_note(f"{count} {_PUBLISHED}")
