"""`RemoteQueryClient`: the queries and sources of a client at its broker.

Sources are offered again on the next connection. An open query ends with the connection: its
sources are reported as lost, and the asker may ask again.
"""

import logging
from typing import Final

from contrada.errors import ContradaError, FrameError
from contrada.net.client.reconnection import Reconnection
from contrada.net.client.remote_offers import refusals_of
from contrada.net.wire.frames import AboutQuestions, QuestionDelivery
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.query_codec import decode_query_message, decode_question, split_answer
from contrada.routing.router_messages import Answer, Ask, Cancel, Describe, More, Undescribe
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.query.query_client import QueryClient
from contrada.service.service_limits import ServiceLimits

_LOG: Final = logging.getLogger(__name__)


class RemoteQueryClient(QueryClient):
    """The queries and sources of a client."""

    def __init__(self, client: Reconnection, stamp: EnvelopeFactory, limits: ServiceLimits) -> None:
        super().__init__(stamp, limits)
        self._client = client
        self.require_open = client.check

    async def describe(self, message: Describe | Undescribe) -> None:
        if isinstance(message, Describe):
            await self._client.ready()
            await self._client.request(encode_message(message))
        else:
            await self._client.request_in_time(encode_message(message))

    async def ask(self, question: Ask) -> None:
        await self._client.ready()
        await self._client.request(encode_message(question))

    def send(self, message: Answer | More | Cancel) -> None:
        if self._client.is_there:
            parts = split_answer(message) if isinstance(message, Answer) else (message,)
            for each in parts:
                self._client.send(AboutQuestions([encode_message(each)]))

    def on_frame(self, frame: QuestionDelivery | AboutQuestions) -> None:
        """Handles a frame. Raises FrameError for a malformed message."""
        try:
            if isinstance(frame, QuestionDelivery):
                self.responder.answer(frame.sources, decode_question(frame.message))
                return
            for each in frame.messages:
                self.receive(decode_query_message(each))
        except ContradaError as error:
            raise FrameError("malformed", f"of a question: {error}") from None

    async def resume(self) -> None:
        """Offers all sources at the broker of the new connection. Raises ConnectionFailedError."""
        asked = [
            (each, self._client.request(encode_message(each))) for each in self.responder.in_force()
        ]
        async for message, error in refusals_of(asked):
            _LOG.warning(
                "source %(source)s is not offered any longer: %(reason)s",
                {"source": message.identity, "reason": error},
            )
