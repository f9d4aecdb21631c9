"""`FilterEntry`: how the filters of a client's subscriptions enter the router of a broker.

A subscription to one filter enters in one step, together with those received behind it: a step for
each of them would cost more than their filters. All others enter alone, their filters in parts,
each in a turn with a budget.
"""

import logging
from collections.abc import Generator, Sequence, Set
from typing import Final

from msgspec.structs import replace

from contrada.errors import LimitError, NotPermittedError, UnsatisfiableFilterError
from contrada.model import Filter
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.ingress_queue import FEWER
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.frames import Request
from contrada.net.wire.message_codec import PackedSubscribe, is_subscription, read_request
from contrada.net.wire.payload_codec import first_bytes
from contrada.service.dispatch_routes import Route
from contrada.service.dispatcher import Dispatcher
from contrada.service.subscription_queue import Passed

FILTERS_PER_TURN: Final = 64
"""Filters of subscriptions that are entered at once. Beyond it: other connections get a turn."""

FILTER_BYTES_PER_TURN: Final = 8 * 1024
"""Bytes of encoded filters that are entered at once. Beyond it: other connections get a turn."""

_LOG: Final = logging.getLogger(__name__)


class FilterEntry:
    """The entry of filters for one connection."""

    def __init__(self, connection: ServerConnection, dispatcher: Dispatcher) -> None:
        self._connection, self._dispatcher = connection, dispatcher

    def enter_parts(self, route: Route[Passed], message: PackedSubscribe) -> Generator[None]:
        """Enters the filters of a subscription in batches."""
        members = message.members()
        done, size = 0, FILTERS_PER_TURN
        nothing: UnsatisfiableFilterError | NotPermittedError | None = None
        while done < len(members):
            part = first_bytes(FILTER_BYTES_PER_TURN, members[done : done + size])
            permit = self._connection.permit  # It may have changed since the last turn.
            try:
                with request_work():
                    asked = message.part(part)
                    if permit is not None:
                        asked = replace(asked, filters=permit.allow_filters(asked.filters))
                    self._dispatcher.enter(route, asked)
                self._log(asked.filters)
            except UnsatisfiableFilterError as error:
                nothing = error  # Others may be satisfiable.
            except NotPermittedError as error:
                if permit is not None and not permit.principal.narrows:
                    raise
                nothing = error  # Others may be permitted.
            except LimitError as error:
                if error.limit != "REQUEST_WORK_MAX" or len(part) == 1:
                    raise
                size = max(1, len(part) // FEWER)
                part = []
            done += len(part)
            if done < len(members):
                yield
        if nothing is not None and not route.names:
            raise nothing

    def _log(self, filters: object) -> None:
        message = "client %(peer)s subscribed to %(filters)s"
        _LOG.debug(message, {"peer": self._connection.name, "filters": filters})

    def received_behind(self, request: Request) -> list[Request]:
        """Returns a subscription and those received behind it, as many as enter in one turn.

        It is alone where stories record each one.
        """
        found, size = [request], len(request.message)
        if self._dispatcher.transitions is not None:
            return found
        while len(found) < FILTERS_PER_TURN and size < FILTER_BYTES_PER_TURN:
            following = self._connection.next_of(Request, _is_small_subscription)
            if following is None:
                break
            found.append(following)
            size += len(following.message)
        return found

    def filters_of(
        self, requests: Sequence[Request], in_force: Set[str]
    ) -> dict[str, Filter] | None:
        """Returns the only filter of each subscription, by identity, as far as it is permitted.

        None where one of the requests is to be handled alone, as one whose identity is in force
        already. Raises the errors of its content, and LimitError where all together are too much
        work for one request.
        """
        filters: dict[str, Filter] = {}
        with request_work(is_strict=True):  # What is undecided within it each may decide alone.
            for each in requests:
                message = read_request(each.message)
                if not isinstance(message, PackedSubscribe):
                    return None
                if message.identity in in_force or message.identity in filters:
                    return None
                found = self._permitted(message)
                if found is None or found.is_empty:
                    return None
                filters[message.identity] = found
        return filters

    def _permitted(self, message: PackedSubscribe) -> Filter | None:
        """Returns the only filter of a subscription, narrowed to a permitted one; else None."""
        wanted, permit = message.only_filter(), self._connection.permit
        if wanted is None or permit is None:
            return wanted
        allowed = permit.allow_filters(wanted)
        return allowed if isinstance(allowed, Filter) else None

    def enter_each(self, routes: Sequence[Route[Passed]], filters: Sequence[Filter]) -> bool:
        """Enters one filter for each route, all or none, in one step. Returns whether it has."""
        # Not strict: a router that has begun to enter filters must not stop halfway.
        with request_work():
            entered = self._dispatcher.enter_each(routes, filters)
        if entered and _LOG.isEnabledFor(logging.DEBUG):
            for each in filters:
                self._log(each)
        return entered


def _is_small_subscription(request: Request) -> bool:
    is_small = len(request.message) <= FILTER_BYTES_PER_TURN
    return is_small and is_subscription(request.message)
