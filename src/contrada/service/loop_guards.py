"""How services are called: from which event loop, for how long, and with batches of items."""

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Final, TypeVar, get_args

from contrada.errors import ServiceClosedError, ServiceError
from contrada.service.subjects import Item
from contrada.service.subscription_options import WhenFull
from contrada.service.subscription_queue import BLOCK, PUBLISH_WAIT_S_MAX, QueueSettings

T = TypeVar("T")

TIMEOUT_S_MAX: Final = 1e9
"""Seconds of a wait for the next notification: some thirty years. Beyond it: it ends then."""

_END: Final = object()
_PUBLISHED: Final = "notifications of the batch were published before"


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs. Raises ServiceError in a process forked from one where it ran."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ServiceError(
            "this process was forked from the one in which the service was opened, and no event "
            "loop runs here; connect anew, on a loop of this process"
        ) from None


def check_loop(opened_on: asyncio.AbstractEventLoop | None) -> None:
    """Raises ServiceError where another event loop runs than the one that something belongs to."""
    if opened_on is not running_loop():
        raise ServiceError(
            "it belongs to the event loop on which it was opened, and another one runs here; "
            "connect anew on each loop, and in each process, or use connect_sync"
        )


async def off_loop(work: Callable[[], None]) -> None:
    """Do what takes long in a thread, so that the event loop goes on.

    Python gives no such thread any more once the main thread has ended, also to those that run on:
    then the loop waits.
    """
    try:
        done = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        work()
    else:
        await done


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Does all at once until one has ended, and ends the others. Raises what that one raises."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    for each in done:
        each.result()


def checked_wait(publish_wait_s: float) -> float:
    """The wait itself when it is allowed."""
    if not 0 <= publish_wait_s <= PUBLISH_WAIT_S_MAX:
        raise ServiceError(
            f"publish_wait_s = {publish_wait_s!r}: expected 0 to {PUBLISH_WAIT_S_MAX} seconds"
        )
    return publish_wait_s


def checked_when_full(when_full: WhenFull) -> WhenFull:
    """The behaviour of a full queue itself, when it is a known one. Raises ServiceError."""
    if when_full not in get_args(WhenFull):
        known = ", ".join(map(repr, get_args(WhenFull)))
        raise ServiceError(f"when_full = {when_full!r}: expected one of {known}")
    return when_full


def queue_settings_of(options: Mapping[str, Any]) -> QueueSettings:
    """The settings of a queue among the options of `subscribe`. Raises ServiceError."""
    for name in ("queue_max", "queue_bytes", "prefetch"):
        given = options.get(name)
        if given is not None and (type(given) is not int or given < 1):
            raise ServiceError(f"{name} = {given!r}: expected a number from 1")
    return QueueSettings(
        checked_when_full(options.get("when_full", BLOCK)),
        options.get("queue_max"),
        options.get("queue_bytes"),
    )


def checked_timeout(timeout_s: float | None, name: str = "timeout_s") -> float | None:
    """The timeout itself when it is one. Raises ServiceError with its name, for NaN too."""
    if timeout_s is None:
        return None
    given: object = timeout_s
    if not isinstance(given, int | float) or not given >= 0:
        raise ServiceError(f"{name} = {timeout_s!r}: expected seconds from 0, or None")
    return min(timeout_s, TIMEOUT_S_MAX)


async def next_of(held: AsyncIterator[T], timeout_s: float | None) -> T:
    """The next object. An object that comes after the timeout is not lost: a later call gets it.

    Raises TimeoutError, ServiceClosedError when the iterator has ended, ServiceError for a timeout
    that is no number of seconds.
    """
    running_loop()
    try:
        async with asyncio.timeout(checked_timeout(timeout_s)):
            found: Any = await anext(held, _END)
    except TimeoutError:
        raise TimeoutError(f"nothing came for {timeout_s} s") from None
    if found is _END:
        raise ServiceClosedError("it has ended")
    return found  # type: ignore[no-any-return]


def check_options(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises ServiceError for options that a function does not have, with those that it has."""
    known = (*known,)
    unknown = ", ".join(sorted(name for name in given if name not in known))
    if unknown:
        raise ServiceError(f"{function} has no option {unknown}: expected {', '.join(known)}")


def check_items(items: object) -> None:
    """Refuse one item in the place of many, whose parts would be taken for items."""
    if isinstance(items, str | bytes | Mapping):
        kind = type(items).__name__
        raise ServiceError(f"cannot publish the parts of a {kind}: expected a list of items")


def in_batches(items: Iterable[T], most: int) -> Iterator[Sequence[T]]:
    """The items in batches. An error of the iterable comes after a batch of the items before it."""
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


async def batches_of(
    items: Iterable[Item] | AsyncIterable[Item],
    most: int,
    made: Callable[[Item], T],
) -> AsyncIterator[Sequence[T]]:
    """The items in batches, each converted by `made`; asynchronous items come one by one.

    An item that `made` refuses ends the batches with its error, after the items before it. Raises
    ServiceError where the items are one mapping or text.
    """
    check_items(items)
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield (made(item),)
        return
    for batch in in_batches(map(made, items), most):
        yield batch


def tell_published(error: Exception, count: int) -> None:
    """Says with an error that ends a batch how many were published before.

    As its attribute `published`, and as a note that is shown with it.
    """
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.endswith(_PUBLISHED)]
    error.published = count  # type: ignore[attr-defined]
    error.add_note(f"{count} {_PUBLISHED}")
