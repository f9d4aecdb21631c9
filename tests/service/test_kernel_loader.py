"""Loading compiled kernels beside the work of a service."""

import subprocess
import sys

import pytest

from contrada.matching.kernels import jit
from contrada.service import kernel_loader

SCRIPT = """
import asyncio, contrada as ct
from functools import partialmethod
from contrada.matching.index import Index, IndexLimits
from contrada.matching.kernels import jit
soon = IndexLimits(work_uncached_max=10, work_between=1)
Index.__init__ = partialmethod(Index.__init__, limits=soon)

async def main():
    async with ct.connect() as service, service.subscribe("a > 1") as events:
        before = jit.is_loaded()
        for i in range(5):
            await service.publish({"a": i})
        seen = [(await anext(events))["a"] for _ in range(3)]
        while not jit.is_loaded():
            await asyncio.sleep(0)
        await service.publish({"a": 9})
        seen.append((await anext(events))["a"])
        index = service.dispatcher.router._subscriptions.index
        print(before, seen, index.statistics().is_compiled)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(jit.is_pure(), reason="numba is not installed")
def test_a_service_goes_over_to_compiled_kernels_while_it_works() -> None:
    """A service would stand still while kernels load, or never use them."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "False [2, 3, 4, 9] True"


@pytest.mark.parametrize("is_broken", [False, True])
def test_threads_take_short_turns_while_kernels_load_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Beside a loop that is never idle, loading would take half a minute."""
    before = sys.getswitchinterval()
    seen = []

    def compiled() -> bool:
        seen.append(sys.getswitchinterval())
        if is_broken:
            raise OSError("no kernels")
        return True

    monkeypatch.setattr(jit, "compiled", compiled)
    kernel_loader._load()
    assert seen == [pytest.approx(kernel_loader.TURN_S)]
    assert seen[0] < before == sys.getswitchinterval()
