"""`PublishWindow`: the publications of a client, in frames, few of them unanswered.

Callers of one turn of the event loop share a frame. A caller waits for the answer to its frame, and
the broker answers when all its notifications are in the queues of their subscribers. So a fast
publisher is slowed to the slowest healthy subscriber.

Invariant: notifications are sent in the order in which they were added.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from contrada.errors import LimitError
from contrada.net.client.client_limits import ClientLimits
from contrada.net.wire.frames import Request
from contrada.net.wire.message_codec import encode_publish
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX


class Batch:
    """The notifications of one frame, and its answer: the number of dropped pairs."""

    __slots__ = ("answer", "notifications", "size")

    def __init__(self, answer: "asyncio.Future[int]") -> None:
        self.notifications: list[bytes] = []
        self.size = 0
        self.answer = answer


class PublishWindow:
    """The queued and the unanswered frames of a client."""

    def __init__(
        self, send: Callable[[Request], None], wait_ms: int, limits: ClientLimits = ClientLimits()
    ) -> None:
        """`send` sends a frame at once."""
        self._send = send
        self._wait_ms, self._limits = wait_ms, limits
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._unanswered: dict[int, Batch] = {}
        self._request = 0
        self._flush_due = False

    def add(self, encodings: Iterable[bytes], placed: dict[Batch, int]) -> None:
        """Queues notifications; they are sent in this turn of the loop, or when the window
        allows.

        `placed` counts the notifications by batch. Raises LimitError for an oversized one; those
        before it are sent.
        """
        batch = self._waiting[-1] if self._waiting else None
        for each in encodings:
            size = len(each)
            if size > CONTENT_BYTES_MAX:
                raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, size)
            is_full = batch is not None and (
                len(batch.notifications) >= self._limits.publish_notifications_max
                or batch.size >= self._limits.publish_bytes_max
            )
            if batch is None or is_full:
                batch = Batch(self._loop.create_future())
                self._waiting.append(batch)
            batch.notifications.append(each)
            batch.size += size
            placed[batch] = placed.get(batch, 0) + 1
            if not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self._flush)

    def on_answer(self, number: int, dropped: int, error: Exception | None) -> bool:
        """Resolves a publication. Returns False where no publication has the number."""
        batch = self._unanswered.pop(number, None)
        if batch is None:
            return False
        if error is not None:
            _fail(batch, error)
        elif not batch.answer.done():
            batch.answer.set_result(dropped)
        self._flush()
        return True

    def fail(self, unanswered: Exception, unsent: Exception) -> None:
        """Fails all frames, queued ones too: none is sent after a caller knows of the loss."""
        for batch in self._unanswered.values():
            _fail(batch, unanswered)
        for batch in self._waiting:
            _fail(batch, unsent)
        self._unanswered.clear()
        self._waiting.clear()

    def _flush(self) -> None:
        self._flush_due = False
        while self._waiting and len(self._unanswered) < self._limits.publish_frames_max:
            batch = self._waiting.popleft()
            self._request += 1
            # Requests to publish are odd, all others even, so their numbers differ.
            request = 2 * self._request + 1
            self._unanswered[request] = batch
            message = encode_publish(batch.notifications)
            self._send(Request(request, message, wait_ms=self._wait_ms))


def _fail(batch: Batch, error: Exception) -> None:
    if not batch.answer.done():
        batch.answer.set_exception(error)
        batch.answer.exception()  # Retrieved: a cancelled caller does not await it.
