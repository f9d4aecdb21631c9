"""`send_request` and `replier`: requests with one reply, made of queries.

A request is a query for its attributes: `{"service": "price", "symbol": "DIS"}` asks for
`service = "price" and symbol = "DIS"`. So it finds its replier by content, passes networks of
brokers, and its reply returns on the same way, without a subscription for it. Unlike a query it has
one value for each attribute, which the replier reads, and one answer.

Source: CU-CS-948-03 §2 (query and respond).
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from contrada.errors import InvalidValueError, RemoteCallError, ServiceError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.domains.line import single
from contrada.model.domains.values import value_of
from contrada.routing.router_messages import SourceReport, SourceState
from contrada.service.query.source_query import SourceQuery
from contrada.service.query_interface import Replier
from contrada.service.requests import filters_of, notification_of, residue_of
from contrada.service.subjects import Subscribable

if TYPE_CHECKING:
    from contrada.service.interface import Service


async def send_request(
    service: "Service", item: Mapping[str, Any], timeout_s: float
) -> Notification:
    """Returns the first reply to a request; see `Service.request`."""
    asked = _filter_of(item)
    async with service.query(asked, limit=1, timeout_s=timeout_s) as answers:
        async for reply in answers:
            return reply
    raise _error_of(asked, answers.reports, timeout_s)


class RequestSource:
    """A source that answers requests which match a filter, by a function; a plain one by `run`."""

    def __init__(
        self, subject: Subscribable, function: Replier, run: Callable[..., Awaitable[Any]]
    ) -> None:
        self.filters = FilterSet(filters_of(subject))
        self._residue = residue_of(subject)
        self._function, self._run = function, run
        self._is_async = inspect.iscoroutinefunction(function)

    async def answer(self, query: SourceQuery) -> AsyncIterator[Notification]:
        """Yields the reply to a request; other queries have no answer."""
        request = _request_of(query)
        if request is None or not self.filters.matches(request):
            return
        if self._residue is not None and not self._residue(request):
            return
        if self._is_async:
            reply = await self._function(request)  # type: ignore[misc]
        else:
            reply = await self._run(copy_context().run, self._function, request)
            if inspect.isawaitable(reply):  # Of an object whose call is `async`.
                reply = await reply
        if reply is not None:
            yield _with_request(notification_of(reply), request)


def _filter_of(item: Mapping[str, Any]) -> Filter:
    """Returns the filter of which only the attributes of a request are an answer."""
    if isinstance(item, Notification) or not isinstance(item, Mapping):
        raise InvalidValueError(item, "expected a mapping of the attributes of a request")
    request = Notification(item)
    if request.body:
        raise InvalidValueError(item, "a request has attributes only: a list of objects has none")
    several = [name for name in request if isinstance(request[name], tuple)]
    if several or not len(request):
        reason = f"{several[0]!r} has several values" if several else "it has no attribute"
        raise InvalidValueError(item, f"{reason}: expected one value for each attribute")
    return Filter(dict(request))


def _request_of(query: SourceQuery) -> Notification | None:
    """Returns the request that a query is, or None."""
    if len(query.alternatives) != 1:
        return None
    found = {}
    for name, values in query.alternatives[0].query.sides.items():
        key = single(values.line) if values.text is None else None
        if key is None:
            return None
        found[name] = value_of(key)
    return Notification(found)


def _with_request(reply: Notification, request: Notification) -> Notification:
    """Returns a reply with the attributes of its request, by which it is an answer."""
    # By keys: a NaN equals itself, and `True` is not 1.
    common = [name for name in request if name in reply]
    changed = [each for each in common if reply.keys_of(each) != request.keys_of(each)]
    if changed:
        raise ServiceError(f"the reply changes the attribute {changed[0]!r} of the request")
    return Notification.from_attributes(
        {**request, **reply}, reply.body, reply.content_type, reply.envelope
    )


def _error_of(asked: Filter, reports: tuple[SourceReport, ...], timeout_s: float) -> Exception:
    for each in reports:
        if each.state is SourceState.FAILED:
            return RemoteCallError(f"{each.name}: {each.reason}")
    if any(each.state is SourceState.TIMED_OUT for each in reports):
        return TimeoutError(f"no reply within {timeout_s:g} s")
    names = ", ".join(each.name for each in reports)
    nobody = f"{names} did not reply" if names else "nobody replies to such requests"
    return RemoteCallError(f"{asked}: {nobody}")
