"""The protocol as a state machine, without sockets and clocks."""

import pytest

from contrada.errors import FrameError
from contrada.net.wire.connection import BROKER, CLIENT, USUAL_LIVENESS, Connection
from contrada.net.wire.frames import (
    Failure,
    Frame,
    FrameReader,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Reply,
    encode,
)
from tests.net.requests import delivery, frames_in, subscribe


def broker_link() -> Connection:
    return Connection(Hello(BROKER), (CLIENT,), 0.0)


def heard(link: Connection, data: bytes, now_s: float = 0.0) -> list[Frame]:
    link.receive(data, now_s)
    return frames_in(link)


def sent(link: Connection) -> bytes:
    data = b"".join(link.outgoing)
    link.outgoing.clear()
    return data


def open_pair() -> tuple[Connection, Connection]:
    client, broker = Connection(Hello(CLIENT), (BROKER,), 0.0), broker_link()
    client.greet()
    assert heard(broker, sent(client)) == [Hello(CLIENT)]
    assert heard(client, sent(broker)) == [Hello(BROKER)]
    return client, broker


def said(link: Connection) -> list[Frame]:
    reader = FrameReader()
    reader.feed(sent(link))
    return frames_in(reader)


def test_both_sides_exchange_hello_and_are_open() -> None:
    """Nobody could connect, or capabilities would be unknown."""
    client, broker = open_pair()
    assert (client.peer, broker.peer) == (Hello(BROKER), Hello(CLIENT))
    assert sent(client) == sent(broker) == b""


def test_pings_are_answered_by_the_link() -> None:
    """A quiet peer would be ended as dead."""
    client, broker = open_pair()
    client.send(Ping(7))
    assert heard(broker, sent(client), 1.0) == [Ping(7)]
    assert heard(client, sent(broker), 1.0) == [Pong(7)]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Ping(1)], "no hello"),
        ([Hello(BROKER)], "role"),
        ([Hello(CLIENT), Hello(CLIENT)], "unexpected"),
        ([Hello(CLIENT), delivery(1, 0, [])], "unexpected"),
        ([Hello(CLIENT), Reply(1)], "unexpected"),
    ],
)
def test_a_breach_of_the_protocol_is_answered_and_closed(frames: list[Frame], code: str) -> None:
    """A broken peer would continue, or not know the reason of its end."""
    broker = broker_link()
    with pytest.raises(FrameError) as caught:
        heard(broker, b"".join(map(encode, frames)))
    assert caught.value.code == code
    assert broker.is_closed
    last = said(broker)[-1]
    assert isinstance(last, Failure)
    assert last.code == code
    assert heard(broker, encode(Ping(1))) == []


def test_after_goodbye_nothing_is_sent_or_received() -> None:
    """Frames behind a Goodbye would be carried out."""
    client, broker = open_pair()
    client.close("done")
    client.send(Ping(1))
    data = sent(client) + encode(subscribe(1, 1, b"", 1))
    assert heard(broker, data) == [Goodbye("done")]
    assert broker.is_closed


def test_a_silent_connection_is_probed_once_and_then_lost() -> None:
    """Dead connections would stay for ever, or quiet ones be closed."""
    client, broker = open_pair()
    broker.tick(USUAL_LIVENESS.ping_after_s - 1)
    assert sent(broker) == b""
    broker.tick(USUAL_LIVENESS.ping_after_s)
    broker.tick(USUAL_LIVENESS.ping_after_s + 1)
    assert said(broker) == [Ping(0)]
    client.send(Ping(1))
    heard(broker, sent(client), 50.0)
    broker.tick(50.0 + USUAL_LIVENESS.ping_after_s - 1)
    with pytest.raises(FrameError, match="nothing heard"):
        broker.tick(50.0 + USUAL_LIVENESS.silent_s_max)


def test_a_connection_without_hello_is_lost() -> None:
    """Silent connections would fill the broker."""
    broker = broker_link()
    broker.tick(USUAL_LIVENESS.hello_wait_s - 1)
    with pytest.raises(FrameError, match="no hello"):
        broker.tick(USUAL_LIVENESS.hello_wait_s)
