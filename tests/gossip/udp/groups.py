"""Groups of participants over UDP, in this process, with loss that is injected."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from contrada.gossip.addresses import LogicalAddress
from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.parameters import Parameters
from contrada.gossip.udp import GossipGroup, GossipNode, GroupKey
from contrada.gossip.udp.rate_limits import UdpAddress
from tests.asynchronous import until

KEY = GroupKey(bytes(range(32)))
QUICK = Parameters(
    period_us=20_000, fanout=3, redundancy=2, levels=2, branching=4, audience=8, constant=2.0
)


class LossyNode(GossipNode):
    """One that loses a share of what it sends, by a seed."""

    loss = 0.0
    chance = random.Random(0)

    def _transmit(self, datagram: bytes, place: UdpAddress) -> None:
        if self.chance.random() >= self.loss:
            super()._transmit(datagram, place)


def node(
    *join: str,
    group: GossipGroup | None = None,
    address: LogicalAddress | None = None,
    key: GroupKey = KEY,
    loss: float = 0.0,
    **options: Any,
) -> LossyNode:
    """A participant of a quick group."""
    made = LossyNode(
        key, group or GossipGroup(parameters=QUICK), join=join, address=address, **options
    )
    made.loss = loss
    made.chance = random.Random(repr(address))
    return made


@asynccontextmanager
async def group_of(
    addresses: Sequence[LogicalAddress], **options: Any
) -> AsyncIterator[list[LossyNode]]:
    """Participants at these addresses, each of which knows of all."""
    async with AsyncExitStack() as stack:
        first, *others = addresses
        nodes = [await stack.enter_async_context(node(address=first, **options))]
        limits = options.get("limits", GossipLimits())
        options["limits"] = replace(limits, group_join_wait_s=60.0)
        nodes += [node(nodes[0].place, address=each, **options) for each in others]
        await asyncio.gather(*map(stack.enter_async_context, nodes[1:]))
        await until_round(nodes[0], lambda: all(counted(each) == len(nodes) for each in nodes))
        yield nodes


async def until_round(one: GossipNode, condition: Callable[[], bool]) -> None:
    """Waits until something holds, and asks in each round of one participant, since it is dear."""
    view = one.participant.membership.view
    while not condition():
        last = view.round
        await until(lambda: view.round > last)  # noqa: B023 - awaited here


def counted(one: GossipNode) -> int:
    """How many participants one knows of, as lines of its top table count them."""
    return sum(held.line.count for held in one.participant.membership.view.tables[-1].live())


def refused(nodes: Iterable[GossipNode], reason: str) -> int:
    """How often something was refused for a reason."""
    return sum(each.statistics().refused.get(reason, 0) for each in nodes)
