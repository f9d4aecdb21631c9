"""Peers: each is a server of the network with the files of one folder of Python's library.

Each new peer has a link to an existing one, so that any two are connected.
"""

import asyncio
import random
import sysconfig
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import contrada as ct
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.routing.router import Strategy
from contrada.service import SourceOffer

File = dict[str, Any]

SEED: Final = 948
LEFT_OUT: Final = ("test", "site-packages", "__pycache__")
OF_QUESTIONS: Final = ("Ask", "Answer", "More", "Cancel")
"""The messages of a search between servers."""


def shared() -> dict[str, list[File]]:
    """Returns the shared files of each folder."""
    library = Path(sysconfig.get_path("stdlib"))
    found: dict[str, list[File]] = {}
    for path in sorted(library.rglob("*")):
        within = path.relative_to(library).parts
        if len(within) > 1 and path.is_file() and not set(within) & set(LEFT_OUT):
            found.setdefault("/".join(within[:-1]), []).append(_file(path))
    return found


def _file(path: Path) -> File:
    words = path.stem.lower().replace("-", "_").split("_")
    return {
        "name": path.name,
        "kind": path.suffix.removeprefix("."),
        "size": path.stat().st_size,
        "words": sorted({each for each in words if each}),
    }


@dataclass(frozen=True)
class Peers:
    """The network, with a service at each peer, and the sources of each."""

    brokers: Sequence[Broker]
    services: Sequence[ct.Service]
    offers: Sequence[SourceOffer]

    def messages(self) -> tuple[int, int]:
        """Returns the questions between servers, and all messages of questions."""
        told = self.told("sent")
        return told["Ask"], sum(told[each] for each in OF_QUESTIONS)

    def told(self, what: str) -> Counter[str]:
        """Returns the messages that all servers have `sent`, or `received`, by kind."""
        found: Counter[str] = Counter()
        for each in self.brokers:
            found.update(getattr(each.dispatcher.router.statistics(), what))
        return found


@asynccontextmanager
async def network(files: dict[str, list[File]], strategy: Strategy) -> AsyncIterator[Peers]:
    """Starts peers with descriptions, which are computed from the files."""
    rng = random.Random(SEED)
    async with AsyncExitStack() as running:
        brokers: list[Broker] = []
        for name in files:
            near = [rng.choice(brokers)] if brokers else []
            wanted = tuple(WantedLink(parse_address(each.address)) for each in near)
            of = Membership(name, strategy=strategy, neighbours=wanted)
            brokers.append(await running.enter_async_context(Broker(port=0, network=of)))
        links = 2 * (len(brokers) - 1)
        while sum(len(each.neighbours) for each in brokers) < links:
            await asyncio.sleep(0.001)
        services = [await running.enter_async_context(ct.connect(each.address)) for each in brokers]
        offers = [
            await running.enter_async_context(
                service.offer(None, ct.RecordSource(several), name=name)
            )
            for service, (name, several) in zip(services, files.items(), strict=True)
        ]
        peers = Peers(brokers, services, offers)
        # Messages of a server's own client are not sent by another server.
        while peers.told("received")["Describe"] < peers.told("sent")["Describe"] + len(offers):
            await asyncio.sleep(0.001)
        yield peers
