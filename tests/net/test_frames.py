"""Frames and their bytes: whole, cut into any pieces, or damaged."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.delivery.delivery_messages import LogEntry, Records
from contrada.errors import ContradaError, EncodingError, FrameError, LimitError
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.notification import PRIORITY_DEFAULT
from contrada.model.codec import to_msgpack
from contrada.net.wire.durable_messages import decode_delivery
from contrada.net.wire.frames import (
    FRAME_BYTES_MAX,
    Credit,
    Delivery,
    Failure,
    FewPublished,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    InspectReply,
    InspectRequest,
    Ping,
    Pong,
    Reply,
    Request,
    encode,
    read_few,
)
from contrada.net.wire.inspection import FilterPage, HeldLink, HeldText, Inspection
from contrada.net.wire.message_codec import (
    ClientRequest,
    PackedSubscribe,
    encode_message,
    encode_publish,
)
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, encode_content
from contrada.routing.router_messages import (
    SUBSCRIPTION_FILTERS_MAX,
    Publish,
    Subscribe,
    Unsubscribe,
)
from tests.net.requests import decode_request, delivery, frames_in, publish, subscribe, unsubscribe

EVERY = [
    Hello("client", "x", {"a": 1, "b": True, "c": "d"}),
    Goodbye("bye"),
    Failure("code", "reason"),
    Ping(1),
    Pong(2),
    subscribe(1, 2, b"\x00f", 3),
    unsubscribe(1, 2),
    publish(1, 50, [b"a", b"", b"\xff"]),
    Credit("1", 2**40),
    Reply(1, 2),
    Reply(1, 0, "code", "reason"),
    delivery(1, 2, [b"a", b"b"]),
    InspectRequest(1, b"n"),
    InspectRequest(1, page_from=(2, 3)),
    InspectRequest(1, b"n", arrival=("a", "b")),
    InspectRequest(1, forest_from=("a", "0", -1, 9)),
    InspectReply(
        2,
        Inspection(
            "n", {"links": 1}, [HeldLink("m", "peer", 2)], {"1": 3}, [HeldText("a = 1", ["x"])], []
        ),
    ),
    InspectReply(
        2, Inspection("n", {}, [], {}, [], []), FilterPage([("s", [b"f"]), ("", [b"g"])], (4, 5))
    ),
]

MAP = {(1, 2): 3}
"""A key that is an array."""


def fault_of(reader: FrameReader, data: bytes) -> str | None:
    try:
        reader.feed(data)
        frames_in(reader)
    except FrameError as error:
        return error.code
    return None


@given(st.lists(st.sampled_from(EVERY), max_size=8), st.lists(st.integers(0, 400), max_size=8))
def test_frames_survive_any_cut_of_the_stream(frames: list[Frame], cuts: list[int]) -> None:
    """A frame that arrives in pieces, or together with others, would be lost or changed."""
    data = b"".join(map(encode, frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = FrameReader()
    got: list[Frame] = []
    for start, end in pairwise(places):
        reader.feed(data[start:end])
        got += frames_in(reader)
    assert got == frames


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_publications_survive_any_cut_of_the_stream(are_plain: list[bool], cuts: list[int]) -> None:
    """A publication that arrives in pieces, or behind another frame, would be lost or repeated."""
    plain, other = (
        to_msgpack(Notification({"n": 1}, envelope=Envelope("p.1", "p", 1, 1, priority=priority)))
        for priority in (PRIORITY_DEFAULT, PRIORITY_DEFAULT + 1)
    )
    messages = {True: encode_publish([plain]), False: encode_publish([other])}
    frames = [Request(n, messages[is_plain]) for n, is_plain in enumerate(are_plain)]
    data = b"".join(map(encode, frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader, got = FrameReader(), list[Any]()
    reader.reads_few = True
    for start, end in pairwise(places):
        reader.feed(data[start:end])
        while (frame := reader.next()) is not None:
            got.append(frame)
            assert reader.given_bytes == len(encode(frames[len(got) - 1]))
        assert reader.is_empty is (len(reader) == 0)
    assert [each.number for each in got] == [each.number for each in frames]
    for each, is_plain in zip(got, are_plain, strict=True):
        if read_few is not None:
            assert type(each) is (FewPublished if is_plain else Request)


@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=8), st.integers(0, 400))
def test_frames_of_one_kind_are_taken_together(frames: list[Frame], cut: int) -> None:
    """A request would overtake a frame of another kind, or be taken before it is complete."""
    data = b"".join(map(encode, frames))
    reader, got = FrameReader(), list[Frame]()
    for part in (data[:cut], data[cut:]):
        reader.feed(part)
        while (frame := reader.next()) is not None:
            got.append(frame)
            size = len(encode(frame))
            while (more := reader.next_of(type(frame))) is not None:
                assert type(more) is type(frame)
                got.append(more)
                size += len(encode(more))
            assert reader.given_bytes == size
            if len(got) < len(frames) and len(reader) >= len(encode(frames[len(got)])):
                assert type(frames[len(got)]) is not type(frame)
    assert got == frames


PLAIN_REQUEST = encode_publish(
    [to_msgpack(Notification({"n": 1}, envelope=Envelope("p.1", "p", 1, 1)))]
)
OTHER_REQUEST = msgspec.Raw(msgspec.msgpack.encode(["unsubscribe", "a"]))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=8), st.integers(0, 400))
def test_an_unwanted_frame_is_left_for_its_turn(kinds: list[tuple[bool, int]], cut: int) -> None:
    """It would be lost, handled in the turn of another request, or not be counted in full."""
    requests = [
        Request(number, PLAIN_REQUEST if is_plain else OTHER_REQUEST) for is_plain, number in kinds
    ]
    data = b"".join(map(encode, requests))
    reader, got = FrameReader(), list[Any]()
    reader.reads_few = True
    for part in (data[:cut], data[cut:]):
        reader.feed(part)
        while (frame := reader.next()) is not None:
            sizes = [len(encode(requests[len(got)]))]
            got.append(frame)
            while (more := reader.next_of(Request, lambda it: it.number > 0)) is not None:
                assert type(more) is Request
                assert more.number
                sizes.append(len(encode(more)))
                got.append(more)
            assert reader.given_bytes == sum(sizes)
    assert [each.number for each in got] == [each.number for each in requests]


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 5_000, 10_000, 24_000])
def test_long_deliveries_survive_cuts(cut: int) -> None:
    """A part of the next Delivery would be read as the end of this one."""
    frames = [Delivery("1", n, [bytes((n,)) * 3_000, b"end"]) for n in range(12)]
    data, reader, found = b"".join(map(encode, frames)), FrameReader(), list[Frame]()
    for at in range(0, len(data), cut):
        reader.feed(data[at : at + cut])
        found += frames_in(reader)
    assert found == frames
    assert len(reader) == 0


@pytest.mark.parametrize("cut", [1, 8, 9, 12])
def test_an_unwanted_frame_of_two_reads_is_left_with_those_behind(cut: int) -> None:
    """The frames of the second read would be lost."""
    frames = [Ping(1), Pong(2), Ping(3)]
    data, reader = b"".join(map(encode, frames)), FrameReader()
    reader.feed(data[:cut])
    if cut > len(encode(frames[0])):
        assert reader.next() == frames.pop(0)
    reader.feed(data[cut:])
    assert len(reader) == sum(len(encode(each)) for each in frames)
    assert reader.next_of(type(frames[0]), lambda _: False) is None
    assert frames_in(reader) == frames
    assert (len(reader), reader.is_empty) == (0, True)


def test_waiting_frames_are_not_copied_with_each_read() -> None:
    """A client that sends ahead of its turns would cost the broker the square of its bytes."""
    reader, frame = FrameReader(), encode(Delivery("1", 0, [b"x" * 5_000]))
    reader.feed(frame)
    for _ in range(20):
        reader.feed(frame[:2_500])
        reader.feed(frame[2_500:])
        assert isinstance(reader._data, bytearray)
    assert len(frames_in(reader)) == 21


def test_the_fault_of_a_frame_waits_for_its_turn() -> None:
    """The frames before a malformed one would not be handled."""
    reader = FrameReader()
    broken = bytearray(encode(Ping(1)))
    broken[-1] = 0xC1
    reader.feed(encode(Ping(7)) + broken)
    assert reader.next() == Ping(7)
    assert reader.next_of(Ping) is None
    with pytest.raises(FrameError, match="malformed"):
        reader.next()


@given(st.binary(max_size=64))
def test_garbage_is_one_clear_error(garbage: bytes) -> None:
    """Bytes of a stranger would raise something that the broker does not expect."""
    reader = FrameReader()
    known = {"not contrada", "version", "unknown kind", "oversized", "malformed"}
    assert fault_of(reader, garbage) in {*known, None}


@given(st.sampled_from([1, 2, 3, 4, 5, 16, 17, 32, 33]), st.binary(max_size=40))
def test_any_payload_is_a_frame_or_malformed(kind: int, payload: bytes) -> None:
    """A payload of a stranger would raise something that the broker does not expect."""
    header = b"ct\x02" + bytes([kind]) + len(payload).to_bytes(4, "big")
    assert fault_of(FrameReader(), header + payload) in {"malformed", None}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not contrada"),
        (b"ct\x01" + encode(Ping(1))[3:], "version"),
        (b"ct\x02\xee\x00\x00\x00\x00", "unknown kind"),
        (b"ct\x02\x04" + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "oversized"),
        (b"ct\x02\x04\x00\x00\x00\x01\xc0", "malformed"),
        (b"ct\x02\x04\x00\x00\x00\x04\x91\xa1xx", "malformed"),
        (b"ct\x02\x01\x00\x00\x00\x03\x91\xa1\xff", "malformed"),
    ],
)
def test_each_fault_has_its_name(data: bytes, code: str) -> None:
    """Statistics could not tell faults apart."""
    assert fault_of(FrameReader(), data) == code


def test_later_versions_may_append_fields() -> None:
    """A field added later would need a new version of everything."""
    payload = b"\x92\x05\xa5later"
    data = b"ct\x02\x04" + len(payload).to_bytes(4, "big") + payload
    reader = FrameReader()
    reader.feed(data)
    assert frames_in(reader) == [Ping(5)]


def test_a_record_may_lack_its_last_fields() -> None:
    """A broker that leaves out first attempts, as the protocol allows, would lose its readers."""
    message = msgspec.Raw(msgspec.msgpack.encode(["records", "log", "reader", [[7, 5, None]]]))
    found = decode_delivery(message)
    assert found == Records("log", "reader", (LogEntry(7, 5, None, attempt=1, reason=""),))


def test_sent_frames_are_bounded_too() -> None:
    """A peer would get frames that it must refuse."""
    with pytest.raises(LimitError, match="FRAME_BYTES_MAX"):
        encode(delivery(1, 0, [bytes(FRAME_BYTES_MAX)]))
    with pytest.raises(LimitError, match="CONTENT_BYTES_MAX"):
        encode_content(Notification({}, body=bytes(CONTENT_BYTES_MAX)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93\xabunsubscribe\xa1\xff\xa0",
        b"\x92\xa7publish\x91\x01",
        b"\x92\xa7publish\x91\xc4\x01\xc1",
        b"\x91\xa7unknown",
        b"\x93\xa9subscribe\xa11\xc4\x01\xc1",
        msgspec.msgpack.encode(["subscribe", "1", to_msgpack(Notification({}))]),
        msgspec.msgpack.encode(["publish", [to_msgpack(Filter("a = 1"))]]),
    ],
)
def test_messages_of_strangers_are_one_clear_error(data: bytes) -> None:
    """A client's request would end a connection with a fault of the broker."""
    with pytest.raises(ContradaError):
        whole(decode_request(msgspec.Raw(data)))


def whole(asked: ClientRequest | Publish) -> object:
    """A message with all its filters."""
    return asked.part(asked.members()) if isinstance(asked, PackedSubscribe) else asked


def test_messages_travel_as_they_are() -> None:
    """A request would be decoded as another one."""
    published = Publish((Notification({"a": 1}), Notification({"b": [1, 2]})))
    for message in (
        published,
        Subscribe("1", Filter("a = 1")),
        Subscribe("2", FilterSet("a = 1 or b = 2")),
        Unsubscribe("1"),
    ):
        assert whole(decode_request(encode_message(message))) == message


def test_filters_are_looked_at_in_parts() -> None:
    """A part would ask for something else, or many filters have to be read at once."""
    filters = [Filter({"a": n % 7, "b": n}) for n in range(50)]
    asked = decode_request(
        encode_message(Subscribe("1", FilterSet([*filters, *filters[:20]]), "home"))
    )
    assert isinstance(asked, PackedSubscribe)
    members = asked.members()
    assert len(members) == 50, "what is written alike comes once"
    parts = [asked.part(members[n : n + 8]) for n in range(0, 50, 8)]
    assert [each for part in parts for each in part.filters.filters] == filters
    assert {(part.identity, part.owner) for part in parts} == {("1", "home")}
    many = FilterSet([Filter({"a": n}) for n in range(SUBSCRIPTION_FILTERS_MAX + 1)])
    with pytest.raises(LimitError, match="SUBSCRIPTION_FILTERS_MAX"):
        PackedSubscribe("1", to_msgpack(many)).members()


def test_filters_of_one_subscription_share_their_value_sets() -> None:
    """A broker would hold each name as often as a subscription has it."""
    asked = decode_request(
        encode_message(Subscribe("1", FilterSet("s = 'DIS' and n > 1 or s = 'DIS' and n < 0")))
    )
    assert isinstance(asked, PackedSubscribe)
    first, second = asked.part(asked.members()).filters.filters
    assert first.sets["s"] is second.sets["s"]


@pytest.mark.parametrize(
    "message",
    [
        ["publish", MAP],
        ["publish", [MAP]],
        ["publish", [b""], MAP],
        ["publish", [b""], 0, "", MAP],
        ["subscribe", MAP, b""],
        ["subscribe", "1", MAP],
        ["unsubscribe", MAP],
        [MAP],
        MAP,
    ],
)
def test_maps_in_messages_are_refused_before_they_are_made(message: object) -> None:
    """Many keys that are arrays of one hash would take the square of their number."""
    with pytest.raises(EncodingError, match=r"Expected .*, got `object`"):
        decode_request(msgspec.Raw(msgspec.msgpack.encode(message)))
