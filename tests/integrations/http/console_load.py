"""The receiver of the console under 10,000 events per second, and what the console costs a broker.

    python -m tests.integrations.http.console_load SECONDS

Three broker processes get the same load in turns: one without an HTTP port, one whose console
nobody looks at, and one that a page in Chromium watches, with a plot and counts. Their processor
times give the cost of the console. Then a page watches for SECONDS: its count, frames, heap and
processor time are measured. It fails where a bound of `BOUNDS` does not hold.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from contrada.connections import connect
from tests.browsers import page_of
from tests.net.processes import serving

MODULE: Final = "tests.integrations.http.console_load"
PER_SECOND: Final = 10_000
BATCH: Final = 50
ROUNDS: Final = 12
TURN_S: Final = 4.0
SAMPLES: Final = 10
"""Samples of the heap, and parts of the run with a rate of frames each."""

HEAP_KB_MAX: Final = 20_000
"""Kilobytes of the heap. The 10,000 to 20,000 events that a page keeps take 8 to 17 MB of it."""

CAUGHT_UP_S: Final = 60.0
"""Seconds for the page to count the rest after the last event."""

FRAMES: Final = """() => {
  window.frames = {count: 0, longest: 0, last: performance.now()};
  requestAnimationFrame(function draw(now) {
    frames.count += 1;
    frames.longest = Math.max(frames.longest, now - frames.last);
    frames.last = now;
    requestAnimationFrame(draw);
  });
}"""


class Watched(NamedTuple):
    """A page that watches a broker."""

    page: Any
    region: Any
    debug: Any
    browser: Any

    async def counts(self) -> tuple[int, int]:
        """Returns the events that the page has counted, and those it reports as lost."""
        status = await self.region.get_by_role("status").first.inner_text()
        lost = await self.region.locator("b.error").all_inner_texts()
        return int(status.split()[0]), sum(int(each.split()[0]) for each in lost)

    async def heap_kb(self) -> int:
        """Returns the used heap of JavaScript after a collection."""
        await self.debug.send("HeapProfiler.collectGarbage")
        return int((await self.debug.send("Runtime.getHeapUsage"))["usedSize"]) // 1024

    async def cpu_s(self) -> float:
        """Returns the processor time of the processes that draw the page."""
        found = await self.browser.send("SystemInfo.getProcessInfo")
        kinds = ("renderer", "GPU")
        return float(sum(it["cpuTime"] for it in found["processInfo"] if it["type"] in kinds))

    async def frames(self) -> dict[str, float]:
        """Returns the count of frames and the longest pause in ms, and begins anew."""
        text = (
            "() => { const found = {...frames}; frames.count = frames.longest = 0; return found }"
        )
        return dict(await self.page.evaluate(text))


def cpu_s(pid: int) -> float:
    """Returns the processor time of a process, in seconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in tasks) / 1e9


@asynccontextmanager
async def watching(http: str) -> AsyncIterator[Watched]:
    """Opens the receiver in a browser, with a plot of the prices."""
    async with page_of(f"{http}/#receiver") as page:
        await page.get_by_label("Filter").fill("n any")
        await page.get_by_role("button", name="Subscribe", exact=True).click()
        region = page.get_by_role("region", name="Subscription n any")
        await region.get_by_text("connected", exact=True).wait_for()
        await region.get_by_label("Attribute").fill("price")
        await page.evaluate(FRAMES)
        debug = await page.context.new_cdp_session(page)
        browser = await page.context.browser.new_browser_cdp_session()
        yield Watched(page, region, debug, browser)


async def publish(address: str, seconds: float) -> None:
    """Publishes at the rate of the load; prints the number of events."""
    async with connect(address) as service:
        began, number = time.monotonic(), 0
        while number < PER_SECOND * seconds:
            await service.publish_batch(
                {"n": n, "symbol": f"S{n % 50}", "price": n % 200 + 0.5, "venue": "the north"}
                for n in range(number, number + BATCH)
            )
            number += BATCH
            await asyncio.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
    print(number)  # noqa: T201 - read by the parent


async def published(address: str, seconds: float) -> int:
    """Publishes from another process, and returns the number of events."""
    command = (sys.executable, "-m", MODULE, "publish", address, str(seconds))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return int(out)


@contextmanager
def broker(*options: str) -> Iterator[tuple[int, str, str]]:
    """Yields the process of a broker, its address, and that of its HTTP port, if it has one."""
    with serving("--port", "0", *options) as (process, address):
        assert process.stdout is not None
        yield process.pid, address, process.stdout.readline().strip() if options else ""


async def costs(rounds: int) -> dict[str, Any]:
    """Returns the processor time of each broker in ms for a second of load, by rounds."""
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(broker(*options))
            for name, options in (
                ("closed", ()),
                ("unwatched", ("--http", "0")),
                ("watched", ("--http", "0")),
            )
        }
        used: dict[str, list[float]] = {name: [] for name in brokers}
        async with watching(brokers["watched"][2]):
            for turn in range(rounds + 1):
                # Each follows each other one alike: the page is still busy after its broker's turn.
                order = [*brokers.items()][:: 1 if turn % 2 else -1]
                for name, (pid, address, _) in order:
                    before = cpu_s(pid)
                    await published(address, TURN_S)
                    if turn:  # The first one is to warm up.
                        used[name].append((cpu_s(pid) - before) * 1e3 / TURN_S)
        pairs = [
            (open_ / closed - 1, (seen - open_) / 1e3)
            for closed, open_, seen in zip(*used.values(), strict=True)
        ]
        unwatched, viewer = (statistics.median(each) for each in zip(*pairs, strict=True))
        return {
            "ms_per_s": {name: round(statistics.median(each), 1) for name, each in used.items()},
            "unwatched_share": round(unwatched, 3),
            "viewer_of_a_core": round(viewer, 3),
        }


async def watch(seconds: float) -> dict[str, Any]:
    """Returns what a page shows of a load of some seconds, and what that takes."""
    with broker("--http", "0") as (pid, address, http):
        async with watching(http) as watched:
            load = asyncio.create_task(published(address, seconds))
            heap, rates, pauses = list[int](), list[float](), list[float]()
            broker_s, page_s, began = cpu_s(pid), await watched.cpu_s(), time.monotonic()
            for part in range(SAMPLES):
                end = began + seconds * (part + 1) / SAMPLES
                await watched.frames()
                from_s = time.monotonic()
                await asyncio.sleep(end - time.monotonic())
                drawn = await watched.frames()
                rates.append(round(drawn["count"] / (time.monotonic() - from_s), 1))
                pauses.append(round(drawn["longest"]))
                heap.append(await watched.heap_kb())
            took = time.monotonic() - began
            broker_s, page_s = cpu_s(pid) - broker_s, await watched.cpu_s() - page_s
            total = await load
            async with asyncio.timeout(CAUGHT_UP_S):
                while sum(await watched.counts()) < total:
                    await asyncio.sleep(0.05)
            counted, lost = await watched.counts()
    return {
        "seconds": round(took),
        "published": total,
        "counted": counted,
        "lost": lost,
        "frames_per_s": rates,
        "longest_pause_ms": pauses,
        "heap_kb": heap,
        "broker_of_a_core": round(broker_s / took, 3),
        "page_of_a_core": round(page_s / took, 3),
        "load_average": os.getloadavg()[0],
    }


BOUNDS: Final[dict[str, Callable[[dict[str, Any]], bool]]] = {
    "count": lambda it: it["counted"] + it["lost"] == it["published"],
    "frames": lambda it: statistics.median(it["frames_per_s"]) >= 30,
    "memory": lambda it: max(it["heap_kb"]) <= HEAP_KB_MAX,
    "unwatched": lambda it: it["unwatched_share"] <= 0.03,
    "viewer": lambda it: it["viewer_of_a_core"] <= 0.10,
}
"""Counts and reported losses are what was published; 30 frames a second; a bounded heap;
3% more of the broker's processor time without a viewer, and a tenth of a core for one."""


async def run(seconds: float) -> list[str]:
    """Runs all, prints the figures, and returns the names of the bounds that do not hold."""
    found = await costs(ROUNDS) | await watch(seconds)
    print(json.dumps(found, indent=1))  # noqa: T201 - a command
    return [name for name, holds in BOUNDS.items() if not holds(found)]


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        asyncio.run(publish(sys.argv[2], float(sys.argv[3])))
    elif missed := asyncio.run(run(float(sys.argv[1]))):
        sys.exit(f"not within bounds: {', '.join(missed)}")
