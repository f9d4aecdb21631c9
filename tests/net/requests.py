"""Requests of any client, with any bytes."""

import msgspec

from contrada.net.wire.connection import Connection
from contrada.net.wire.frames import Delivery, Frame, FrameReader, Request
from contrada.net.wire.message_codec import ClientRequest, PackedPublish, read_request
from contrada.net.wire.payload_codec import published_from
from contrada.routing.router_messages import Publish


def _request(number: int, *fields: object, credit: int = 0, wait_ms: int = 0) -> Request:
    return Request(number, msgspec.Raw(msgspec.msgpack.encode(fields)), credit, wait_ms)


def frames_in(reader: FrameReader | Connection) -> list[Frame]:
    """Returns the received frames, in order."""
    return [*iter(reader.next, None)]


def subscribe(number: int, identity: object, filters: bytes, credit: int) -> Request:
    """A request to put a subscription in force."""
    return _request(number, "subscribe", str(identity), filters, credit=credit)


def unsubscribe(number: int, identity: object) -> Request:
    """A request to take a subscription out."""
    return _request(number, "unsubscribe", str(identity))


def publish(number: int, wait_ms: int, notifications: list[bytes]) -> Request:
    """A request to publish these."""
    return _request(number, "publish", notifications, wait_ms=wait_ms)


def delivery(identity: object, dropped: int, notifications: list[bytes]) -> Delivery:
    """Returns the Delivery of a subscription."""
    return Delivery(str(identity), dropped, notifications)


def decode_request(data: msgspec.Raw) -> ClientRequest | Publish:
    """Returns the request of a client, with published notifications checked, as a broker reads it.

    Raises the errors of `read_request` and `published_from`.
    """
    message = read_request(data)
    if isinstance(message, PackedPublish):
        return message.with_decoded(published_from(message.notifications))
    return message
