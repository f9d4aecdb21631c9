"""The bytes of the wire protocol, as documented for other languages."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest

from contrada.delivery.delivery_messages import Closed, DeliveryMessage, Payload, Records
from contrada.errors import FrameError
from contrada.model.codec import from_msgpack, to_msgpack
from contrada.net.broker.neighbours import Membership
from contrada.net.wire.connection import _ALLOWED, CLIENT
from contrada.net.wire.durable_messages import LogRequested
from contrada.net.wire.frames import FewPublished, Frame, FrameReader, Hello, encode
from contrada.net.wire.message_codec import (
    ClientRequest,
    Hopping,
    PackedSubscribe,
    decode_hop,
    encode_message,
)
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Unsubscribe
from contrada.service.subscription_queue import ENTRY_BYTES
from tests.limits import limits
from tests.net import vectors
from tests.net.requests import decode_request, frames_in

VECTORS: list[dict[str, Any]] = json.loads(vectors.PLACE.read_text("utf-8"))
GOOD = [each for each in VECTORS if "refused" not in each]
BAD = [each for each in VECTORS if "refused" in each]


def of(group: str, among: list[dict[str, Any]] = GOOD) -> pytest.MarkDecorator:
    """A test for each vector of a group."""
    chosen = [each for each in among if each["group"] == group]
    assert chosen, f"there are some of {group}"
    return pytest.mark.parametrize("vector", chosen, ids=[each["name"] for each in chosen])


def test_the_vectors_are_what_the_code_writes() -> None:
    """Another language would be held to bytes that no broker sends."""
    assert vectors.PLACE.read_text("utf-8") == vectors.written(), "python -m tests.net.vectors"


def test_vectors_have_different_names() -> None:
    """A failure in another language could not be looked up."""
    names = Counter((each["group"], each["name"]) for each in VECTORS)
    assert {name for name, count in names.items() if count > 1} == set()


@of("frame")
def test_frames_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """A frame of another language would be read as something else."""
    reader = FrameReader()
    reader.feed(data := bytes.fromhex(vector["hex"]))
    (frame,) = frames_in(reader)
    assert frame == vectors.FRAMES[vector["name"]][1]
    assert encode(frame) == data


@of("message to a broker")
def test_messages_to_a_broker_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """A request of another language would be decoded as another one."""
    message = decode_request(msgspec.Raw(data := bytes.fromhex(vector["hex"])))
    whole = message.part(message.members()) if isinstance(message, PackedSubscribe) else message
    assert bytes(encode_message(whole)) == data


@of("message between brokers")
def test_messages_between_brokers_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """A message of a broker in another language would be decoded as another one."""
    message = decode_hop(msgspec.Raw(data := bytes.fromhex(vector["hex"])))
    assert bytes(encode_message(message)) == data


@of("content")
def test_contents_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """A notification or filter of another language would match something else."""
    content = from_msgpack(bytes.fromhex(vector["hex"]))
    assert content == vectors.CONTENTS[vector["name"]][1]
    assert bytes(to_msgpack(content)).hex() == vector["hex"]


@of("frame", BAD)
def test_faulty_frames_end_with_their_code(vector: dict[str, Any]) -> None:
    """Another language would get another code than on the page."""
    reader = FrameReader()
    reader.feed(bytes.fromhex(vector["hex"]))
    with pytest.raises(FrameError) as caught:
        frames_in(reader)
    assert caught.value.code == vector["refused"]


@of("message to a broker", BAD)
def test_faulty_messages_are_refused_by_their_code(vector: dict[str, Any]) -> None:
    """A request would be carried out, or end the connection."""
    assert vectors.refusal_of_message(bytes.fromhex(vector["hex"])) == vector["refused"]


@of("content", BAD)
def test_faulty_contents_are_refused(vector: dict[str, Any]) -> None:
    """A broker would accept invalid content."""
    assert vectors.refusal_of_content(bytes.fromhex(vector["hex"])) == vector["refused"]


KINDS: Final = [each for each in Frame.__subclasses__() if each is not FewPublished]
"""The classes of frames that are sent."""


def kinds() -> dict[str, int]:
    """The frame kinds of the code, each with its number."""
    return {
        each.__name__: encode(frame)[3]
        for each in KINDS
        for _, frame in vectors.FRAMES.values()
        if type(frame) is each
    }


def tags() -> set[str]:
    """The tags of all messages that travel in frames."""
    return {each.__struct_config__.tag for each in (*get_args(ClientRequest), *get_args(Hopping))}


def test_every_kind_of_frame_and_message_has_a_vector() -> None:
    """A later kind would be undocumented."""
    assert {each.__name__ for each in KINDS} == kinds().keys()
    messages = [*vectors.ASKED.values(), *vectors.SAID.values()]
    assert {message.__struct_config__.tag for _, message in messages} == tags()


# --- the page ---------------------------------------------------------------------------------


REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "protocol.md").read_text("utf-8")
NET = REPOSITORY / "src" / "contrada" / "net"
FIELD = re.compile(r"`(\w+)` ")


def rows(heads: Iterable[str]) -> dict[str, list[str]]:
    """Returns the first rows of the page's tables by their first cell."""
    cells = ([each.strip() for each in line.split("|")[1:-1]] for line in PAGE.splitlines())
    return {row[0]: row for row in reversed([*cells]) if row and row[0] in heads}


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_the_page_tells_of_each_kind_of_frame(kind: type[Frame]) -> None:
    """A reader in another language would miss it, or one of its fields."""
    number = str(kinds()[kind.__name__])
    _, name, who, fields, _ = rows([number])[number]
    assert name == kind.__name__
    assert tuple(FIELD.findall(fields)) == kind.__struct_fields__
    mine = {
        "C" if sender is CLIENT else "B" if to is CLIENT else "N"
        for (sender, to), allowed in _ALLOWED.items()
        if kind in allowed
    }
    assert set(who.replace("all", "CBN")) == (mine or set("CBN")), "who sends it"


def test_the_page_tells_of_each_message() -> None:
    """A reader in another language would miss it, or one of its fields."""
    for _, message in [*vectors.ASKED.values(), *vectors.SAID.values()]:
        tag = str(message.__struct_config__.tag)
        _, fields, by_client, _ = rows([tag])[tag]
        assert tuple(FIELD.findall(fields)) == message.__struct_fields__
        is_asked = any(type(each) is type(message) for _, each in vectors.ASKED.values())
        assert by_client == ("yes" if is_asked else "no")


def test_the_page_describes_each_durable_message() -> None:
    """A reader in another language could not send durable requests."""
    section = PAGE.partition("\n## Reliable delivery\n")[2].partition("\n## ")[0]
    found = {row[0]: FIELD.findall(row[1]) for row in map(_cells, section.splitlines()) if row[1:]}
    for each in (
        *get_args(LogRequested),
        *get_args(DeliveryMessage),
        Records,
        Closed,
        *get_args(Payload),
    ):
        assert tuple(found[each.__struct_config__.tag]) == each.__struct_fields__
    groups = (
        (vectors.PROMISES, get_args(LogRequested)),
        (vectors.FERRIED, get_args(DeliveryMessage)),
    )
    for told, kinds in groups:
        assert {type(message) for _, message in told.values()} == {*kinds}


def _cells(line: str) -> list[str]:
    return [each.strip() for each in line.split("|")[1:-1]]


def test_the_example_of_the_page_is_of_vectors() -> None:
    """A reader of the example would send other bytes than brokers accept."""
    hexes = re.findall(r"^    ([0-9a-f]{20,})$", PAGE, re.MULTILINE)
    assert len(hexes) == PAGE.count("\nC: ") + PAGE.count("\nB: ")
    assert set(hexes) <= {each["hex"] for each in GOOD if each["group"] == "frame"}


def test_the_page_names_limits_that_there_are() -> None:
    """A reader would look for a limit that has another name by now."""
    named = set(re.findall(r"`([a-z_.]+:[A-Z_]+)`", PAGE))
    listed = {each.place for each in limits() if not each.owner}
    settable = {each.name for each in limits() if each.owner}
    fields = set(re.findall(r"`([a-z_]+_(?:bytes|(?:bytes_|s_)?max|(?:wait|after)_s))`", PAGE))
    assert (
        fields
        - {"frame_bytes_max", "records_max", "bytes_max", "replay_max", "attempts_max"}
        - {"backoff_s_max", "hops_max"}
        <= settable
    )
    assert named
    assert named <= listed
    words = set(re.findall(r"\b[A-Z]+_(?:[A-Z]+_)*(?:MAX|S|BYTES)\b", PAGE))
    assert words - {"ENTRY_BYTES"} <= {each.partition(":")[2] for each in listed}
    assert f"ENTRY_BYTES ({ENTRY_BYTES})" in PAGE


def test_the_page_names_all_statistics_of_brokers() -> None:
    """A broker in another language would be refused for a missing capability."""
    _, hello = vectors.FRAMES["hello of a neighbour"]
    assert isinstance(hello, Hello)
    asked = {*Membership("a").shared_options(), "as", "cost"}
    assert asked <= hello.capabilities.keys()
    assert {*hello.capabilities, *map(str, Strategy)} <= set(re.findall(r"`([a-z_ ]+)`", PAGE))


def test_the_page_names_each_code_of_a_fault() -> None:
    """A program in another language could not tell the reason."""
    source = "".join(path.read_text("utf-8") for path in NET.rglob("*.py"))
    codes = set(re.findall(r"FrameError\(\s*\"([a-z ]+)\"", source))
    assert codes
    assert codes <= set(re.findall(r"`([a-z ]+)`", PAGE))


def test_later_versions_may_append_fields_to_messages() -> None:
    """A field added later would need a new version of the messages."""
    later = msgspec.msgpack.encode(["unsubscribe", "1", "", 1, "later"])
    assert decode_request(msgspec.Raw(later)) == Unsubscribe("1")
