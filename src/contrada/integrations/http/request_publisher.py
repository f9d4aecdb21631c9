"""Publishes the events of requests, in frames of one request each: a refusal affects only its
events.

An event that may not be published does not affect the others: it is reported by its index.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final

from contrada.errors import ContradaError, NotPermittedError, RefusedRequestError
from contrada.integrations.http.token_services import TokenService
from contrada.model import Notification
from contrada.net.client.publish_window import PUBLISH_BYTES_MAX, PUBLISH_NOTIFICATIONS_MAX

REFUSED_TOLD_MAX: Final = 100
"""Events of one request that may not be published and are told by index. Beyond it: they are only
counted."""

_ENVELOPE_BYTES: Final = 800
"""What an envelope takes at most, and what stands around it."""


async def publish(access: TokenService, notifications: Sequence[Notification]) -> int:
    """Publishes the events of a request, in order; how many there were.

    Raises RefusedRequestError with the index of those that may not be, after all others were
    published; ContradaError with `published`, how many were published before it.
    """
    refused: list[int] = []
    done, reason = 0, ""
    async with access.publishing:
        try:
            for frame in _frames(notifications):
                try:
                    await access.service.publish_batch(frame)
                except NotPermittedError as error:
                    reason = reason or error.reason
                    refused += (done + at for at in error.refused or range(len(frame)))
                done += len(frame)
        except ContradaError as error:
            error.published = done - len(refused)
            raise
    if refused:
        raise RefusedRequestError(
            HTTPStatus.FORBIDDEN,
            reason,
            published=done - len(refused),
            refused=refused[:REFUSED_TOLD_MAX],
        )
    return done


def _frames(notifications: Sequence[Notification]) -> Iterator[Sequence[Notification]]:
    """In portions that the client sends in one frame each."""
    begin = size = 0
    for at, each in enumerate(notifications):
        if at - begin >= PUBLISH_NOTIFICATIONS_MAX or size >= PUBLISH_BYTES_MAX:
            yield notifications[begin:at]
            begin, size = at, 0
        size += len(each.span) + len(each.body) + len(each.content_type) + _ENVELOPE_BYTES
    if begin < len(notifications):
        yield notifications[begin:]
