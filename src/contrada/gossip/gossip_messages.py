"""The messages between participants of a group, and the events and effects of one participant.

A *message* is sent in a datagram, with its sender. An *event* is a received message, a period, or a
request of the participant's user. An *effect* is an action for the owner of a participant.

    Gossip      rumours (events in transit), a digest of the sender's view, events it holds
    Update      lines and stamps that the sender of a digest lacks, and lines requested from it
    AskJoin     a newcomer asks for its place    ==> Redirect, Welcome or TurnAway
    Probe       checks a participant             ==> Alive
    AskWhole    requests announced events        ==> Gossip
    AckEvents   acknowledges events

A decoded message has valid types and bounds; the receiver checks those that depend on its levels,
its subsystem and its clock.

Source: EPFL 2503 §6.4.2, §6.5.1 (gossips convey the event, its probability, round and level).
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from contrada.errors import ContradaError, EncodingError, LimitError, shortened
from contrada.gossip.addresses import RADIX_MAX
from contrada.gossip.parameters import HIERARCHY_LEVELS_MAX
from contrada.gossip.rounds import ROUNDS_MAX
from contrada.model import FilterSet, Notification, to_msgpack
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import INT_MAX, TIME_MAX_US, TIME_MIN_US

GOSSIP_BYTES_MAX: Final = 1_048_576
"""Bytes of a message between participants. Beyond it: it is not sent, and not read; counted."""

PLACE_CHARS_MAX: Final = 255
"""Characters of a place. Beyond it: not read."""

INTERESTS_BYTES_MAX: Final = 16_384
"""Bytes of the interests of a line. Beyond it: a lower accuracy is used; not read."""

RUMOURS_SENT_MAX: Final = 256
"""Events in one message. Beyond it: further messages have the rest; not read."""

LINES_SENT_MAX: Final = 4_096
"""Lines, or stamps of lines, in one message. Beyond it: the next has the rest; not read."""

NAMES_SENT_MAX: Final = 256
"""Attributes in an announcement. Beyond it: the event is sent whole; not read."""

_PlaceText: TypeAlias = Annotated[str, msgspec.Meta(max_length=PLACE_CHARS_MAX)]
_Digit: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=RADIX_MAX)]
_LevelNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=HIERARCHY_LEVELS_MAX)]
_RoundCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ROUNDS_MAX)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=TIME_MIN_US, le=TIME_MAX_US)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=PLACE_CHARS_MAX)]
_PackedInterests: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=INTERESTS_BYTES_MAX)]

EventId: TypeAlias = tuple[_Name, _Name]
"""The identity of an event: its publisher, and its id there."""


class _GossipStruct(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The root of all messages, encoded as their fields in order."""


class Contact(_GossipStruct, frozen=True, order=True):
    """A participant: its address, and the place at which the owner reaches it."""

    address: Annotated[tuple[_Digit, ...], msgspec.Meta(max_length=HIERARCHY_LEVELS_MAX)]
    place: _PlaceText


class ViewLine(_GossipStruct, frozen=True):
    """A line of a table: a subsystem, or a neighbour.

    `interests` is an encoded FilterSet that covers all filters there. A `count` of 0 marks an empty
    subsystem. Source: EPFL 2503 §6.4.2, figure 6.5.
    """

    digit: _Digit
    timestamp_us: _Time
    interests: _PackedInterests
    count: _Count
    delegates: Annotated[tuple[Contact, ...], msgspec.Meta(max_length=RADIX_MAX)]


class LineStamp(_GossipStruct, frozen=True):
    """The version of a line in a view.

    `mark` is a digest of its content, so that a restamped line need not be sent; `age` is the
    number of rounds since its last stamp.
    """

    level: _LevelNumber
    digit: _Digit
    timestamp_us: _Time
    mark: _Count
    age: _RoundCount


class AgedLine(_GossipStruct, frozen=True):
    """A line in a message, with the number of rounds since its last stamp."""

    level: _LevelNumber
    age: _RoundCount
    line: ViewLine


class Rumour(_GossipStruct, frozen=True):
    """An event at a level, as in figure 6.6: with its probability and its round.

    With `names` it is announced: it has only these attributes, and no body. With `acknowledge` the
    sender waits for an acknowledgement.
    """

    event: Notification
    prob: Annotated[float, msgspec.Meta(ge=0, le=1)]
    round: _RoundCount
    level: _LevelNumber
    names: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=NAMES_SENT_MAX)] | None = None
    acknowledge: bool = False


LevelId: TypeAlias = tuple[_LevelNumber, _Name, _Name]
"""An event at a level: the level, and the event's publisher and identity."""

_Ids: TypeAlias = Annotated[tuple[EventId, ...], msgspec.Meta(max_length=RUMOURS_SENT_MAX)]
_LevelIds: TypeAlias = Annotated[tuple[LevelId, ...], msgspec.Meta(max_length=RUMOURS_SENT_MAX)]
_Stamps: TypeAlias = Annotated[tuple[LineStamp, ...], msgspec.Meta(max_length=LINES_SENT_MAX)]
_AgedLines: TypeAlias = Annotated[tuple[AgedLine, ...], msgspec.Meta(max_length=LINES_SENT_MAX)]


class _FromSender(_GossipStruct, frozen=True):
    """The root of the messages of a participant to another."""

    sender: Contact


class Gossip(_FromSender, frozen=True, tag="gossip"):
    """The gossip of a round to one participant.

    `digest` is empty, or has the stamps of all lines of the common levels; `known` names events of
    the sender, for receivers that missed them.
    """

    rumours: Annotated[tuple[Rumour, ...], msgspec.Meta(max_length=RUMOURS_SENT_MAX)] = ()
    digest: _Stamps = ()
    known: _LevelIds = ()


class Update(_FromSender, frozen=True, tag="update"):
    """The answer to a digest: newer lines, and requests for lines that are newer there."""

    lines: _AgedLines = ()
    stamps: _Stamps = ()
    wanted: Annotated[
        tuple[tuple[_LevelNumber, _Digit], ...], msgspec.Meta(max_length=LINES_SENT_MAX)
    ] = ()


class AskJoin(_FromSender, frozen=True, tag="ask join"):
    """Asks for a place in the group, with the line for the neighbours."""

    line: ViewLine


class Redirect(_FromSender, frozen=True, tag="redirect"):
    """Names nearer participants to ask."""

    contacts: Annotated[tuple[Contact, ...], msgspec.Meta(max_length=RADIX_MAX)]


class Welcome(_FromSender, frozen=True, tag="welcome"):
    """Admits a newcomer, with its first lines."""

    lines: _AgedLines


class TurnAway(_FromSender, frozen=True, tag="turn away"):
    """Refuses a newcomer."""

    reason: _Name


class Probe(_FromSender, frozen=True, tag="probe"):
    """Checks a silent neighbour."""


class Alive(_FromSender, frozen=True, tag="alive"):
    """Answers a probe."""


class AskWhole(_FromSender, frozen=True, tag="ask whole"):
    """Requests events that were announced or named in `known`."""

    ids: _LevelIds


class AckEvents(_FromSender, frozen=True, tag="acknowledge"):
    """Acknowledges events."""

    ids: _Ids


GossipMessage: TypeAlias = (
    Gossip | Update | AskJoin | Redirect | Welcome | TurnAway | Probe | Alive | AskWhole | AckEvents
)


# --- events and effects ------------------------------------------------------------------------


class Tick(msgspec.Struct, frozen=True):
    """A period P has passed."""


class MessageReceived(msgspec.Struct, frozen=True):
    """A message from a place."""

    place: str
    message: GossipMessage


class Datagram(msgspec.Struct, frozen=True):
    """A message from a place, as untrusted bytes."""

    place: str
    content: bytes


class Multicast(msgspec.Struct, frozen=True):
    """A notification of the user, with an identity and a publisher."""

    event: Notification


class AddInterest(msgspec.Struct, frozen=True):
    """A subscription of the user; it replaces one of the same identity."""

    identity: str
    filters: FilterSet


class RemoveInterest(msgspec.Struct, frozen=True):
    """The end of a subscription."""

    identity: str


class JoinGroup(msgspec.Struct, frozen=True):
    """The request to join the group of these places."""

    places: tuple[str, ...]


class LeaveGroup(msgspec.Struct, frozen=True):
    """The request to leave."""


_UserRequest: TypeAlias = Multicast | AddInterest | RemoveInterest | JoinGroup | LeaveGroup
GossipEvent: TypeAlias = Tick | MessageReceived | Datagram | _UserRequest


class SendGossip(msgspec.Struct, frozen=True):
    """Sends a message to a place; it may be lost."""

    place: str
    message: GossipMessage


class GiveEvent(msgspec.Struct, frozen=True):
    """Delivers an event to the user."""

    event: Notification


class Joined(msgspec.Struct, frozen=True):
    """Reports that the participant is in the group."""


class TurnedDown(msgspec.Struct, frozen=True):
    """Reports a refused request of the user, or of another participant."""

    event: GossipEvent
    reason: str


GossipEffect: TypeAlias = SendGossip | GiveEvent | Joined | TurnedDown


# --- bytes -------------------------------------------------------------------------------------


def event_id(event: Notification) -> EventId:
    """Returns the identity of an event."""
    return event.envelope.publisher, event.envelope.id


def encode_gossip(message: GossipMessage) -> bytes:
    """Returns the bytes of a message. Raises LimitError beyond `GOSSIP_BYTES_MAX`."""
    content = _encoder.encode(message)
    if len(content) > GOSSIP_BYTES_MAX:
        raise LimitError("GOSSIP_BYTES_MAX", GOSSIP_BYTES_MAX, len(content))
    return content


def decode_gossip(content: bytes) -> GossipMessage:
    """Returns the message in bytes. Raises only EncodingError. Cost: linear."""
    if len(content) > GOSSIP_BYTES_MAX:
        reason = f"{len(content)} bytes, more than GOSSIP_BYTES_MAX = {GOSSIP_BYTES_MAX}"
        raise EncodingError("gossip", reason)
    try:
        return _decoder.decode(content)
    except EncodingError:
        raise
    except (ContradaError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise EncodingError("gossip", shortened(str(error))) from None


def _encode_event(thing: Any) -> bytes:
    if isinstance(thing, Notification):
        return to_msgpack(thing)
    raise NotImplementedError(f"a {type(thing).__name__} is no message among participants")


def _decode_event(_: type, packed: Any) -> Notification:
    if type(packed) is not bytes:
        raise EncodingError("gossip", "an event travels as bytes")
    return notification_from_msgpack(packed)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_encode_event)
_decoder: Final[msgspec.msgpack.Decoder[GossipMessage]] = msgspec.msgpack.Decoder(
    GossipMessage, dec_hook=_decode_event
)
