"""A real browser's EventSource as a client."""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from contrada.integrations.http import GatewayLimits
from tests.asynchronous import on_loop, until
from tests.integrations.http import browser
from tests.integrations.http.conftest import serving

HAS_BROWSER = find_spec("PyQt6") is not None and find_spec("PyQt6.QtWebEngineCore") is not None


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BROWSER, reason="needs PyQt6-WebEngine, which has the browser")
@on_loop
async def test_a_page_resumes_a_durable_stream_after_a_broken_connection(tmp_path: Path) -> None:
    """A page would receive no events, or miss those published while its connection was broken."""
    async with serving(
        tmp_path / "events.db", durable=True, limits=GatewayLimits(stream_retry_ms=50)
    ) as it:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            browser.__file__,
            it.gateway.address,
            "/subscribe?filter=n%20%3E%3D%200&durable=desk",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None

        async def told(name: str) -> Any:
            assert process.stdout is not None
            while line := await process.stdout.readline():
                found = json.loads(line)
                if found["name"] == name:
                    return found
            raise EOFError

        try:
            await told("open")
            await it.service.publish_batch({"n": n} for n in range(5))
            found = [await told("message") for _ in range(5)]
            (access,) = it.gateway._accesses._opened.values()
            (stream,) = access.streams
            stream.cut()
            await until(lambda: it.gateway.counts.streams == 0)
            await it.service.publish_batch({"n": n} for n in range(5, 9))
            found += [await told("message") for _ in range(4)]
            assert [json.loads(each["data"])["data"]["n"] for each in found] == [*range(9)]
            assert [each["id"] for each in found] == [str(n) for n in range(1, 10)]
        finally:
            process.kill()
            await process.wait()
