"""What only NATS and JetStream have: subjects, headers, permissions, streams and duplicates."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats")

from nats.js.errors import BadRequestError

from contrada.errors import ConnectionFailedError, InvalidValueError, NoPlaceError
from contrada.integrations.bridges.bridge_peer import BridgeLimits, PeerSettings
from contrada.integrations.bridges.nats_peer import (
    NATS_ADDRESS,
    JetStreamPeer,
    NatsPeer,
    check_subject,
    headers_of,
)
from contrada.integrations.bridges.record_translation import PeerRecord
from tests.asynchronous import on_loop, until
from tests.integrations.bridges.systems import IN, OUT, JetStream, Nats, needs
from tests.integrations.bridges.test_bridge import running, some

BOTH = pytest.mark.parametrize("kind", [needs(Nats), needs(JetStream)])


@pytest.mark.parametrize("subject", ["", "a b", "a.*", "a.>", ".a", "a..b", "a\n"])
def test_malformed_subjects_are_refused(subject: str) -> None:
    """The server would end the connection, or publish to a subject that nobody meant."""
    with pytest.raises(InvalidValueError, match="no subject"):
        check_subject(subject)
    check_subject("a.b-c.$d")


@pytest.mark.parametrize(
    "headers",
    [(("a", "x\ny"),), (("a:b", "x"),), (("a(b)", "x"),), (("ä", "x"),), (("a", "x"), ("a", "y"))],
)
def test_headers_that_nats_cannot_hold_are_refused(headers: tuple[tuple[str, str], ...]) -> None:
    """A value could add headers of its own, or one of two would be lost."""
    with pytest.raises(InvalidValueError, match="one line for each header"):
        headers_of(PeerRecord(topic="t", headers=headers))
    assert headers_of(PeerRecord(topic="t", content_type="x/y", headers=(("a", 1),))) == {
        "Content-Type": "x/y",
        "a": "1",
    }


@pytest.mark.parametrize("answers", [1, 2])
@on_loop
async def test_the_opening_has_its_own_time(answers: int) -> None:
    """After a slow record a bridge would wait ten minutes for a server that answers no more; or a
    time below a second would be taken for none.
    """
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = answers
        writer.write(b'INFO {"server_id":"a","version":"2.0","max_payload":9}\r\n')
        while line := await reader.readline():
            if line == b"PING\r\n" and left:
                writer.write(b"PONG\r\n")
                left -= 1
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = NATS_ADDRESS.parse(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    peer = NatsPeer(PeerSettings(place, "b", limits=BridgeLimits(bridge_wait_s=0.5)))
    peer.patience = 100.0
    if answers == 2:  # To the handshake and to the flush.
        await peer.open()
    else:
        with pytest.raises(ConnectionFailedError, match=r"no answer within 0\.5 s"):
            await peer.open()
    await peer.aclose()
    await ended.wait()
    server.close()
    await server.wait_closed()


@BOTH
@pytest.mark.slow
@on_loop
async def test_refused_messages_do_not_block_others(kind: type[Nats], tmp_path: Path) -> None:
    """One forbidden subject, or one large message, would end the connection again and again; or
    would count as sent, and so be lost.
    """
    async with running(kind, tmp_path) as system:
        peer = system.peer(PeerSettings(system.form.parse(system.address), "b"))
        await peer.open()
        topics = ['Forbidden.\\Ä"a', OUT, "a b", "nowhere", OUT]
        records = [PeerRecord(topic=each, payload=b"x") for each in topics]
        answers = await peer.send(
            [
                *records,
                PeerRecord(topic=OUT, payload=b"x" * 300_000),
                PeerRecord(topic=OUT, payload=b"x" * 199_983, headers=(("a", "b"),)),
                PeerRecord(topic=OUT, payload=b"x" * 199_982, headers=(("a", "b"),)),
                PeerRecord(topic=OUT, payload=b"x", facts={"reply": "a b"}),
                PeerRecord(topic="Forbidden.\u200b", payload=b"x"),
            ]
        )
        large = "takes 200000 bytes"
        reasons = ["permits no publication", "", "no subject", "no stream", "", large, large, ""]
        if kind is Nats:
            reasons[3] = ""  # A subject without a subscriber is no fault.
        reasons.append("no subject" if kind is Nats else "")  # A stream takes no replies.
        reasons.append("permits no publication")
        for answer, reason in zip(answers, reasons, strict=True):
            assert (answer is None) == (not reason)
            assert reason in str(answer)
        assert isinstance(answers[0], NoPlaceError)
        assert isinstance(answers[3], NoPlaceError) == (kind is JetStream)
        assert not isinstance(answers[5], NoPlaceError)
        assert len(await some(system, 3 if kind is Nats else 4)) == (3 if kind is Nats else 4)
        await peer.aclose()


@pytest.mark.parametrize(("code", "waits"), [(10054, False), (10097, False), (10002, True)])
@on_loop
async def test_a_message_waits_for_room(code: int, *, waits: bool) -> None:
    """An account without room would lose all messages, as if each were refused for itself."""
    peer = JetStreamPeer(PeerSettings(NATS_ADDRESS.parse("nats://h"), "b"))
    loop = asyncio.get_running_loop()
    peer._lost, confirmation = loop.create_future(), loop.create_future()
    confirmation.set_exception(BadRequestError(code=400, err_code=code, description="full"))
    refusal = await peer._refused("orders", confirmation)
    assert isinstance(refusal, NoPlaceError) == waits
    assert str(refusal) == "JetStream refuses it: full"


class _Consumer:
    """A consumer with messages in one batch."""

    def __init__(self, messages: list[object]) -> None:
        self._messages = messages

    async def fetch(self, _: int, timeout: float) -> list[object]:
        """Returns them."""
        return self._messages


@on_loop
async def test_fetched_messages_without_room_are_held() -> None:
    """JetStream would repeat them each five seconds, as often as the queue is full."""
    limits = BridgeLimits(bridge_queued_max=1)
    peer = JetStreamPeer(PeerSettings(NATS_ADDRESS.parse("nats://h"), "b", limits=limits))
    messages: list[Any] = [object(), object(), object()]
    peer._queue, peer._held = asyncio.Queue(1), {}
    consumer: Any = _Consumer(messages)
    task = asyncio.create_task(peer._fetch(consumer))
    await until(peer._queue.full)
    assert [*peer._held.values()] == messages
    task.cancel()


@pytest.mark.parametrize("kind", [needs(JetStream)])
@pytest.mark.slow
@on_loop
async def test_a_repeated_message_is_dropped_by_its_stream(
    kind: type[JetStream], tmp_path: Path
) -> None:
    """A message whose confirmation was lost would be there twice."""
    async with running(kind, tmp_path) as system:
        peer = system.peer(PeerSettings(system.form.parse(system.address), "b"))
        await peer.open()
        record = PeerRecord(topic=OUT, payload=b"x", headers=(("contrada.id", "1"),))
        assert [*await peer.send([record]), *await peer.send([record])] == [None, None]
        assert len(await system.seen()) == 1
        await peer.aclose()


@pytest.mark.parametrize("kind", [needs(JetStream)])
@pytest.mark.slow
@on_loop
async def test_a_subject_without_a_stream_is_reported(
    kind: type[JetStream], tmp_path: Path
) -> None:
    """A person would wait for messages that never come."""
    async with running(kind, tmp_path) as system:
        place = system.form.parse(system.address)
        peer = system.peer(PeerSettings(place, "b", ["nowhere"]))
        with pytest.raises(ConnectionFailedError, match="no stream of JetStream has the subject"):
            await peer.open()
        await peer.aclose()
        peer = system.peer(PeerSettings(place, "b", [IN]))
        await peer.open()
        await peer.aclose()
