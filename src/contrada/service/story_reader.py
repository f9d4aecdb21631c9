"""`StoryReader`: the transitions of one notification, subscription or log at one server.

It reads the events of a server with their effects, oldest first, and finds those that concern an
identity: a notification by its id; a subscription by its identity, or by its origin and identity
where one origin is meant (`3/prices`, `oslo/17`); a durable subscription by its name. The parts of
a subscription, the identities under which its filters are forwarded, and the positions of a
notification in logs are learned from the events.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from contrada.delivery import delivery_messages as durable
from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.delivery.owned_logs import AppendedRecord
from contrada.delivery.transit import SendMessage
from contrada.errors import shortened
from contrada.matching.packed import Bundle
from contrada.model import Notification
from contrada.model.codec import notification_from_msgpack
from contrada.patterns import Match
from contrada.routing import router_messages as messages
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.service.dispatch_routes import Carried
from contrada.service.dispatcher import Dispatcher
from contrada.service.story import ServerStory, StoryStep, Transition
from contrada.service.transition_log import Accepting, Covered, Dropped, Entered

QUEUES_SHOWN_MAX: Final = 20
"""Queues in the story of a notification at one server. Beyond it: the first, and their number."""

TRANSITIONS_MAX: Final = 1_000
"""Transitions in the story of one server. Beyond it: the first, and the number of the others."""

_BEGIN: Final = (StoryStep.PUBLISHED, StoryStep.ARRIVED, StoryStep.SUBSCRIBED)
"""The transitions that name the origin of their event, before those that follow from it."""

_Drafts: TypeAlias = Iterator[tuple[StoryStep, dict[str, str]]]


class StoryReader:
    """The state of reading: the names learned so far. Not for several servers."""

    def __init__(self, broker: str, names: Iterable[str]) -> None:
        self.broker = broker
        self.names = set(names)
        self._labels: dict[tuple[str, str], str] = {}
        self._forwarded: set[str] = set()
        self._positions: set[tuple[str, int]] = set()
        self._tokens: set[int] = set()

    def enter(self, entered: Entered) -> None:
        """Learns the name of a part of a subscription."""
        self._labels[entered.client, entered.part] = entered.identity

    def read(
        self,
        number: int,
        time_us: int,
        origin: messages.Origin | None,
        message: Any,
        effects: Sequence[Any],
    ) -> list[Transition]:
        """Returns the transitions of an event. Cost: its notifications and effects."""
        if isinstance(message, Entered):
            self.enter(message)
            return []
        came_from = _name_of(origin)
        found = self._read(time_us, origin, came_from, message, effects)
        transitions = []
        for step, fields in found:
            fields.setdefault("origin", came_from if step in _BEGIN else "")
            transitions.append(Transition(self.broker, number, time_us, step, **fields))
        return transitions

    def _read(
        self,
        time_us: int,
        origin: messages.Origin | None,
        came_from: str,
        message: Any,
        effects: Sequence[Any],
    ) -> _Drafts:
        match message:
            case messages.Publish():
                yield from self._read_publication(time_us, origin, message, effects)
            case messages.Subscribe() | SubscribePattern():
                yield from self._read_subscription(origin, message, effects)
            case messages.Unsubscribe() | UnsubscribePattern():
                if self._is_own(origin, message.identity):
                    yield StoryStep.WITHDRAWN, {"origin": came_from}
            case messages.LinkDown():
                if any(each.startswith(f"{came_from}/") for each in self.names):
                    yield StoryStep.WITHDRAWN, {"origin": came_from, "detail": "the link is down"}
            case Dropped():
                place = {"to": message.to} if message.to else {"origin": came_from}
                step = StoryStep.DROPPED if message.to else StoryStep.REFUSED
                for item, _, _ in message.entries:
                    if self._is_item(item):
                        yield step, {**place, "detail": message.reason}
            case _:
                yield from self._read_guarantee(came_from, message)
        for effect in effects:
            yield from self._read_effect(effect)

    def _read_guarantee(self, came_from: str, message: Any) -> _Drafts:
        match message:
            case Accepting(token, notifications):
                if self._has(notifications):
                    self._tokens.add(token)
                    yield (
                        StoryStep.PUBLISHED,
                        {"detail": f"for logs, {notifications[0].envelope.delivery}"},
                    )
            case AppendedRecord():
                yield from self._read_log(message)
            case durable.Transfer():
                for each in message.shipments:
                    yield from self._read_arrival(message.source, each.body)
            case _ if isinstance(message, durable.Consuming):
                yield from self._read_consumer(came_from, message)

    # --- names --------------------------------------------------------------------------------

    def _is_own(self, origin: messages.Origin | None, identity: str) -> bool:
        name = "" if origin is None else origin.name
        label = self._labels.get((name, identity), identity)
        if isinstance(origin, messages.Client) and label in self.names:
            return True
        return f"{name}/{label}" in self.names

    def _has(self, notifications: messages.Notifications | Sequence[Notification]) -> bool:
        if type(notifications) is Bundle:
            # Searched as bytes first: to decode the identities of all bundles would take seconds.
            if not any(notifications.may_have(each.encode()) for each in self.names):
                return False
            return any(identity in self.names for _, identity in notifications.identities())
        return any(each.envelope.id in self.names for each in notifications)

    def _is_item(self, item: Any) -> bool:
        """Whether an entry of a queue is the notification, or a match with it."""
        if isinstance(item, Carried):
            item = item.notification
        if isinstance(item, bytes):
            if not any(each.encode() in item for each in self.names):
                return False
            item = notification_from_msgpack(item)
        return self._has(item.notifications if isinstance(item, Match) else (item,))

    # --- notifications ------------------------------------------------------------------------

    def _read_publication(
        self,
        time_us: int,
        origin: messages.Origin | None,
        message: messages.Publish,
        effects: Sequence[Any],
    ) -> _Drafts:
        if not self._has(message.notifications):
            return
        step = StoryStep.PUBLISHED if isinstance(origin, messages.Client) else StoryStep.ARRIVED
        yield step, {"detail": _class_of(message.notifications)}
        if any(self._concerns(each) for each in effects):
            return
        own = (each.envelope for each in message.notifications if each.envelope.id in self.names)
        ends_us = [each.expires_us for each in own]
        if any(each is not None and each <= time_us for each in ends_us):
            yield StoryStep.EXPIRED, {"detail": "before it was matched"}
        else:
            detail = "no queue and no link; a pattern may hold it"
            yield StoryStep.UNMATCHED, {"detail": detail}

    def _concerns(self, effect: Any) -> bool:
        match effect:
            case messages.Deliver():
                return self._has(effect.notifications)
            case messages.Send(message=messages.Publish(notifications)):
                return self._has(notifications)
            case messages.Refused(event=messages.Received(message=messages.Publish(notifications))):
                return self._has(notifications)
            case messages.DeliverMatch():
                return self._has(effect.match.notifications)
        return False

    def _read_effect(self, effect: Any) -> _Drafts:
        match effect:
            case messages.Deliver() if self._concerns(effect):
                yield from self._read_delivery(effect)
            case messages.Send(to, messages.Publish()) if self._concerns(effect):
                yield StoryStep.FORWARDED, {"to": to.name}
            case messages.Send(to, messages.Subscribe(identity=name, filters=filters)):
                if name in self._forwarded:
                    detail = shortened(str(filters))
                    yield StoryStep.FORWARDED, {"to": to.name, "name": name, "detail": detail}
            case messages.Send(to, messages.Unsubscribe(identity=name)):
                if name in self._forwarded:
                    yield StoryStep.WITHDRAWN, {"to": to.name, "name": name}
            case messages.Refused() if self._concerns(effect):
                is_repeated = effect.reason is messages.Reason.DUPLICATE
                step = StoryStep.DUPLICATE if is_repeated else StoryStep.REFUSED
                yield step, {"detail": str(effect.error or effect.reason)}
            case messages.DeliverMatch() if self._concerns(effect):
                key = effect.client.name, effect.match.key
                queue = f"{effect.client.name}/{self._labels.get(key, effect.match.key)}"
                yield StoryStep.MATCHED, {"to": queue}
            case Confirmed(token, fresh) if token in self._tokens:
                is_fresh = self._has(fresh)
                yield (StoryStep.ACCEPTED if is_fresh else StoryStep.DUPLICATE), {}
            case Failed(token, error) if token in self._tokens:
                yield StoryStep.REFUSED, {"detail": str(error)}
            case HandRecords(client, message):
                yield from self._read_hand_out(client, message)
            case SendMessage(to, durable.Transfer() as transfer):
                for each in transfer.shipments:
                    owners = ", ".join(it.owner for it in each.to)
                    yield from self._read_departure(to.name, owners, each.body)

    def _read_delivery(self, effect: messages.Deliver) -> _Drafts:
        client = effect.client.name
        for part in islice(effect.subscriptions, QUEUES_SHOWN_MAX):
            label = self._labels.get((client, part), part)
            yield StoryStep.QUEUED, {"to": f"{client}/{label}"}
        if (more := len(effect.subscriptions) - QUEUES_SHOWN_MAX) > 0:
            yield StoryStep.QUEUED, {"to": client, "detail": f"and for {more:,} more subscriptions"}

    # --- subscriptions ------------------------------------------------------------------------

    def _read_subscription(
        self,
        origin: messages.Origin | None,
        message: messages.Subscribe | SubscribePattern,
        effects: Sequence[Any],
    ) -> _Drafts:
        if not self._is_own(origin, message.identity):
            return
        is_client = isinstance(origin, messages.Client)
        label = self._labels.get(("" if origin is None else origin.name, message.identity))
        what = message.filters if isinstance(message, messages.Subscribe) else message.pattern
        yield (
            StoryStep.SUBSCRIBED if is_client else StoryStep.ARRIVED,
            {"name": label or message.identity, "detail": shortened(str(what))},
        )
        for effect in effects:
            match effect:
                case messages.Send(message=messages.Subscribe(identity=name)):
                    self._forwarded.add(name)  # Its transition is that of the effect.
                case messages.Refused():
                    yield StoryStep.REFUSED, {"detail": str(effect.error or effect.reason)}
                case Covered():
                    detail = f"by {shortened(str(effect.product))}"
                    yield StoryStep.COVERED, {"to": effect.neighbour, "detail": detail}

    # --- logs ---------------------------------------------------------------------------------

    def _read_log(self, logged: AppendedRecord) -> _Drafts:
        if self._is_item(logged.record):
            step = StoryStep.DEAD if logged.reason else StoryStep.LOGGED
            detail = f"position {logged.position}"
            if logged.reason:
                detail += f", {logged.reason}"
            yield step, {"to": logged.name, "detail": detail}

    def _read_hand_out(self, reader: str, message: durable.ForReader) -> _Drafts:
        name = message.name
        if isinstance(message, durable.Records):
            for each in message.records:
                if each.notification is not None and self._has((each.notification,)):
                    self._positions.add((name, each.position))
                if self._has_position(name, each.position):
                    detail = f"position {each.position} of {name}, attempt {each.attempt}"
                    yield StoryStep.HANDED, {"to": reader, "detail": detail}
        elif isinstance(message, durable.Withdraw):
            for position in message.positions:
                if self._has_position(name, position):
                    detail = f"position {position} of {name}"
                    yield StoryStep.TAKEN_BACK, {"origin": reader, "detail": detail}
        elif name in self.names:
            detail = message.reason + (", and opens again" if message.again else "")
            yield StoryStep.CLOSED, {"to": reader, "detail": detail}

    def _has_position(self, name: str, position: int) -> bool:
        return name in self.names or (name, position) in self._positions

    def _read_departure(self, to: str, owners: str, body: durable.Payload) -> _Drafts:
        if isinstance(body, durable.Notice | durable.ToSequence | durable.Returned):
            if self._has((body.notification,)):
                yield StoryStep.FORWARDED, {"to": to, "detail": f"for {owners}"}
        elif isinstance(body, durable.ForReader):
            yield from self._read_hand_out(f"{owners}/{body.consumer}", body)

    def _read_arrival(self, source: str, body: durable.Payload) -> _Drafts:
        if isinstance(body, durable.Notice | durable.ToSequence | durable.Returned):
            if self._has((body.notification,)):
                yield StoryStep.ARRIVED, {"detail": f"of {source}"}
        elif isinstance(body, durable.Consuming):
            yield from self._read_consumer(source, body)
        elif isinstance(body, durable.Records):
            for each in body.records:  # So that its reader's acknowledgements are found here.
                if each.notification is not None and self._has((each.notification,)):
                    self._positions.add((body.name, each.position))

    def _read_consumer(self, server: str, message: durable.Consuming) -> _Drafts:
        name, is_own = message.name, message.name in self.names
        reader = {"origin": f"{server}/{message.consumer}" if server else message.consumer}
        match message:
            case durable.OpenLog() if is_own:
                place = "" if message.position is None else f"from position {message.position}"
                yield StoryStep.OPENED, {**reader, "to": name, "detail": place}
            case durable.Grant() if is_own:
                detail = f"{message.credit} more records; {message.read} were read"
                yield StoryStep.CREDIT, {**reader, "to": name, "detail": detail}
            case durable.CloseLog() if is_own:
                detail = "and the subscription ends" if message.ends else ""
                yield StoryStep.CLOSED, {**reader, "to": name, "detail": detail}
            case durable.Ack(intervals=intervals):
                for first, end in intervals:
                    yield from self._settled(
                        StoryStep.ACKNOWLEDGED, name, range(first, end), reader
                    )
            case durable.Nack(positions=positions):
                yield from self._settled(StoryStep.RETURNED, name, positions, reader)

    def _settled(
        self, step: StoryStep, name: str, positions: Sequence[int], reader: dict[str, str]
    ) -> _Drafts:
        if name in self.names and positions:
            shown = str(positions[0])
            if len(positions) > 1:
                shown += f" to {positions[-1]}"
            yield step, {**reader, "to": name, "detail": f"position {shown}"}
            return
        for log, position in sorted(self._positions):
            if log == name and position in positions:
                yield step, {**reader, "to": name, "detail": f"position {position}"}


def read_story(dispatcher: Dispatcher, names: Iterable[str]) -> Generator[None, None, ServerStory]:
    """Returns the story of an identity at one server, in turns of one event each.

    `names` has the identity, and those under which neighbours have forwarded its filters.
    """
    log, reader = dispatcher.transitions, StoryReader(dispatcher.router.name, names)
    if log is None:
        return ServerStory(is_recorded=False)
    facts, first = log.facts(), log.overwritten
    for client, routes in dispatcher.routes.items():  # Their entry may be overwritten.
        for part, route in routes.items():
            reader.enter(Entered(client, route.identity, part))
    found: list[Transition] = []
    left_out = 0
    for number, (time_us, origin, message, effects, _) in enumerate(facts, first):
        found += reader.read(number, time_us, origin, message, effects)
        left_out += len(found[TRANSITIONS_MAX:])
        del found[TRANSITIONS_MAX:]
        yield
    since_us = facts[0][0] if first and facts else 0
    return ServerStory(found, since_us, left_out=left_out)


def _class_of(notifications: messages.Notifications) -> str:
    """Returns what distinguishes the routed copy of a notification above best effort."""
    if type(notifications) is Bundle or notifications[0].envelope.delivery == BEST_EFFORT:
        return ""
    return "for subscriptions that are not durable"


def _name_of(origin: messages.Origin | None) -> str:
    return "" if origin is None else origin.name
