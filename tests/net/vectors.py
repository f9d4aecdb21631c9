"""The test vectors of the wire protocol, made by the project's own code.

`python -m tests.net.vectors` writes them to `vectors.json`. Each has a name, its meaning, its bytes
in hex, and either their decoded form or the code of their refusal. Msgpack in JSON: bytes are
`{"bytes": hex}`, a time `{"time": text}`, a number that JSON lacks `{"number": text}`; the kind of
a frame precedes its fields.
"""

import json
import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from contrada.delivery.delivery_messages import (
    Ack,
    AnnounceOwner,
    AskPast,
    CausalRow,
    Closed,
    CloseLog,
    Destination,
    DurableEntry,
    Extend,
    Grant,
    LogEntry,
    Nack,
    Notice,
    OpenLog,
    Past,
    Payload,
    ReadLog,
    Records,
    Resumed,
    Returned,
    Sequenced,
    Shipment,
    StreamAck,
    ToSequence,
    Transfer,
    Withdraw,
)
from contrada.delivery.queue_messages import (
    AskQueue,
    AskQueues,
    PeekedEntries,
    PeekQueue,
    PurgeQueue,
    QueuePage,
    QueueState,
    QueueStep,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.delivery.retention import Retention
from contrada.errors import ContradaError, DeliveryError, FrameError
from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification, Pattern, Query
from contrada.model.codec import Encodable, from_msgpack, to_msgpack
from contrada.net.broker.neighbours import Membership
from contrada.net.wire.durable_messages import (
    Acknowledge,
    AskLog,
    AskRecordBatch,
    LogState,
    Publications,
    PublisherHello,
    PublisherState,
    ReaderState,
    RecordBatch,
    refusal,
)
from contrada.net.wire.durable_messages import encode_durable as promised
from contrada.net.wire.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    AboutQuestions,
    Credit,
    CutOff,
    Delivery,
    Failure,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    Hop,
    HopCredit,
    HopPart,
    InspectReply,
    InspectRequest,
    LogDelivery,
    LogHop,
    LogReply,
    LogRequest,
    MatchDelivery,
    Offers,
    Ping,
    Pong,
    QuestionDelivery,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
    encode,
)
from contrada.net.wire.inspection import FilterPage, HeldLink, HeldStep, HeldText, Inspection
from contrada.net.wire.message_codec import Hopping, encode_message
from contrada.net.wire.payload_codec import encode_values
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Piece
from contrada.routing.aggregation import Combination, aggregate_of
from contrada.routing.delegation import (
    AcceptPattern,
    AskWatermark,
    HandBack,
    HandOver,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router_messages import (
    AckLinks,
    Adjacency,
    Advertise,
    AnnounceLinks,
    Answer,
    Ask,
    Cancel,
    Describe,
    Disjunct,
    Follow,
    LinkState,
    More,
    Publish,
    Role,
    SourceReport,
    SourceState,
    Subscribe,
    Unadvertise,
    Undescribe,
    Unfollow,
    Unsubscribe,
    alternative,
)
from tests.net.requests import decode_request

PLACE: Final = Path(__file__).with_name("vectors.json")

AT_US: Final = 1_763_633_400_000_000
ENVELOPE: Final = Envelope("1", "p", 1, AT_US)
QUOTE: Final = Notification({"symbol": "DIS", "price": 98.5}, envelope=ENVELOPE)
CHEAP: Final = Filter("price < 100")
RISE: Final = Pattern(
    [Filter("kind = 'a'"), Filter("kind = 'b'")], by=["symbol"], within_us=60_000_000
)
A: Final = Notification({"kind": "a", "symbol": "DIS"}, envelope=Envelope("2", "p", 2, AT_US))
B: Final = Notification({"kind": "b", "symbol": "DIS"}, envelope=Envelope("3", "p", 3, AT_US + 1))
NETWORK: Final[dict[str, int | str | bool]] = {
    "frame_bytes_max": FRAME_BYTES_MAX,
    "name": "a",
    "instance": "a-1",
    **Membership("a").shared_options(),
}

SURE: Final = Notification(
    {"symbol": "DIS"}, envelope=Envelope("4", "p", 4, AT_US, delivery="certified fifo")
)
ROW: Final = CausalRow("a", 5, 1, 9, (("b", 6, 3),))
KEPT: Final = FilterSet("price < 100")

_STRETCH: Final = RecordBatch(
    3,
    struct.pack("<q", 1),
    struct.pack("<q", AT_US),
    struct.pack("<I", len(to_msgpack(SURE))),
    bytes(to_msgpack(SURE)),
    ((2, "damaged"),),
)

PROMISES: Final[dict[str, tuple[str, Any]]] = {
    "publish": ("what is promised", Publications([to_msgpack(SURE)])),
    "arrive": (
        "p publishes here; it was at server a, in its life 5",
        PublisherHello("p", "p-1", {"a": 5}),
    ),
    "read": (
        "durable subscription s, begun where it does not stand",
        ReadLog("s", "r", KEPT, Retention()),
    ),
    "grant": ("10 records more", Grant("s", "r", 10)),
    "done": ("positions 1 and 2 are worked off", Ack("s", "r", ((1, 3),))),
    "give back": ("position 3 may come again after a second", Nack("s", "r", (3,), 1_000_000)),
    "extend": ("position 4 is worked on", Extend("s", "r", (4,))),
    "close": ("the reader leaves; it had read position 3", CloseLog("s", "r", seen=(3,))),
    "ask log": ("the positions of s, and that of a time", AskLog("s", AT_US)),
    "ask stretch": ("positions 1 and 2 of s, number 1 there", AskRecordBatch("s", 1, 1, 3)),
    "acknowledge": ("all before position 3 is worked off", Acknowledge("s", 1, 3)),
    "ask queue": ("the counts of s", AskQueue("s")),
    "ask queues": ("those whose names follow s", AskQueues("s")),
    "peek queue": ("2 records of s, from position 3 on", PeekQueue("s", 3, 2)),
    "purge queue": ("the records that s has now", PurgeQueue("s")),
    "redrive queue": ("the next step, up to position 8", RedriveQueue("s.dead", 2, 4, 9, "s")),
    "release queue": ("the records that the readers of s have", ReleaseQueue("s")),
}
"""The messages in a LogRequest."""

GIVEN: Final[dict[str, tuple[str, Any]]] = {
    "records": (
        "one record, for the second time, and one that is damaged",
        Records("s", "r", (LogEntry(1, AT_US, SURE, 2), LogEntry(2, AT_US, None, 1, "damaged"))),
    ),
    "withdraw": ("positions 5 and 6 go to others", Withdraw("s", "r", (5, 6))),
    "closed": ("nothing more comes; it may begin anew", Closed("s", "r", "restarted", again=True)),
}
"""The messages in a LogDelivery."""

BODIES: Final[tuple[Payload, ...]] = (
    Notice(SURE),
    ToSequence(SURE, 1),
    Returned(SURE, 1, 2, "b"),
    Resumed(),
    AskPast("p", 7),
    Past("p", 7, 4, (3,), 2),
    OpenLog("s", "r", 1),
    Extend("s", "r"),
    Withdraw("s", "r", (5,)),
    Closed("s", "r", "it ended"),
)

FERRIED: Final[dict[str, tuple[str, Any]]] = {
    "announce": (
        "all that stands at server a",
        AnnounceOwner("a", 5, 1, 2, True, ((1, DurableEntry("s", KEPT)), (2, None)), True, True),
    ),
    "sequenced": ("b gives the order of sequence n", Sequenced("n", 2, "b", (ROW,))),
    "carry": (
        "a parcel of each kind of body",
        Transfer(
            "a",
            5,
            1,
            tuple(
                Shipment((Destination("b", 6, n, n + 1, (1,)),), body, (ROW,))
                for n, body in enumerate(BODIES)
            ),
        ),
    ),
    "taken": ("b has taken all up to 3 of a's stream", StreamAck("b", 6, "a", 5, 3)),
}
"""The messages in a LogHop."""

MATCH: Final = (encode_values(("DIS",)), [to_msgpack(A), to_msgpack(B)])

_QUEUE: Final = QueueState("s", 3, 2, 1, AT_US, 900, 1, 2, 4, 0, "s.dead")

FRAMES: Final[dict[str, tuple[str, Frame]]] = {
    "hello of a client": ("the first frame of a client", Hello("client", "example 1")),
    "hello of a broker": (
        "the answer of a broker that is alone",
        Hello("broker", "contrada", {"frame_bytes_max": FRAME_BYTES_MAX}),
    ),
    "hello of a broker with users": (
        "the answer to one who may publish under desk, and below it",
        Hello("broker", "contrada", {"frame_bytes_max": FRAME_BYTES_MAX, "publisher": "desk"}),
    ),
    "hello of a neighbour": (
        "a broker asks another one for a link",
        Hello("neighbour", "contrada", {**NETWORK, "as": "peer", "cost": 1}),
    ),
    "goodbye": ("the sender closes in order", Goodbye("done")),
    "failure": ("the other side broke the protocol", Failure("silent", "nothing heard for 60 s")),
    "ping": ("asks for a sign of life", Ping(7)),
    "pong": ("the answer to that ping", Pong(7)),
    "request to subscribe": (
        "price < 100, with 65536 bytes of credit",
        Request(2, encode_message(Subscribe("1", CHEAP)), credit=65_536),
    ),
    "request to publish": (
        "one notification; the broker may wait 5 s for a slow reader",
        Request(3, encode_message(Publish((QUOTE,))), wait_ms=5_000),
    ),
    "credit": ("600 bytes more for subscription 1", Credit("1", 600)),
    "question delivery": (
        "a question to the client's source books",
        QuestionDelivery(
            ["books"],
            encode_message(Ask((Disjunct(Query("price < 100")),), "", "q7", 950_000, 256)),
        ),
    ),
    "about questions": (
        "an item came, and all sources have ended; more of another one may come",
        AboutQuestions(
            [
                encode_message(Answer("", "q7", (QUOTE,), (), is_last=True)),
                encode_message(More("", "q9", 128)),
            ]
        ),
    ),
    "statistics request": ("asks what the broker did so far", StatisticsRequest(4)),
    "statistics reply": (
        "some counts, by name",
        StatisticsReply(4, {"connections": 2, "dropped": {"queue full": 1}}),
    ),
    "inspect request": (
        "asks what the broker holds, and where a notification would go",
        InspectRequest(8, to_msgpack(QUOTE)),
    ),
    "inspect request of a page": (
        "asks what clients ask for, from durable subscription 4 and filter 300 on",
        InspectRequest(10, page_from=(4, 300)),
    ),
    "inspect request of an arrival": (
        "asks what the broker would do with a notification from south, which entered at east",
        InspectRequest(11, to_msgpack(QUOTE), arrival=("south", "east")),
    ),
    "inspect request of a forest": (
        "asks for the filters below filter 7 in the forest of south, from number 20 on",
        InspectRequest(12, forest_from=("south", "", 7, 20)),
    ),
    "inspect reply": (
        "one link, one client with one subscription, which matches",
        InspectReply(
            8,
            Inspection(
                "north",
                {"links": 1, "clients": 1, "filters": 1, "advertisements": 0, "matching": 1},
                [HeldLink("south", "peer", 1, "", "contrada://south", 3, 1, ["0"])],
                {"1": 1},
                [HeldText("price < 100", ["client 1"])],
                [],
                [HeldText("price < 100", ["client 1"], 7, ["south"])],
                ["south"],
                steps=[HeldStep("south", "north")],
            ),
        ),
    ),
    "inspect reply with a page": (
        "a durable subscription, a filter of another one, and where the next page begins",
        InspectReply(
            10,
            Inspection("north", {}, [], {}, [], []),
            FilterPage(
                [("cheap", [to_msgpack(CHEAP)]), ("", [to_msgpack(Filter("a = 1"))])], (5, 301)
            ),
        ),
    ),
    "hop": (
        "a broker asks its neighbour for price < 100",
        Hop([encode_message(Subscribe("1", CHEAP))]),
    ),
    "hop credit": ("600 bytes, of one notification, were worked off", HopCredit(600, 1)),
    "hop part": ("the last part of a message that is too long", HopPart(b"\x90", is_last=True)),
    "reply": ("request 2 was carried out", Reply(2)),
    "reply to a publication": ("one pair was dropped", Reply(3, 1)),
    "refusal": (
        "nothing was done of request 6",
        Reply(6, 0, "unknown", "subscription 9 is not in force"),
    ),
    "delivery": ("one notification for subscription 1", Delivery("1", 0, [to_msgpack(QUOTE)])),
    "undecided delivery": (
        "the client decides whether it matches; 2 found no room so far, 1 no time",
        Delivery("1", 2, [to_msgpack(QUOTE)], is_undecided=True, expired=1),
    ),
    "offers": (
        "one advertisement is on offer now, another no longer",
        Offers(
            [
                (to_msgpack(Advertisement("symbol any and price any")), True),
                (to_msgpack(Filter("kind = 'a'")), False),
            ]
        ),
    ),
    "cut off": ("subscription 9 has ended: in all 70 found no room", CutOff("9", 70)),
    "match delivery": ("one match of pattern 2", MatchDelivery("2", 0, [MATCH])),
    **{
        f"log request: {name}": (meaning, LogRequest(8, promised(message), wait_ms=5_000))
        for name, (meaning, message) in PROMISES.items()
    },
    "log reply": ("it is done, and on the disk", LogReply(8)),
    "log reply to publish": ("0 pairs were dropped", LogReply(8, promised(0))),
    "log reply to arrive": (
        "server a, in its life 5",
        LogReply(8, promised(PublisherState("a", 5, 4))),
    ),
    "log reply to read": ("number 1 at server a", LogReply(8, promised(ReaderState(KEPT, "a", 1)))),
    "log reply to ask log": (
        "kept from 1 on, none acknowledged, the next is 3, the time is at 2",
        LogReply(8, promised(LogState(KEPT, "a", 1, 1, 1, 3, 2))),
    ),
    "log reply to ask stretch": (
        "one record, and one that is damaged",
        LogReply(8, promised(_STRETCH)),
    ),
    "log reply to ask queues": (
        "one queue, and there are more",
        LogReply(8, promised(QueuePage([_QUEUE], "s"))),
    ),
    "log reply to peek queue": (
        "a record that one reader got, and the position of the next",
        LogReply(8, promised(PeekedEntries((LogEntry(3, AT_US, SURE, 1),), 4))),
    ),
    "log reply to redrive queue": (
        "100 records were moved, and the next step",
        LogReply(8, promised(QueueStep(100, 2, 104, 9_000, "s"))),
    ),
    "log refusal": ("nothing was done", refusal(8, DeliveryError("s is read already"))),
    **{
        f"log delivery: {name}": (meaning, LogDelivery(promised(message)))
        for name, (meaning, message) in GIVEN.items()
    },
    **{
        f"log hop: {name}": (meaning, LogHop([promised(message)]))
        for name, (meaning, message) in FERRIED.items()
    },
}

ABOUT: Final[dict[str, tuple[str, Answer | More | Cancel]]] = {
    "answer": (
        "an item of source books, which has ended",
        Answer(
            "",
            "q7",
            (Notification({"price": 4.5}, envelope=Envelope(publisher="books")),),
            (SourceReport("books", SourceState.ANSWERED, 1),),
            is_last=True,
        ),
    ),
    "answer that is a report": (
        "one source was asked, and a server could not be",
        Answer(
            "",
            "q7",
            reports=(
                SourceReport("books", SourceState.ASKED),
                SourceReport("@b3", SourceState.LOST, reason="its connection was lost"),
            ),
        ),
    ),
    "more": ("so many more items may come", More("", "q7", 256)),
    "cancel": ("nobody waits any longer", Cancel("", "q7")),
}
"""The messages about queries."""

ASKED: Final[dict[str, tuple[str, Hopping | Follow | Unfollow]]] = {
    "publish": ("notifications, in order", Publish((A, B))),
    "subscribe": ("a filter", Subscribe("1", CHEAP)),
    "subscribe to a filter set": (
        "one of two filters",
        Subscribe("1", FilterSet("a = 1 or b = 2")),
    ),
    "unsubscribe": ("the subscription ends", Unsubscribe("1")),
    "subscribe pattern": ("a pattern", SubscribePattern("2", RISE)),
    "unsubscribe pattern": ("the pattern ends", UnsubscribePattern("2")),
    "advertise": ("an advertisement", Advertise("1", Advertisement("symbol any and price any"))),
    "unadvertise": ("the advertisement ends", Unadvertise("1")),
    "describe": (
        "source books has what one of these describes",
        Describe("books", (Filter("author any"), Advertisement("kind = 'book'"))),
    ),
    "undescribe": ("it has no longer", Undescribe("books")),
    "ask": (
        "what is cheap, or from where it goes to; ten items at most",
        Ask(
            (
                Disjunct(Query("price < 100")),
                alternative(Query("kind = 'a'").sets, (("to", "via"),)),
            ),
            "",
            "q7",
            10_000_000,
            512,
            10,
        ),
    ),
    "ask for what is computed": (
        "how many, and the sum of prices, of each symbol",
        Ask(
            (Disjunct(Query("price < 100")),),
            "",
            "q8",
            10_000_000,
            0,
            combination=Combination((aggregate_of("count"), aggregate_of("sum(price)")), "symbol"),
        ),
    ),
    "follow": ("tell what is on offer", Follow()),
    "unfollow": ("tell it no longer", Unfollow()),
}
"""The messages in a Request."""

SAID: Final[dict[str, tuple[str, Hopping]]] = {
    "publish, on its way": ("over one link, from server a", Publish((QUOTE,), 1, "a")),
    "subscribe, for a home": (
        "as a server of a general network says it",
        Subscribe("1", CHEAP, "a"),
    ),
    "unsubscribe, for a home": ("the same ends", Unsubscribe("1", "a")),
    "advertise, for a home": ("a filter is offered", Advertise("1", Filter("kind = 'a'"), "a")),
    "unadvertise, for a home": ("the same ends", Unadvertise("1", "a")),
    "describe, for a home": (
        "somebody there has such data",
        Describe("1", (Filter("kind = 'a'"),), "a"),
    ),
    "undescribe, for a home": ("the same ends", Undescribe("1", "a")),
    "ask, on its way": (
        "over one link; a second is left, and 256 items may come",
        Ask((Disjunct(Query("price < 100")),), "a desk", "1", 1_000_000, 256, hops=1, source="a"),
    ),
    **{f"{name}, over a link": each for name, each in ABOUT.items()},
    "tell links": (
        "server a has a link to its peer b and to its parent c",
        AnnounceLinks(
            (LinkState("a", 4, (Adjacency("b", Role.PEER, 1), Adjacency("c", Role.PARENT, 3))),)
        ),
    ),
    "took links": ("a tell links was taken in", AckLinks()),
    "subscribe pattern, delegated": (
        "the neighbour is to assemble it",
        SubscribePattern("7", RISE, 1),
    ),
    "unsubscribe pattern, delegated": ("it is to forget it", UnsubscribePattern("7")),
    "accept pattern": ("the delegate gathers from now on", AcceptPattern("7")),
    "hand over": ("what was gathered before", HandOver("7", AT_US, (Piece(0, ("DIS",), A),))),
    "ask watermark": ("what the delegate knows of this time", AskWatermark("7", AT_US)),
    "report matches": (
        "one match; all below the watermark was told",
        ReportMatches("7", (Match("7", ("DIS",), (A, B)),), AT_US, AT_US + 1),
    ),
    "hand back": ("the delegate's tables are full", HandBack("7")),
    "recall pattern": ("the asker will assemble it itself", RecallPattern("7")),
    "return pattern": ("what the delegate has", ReturnPattern("7", AT_US, (Piece(1, None, B),))),
}
"""The messages in a Hop."""

CONTENTS: Final[dict[str, tuple[str, Encodable]]] = {
    "notification": ("two attributes, as an access point stamps it", QUOTE),
    "notification of all types": (
        "one attribute of each type of value, and one of several values",
        Notification(
            {
                "null": None,
                "truth": True,
                "integer": -(2**63),
                "large": 2**63 - 1,
                "double": 0.1,
                "infinite": -math.inf,
                "nan": math.nan,
                "text": "größe",
                "bytes": b"\xff\x00",
                "time": datetime(2026, 11, 20, 9, 30, 0, 250_000, tzinfo=UTC),
                "early": datetime(1, 1, 1, tzinfo=UTC),
                "several": [1, 2.5, "a"],
            },
            envelope=ENVELOPE,
        ),
    ),
    "notification with all of an envelope": (
        "a body of JSON, a minute to live, priority 9, a delivery class, a type mark",
        Notification.with_marks(
            {},
            ["Quote"],
            body=b"{}",
            content_type="application/json",
            envelope=Envelope("x", "p", 2, AT_US, 60_000_000, 9, "reliable"),
        ),
    ),
    **{
        f"filter: {text}": ("a filter of one constraint", Filter(text))
        for text in (
            "a = 1",
            "a != 1",
            "a < 2.5",
            "a <= 2.5",
            "a > 2.5",
            "a >= 2.5",
            "a > 9223372036854775807",
            "a in (1, 'x', true, null)",
            "a not in (1)",
            "a between 1 and 3",
            "a = nan",
            "a < @2026-11-20T09:30:00Z",
            "a = 'DIS'",
            "a < 'DIS'",
            "a prefix 'DI'",
            "a suffix 'S'",
            "a contains 'I'",
            "a = nocase 'dis'",
            "a matches /D.S/",
            "a wildcard 'D*S'",
            "a cidr '10.0.0.0/8'",
            "a any",
            "a absent",
            "a any but (1)",
            "a none of (1)",
            "@publisher = 'p'",
        )
    },
    "filter of everything": ("no constraint", Filter({})),
    "filter of two attributes": ("both must hold", Filter("a = 1 and b = 2")),
    "filter with parts that must all hold": (
        "contains both texts",
        Filter("a contains 'x' and a contains 'y'"),
    ),
    "filter with parts of which one must hold": (
        "text that contains x, or is below b, or a number",
        Filter("a (contains 'x' | < 'b' | > 1)"),
    ),
    "filter with a negated operator": ("does not contain it", Filter("a (~contains 'x')")),
    "filter set": ("one of two filters", FilterSet("a = 1 or b = 2")),
    "advertisement": ("these attributes and no others", Advertisement("symbol any and price > 0")),
    "pattern": ("an a, then a b, of one symbol, within a minute", RISE),
}


def _frame(kind: int, payload: bytes) -> bytes:
    return b"ct\x02" + bytes([kind]) + len(payload).to_bytes(4, "big") + payload


_array: Final = msgspec.msgpack.encode

FAULTY_FRAMES: Final[dict[str, tuple[str, bytes]]] = {
    "another protocol": ("HTTP", b"GET / HTTP/1.1\r\n\r\n"),
    "another version": ("version 1", b"ct\x01\x04\x00\x00\x00\x02\x91\x07"),
    "an unknown kind": ("kind 255", _frame(255, b"\x90")),
    "too long": ("its header says 16 MiB and a byte", b"ct\x02\x04\x01\x00\x00\x01"),
    "no array": ("a Ping that is nil", _frame(4, b"\xc0")),
    "a field too few": ("a Ping without a token", _frame(4, b"\x90")),
    "a field of another type": ("a Ping whose token is text", _frame(4, b"\x91\xa1x")),
}
"""Bytes that end a connection, by the code of its Failure."""

FAULTY_MESSAGES: Final[dict[str, tuple[str, list[Any]]]] = {
    "an unknown message": ("a later one", ["dance", "1"]),
    "a field missing": ("whose subscription ends?", ["unsubscribe"]),
    "filters as text": ("a string, where bytes are due", ["subscribe", "1", "price < 100"]),
    "a notification for a filter": ("of the wrong kind", ["advertise", "1", to_msgpack(QUOTE)]),
}
"""Messages in a Request that are refused, by the code of the Reply."""

_SETS: Final = [1, "filter"]
FAULTY_CONTENTS: Final[dict[str, tuple[str, Any]]] = {
    "another version of content": ("version 2", [2, "filter", {}]),
    "an unknown kind of content": ("no such thing", [1, "wish", {}]),
    "a map as a value": ("an attribute is no map", [1, "notification", [{"a": {}}, [], b"", ""]]),
    "an integer beyond 63 bits": ("2 to the 63", [1, "notification", [{"a": 2**63}, [], b"", ""]]),
    "a priority of 10": (
        "0 to 9",
        [1, "notification", [{}, ["1", "p", 1, AT_US, None, 10, "best-effort"], b"", ""]],
    ),
    "an attribute of the system": (
        "@id is no attribute",
        [1, "notification", [{"@id": 1}, [], b"", ""]],
    ),
    "cuts out of order": ("3, then 1", [*_SETS, {"a": [[[4, 3], [4, 1]], None]}]),
    "a cut with the first of a domain": (
        "[2, false] is [2]",
        [*_SETS, {"a": [[[2, False]], None]}],
    ),
    "a cut of an unknown domain": ("domain 7", [*_SETS, {"a": [[[7]], None]}]),
    "a cut of another type": ("a str, where text is bytes", [*_SETS, {"a": [[[6, "x"]], None]}]),
    "an unknown part": (
        "neither is, not, pieces, every nor some",
        [*_SETS, {"a": [[], ["xor", []]]}],
    ),
}
"""Contents that are refused."""


def shown(of: Any) -> Any:
    """Returns msgpack as JSON."""
    match of:
        case bytes():
            return {"bytes": of.hex()}
        case datetime():
            return {"time": of.isoformat()}
        case float() if not math.isfinite(of):
            return {"number": str(of)}
        case dict():
            return {name: shown(each) for name, each in of.items()}
        case list() | tuple():
            return [*map(shown, of)]
    return of


def of_frame(data: bytes) -> list[Any]:
    """A frame: its kind, then its fields."""
    return [data[3], *msgspec.msgpack.decode(data[HEADER_BYTES:])]


def refusal_of_frame(data: bytes) -> str:
    """The code of the Failure that bytes get."""
    reader = FrameReader()
    reader.feed(data)
    try:
        reader.next()
    except FrameError as error:
        return error.code
    raise AssertionError("it is not refused")


def refusal_of_message(data: bytes) -> str:
    """The code of the Reply that a message in a Request gets."""
    try:
        decode_request(msgspec.Raw(data))
    except FrameError as error:
        return error.code
    except ContradaError as error:
        return type(error).__name__
    raise AssertionError("it is not refused")


def refusal_of_content(data: bytes) -> str:
    """The name of the error that content gets."""
    try:
        from_msgpack(data)
    except ContradaError as error:
        return type(error).__name__
    raise AssertionError("it is not refused")


def _good(group: str, name: str, meaning: str, data: bytes) -> dict[str, Any]:
    decoded = of_frame(data) if group == "frame" else msgspec.msgpack.decode(data)
    return {
        "group": group,
        "name": name,
        "meaning": meaning,
        "hex": data.hex(),
        "decodes to": shown(decoded),
    }


def _bad(group: str, name: str, meaning: str, data: bytes, code: str) -> dict[str, Any]:
    return {"group": group, "name": name, "meaning": meaning, "hex": data.hex(), "refused": code}


def vectors() -> Iterator[dict[str, Any]]:
    """All of them, in order."""
    for name, (meaning, frame) in FRAMES.items():
        yield _good("frame", name, meaning, encode(frame))
    for group, messages in (("message to a broker", ASKED), ("message between brokers", SAID)):
        for name, (meaning, message) in messages.items():
            yield _good(group, name, meaning, bytes(encode_message(message)))
    for name, (meaning, content) in CONTENTS.items():
        yield _good("content", name, meaning, bytes(to_msgpack(content)))
    for name, (meaning, data) in FAULTY_FRAMES.items():
        yield _bad("frame", name, meaning, data, refusal_of_frame(data))
    for name, (meaning, fields) in FAULTY_MESSAGES.items():
        data = _array(fields)
        yield _bad("message to a broker", name, meaning, data, refusal_of_message(data))
    for name, (meaning, whole) in FAULTY_CONTENTS.items():
        data = _array(whole)
        yield _bad("content", name, meaning, data, refusal_of_content(data))


def written() -> str:
    """The file: one vector a line."""
    lines = (json.dumps(each, ensure_ascii=False) for each in vectors())
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    PLACE.write_text(written(), "utf-8")
