"""`Questioning`: all that a service asks, and is asked, over one port."""

from collections.abc import Callable

from contrada.routing.messages import (
    Answer,
    Ask,
    Cancel,
    Client,
    DeliverQuestion,
    Describe,
    More,
    TellClient,
    Undescribe,
)
from contrada.runtime.answering import Answerer
from contrada.runtime.asking import Asker, QuestionPort
from contrada.runtime.exchange import Exchange


class Questioning:
    """The questions of a service, and its sources."""

    def __init__(self, port: QuestionPort) -> None:
        self.asker = Asker(port)
        self.answerer = Answerer(port)

    def told(self, message: Answer | More | Cancel) -> None:
        """What comes of a question of this service, or of one that its sources answer."""
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


class LocalPort:
    """Where the embedded service asks, and is asked: its exchange."""

    def __init__(
        self, exchange: Exchange, client: Client, require_open: Callable[[], None]
    ) -> None:
        self.require_open = require_open
        self._exchange = exchange
        self._client = client

    async def describe(self, message: Describe | Undescribe) -> None:
        """Put a source in force, or withdraw it."""
        self._exchange.advertise(self._client, message)

    async def ask(self, question: Ask) -> None:
        """Ask."""
        self._exchange.ask(self._client, question)

    def say(self, message: Answer | More | Cancel) -> None:
        """Say something of a question."""
        self._exchange.say(self._client, message)


def local_questioning(
    exchange: Exchange, client: Client, require_open: Callable[[], None]
) -> Questioning:
    """What the embedded service asks and is asked."""
    made = Questioning(LocalPort(exchange, client, require_open))

    def heard(effect: DeliverQuestion | TellClient) -> None:
        if isinstance(effect, DeliverQuestion):
            made.answerer.asked(effect.sources, effect.question)
        else:
            made.told(effect.message)

    exchange.listen(client, heard)
    return made
