"""The console beside a broker process that is killed and started again."""

from pathlib import Path

import httpx
import pytest

from tests.asynchronous import on_loop
from tests.browsers import needs_browser, page_of
from tests.net.processes import serving
from tests.net.test_neighbours import free_ports

pytestmark = [pytest.mark.slow, needs_browser]


@on_loop
async def test_pages_go_on_after_a_killed_broker(tmp_path: Path) -> None:
    """A page would show old counts as if they were new, or need a reload after a restart."""
    port, http = map(str, free_ports(2))
    address = f"http://127.0.0.1:{http}"
    broker = ["--port", port, "--http", http, "--store", str(tmp_path / "events.db")]

    def publish(count: int) -> None:
        for n in range(count):
            httpx.post(f"{address}/events", json={"n": n}).raise_for_status()

    with serving(*broker) as (process, _):
        async with page_of(f"{address}/#receiver", expected="net::ERR_") as page:
            tries = await page.context.new_page()
            queues = await page.context.new_page()
            await tries.goto(f"{address}/#playground")
            await queues.goto(f"{address}/#queues")
            await tries.get_by_text("1 of 3 match").wait_for()
            await page.get_by_label("Filter").fill("data.n >= 0")
            await page.get_by_label("Durable name").fill("desk")
            await page.get_by_role("button", name="Subscribe", exact=True).click()
            await page.get_by_text("connected", exact=True).wait_for()
            publish(3)
            await page.get_by_text("3 events").wait_for()
            await queues.get_by_role("row", name="desk").wait_for()

            process.kill()
            process.wait()
            for each in (page, tries, queues):
                lost = each.get_by_role("alert").get_by_text("This page goes on")
                await lost.wait_for()
            await page.get_by_text("connected", exact=True).wait_for(state="detached")
            box = tries.get_by_label("Filter", exact=True).get_by_role("textbox")
            await box.fill('symbol = "IBM"')
            await tries.get_by_text("the broker does not answer", exact=True).wait_for()

            with serving(*broker):
                await page.get_by_text("connected", exact=True).wait_for()
                publish(2)
                await page.get_by_text("5 events").wait_for()
                await tries.get_by_role("row", name="3 matches").wait_for()
                await queues.get_by_role("row", name="desk 0 0 0").wait_for()
                for each in (page, tries, queues):
                    await each.get_by_role("alert").first.wait_for(state="detached")
