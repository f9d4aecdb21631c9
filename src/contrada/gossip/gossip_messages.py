"""What participants of a group say to one another, and what one is told and asks to be done.

A *message* travels in a datagram; it says who sent it. An *event* is a message that has come, a
period that has passed, or a wish of the participant's user. An *effect* is something that the owner
of a participant does for it.

    Gossip      rumours (events on their way), a digest of the sender's view, what it still has
    Update      lines and stamps that the sender of a digest lacks, and which lines it is asked for
    AskJoin     a newcomer asks for its place    ==> Redirect, Welcome or TurnAway
    Probe       is somebody there?               ==> Alive
    AskWhole    events that were only announced  ==> Gossip
    AckEvents events that came where that was asked for

What is read is checked by types and bounds before anything is done with it; what depends on the
receiver (its levels, its subsystem, its clock) it checks itself.

Source: EPFL 2503 §6.4.2, §6.5.1 (gossips convey the event, its probability, round and level).
"""

from dataclasses import dataclass
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
"""Characters that say where a participant is reached. Beyond it: not read."""

INTERESTS_BYTES_MAX: Final = 16_384
"""Bytes of the interests of a line. Beyond it: they are condensed more coarsely; not read."""

RUMOURS_SENT_MAX: Final = 256
"""Events in one message. Beyond it: the others go in further messages; not read."""

LINES_SENT_MAX: Final = 4_096
"""Lines, or stamps of lines, in one message. Beyond it: the others wait for the next; not read."""

NAMES_SENT_MAX: Final = 256
"""Attributes that an event is announced with. Beyond it: it is sent whole; not read."""

_PlaceText: TypeAlias = Annotated[str, msgspec.Meta(max_length=PLACE_CHARS_MAX)]
_Digit: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=RADIX_MAX)]
_LevelNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=HIERARCHY_LEVELS_MAX)]
_RoundCount: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ROUNDS_MAX)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=TIME_MIN_US, le=TIME_MAX_US)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=PLACE_CHARS_MAX)]
_PackedInterests: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=INTERESTS_BYTES_MAX)]

EventId: TypeAlias = tuple[_Name, _Name]
"""What tells an event from all others: its publisher, and its identity there."""


class _GossipSaid(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The root of all that is said: it travels as its fields in order."""


class Contact(_GossipSaid, frozen=True, order=True):
    """A participant: its address, and the place where it is reached, which the owner knows."""

    address: Annotated[tuple[_Digit, ...], msgspec.Meta(max_length=HIERARCHY_LEVELS_MAX)]
    place: _PlaceText


class ViewLine(_GossipSaid, frozen=True):
    """What is known of a subsystem, or of a neighbour: a line of a table.

    `interests` is a packed FilterSet that matches whatever somebody there wants. A line with a
    `count` of 0 says that nobody is there any longer. Source: EPFL 2503 §6.4.2, figure 6.5.
    """

    digit: _Digit
    timestamp_us: _Time
    interests: _PackedInterests
    count: _Count
    delegates: Annotated[tuple[Contact, ...], msgspec.Meta(max_length=RADIX_MAX)]


class LineStamp(_GossipSaid, frozen=True):
    """Which version of a line somebody has.

    `mark` stands for what the line says, so that one that was only stamped again need not be sent;
    `age` is for how many rounds nobody has stamped it.
    """

    level: _LevelNumber
    digit: _Digit
    timestamp_us: _Time
    mark: _Count
    age: _RoundCount


class ToldLine(_GossipSaid, frozen=True):
    """A line on its way, and for how many rounds nobody has stamped it."""

    level: _LevelNumber
    age: _RoundCount
    line: ViewLine


class Rumour(_GossipSaid, frozen=True):
    """An event on its way at a level, by figure 6.6: with its probability there and its round.

    With `names` it is only announced: it carries just the attributes with these names, and no body.
    With `acknowledge` the sender waits for an acknowledgement.
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
_ToldLines: TypeAlias = Annotated[tuple[ToldLine, ...], msgspec.Meta(max_length=LINES_SENT_MAX)]


class Gossip(_GossipSaid, frozen=True, tag="gossip"):
    """The gossip of a round to one participant.

    `digest` is empty, or has the stamps of all lines of the levels that both share; `known` names
    events that the sender has, for receivers that missed them.
    """

    sender: Contact
    rumours: Annotated[tuple[Rumour, ...], msgspec.Meta(max_length=RUMOURS_SENT_MAX)] = ()
    digest: _Stamps = ()
    known: _LevelIds = ()


class Update(_GossipSaid, frozen=True, tag="update"):
    """The answer to a digest: lines that are newer here, and requests for those newer there."""

    sender: Contact
    lines: _ToldLines = ()
    stamps: _Stamps = ()
    wanted: Annotated[
        tuple[tuple[_LevelNumber, _Digit], ...], msgspec.Meta(max_length=LINES_SENT_MAX)
    ] = ()


class AskJoin(_GossipSaid, frozen=True, tag="ask join"):
    """A newcomer asks for a place in the group, with the line that its neighbours will have."""

    sender: Contact
    line: ViewLine


class Redirect(_GossipSaid, frozen=True, tag="redirect"):
    """Ask these, who are nearer to you."""

    sender: Contact
    contacts: Annotated[tuple[Contact, ...], msgspec.Meta(max_length=RADIX_MAX)]


class Welcome(_GossipSaid, frozen=True, tag="welcome"):
    """You are in; this is what you should know."""

    sender: Contact
    lines: _ToldLines


class TurnAway(_GossipSaid, frozen=True, tag="turn away"):
    """You cannot join."""

    sender: Contact
    reason: _Name


class Probe(_GossipSaid, frozen=True, tag="probe"):
    """Are you there?"""

    sender: Contact


class Alive(_GossipSaid, frozen=True, tag="alive"):
    """I am here."""

    sender: Contact


class AskWhole(_GossipSaid, frozen=True, tag="ask whole"):
    """Send me these events, which you announced or said that you have."""

    sender: Contact
    ids: _LevelIds


class AckEvents(_GossipSaid, frozen=True, tag="acknowledge"):
    """These events have come."""

    sender: Contact
    ids: _Ids


GossipMessage: TypeAlias = (
    Gossip | Update | AskJoin | Redirect | Welcome | TurnAway | Probe | Alive | AskWhole | AckEvents
)


# --- events and effects ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """A period P has passed."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message has come from a place."""

    place: str
    message: GossipMessage


@dataclass(frozen=True, slots=True)
class Datagram:
    """A message has come from a place, as bytes that anybody may have made."""

    place: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Multicast:
    """The user publishes. The notification has an identity, and a publisher."""

    event: Notification


@dataclass(frozen=True, slots=True)
class AddInterest:
    """The user wants what the filters match, until told otherwise by the same identity."""

    identity: str
    filters: FilterSet


@dataclass(frozen=True, slots=True)
class RemoveInterest:
    """The user does not want it any longer."""

    identity: str


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """The user wants into the group that those at these places are in."""

    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """The user leaves."""


GossipEvent: TypeAlias = (
    Tick | Heard | Datagram | Multicast | AddInterest | RemoveInterest | JoinGroup | LeaveGroup
)


@dataclass(frozen=True, slots=True)
class SendGossip:
    """Send a message to a place; it may be lost."""

    place: str
    message: GossipMessage


@dataclass(frozen=True, slots=True)
class GiveEvent:
    """Give an event to the user, who wants it."""

    event: Notification


@dataclass(frozen=True, slots=True)
class Joined:
    """The participant is in the group."""


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """A request of the user, or of another participant, was not carried out."""

    event: GossipEvent
    reason: str


GossipEffect: TypeAlias = SendGossip | GiveEvent | Joined | TurnedDown


# --- bytes -------------------------------------------------------------------------------------


def event_id(event: Notification) -> EventId:
    """The identity of an event in a group."""
    return event.envelope.publisher, event.envelope.id


def encode_gossip(message: GossipMessage) -> bytes:
    """The bytes of a message. Raises LimitError beyond `GOSSIP_BYTES_MAX`."""
    content = _encoder.encode(message)
    if len(content) > GOSSIP_BYTES_MAX:
        raise LimitError("GOSSIP_BYTES_MAX", GOSSIP_BYTES_MAX, len(content))
    return content


def decode_gossip(content: bytes) -> GossipMessage:
    """The message that the bytes are. Raises EncodingError, and nothing else. Cost: linear."""
    if len(content) > GOSSIP_BYTES_MAX:
        reason = f"{len(content)} bytes, more than GOSSIP_BYTES_MAX = {GOSSIP_BYTES_MAX}"
        raise EncodingError("gossip", reason)
    try:
        return _decoder.decode(content)
    except EncodingError:
        raise
    except (ContradaError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise EncodingError("gossip", shortened(str(error))) from None


def _packed(thing: Any) -> bytes:
    if isinstance(thing, Notification):
        return to_msgpack(thing)
    raise NotImplementedError(f"a {type(thing).__name__} is not said among participants")


def _unpacked(_: type, packed: Any) -> Notification:
    if type(packed) is not bytes:
        raise EncodingError("gossip", "an event travels as bytes")
    return notification_from_msgpack(packed)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_packed)
_decoder: Final[msgspec.msgpack.Decoder[GossipMessage]] = msgspec.msgpack.Decoder(
    GossipMessage, dec_hook=_unpacked
)
