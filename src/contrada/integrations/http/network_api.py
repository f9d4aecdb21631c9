"""`NetworkApi`: the network of the broker, as the user of a token may inspect it."""

from collections.abc import Sequence
from functools import partial

from starlette.responses import Response

from contrada.errors import ContradaError, RefusedRequestError
from contrada.integrations.console.network_view import (
    ForestQuestion,
    NetworkQuestion,
    shown_forest,
    shown_network,
)
from contrada.integrations.http.gateway_limits import GatewayLimits
from contrada.integrations.http.http_responses import json_answer, refusal_of
from contrada.integrations.http.network_services import NetworkServices
from contrada.integrations.http.request_filters import within_work
from contrada.integrations.http.request_slots import RequestSlots
from contrada.integrations.http.token_services import TokenService
from contrada.integrations.http.trials import Trials
from contrada.net.client.network_inspection import NetworkInspection, NotificationHop
from contrada.net.wire.address import is_loopback


class NetworkApi:
    """Answers the requests of the console's page; of each user one of a kind at a time."""

    def __init__(self, services: NetworkServices, trials: Trials, limits: GatewayLimits) -> None:
        self._services, self._trials, self._limits = services, trials, limits
        self._networks = RequestSlots("looks at the network")
        self._forests = RequestSlots("looks at the forest")

    async def show(self, body: bytes, access: TokenService) -> Response:
        """Answers with all brokers, and with the way of a notification, or why it has none.

        Raises ContradaError.
        """
        question = self._trials.decode(body, NetworkQuestion)
        with self._networks.take(access.user):
            network = self._inspection(access)
            hops: Sequence[NotificationHop] = ()
            fault = ""
            try:
                # Not as a trial: a user has one at a time, and this page asks in two places.
                packed = await within_work(partial(question.packed, access.user))
                await network.explore(packed)
                if packed:
                    hops = await network.follow(packed, question.at or next(iter(network.brokers)))
            except ContradaError as error:
                if not question.record or isinstance(error, RefusedRequestError):
                    raise
                fault = refusal_of(error).reason
                await network.explore()  # The network is there without the notification.
            return json_answer(shown_network(network, hops) | {"fault": fault})

    async def show_forest(self, body: bytes, access: TokenService) -> Response:
        """Answers with a part of the filters of a broker. Raises ContradaError."""
        question = self._trials.decode(body, ForestQuestion)
        with self._forests.take(access.user):
            network = self._inspection(access)
            part = await network.forest(question.broker, question.position)
            return json_answer(await within_work(partial(shown_forest, part, question)))

    def _inspection(self, access: TokenService) -> NetworkInspection:
        reach = partial(self._services.use, access.token)
        is_local = is_loopback(access.service.reconnection.address.host)
        return NetworkInspection(
            access.service, reach, self._limits.network, is_local=is_local, ways=access.ways
        )
