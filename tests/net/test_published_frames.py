"""A batch is published by frames, of which the broker may refuse notifications."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from contrada.model import Envelope, Notification
from contrada.net.client.published_frames import publish_frames
from tests.asynchronous import on_loop


@on_loop
async def test_a_frame_at_best_effort_has_many_publishers() -> None:
    """A bridge, or a request, with notifications of many publishers would wait for as many answers
    of the broker.
    """
    frames = list[list[str]]()

    async def publish_batch(frame: Sequence[Notification]) -> int:
        frames.append([each.envelope.publisher for each in frame])
        return len(frame)

    service: Any = SimpleNamespace(publish_batch=publish_batch)
    of = [("best-effort", each) for each in "ppqp"] + [("certified", each) for each in "ppq"]
    given = [
        Notification({"n": n}, envelope=Envelope(f"{n}", publisher, n, delivery=delivery))
        for n, (delivery, publisher) in enumerate(of, 1)
    ]
    assert [done async for done in publish_frames(service, given)] == [(4, {}), (2, {}), (1, {})]
    assert frames == [["p", "p", "q", "p"], ["p", "p"], ["q"]]
