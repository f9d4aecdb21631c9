"""`publish_frames`: publishes a batch by frames, so that a refusal belongs to its notifications.

The broker refuses by frame: of one at best effort it publishes what the user may publish, of one
above nothing. The notifications of the latter follow singly.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.errors import NotPermittedError
from contrada.model import Notification
from contrada.net.client.client_limits import ClientLimits
from contrada.service.envelope_factory import runs_of
from contrada.service.interface import Service

_LIMITS: Final = ClientLimits()
_ENVELOPE_BYTES: Final = 800
"""Upper bound of an encoded envelope and the framing around it."""


async def publish_frames(
    service: Service, notifications: Sequence[Notification]
) -> AsyncIterator[tuple[int, Mapping[int, NotPermittedError]]]:
    """Publishes in order; yields for each published frame its size, and the positions in it that
    the user may not publish: all others are published. Raises as `publish_batch`, with `published`
    of the frame.
    """
    frames = deque(_frames(notifications))
    while frames:
        frame = frames.popleft()
        try:
            await service.publish_batch(frame)
        except NotPermittedError as error:
            if error.refused or len(frame) == 1:
                yield len(frame), dict.fromkeys(error.refused or (0,), error)
                continue
            before = error.published or 0
            frames.extendleft([each] for each in reversed(frame[before:]))
            yield before, {}
        else:
            yield len(frame), {}


def _frames(notifications: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
    """Splits notifications into portions that a client sends in one frame each."""
    for delivery, group in groupby(notifications, lambda each: each.envelope.delivery):
        # Above best effort a frame has one publisher.
        for run in (list(group),) if delivery == BEST_EFFORT else runs_of(group):
            begin = size = 0
            for at, each in enumerate(run):
                is_full = size >= _LIMITS.publish_bytes_max
                if is_full or at - begin >= _LIMITS.publish_notifications_max:
                    yield run[begin:at]
                    begin, size = at, 0
                size += len(each.span) + len(each.body) + len(each.content_type) + _ENVELOPE_BYTES
            yield run[begin:]
