"""`QueryEngine`: the two query roles of a service, `QueryClient` and `QueryResponder`.

A subclass is the transport of both. `LocalQueryEngine` is that of an embedded service.
"""

from collections.abc import Callable

from contrada.routing.router_messages import (
    Answer,
    Ask,
    Cancel,
    Client,
    DeliverQuestion,
    Describe,
    More,
    NotifyClient,
    Undescribe,
)
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.query.query_client import QueryClient, QueryTransport
from contrada.service.query.query_responder import QueryResponder
from contrada.service.service_limits import ServiceLimits


class QueryEngine(QueryTransport):
    """The queries and sources of a service."""

    def __init__(self, stamp: EnvelopeFactory, limits: ServiceLimits) -> None:
        self._stamp = stamp
        self.limits = limits
        self.client = QueryClient(self)
        self.responder = QueryResponder(self)

    @property
    def publisher(self) -> str:
        """See `QueryTransport`."""
        return self._stamp.publisher

    def receive(self, message: Answer | More | Cancel) -> None:
        """Passes a message about a query to its role."""
        if isinstance(message, Answer):
            self.client.receive(message)
        else:
            self.responder.receive(message)

    def lost(self, reason: str) -> None:
        """Ends the open queries after the loss of the connection; sources stay offered."""
        self.client.lost(reason)
        self.responder.lost()

    async def aclose(self) -> None:
        """Ends all queries and sources with the service."""
        self.client.lost("the service is closed")
        await self.responder.aclose()


class LocalQueryEngine(QueryEngine):
    """The query engine of an embedded service, at its dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: Client,
        stamp: EnvelopeFactory,
        require_open: Callable[[], None],
        limits: ServiceLimits,
    ) -> None:
        super().__init__(stamp, limits)
        self._dispatcher, self._client, self._require_open = dispatcher, client, require_open
        dispatcher.listen(client, self._heard)

    def require_open(self) -> None:
        """See `QueryTransport`."""
        self._require_open()

    async def describe(self, message: Describe | Undescribe) -> None:
        """Puts a source in force, or withdraws it."""
        self._dispatcher.advertise(self._client, message)

    async def ask(self, ask: Ask) -> None:
        """Sends a query."""
        self._dispatcher.ask(self._client, ask)

    def send(self, message: Answer | More | Cancel) -> None:
        """Sends a message about a query."""
        self._dispatcher.say(self._client, message)

    def _heard(self, effect: DeliverQuestion | NotifyClient) -> None:
        if isinstance(effect, DeliverQuestion):
            self.responder.answer(effect.sources, effect.question)
        else:
            self.receive(effect.message)
