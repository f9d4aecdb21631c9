"""`QueryEngine`: all that a service asks, and is asked; a subclass says where."""

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
from contrada.service.query.answerer import Answerer
from contrada.service.query.asker import Asker, QuestionPort


class QueryEngine(QuestionPort):
    """The questions of a service, and its sources."""

    def __init__(self, stamp: EnvelopeFactory) -> None:
        self._stamp = stamp
        self.asker = Asker(self)
        self.answerer = Answerer(self)

    @property
    def publisher(self) -> str:
        """See `QuestionPort`."""
        return self._stamp.publisher

    def told(self, message: Answer | More | Cancel) -> None:
        """Takes a message about a question of this service, or one that its sources answer."""
        if isinstance(message, Answer):
            self.asker.told(message)
        else:
            self.answerer.told(message)

    def lost(self, reason: str) -> None:
        """The connection is gone: what is under way ends, and sources stay offered."""
        self.asker.lost(reason)
        self.answerer.lost()

    async def aclose(self) -> None:
        """The service has ended."""
        self.asker.lost("the service is closed")
        await self.answerer.aclose()


class LocalQueryEngine(QueryEngine):
    """What the embedded service asks and is asked, at its exchange."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        client: Client,
        stamp: EnvelopeFactory,
        require_open: Callable[[], None],
    ) -> None:
        super().__init__(stamp)
        self._exchange, self._client, self._require_open = dispatcher, client, require_open
        dispatcher.listen(client, self._heard)

    def require_open(self) -> None:
        """See `QuestionPort`."""
        self._require_open()

    async def describe(self, message: Describe | Undescribe) -> None:
        """Put a source in force, or withdraw it."""
        self._exchange.advertise(self._client, message)

    async def ask(self, question: Ask) -> None:
        """Ask."""
        self._exchange.ask(self._client, question)

    def say(self, message: Answer | More | Cancel) -> None:
        """Say something of a question."""
        self._exchange.say(self._client, message)

    def _heard(self, effect: DeliverQuestion | NotifyClient) -> None:
        if isinstance(effect, DeliverQuestion):
            self.answerer.asked(effect.sources, effect.question)
        else:
            self.told(effect.message)
