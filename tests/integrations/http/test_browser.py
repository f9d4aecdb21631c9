"""A real browser's EventSource as a client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contrada.integrations.http import GatewayLimits
from tests.asynchronous import on_loop, until
from tests.browsers import needs_browser, page_of
from tests.integrations.http.conftest import serving

READ = """path => {
  const source = new EventSource(path);
  const report = (name, message) => reported(name, message.lastEventId || "", message.data || "");
  source.onopen = message => report("open", message);
  source.onmessage = message => report("message", message);
}"""


@pytest.mark.slow
@needs_browser
@on_loop
async def test_a_page_resumes_a_durable_stream_after_a_broken_connection(tmp_path: Path) -> None:
    """A page would receive no events, or miss those published while its connection was broken."""
    found = asyncio.Queue[tuple[str, str, str]]()
    limits = GatewayLimits(stream_retry_ms=50)
    async with (
        serving(tmp_path / "events.db", durable=True, limits=limits) as it,
        page_of(f"{it.gateway.address}/console/", expected="ERR_INCOMPLETE_CHUNKED") as page,
    ):

        async def next_one(name: str) -> tuple[str, Any]:
            while True:
                kind, position, data = await found.get()
                if kind == name:
                    return position, json.loads(data or "null")

        await page.expose_function("reported", lambda *said: found.put_nowait(said))
        await page.evaluate(READ, "/subscribe?filter=n%20%3E%3D%200&durable=desk")
        await next_one("open")
        await it.service.publish_batch({"n": n} for n in range(5))
        read = [await next_one("message") for _ in range(5)]
        (access,) = it.gateway._accesses._opened.values()
        (stream,) = access.streams
        stream.cut()
        await until(lambda: it.gateway.counts.streams == 0)
        await it.service.publish_batch({"n": n} for n in range(5, 9))
        read += [await next_one("message") for _ in range(4)]
        assert [data["data"]["n"] for _, data in read] == [*range(9)]
        assert [position for position, _ in read] == [str(n) for n in range(1, 10)]
