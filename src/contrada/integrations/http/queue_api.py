"""`QUEUE_METHODS`: queues of durable subscriptions over HTTP, with the permissions of the token.

The broker bounds each step; a request that purges or redrives takes as many steps as needed.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from contrada.delivery.queue_messages import PEEKED_MAX
from contrada.errors import ContradaError, InvalidValueError, RefusedRequestError
from contrada.integrations.http.event_translation import event_of
from contrada.integrations.http.http_responses import json_answer, parameters_of
from contrada.integrations.http.token_services import TokenService

AccessHandler: TypeAlias = Callable[[Request, TokenService], Awaitable[Response]]
"""Answers a request with the connection of its token."""

_DIGITS_MAX: Final = 18


async def _list(request: Request, access: TokenService) -> Response:
    """Answers with a page of queues, or with the one of a name."""
    query = parameters_of(request, ("name", "after"))
    if "name" in query:
        return json_answer(await access.service.queues.state(query["name"]))
    return json_answer(await access.service.queues.states(query.get("after", "")))


async def _peek(request: Request, access: TokenService) -> Response:
    query = parameters_of(request, ("name", "from", "count"))
    first, count = _number(query.get("from", "1")), _number(query.get("count", str(PEEKED_MAX)))
    peeked = await access.service.queues.peek(_name(query), count, first=first)
    records = [
        {"position": it.position, "attempt": it.attempt, "event": event_of(it.item)}
        for it in peeked.records
    ]
    unreadable = {str(position): reason for position, reason in peeked.unreadable.items()}
    return json_answer({"records": records, "unreadable": unreadable, "next": peeked.next})


async def _purge(request: Request, access: TokenService) -> Response:
    name = _name(parameters_of(request, ("name",)))
    return json_answer({"purged": await access.service.queues.purge(name)})


async def _redrive(request: Request, access: TokenService) -> Response:
    query = parameters_of(request, ("name", "to"))
    moved = await access.service.queues.redrive(_name(query), to=query.get("to", ""))
    return json_answer({"moved": moved})


async def _release(request: Request, access: TokenService) -> Response:
    name = _name(parameters_of(request, ("name",)))
    return json_answer({"released": await access.service.queues.release(name)})


async def _remove(request: Request, access: TokenService) -> Response:
    await access.service.unsubscribe(_name(parameters_of(request, ("name",))))
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _acknowledge(request: Request, access: TokenService) -> Response:
    """Acknowledges records, up to a position, that streams of this token have written and that
    their clients acknowledge.
    """
    position = await _at_streams(request, access, lambda it, place: it.acknowledge(up_to=place))
    return json_answer({"acknowledged": position})


async def _nack(request: Request, access: TokenService) -> Response:
    """Has one such record delivered again, to any reader, after the delay of the retention."""
    position = await _at_streams(request, access, lambda it, place: it.nack(place))
    return json_answer({"nacked": position})


async def _at_streams(
    request: Request, access: TokenService, act: Callable[[Any, int], Awaitable[None]]
) -> int:
    """Does something about the record of a request in each stream that has written it."""
    query = parameters_of(request, ("name", "position"))
    name, position = _name(query), _number(query.get("position", ""))
    refusal: ContradaError = RefusedRequestError(
        HTTPStatus.CONFLICT, f"{name[:80]!r}: expected an open stream with acknowledge=manual"
    )
    is_done = False
    for each in [it for it in access.streams if it.is_manual and it.durable == name]:
        try:
            await act(each.events, position)
            is_done = True
        except InvalidValueError as error:  # Another stream may have written this record.
            refusal = error
    if not is_done:
        raise refusal
    return position


QUEUE_METHODS: Final[dict[str, dict[str, AccessHandler]]] = {
    "/queues": {"GET": _list, "DELETE": _remove},
    "/queues/records": {"GET": _peek, "DELETE": _purge},
    "/queues/redrive": {"POST": _redrive},
    "/queues/release": {"POST": _release},
    "/queues/acknowledgements": {"POST": _acknowledge},
    "/queues/nacks": {"POST": _nack},
}
"""The handlers by path and method."""


def _name(query: Any) -> str:
    if not query.get("name"):
        raise InvalidValueError("name", "expected ?name=NAME, of a durable subscription")
    return str(query["name"])


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidValueError(text[:40], "expected a number")
    return int(text)
