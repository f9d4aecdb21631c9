"""The bytes of router messages within frames.

Notifications and filters are the bytes of `model.codec`. A `WireForm` of a message class has bytes
in their place, so content is decoded only after the types and lengths of all fields are checked.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from contrada.errors import EncodingError, FrameError, LimitError
from contrada.model import Filter, FilterSet
from contrada.model.codec import FILTERS_READ_MAX, to_msgpack
from contrada.net.wire.pattern_codec import (
    PATTERN_FORMS,
    PATTERN_SUBSCRIPTION,
    PLAIN_PATTERN_MESSAGES,
)
from contrada.net.wire.payload_codec import (
    ContentField,
    WireForm,
    check_content,
    content_from,
    decode_with,
    decoder_of,
    encode_content,
    offer_from,
    published_from,
)
from contrada.net.wire.query_codec import ANSWER, DESCRIPTION, QUESTION
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
    Notifications,
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
    """A `Subscribe` with encoded filters, so that many filters can be decoded in parts."""

    identity: str
    filters: bytes
    owner: Label = ""
    version: int = VERSION_OF_MESSAGES

    def members(self) -> list[msgspec.Raw]:
        """Returns the encoded filters, each once. Raises EncodingError, LimitError."""
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

    def only_filter(self) -> Filter | None:
        """Returns the filter of a client's subscription to one, as most are; None of another.

        Raises the errors of its content.
        """
        is_usual = not self.owner and self.version == VERSION_OF_MESSAGES
        if not is_usual or self.filters.startswith(_SET_HEAD):
            return None
        return content_from(self.filters, Filter)

    def part(self, members: list[msgspec.Raw]) -> Subscribe:
        """Returns the subscription to some of its members. Raises the errors of their content."""
        # The members of a set have no head. One by one: so equal value sets are shared.
        head = _FILTER_HEAD if self.filters.startswith(_SET_HEAD) else b""
        read = [content_from(head + member, Filter) for member in members]
        found = read[0] if len(read) == 1 else FilterSet(read)
        return Subscribe(self.identity, found, self.owner, self.version)


class PackedPublish(RouterMessage, frozen=True, tag="publish"):
    """A `Publish` with encoded notifications, so that many can be decoded in parts."""

    notifications: list[bytes]
    hops: int = 0
    source: Label = ""
    version: int = VERSION_OF_MESSAGES

    def with_decoded(self, notifications: Notifications) -> Publish:
        """Returns the publication with its notifications."""
        return Publish(notifications, self.hops, self.source, self.version)


HOP_NOTIFICATIONS_MAX: Final = 512
"""Notifications of a message to a neighbour. Beyond it: the next message has the rest; a longer one
is malformed."""


class _HopPublish(PackedPublish, frozen=True, tag="publish"):
    """A `Publish` between brokers."""

    notifications: Annotated[list[bytes], msgspec.Meta(max_length=HOP_NOTIFICATIONS_MAX)]


ADVERTISEMENT: Final = WireForm(
    Advertise, offer=ContentField(bytes, None, lambda data, _: offer_from(data))
)

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
"""The messages between neighbours."""

ClientRequest: TypeAlias = (
    PackedPublish
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
"""The requests of a client."""


def encode_message(message: Hopping | RouterMessage) -> msgspec.Raw:
    """Returns the bytes of a message. Raises LimitError for content that is too large."""
    form = _PATTERN_FORMS.get(type(message))
    return msgspec.Raw(_MESSAGE_ENCODER.encode(form.to_wire(message) if form else message))


def encode_publish(encodings: list[bytes], hops: int = 0, source: str = "") -> msgspec.Raw:
    """Returns the bytes of a `Publish` of encoded notifications."""
    return msgspec.Raw(_MESSAGE_ENCODER.encode(PackedPublish(encodings, hops, source)))


def is_subscription(message: msgspec.Raw) -> bool:
    """Returns whether a message has the tag of a `Subscribe`; it may still be malformed."""
    # A copy of a large publication would cost more than the answer.
    return memoryview(message)[1 : 1 + len(_SUBSCRIBE_TAG)] == _SUBSCRIBE_TAG


def read_request(data: msgspec.Raw) -> ClientRequest:
    """Returns the request of a client, with published notifications still encoded.

    Raises EncodingError, LimitError and the other errors of its content.
    """
    message = decode_with(_REQUEST_DECODER, data)
    form = _FORMS.get(type(message))
    return form.to_message(message) if form else message  # type: ignore[no-any-return]


def decode_hop(data: msgspec.Raw) -> Hopping:
    """Returns the message of a neighbour.

    Raises as `read_request`, InvalidNotificationError, and FrameError for a message that no
    neighbour may send.
    """
    message = decode_with(_HOP_DECODER, data)
    if isinstance(message, _HopPublish):
        notifications = published_from(message.notifications)
        return Publish(notifications, message.hops, message.source, message.version)
    if isinstance(message, PackedSubscribe):
        members = message.members()
        if len(members) > 1:
            raise FrameError("unsupported", "expected one filter, as servers forward them")
        return message.part(members)
    form = _FORMS.get(type(message))
    return form.to_message(message) if form else message  # type: ignore[no-any-return]


_PATTERN_FORMS: Final[dict[Any, WireForm]] = {form.kind: form for form in PATTERN_FORMS}
_FORMS: Final[dict[Any, WireForm]] = {
    form.struct: form for form in (ADVERTISEMENT, DESCRIPTION, QUESTION, ANSWER, *PATTERN_FORMS)
}
_MESSAGE_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=encode_content)
_REQUEST_DECODER: Final = decoder_of(
    *(PackedPublish, PackedSubscribe, Unsubscribe, PATTERN_SUBSCRIPTION.struct, UnsubscribePattern),
    *(ADVERTISEMENT.struct, Unadvertise, Follow, Unfollow),
    *(DESCRIPTION.struct, Undescribe, QUESTION.struct),
)
_HOP_DECODER: Final = decoder_of(
    *(_HopPublish, PackedSubscribe, Unsubscribe, ADVERTISEMENT.struct, Unadvertise),
    *(DESCRIPTION.struct, Undescribe, QUESTION.struct, ANSWER.struct, More, Cancel),
    *(AnnounceLinks, AckLinks, *(form.struct for form in PATTERN_FORMS), *PLAIN_PATTERN_MESSAGES),
)

_SUBSCRIBE_TAG: Final = msgspec.msgpack.encode(PackedSubscribe.__struct_config__.tag)
"""The first bytes of each subscription, behind one with the number of fields."""

_SET_HEAD: Final = to_msgpack(FilterSet([]))[:-1]
"""The first bytes of every set of filters, before their number."""

_FILTER_HEAD: Final = to_msgpack(Filter({}))[:-1]
"""The first bytes of every filter, before its sets."""

_SET_DECODER: Final = msgspec.msgpack.Decoder(
    tuple[int, str, Annotated[list[msgspec.Raw], msgspec.Meta(max_length=FILTERS_READ_MAX)]]
)
