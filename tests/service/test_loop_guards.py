"""Works that run together on one event loop."""

import asyncio

from contrada.service.loop_guards import first_of
from tests.asynchronous import on_jumping_loop


@on_jumping_loop
async def test_a_work_that_drops_its_cancellation_is_cancelled_again() -> None:
    """A bridge would never end, or never open another connection."""
    drops = [1, 2]

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not drops:
                    raise
                drops.pop()

    await first_of(asyncio.sleep(0), stubborn())
    assert drops == []
