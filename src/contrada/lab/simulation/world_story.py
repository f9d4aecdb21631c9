"""`story_in_world`: the story of notifications and subscriptions in a run, for its violations.

A run has one order of all events, so the transitions need no merge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from contrada.lab.simulation.oracle import Violation
from contrada.lab.simulation.simulated_delivery import DeliveryEvent
from contrada.lab.simulation.simulated_network import SimulatedNetwork, name_of
from contrada.routing.router_messages import LinkDown, LinkUp, Received
from contrada.service.story import Story, StoryStep, Transition
from contrada.service.story_reader import StoryReader

STORIES_MAX: Final = 3
"""Violations of a world with a story. Beyond it: the others have none."""

STORY_LINES_MAX: Final = 100
"""Transitions in the story of a violation. Beyond it: the last ones."""


def with_stories(violations: Sequence[Violation], network: SimulatedNetwork) -> list[Violation]:
    """Returns the violations, the first ones with their story."""
    told: list[Violation] = []
    for each in violations:
        if each.identities and len(told) < STORIES_MAX:
            each = replace(each, story=str(story_in_world(network, each.identities)))
        told.append(each)
    return told


def story_in_world(network: SimulatedNetwork, names: Sequence[str]) -> Story:
    """Returns the story at all servers, in the order of the run. Cost: all events."""
    readers: dict[int, StoryReader] = {}
    found: list[Transition] = []
    events = sorted(_events(network), key=itemgetter(0))
    for number, (at_us, broker, origin, message, effects) in enumerate(events):
        reader = readers.setdefault(broker, StoryReader(name_of(broker), names))
        for each in reader.read(number, at_us, origin, message, effects):
            if each.step == StoryStep.FORWARDED and each.name:
                there = int(each.to)
                reader_there = readers.setdefault(there, StoryReader(each.to, names))
                reader_there.names.add(f"{each.broker}/{each.name}")
            found.append(each)
    return Story(" and ".join(names), found[-STORY_LINES_MAX:])


def _events(network: SimulatedNetwork) -> Iterator[DeliveryEvent]:
    for each in network.history.handled:
        event, place = each.event, (each.at_us, each.broker)
        if isinstance(event, Received):
            yield *place, event.origin, event.message, each.effects
        else:
            origin = event.neighbour if isinstance(event, LinkUp | LinkDown) else None
            yield *place, origin, event, each.effects
    if network.delivery is not None:
        yield from network.delivery.events
