"""`ReliableLinkChannel`: the delivery messages to and from one neighbour.

They are sent in `LogHop` frames beside router messages, in order, as fast as the neighbour reads. A
shipment without room here is not lost: its server sends it again. But flooded messages are sent
once, so the link to a neighbour that does not read them is ended.
"""

from collections import deque
from collections.abc import Generator

import msgspec

from contrada.delivery.delivery_messages import AnnounceOwner, DeliveryMessage, StreamAck, Transfer
from contrada.errors import ContradaError, FrameError, LimitError, StoreError, shortened
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.durable_messages import decode_log_hop, encode_durable
from contrada.net.wire.frames import LogHop
from contrada.routing.router_messages import Neighbour


class ReliableLinkChannel:
    """The delivery messages of one link."""

    def __init__(
        self, connection: ServerConnection, neighbour: Neighbour, logs: BrokerLogs
    ) -> None:
        self._connection, self._neighbour, self._logs = connection, neighbour, logs
        self._waiting: deque[msgspec.Raw] = deque()
        self._bytes = 0
        self._limits = connection.broker.limits
        logs.link_up(neighbour, self.send)

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, message: DeliveryMessage) -> None:
        """Sends a message soon."""
        is_sent_again = isinstance(message, Transfer | StreamAck)
        try:
            for each in _split(message, self._limits.transfer_bytes_max):
                if is_sent_again and self._bytes > self._limits.channel_bytes_max:
                    self._logs.held_back += 1
                    break
                self._waiting.append(each)
                self._hold(len(each))
        except LimitError as error:
            self._connection.end(FrameError("oversized", str(error)))
            return
        most = self._limits.channel_bytes_max
        if self._bytes > 2 * most and not self._connection.is_closed:
            limit = f"channel_bytes_max = {most}"
            self._connection.end(FrameError("overloaded", f"more than twice {limit} were not read"))
            return
        self._connection.mark_ready(self)

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._connection.broker.hold(size)

    def next_frame(self) -> LogHop | None:
        """Returns the next frame."""
        messages: list[msgspec.Raw] = []
        size, most = 0, self._limits.transfer_bytes_max
        while self._waiting and (not messages or size + len(self._waiting[0]) <= most):
            each = self._waiting.popleft()
            size += len(each)
            messages.append(each)
        self._hold(-size)
        return LogHop(messages) if messages else None

    def receive(self, frame: LogHop) -> Generator[None]:
        """Handles the messages of a frame, one for each turn."""
        is_synchronized = False
        for each in frame.messages:
            try:
                message = decode_log_hop(each)
            except ContradaError as error:
                self._connection.fail(failure := FrameError("malformed", f"a message: {error}"))
                raise failure from None
            try:
                self._logs.receive(self._neighbour, message)
            except StoreError as error:  # The message was the first use of the store.
                self._connection.fail(failure := FrameError("store", shortened(str(error))))
                raise failure from None
            is_synchronized = is_synchronized or (
                isinstance(message, AnnounceOwner)
                and message.is_whole
                and message.owner == self._neighbour.name
            )
            yield
        if is_synchronized:  # Announcements of other owners precede its own in the same frame.
            self._logs.synchronized(self._neighbour)

    def close(self) -> None:
        """Drops the queue of a lost link; it is sent again elsewhere. Twice is once."""
        self._connection.forget_feed(self)
        self._waiting.clear()
        self._hold(-self._bytes)
        self._logs.link_down(self._neighbour, self.send)


def _split(message: DeliveryMessage, bytes_max: int) -> Generator[msgspec.Raw]:
    """Yields the encoded message, in several parts where it carries many shipments."""
    whole = encode_durable(message)
    if len(whole) > bytes_max and isinstance(message, Transfer) and len(message.shipments) > 1:
        half = len(message.shipments) // 2
        for shipments in (message.shipments[:half], message.shipments[half:]):
            yield from _split(msgspec.structs.replace(message, shipments=shipments), bytes_max)
    else:
        yield whole
