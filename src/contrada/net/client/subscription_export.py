"""Reads all that a broker's clients ask for, page by page; see `net.wire.subscription_pages`."""

from functools import partial

from contrada.errors import ServiceError
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import InspectRequest
from contrada.net.wire.inspection import HeldFilters, Position


async def read_subscriptions(service: TcpService) -> list[HeldFilters]:
    """What the broker tells: what stands all the while exactly once, what comes and goes maybe.

    Raises ServiceError where it refuses, or is of a version that tells no pages;
    ConnectionFailedError where the connection is lost meanwhile: another broker has other numbers.
    Cost: a round trip for each page; all of it is held.
    """
    await service.ready()
    address = service.connection.address
    held: list[HeldFilters] = []
    begin: Position | None = (0, 0)
    while begin is not None:
        page = (await service.call(partial(InspectRequest, page_from=begin))).page
        if page is None:
            raise ServiceError(f"{address} is of an earlier version, which tells no filters whole")
        if page.following is not None and not begin < page.following:
            raise ServiceError(f"{address}: {page.following} follows the page from {begin}")
        held += page.held
        begin = page.following
    return held
