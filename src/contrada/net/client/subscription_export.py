"""The export of all subscriptions of a broker, in pages; see `net.broker.inspector`."""

from functools import partial

from contrada.errors import ServiceError
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import InspectRequest
from contrada.net.wire.inspection import HeldFilters, Position


async def read_subscriptions(service: TcpService) -> list[HeldFilters]:
    """Returns all filters: those that do not change meanwhile exactly once.

    Raises ServiceError where the broker refuses, or has no such pages; ConnectionFailedError where
    the connection is lost, since another broker has other numbers. Cost: a round trip for each
    page; all filters are in memory.
    """
    requests, address = service.reconnection, service.connection.address
    await requests.ready()
    held: list[HeldFilters] = []
    begin: Position | None = (0, 0)
    while begin is not None:
        page = (await requests.call(partial(InspectRequest, page_from=begin))).page
        if page is None:
            raise ServiceError(f"{address} is of an earlier version, which tells no filters whole")
        if page.following is not None and not begin < page.following:
            raise ServiceError(f"{address}: {page.following} follows the page from {begin}")
        held += page.held
        begin = page.following
    return held
