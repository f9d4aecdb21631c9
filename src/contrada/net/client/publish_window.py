"""How a client sends what it publishes: in frames, few of them unanswered.

What several callers publish in one turn of the event loop shares a frame. A caller waits until
the broker has answered its frame, and the broker answers when all of it is in the queues of
its subscribers; so a fast publisher goes as fast as the slowest healthy subscriber.

Invariant: notifications leave in the order in which they were added.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from contrada.errors import LimitError
from contrada.model import Notification
from contrada.net.client.client_limits import ClientLimits
from contrada.net.wire.frames import Request
from contrada.net.wire.message_codec import encode_publish
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, encode_content
from contrada.service.envelope_factory import EnvelopeFactory


class Batch:
    """Notifications of one frame, and the answer to it: how many pairs were dropped."""

    __slots__ = ("answer", "notifications", "size")

    def __init__(self, answer: "asyncio.Future[int]") -> None:
        self.notifications: list[bytes] = []
        self.size = 0
        self.answer = answer


class PublishWindow:
    """The frames of a client that wait to be sent, and those that wait for an answer."""

    def __init__(
        self, send: Callable[[Request], None], wait_ms: int, limits: ClientLimits = ClientLimits()
    ) -> None:
        """`send` takes a frame to the broker at once."""
        self._send = send
        self._wait_ms, self._limits = wait_ms, limits
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._unanswered: dict[int, Batch] = {}
        self._request = 0
        self._flush_due = False

    def add(self, encodings: Iterable[bytes], placed: dict[Batch, int]) -> None:
        """Queue notifications; they are sent in this turn of the loop, or when a frame may go.

        `placed` counts how many are in which batch. Raises LimitError for one that no frame can
        hold; those before it are sent.
        """
        batch = self._waiting[-1] if self._waiting else None
        for each in encodings:
            size = len(each)
            if size > CONTENT_BYTES_MAX:
                raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, size)
            if batch is None or self._is_full(batch):
                batch = Batch(self._loop.create_future())
                self._waiting.append(batch)
            batch.notifications.append(each)
            batch.size += size
            placed[batch] = placed.get(batch, 0) + 1
            if not self._flush_due:
                self._flush_due = True
                self._loop.call_soon(self._flush)

    def _is_full(self, batch: Batch) -> bool:
        limits = self._limits
        count = len(batch.notifications)
        return count >= limits.publish_notifications_max or batch.size >= limits.publish_bytes_max

    def on_answer(self, number: int, dropped: int, error: Exception | None) -> bool:
        """The broker took or refused a publication; False when no publication has the number."""
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
        """The connection has ended: nothing more is answered, and waiting batches are not sent.

        So a caller who has learned of the loss is not contradicted later.
        """
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
            # Requests of publishing are odd, all others even, so that they never meet.
            request = 2 * self._request + 1
            self._unanswered[request] = batch
            message = encode_publish(batch.notifications)
            self._send(Request(request, message, wait_ms=self._wait_ms))


def encode_stamped(stamp: EnvelopeFactory, notifications: Iterable[Notification]) -> list[bytes]:
    """Notifications stamped and packed. Raises LimitError."""
    return [*map(encode_content, stamp.stamped(notifications, stamp.now_us()))]


def _fail(batch: Batch, error: Exception) -> None:
    if not batch.answer.done():
        batch.answer.set_exception(error)
        batch.answer.exception()  # Seen: a caller that was cancelled does not ask any more.
