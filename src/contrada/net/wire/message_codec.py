"""The messages that stand within frames, and their bytes: those of `routing.router_messages`.

Notifications and filters travel in them as the bytes of `model.codec`.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.errors import EncodingError, FrameError, LimitError
from contrada.model import Filter, FilterSet
from contrada.model.codec import FILTERS_READ_MAX, from_msgpack, to_msgpack
from contrada.net.wire.pattern_codec import (
    PATTERN_MESSAGES,
    PackedPattern,
    PackedPatternMessage,
    packed_pattern_message,
)
from contrada.net.wire.payload_codec import (
    check_content,
    decoded,
    encode_content,
    offer_from,
    published_from,
)
from contrada.net.wire.query_codec import PackedAnswer, PackedAsk, PackedDescribe
from contrada.routing.delegation import (
    PatternMessage,
    RouterMessage,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router_messages import (
    SUBSCRIPTION_FILTERS_MAX,
    AckLinks,
    Advertise,
    AnnounceLinks,
    Ask,
    Cancel,
    Describe,
    Follow,
    Label,
    More,
    Publish,
    QuestionMessage,
    Subscribe,
    Unadvertise,
    Undescribe,
    Unfollow,
    Unsubscribe,
)
from contrada.routing.router_messages import VERSION as VERSION_OF_MESSAGES


class PackedSubscribe(RouterMessage, frozen=True, tag="subscribe"):
    """A `Subscribe` as it travels: nobody has looked at its filters yet.

    So many of them can be looked at in parts.
    """

    identity: str
    filters: bytes
    owner: Label = ""
    version: int = VERSION_OF_MESSAGES

    def members(self) -> list[msgspec.Raw]:
        """The filters as they travel, each once. Raises EncodingError, LimitError. Cost: linear."""
        data = check_content(self.filters)
        if not data.startswith(_SET_HEAD):
            return [msgspec.Raw(data)]
        try:
            _, _, members = _SET_DECODER.decode(data)
        except msgspec.DecodeError as error:
            raise EncodingError("a message", str(error)) from None
        distinct = {bytes(member): member for member in members}
        if len(distinct) > SUBSCRIPTION_FILTERS_MAX:
            limit = "SUBSCRIPTION_FILTERS_MAX"
            raise LimitError(limit, SUBSCRIPTION_FILTERS_MAX, len(distinct))
        return [*distinct.values()]

    def part(self, members: list[msgspec.Raw]) -> Subscribe:
        """What asks for some of its members. Raises what the content of a message may raise."""
        if self.filters.startswith(_SET_HEAD):  # One by one: so equal value sets are shared.
            read = [_filter_of(_FILTER_HEAD + member) for member in members]
            found = read[0] if len(read) == 1 else FilterSet(read)
            return Subscribe(self.identity, found, self.owner, self.version)
        return Subscribe(self.identity, _filter_of(self.filters), self.owner, self.version)


def _filter_of(data: bytes) -> Filter:
    """A filter from its bytes. Raises EncodingError, LimitError, FrameError."""
    found = from_msgpack(data)
    if not isinstance(found, Filter):
        kind = type(found).__name__.lower()
        raise FrameError("unsupported", f"expected a filter, found {kind}")
    return found


class _PackedPublish(RouterMessage, frozen=True, tag="publish"):
    """A `Publish` as it travels. Bytes are all that may stand there: nothing else is ever made."""

    notifications: list[bytes]
    hops: int = 0
    source: Label = ""
    version: int = VERSION_OF_MESSAGES


HOP_NOTIFICATIONS_MAX: Final = 512
"""Notifications of a message to a neighbour. Beyond it: the next takes the rest; one that has more
is malformed."""


class _HopPublish(RouterMessage, frozen=True, tag="publish"):
    """A `Publish` as it travels between brokers."""

    notifications: Annotated[list[bytes], msgspec.Meta(max_length=HOP_NOTIFICATIONS_MAX)]
    hops: int = 0
    source: Label = ""
    version: int = VERSION_OF_MESSAGES


class _PackedAdvertise(RouterMessage, frozen=True, tag="advertise"):
    """An `Advertise` as it travels."""

    identity: str
    offer: bytes
    owner: Label = ""
    version: int = VERSION_OF_MESSAGES

    def unpacked(self) -> Advertise:
        """The message itself. Raises what its content may raise, and FrameError."""
        return Advertise(self.identity, offer_from(self.offer), self.owner, self.version)


Hopping: TypeAlias = (
    Publish
    | Subscribe
    | Unsubscribe
    | Advertise
    | Unadvertise
    | Describe
    | Undescribe
    | QuestionMessage
    | AnnounceLinks
    | AckLinks
    | PatternMessage
)
"""What a broker says to a neighbour."""

ClientRequest: TypeAlias = (
    Publish
    | PackedSubscribe
    | Unsubscribe
    | SubscribePattern
    | UnsubscribePattern
    | Advertise
    | Unadvertise
    | Follow
    | Unfollow
    | Describe
    | Undescribe
    | Ask
)
"""What a client asks a broker for."""


def encode_message(message: Hopping | PackedAnswer | Follow | Unfollow) -> msgspec.Raw:
    """A message as it stands in a frame. Raises LimitError for content that is too large."""
    whole: object = message
    if isinstance(message, PatternMessage):
        whole = packed_pattern_message(message)
    return msgspec.Raw(_MESSAGE_ENCODER.encode(whole))


def encode_publish(encodings: list[bytes], hops: int = 0, source: str = "") -> msgspec.Raw:
    """A `Publish` of notifications that are packed, as it stands in a frame."""
    return msgspec.Raw(_MESSAGE_ENCODER.encode(_PackedPublish(encodings, hops, source)))


def decode_request(data: msgspec.Raw) -> ClientRequest:
    """The message that stands in a frame, what is published checked.

    Raises EncodingError, LimitError, InvalidNotificationError and what else its content may raise.
    """
    message = decoded(_MESSAGE_DECODER, data)
    if isinstance(message, _PackedPublish):
        notifications = published_from(message.notifications)
        return Publish(notifications, message.hops, message.source, message.version)
    if isinstance(message, _PackedAdvertise | PackedPattern | PackedDescribe | PackedAsk):
        return message.unpacked()
    return message  # type: ignore[no-any-return]


def decode_hop(data: msgspec.Raw) -> Hopping:
    """The message of a neighbour. Raises as `unpacked`, and FrameError for what it may not ask."""
    message = decoded(_HOP_DECODER, data)
    match message:
        case _HopPublish():
            notifications = published_from(message.notifications)
            return Publish(notifications, message.hops, message.source, message.version)
        case PackedSubscribe():
            members = message.members()
            if len(members) > 1:
                raise FrameError("unsupported", "expected one filter, as servers forward them")
            return message.part(members)
        case _PackedAdvertise() | PackedDescribe() | PackedAsk() | PackedAnswer():
            return message.unpacked()
        case _ if isinstance(message, PackedPatternMessage):
            return message.unpacked()
    return message  # type: ignore[no-any-return]


_MESSAGE_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=encode_content)
_MESSAGE_DECODER: Final = msgspec.msgpack.Decoder(
    _PackedPublish
    | PackedSubscribe
    | Unsubscribe
    | PackedPattern
    | UnsubscribePattern
    | _PackedAdvertise
    | Unadvertise
    | Follow
    | Unfollow
    | PackedDescribe
    | Undescribe
    | PackedAsk
)


_HOP_DECODER: Final = msgspec.msgpack.Decoder(
    _HopPublish
    | PackedAsk
    | PackedAnswer
    | More
    | Cancel
    | PackedDescribe
    | Undescribe
    | PackedSubscribe
    | Unsubscribe
    | _PackedAdvertise
    | Unadvertise
    | AnnounceLinks
    | AckLinks
    | PATTERN_MESSAGES
)

_SET_HEAD: Final = to_msgpack(FilterSet([]))[:-1]
"""What every set of filters begins with, before their number."""

_FILTER_HEAD: Final = to_msgpack(Filter({}))[:-1]
"""And every filter, before its sets."""

_SET_DECODER: Final = msgspec.msgpack.Decoder(
    tuple[int, str, Annotated[list[msgspec.Raw], msgspec.Meta(max_length=FILTERS_READ_MAX)]]
)
