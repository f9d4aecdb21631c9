"""Messages between participants: their bytes, and the refusal of other bytes."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError, LimitError
from contrada.gossip.condensation import encode_interests
from contrada.gossip.gossip_messages import (
    GOSSIP_BYTES_MAX,
    AckEvents,
    AgedLine,
    Alive,
    AskJoin,
    AskWhole,
    Contact,
    Gossip,
    GossipMessage,
    LineStamp,
    Probe,
    Redirect,
    Rumour,
    TurnAway,
    Update,
    ViewLine,
    Welcome,
    decode_gossip,
    encode_gossip,
)
from contrada.model import Envelope, FilterSet, Notification

ME = Contact((1, 2), "1.2")
EVENT = Notification({"a": [1, 2]}, body=b"x", envelope=Envelope(id="1", publisher="p"))
LINE = ViewLine(2, 1_700_000_000_000_000, encode_interests([FilterSet("a = 1")]), 1, (ME,))
STAMP = LineStamp(1, 2, 3, 4, 5)

MESSAGES: list[GossipMessage] = [
    Gossip(
        ME, (Rumour(EVENT, 0.5, 1, 2), Rumour(EVENT, 1.0, 1, 2, ("a",))), (STAMP,), ((1, "p", "1"),)
    ),
    Gossip(ME),
    Update(ME, (AgedLine(1, 2, LINE),), (STAMP,), ((1, 2),)),
    AskJoin(ME, LINE),
    Redirect(ME, (ME,)),
    Welcome(ME, (AgedLine(1, 2, LINE),)),
    TurnAway(ME, "the address is taken"),
    Probe(ME),
    Alive(ME),
    AskWhole(ME, ((1, "p", "1"),)),
    AckEvents(ME, (("p", "1"),)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_messages_round_trip(message: GossipMessage) -> None:
    """Participants in different processes would receive other messages than were sent."""
    assert decode_gossip(encode_gossip(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_truncated_messages_are_refused(message: GossipMessage) -> None:
    """A part of a message would be taken for one."""
    content = encode_gossip(message)
    for end in range(len(content)):
        with pytest.raises(EncodingError):
            decode_gossip(content[:end])


@given(st.sampled_from(MESSAGES), st.data())
def test_altered_messages_decode_or_are_refused(
    message: GossipMessage, data: st.DataObject
) -> None:
    """Bytes that anybody made would raise something that nobody expects."""
    content = bytearray(encode_gossip(message))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(EncodingError):
        decode_gossip(bytes(content))


@pytest.mark.parametrize(
    "changes",
    [
        {"prob": 1.5},
        {"prob": -0.1},
        {"round": -1},
        {"round": 10_001},
        {"level": 0},
        {"level": 65},
        {"event": b"\x90"},
        {"event": 7},
    ],
    ids=str,
)
def test_values_out_of_bounds_are_refused(changes: dict[str, object]) -> None:
    """A probability above 1, or an impossible level, would enter a buffer."""
    plain = msgspec.to_builtins(MESSAGES[0], enc_hook=lambda _: encode_gossip(MESSAGES[1]))
    fields = dict(zip(Rumour.__struct_fields__, plain[2][0], strict=False))
    fields["event"] = msgspec.msgpack.decode(encode_gossip(MESSAGES[0]))[2][0][0]
    plain[2] = [list({**fields, **changes}.values())]
    with pytest.raises(EncodingError):
        decode_gossip(msgspec.msgpack.encode(plain))


def test_no_message_is_too_large() -> None:
    """One participant could make another hold more than it has."""
    large = Notification({}, body=bytes(GOSSIP_BYTES_MAX), envelope=EVENT.envelope)
    with pytest.raises(LimitError):
        encode_gossip(Gossip(ME, (Rumour(large, 1.0, 0, 1),)))
    with pytest.raises(EncodingError):
        decode_gossip(bytes(GOSSIP_BYTES_MAX + 1))
