"""The load of `bench.http_peers`, at the real servers that are installed."""

import socket
from collections.abc import Iterator

import pytest

from bench.http_peers import (
    CONNECTIONS,
    MARK,
    SERVERS,
    ContradaHttp,
    EventStream,
    HttpServer,
    Nchan,
    loaded,
    read_answer,
)
from bench.http_sender import event


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.name)
def test_each_event_is_read_once(server: HttpServer) -> None:
    """A server that drops or repeats events would look fast, or a run would never end."""
    if not server.is_installed():
        pytest.skip(f"{server.name} is not installed")
    with loaded(server) as load:
        for batch in (1, 10) if server.has_batches else (1,):
            run = load.run(2 * batch * CONNECTIONS, batch)
            assert run.per_second > 0
            assert run.server_s > 0
    assert load.read == load.sent == (22 if server.has_batches else 2) * CONNECTIONS


def test_a_mark_between_two_reads_is_counted(pair: tuple[socket.socket, socket.socket]) -> None:
    """An event of which the subscriber gets a part would be missed, and the run hang."""
    sender, reader = pair
    stream = EventStream(reader)
    for each in (b'data: {"id": ' + MARK[:3], MARK[3:] + b'1"}\n\ndata: ' + MARK, b'2"}\n\n'):
        sender.sendall(each)
        stream.read()
    assert stream.count == 2


def test_a_body_has_its_mark_once() -> None:
    """A run would count one event twice, and end before all are read."""
    for server in SERVERS:
        assert server.request(3, 1).count(MARK) == 1
    assert ContradaHttp().request(3, 100).count(MARK) == 100


def test_an_answer_is_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    """The rest of an answer would be read as the next one."""
    server, client = pair
    server.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\n\r\ndone")
    assert read_answer(client) == b"done"


def test_a_refusal_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    """Refused events would count as published, and their reader wait for them."""
    server, client = pair
    server.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad")
    with pytest.raises(ConnectionError, match="bad"):
        read_answer(client)


def test_nchan_takes_one_event_in_a_request() -> None:
    """A batch would be published as one event."""
    with pytest.raises(ValueError, match="too many values"):
        Nchan().body([event(1), event(2)])
