"""No trick reads or writes beyond the rights, at one broker and over limited links."""

import os
from typing import Final

import pytest

from tests.asynchronous import on_loop
from tests.net.trespass import trespass

SEEDS: Final = int(os.environ.get("CONTRADA_TRESPASSES", "10"))
STEPS: Final = 150
ANSWERED: Final = (3, 7)
"""Worlds with many askers that may read the answers of others."""


@pytest.mark.parametrize("is_network", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.quick_every(4)
@on_loop
async def test_nobody_reads_or_writes_beyond_permissions(seed: int, is_network: bool) -> None:
    """A permission would hold for one way in or out, and not for another."""
    ways = {"answer"} if seed in ANSWERED else set()
    got, world = await trespass(seed, STEPS, is_network=is_network, ways=ways)
    assert got, "something is allowed"
    assert world.refused, "something is not"
