"""The unread bytes of a broker's connections: counted while they are held, and freed at the end."""

from typing import Any

import pytest

from contrada.model import Notification
from contrada.model.codec import to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.wire.frames import HELLO_BYTES_MAX, Hello, encode
from tests.asynchronous import on_loop, until
from tests.net.requests import publish
from tests.net.test_broker import RawClient


@pytest.mark.parametrize("hello", [(), (Hello("client"),)], ids=["stranger", "client"])
@on_loop
async def test_half_a_frame_is_counted_and_freed_with_its_connection(hello: Any) -> None:
    """Clients that leave in the middle of frames would fill the memory, uncounted."""
    rest = b"x" * (HELLO_BYTES_MAX // 2 if not hello else 2**20)
    half = encode(publish(1, 0, [rest]) if hello else Hello("client", rest.decode()))[:-1]
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, *hello)
        client.write(half)
        await until(lambda: broker.statistics().held_bytes == len(half))
        (its_end,) = broker._connections
        await client.leave()
        await until(lambda: not broker._connections)
        assert broker.statistics().held_bytes == 0
        assert len(its_end._connection.reader) == 0, "though the connection is still referred to"


@on_loop
async def test_frames_that_wait_for_their_turn_are_handled_after_the_end() -> None:
    """A client that publishes and leaves at once would lose its last publications."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"))
        await client.hears()
        (its_end,) = broker._connections
        its_end._turn_due = True  # As if others were served first.
        asked = [publish(n, 0, [to_msgpack(Notification({"a": n}))]) for n in range(3)]
        sent = b"".join(map(encode, asked))[:-1]
        client.write(sent)
        await until(lambda: its_end._unread_bytes == len(sent))
        its_end.abort()  # As where its transport fails.
        await until(lambda: not broker._connections)
        assert broker.statistics().held_bytes == its_end._unread_bytes > 0
        await its_end._resume_later(0.0)
        assert broker.statistics().published == 2
        assert broker.statistics().held_bytes == len(its_end._connection.reader) == 0
        await client.leave()
