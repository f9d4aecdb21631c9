"""The bytes of the wire protocol, as other languages are told them."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from contrada.errors import FrameError
from contrada.model.encoding import from_msgpack, to_msgpack
from contrada.net.frames import (
    Frame,
    FrameReader,
    PackedSubscribe,
    encode,
    packed,
    unpacked,
    unpacked_hop,
)
from contrada.routing.delegation import Saying
from contrada.routing.messages import Ask
from tests.net import vectors
from tests.net.requests import frames_in

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


def test_vectors_are_told_apart_by_name() -> None:
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
    """What another language asks for would be something else."""
    message = unpacked(msgspec.Raw(data := bytes.fromhex(vector["hex"])))
    whole = message.part(message.members()) if isinstance(message, PackedSubscribe) else message
    assert bytes(packed(whole)) == data


@of("message between brokers")
def test_messages_between_brokers_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """What a broker in another language says would be something else."""
    message = unpacked_hop(msgspec.Raw(data := bytes.fromhex(vector["hex"])))
    assert bytes(packed(message)) == data


@of("content")
def test_contents_are_read_and_written_again(vector: dict[str, Any]) -> None:
    """A notification or filter of another language would match something else."""
    content = from_msgpack(bytes.fromhex(vector["hex"]))
    assert content == vectors.CONTENTS[vector["name"]][1]
    assert bytes(to_msgpack(content)).hex() == vector["hex"]


@of("frame", BAD)
def test_faulty_frames_end_with_their_code(vector: dict[str, Any]) -> None:
    """Another language would be told another fault than the page says."""
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
    """What no broker may take would be taken."""
    assert vectors.refusal_of_content(bytes.fromhex(vector["hex"])) == vector["refused"]


def kinds() -> dict[str, int]:
    """The frame kinds of the code, each with its number."""
    return {
        each.__name__: encode(frame)[3]
        for each in Frame.__subclasses__()
        for _, frame in vectors.FRAMES.values()
        if type(frame) is each
    }


def tags() -> set[str]:
    """The tags of all messages that travel in frames."""
    said = {each.__struct_config__.tag for each in Saying.__subclasses__()}
    return {str(tag) for tag in said - {Ask.__struct_config__.tag}}  # Routers in one process ask.


def test_every_kind_of_frame_and_message_has_a_vector() -> None:
    """A later kind would be told to nobody."""
    assert {each.__name__ for each in Frame.__subclasses__()} == kinds().keys()
    messages = [*vectors.ASKED.values(), *vectors.SAID.values()]
    assert {message.__struct_config__.tag for _, message in messages} == tags()
